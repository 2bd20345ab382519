"""Binds the inputs of a workflow to its parameters, and converts them to the declared types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from inspect import Parameter
from pathlib import PurePath
from typing import Any, TypeGuard
from uuid import UUID

from handrail.errors import InvalidInput
from handrail.model.definition import WorkflowDefinition
from handrail.model.described import warn_at

_SCALARS = (str, bytes, bool, int, float, type(None))
_DATA = (*_SCALARS, date, time, timedelta, Decimal, Enum, PurePath, UUID)


def bind_inputs(
    definition: WorkflowDefinition, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """The inputs by parameter name, defaults included, converted to the annotated types.

    Plain data must fit. An object that is no data, such as a test double, is passed on unchanged
    for a parameter whose type is no scalar.

    Raises:
        TypeError: the arguments do not fit the signature.
        InvalidInput: a value is not of its parameter's type.
    """
    inputs = definition.bind(args, kwargs)
    if definition.unknown_types:
        _warn(definition)
    for parameter in definition.parameters:
        name, annotation = parameter.name, parameter.annotation
        value = inputs[name]
        if value is parameter.default:
            continue
        if parameter.kind is Parameter.VAR_POSITIONAL:
            inputs[name] = tuple(input_of(name, one, annotation) for one in value)
        elif parameter.kind is Parameter.VAR_KEYWORD:
            inputs[name] = {key: input_of(key, one, annotation) for key, one in value.items()}
        else:
            inputs[name] = input_of(name, value, annotation)
    return inputs


def _warn(definition: WorkflowDefinition) -> None:
    function: Any = definition.function
    told = ", ".join(f"{name}: {written!r}" for name, written in definition.unknown_types)
    text = (
        f"workflow {definition.name!r}: the type of {told} cannot be found, so what is given is "
        f"taken unchecked. Import it outside of `if TYPE_CHECKING:`, at the top of the module."
    )
    code = function.__code__
    warn_at(text, code, code.co_firstlineno, function.__globals__)


def input_of(name: str, value: Any, annotation: Any) -> Any:
    """One input, converted; see ``bind_inputs``."""
    if annotation is Parameter.empty:
        return value
    from handrail.typed.convert import convert

    try:
        converted = convert(value, annotation, name=name)
    except InvalidInput:
        from handrail.typed.schema import plain

        if _is_data(value) or plain(annotation) in _SCALARS:
            raise
        return value
    return value if type(value) is int and type(converted) is float else converted  # an int fits


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
