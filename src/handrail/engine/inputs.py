"""The inputs of a run: as they were given, of the types that the workflow declares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from inspect import Parameter
from pathlib import PurePath
from typing import Any, TypeGuard
from uuid import UUID

from handrail.codec.codec import Codec
from handrail.errors import InputsDiffer, InvalidInput, WrongUse, did_you_mean
from handrail.model.definition import WorkflowDefinition
from handrail.model.results import A_PERSON, AgentResult, StepResult
from handrail.record.answers import choice_of
from handrail.record.outputs import declared_output
from handrail.steps.verbs import AgentCall, Question, Step
from handrail.typed.convert import convert, from_text
from handrail.typed.jsonsafe import short_repr
from handrail.typed.schema import plain

_SCALARS = (str, bytes, bool, int, float, type(None))
_DATA = (*_SCALARS, date, time, timedelta, Decimal, Enum, PurePath, UUID)


def bind_inputs(
    definition: WorkflowDefinition, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """The inputs by parameter name, defaults included, converted to the annotated types.

    Data is checked. An object that is no data, such as a test double, is taken as it is where the
    parameter is of a class.

    Raises:
        TypeError: they do not fit the signature.
        InvalidInput: a value is not of its parameter's type.
    """
    inputs = definition.bind(args, kwargs)
    for parameter in definition.parameters:
        name, annotation = parameter.name, parameter.annotation
        value = inputs[name]
        if value is parameter.default:
            continue
        if parameter.kind is Parameter.VAR_POSITIONAL:
            inputs[name] = tuple(_input(name, one, annotation) for one in value)
        elif parameter.kind is Parameter.VAR_KEYWORD:
            inputs[name] = {key: _input(key, one, annotation) for key, one in value.items()}
        else:
            inputs[name] = _input(name, value, annotation)
    return inputs


def with_inputs(
    definition: WorkflowDefinition, recorded: Mapping[str, Any], given: Mapping[str, Any]
) -> dict[str, Any]:
    """The recorded inputs with others in the place of some.

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
        **{name: _input(name, value, annotations[name]) for name, value in given.items()},
    }


def result_given(path: str, step: Step[Any] | None, value: Any) -> StepResult[Any]:
    """The result of a step whose output a person gave: of its declared type, or a text of that.

    Raises:
        WrongUse: the code does not come to the step. InvalidInput: it is not of the type.
    """
    if step is None:
        raise WrongUse(
            f"no output of step {path!r} can be given: by what the fork keeps, today's code "
            f"does not come to it. Make the fork with the code that ran it, or of another step."
        )
    verb = step.verb
    if isinstance(verb, Question) and verb.choices:
        output = choice_of(path, verb.choices, value)
    elif isinstance(verb, AgentCall) and not verb.answers and not isinstance(value, AgentResult):
        output = AgentResult(_given(path, value, getattr(verb.agent, "output", None) or str))
    else:
        output = _given(path, value, declared_output(step))
    return StepResult(step.name, path, verb.kind, "succeeded", output, given_by=A_PERSON)


def _given(name: str, value: Any, declared: Any) -> Any:
    is_text = isinstance(value, str) and declared not in {str, Any}
    return (from_text if is_text else convert)(value, declared, name=name)


def _input(name: str, value: Any, annotation: Any) -> Any:
    if annotation is Parameter.empty:
        return value
    try:
        converted = convert(value, annotation, name=name)
    except InvalidInput:
        if _is_data(value) or plain(annotation) in _SCALARS:
            raise
        return value
    return value if type(value) is int and type(converted) is float else converted  # it is one


def _is_data(value: object) -> bool:
    if _is_mapping(value):
        return all(map(_is_data, value)) and all(map(_is_data, value.values()))
    if _is_collection(value):
        return all(map(_is_data, value))
    return isinstance(value, _DATA)


def _is_mapping(value: object) -> TypeGuard[dict[object, object]]:
    return isinstance(value, dict)


def _is_collection(value: object) -> TypeGuard[Iterable[object]]:
    return isinstance(value, (list, tuple, set, frozenset))


def refuse_other_inputs(
    run_id: str,
    definition: WorkflowDefinition,
    given: Mapping[str, Any],
    recorded: Mapping[str, Any],
    codec: Codec,
) -> None:
    """Do nothing if what is given is what the run was begun with; what is not given may be any.

    Raises:
        InputsDiffer: it is not.
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
