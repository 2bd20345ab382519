"""Who waits for a place: attempts and launches that the run's limits do not let begin at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeAlias

import msgspec

from handrail.core import commands as cmd
from handrail.core.admission import Admission
from handrail.core.attempt_ends import failure_event
from handrail.core.timers import Timers
from handrail.errors import DefinitionError
from handrail.model.events import Event
from handrail.steps.verbs import ShellCommand, StageCheck, launches_agent

Waiting: TypeAlias = cmd.Perform | cmd.Queue


class LineDriver(Protocol):
    """What the line of a run needs of its driver."""

    timers: Timers[Any]

    def now(self) -> float:
        """The time."""
        ...

    def receive(self, report: cmd.Report, /) -> None:
        """Tell the core, and carry out what it answers behind what is to be done already."""

    def record(self, event: Event, /) -> None:
        """Have an event recorded behind what is to be done already."""

    def next(self, job: Callable[[], None], /) -> None:
        """Do this behind what came in meanwhile."""


def starts_process(command: Waiting) -> bool:
    """True for what is likely to start a process, or to keep one busy elsewhere: an agent, a
    command, a stage that is one.
    """
    verb = command.step.verb
    if isinstance(verb, StageCheck):
        return not callable(verb.stage.check)
    return isinstance(verb, ShellCommand) or launches_agent(verb)


class Line:
    """Lets an attempt begin at once where there is room, else when its turn comes. Mutable.

    A launch of an agent asks for its place with ``Queue`` before it is made, for what it may cost
    is set aside only then: the core is told ``Granted``, and the ``Perform`` that follows has it.
    """

    def __init__(
        self, loop: LineDriver, admission: Admission, start: Callable[[cmd.Perform], None]
    ) -> None:
        self.free = admission.trivial
        """True if no limit that somebody set makes anybody wait."""
        self.holders: set[str] = set()
        """Who has a place."""
        self.waiting: dict[str, Waiting] = {}
        """Who has none yet, or has not begun."""
        self._loop = loop
        self._admission = admission
        self._start = start
        self.kept: set[str] = set()
        """Whose launch is broken off, and will be made again in its place."""
        self._come: set[str] = set()
        """The same, whose turn has come."""
        self._turns: dict[str, object] = {}
        """Whose turn has come, and is to be told to the core."""
        self._granted: set[str] = set()
        """Whose launch has a place, and is not made yet."""
        self._look_at = 0.0
        self._is_paused = False
        """The run is paused: nobody's turn comes."""

    def carry_out(self, command: cmd.Queue | cmd.Release | cmd.PauseAdmission) -> None:
        """Do what the core asks for of who waits."""
        match command:
            case cmd.Queue():
                self.join(command)
            case cmd.Release():
                self.kept.discard(command.path)
                self.release(command.path)
            case cmd.PauseAdmission():
                self.pause(on=command.on)

    def begin(self, command: Waiting) -> None:
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
            self._start(command)
        elif self.free and not starts_process(command):
            self._start(command)
        else:
            self.join(command)

    def join(self, command: Waiting) -> None:
        """Wait for what the attempt needs of the run's limits."""
        if command.path in self.kept:
            self._take_place(command)
            return
        uses = command.step.modifiers.uses
        try:
            self._admission.request(command.path, uses, process=starts_process(command))
        except DefinitionError as error:
            self._loop.record(failure_event(command, error))
            return
        self.waiting[command.path] = command
        self.admit()

    def keep(self, path: str) -> Waiting | None:
        """Keep the place of a launch that is broken off, or its place in line, for the one that is
        made of it. What waits in line, if it does.
        """
        waiting = self.waiting.get(path)
        if waiting is not None or path in self.holders or self._is_paused:
            self.kept.add(path)
        return waiting

    def _take_place(self, command: Waiting) -> None:
        """Have a launch take the place that was kept for it, also while nobody's turn comes."""
        path = command.path
        self.kept.discard(path)
        if path not in self.waiting:
            self.holders.add(path)
            self._come.add(path)
        self.waiting[path] = command
        if path in self._come:
            self._begin(path)

    def pause(self, *, on: bool) -> None:
        """Let nobody begin, or again those whose turn has come."""
        self._is_paused = on
        if not on:
            self.admit()

    def admit(self) -> None:
        """Let those begin whose turn has come."""
        if self._is_paused:
            return
        loop, admission, now = self._loop, self._admission, self._loop.now()
        for path in admission.grants(now):
            self.holders.add(path)
            self._admitted(path)
        following = admission.next_time(now)
        if following is not None and not now < self._look_at <= following:
            self._look_at = following
            loop.timers.at(following, self.admit)

    def _admitted(self, path: str) -> None:
        """Go on with who has a place now."""
        self._begin(path)

    def _begin(self, path: str) -> None:
        if path in self.kept:
            self._come.add(path)  # what is made of it begins in its place
            return
        self._come.discard(path)
        command = self.waiting[path]
        if type(command) is cmd.Queue:  # once what made the place is settled
            turn = self._turns[path] = object()
            self._loop.next(partial(self._grant, path, turn))
        else:
            del self.waiting[path]
            assert isinstance(command, cmd.Perform)
            self._start(command)

    def _grant(self, path: str, turn: object) -> None:
        """Tell the core that a launch may start, unless it was stopped meanwhile."""
        if self._turns.get(path) is not turn:
            return
        del self._turns[path]
        command = self.waiting.pop(path)
        self._granted.add(path)
        at = self._loop.now()
        self._loop.receive(cmd.Granted(path, command.launch, command.interrupted, at=at))

    def clock_was_set(self, jump_s: float) -> None:
        """Count the time that attempts wait here by the clock of now."""
        for path, command in self.waiting.items():
            if type(command) is cmd.Perform:
                since = command.started_at + jump_s
                self.waiting[path] = msgspec.structs.replace(command, started_at=since)

    def release(self, path: str) -> None:
        """Give back what an attempt held of the run's limits, or a launch that is not made."""
        if path in self.kept:
            return
        self._granted.discard(path)
        if path in self.holders:
            self._give_back(path)
            self.admit()

    def leave(self, path: str) -> Waiting | None:
        """Give up waiting; what waited, if anything did. ``admit`` is to follow."""
        self._turns.pop(path, None)
        command = self.waiting.pop(path, None)
        if command is not None and not self._admission.withdraw(path):
            self._give_back(path)
        return command

    def _give_back(self, path: str) -> None:
        self.holders.discard(path)
        self._admission.release(path)

    def close(self) -> None:
        """Give back what is not this run's alone; of such there is nothing here."""
