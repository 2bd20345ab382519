"""The line of attempts and launches that wait for a place within the run's limits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeAlias

import msgspec

from handrail.core import commands as cmd
from handrail.core.admission import Admission
from handrail.core.attempt_ends import failure_event
from handrail.core.timers import Job, Timers
from handrail.errors import DefinitionError
from handrail.model.events import Event

Waiting: TypeAlias = cmd.Perform | cmd.Queue


class LineDriver(Protocol):
    """What the line of a run needs of its driver."""

    timers: Timers[Any]

    def now(self) -> float:
        """The time in unix seconds."""
        ...

    def receive(self, report: cmd.Report, /) -> None:
        """Give the core a report, and queue the commands that it returns."""

    def record(self, event: Event, /) -> None:
        """Queue an event to be recorded, behind the commands queued already."""

    def queue_job(self, job: Job, /) -> None:
        """Run a job behind what has come in meanwhile."""


class Line:
    """Starts an attempt at once if the limits have room, otherwise when its turn comes. Mutable.

    A launch under a budget asks for its place with ``Queue`` before it is made, because its cost is
    reserved only when its turn comes. The line reports ``Granted``, and the ``Perform`` that
    follows has the place.
    """

    def __init__(
        self, loop: LineDriver, admission: Admission, start: Callable[[cmd.Perform], None]
    ) -> None:
        self.free = admission.trivial
        """True if the run limits neither concurrency nor tags nor rates: only processes wait."""
        self.holders: set[str] = set()
        """Paths that have a place."""
        self.waiting: dict[str, Waiting] = {}
        """Commands that have no place yet, or have one and are not begun, by path."""
        self._loop = loop
        self._admission = admission
        self._start = start
        self.kept: set[str] = set()
        """Paths whose launch is broken off, and whose place is kept for its replacement."""
        self._kept_granted: set[str] = set()
        """Paths whose kept place is granted: the replacement begins at once."""
        self._turns: dict[str, object] = {}
        """A token for each path whose turn has come, and whose ``Granted`` is not sent yet."""
        self._granted: set[str] = set()
        """Paths whose ``Granted`` was sent, and whose ``Perform`` has not come yet."""
        self._look_at = 0.0
        self._is_paused = False
        """True while the run is paused: nothing is admitted."""

    def begin(self, command: Waiting) -> None:
        """Begin an attempt, or grant a launch, now or when its turn comes."""
        # fast road of admission.Admission.request
        if command.path in self.kept:
            self._take_place(command)
            return
        if type(command) is cmd.Perform:
            if command.path in self._granted:
                self._granted.discard(command.path)
                self._start(command)
                return
            if self.free and not command.step.verb.starts_process():
                self._start(command)
                return
        uses = command.step.modifiers.uses
        try:
            self._admission.request(command.path, uses, process=command.step.verb.starts_process())
        except DefinitionError as error:
            self._loop.record(failure_event(command, error))
            return
        self.waiting[command.path] = command
        self.admit()

    def keep(self, path: str) -> Waiting | None:
        """Keep the place of a launch that is broken off, or its place in line, for its replacement.

        Returns the command that waits in line; None if none does.
        """
        waiting = self.waiting.get(path)
        if waiting is not None or path in self.holders or self._is_paused:
            self.kept.add(path)
        return waiting

    def _take_place(self, command: Waiting) -> None:
        """Put a launch into the place kept for it; begin it if that is granted, also in a pause."""
        path = command.path
        self.kept.discard(path)
        if path not in self.waiting:
            self.holders.add(path)
            self._kept_granted.add(path)
        self.waiting[path] = command
        if path in self._kept_granted:
            self._begin(path)

    def pause(self, *, on: bool) -> None:
        """Stop admitting with ``on``, otherwise admit again."""
        self._is_paused = on
        if not on:
            self.admit()

    def admit(self) -> None:
        """Begin what the limits have room for now, unless the run is paused."""
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
        """Begin the command at a path that has a place now; a subclass may delay it."""
        self._begin(path)

    def _begin(self, path: str) -> None:
        if path in self.kept:
            self._kept_granted.add(path)  # the launch that replaces it begins in its place
            return
        self._kept_granted.discard(path)
        command = self.waiting[path]
        if type(command) is cmd.Queue:  # granted once the end that freed the place is settled
            turn = self._turns[path] = object()
            self._loop.queue_job(partial(self._grant, path, turn))
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
        """Shift the start of attempts that wait by the seconds that the clock was set by."""
        for path, command in self.waiting.items():
            if type(command) is cmd.Perform:
                since = command.started_at + jump_s
                self.waiting[path] = msgspec.structs.replace(command, started_at=since)

    def release(self, path: str) -> None:
        """Give back the place of an attempt that ended, or of a launch that is not made."""
        if path in self.kept:
            return
        self._granted.discard(path)
        if path in self.holders:
            self._give_back(path)
            self.admit()

    def give_up(self, path: str) -> None:
        """Give back a place also where it was kept for a replacement: no launch is made."""
        self.kept.discard(path)
        self.release(path)

    def leave(self, path: str) -> Waiting | None:
        """Withdraw from the line; returns the command that waited. Call ``admit`` after it."""
        self._turns.pop(path, None)
        command = self.waiting.pop(path, None)
        if command is not None and not self._admission.withdraw(path):
            self._give_back(path)
        return command

    def _give_back(self, path: str) -> None:
        self.holders.discard(path)
        self._admission.release(path)

    def close(self) -> None:
        """Give back places that are shared with other runs; this line has none."""


MakeLine: TypeAlias = Callable[[LineDriver, Admission, Callable[[cmd.Perform], None]], Line]
