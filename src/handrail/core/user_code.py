"""Calls functions of the user's for the core: the one boundary through which it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from handrail.core import commands as cmd
from handrail.core.run_state import RunState
from handrail.model import outcome


def call_user(run: RunState, function: Callable[..., Any], *args: Any) -> tuple[int, Any]:
    """``outcome.call``; after an interruption the drive ends, and the caller goes no further."""
    what, given = called = outcome.call(function, *args)
    if what == outcome.INTERRUPTED:
        interrupt(run, given)
    return called


def interrupt(run: RunState, error: BaseException) -> None:
    """End the drive by an interruption, which the engine then raises."""
    run.escaped = error
    run.emit(cmd.EndDrive(outcome.interruption(error)))
