"""The runs of a cluster as a journal, for code that reads journals and posts messages to them.

This journal appends no events to a run: the run's workers do that. It puts an imported or forked
run onto the cluster whole, where the run is held until a ``resume``.
"""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from handrail.codec.codec import Codec
from handrail.errors import JournalFailed, RunLocked, RunNotFound
from handrail.model import events as ev
from handrail.ports.journal import Letter, RunInfo
from handrail.record.reading import workflow_named
from handrail.temporal.caller import Caller
from handrail.temporal.reaching import ReachesRuns
from handrail.temporal.wire import Row, event_of

T = TypeVar("T")

_KEPT_RUNS = 8
"""How many runs' records are cached; of a cached record only the new rows are fetched."""


class ClusterJournal:
    """A cluster's runs as a journal, for threads and event loops.

    Mutable: it keeps a connection and a cache of records.
    """

    durable = True

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._reaches = ReachesRuns(caller)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting = threading.Lock()
        self._kept: dict[str, list[Row]] = {}

    @property
    def codec(self) -> Codec:
        """The codec of the runs' values."""
        return self._caller.codec

    @property
    def identity(self) -> str:
        """What the marks of processes name it by that its runs' steps started."""
        return self._wait(self._identity())

    async def _identity(self) -> str:
        return await (await self._caller.cluster()).identity()

    # -- reading --------------------------------------------------------------------------------

    def runs(self) -> Sequence[RunInfo]:
        """Every run of the task queue, oldest first."""
        return self._wait(self._infos())

    async def _infos(self) -> list[RunInfo]:
        return await (await self._caller.cluster()).infos()

    def info(self, run_id: str, /) -> RunInfo | None:
        """The run of exactly this id, or None."""
        try:
            return self._wait(self._info(run_id))
        except RunNotFound:
            return None

    async def _info(self, run_id: str) -> RunInfo:
        return await (await self._caller.cluster()).info(run_id)

    def events(
        self, run_id: str, /, *, secrets: Mapping[str, str] | None = None
    ) -> Sequence[ev.Event]:
        """All events of a run, in order; empty for a run that the cluster does not know.

        Raises:
            NoWorker: the run is open, and no worker answers for it.
        """
        try:
            rows = self._wait(self._rows(run_id))
        except RunNotFound:
            return []
        return [event_of(row, run_id, self.codec, secrets or {}) for row in rows]

    async def _rows(self, run_id: str) -> list[Row]:
        kept = self._kept.pop(run_id, [])
        found = await (await self._caller.cluster()).rows(run_id, len(kept))
        kept += found
        while len(self._kept) >= _KEPT_RUNS:
            del self._kept[next(iter(self._kept))]
        self._kept[run_id] = kept
        return list(kept)

    def letters(self, run_id: str, after: int, /) -> Sequence[Letter]:
        """Always empty: a run records a message as soon as it arrives."""
        del run_id, after
        return ()

    def workers(self) -> Sequence[str]:
        """The workers that serve the runs of the task queue.

        Raises:
            ClusterUnreachable: the cluster does not answer.
        """
        return self._wait(self._workers())

    async def _workers(self) -> list[str]:
        return await (await self._caller.cluster()).workers()

    # -- sending --------------------------------------------------------------------------------

    def post(self, letter: Letter, /, *, secrets: Mapping[str, str] | None = None) -> Letter:
        """Send a message to its run; returns ``letter``.

        Raises:
            HandrailError: the run refused it. NoWorker: no worker answers for the run.
        """
        del secrets
        event = letter.event
        can_be_refused = isinstance(event, (ev.GateAnswered, ev.SignalReceived)) or (
            isinstance(event, ev.RunSteered) and event.path
        )
        send = self._reaches.ask if can_be_refused else self._reaches.tell
        self._wait(send(event.run_id, event))
        return letter

    def append_run(
        self,
        events: Sequence[ev.Event],
        /,
        *,
        letters: Sequence[Letter] = (),
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        """Put a whole run onto the cluster, where it is held until a ``resume``.

        Raises:
            RunIdTaken: a run has this id.
        """
        self._wait(self._append_run(events, letters, secrets))

    async def _append_run(
        self,
        events: Sequence[ev.Event],
        letters: Sequence[Letter],
        secrets: Mapping[str, str] | None,
    ) -> None:
        run_id, name = events[0].run_id, workflow_named(events)
        numbered = [copy.copy(one) for one in events]
        history = [ev.stamp(one, run_id, seq, one.at) for seq, one in enumerate(numbered, 1)]
        await self._caller.hold(run_id, name, history, secrets)
        for letter in letters:
            await self._reaches.tell(run_id, letter.event)

    # -- left to the workers --------------------------------------------------------------------

    def append(self, event: ev.Event, /, *, sync: bool = False) -> NoReturn:
        """Refuse: only its workers record a cluster's run.

        Raises:
            JournalFailed: always.
        """
        del sync
        where = self._wait(self._caller.cluster()).address
        raise JournalFailed(where, f"adding to run {event.run_id}", "only its workers do that")

    def acquire(self, run_id: str, /, *, secrets: Mapping[str, str] | None = None) -> NoReturn:
        """Refuse: only its workers drive a cluster's run.

        Raises:
            RunLocked: always.
        """
        del secrets
        raise RunLocked(run_id, 0, self._wait(self._caller.cluster()).address, 0.0)

    def close(self) -> None:
        """End the journal's thread; the next call starts another one."""
        with self._starting:
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)

    # -- inside ---------------------------------------------------------------------------------

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of ``work``, run on the journal's own thread: the caller may be a loop's."""
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=_run, args=(self._loop,), daemon=True).start()
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop until it is stopped, and close it."""
    loop.run_forever()
    loop.close()
