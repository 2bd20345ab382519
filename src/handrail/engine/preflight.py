"""Finds agent options that no backend can honour, and code that is not portable, before a run.

Otherwise such a step is refused when the run reaches it, which may be days later. The source shows
most of them: the agent is a name of the module, the options are literals, a function is a lambda. A
mistake that is missed here is refused there, so in doubt this module refuses nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path, PurePath
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from handrail.engine.bus import warn
from handrail.engine.parts import AgentCheck, Parts
from handrail.errors import DefinitionError, NotPortable
from handrail.model.agent_options import NO_OPTIONS, AgentOptions, AgentSettings
from handrail.model.definition import WorkflowDefinition
from handrail.model.launch import AgentError
from handrail.typed.reference import CodeNames

if TYPE_CHECKING:
    from handrail.static.agent_links import Link
    from handrail.static.step_code import StepCode


UNKNOWN: Any = object()
"""Stands for a value that cannot be known before the run."""
_CALLED = (AgentOptions, timedelta, Path, PurePath)
"""The classes that an evaluated expression may call: they only make a value of their arguments."""


def is_literal(node: ast.AST) -> bool:
    """True if an expression has no names except those of the functions that it calls."""
    parts = [node for node in ast.iter_child_nodes(node) if not isinstance(node, ast.expr_context)]
    if isinstance(node, ast.Call):
        parts.remove(node.func)
    return not isinstance(node, ast.Name) and all(map(is_literal, parts))


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
            return tuple(_value(one, function) for one in elements)
        case ast.List(elts=elements):
            return [_value(one, function) for one in elements]
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return {_value(key, function): _value(value, function) for key, value in pairs}
        case ast.Name(id=name) if (found := look_up_name(function, name)) is not UNKNOWN:
            return found
        case ast.Attribute(value=base, attr=name):
            module = _value(base, function)
            if isinstance(module, ModuleType):  # of others an attribute may be computed
                return vars(module)[name]
        case ast.Call(func=func, args=args, keywords=keywords) if all(one.arg for one in keywords):
            made = _value(func, function)
            if any(made is one for one in _CALLED):
                given = {str(one.arg): _value(one.value, function) for one in keywords}
                return made(*(_value(one, function) for one in args), **given)
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


_NAMES = frozenset({"agent", "generate"})
_has_agents: WeakKeyDictionary[FunctionType, bool] = WeakKeyDictionary()
_links: dict[tuple[CodeType, str], tuple[Link, ...]] = {}
_KEPT = 256


def preflight(
    definition: WorkflowDefinition,
    parts: Parts,
    run_id: str,
    ended: Callable[[], Sequence[str]] = list,
) -> None:
    """Raise now if the workflow has an agent step that would be refused when the run reaches it.

    Of one whose agent could not run here, as things are, a warning is logged: what it needs may be
    there by then.

    ``ended`` gives the paths of steps that have ended: they need not run, so none is refused.

    Raises:
        DefinitionError: a backend cannot honour a step's options; the text names backends that
            can, and the place of the step.
    """
    if parts.check_agent is None or not _may_launch(definition.function):
        return
    for function, link, certain in _reached(definition.function, set(), certain=True):
        try:
            _refuse(function, link, parts, parts.check_agent, certain=certain)
        except DefinitionError as error:
            if any(link.step.matches(path.rpartition("/")[2]) for path in ended()):
                continue
            raise DefinitionError(f"{_place(function, link)}: {error}") from None
        except AgentError as error:
            warn("an agent cannot run", run_id=run_id, why=f"{_place(function, link)}: {error}")


def _place(function: FunctionType, link: Link) -> str:
    return f"{function.__code__.co_filename}:{link.line}: step {link.step.text!r}"


def _refuse(
    function: FunctionType, link: Link, parts: Parts, check: AgentCheck, *, certain: bool
) -> None:
    """Raise if the step would be refused."""
    found = _resolve_link(function, link)
    if found is None:
        return
    agent, settings = found
    chosen = parts.agents.get(agent.name, agent)
    if certain:
        check(chosen, settings, parts.agent_defaults)
    elif _names_all_options(link):
        check(chosen, settings, None)


def _reached(
    function: Any, seen: set[CodeType], *, certain: bool
) -> Iterator[tuple[FunctionType, Link, bool]]:
    """The agent links of a function, and of its sub-workflows, and whether each is sure to run."""
    if not _may_launch(function) or function.__code__ in seen:
        return
    seen.add(function.__code__)
    for link in _links_of(function):
        inside = certain and link.certain
        if link.child:
            yield from _reached(
                function_of(evaluate_expression(link.expression, function)), seen, certain=inside
            )
        else:
            yield function, link, inside


# -- whether there is anything to find -------------------------------------------------------------


def _may_launch(function: Any) -> bool:
    """True if a function, or one that it names, mentions agents; reads code objects, no source."""
    if not isinstance(function, FunctionType) or hasattr(function, "__wrapped__"):
        return False
    known = _has_agents.get(function)
    if known is None:
        known = _has_agents[function] = any(
            not _NAMES.isdisjoint(names) for names in _names_of(function)
        )
    return known


def _names_of(function: FunctionType) -> Iterator[set[str]]:
    """The names in the code of a function, then of the helpers and workflows that it names."""
    seen: set[CodeType] = set()
    waiting = [function]
    while waiting:
        one = waiting.pop()
        if one.__code__ in seen:
            continue
        seen.add(one.__code__)
        names = set(_names_in(one.__code__))
        yield names
        for name in names:
            value = look_up_name(one, name)
            helper = type(value) is FunctionType and value.__globals__ is one.__globals__
            follow = value if helper else function_of(value)
            if follow is not None:
                waiting.append(follow)


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    yield from code.co_freevars
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _names_in(one)


def function_of(workflow: object) -> FunctionType | None:
    """The function of a workflow; None for anything else. It reads attributes of workflows only."""
    if not hasattr(type(workflow), "definition"):
        return None
    definition: object = getattr(workflow, "definition", None)
    function = definition.function if isinstance(definition, WorkflowDefinition) else None
    return function if isinstance(function, FunctionType) else None


# -- what the source says --------------------------------------------------------------------------


def _links_of(function: FunctionType) -> tuple[Link, ...]:
    """The links of a function; none if its source is not available. Read once for each code."""
    code = function.__code__
    key = (code, code.co_filename)
    if key not in _links:
        if len(_links) >= _KEPT:
            _links.clear()
        _links[key] = _read(function)
    return _links[key]


def _read(function: FunctionType) -> tuple[Link, ...]:
    from handrail.static.agent_links import agent_links
    from handrail.static.source import source_of

    try:
        return agent_links(source_of(function), function.__code__.co_freevars)
    except Exception:  # noqa: BLE001  # no run fails because its source cannot be had, or is odd
        return ()


def _resolve_link(function: FunctionType, link: Link) -> tuple[Any, AgentSettings] | None:
    """The agent of a step and its settings there; None if they are not known, or not valid."""
    agent = evaluate_expression(link.expression, function)
    said = {name: evaluate_expression(node, function) for name, node in link.settings.items()}
    match agent, said.get("backend"), said.get("model"), said.get("options", NO_OPTIONS):
        case object(name=str()), backend, str() | None as model, AgentOptions() as options:
            pass
        case _:
            return None
    if not (backend is None or isinstance(backend, str) or hasattr(backend, "complete")):
        return None
    if model is not None:
        options = AgentOptions(model=model).over(options)
    return agent, AgentSettings(backend, options)


def _names_all_options(link: Link) -> bool:
    """True if the step names its backend, and its other settings, in literals.

    Then a mistake in them fails in every run, whatever the conditions around the step are.
    """
    said = link.settings
    backend = said.get("backend")
    return isinstance(backend, ast.Constant) and all(map(is_literal, said.values()))


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
