"""The loop that feeds the machine its own records, and performs nothing.

A resume begins with it (``core.rehearsal``), a plan consists of it, and ``testing.Script`` answers
by hand the commands that it leaves over. The driver has a loop of its own, which waits for the disk
and performs attempts (``engine.driver``).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from handrail.core import commands as cmd
from handrail.core.machine import Machine
from handrail.model import events as ev


class CommandLoop:
    """Passes records to ``record`` and on to the machine, progress to ``tell``, in order.

    ``record`` returns the event for the machine: the one given, or what was recorded in its place.
    ``carry_out`` takes all other commands. ``pull`` takes the path of a group that has more members
    to start; by default the machine starts them when nothing else is left to do, so that at most as
    many are open as the group's window allows.
    """

    __slots__ = ("_carry_out", "_late", "_machine", "_pull", "_record", "_tell", "now", "todo")

    def __init__(
        self,
        machine: Machine,
        now: float,
        *,
        record: Callable[[cmd.Record], ev.Event],
        tell: Callable[[ev.Progress], None],
        carry_out: Callable[[cmd.Command], None],
        pull: Callable[[str], None] | None = None,
    ) -> None:
        self.now = now
        self._machine = machine
        self._record = record
        self._tell = tell
        self._carry_out = carry_out
        self._pull = pull if pull is not None else self._pull_late
        self.todo: deque[cmd.Command] = deque()
        """The commands that are queued."""
        self._late: deque[cmd.Report] = deque()

    def receive(self, happened: ev.Event | cmd.Report) -> None:
        """Give the machine what happened, and queue the commands that it returns."""
        self.begin(happened)
        self.todo.extend(self._machine.go_on())

    def begin(self, happened: ev.Event | cmd.Report) -> None:
        """Give the machine what happened; ``run`` carries out what follows, in parts if need be.

        A whole record may follow from one event.
        """
        machine = self._machine
        if machine.has_actions:
            self.todo.extend(machine.go_on())
        self.todo.extend(machine.begin(happened))

    def _pull_late(self, path: str) -> None:
        self._late.append(cmd.Pulled(path, at=self.now))

    def run(self, most: float = math.inf) -> bool:
        """Run until no command is left or about ``most`` are carried out; True if none is left."""
        todo, late, machine = self.todo, self._late, self._machine
        while todo or late or machine.has_actions:
            if most <= 0:
                return False
            if machine.has_actions:
                todo.extend(machine.go_on(most))
                if machine.has_actions:
                    return False
                continue
            most -= 1
            if not todo:
                todo.extend(machine.begin(late.popleft()))
                continue
            command = todo.popleft()
            match command:
                case cmd.Tell():  # first: in a replay most commands are this
                    self._tell(command.progress)
                case cmd.Record():
                    todo.extend(machine.begin(self._record(command)))
                case cmd.Pull():
                    self._pull(command.path)
                case _:
                    self._carry_out(command)
        return True
