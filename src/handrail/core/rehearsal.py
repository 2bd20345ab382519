"""A run gone through by its record: the workflow's own code, as far as the record goes.

What happens meanwhile is kept, and what is asked for beyond the record is held back. Nothing is
written and nothing performed: if all recorded steps are what they were, who drives the run writes
the first and carries out the second; if not, nothing of it has happened.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import TypeAlias, TypeGuard

from handrail.core import commands as cmd
from handrail.core.command_loop import CommandLoop
from handrail.core.machine import Machine
from handrail.core.nodes import cleans_up
from handrail.core.run_state import RunState
from handrail.core.value_texts import WITH_VALUE, Types, declared_in
from handrail.model import events as ev
from handrail.record.run_record import Recorded

RecordedQuestion: TypeAlias = cmd.AskFallback | cmd.FindStages
"""What may lead back into the record by its answer."""


class Rehearsal:
    """Collects what happens, and what is asked for. Mutable. ``stamp`` numbers an event, and gives
    the time. Progress has that of the event before it; it is kept only if it is to be shown.
    """

    def __init__(
        self,
        machine: Machine,
        stamp: Callable[[ev.Event], float],
        at: float,
        seq: int,
        *,
        shows: bool = True,
    ) -> None:
        self.happened: list[tuple[ev.Event | ev.Progress, bool | None]] = []
        """What happened, in order, and whether it is to be on disk at once; None for progress."""
        self.beyond: list[cmd.Command] = []
        """What is asked for now."""
        self.declared: dict[int, Callable[[], Types]] = {}
        """The types by which the value of an end will be read, by its place."""
        self.known: deque[ev.Event] = deque()
        self._machine = machine
        self._stamp = stamp
        self._at = at
        self._seq = seq
        self._shows = shows
        beyond = self.beyond.append
        self._loop = CommandLoop(
            machine, at, record=self._record, tell=self._tell, carry_out=beyond
        )
        self.receive = self._loop.begin

    def run(self, most: float = math.inf) -> bool:
        """Until the record has been gone through, or ``most`` commands were asked for; True if it
        has.
        """
        if not self._loop.run(most):
            return False
        self._write_known()
        return True

    def _write_known(self) -> None:
        while self.known:
            event = self.known.popleft()
            self._at, self._seq = self._stamp(event), event.seq
            self.happened.append((event, False))

    def _record(self, command: cmd.Record) -> ev.Event:
        if self.known:
            self._write_known()
        event, happened = command.event, self.happened
        self._at, self._seq = self._stamp(event), event.seq
        if isinstance(event, WITH_VALUE):
            self.declared[len(happened)] = declared_in(self._machine, event)
        happened.append((event, command.sync))
        return event

    def _tell(self, progress: ev.Progress) -> None:
        if not self._shows:
            return
        if progress.seq != self._seq or not self._seq:  # else the core has stamped it already
            ev.stamp(progress, self._machine.run.setting.run_id, self._seq, self._at)
        self.happened.append((progress, None))


def rehearse(
    machine: Machine,
    first: ev.Event,
    known: Sequence[ev.Event],
    stamp: Callable[[ev.Event], float],
    *,
    shows: bool = True,
) -> Rehearsal:
    """What drives the machine from its first event, as far as ``run`` is let go; ``known`` events
    are in its record already, and stand before the first new one.
    """
    rehearsal = Rehearsal(machine, stamp, stamp(first), first.seq, shows=shows)
    rehearsal.happened.append((first, False))
    rehearsal.known.extend(known)
    rehearsal.receive(first)
    return rehearsal


def rehearse_on(
    machine: Machine,
    report: cmd.Report,
    seq: int,
    stamp: Callable[[ev.Event], float],
    *,
    shows: bool = True,
) -> Rehearsal:
    """The same, from what was asked for in a rehearsal, whose last event had this number."""
    rehearsal = Rehearsal(machine, stamp, report.at, seq, shows=shows)
    rehearsal.receive(report)
    return rehearsal


# -- what lies beyond the record -------------------------------------------------------------------


def questions(
    commands: Sequence[cmd.Command], recorded: Recorded
) -> Generator[RecordedQuestion, Sequence[cmd.Command], list[cmd.Command]]:
    """The questions that lead back into the record, one after the other. Each is sent what is held
    back when that has been gone through, by its answer. Returns all that lies beyond.
    """
    left, beyond = deque(commands), list[cmd.Command]()
    while left:
        command = left.popleft()
        if leads_back(command, recorded):
            left.extendleft(reversed((yield command)))
        else:
            beyond.append(command)
    return beyond


def leads_back(command: cmd.Command, recorded: Recorded) -> TypeGuard[RecordedQuestion]:
    """True for a question whose answer leads back into the record: what is recorded below a
    fallback, or a validation.
    """
    match command:
        case cmd.FindStages():
            return bool(recorded.children(command.path))
        case cmd.AskFallback():
            return recorded.leads_on(command.path)
        case _:
            return False


def to_carry_out(
    beyond: Sequence[cmd.Command], run: RunState, cancel: str | None
) -> tuple[list[cmd.Command], list[cmd.Perform | cmd.Queue]]:
    """What is carried out of what lies beyond the record; and what is stopped before it begins: in
    a run that only unwinds all but what cleans up. ``cancel`` says why it does.
    """
    if cancel is None or run.finished:
        return list(beyond), []
    carried_out: list[cmd.Command] = [cmd.Record(ev.CancelRequested(cancel))]
    stopped: list[cmd.Perform | cmd.Queue] = []
    for one in beyond:
        if isinstance(one, (cmd.Perform, cmd.Queue)) and not cleans_up(run.nodes.get(one.path)):
            stopped.append(one)
        else:
            carried_out.append(one)
    return carried_out, stopped
