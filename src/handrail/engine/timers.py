"""What a drive is to do at a time: one heap, for the core's waits and for the driver's own; and
how the wall clock, by which these times are, goes otherwise than running time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import TypeAlias

from handrail.engine.tasks import InFlight
from handrail.ports.clock import SET_S, Clock

Due: TypeAlias = int | InFlight | Callable[[], None]
"""The token of a wait of the core; a flight that has had its time; or anything else to do."""


class Timers:
    """The earliest first; of one time, the driver's own before the core's, in the core's order.

    A wait costs a tuple: its token is its order, too.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Due]] = []
        self._order = 0

    def wait(self, due: float, token: int) -> None:
        """Set a wait of the core."""
        heapq.heappush(self._heap, (due, token, token))

    def at(self, due: float, what: InFlight | Callable[[], None]) -> None:
        """Set one of the driver's own."""
        self._order -= 1
        heapq.heappush(self._heap, (due, self._order, what))

    def pop(self, now: float) -> Due | None:
        """The next that is due by now, if any is."""
        if self._heap and self._heap[0][0] <= now:
            return heapq.heappop(self._heap)[2]
        return None

    def next_due(self, stale: Callable[[Due], bool]) -> float | None:
        """When the next is due, once those in front that nobody waits for are dropped."""
        while self._heap and stale(self._heap[0][2]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def shift(self, jump_s: float, counts_running_time: Callable[[Due], bool]) -> None:
        """Put off what counts running time, for the clock was set by so much."""
        self._heap = [
            (due + jump_s if counts_running_time(what) else due, order, what)
            for due, order, what in self._heap
        ]
        heapq.heapify(self._heap)

    def waits(self) -> Iterator[tuple[float, int]]:
        """The waits of the core, with their times, in no order."""
        return ((due, what) for due, _, what in self._heap if isinstance(what, int))


class Skew:
    """By how much the wall clock was set since the drive began. Mutable."""

    __slots__ = ("_elapsed", "_now", "_then", "total_s")

    def __init__(self, clock: Clock) -> None:
        self.total_s = 0.0
        self._now = clock.now
        self._elapsed: Callable[[], float] | None = getattr(clock, "elapsed", None)
        self._then = 0.0 if self._elapsed is None else self._now() - self._elapsed()

    def grown_s(self) -> float:
        """What came on since the last call; 0 unless it was set, or the machine slept."""
        if self._elapsed is None:
            return 0.0
        jump_s = self._now() - self._elapsed() - self._then
        if abs(jump_s) <= SET_S:
            return 0.0
        self._then += jump_s
        self.total_s += jump_s
        return jump_s
