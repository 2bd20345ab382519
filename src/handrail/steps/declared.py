"""The types that the functions of a step declare for what they return."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, get_args, get_origin

from handrail.steps.verbs import Step
from handrail.typed.schema import hints_of

if TYPE_CHECKING:
    from handrail.model.definition import WorkflowDefinition


def returned_type(function: Any) -> Any:
    """The return type of a function, or of the one that a partial binds; ``Any`` without one."""
    while isinstance(function, functools.partial):
        function = function.func
    return hints_of(function).get("return", Any)


def body_output(body: Any) -> Any:
    """The output type of a body, from its annotation: ``Step[T]`` or ``Steps[T]``."""
    definition = getattr(body, "definition", None)
    returned = returned_type(body if definition is None else definition.function)
    arguments = get_args(returned)
    if get_origin(returned) is Step and arguments:
        return arguments[0]
    return arguments[-1] if arguments else Any


def returned_by(definition: WorkflowDefinition) -> Any:
    """The return type of a workflow, from its annotation ``Steps[T]``."""
    arguments = get_args(hints_of(definition.function).get("return", Any))
    return arguments[-1] if arguments else Any


def of_type(generic: Any, argument: Any) -> Any:
    """The generic class of an argument; the class alone without one."""
    return generic if argument is None else generic[argument]
