"""Turns the outcome of a validation's stage, a command or a callable, into a result."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from handrail.model.results import CommandResult, StageResult
from handrail.shortening import shortened

_EXIT_OUTPUT = 2_000


def stage_result(name: str, value: Any) -> StageResult:
    """The result of a callable stage by its return value: only False, or a failed result, fails."""
    match value:
        case StageResult():
            return value
        case CommandResult():
            printed = (value.stdout + value.stderr).strip()
            passed = value.exit_code == 0
            error = None if passed else exit_text(value.exit_code, printed)
            return StageResult(name, passed, printed, error)
        case bool() | None:
            passed = value is not False
            return StageResult(name, passed, "", None if passed else "the check returned False")
        case _:
            return StageResult(name, passed=True, output=str(value))


def takes_one(check: Callable[..., Any]) -> bool:
    """True if a callable needs exactly one positional argument."""
    try:
        parameters = inspect.signature(check).parameters.values()
    except (TypeError, ValueError):
        return False
    needed = [
        parameter
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind in {parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD}
    ]
    return len(needed) == 1


def exit_text(exit_code: int, printed: str) -> str:
    """Why a command with this exit code did not pass, with the end of its output."""
    said = shortened(printed, _EXIT_OUTPUT, keep="tail")
    return f"exit code {exit_code}: {said}" if said else f"exit code {exit_code}"
