"""Replays a run's record with the workflow's own code, before anything is written or performed.

A rehearsal collects the events that happen meanwhile, and the commands that lie beyond the record.
If no recorded step has changed, the driver writes the events and carries out the commands. If one
has, nothing of it has happened.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TypeAlias, TypeGuard

from handrail.core import commands as cmd
from handrail.core.command_loop import CommandLoop
from handrail.core.machine import Machine
from handrail.core.nodes import cleans_up
from handrail.core.run_state import RunState
from handrail.core.timers import InFlight, Timers
from handrail.core.value_texts import WITH_VALUE, Types, declared_in
from handrail.model import events as ev
from handrail.record.run_record import Recorded

RecordedQuestion: TypeAlias = cmd.AskFallback | cmd.FindStages
"""A question whose answer may lead back into the record."""


class Rehearsal:
    """Collects events and the commands beyond the record. Mutable.

    ``seq`` is the number of the last event. ``shows``: progress is collected, too.
    """

    def __init__(
        self,
        machine: Machine,
        now: Callable[[], float],
        seq: int,
        *,
        shows: bool = True,
    ) -> None:
        self.happened: list[tuple[ev.Event | ev.Progress, bool | None]] = []
        """Events, each with whether it must be on disk at once, and progress, with None."""
        self.beyond: list[cmd.Command] = []
        """The commands beyond the record."""
        self.declared: dict[int, Callable[[], Types]] = {}
        """For an event by its place in ``happened``: returns the types to read its value by."""
        self._noted = 0
        """How many events of the record come next: what is replayed is shown ahead of them."""
        self._machine = machine
        self._shows = shows
        self._loop = CommandLoop(
            machine, seq=seq, now=now, append=self._keep, tell=self._tell, carry_out=self._hold
        )
        self.receive = self._loop.begin

    @property
    def seq(self) -> int:
        """The number of the last event."""
        return self._loop.seq

    async def run(self, most: float = math.inf) -> bool:
        """Rehearse until the record is used up; False if ``most`` commands came first."""
        return await self._loop.run(most)

    def note(self, event: ev.Event) -> None:
        """Number an event that is in the record already."""
        sent_at = event.at  # by which a wait judges whether it came in time
        self._loop.number(event)
        self.happened.append((ev.stamp(event, event.run_id, event.seq, sent_at), False))
        self._noted += 1

    def _hold(self, command: cmd.Command) -> None:
        self.beyond.append(command)

    def _keep(self, event: ev.Event, /, *, sync: bool = False) -> None:
        if isinstance(event, WITH_VALUE):
            self.declared[len(self.happened)] = declared_in(self._machine, event)
        self.happened.append((event, sync))
        self._noted = 0

    def _tell(self, progress: ev.Progress) -> None:
        if not self._shows:
            return
        seq = self._loop.seq - self._noted
        if progress.seq != seq or not seq:  # else the core has stamped it already
            ev.stamp(progress, self._machine.run.setting.run_id, seq, self._machine.run.now)
        self.happened.insert(len(self.happened) - self._noted, (progress, None))


class CatchingUp(Rehearsal):
    """The last part: lets all happen that fell due since the last drive, the earliest first.

    ``held`` are the commands beyond the record so far. An attempt that is stopped never begins.
    """

    def __init__(
        self,
        machine: Machine,
        now: Callable[[], float],
        seq: int,
        *,
        held: Iterable[cmd.Command],
        shows: bool,
    ) -> None:
        super().__init__(machine, now, seq, shows=shows)
        self._now = at = now()
        self._timers = Timers[InFlight](machine.run.timers)
        self._attempts: dict[str, cmd.Perform | cmd.Queue] = {}
        for command in held:
            self._hold(command)
        self.receive(cmd.Rehearsed(at=at))

    async def run(self, most: float = math.inf) -> bool:
        """Go on until nothing is due any more; False if ``most`` commands came first."""
        while await super().run(most):
            if not self._fire_next():
                return True
            most -= 1
        return False

    def _fire_next(self) -> bool:
        run = self._machine.run
        token = None if run.timers_frozen else self._timers.pop(self._now)
        if not isinstance(token, int):
            return False
        node, _ = run.timers[token]
        self.receive(cmd.TimerFired(node.path, token, at=self._now))
        return True

    def _hold(self, command: cmd.Command) -> None:
        match command:
            case cmd.Wait():
                self._timers.wait(command.due, command.token)
            case cmd.Perform() | cmd.Queue():
                self._attempts[command.path] = command
            case cmd.Cancel() if command.path in self._attempts:
                if self._waits_for_request(command.path):
                    return
                stopped = self._attempts.pop(command.path)
                self._loop.receive(cmd.Stopped(stopped.path, stopped.attempt, at=self._now))
                return
            case _:
                pass
        super()._hold(command)

    def _waits_for_request(self, path: str) -> bool:
        """True for an attempt that ``to_carry_out`` stops once the request to cancel is recorded.
        Stopped before, it could end a group that had not ended when the request came.
        """
        run = self._machine.run
        return run.setting.unwinds and not cleans_up(run.nodes.get(path))

    def left(self) -> list[cmd.Command]:
        """The commands that are still to be carried out."""
        return [one for one in self.beyond if self._is_left(one)]

    def _is_left(self, command: cmd.Command) -> bool:
        if isinstance(command, (cmd.Perform, cmd.Queue)):
            return self._attempts.get(command.path) is command
        if isinstance(command, cmd.Ask):  # another attempt may have opened the gate again
            return self._machine.run.gates.get(command.path) is command.gate
        return True


Rehearsing: TypeAlias = Generator[
    Rehearsal | RecordedQuestion, cmd.Evaluated | None, list[cmd.Command]
]
"""What ``rehearse`` yields, is sent, and returns."""


def rehearse(
    machine: Machine,
    first: ev.Event,
    now: Callable[[], float],
    *,
    seq: int = 0,
    known: Sequence[ev.Event] = (),
    shows: bool = True,
) -> Rehearsing:
    """Rehearse from the first event of a drive; returns the commands beyond the record.

    Yields each part that the record leads to, for the caller to run and to write what happened, and
    each question whose answer leads back into the record, for the caller to send that answer.
    ``known`` events are in the machine's record already, and are written before the first new one.
    ``seq`` is the number of the last event.
    """
    ev.stamp(first, machine.run.setting.run_id, seq + 1, now())
    rehearsal = Rehearsal(machine, now, first.seq, shows=shows)
    rehearsal.happened.append((first, False))
    for event in known:
        rehearsal.note(event)
    rehearsal.receive(first)
    yield rehearsal
    left, beyond = deque(rehearsal.beyond), list[cmd.Command]()
    while left:
        command = left.popleft()
        if not _leads_back(command, machine.run.recorded):
            beyond.append(command)
            continue
        answer = yield command
        assert answer is not None
        rehearsal = Rehearsal(machine, now, rehearsal.seq, shows=shows)
        rehearsal.receive(answer)
        yield rehearsal
        left.extendleft(reversed(rehearsal.beyond))
    last = CatchingUp(machine, now, rehearsal.seq, held=beyond, shows=shows)
    yield last
    return last.left()


# -- what lies beyond the record -------------------------------------------------------------------


def _leads_back(command: cmd.Command, recorded: Recorded) -> TypeGuard[RecordedQuestion]:
    """True for a question whose answer leads back into the record.

    It then has steps below the fallback, or the validation, that asks.
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
    """The commands to carry out beyond the record, and the attempts to stop before they begin.

    Attempts are stopped only in a run that unwinds, unless they clean up; ``cancel`` says why it
    does.
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
