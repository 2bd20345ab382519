"""The driver, as its parts see it."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from typing import Any, Protocol

from handrail.core.conductor import Conductor
from handrail.core.timers import Job
from handrail.engine.tasks import Flight, Tasks
from handrail.model import events as ev
from handrail.ports.clock import SET_S, Clock
from handrail.secrets.masking import Mask


class Loop(Protocol):
    """What the parts of a driver need of it."""

    conductor: Conductor
    tasks: Tasks
    mask: Mask
    mark: str
    """The mark that the run's processes carry, by which they are found."""

    context: Callable[[], Context]
    """Returns a copy of the context that the drive was begun in."""

    def emit_notice(self, notice: ev.Notice) -> None:
        """Show progress to the sinks; some notices are journaled first."""

    def post(self, job: Job, *, urgent: bool = False) -> None:
        """Queue a job as ``Conductor.queue_job`` does, from any thread, and wake the loop."""

    def stop_inline_if_asked(self, flight: Flight) -> None:
        """Stop the attempt in the driver's own task if that has come in during its first part."""

    def stop_inline(self) -> None:
        """Stop the attempt in the driver's own task, if any."""

    def look_at_clock(self) -> None:
        """If the clock was set, shift the timers on elapsed running time."""

    def left_inline(self) -> None:
        """Look at the clock, and for messages: an attempt in the driver's own task has ended."""

    def on_escaped(self, error: BaseException) -> None:
        """End the drive, then raise this: a KeyboardInterrupt or SystemExit of the user's code."""

    def start(self, flight: Flight, work: Callable[[], Any], context: Context) -> None:
        """Start a flight in a task of its own; the loop gets its outcome as a job."""


class Skew:
    """Measures by how much the wall clock was set since the drive began. Mutable."""

    __slots__ = ("_elapsed", "_now", "_then", "total_s")

    def __init__(self, clock: Clock) -> None:
        self.total_s = 0.0
        self._now = clock.now
        self._elapsed: Callable[[], float] | None = getattr(clock, "elapsed", None)
        self._then = 0.0 if self._elapsed is None else self._now() - self._elapsed()

    def grown_s(self) -> float:
        """Seconds added since the last call; 0 unless the clock was set or the machine slept."""
        if self._elapsed is None:
            return 0.0
        jump_s = self._now() - self._elapsed() - self._then
        if abs(jump_s) <= SET_S:
            return 0.0
        self._then += jump_s
        self.total_s += jump_s
        return jump_s
