"""What a drive is to do at a time: one heap, for the core's waits and for its driver's own."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

Own = TypeVar("Own")
"""What is due of who drives the run; it is no number."""


class Timers(Generic[Own]):
    """The earliest first; of one time, the driver's own before the core's, in the core's order.
    What is due is a driver's own, or the token of a wait of the core.

    A wait costs a tuple: its token is its order, too.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int | Own]] = []
        self._order = 0

    def wait(self, due: float, token: int) -> None:
        """Set a wait of the core."""
        heapq.heappush(self._heap, (due, token, token))

    def at(self, due: float, what: Own) -> None:
        """Set one of the driver's own."""
        self._order -= 1
        heapq.heappush(self._heap, (due, self._order, what))

    def pop(self, now: float) -> int | Own | None:
        """The next that is due by now, if any is."""
        if self._heap and self._heap[0][0] <= now:
            return heapq.heappop(self._heap)[2]
        return None

    def next_due(self, stale: Callable[[int | Own], bool]) -> float | None:
        """When the next is due, once those in front that nobody waits for are dropped."""
        while self._heap and stale(self._heap[0][2]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def shift(self, jump_s: float, counts_running_time: Callable[[int | Own], bool]) -> None:
        """Put off what counts running time, for the clock was set by so much."""
        self._heap = [
            (due + jump_s if counts_running_time(what) else due, order, what)
            for due, order, what in self._heap
        ]
        heapq.heapify(self._heap)

    def waits(self) -> Iterator[tuple[float, int]]:
        """The waits of the core, with their times, in no order."""
        return ((due, what) for due, _, what in self._heap if isinstance(what, int))
