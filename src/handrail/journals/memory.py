"""A journal that lives as long as its process."""

from __future__ import annotations

import copy
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from handrail.errors import HandrailError, RunIdTaken, RunLocked
from handrail.model.events import Event, stamp
from handrail.ports.journal import Holder, Letter, RunInfo

if TYPE_CHECKING:
    from handrail.codec.codec import Codec


class OutOfSequence(HandrailError):
    """An event has a number that is not the next one of its run."""

    def __init__(self, run_id: str, seq: int, expected: int) -> None:
        super().__init__(run_id, seq, expected)
        self.run_id = run_id
        self.seq = seq
        self.expected = expected

    def __str__(self) -> str:
        return (
            f"run {self.run_id}: an event came with number {self.seq} where {self.expected} is "
            f"next. Two drivers are writing this run, or an event was lost; nothing was stored."
        )


class MemoryJournal:
    """Keeps the event objects themselves, until the process ends.

    A run can be suspended and resumed with it in one process. It encodes nothing; ``codec`` is for
    callers that do.
    """

    durable = False

    def __init__(self, *, codec: Codec | None = None) -> None:
        self._codec = codec
        self._events: dict[str, list[Event]] = {}
        self._letters: dict[str, list[Letter]] = {}
        self._leases: dict[str, MemoryLease] = {}
        self._lock = threading.Lock()

    @property
    def codec(self) -> Codec:
        """The codec that the caller passed, or a plain one, imported on first use."""
        if self._codec is None:
            from handrail.codec.codec import Codec

            self._codec = Codec()
        return self._codec

    def append(self, event: Event, /, *, sync: bool = False) -> None:
        """Keep the event.

        Raises:
            OutOfSequence: its number is not the next one of its run; nothing is kept.
        """
        del sync
        kept = self._events.get(event.run_id)
        if kept is None:
            if event.seq != 1:
                raise OutOfSequence(event.run_id, event.seq, 1)
            self._events[event.run_id] = [event]
            return
        if event.seq != len(kept) + 1:
            raise OutOfSequence(event.run_id, event.seq, len(kept) + 1)
        kept.append(event)

    def append_run(
        self,
        events: Sequence[Event],
        /,
        *,
        letters: Sequence[Letter] = (),
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        """Keep all events of a run that has none yet.

        Raises:
            RunIdTaken: there is such a run; nothing is kept.
        """
        del secrets
        run_id = events[0].run_id
        with self._lock:
            if run_id in self._events:
                raise RunIdTaken(run_id)
            self._events[run_id] = [
                one
                if one.run_id == run_id and one.seq == number
                else stamp(copy.copy(one), run_id, number, one.at)
                for number, one in enumerate(events, 1)
            ]
            for letter in letters:
                self._keep(letter)

    def events(self, run_id: str, /, *, secrets: Mapping[str, str] | None = None) -> list[Event]:
        """All events of a run so far, in order; empty for a run that it does not know."""
        del secrets  # no event has references to secrets
        return list(self._events.get(run_id, ()))

    def events_after(
        self, run_id: str, after: int, /, *, secrets: Mapping[str, str] | None = None
    ) -> list[Event] | None:
        """The events of a run behind a number; None if it has no event of that number."""
        del secrets
        kept = self._events.get(run_id, ())
        return list(kept[after:]) if len(kept) >= after else None

    def runs(self) -> list[RunInfo]:
        """Every run, oldest first."""
        holders = {run_id: lease.holder for run_id, lease in self._leases.copy().items()}
        now = time.time()
        from handrail.record.status import run_info

        return [
            run_info(run_id, events, holders.get(run_id), now)
            for run_id, events in list(self._events.items())
        ]

    def acquire(self, run_id: str, /, *, secrets: Mapping[str, str] | None = None) -> MemoryLease:
        """Take the lease of a run, within this process.

        Raises:
            RunLocked: another drive of it has the lease.
        """
        del secrets  # nothing is written
        with self._lock:
            held = self._leases.get(run_id)
            if held is not None:
                holder = held.holder
                age_s = max(0.0, time.time() - holder.since)
                raise RunLocked(run_id, holder.pid, holder.host, age_s)
            lease = MemoryLease(self._leases, run_id)
            self._leases[run_id] = lease
            return lease

    def post(self, letter: Letter, /, *, secrets: Mapping[str, str] | None = None) -> Letter:
        """Keep a message for its run; returns the one that counts, the first of its key."""
        del secrets
        with self._lock:
            return self._keep(letter)

    def _keep(self, letter: Letter) -> Letter:
        kept = self._letters.setdefault(letter.event.run_id, [])
        for earlier in kept:
            if letter.key and earlier.key == letter.key:
                return earlier
        numbered = replace(letter, number=len(kept) + 1)
        kept.append(numbered)
        return numbered

    def letters(self, run_id: str, after: int, /) -> list[Letter]:
        """The messages of a run whose number is greater than ``after``, in order."""
        return self._letters.get(run_id, [])[max(0, after) :]

    def version(self) -> object:
        """A value that is another once anything was written: how much it keeps."""
        events, letters = list(self._events.values()), list(self._letters.values())
        return sum(map(len, events)), sum(map(len, letters)), len(self._leases)

    def close(self) -> None:
        """Release all leases; the events stay, so that a run can be resumed."""
        self._leases.clear()


class MemoryLease:
    """The lease of one run, until it is released."""

    def __init__(self, leases: dict[str, MemoryLease], run_id: str) -> None:
        self.run_id = run_id
        self.holder = Holder(os.getpid(), os.uname().nodename, time.time())
        self._leases = leases

    def release(self) -> None:
        """Let another drive take the run; a second call does nothing."""
        if self._leases.get(self.run_id) is self:
            del self._leases[self.run_id]
