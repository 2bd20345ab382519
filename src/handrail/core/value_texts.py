"""Records values that only a declared type can read back, and failures of those no type can.

A journal refuses an event whose value cannot be read back by the names of its classes. The event is
then recorded with the value as text, which is read by the types that the code declares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from handrail.codec.unresolved import Unresolved
from handrail.core.children import declared_for
from handrail.core.machine import Machine
from handrail.core.nodes import Phase
from handrail.errors import OutputNotSerializable
from handrail.model import events as ev
from handrail.model.described import bases_of
from handrail.model.results import StepResult, qualified
from handrail.record.outputs import recordable
from handrail.steps.declared import returned_by
from handrail.steps.table import verb_of
from handrail.typed.schema import hints_of

if TYPE_CHECKING:
    from handrail.codec.codec import Codec


T = TypeVar("T")
Types: TypeAlias = tuple[Any, ...]
_OF_STEPS = (ev.StepCompleted, ev.MemberCompleted, ev.SubworkflowEnded)
WITH_VALUE = (*_OF_STEPS, ev.WorkflowCompleted)
"""The events, except the run's start, whose value may be read by a declared type."""


def declared_in(machine: Machine, event: ev.Event) -> Callable[[], Types]:
    """A function that returns the types by which later drives will read the value of an event."""
    if isinstance(event, _OF_STEPS):
        node = machine.run.nodes.get(event.path)
        return tuple if node is None else lambda: declared_for(node)
    return lambda: (returned_by(machine.run.definition),)


def with_text(
    event: ev.Event, machine: Machine, types: Callable[[], Types], error: OutputNotSerializable
) -> ev.Event:
    """The event that was refused with this ``error``, with its value as text.

    Raises:
        OutputNotSerializable: the value cannot be recorded as text, either.
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


def event_in_its_place(
    event: ev.Event,
    machine: Machine,
    types: Callable[[], Types],
    error: OutputNotSerializable,
    keep: Callable[[ev.Event], T],
) -> tuple[ev.Event, T]:
    """Record something in the place of an event that was refused with this ``error``.

    That is the event with its value as text, or else a failure. Returns it, and what ``keep``
    returned.

    Raises:
        OutputNotSerializable: the run cannot continue without the value.
    """
    try:
        return event, keep(with_text(event, machine, types, error))
    except OutputNotSerializable as still:
        node = machine.run.nodes.get(getattr(event, "path", ""))
        attempts_over = node is not None and node.phase is Phase.ENDING
        failure = failure_for_unserializable(event, still, attempts_over=attempts_over)
        return failure, keep(ev.stamp(failure, event.run_id, event.seq, event.at))


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


def failure_for_unserializable(
    event: ev.Event, error: OutputNotSerializable, *, attempts_over: bool
) -> ev.Event:
    """The failure to record instead of this end.

    ``attempts_over``: not an attempt ends, but the step, with the output of a fallback, say.

    Raises:
        OutputNotSerializable: the event is no end of a step, and the run cannot continue from it.
    """
    kind, bases, text = qualified(type(error)), bases_of(error), str(error)
    match event:
        case ev.StepCompleted(result=result) if (
            not attempts_over and result.status == "succeeded" and verb_of(result.step_type).leaf
        ):
            return ev.AttemptFailed(event.path, result.attempts, text, kind, bases, retryable=False)
        case ev.StepCompleted() | ev.MemberCompleted():
            failed: StepResult[object] = replace(
                event.result,
                status="failed",
                output=None,
                error=text,
                error_type=kind,
                error_bases=bases,
                traceback=None,
            )
            return replace(event, result=failed, composed="")
        case ev.AttemptFailed():
            return replace(event, output=None)
        case _:
            raise error
