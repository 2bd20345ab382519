"""Who waits for a place: attempts and launches that the run's limits do not let begin at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from handrail.core import commands as cmd
from handrail.core.admission import Admission
from handrail.engine.loop import Loop
from handrail.engine.perform import failed
from handrail.engine.tasks import InFlight
from handrail.errors import DefinitionError

QUEUED = "queued"


class Line:
    """Lets an attempt take off at once where there is room, else when its turn comes. Mutable.

    A launch of an agent asks for its place with ``Queue`` before it is made, for what it may cost
    is set aside only then: the core is told ``Granted``, and the ``Perform`` that follows has it.
    """

    def __init__(
        self, loop: Loop, admission: Admission, start: Callable[[cmd.Perform], None]
    ) -> None:
        self.free = admission.trivial
        """True if no limit makes anybody wait."""
        self._loop = loop
        self._admission = admission
        self._start_flight = start
        self._granted: set[str] = set()
        """Whose launch has a place, and is not made yet."""
        self._look_at = 0.0

    def launch(self, command: cmd.Perform) -> None:
        """Begin an attempt, now or when it is its turn."""
        if self.free or command.path in self._granted:
            self._granted.discard(command.path)
            self._start_flight(command)
        else:
            self.join(command)

    def join(self, command: cmd.Perform | cmd.Queue) -> None:
        """Wait for what the attempt needs of the run's limits."""
        try:
            if not self.free:
                self._admission.request(command.path, command.step.modifiers.uses)
        except DefinitionError as error:
            self._loop.record(failed(command, error))
            return
        flight = InFlight(command.path, QUEUED, command, None)
        self._loop.flights[command.path, QUEUED] = flight
        if self.free:
            self._loop.next(partial(self._grant, flight))
        else:
            self.admit()

    def admit(self) -> None:
        """Let those begin whose turn has come."""
        loop, admission, now = self._loop, self._admission, self._loop.now()
        for path in admission.grants(now):
            flight = loop.flights[path, QUEUED]
            if type(flight.command) is cmd.Queue:  # once what made the place is settled
                loop.next(partial(self._grant, flight))
            else:
                del loop.flights[path, QUEUED]
                self._start_flight(flight.command)
        following = admission.next_time(now)
        if following is not None and not now < self._look_at <= following:
            self._look_at = following
            loop.timers.at(following, self.admit)

    def release(self, path: str) -> None:
        """Give back what an attempt held of the run's limits, or a launch that is not made."""
        self._granted.discard(path)
        if not self.free:
            self._admission.release(path)
            self.admit()

    def leave(self, path: str) -> InFlight | None:
        """Give up waiting; what waited, if anything did. ``admit`` is to follow."""
        flight = self._loop.flights.pop((path, QUEUED), None)
        if flight is not None and not self._admission.withdraw(path):
            self._admission.release(path)
        return flight

    def _grant(self, flight: InFlight) -> None:
        """Tell the core that a launch may start, unless it was stopped meanwhile."""
        loop = self._loop
        if loop.flights.pop((flight.path, QUEUED), None) is flight:
            command = flight.command
            self._granted.add(command.path)
            loop.receive(
                cmd.Granted(command.path, command.launch, command.interrupted, at=loop.now())
            )
