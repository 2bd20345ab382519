"""What a resume does before anything is written: the workflow's own code against the record.

The machine is driven as far as the record goes. What happens meanwhile is kept, and what it asks
for beyond the record is held back. If all recorded steps are what they were, the driver writes the
first and carries out the second; if not, nothing of it has happened.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import anyio.lowlevel

from handrail.codec.unresolved import Unresolved
from handrail.core import commands as cmd
from handrail.core.command_loop import CommandLoop
from handrail.core.machine import Machine
from handrail.core.run_state import declared_for
from handrail.engine.bus import Bus
from handrail.errors import OutputNotSerializable
from handrail.model import events as ev
from handrail.model.dataclass import dataclass
from handrail.model.described import bases_of
from handrail.model.results import StepResult, qualified
from handrail.ports.journal import Journal
from handrail.record.outputs import recordable, returned_by
from handrail.record.run_record import Recorded
from handrail.steps.verbs import LEAF_KINDS
from handrail.typed.schema import hints_of

if TYPE_CHECKING:
    from handrail.codec.codec import Codec


# Values whose classes are found by what the code declares, and not by their names alone.
#
# A journal refuses them, since it does not know what is declared. Then it is given their text.

Types: TypeAlias = tuple[Any, ...]
_OF_STEPS = (ev.StepCompleted, ev.MemberCompleted, ev.SubworkflowEnded)
WITH_VALUE = (*_OF_STEPS, ev.WorkflowCompleted)
"""The events that may have a value which is read by a type, in the middle of a drive."""


def declared_in(machine: Machine, event: ev.Event) -> Callable[[], Types]:
    """What gives the types by which the value of an event will be read, in the drives to come."""
    if isinstance(event, _OF_STEPS):
        node = machine.run.nodes.get(event.path)
        return tuple if node is None else lambda: declared_for(node)
    return lambda: (returned_by(machine.run.definition),)


def with_text(
    event: ev.Event, machine: Machine, types: Callable[[], Types], error: OutputNotSerializable
) -> ev.Event:
    """The event that was refused with this ``error``, with the text of its value.

    Raises:
        OutputNotSerializable: it cannot be recorded.
    """
    codec, where = machine.run.codec, error.where
    assert codec is not None
    match event:
        case ev.StepCompleted() | ev.MemberCompleted():
            text = _text(event.result.output, codec, types, where, "output")
            return replace(event, result=replace(event.result, output=text))
        case ev.SubworkflowEnded() | ev.WorkflowCompleted():
            return replace(event, value=_text(event.value, codec, types, where, "value"))
        case ev.WorkflowStarted():
            hints = hints_of(machine.run.definition.function)
            return replace(event, inputs=_inputs(event.inputs, codec, hints, where))
        case _:
            raise error


def _text(
    value: Any, codec: Codec, types: Callable[[], Types], where: str, root: str
) -> Unresolved:
    return Unresolved(recordable(value, codec, types, where, root), "")


def _inputs(
    inputs: Mapping[str, Any], codec: Codec, hints: Mapping[str, Any], where: str
) -> dict[str, Any]:
    written: dict[str, Any] = {}
    for name, value in inputs.items():
        declared: Types = (hints.get(name, Any),)
        written[name] = _text(value, codec, lambda: declared, where, f"inputs[{name!r}]")  # noqa: B023  # called at once
    return written


EVENTS_A_TURN = 64
"""How many events are written and shown before the loop gets a turn."""


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
    rehearsing = _Rehearsing(machine, stamp, stamp(first), first.seq)
    rehearsing.rehearsal.happened.append((first, False))
    rehearsing.known.extend(known)
    return rehearsing.go(first)


async def resolve_recorded_callbacks(
    held: Sequence[cmd.Command],
    recorded: Recorded,
    evaluated: Callable[[cmd.AskFallback | cmd.FindStages], Awaitable[cmd.Evaluated]],
    go_on: Callable[[cmd.Report], Awaitable[Sequence[cmd.Command]]],
) -> list[cmd.Command]:
    """Have those questions answered that lead back into the record, and give what is held back when
    that has been gone through, too: what is recorded below a fallback, or a validation.
    """
    left, kept = deque(held), list[cmd.Command]()
    while left:
        command = left.popleft()
        match command:
            case cmd.FindStages() if recorded.children(command.path):
                report = await evaluated(command)
            case cmd.AskFallback() if recorded.leads_on(command.path):
                report = await evaluated(command)
            case _:
                kept.append(command)
                continue
        left.extendleft(reversed(await go_on(report)))
    return kept


def rehearse_on(
    machine: Machine, report: cmd.Report, seq: int, stamp: Callable[[ev.Event], float]
) -> Rehearsal:
    """Go on with what was asked for in a rehearsal, whose last event had this number."""
    return _Rehearsing(machine, stamp, report.at, seq).go(report)


class _Rehearsing:
    """Collects a rehearsal. Mutable."""

    def __init__(
        self, machine: Machine, stamp: Callable[[ev.Event], float], at: float, seq: int
    ) -> None:
        self.rehearsal = Rehearsal()
        self.known: deque[ev.Event] = deque()
        self._machine = machine
        self._stamp = stamp
        self._at = at
        self._seq = seq

    def go(self, begin: ev.Event | cmd.Report) -> Rehearsal:
        held = self.rehearsal.held.append
        machine = self._machine
        loop = CommandLoop(machine, self._at, record=self._record, tell=self._tell, carry_out=held)
        loop.receive(begin)
        loop.run()
        self._write_known()
        return self.rehearsal

    def _write_known(self) -> None:
        while self.known:
            event = self.known.popleft()
            self._at, self._seq = self._stamp(event), event.seq
            self.rehearsal.happened.append((event, False))

    def _record(self, command: cmd.Record) -> None:
        if self.known:
            self._write_known()
        event, happened = command.event, self.rehearsal.happened
        self._at, self._seq = self._stamp(event), event.seq
        if isinstance(event, WITH_VALUE):
            self.rehearsal.declared[len(happened)] = declared_in(self._machine, event)
        happened.append((event, command.sync))

    def _tell(self, progress: ev.Progress) -> None:
        if progress.seq != self._seq or not self._seq:  # else the core has stamped it already
            ev.stamp(progress, self._machine.run.setting.run_id, self._seq, self._at)
        self.rehearsal.happened.append((progress, None))


async def write_out(rehearsal: Rehearsal, machine: Machine, journal: Journal, bus: Bus) -> None:
    """Journal what happened, and show it, in order."""
    for count, (event, sync) in enumerate(rehearsal.happened):
        if sync is not None:
            known = cast("ev.Event", event)
            try:
                pending = journal.append(known, sync=sync)
            except OutputNotSerializable as error:
                written = with_text(known, machine, rehearsal.declared.get(count, tuple), error)
                pending = journal.append(written, sync=sync)
            if pending is not None:
                await pending
        bus.emit(event)
        if count % EVENTS_A_TURN == 0:
            await anyio.lowlevel.checkpoint()


def warn_of_masked(run_id: str, rehearsal: Rehearsal) -> None:
    """Log which outputs are not what they were: a token was cut from them before they were kept."""
    paths = [
        event.path
        for event, _ in rehearsal.happened
        if type(event) is ev.StepReplayed and event.result is not None and event.result.masked
    ]
    if paths:
        _warn("outputs replay masked", run_id=run_id, paths=paths)


def warn_of_missing(run_id: str, variables: Sequence[str]) -> None:
    """Log whose values a record needs, and that are not there: ``${NAME}`` is in their place."""
    _warn("secrets are not set here: ${NAME} stands for them", run_id=run_id, variables=variables)


def _warn(said: str, **parts: Any) -> None:
    import structlog

    logger: Any = structlog.get_logger("handrail")
    with contextlib.suppress(Exception):  # a log that cannot be written must not end a run
        logger.warning(said, **parts)


def failure_for_unserializable(
    event: ev.Event, error: OutputNotSerializable, *, settled: bool
) -> ev.Event:
    """The failure to record instead of this end; ``settled``: it is no longer an attempt that ends,
    but the step, with the output of a fallback, say.

    Raises:
        OutputNotSerializable: the event is no end of a step; nobody can go on from it.
    """
    kind, bases, said = qualified(type(error)), bases_of(error), str(error)
    match event:
        case ev.StepCompleted(result=result) if (
            not settled and result.status == "succeeded" and result.step_type in LEAF_KINDS
        ):
            return ev.AttemptFailed(event.path, result.attempts, said, kind, bases, retryable=False)
        case ev.StepCompleted() | ev.MemberCompleted():
            failed: StepResult[object] = replace(
                event.result,
                status="failed",
                output=None,
                error=said,
                error_type=kind,
                error_bases=bases,
                traceback=None,
            )
            return replace(event, result=failed, composed="")
        case ev.AttemptFailed():
            return replace(event, output=None)
        case _:
            raise error
