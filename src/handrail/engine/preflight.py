"""Finds agents that could not run here, and code that is not portable, before a run begins.

Otherwise a run shows it when it reaches the step, which may be days later. What is missed here is
refused there, so in doubt this module says nothing. ``handrail check`` reads the source for more.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path, PurePath
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from handrail.engine.bus import warn
from handrail.engine.parts import Parts
from handrail.errors import DefinitionError, NotPortable
from handrail.model.agent_options import NO_SETTINGS, AgentOptions
from handrail.model.definition import WorkflowDefinition
from handrail.model.launch import AgentError
from handrail.typed.reference import CodeNames

if TYPE_CHECKING:
    from handrail.static.step_code import StepCode


UNKNOWN: Any = object()
"""Stands for a value that cannot be known before the run."""
_CALLED = (AgentOptions, timedelta, Path, PurePath)
"""The classes that an evaluated expression may call: they only make a value of their arguments."""


class _Unknown(Exception):
    """The value of an expression cannot be known before the run."""


def evaluate_expression(node: ast.expr, function: FunctionType) -> Any:
    """The value of an expression in a function, or ``UNKNOWN``."""
    try:
        return _value(node, function)
    except Exception:  # noqa: BLE001  # the step itself will raise it
        return UNKNOWN


def _value(node: ast.expr | None, function: FunctionType) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.Tuple(elts=elements):
            return tuple(_value(element, function) for element in elements)
        case ast.List(elts=elements):
            return [_value(element, function) for element in elements]
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return {_value(key, function): _value(value, function) for key, value in pairs}
        case ast.Name(id=name) if (found := look_up_name(function, name)) is not UNKNOWN:
            return found
        case ast.Attribute(value=base, attr=name):
            module = _value(base, function)
            if isinstance(module, ModuleType):  # of others an attribute may be computed
                return vars(module)[name]
        case ast.Call(func=func, args=args, keywords=keywords) if all(kw.arg for kw in keywords):
            made = _value(func, function)
            if any(made is cls for cls in _CALLED):
                given = {str(kw.arg): _value(kw.value, function) for kw in keywords}
                return made(*(_value(argument, function) for argument in args), **given)
        case _:
            pass
    raise _Unknown


def look_up_name(function: FunctionType, name: str) -> Any:
    """The value of a name in a function's closure or module; ``UNKNOWN`` if it has none (yet)."""
    free = function.__code__.co_freevars
    if name not in free:
        return function.__globals__.get(name, UNKNOWN)
    assert function.__closure__ is not None
    try:
        return function.__closure__[free.index(name)].cell_contents
    except ValueError:
        return UNKNOWN


def warn_of_agents(definition: WorkflowDefinition, parts: Parts, run_id: str) -> None:
    """Log a warning for each agent that a workflow names and that could not run, as things are.

    Its backend is missing, or its program, or it has an option that its backend cannot honour. What
    it needs may be there by the time that its step is reached.
    """
    if parts.check_agent is None:
        return
    for function, agent in _agents_named_in(definition.function):
        chosen = parts.agents.get(agent.name, agent)
        try:
            parts.check_agent(chosen, NO_SETTINGS, parts.agent_defaults)
        except (AgentError, DefinitionError) as error:
            place = f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}"
            warn("an agent cannot run", run_id=run_id, why=f"{place}: {error}")


_LAUNCHES = frozenset({"agent", "generate", "validate"})
_OTHERWISE = frozenset({"backend", "fallback"})
"""Settings of a step by which an agent without a backend may have one."""
_agents: WeakKeyDictionary[FunctionType, dict[str, FunctionType]] = WeakKeyDictionary()


def _agents_named_in(function: Any) -> Iterator[tuple[FunctionType, Any]]:
    """The agents that a function, its helpers and its child workflows name, each once.

    None of those whose steps may name another backend.
    """
    if not isinstance(function, FunctionType) or hasattr(function, "__wrapped__"):
        return
    if function not in _agents:
        _agents[function] = {
            name: reached
            for reached, names in _reached(function)
            if _LAUNCHES & names and not _OTHERWISE & names
            for name in names
            if hasattr(type(look_up_name(reached, name)), "prompt_for")
        }
    for name, reached in _agents[function].items():
        yield reached, look_up_name(reached, name)


def _reached(function: FunctionType) -> Iterator[tuple[FunctionType, set[str]]]:
    """A function, and the helpers and workflows that it names, each with the names in its code."""
    seen: set[CodeType] = set()
    waiting = [function]
    while waiting:
        reached = waiting.pop()
        if reached.__code__ in seen:
            continue
        seen.add(reached.__code__)
        names = set(_names_in(reached.__code__))
        yield reached, names
        for name in names:
            value = look_up_name(reached, name)
            helper = type(value) is FunctionType and value.__globals__ is reached.__globals__
            follow = value if helper else function_of(value)
            if follow is not None:
                waiting.append(follow)


def _names_in(code: CodeType) -> Iterator[str]:
    """The names in code, those of keywords included."""
    yield from code.co_names
    yield from code.co_freevars
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from _names_in(value)
        elif isinstance(value, tuple):
            words = cast("tuple[object, ...]", value)
            yield from (word for word in words if isinstance(word, str))


def function_of(workflow: object) -> FunctionType | None:
    """The function of a workflow; None for anything else. It reads attributes of workflows only."""
    if not hasattr(type(workflow), "definition"):
        return None
    definition: object = getattr(workflow, "definition", None)
    function = definition.function if isinstance(definition, WorkflowDefinition) else None
    return function if isinstance(function, FunctionType) else None


def refuse_unportable(definition: WorkflowDefinition) -> None:
    """Raise for the first step, also of sub-workflows, with code that no module has by name.

    Raises:
        NotPortable: with the step, the part, and the place.
    """
    for function, given, why in _unportable(definition.function, set()):
        place = f"{function.__code__.co_filename}:{given.line}"
        raise NotPortable(given.step.text, given.part, why, place)


def _unportable(function: Any, seen: set[CodeType]) -> Iterator[tuple[FunctionType, StepCode, str]]:
    if not isinstance(function, FunctionType) or function.__code__ in seen:
        return
    seen.add(function.__code__)
    names = CodeNames(function.__module__)
    for given in _given_in(function):
        if given.child:
            child = function_of(evaluate_expression(given.expression, function))
            yield from _unportable(child, seen)
            continue
        why = _why_not(given, function, names)
        if why:
            yield function, given, why


def _given_in(function: FunctionType) -> tuple[StepCode, ...]:
    from handrail.static.source import source_of
    from handrail.static.step_code import step_code

    try:
        return step_code(source_of(function))
    except Exception:  # noqa: BLE001  # no run fails because its source cannot be had, or is odd
        return ()


def _why_not(given: StepCode, function: FunctionType, names: CodeNames) -> str:
    """Why other processes cannot find the code; empty if they can, or if that is not known."""
    if isinstance(given.expression, ast.Lambda):
        return "a lambda has no name by which another process finds it"
    if given.local:
        return "it is a function of the workflow's own body, which no other process finds by name"
    value = evaluate_expression(given.expression, function)
    if value is UNKNOWN or not isinstance(value, FunctionType) or names.name_of(value) is not None:
        return ""
    return f"no module holds {value.__qualname__} under its name"
