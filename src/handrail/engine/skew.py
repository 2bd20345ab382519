"""How the wall clock, by which times are recorded, goes otherwise than running time."""

from __future__ import annotations

from collections.abc import Callable

from handrail.ports.clock import SET_S, Clock


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
