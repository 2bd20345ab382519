"""When to look through the runs of a journal for those that are due."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator

from handrail.ports.journal import Journal, version_of

_SPARE = 300
"""While nothing changes, sweeps take at most one part in so many of a core's time."""
_AT_MOST_S = 1.0
"""The longest pause after a sweep where the journal was written since, or a timer is due."""


class Sweeps:
    """The sweeps over one journal's runs. Mutable: it knows when the last one was, and its cost.

    A run may become due because the journal was written (a message, the end of a drive), or by a
    timer. That a process is gone is in no journal: so there is also a sweep every so often. A
    journal that cannot say whether it was written (``ports.journal.Version``) has only these.
    """

    def __init__(self, journal: Journal) -> None:
        self._version = version_of(journal)
        self._seen: object = None
        self._not_before = self._at_last = 0.0

    def is_due(self, *, by_timer: bool) -> bool:
        """True if a sweep is due now. ``by_timer``: because a run's time has come, at least."""
        now = time.monotonic()
        if now >= self._at_last:
            return True
        if now < self._not_before:
            return False
        return by_timer or (self._version is not None and self._version() != self._seen)

    @contextlib.contextmanager
    def measured(self) -> Generator[None]:
        """Measure the sweep that the block is; its cost decides when the next one may be."""
        began = time.thread_time()
        seen, self._seen = None if self._version is None else self._version(), None
        try:
            yield
            self._seen = seen  # a sweep that failed has seen nothing
        finally:
            pause_s = _SPARE * (time.thread_time() - began)
            now = time.monotonic()
            self._not_before, self._at_last = now + min(pause_s, _AT_MOST_S), now + pause_s
