"""Calls the user's code: the one place that resumes a generator, and that judges what it raised."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final, cast

YIELDED: Final = 0
RETURNED: Final = 1
RAISED: Final = 2
INTERRUPTED: Final = 3

INTERRUPTIONS = (KeyboardInterrupt, SystemExit)
"""What ends a drive wherever the user's code raises it: somebody wants the process to end, and the
code that happened to run is not at fault. Anything else that is raised is the failure of that code.
"""


def resume(
    generator: Generator[Any, Any, Any], value: Any = None, error: BaseException | None = None
) -> tuple[int, Any]:
    """Resume the generator: ``YIELDED``, ``RETURNED`` or ``RAISED``, with the value or exception.

    It raises nothing: even a ``KeyboardInterrupt`` of the body is an outcome, about which the
    caller decides. The result is a pair and no object, because this runs once for each step.
    """
    try:
        return YIELDED, generator.send(value) if error is None else generator.throw(error)
    except StopIteration as stop:
        return RETURNED, stop.value
    except BaseException as raised:  # noqa: BLE001  # every end of a body is an outcome
        return RAISED, raised


def call(function: Callable[..., Any], *args: Any) -> tuple[int, Any]:
    """Call a function of the user's: ``RETURNED``, ``RAISED`` or ``INTERRUPTED``, with the value or
    exception. Like ``resume`` it raises nothing.
    """
    try:
        return RETURNED, function(*args)
    except INTERRUPTIONS as error:
        return INTERRUPTED, error
    except BaseException as raised:  # noqa: BLE001  # the caller decides
        return RAISED, raised


def interruption(error: BaseException) -> str:
    """Why a drive is interrupted, in words."""
    match error:
        case KeyboardInterrupt():
            return "keyboard interrupt"
        case SystemExit():
            return f"exit {error.code}"
        case _:
            return "the task that ran it was cancelled"


def members_of(error: BaseException) -> list[BaseException]:
    """The exceptions of a group, those of groups in it included; else the exception alone."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    group = cast("BaseExceptionGroup[BaseException]", error)
    return [leaf for one in group.exceptions for leaf in members_of(one)]
