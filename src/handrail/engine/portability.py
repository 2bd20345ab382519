"""Steps that cannot be performed on another machine, found before the run starts.

Only what the source shows for certain is found here: a lambda, or a function that no module holds.
The rest is refused when its step is reached, which may be days into a run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from handrail.engine.preflight import UNKNOWN, function_of, valued
from handrail.errors import NotPortable
from handrail.model.definition import WorkflowDefinition
from handrail.typed.code_names import CodeNames

if TYPE_CHECKING:
    from handrail.static.code_given import Given


def refuse_unportable(definition: WorkflowDefinition) -> None:
    """Do nothing, or raise for the first step of a workflow, or of its sub-workflows, that is given
    code which no module holds.

    Raises:
        NotPortable: with the step, the part, and the place.
    """
    for function, given, why in _unportable(definition.function, set()):
        place = f"{function.__code__.co_filename}:{given.line}"
        raise NotPortable(given.step.text, given.part, why, place)


def _unportable(function: Any, seen: set[CodeType]) -> Iterator[tuple[FunctionType, Given, str]]:
    if not isinstance(function, FunctionType) or function.__code__ in seen:
        return
    seen.add(function.__code__)
    names = CodeNames(function.__module__)
    for given in _given_in(function):
        if given.child:
            yield from _unportable(function_of(valued(given.given, function)), seen)
            continue
        why = _why_not(given, function, names)
        if why:
            yield function, given, why


def _given_in(function: FunctionType) -> tuple[Given, ...]:
    from handrail.static.code_given import code_given
    from handrail.static.source import source_of

    try:
        return code_given(source_of(function))
    except Exception:  # noqa: BLE001  # no run fails because its source cannot be had, or is odd
        return ()


def _why_not(given: Given, function: FunctionType, names: CodeNames) -> str:
    """Why other processes do not find the code; empty if they do, or if it is not known here."""
    if isinstance(given.given, ast.Lambda):
        return "a lambda has no name by which another process finds it"
    if given.local:
        return "it is a function of the workflow's own body, which no other process finds by name"
    value = valued(given.given, function)
    if value is UNKNOWN or not isinstance(value, FunctionType) or names.name_of(value) is not None:
        return ""
    return f"no module holds {value.__qualname__} under its name"
