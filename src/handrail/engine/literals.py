"""What an expression in a function's source stands for before the function runs."""

from __future__ import annotations

import ast
from datetime import timedelta
from pathlib import Path, PurePath
from types import FunctionType, ModuleType
from typing import Any

from handrail.model.agent_options import AgentOptions

UNKNOWN: Any = object()
"""Stands for a value that is not known before the run."""
_CALLED = (AgentOptions, timedelta, Path, PurePath)
"""What an expression may call: these only make a value of what they are given."""


def is_literal(node: ast.AST) -> bool:
    """True if an expression has no names but those of what it calls."""
    parts = [node for node in ast.iter_child_nodes(node) if not isinstance(node, ast.expr_context)]
    if isinstance(node, ast.Call):
        parts.remove(node.func)
    return not isinstance(node, ast.Name) and all(map(is_literal, parts))


class _Unknown(Exception):
    """An expression of which the value is not known before the run."""


def valued(node: ast.expr, function: FunctionType) -> Any:
    """The value of an expression in a function, or ``UNKNOWN``."""
    try:
        return _value(node, function)
    except Exception:  # noqa: BLE001  # what the step would raise is the step's to raise
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
        case ast.Name(id=name) if (found := named(function, name)) is not UNKNOWN:
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


def named(function: FunctionType, name: str) -> Any:
    """What a name of a function's surroundings stands for; ``UNKNOWN`` if nothing (yet)."""
    free = function.__code__.co_freevars
    if name not in free:
        return function.__globals__.get(name, UNKNOWN)
    assert function.__closure__ is not None
    try:
        return function.__closure__[free.index(name)].cell_contents
    except ValueError:
        return UNKNOWN
