"""What handrail knows of a workflow, and how its inputs are bound and converted."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from inspect import (
    Parameter,
    _ParameterKind,  # pyright: ignore[reportPrivateUsage]  # has no public name
)
from pathlib import PurePath
from typing import Any, TypeGuard, get_type_hints
from uuid import UUID

from handrail.errors import InvalidInput, did_you_mean
from handrail.model.dataclass import dataclass
from handrail.model.described import warn_at
from handrail.model.policy import Limits
from handrail.typed.jsonsafe import short_repr

REQUIRED: Any = inspect.Parameter.empty
_NAMED = frozenset({_ParameterKind.POSITIONAL_OR_KEYWORD, _ParameterKind.KEYWORD_ONLY})
_OF_THE_RUN = frozenset({"run_id", "labels", "existing"})
"""Arguments of ``Executor.options`` that users try to pass to ``run``."""


@dataclass(frozen=True, slots=True)
class WorkflowParameter:
    """One parameter of a workflow; ``default`` is ``REQUIRED`` where there is none."""

    name: str
    annotation: Any
    default: Any
    kind: _ParameterKind

    @property
    def description(self) -> str:
        """The text in ``Annotated[..., "text"]``, or an object's ``description`` there; else ""."""
        said = getattr(self.annotation, "__metadata__", ())
        texts = (getattr(one, "description", one) for one in said)
        return next((text for text in texts if isinstance(text, str)), "")

    @property
    def required(self) -> bool:
        """True if a caller must give it: it has no default and is not ``*args`` or ``**kwargs``."""
        return self.default is REQUIRED and self.kind not in {
            _ParameterKind.VAR_POSITIONAL,
            _ParameterKind.VAR_KEYWORD,
        }


@dataclass(frozen=True, slots=True)
class WorkflowDefinition:
    """A workflow's name, description, parameters, its generator function, and its own limits."""

    name: str
    description: str
    parameters: tuple[WorkflowParameter, ...]
    function: Callable[..., Any]
    signature: inspect.Signature
    limits: Limits | None = None
    unknown_types: tuple[tuple[str, Any], ...] = ()
    """Parameters whose annotation cannot be resolved yet, with the annotation."""

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs by parameter name, defaults included.

        Raises:
            TypeError: the arguments do not fit the signature; the text names the workflow.
        """
        try:
            self._refuse_unknown(kwargs)
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"workflow {self.name!r}{self._display_signature()}: {error}") from None
        bound.apply_defaults()
        return dict(bound.arguments)

    def _refuse_unknown(self, kwargs: Mapping[str, Any]) -> None:
        """Refuse a misspelt name first: Python would report the argument that it leaves missing."""
        kinds = {parameter.name: parameter.kind for parameter in self.parameters}
        if _ParameterKind.VAR_KEYWORD in kinds.values():
            return
        named = [name for name, kind in kinds.items() if kind in _NAMED]
        for name in kwargs:
            if name not in named:
                meant = did_you_mean([name], named)
                if name in _OF_THE_RUN:
                    meant = f" That is an option of the run: executor.options({name}=...).run(...)"
                end = f".{meant}" if meant else ""
                raise TypeError(f"got an unexpected keyword argument {name!r}{end}")

    def _display_signature(self) -> inspect.Signature:
        """The signature for people: types without their modules, and no return type."""
        shown = [
            self.signature.parameters[parameter.name].replace(
                annotation=_type_words(parameter.annotation),
                default=_value_words(parameter.default),
            )
            for parameter in self.parameters
        ]
        return inspect.Signature(shown)


class Words:
    """Stands for a value that is shown as these words."""

    def __init__(self, words: str) -> None:
        self._words = words

    def __repr__(self) -> str:
        return self._words


def _type_words(annotation: Any) -> Any:
    from handrail.typed.schema import describe_type

    if annotation is REQUIRED:
        return REQUIRED
    if isinstance(annotation, str):
        return Words(annotation)
    return Words(describe_type(annotation, fields=False))


def _value_words(default: Any) -> Any:
    return REQUIRED if default is REQUIRED else Words(short_repr(default))


def define(
    function: Callable[..., Any], name: str, description: str, limits: Limits | None = None
) -> WorkflowDefinition:
    """The definition of a generator function; annotations are resolved where they can be."""
    signature = inspect.signature(function)
    unknown: dict[str, Any] = {}
    hints = _hints(function, unknown)
    parameters = tuple(
        WorkflowParameter(
            parameter.name,
            hints.get(parameter.name, parameter.annotation),
            parameter.default,
            parameter.kind,
        )
        for parameter in signature.parameters.values()
    )
    unknown.pop("return", None)
    return WorkflowDefinition(
        name, description, parameters, function, signature, limits, tuple(unknown.items())
    )


def _hints(function: Callable[..., Any], unknown: dict[str, Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except Exception:  # noqa: BLE001  # a name under TYPE_CHECKING, or any code in an annotation
        from handrail.typed.schema import hints_of

        return hints_of(function, unknown)


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
