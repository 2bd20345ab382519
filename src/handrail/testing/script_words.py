"""What a scripted run waits for, in words: what each entry is, and what to write to go on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, assert_never

from handrail.model.results import WorkflowResult
from handrail.steps.verbs import AgentCall, Generation, ShellCommand

if TYPE_CHECKING:
    from handrail.testing.script_pending import Pending

_SHOWN = 20


def described(entry: Pending, now: float) -> str:
    """What is waited for: ``agent 'planner', attempt 2``, ``sleep, 60 s left``."""
    match entry.waits:
        case "attempt":
            tried = f", attempt {entry.attempt}" if entry.attempt > 1 else ""
            return f"{entry.kind}{_of_whom(entry)}{tried}"
        case "rollback":
            return "rollback"
        case "gate":
            return f"question {entry.gate.question!r}" if entry.gate is not None else "question"
        case "signal":
            return f"signal {entry.signal!r}"
        case "pause":
            what = "sleep" if entry.kind == "sleep" else f"{entry.kind}, before another attempt"
            return f"{what}, {_seconds_left(entry, now):g} s left"
        case _:
            assert_never(entry.waits)


def way_on(entry: Pending, now: float) -> str:
    """What a test writes to go on from here: ``script.expect('plan').returns(...)``."""
    match entry.waits:
        case "attempt":
            end = "passes()" if entry.kind == "stage" else "returns(...)"
            return f"script.expect({entry.path!r}).{end}"
        case "rollback":
            return f"script.expect_rollback({entry.path!r}).returns()"
        case "gate":
            return f"script.answer({entry.path!r}, ...)"
        case "signal":
            return f"script.signal({entry.signal!r}, ...)"
        case "pause":
            return f"script.advance({_seconds_left(entry, now):g})"
        case _:
            assert_never(entry.waits)


def _seconds_left(entry: Pending, now: float) -> float:
    return max(0.0, (entry.due or 0.0) - now)


def _of_whom(entry: Pending) -> str:
    match entry.verb:
        case AgentCall(agent=agent) | Generation(generator=agent):
            name = getattr(agent, "name", None) or getattr(agent, "__name__", agent)
            return f" {name!r}"
        case ShellCommand(argv=argv):
            return f" {argv!r}" if isinstance(argv, str) else f" {list(argv)!r}"
        case _:
            return ""


def told(result: WorkflowResult[Any] | None, pending: Mapping[str, Pending]) -> str:
    """Where the run stands: how it ended, or what it waits for and what to write to go on."""
    if result is not None:
        why = f": {result.error}" if result.error else ""
        return f"The run {_ended(result.status)}{why}"
    if not pending:
        return "It waits for nothing that a script could give."
    width = min(40, max(len(path) for path in pending))
    lines = [
        f"  {path:<{width}}  {entry.description}  ->  {entry.hint}"
        for path, entry in list(pending.items())[:_SHOWN]
    ]
    if len(pending) > _SHOWN:
        lines.append(f"  ... and {len(pending) - _SHOWN} more")
    return "Pending:\n" + "\n".join(lines)


def _ended(status: str) -> str:
    return f"was {status}" if status in {"suspended", "cancelled"} else f"has {status}"
