"""The interface of the driver's loop, as its parts see it."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from typing import Any, NoReturn, Protocol

from handrail.core import commands as cmd
from handrail.core.conductor import Kind, Question
from handrail.core.line import LineDriver
from handrail.core.machine import Machine
from handrail.core.timers import InFlight, Job
from handrail.engine.tasks import Flight, Tasks
from handrail.errors import HandrailError
from handrail.model import events as ev
from handrail.ports.clock import SET_S, Clock
from handrail.secrets.masking import Mask


class Loop(LineDriver, Protocol):
    """One task that carries out commands in order, and then its jobs."""

    run_id: str
    machine: Machine
    flights: dict[tuple[str, str], Any]
    """Flights: what is at work outside the loop, by path and kind."""
    tasks: Tasks
    mask: Mask
    mark: str
    """The mark that the run's processes carry, by which they are found."""

    ends: str | None
    """Why the drive ends before its run does, if so: flights get no end in the record."""

    def receive(self, event: ev.Event | cmd.Report) -> None:
        """Give an event or report to the core, and queue the commands that it returns."""

    def record(self, event: ev.Event, *, sync: bool = False) -> None:
        """Queue an event to be recorded; ``sync``: on disk at once."""

    def stopped(
        self, path: str, attempt: int, known: cmd.BrokenOff = ..., *, abandoned: bool = False
    ) -> None:
        """Report a stopped attempt to the machine; as interrupted, if the drive is ending."""

    def evaluated(
        self, question: Question, value: Any = None, error: BaseException | None = None
    ) -> None:
        """Report the answer to a question."""

    def undone(self, path: str, end: ev.RollbackCompleted) -> None:
        """Report how a rollback ended."""

    def limit(self, path: str, kind: Kind, left_s: float) -> None:
        """Stop what is in flight after ``left_s`` seconds, and fail it as timed out."""

    def remove_flight(self, path: str, kind: Kind) -> InFlight | None:
        """Note that something in flight has ended, or that its end counts no more; returns it."""

    def emit_notice(self, notice: ev.Notice) -> None:
        """Show progress to the sinks; some notices are journaled first."""

    def post(self, job: Job, *, urgent: bool = False) -> None:
        """Queue a job as ``queue_job`` does, from any thread, and wake the loop."""

    def look_at_clock(self) -> None:
        """If the clock was set, shift the timers on elapsed running time."""

    def context(self) -> Context:
        """A copy of the context that the drive was begun in."""
        ...

    def start(self, flight: Flight, work: Callable[[], Any], context: Context) -> None:
        """Start a flight in a task of its own; the loop gets its outcome as a job."""


class FailedWrite:
    """An awaitable that raises the error of a write."""

    def __init__(self, error: HandrailError) -> None:
        self._error = error

    def __await__(self) -> NoReturn:
        raise self._error


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
