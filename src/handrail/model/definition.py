"""What ``@workflow`` learned of a function, once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import _ParameterKind  # pyright: ignore[reportPrivateUsage]  # has no public name
from typing import Any, get_type_hints

REQUIRED: Any = inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class WorkflowParameter:
    """One parameter of a workflow; ``default`` is ``REQUIRED`` where there is none."""

    name: str
    annotation: Any
    default: Any
    kind: _ParameterKind

    @property
    def required(self) -> bool:
        """True if a caller must give it: it has no default and is not ``*args`` or ``**kwargs``."""
        return self.default is REQUIRED and self.kind not in {
            _ParameterKind.VAR_POSITIONAL,
            _ParameterKind.VAR_KEYWORD,
        }


@dataclass(frozen=True, slots=True)
class WorkflowDefinition:
    """A workflow's name, description, parameters, and its generator function."""

    name: str
    description: str
    parameters: tuple[WorkflowParameter, ...]
    function: Callable[..., Any]
    signature: inspect.Signature

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs by parameter name, defaults included.

        Raises:
            TypeError: they do not fit the signature; the text names the workflow.
        """
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"workflow {self.name!r}{self.signature}: {error}") from None
        bound.apply_defaults()
        return dict(bound.arguments)


def define(function: Callable[..., Any], name: str, description: str) -> WorkflowDefinition:
    """The definition of a generator function; annotations are resolved where they can be."""
    signature = inspect.signature(function)
    hints = _hints(function)
    parameters = tuple(
        WorkflowParameter(
            parameter.name,
            hints.get(parameter.name, parameter.annotation),
            parameter.default,
            parameter.kind,
        )
        for parameter in signature.parameters.values()
    )
    return WorkflowDefinition(name, description, parameters, function, signature)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except Exception:  # noqa: BLE001  # a name under TYPE_CHECKING, or any code in an annotation
        from handrail.model.schema import hints_of

        return hints_of(function)
