"""Scripted replies: what fakes answer with, in the order they were written."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeGuard

from handrail.errors import WrongUse
from handrail.typed.convert import DoesNotFit, conforms, fit
from handrail.typed.jsonsafe import short_repr

ScriptedError: TypeAlias = "BaseException | type[BaseException]"


def replies_of(replies: object, whose: str) -> tuple[Any, ...]:
    """The replies as a tuple; one text is refused, because it is no list of replies."""
    if _is_list(replies):
        return tuple(replies)
    raise WrongUse(
        f"{whose} takes a list of replies, got {short_repr(replies)}. For one reply write [reply]."
    )


async def played(reply: Any, argument: Any) -> Any:
    """What a reply comes to: itself, or what it returns for ``argument`` if it is callable.

    An exception, instance or class, is raised, also one that the callable returned.
    """
    if callable(reply) and not _is_error(reply):
        reply = await called(reply, argument)
    if not _is_error(reply):
        return reply
    if isinstance(reply, type):
        raise reply
    raise reply.with_traceback(None)  # raised before, it would bring the frames of that time


async def called(function: Callable[..., Any], argument: Any) -> Any:
    """What a sync or async function returns; it may take the argument, or nothing."""
    made = function(argument) if _takes(function, argument) else function()
    return await made if inspect.isawaitable(made) else made


def is_like(output: object, type_: Any) -> bool:
    """True if a workflow that expects this type can use the output as it is."""
    if conforms(output, type_):
        return True
    try:
        return bool(fit(output, type_) == output)  # 3 is a float, and keeps the bounds of its type
    except DoesNotFit:
        return False


def _is_list(replies: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(replies, Sequence) and not isinstance(replies, (str, bytes))


def _is_error(reply: object) -> TypeGuard[ScriptedError]:
    return isinstance(reply, BaseException) or (
        isinstance(reply, type) and issubclass(reply, BaseException)
    )


def _takes(function: Callable[..., Any], argument: Any) -> bool:
    """False only for a function that can be called with nothing and not with one argument."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    return _binds(signature, argument) or not _binds(signature)


def _binds(signature: inspect.Signature, *arguments: Any) -> bool:
    try:
        signature.bind(*arguments)
    except TypeError:
        return False
    return True
