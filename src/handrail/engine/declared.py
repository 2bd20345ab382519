"""Values whose classes are found by what the code declares, and not by their names alone.

A journal refuses them, since it does not know what is declared. Then it is given their text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from handrail.codec.unresolved import Unresolved
from handrail.core.machine import Machine
from handrail.core.node import declared_for
from handrail.errors import OutputNotSerializable
from handrail.model import events as ev
from handrail.record.outputs import recordable, returned_by
from handrail.typed.schema import hints_of

if TYPE_CHECKING:
    from handrail.codec.codec import Codec

Types: TypeAlias = tuple[Any, ...]
_OF_STEPS = (ev.StepCompleted, ev.MemberCompleted, ev.SubworkflowEnded)
WITH_VALUE = (*_OF_STEPS, ev.WorkflowCompleted)
"""The events that may have a value which is read by a type, in the middle of a drive."""


def declared_in(machine: Machine, event: ev.Event) -> Callable[[], Types]:
    """What gives the types by which the value of an event will be read, in the drives to come."""
    if isinstance(event, _OF_STEPS):
        node = machine.nodes.get(event.path)
        return tuple if node is None else lambda: declared_for(node)
    return lambda: (returned_by(machine.definition),)


def with_text(
    event: ev.Event, machine: Machine, types: Callable[[], Types], error: OutputNotSerializable
) -> ev.Event:
    """The event that was refused with this ``error``, with the text of its value.

    Raises:
        OutputNotSerializable: it cannot be recorded.
    """
    codec, where = machine.codec, error.where
    assert codec is not None
    match event:
        case ev.StepCompleted() | ev.MemberCompleted():
            text = _text(event.result.output, codec, types, where, "output")
            return replace(event, result=replace(event.result, output=text))
        case ev.SubworkflowEnded() | ev.WorkflowCompleted():
            return replace(event, value=_text(event.value, codec, types, where, "value"))
        case ev.WorkflowStarted():
            hints = hints_of(machine.definition.function)
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
