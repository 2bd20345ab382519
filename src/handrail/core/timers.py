"""The timers of a drive: one heap for the core's waits and the driver's own timers."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

Own = TypeVar("Own")
"""The type of the driver's own timers; not an ``int``."""


class Timers(Generic[Own]):
    """Timers, the earliest first; at one time the driver's own, then the core's in their order.

    An entry is a timer of the driver's own, or the token of a wait of the core. A wait costs a
    tuple: its token is also its order.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int | Own]] = []
        self._order = 0

    def wait(self, due: float, token: int) -> None:
        """Add a wait of the core."""
        heapq.heappush(self._heap, (due, token, token))

    def at(self, due: float, what: Own) -> None:
        """Add a timer of the driver's own."""
        self._order -= 1
        heapq.heappush(self._heap, (due, self._order, what))

    def pop(self, now: float) -> int | Own | None:
        """Remove and return the next timer that is due by ``now``; None if none is."""
        if self._heap and self._heap[0][0] <= now:
            return heapq.heappop(self._heap)[2]
        return None

    def next_due(self, stale: Callable[[int | Own], bool]) -> float | None:
        """When the next timer is due, after stale ones in front are dropped; None if none is."""
        while self._heap and stale(self._heap[0][2]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def shift(self, jump_s: float, counts_running_time: Callable[[int | Own], bool]) -> None:
        """Delay the timers that count running time by the seconds that the clock was set by."""
        self._heap = [
            (due + jump_s if counts_running_time(what) else due, order, what)
            for due, order, what in self._heap
        ]
        heapq.heapify(self._heap)

    def waits(self) -> Iterator[tuple[float, int]]:
        """Due time and token of each wait of the core, in no order."""
        return ((due, what) for due, _, what in self._heap if isinstance(what, int))
