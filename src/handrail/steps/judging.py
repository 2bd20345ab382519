"""Whether an agent's answer, or a stage of a validation, is accepted: what its check said."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from handrail.errors import WrongUse
from handrail.model.launch import AnswerRejected, Launch, fault_of
from handrail.model.results import (
    AgentResult,
    CommandResult,
    StageResult,
    Usage,
    add_usage,
    own_usage,
)
from handrail.shortening import shortened

NO_REASON = "it gave no reason"
_EXIT_OUTPUT = 2_000


def refusal(said: object) -> str | None:
    """Why a verdict refuses; None if it accepts.

    None and True accept, False refuses, as does a text, which is the reason. Otherwise its
    ``passed`` decides, and its ``reason`` says why.

    Raises:
        WrongUse: it is none of these.
    """
    if said is None or isinstance(said, bool):
        return NO_REASON if said is False else None
    if isinstance(said, str):
        return said.strip() or None
    given: Mapping[str, Any] = (
        cast("Mapping[str, Any]", said)
        if isinstance(said, Mapping)
        else {name: getattr(said, name, None) for name in ("passed", "reason")}
    )
    passed = given.get("passed")
    if not isinstance(passed, bool):
        raise WrongUse(f"a verdict is True, False, a reason, or has a bool `passed`, got {said!r}")
    return None if passed else str(given.get("reason") or NO_REASON)


def own(result: AgentResult[Any], launch: Launch) -> Usage | None:
    """What a launch itself used, without those before it."""
    if result.usage is None or launch.spent is None:
        return result.usage
    return own_usage(result.usage, launch.spent)


def judged(
    agent: str, result: AgentResult[Any], launch: Launch, said: object, used: Usage | None
) -> AgentResult[Any]:
    """The result of a launch, with what its judge used, if the verdict accepts it.

    Raises:
        AnswerRejected: it does not; the agent is asked once more, with the reason.
    """
    reason = refusal(said)
    if reason is None:
        return result if used is None else replace(result, usage=add_usage(result.usage, used))
    error = AnswerRejected(
        agent,
        f"its check refused the answer: {reason}",
        kind="invalid_output",
        session=result.session,
        text=str(result.output),
        usage=add_usage(own(result, launch), used),
        model=result.model,
    )
    fault = fault_of(error, launch)
    assert fault is not None  # it has a kind
    error.fault = replace(
        fault,
        reason=reason,
        session_usage=result.session_usage,
        backend=result.backend or "",
        max_reasks=1,
        can_resume=result.session is not None,
        judged=True,
    )
    raise error


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
