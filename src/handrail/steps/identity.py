"""Texts for fingerprints, of what a step refers to: equal for equal things."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from handrail.model.shapes import is_agent
from handrail.typed.reference import reference

Identity = Callable[[Any], str]
"""A text that is the same for equal values."""


def callable_text(target: Any, identity: Identity) -> str:
    """A callable by its name: a partial with the arguments it binds, a workflow by its function."""
    definition = getattr(target, "definition", None)
    if definition is not None:
        target = definition.function
    named = reference(target)
    if not isinstance(target, functools.partial):
        return named
    args, keywords = _bound(target)
    return f"{named} {identity(args)} {identity(keywords)}"


def _bound(target: Any) -> tuple[list[Any], dict[str, Any]]:
    return list(target.args), target.keywords


def called_text(body: Any, args: tuple[Any, ...], identity: Identity) -> str:
    """A function with the arguments that it is called with."""
    return f"{callable_text(body, identity)} {identity(list(args))}"


def agent_text(agent: Any, identity: Identity) -> str:
    """The agent's name, and its ``identity`` (its prompt and output), if it has one."""
    described: Callable[[], Any] | Any = getattr(agent, "identity", None)
    if callable(described):
        described = described()
    return agent.name if described is None else f"{agent.name} {identity(described)}"


def performer_text(given: Any, identity: Identity) -> str:
    """An agent, or a function in its place."""
    return agent_text(given, identity) if is_agent(given) else callable_text(given, identity)


def context_text(context: Any, identity: Identity) -> str:
    """The context of an agent, or the function that builds it."""
    return callable_text(context, identity) if callable(context) else identity(dict(context))


def type_text(type_: Any) -> str:
    """A type, described for people."""
    from handrail.typed.schema import describe_type

    try:
        return describe_type(type_)
    except Exception:  # noqa: BLE001  # a type that cannot be described has a name at least
        return getattr(type_, "__qualname__", repr(type_))
