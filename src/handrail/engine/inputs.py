"""Checks inputs of a run, and outputs that a person gives, against the record and the types."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import Parameter
from typing import TYPE_CHECKING, Any

from handrail.errors import InputsDiffer, WrongUse, did_you_mean
from handrail.model.definition import WorkflowDefinition
from handrail.model.inputs import input_of
from handrail.model.results import A_PERSON, StepResult
from handrail.record.answers import given_output
from handrail.steps.verbs import Step
from handrail.typed.jsonsafe import short_repr

if TYPE_CHECKING:
    from handrail.codec.codec import Codec


def with_inputs(
    definition: WorkflowDefinition, recorded: Mapping[str, Any], given: Mapping[str, Any]
) -> dict[str, Any]:
    """The recorded inputs, some of them replaced by the given ones.

    Raises:
        WrongUse: the workflow has no such input. InvalidInput: a value is not of its type.
    """
    annotations = {one.name: one.annotation for one in definition.parameters}
    for name in given:
        if name not in annotations:
            meant = did_you_mean([name], sorted(annotations))
            raise WrongUse(f"workflow {definition.name!r} has no input {name!r}.{meant}")
    return {
        **recorded,
        **{name: input_of(name, value, annotations[name]) for name, value in given.items()},
    }


def result_given(path: str, step: Step[Any] | None, value: Any) -> StepResult[Any]:
    """The result of a step whose output a person gave: ``value``, of its type or a text of that.

    Raises:
        WrongUse: the code does not reach the step. InvalidInput: the value is not of the type.
    """
    if step is None:
        raise WrongUse(
            f"no output of step {path!r} can be given: by what the fork keeps, today's code "
            f"does not come to it. Make the fork with the code that ran it, or of another step."
        )
    output = given_output(path, step, value)
    return StepResult(step.name, path, step.verb.kind, "succeeded", output, given_by=A_PERSON)


def refuse_other_inputs(
    run_id: str,
    definition: WorkflowDefinition,
    given: Mapping[str, Any],
    recorded: Mapping[str, Any],
    codec: Codec,
) -> None:
    """Raise if a given input differs from the recorded one; inputs not given are not compared.

    Raises:
        InputsDiffer: one differs.
    """
    kinds = {parameter.name: parameter.kind for parameter in definition.parameters}
    rest = next((name for name, kind in kinds.items() if kind is Parameter.VAR_KEYWORD), None)
    for name, value in given.items():
        of = recorded if name in kinds else recorded.get(rest or "", {})
        then, now = of.get(name), value
        if kinds.get(name) is Parameter.VAR_POSITIONAL:
            then, now = tuple(then or ()), tuple(value)
        if name not in of or codec.identity(now) != codec.identity(then):
            raise InputsDiffer(run_id, name, short_repr(then), short_repr(now))
