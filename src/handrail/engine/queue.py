"""Who waits for a place: attempts and launches that the run's limits do not let begin at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from handrail.core import commands as cmd
from handrail.core.admission import Admission
from handrail.engine.loop import Loop
from handrail.engine.perform import failed
from handrail.engine.shared import Seat, SharedAdmission
from handrail.engine.tasks import InFlight
from handrail.errors import DefinitionError
from handrail.steps.verbs import ShellCommand, StageCheck, launches_agent
from handrail.system.running_loop import running_loop

QUEUED = "queued"


def starts_process(command: cmd.Perform | cmd.Queue) -> bool:
    """True for what is likely to start a process, or to keep one busy elsewhere: an agent, a
    command, a stage that is one.
    """
    verb = command.step.verb
    if isinstance(verb, StageCheck):
        return not callable(verb.stage.check)
    return isinstance(verb, ShellCommand) or launches_agent(verb)


class Line:
    """Lets an attempt take off at once where there is room, else when its turn comes. Mutable.

    A launch of an agent asks for its place with ``Queue`` before it is made, for what it may cost
    is set aside only then: the core is told ``Granted``, and the ``Perform`` that follows has it.
    """

    def __init__(
        self,
        loop: Loop,
        admission: Admission,
        shared: SharedAdmission | None,
        start: Callable[[cmd.Perform], None],
    ) -> None:
        self.free = admission.trivial and shared is None
        """True if no limit that somebody set makes anybody wait."""
        self.holders: set[str] = set()
        """Who has a place."""
        self._loop = loop
        self._admission = admission
        self._start_flight = start
        self.kept: set[str] = set()
        """Whose launch is broken off, and will be made again in its place."""
        self._come: set[str] = set()
        """The same, whose turn has come."""
        self._granted: set[str] = set()
        """Whose launch has a place, and is not made yet."""
        self._look_at = self._look_at_shared = 0.0
        self._shared = shared
        self._seat: Seat | None = None
        self._is_held = False
        """The run is paused: nobody's turn comes."""
        self._held: list[str] = []
        """Who was let in by what all runs share, and may not begin now."""

    def begin(self, command: cmd.Perform | cmd.Queue) -> None:
        """Have an attempt begin, or a launch be granted, now or when it is its turn."""
        if type(command) is cmd.Perform:
            self.launch(command)
        else:
            self.join(command)

    def launch(self, command: cmd.Perform) -> None:
        """Begin an attempt, now or when it is its turn."""
        if command.path in self.kept:
            self._take_place(command)
        elif command.path in self._granted:
            self._granted.discard(command.path)
            self._start_flight(command)
        elif self.free and not starts_process(command):
            self._start_flight(command)
        else:
            self.join(command)

    def join(self, command: cmd.Perform | cmd.Queue) -> None:
        """Wait for what the attempt needs of the run's limits."""
        if command.path in self.kept:
            self._take_place(command)
            return
        uses = command.step.modifiers.uses
        try:
            self._admission.request(command.path, uses, process=starts_process(command))
        except DefinitionError as error:
            self._loop.record(failed(command, error))
            return
        flight = InFlight(command.path, QUEUED, command, None)
        self._loop.flights[command.path, QUEUED] = flight
        self.admit()

    def keep(self, path: str) -> InFlight | None:
        """Keep the place of a launch that is broken off, or its place in line, for the one that is
        made of it. What waits in line, if it does.
        """
        waiting = self._loop.flights.get((path, QUEUED))
        if waiting is not None or path in self.holders or self._is_held:
            self.kept.add(path)
        return waiting

    def _take_place(self, command: cmd.Perform | cmd.Queue) -> None:
        """Have a launch take the place that was kept for it, also while nobody's turn comes."""
        path, flights = command.path, self._loop.flights
        self.kept.discard(path)
        if (path, QUEUED) in flights:
            flights[path, QUEUED].command = command
        else:
            flights[path, QUEUED] = InFlight(path, QUEUED, command, None)
            self.holders.add(path)
            self._come.add(path)
        if path in self._come:
            self._begin(path)

    def hold(self, *, on: bool) -> None:
        """Let nobody begin, or again those whose turn has come."""
        self._is_held = on
        if not on:
            held, self._held = self._held, []
            for path in held:
                self._begin_granted(path)
            self.admit()

    def admit(self) -> None:
        """Let those begin whose turn has come."""
        if self._is_held:
            return
        loop, admission, now = self._loop, self._admission, self._loop.now()
        for path in admission.grants(now):
            self.holders.add(path)
            if self._shared is None:
                self._begin(path)
            else:
                self._ask_shared(self._shared, path)
        following = admission.next_time(now)
        if following is not None and not now < self._look_at <= following:
            self._look_at = following
            loop.timers.at(following, self.admit)
        self._look()

    def _begin(self, path: str) -> None:
        if path in self.kept:
            self._come.add(path)  # what is made of it begins in its place
            return
        self._come.discard(path)
        loop, flight = self._loop, self._loop.flights[path, QUEUED]
        if type(flight.command) is cmd.Queue:  # once what made the place is settled
            loop.next(partial(self._grant, flight))
        else:
            del loop.flights[path, QUEUED]
            self._start_flight(flight.command)

    # -- what all runs share ----------------------------------------------------------------------

    def _ask_shared(self, shared: SharedAdmission, path: str) -> None:
        if self._seat is None:
            self._seat = Seat(running_loop().soon_from_anywhere, self._granted_by_all)
        flight = self._loop.flights[path, QUEUED]
        try:
            shared.request(self._seat, path, flight.command.step.modifiers.uses)
        except DefinitionError as error:
            self.leave(path)
            self._loop.record(failed(flight.command, error))

    def _granted_by_all(self, path: str) -> None:
        """Begin what is still there, in the turn of the run's own loop."""
        if (path, QUEUED) in self._loop.flights and path in self.holders:
            self._loop.post(partial(self._begin_granted, path))

    def _begin_granted(self, path: str) -> None:
        if self._is_held:
            self._held.append(path)
        elif (path, QUEUED) in self._loop.flights and path in self.holders:
            self._begin(path)

    def _look(self) -> None:
        """Let those begin whose turn has come, of all runs; look again when a rate opens."""
        if self._shared is None:
            return
        now = self._loop.now()
        following = self._shared.look(now)
        if following is not None and not now < self._look_at_shared <= following:
            self._look_at_shared = following
            self._loop.timers.at(following, self._look)

    def clock_was_set(self, jump_s: float) -> None:
        """Count the time that attempts wait here by the clock of now."""
        for flight in self._loop.flights.values():
            if flight.current is None and type(flight.command) is cmd.Perform:  # not begun yet
                command = flight.command
                since = command.started_at + jump_s
                flight.command = msgspec.structs.replace(command, started_at=since)

    def close(self) -> None:
        """Give back what the drive holds of what all runs share."""
        if self._shared is not None and self._seat is not None:
            for path in self.holders:
                self._shared.leave(self._seat, path)
            self.holders.clear()
            self._look()

    def release(self, path: str) -> None:
        """Give back what an attempt held of the run's limits, or a launch that is not made."""
        if path in self.kept:
            return
        self._granted.discard(path)
        if path in self.holders:
            self.holders.discard(path)
            self._admission.release(path)
            self._leave_shared(path)
            self.admit()

    def leave(self, path: str) -> InFlight | None:
        """Give up waiting; what waited, if anything did. ``admit`` is to follow."""
        flight = self._loop.flights.pop((path, QUEUED), None)
        if flight is not None and not self._admission.withdraw(path):
            self.holders.discard(path)
            self._admission.release(path)
            self._leave_shared(path)
        return flight

    def _leave_shared(self, path: str) -> None:
        if self._shared is not None and self._seat is not None:
            self._shared.leave(self._seat, path)

    def _grant(self, flight: InFlight) -> None:
        """Tell the core that a launch may start, unless it was stopped meanwhile."""
        loop = self._loop
        if loop.flights.pop((flight.path, QUEUED), None) is flight:
            command = flight.command
            self._granted.add(command.path)
            loop.receive(
                cmd.Granted(command.path, command.launch, command.interrupted, at=loop.now())
            )
