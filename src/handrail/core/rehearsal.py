"""A run gone through by its record: the workflow's own code, as far as the record goes.

What happens meanwhile is kept, and what is asked for beyond the record is held back. Nothing is
written and nothing performed: if all recorded steps are what they were, who drives the run writes
the first and carries out the second; if not, nothing of it has happened.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TypeGuard

from handrail.core import commands as cmd
from handrail.core.command_loop import CommandLoop
from handrail.core.machine import Machine
from handrail.core.value_texts import WITH_VALUE, Types, declared_in
from handrail.model import events as ev
from handrail.model.dataclass import dataclass
from handrail.record.run_record import Recorded


@dataclass(slots=True)
class Rehearsal:
    """What happened, in order (``sync`` is None for progress), and what is asked for now.

    ``declared`` gives, by place, the types by which the value of an end will be read.
    """

    happened: list[tuple[ev.Event | ev.Progress, bool | None]] = field(
        default_factory=list[tuple[ev.Event | ev.Progress, bool | None]]
    )
    held: list[cmd.Command] = field(default_factory=list[cmd.Command])
    declared: dict[int, Callable[[], Types]] = field(default_factory=dict[int, Callable[[], Types]])


def rehearse(
    machine: Machine,
    first: ev.Event,
    known: Sequence[ev.Event],
    stamp: Callable[[ev.Event], float],
) -> Rehearsal:
    """Drive the machine from its first event; ``known`` events are in its record already, and stand
    before the first new one.

    ``stamp`` numbers an event, and gives the time. Progress has that of the event before it.
    """
    rehearsing = beginning(machine, first, known, stamp)
    rehearsing.run()
    return rehearsing.rehearsal


def beginning(
    machine: Machine,
    first: ev.Event,
    known: Sequence[ev.Event],
    stamp: Callable[[ev.Event], float],
    *,
    shows: bool = True,
) -> Rehearsing:
    """What rehearses a run from its first event, a part at a time; see ``rehearse``."""
    rehearsing = Rehearsing(machine, stamp, stamp(first), first.seq, shows=shows)
    rehearsing.rehearsal.happened.append((first, False))
    rehearsing.known.extend(known)
    rehearsing.receive(first)
    return rehearsing


def rehearse_on(
    machine: Machine, report: cmd.Report, seq: int, stamp: Callable[[ev.Event], float]
) -> Rehearsal:
    """Go on with what was asked for in a rehearsal, whose last event had this number."""
    rehearsing = Rehearsing(machine, stamp, report.at, seq)
    rehearsing.receive(report)
    rehearsing.run()
    return rehearsing.rehearsal


def leads_back(
    command: cmd.Command, recorded: Recorded
) -> TypeGuard[cmd.AskFallback | cmd.FindStages]:
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


class Rehearsing:
    """Collects a rehearsal. Mutable. Unless it ``shows`` it, progress is not kept."""

    def __init__(
        self,
        machine: Machine,
        stamp: Callable[[ev.Event], float],
        at: float,
        seq: int,
        *,
        shows: bool = True,
    ) -> None:
        self.rehearsal = Rehearsal()
        self.known: deque[ev.Event] = deque()
        self._machine = machine
        self._stamp = stamp
        self._at = at
        self._seq = seq
        self._shows = shows
        held = self.rehearsal.held.append
        self._loop = CommandLoop(machine, at, record=self._record, tell=self._tell, carry_out=held)
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
            self.rehearsal.happened.append((event, False))

    def _record(self, command: cmd.Record) -> ev.Event:
        if self.known:
            self._write_known()
        event, happened = command.event, self.rehearsal.happened
        self._at, self._seq = self._stamp(event), event.seq
        if isinstance(event, WITH_VALUE):
            self.rehearsal.declared[len(happened)] = declared_in(self._machine, event)
        happened.append((event, command.sync))
        return event

    def _tell(self, progress: ev.Progress) -> None:
        if not self._shows:
            return
        if progress.seq != self._seq or not self._seq:  # else the core has stamped it already
            ev.stamp(progress, self._machine.run.setting.run_id, self._seq, self._at)
        self.rehearsal.happened.append((progress, None))
