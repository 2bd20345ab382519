"""What the parts of a driver know of its loop."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from typing import Any, NoReturn, Protocol, TypeAlias

from handrail.core import commands as cmd
from handrail.core.line import LineDriver
from handrail.core.machine import Machine
from handrail.core.timers import Timers
from handrail.engine.tasks import InFlight, Tasks
from handrail.errors import HandrailError
from handrail.model import events as ev
from handrail.ports.clock import SET_S, Clock
from handrail.secrets.masking import Mask

Job: TypeAlias = Callable[[], None]
"""What the loop is to do next."""
Due: TypeAlias = int | InFlight | Job
"""The token of a wait of the core; a flight that has had its time; or anything else to do."""


class Loop(LineDriver, Protocol):
    """One task that carries out commands in order, and then its jobs."""

    run_id: str
    machine: Machine
    flights: dict[tuple[str, str], InFlight]
    """What is under way outside the loop, by path and kind."""
    tasks: Tasks
    timers: Timers[InFlight | Job]
    mask: Mask
    mark: str
    """What the processes of the run carry."""

    closing: bool
    """The drive is to end before its run does: what is under way has no end in the record."""

    interrupted: str | None
    """Why the process is to end, if it is."""

    def receive(self, event: ev.Event | cmd.Report) -> None:
        """Tell the core, and carry out what it answers behind what is to be done already."""

    def record(self, event: ev.Event, *, sync: bool = False) -> None:
        """Have an event recorded behind what is to be done already; ``sync``: on disk at once."""

    def tell(self, notice: ev.Notice) -> None:
        """Show progress; what others are to see is journaled first."""

    def post(self, job: Job, *, urgent: bool = False) -> None:
        """The same as ``next``, and wake the loop."""

    def look_at_clock(self) -> None:
        """If it was set, put off what counts running time."""

    def context(self) -> Context:
        """A copy of the context that the drive was begun in."""
        ...

    def start(self, flight: InFlight, work: Callable[[], Any], context: Context) -> None:
        """Begin something in a task of its own; the loop is told of its end."""


class FailedWrite:
    """An awaitable that raises the error of a write."""

    def __init__(self, error: HandrailError) -> None:
        self._error = error

    def __await__(self) -> NoReturn:
        raise self._error


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
