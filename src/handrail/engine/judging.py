"""Whether an agent's answer is accepted, as a judge or a function of it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from handrail.errors import WrongUse
from handrail.model.launch import AnswerRejected, Launch, fault_of
from handrail.model.results import AgentResult, Usage, add_usage, own_usage

NO_REASON = "it gave no reason"


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
