"""Reads the runs of a journal for the page, each once for all viewers.

The page reads the journal, whichever process drives a run, so it shows the runs of all processes
alike. It keeps a reading until the journal has changed. Reading a long run takes time, so the next
reading waits several times as long.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio
import anyio.to_thread

from handrail.errors import HandrailError, JournalFailed, RunNotFound
from handrail.model import events as ev
from handrail.model.dataclass import dataclass
from handrail.ports.journal import Journal, RunInfo, read_after
from handrail.record.inbox import runs_of
from handrail.record.run_record import Recorded
from handrail.record.state import RecordedRun, recorded_run
from handrail.record.status import ShownStatus, shown_status
from handrail.record.view import plain
from handrail.secrets.masking import Mask
from handrail.typed.jsonsafe import Json, json_safe
from handrail.web.log import Log, LogQuery
from handrail.web.run_json import at_work, detail_of, row_of
from handrail.web.step_json import StepRows, step_of
from handrail.web.texts import Texts, texts_of

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")

FRESH_S = 0.2
"""The list of runs is at most this old, or ``_AGE_FACTOR`` times the time to read it if longer."""
_AGE_FACTOR = 3
_KEPT_RUNS = 8
_KEPT_ROWS = 20_000
_SHORT_RUN = 2_000
"""Events: a list shows the cost of a longer run only once somebody has opened the run."""
_PATIENCE_S = 0.2
"""How long a list waits for its runs, and as long for their records, which it has costs from."""
_AT_ONCE = 4
"""Records that are read at a time for lists: one that takes long does not hold up the others."""
_AGAIN_S = 10.0
"""How soon a record that could not be read is tried again for a list."""
READING = "reading"
_BATCH = 500
"""Events that are made into lines at a time."""
_LONG_EVENT = 256 * 1024
"""Characters of JSON: of a longer event the page gets only the class, number, time and path."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A reading of a run: its record, its own row, its steps' rows by path, its steps at work.

    The rows are masked.
    """

    recorded: RecordedRun
    rows: Mapping[str, Json]
    row: dict[str, Json]
    at_work: tuple[str, ...]
    took_s: float
    at: float
    fold: Recorded
    row_builder: StepRows
    """The builder of the rows; the next snapshot continues it and ``reading`` at new events."""

    @property
    def history(self) -> Sequence[ev.Event]:
        """Its events, in order."""
        return self.recorded.history


_Key = tuple[int, float, ShownStatus, object]


def _key(info: RunInfo) -> _Key:
    return info.events, info.updated_at, shown_status(info), info.waits_for


class Reader:
    """Reads one journal. Mutable: it keeps what it read last.

    ``artifacts``: the folder of the files that an ``ArtifactsSink`` writes, if there is one.
    """

    def __init__(self, journal: Journal, mask: Mask, artifacts: Path | None = None) -> None:
        self.artifacts = artifacts
        self._journal = journal
        self._mask = mask
        self._runs: tuple[RunInfo, ...] = ()
        self._read_at = -1e9
        self._took_s = 0.0
        self._listing: anyio.Lock | None = None
        self._reading: dict[str, anyio.Lock] = {}
        self._snapshots: dict[str, tuple[_Key, int, Snapshot]] = {}
        self._rows: dict[str, tuple[_Key, float, dict[str, Json]]] = {}
        self._row_reads: dict[str, asyncio.Task[None]] = {}
        self._at_once: anyio.CapacityLimiter | None = None
        self._listings: set[asyncio.Task[tuple[RunInfo, ...]]] = set()
        self._logs: dict[str, tuple[float, Log]] = {}
        self._after = read_after(journal)

    # -- runs --------------------------------------------------------------------------------------

    async def runs(self, *, now: bool = False) -> tuple[RunInfo, ...]:
        """Every run, oldest first; ``now``: not from a reading that began before this call."""
        asked = time.monotonic()
        self._listing = self._listing or anyio.Lock()
        async with self._listing:
            began = time.monotonic()
            old = max(FRESH_S, _AGE_FACTOR * self._took_s)
            if self._read_at < (asked if now else began - old):
                listed = await self._in_thread(lambda: runs_of(self._journal), may_be_left=True)
                self._runs = tuple(listed)
                self._took_s = time.monotonic() - began
                self._read_at = began
            return self._runs

    async def info(self, run_id: str, *, now: bool = False) -> RunInfo:
        """One run's entry.

        Raises:
            RunNotFound: there is no such run.
        """
        infos = await self.runs(now=now)
        for info in infos:
            if info.run_id == run_id:
                return info
        raise RunNotFound(run_id, tuple(one.run_id for one in infos[-5:]))

    async def _in_thread(self, read: Callable[[], T], *, may_be_left: bool = False) -> T:
        """The result of a read: in a thread if the journal is a file, else in the loop.

        ``may_be_left``: nobody waits for its end when the page ends.
        """
        if not self._journal.durable:
            return read()
        return await anyio.to_thread.run_sync(read, abandon_on_cancel=may_be_left)

    def mask_data(self, data: T) -> T:
        """JSON data without secrets."""
        return cast("T", self._mask.plain(cast("Json", data)))

    async def listed(self) -> tuple[RunInfo, ...]:
        """``runs`` of now; if reading them takes long, those of the reading before."""
        import asyncio

        reading = asyncio.create_task(self.runs(now=True))
        self._listings.add(reading)
        reading.add_done_callback(self._listings.discard)
        patience = None if self._read_at < 0 else _PATIENCE_S
        await asyncio.wait({reading}, timeout=patience)
        return reading.result() if reading.done() else self._runs

    async def rows(self, infos: Sequence[RunInfo]) -> list[dict[str, Json]]:
        """The rows of runs; those that cannot be read at once say so, and are read meanwhile."""
        import asyncio

        missing = [info for info in infos if self._known_row(info) is None]
        for info in missing:
            if info.run_id not in self._row_reads:
                self._row_reads[info.run_id] = asyncio.create_task(self._fill_row(info))
        if missing:
            reads = [self._row_reads[info.run_id] for info in missing]
            await asyncio.wait(reads, timeout=_PATIENCE_S)
        return [
            self._known_row(info) or self.mask_data(row_of(info, unread=READING)) for info in infos
        ]

    def filled(self, since: float) -> AbstractSet[str]:
        """The ids of the runs whose rows were read after a time of ``time.monotonic``."""
        return {run_id for run_id, (_, at, _) in self._rows.items() if at > since}

    def _known_row(self, info: RunInfo) -> dict[str, Json] | None:
        """The row of a run, if nothing has to be read for it."""
        key = _key(info)
        kept = self._snapshots.get(info.run_id)
        if kept is not None and kept[0] == key:
            return kept[2].row
        known = self._rows.get(info.run_id)
        if known is not None and known[0] == key:
            _, at, row = known
            if row["unread"] is None or time.monotonic() - at < _AGAIN_S:
                return row
        if info.damaged or info.events > _SHORT_RUN:
            return self.mask_data(row_of(info))
        return None

    async def _fill_row(self, info: RunInfo) -> None:
        """Read the record of a run for its row."""
        self._at_once = self._at_once or anyio.CapacityLimiter(_AT_ONCE)

        def read() -> dict[str, Json]:
            return row_of(info, self._read_run(info, self._read(info), Recorded()).view)

        try:
            async with self._at_once:
                try:
                    row = await self._in_thread(read, may_be_left=True)
                except (HandrailError, OSError) as error:
                    row = row_of(info, unread=str(error))
            if len(self._rows) >= _KEPT_ROWS:
                self._rows.clear()
            self._rows[info.run_id] = (_key(info), time.monotonic(), self.mask_data(row))
        finally:
            del self._row_reads[info.run_id]

    # -- one run -----------------------------------------------------------------------------------

    async def snapshot(self, run_id: str, *, now: bool = False) -> Snapshot:
        """A reading of a run, perhaps of a moment ago; ``now``: an up-to-date one.

        Raises:
            RunNotFound: there is no such run. JournalFailed: its record cannot be read.
        """
        async with self._reading.setdefault(run_id, anyio.Lock()):
            info = await self.info(run_id, now=now)
            kept = self._snapshots.get(run_id)
            last = await self._in_thread(lambda: self._last_letter(run_id))
            if kept is not None:
                snapshot = kept[2]
                fresh = time.monotonic() - snapshot.at < _AGE_FACTOR * snapshot.took_s and not now
                if fresh or (kept[0] == _key(info) and kept[1] == last):
                    return snapshot
            before = None if kept is None else kept[2]
            self._snapshots.pop(run_id, None)  # a reading that fails midway is not continued
            snapshot = await self._in_thread(lambda: self._snapshot(info, before))
            self._snapshots[run_id] = (_key(info), last, snapshot)
            while len(self._snapshots) > _KEPT_RUNS:
                gone = next(iter(self._snapshots))
                del self._snapshots[gone]
                self._reading.pop(gone, None)
                self._reading.pop(f"log of {gone}", None)
            return snapshot

    def _last_letter(self, run_id: str) -> int:
        letters = self._journal.letters(run_id, 0)
        return letters[-1].number if letters else 0

    def _snapshot(self, info: RunInfo, before: Snapshot | None = None) -> Snapshot:
        """Read a run; with a reading ``before``, only the events since."""
        began = time.monotonic()
        history = self._extend_history(info, before)
        if history is None or before is None:
            history, fold, row_builder = self._read(info), Recorded(), StepRows(self.mask_data)
        else:
            fold, row_builder = before.fold, before.row_builder
        recorded = self._read_run(info, history, fold)
        rows = row_builder.of(recorded.view)
        row = self.mask_data(row_of(info, recorded.view))
        paths = tuple(at_work(recorded.view))
        now = time.monotonic()
        return Snapshot(recorded, rows, row, paths, now - began, now, fold, row_builder)

    def _extend_history(self, info: RunInfo, before: Snapshot | None) -> Sequence[ev.Event] | None:
        """The events read before, and those since; None if the run must be read whole."""
        if before is None or info.damaged or info.started_at != before.recorded.info.started_at:
            return None
        new = self._after(info.run_id, len(before.history))
        return None if new is None else [*before.history, *new]

    def _read(self, info: RunInfo) -> Sequence[ev.Event]:
        history = self._journal.events(info.run_id)
        if not history:
            if info.damaged:
                raise JournalFailed(info.run_id, "reading a run", info.damaged)
            raise RunNotFound(info.run_id)
        return history

    def _read_run(self, info: RunInfo, history: Sequence[ev.Event], fold: Recorded) -> RecordedRun:
        fold.take(history[fold.count :])
        return recorded_run(self._journal, info, history, fold, time.time())

    async def detail(self, run_id: str, *, steps: bool = True) -> Json:
        """All data of a run for the page, with the rows of its steps or without."""
        snapshot = await self.snapshot(run_id, now=True)

        def build() -> Json:
            found = self.mask_data(detail_of(snapshot.recorded, steps=False))
            return {**found, "steps": list(snapshot.rows.values())} if steps else found

        return await self._in_thread(build)

    async def step(self, run_id: str, path: str) -> Json:
        """All data of one step; None if there is none at this path."""
        snapshot = await self.snapshot(run_id)
        if path not in snapshot.rows:
            snapshot = await self.snapshot(run_id, now=True)
        recorded = snapshot.recorded

        def build() -> Json:
            found = step_of(recorded.view, recorded.history, path, self._texts(recorded.info, path))
            return None if found is None else self.mask_data(found)

        return await self._in_thread(build)

    def _texts(self, info: RunInfo, path: str) -> Texts:
        if self.artifacts is None:
            return Texts()
        return texts_of(self.artifacts, info.workflow_name, info.run_id, path)

    # -- events ------------------------------------------------------------------------------------

    async def log(
        self, run_id: str, sought: LogQuery, *, start: int | None, line: int | None, limit: int
    ) -> Json:
        """Lines of the record of a run; see ``Log.part``."""
        async with self._reading.setdefault(f"log of {run_id}", anyio.Lock()):
            recorded = (await self.snapshot(run_id)).recorded
            log = self._log_of(recorded.info)

            def build() -> Json:
                found = log.part(recorded.history, sought, start=start, line=line, limit=limit)
                return self.mask_data(found)

            return await self._in_thread(build)

    def _log_of(self, info: RunInfo) -> Log:
        began, log = self._logs.pop(info.run_id, (None, None))
        if log is None or began != info.started_at:
            log = Log(self._mask.value)
        self._logs[info.run_id] = info.started_at, log
        while len(self._logs) > _KEPT_RUNS:
            del self._logs[next(iter(self._logs))]
        return log

    async def event(self, run_id: str, number: int) -> Json:
        """One event as it is recorded; None if there is none of this number."""
        history = (await self.snapshot(run_id)).history
        if number > len(history):
            history = (await self.snapshot(run_id, now=True)).history
        if not 1 <= number <= len(history):
            return None
        return await self._in_thread(lambda: self.event_data(history[number - 1], None))

    async def record(self, run_id: str) -> AsyncGenerator[bytes]:
        """All events of a run as lines of JSON, some at a time."""
        history = (await self.snapshot(run_id, now=True)).history
        for first in range(0, len(history), _BATCH):
            batch = history[first : first + _BATCH]
            yield await self._in_thread(partial(self._lines, batch))

    def _lines(self, events: Iterable[ev.Event]) -> bytes:
        lines = (json.dumps(self._event_fields(event), ensure_ascii=False) for event in events)
        return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")

    def _event_fields(self, event: ev.Event) -> dict[str, Json]:
        known = cast("dict[str, Json]", json_safe(plain_event(event)))
        return {"type": type(event).__name__, **self.mask_data(known)}

    def event_data(self, event: ev.Event, row: Json) -> Json:
        """An event as JSON data: its class as ``type``, its fields, and the row of its step."""
        data = self._event_fields(event)
        if len(repr(data)) > _LONG_EVENT:
            short = ("type", "run_id", "seq", "at", "path", "name")
            data = {name: data[name] for name in short if name in data} | {"cut": True}
        return data if row is None else {**data, "step": row}


def plain_event(event: ev.Event) -> Any:
    """The event's fields; values of classes that are unknown here stay as the journal has them."""
    names = [field.name for field in fields(event)]
    return {name: plain(getattr(event, name)) for name in names}
