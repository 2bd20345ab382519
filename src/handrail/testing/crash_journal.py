"""A journal whose process kills itself at a given record."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NoReturn

from handrail.codec.codec import Codec
from handrail.model.events import Event
from handrail.ports.journal import Journal, Lease, Letter, RunInfo
from handrail.testing.crash_points import Point


class CrashingJournal:
    """Passes everything on, and dies at ``point``, before the record is written or after.

    Records are counted from 1 as they are written; letters are records too. ``tell`` is told of
    each before it is written. Mutable.
    """

    def __init__(
        self, inner: Journal, point: Point | None, tell: Callable[[int, str], None]
    ) -> None:
        self._inner = inner
        self._dies_before = point[0] if point is not None and point[1] == "before" else 0
        self._dies_after = point[0] if point is not None and point[1] == "after" else 0
        self._tell = tell
        self._records = 0

    @property
    def durable(self) -> bool:
        """Whatever the journal says that it stands before."""
        return self._inner.durable

    @property
    def codec(self) -> Codec:
        """As ``durable``."""
        return self._inner.codec

    def append(self, event: Event, /, *, sync: bool = False) -> Awaitable[None] | None:
        """Store the event, or die."""
        dies = self._begin(record_name(event))
        stored = self._inner.append(event, sync=sync)
        if not dies:
            return stored
        if stored is None:
            die()
        return _die_after(stored)

    def post(self, letter: Letter, /, *, secrets: Mapping[str, str] | None = None) -> Letter:
        """Keep the letter, or die."""
        dies = self._begin(f"letter {record_name(letter.event)}")
        kept = self._inner.post(letter, secrets=secrets)
        if dies:
            die()
        return kept

    def _begin(self, name: str) -> bool:
        """Count a record; True if the process dies once it is written."""
        self._records += 1
        self._tell(self._records, name)
        if self._records == self._dies_before:
            die()
        return self._records == self._dies_after

    def events(
        self, run_id: str, /, *, secrets: Mapping[str, str] | None = None
    ) -> Sequence[Event]:
        """All events of a run."""
        return self._inner.events(run_id, secrets=secrets)

    def runs(self) -> Sequence[RunInfo]:
        """Every run."""
        return self._inner.runs()

    def acquire(self, run_id: str, /, *, secrets: Mapping[str, str] | None = None) -> Lease:
        """Become the one who drives a run."""
        return self._inner.acquire(run_id, secrets=secrets)

    def letters(self, run_id: str, after: int, /) -> Sequence[Letter]:
        """The letters of a run."""
        return self._inner.letters(run_id, after)

    def close(self) -> None:
        """Release what the journal holds."""
        self._inner.close()


def record_name(event: Event) -> str:
    """What a record is called in a report: its kind and its path, or a signal's name."""
    place = getattr(event, "path", "") or getattr(event, "name", "")
    return f"{type(event).__name__} of {place!r}" if place else type(event).__name__


async def _die_after(stored: Awaitable[None]) -> None:
    await stored
    die()


def die() -> NoReturn:
    """End this process as a power cut would: nothing is flushed, no ``finally`` runs."""
    while True:
        os.kill(os.getpid(), signal.SIGKILL)
        signal.pause()
