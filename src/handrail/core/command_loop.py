"""The loop that drives the machine by its own records, and performs nothing.

A resume begins with it (``core.rehearsal``), a plan is nothing else, and ``testing.Script`` says by
hand what became of the commands that it leaves over. The driver has a loop of its own, which waits
for the disk and performs attempts (``engine.driver``).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from handrail.core import commands as cmd
from handrail.core.machine import Machine
from handrail.model import events as ev


class CommandLoop:
    """Records are given to ``record`` and then to the machine, progress to ``tell``; all other
    commands are left to ``carry_out``, in order. ``record`` gives what the machine is to know of:
    the event, or what was recorded instead.

    The members that a group pulls reach the machine when nothing else is left to do, unless
    ``pull`` sees to them: at most as many are open as the group's window.
    """

    __slots__ = ("_carry_out", "_late", "_machine", "_pull", "_record", "_tell", "_todo", "now")

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
        self._todo: deque[cmd.Command] = deque()
        self._late: deque[cmd.Report] = deque()

    def add(self, *commands: cmd.Command) -> None:
        """Do this behind what is to be done already."""
        self._todo.extend(commands)

    def receive(self, happened: ev.Event | cmd.Report) -> None:
        """Tell the machine, and do what it asks for behind what is to be done already."""
        self.begin(happened)
        self._todo.extend(self._machine.go_on())

    def begin(self, happened: ev.Event | cmd.Report) -> None:
        """Tell the machine, and have it go on from there in ``run``, in parts if that has little
        time: a whole record may follow from one event.
        """
        machine = self._machine
        if machine.is_at_work:
            self._todo.extend(machine.go_on())
        self._todo.extend(machine.begin(happened))

    def _pull_late(self, path: str) -> None:
        self._late.append(cmd.Pulled(path, at=self.now))

    def run(self, most: float = math.inf) -> bool:
        """Until nothing is left to do, or about ``most`` commands were; True if nothing is left."""
        todo, late, machine = self._todo, self._late, self._machine
        while todo or late or machine.is_at_work:
            if most <= 0:
                return False
            if machine.is_at_work:
                todo.extend(machine.go_on(most))
                if machine.is_at_work:
                    return False
                continue
            most -= 1
            if not todo:
                todo.extend(machine.begin(late.popleft()))
                continue
            command = todo.popleft()
            match command:
                case cmd.Tell():  # first, as most of them are: a replayed step is one
                    self._tell(command.progress)
                case cmd.Record():
                    todo.extend(machine.begin(self._record(command)))
                case cmd.Pull():
                    self._pull(command.path)
                case _:
                    self._carry_out(command)
        return True
