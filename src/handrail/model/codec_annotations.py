"""Types as values: how ``int``, ``list[Report]`` and ``str | None`` are written and read."""

from __future__ import annotations

import functools
import types
import typing
from typing import Any, cast

import msgspec

from handrail.model.codec_builtins import Node
from handrail.model.codec_pydantic import is_model
from handrail.model.codec_types import SHORT_NAMES, tag_of
from handrail.model.codec_write import TAG, Refused, Writing
from handrail.model.schema import is_alias

_UNION_TYPE = "types:UnionType"
_LIMITS = (
    "gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length", "tz", "title",
    "description", "examples", "extra_json_schema", "extra",
)  # fmt: skip


def is_annotation(kind: type) -> bool:
    """True if the values of a class are types themselves."""
    if issubclass(kind, (type, types.GenericAlias)) or kind is types.UnionType:
        return True
    return kind.__module__ == "typing"  # the classes of special forms, aliases and NewTypes


def write_annotation(writing: Writing, value: Any, depth: int) -> Node:
    """A class by its name, a generic one with its arguments."""
    arguments = typing.get_args(value)
    if isinstance(value, types.UnionType):
        return _with_arguments(_UNION_TYPE, writing, value, arguments, depth)
    if typing.get_origin(value) is typing.Union:
        return _with_arguments("typing:Union", writing, value, arguments, depth)
    if is_model(value) and value.__pydantic_generic_metadata__["origin"] is not None:
        generic = value.__pydantic_generic_metadata__
        named = _named(writing, generic["origin"])
        return _with_arguments(named, writing, value, generic["args"], depth)
    if hasattr(value, "__metadata__"):
        return _with_arguments("typing:Annotated", writing, value, arguments, depth)
    if arguments or isinstance(value, types.GenericAlias):
        name = getattr(value, "_name", None)
        special = isinstance(name, str) and value.__module__ == "typing" and name in vars(typing)
        origin = f"typing:{name}" if special else _named(writing, typing.get_origin(value))
        return _with_arguments(origin, writing, value, arguments, depth)
    return {TAG: "type", "v": _named(writing, value)}


def _with_arguments(
    name: str, writing: Writing, value: Any, arguments: tuple[Any, ...], depth: int
) -> Node:
    written = [_argument(writing, value, one, depth) for one in arguments]
    return {TAG: "type", "v": name, "args": written}


def _argument(writing: Writing, value: Any, one: Any, depth: int) -> Any:
    if one is ...:
        return {TAG: "type", "v": "..."}
    try:
        return writing.write(one, depth + 1)
    except Refused as refused:
        raise refused.inside(value, ".__args__") from refused.__cause__


def _named(writing: Writing, value: Any) -> str:
    writing.proven = False  # whether its name leads back to it must be tried
    short = SHORT_NAMES.get(value) if isinstance(value, type) else None
    if short is not None:
        return short
    if isinstance(value, type) and value.__module__ == "builtins":
        return value.__qualname__
    if is_alias(value):
        return f"{value.__module__}:{value.__name__}"
    name = getattr(value, "_name", None)
    if isinstance(name, str) and getattr(value, "__module__", None) == "typing":
        return f"typing:{name}"
    if not hasattr(value, "__qualname__"):
        raise Refused(f"the type {value!r} has no name to be found by")
    tag = tag_of(value)
    if isinstance(value, type):
        writing.met(tag, value)
    return tag


def read_annotation(origin: Any, name: str, node: Node) -> Any:
    """The type whose name stands for ``origin``, with the arguments of the object."""
    if "args" not in node:
        return origin
    arguments = tuple(cast("list[Any]", node["args"]))
    if name == _UNION_TYPE:
        return functools.reduce(lambda one, other: one | other, arguments)
    if origin is type:
        return type[arguments[0]]
    return origin[arguments[0] if len(arguments) == 1 else arguments]


def write_limits(writing: Writing, value: msgspec.Meta, depth: int) -> Node:
    """A ``msgspec.Meta`` by what it sets."""
    node: Node = {TAG: "meta"}
    for name in _LIMITS:
        limit = getattr(value, name)
        if limit is not None:
            node[name] = writing.write(limit, depth + 1)
    return node


def read_limits(node: Node) -> Any:
    """The ``msgspec.Meta`` that an object stands for."""
    return msgspec.Meta(**node)
