"""The timers of a drive: waits of the core, bounds of what is in flight, and the driver's jobs."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Container, Iterator
from typing import Any, Generic, TypeAlias, TypeVar


class InFlight:
    """Something that the driver has begun at ``path`` by a ``command``. Mutable.

    ``stopping``: it was asked to stop. ``timed_out``: because its time was over. ``finished``: its
    end was reported, or does not count.
    """

    __slots__ = ("command", "finished", "kind", "path", "stopping", "timed_out")

    def __init__(self, path: str, kind: str, command: Any) -> None:
        self.path = path
        self.kind = kind
        self.command = command
        self.stopping = self.timed_out = self.finished = False


MOMENT_S = 0.05
"""What falls due within this time counts as one moment, and nothing that follows comes between."""

Job: TypeAlias = Callable[[], None]
"""A function that the driver calls in its turn."""
F = TypeVar("F", bound=InFlight)


class Timers(Generic[F]):
    """Timers, the earliest first; at one time the driver's own, then the core's in their order.

    A timer is for a wait of the core (its token), for something in flight that is to be stopped, or
    for a job. A wait costs a tuple: its token is also its order. ``open_waits`` has the tokens of
    waits that are not over. A timer of something that is over counts no more.
    """

    def __init__(self, open_waits: Container[int]) -> None:
        self._open_waits = open_waits
        self._heap: list[tuple[float, int, int | F | Job]] = []
        self._order = 0

    def wait(self, due: float, token: int) -> None:
        """Add a wait of the core."""
        heapq.heappush(self._heap, (due, token, token))

    def at(self, due: float, what: F | Job) -> None:
        """Add a timer of the driver's own."""
        self._order -= 1
        heapq.heappush(self._heap, (due, self._order, what))

    def moment(self, by: float) -> Iterator[int | F | Job]:
        """Remove and return the timers of the next moment, as far as they are due by this time.

        What follows from them comes before the next moment, however late both are noticed.
        """
        due = self.next_due()
        by = -math.inf if due is None else min(by, due + MOMENT_S)
        while (what := self.pop(by)) is not None:
            yield what

    def pop(self, now: float) -> int | F | Job | None:
        """Remove and return the next timer that is due by ``now``; None if none is."""
        while self._heap and self._heap[0][0] <= now:
            what = heapq.heappop(self._heap)[2]
            if not self._is_over(what):
                return what
        return None

    def next_due(self) -> float | None:
        """When the next timer is due; None if none is set."""
        while self._heap and self._is_over(self._heap[0][2]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def _is_over(self, what: int | F | Job) -> bool:
        if isinstance(what, int):
            return what not in self._open_waits
        return isinstance(what, InFlight) and (what.finished or what.stopping)

    def shift(self, jump_s: float, counts_running_time: Callable[[int], bool]) -> None:
        """Delay the timers that count running time by the seconds that the clock was set by.

        The driver's own do.
        """
        for place, (due, order, what) in enumerate(self._heap):
            if not isinstance(what, int) or counts_running_time(what):
                self._heap[place] = due + jump_s, order, what
        heapq.heapify(self._heap)

    def waits(self) -> Iterator[tuple[float, int]]:
        """Due time and token of each wait of the core, in no order."""
        return ((due, what) for due, _, what in self._heap if isinstance(what, int))
