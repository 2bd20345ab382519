"""What the console says of agents: their tools and limits, and what follows when one fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from handrail.model import events as ev
from handrail.sinks.console_text import clean, duration, last_line, until

_WORTH_SAYING_S = 1.0
_UNSAID: Mapping[str, str] = {
    "unknown_usd": "what {} cost",
    "unknown_tokens": "how many tokens {} used",
}
_NEXT: Mapping[str, str] = {
    "start": "begins anew",
    "resume": "goes on in its session",
    "retry": "tries again",
    "wait": "tries again",
    "reask": "asks again",
    "compact": "goes on in a smaller session",
    "summarise": "goes on in a new session, with a summary",
    "reframe": "asks anew, in a new session",
    "fallback": "goes on with its next backend or model",
}


def what_failed(event: ev.LadderStep) -> str:
    """The kind of the failure and whose it is: ``usage cap, claude``."""
    kind = clean(event.kind.replace("_", " "), 80)
    return f"{kind}, {clean(event.backend, 80)}" if event.backend else kind


def ladder_text(event: ev.LadderStep) -> str:
    """``looks again at 21:35 (in 3 h): usage cap, claude: resets 9:30pm``, ``asks again: invalid
    output, claude``. A cap is looked at before it ends, too.
    """
    if event.parked:
        return f"needs a person: {clean(event.kind.replace('_', ' '), 80)}: {clean(event.error)}"
    if event.due - event.at >= _WORTH_SAYING_S:
        waits = f"waits {until(event.due, event.at).removeprefix('in ')}"
        if event.kind == "usage_cap":
            waits = f"looks again {_when(event.due, event.at)}"
        return f"{waits}: {what_failed(event)}: {clean(event.error, 120)}"
    return f"{_NEXT.get(event.next.rung, 'tries again')}: {what_failed(event)}"


def whose_budget(event: ev.BudgetWarning | ev.BudgetRaised) -> str:
    """``budget of step 'a0'``; ``budget`` if it is the run's."""
    return f"budget of step '{clean(event.scope)}'" if event.scope else "budget"


def budget_text(event: ev.BudgetWarning) -> str:
    """``used 0.9 of 1 cost_usd``, that launches did not say what they used, or wait for one."""
    unsaid = _UNSAID.get(event.name)
    if unsaid is not None:
        launches = "1 launch" if event.used == 1 else f"{event.used:g} launches"
        it, them = ("it", "it") if event.used == 1 else ("they", "them")
        said = f"{launches} did not say {unsaid.format(it)}"
        return f"{said}, so only what was reserved for {them} counts"
    if event.name == "first_launch":
        return "waits for its first launch, to know what one takes; reserve_* says it beforehand"
    return f"used {event.used:g} of {event.limit:g} {clean(event.name, 80)}"


def live_text(event: ev.Event | ev.Progress) -> str:
    """What an agent is at, in a few words; empty if the event does not say."""
    match event:
        case ev.AgentToolStarted():
            return f"{clean(event.name, 80)} {_given(event.input)}".rstrip()
        case ev.AgentToolCompleted(ok=False):
            return f"{clean(event.name or 'a tool', 80)} failed: {last_line(event.output)}"
        case ev.AgentPermission(decision="denied"):
            return f"denied {clean(event.tool, 80)}: {clean(event.reason)}".rstrip(": ")
        case ev.AgentRetry():
            pause = "" if event.delay_s is None else f" in {duration(event.delay_s)}"
            return f"tries again{pause}: {clean(event.reason)}".rstrip(": ")
        case ev.AgentCompaction(phase="started"):
            return "makes its session smaller"
        case ev.AgentLimit(status="warning" | "reached"):
            return _limit(event)
        case ev.AgentReasoning():
            return last_line(event.text)
        case _:
            return ""


def heard_text(event: ev.AgentRetry | ev.AgentLimit) -> str:
    """What a log says of a backend's own retries and limits; empty while there is room."""
    match event:
        case ev.AgentRetry():
            number = "" if event.attempt is None else f" (retry {event.attempt})"
            pause = "" if event.delay_s is None else f" in {duration(event.delay_s)}"
            return f"its backend tries again{pause}{number}: {clean(event.reason)}".rstrip(": ")
        case ev.AgentLimit():
            return "" if event.status == "allowed" else f"limit of its backend: {_limit(event)}"


def _given(value: Any) -> str:
    """The first text in a tool's input: a command, a path, a query."""
    texts = value.values() if hasattr(value, "values") else (value,)
    text = next((text for text in texts if isinstance(text, str)), "")
    return clean(text, 120)


def _limit(event: ev.AgentLimit) -> str:
    used = "" if event.used is None else f" {event.used:.0%} used"
    window = clean(event.window.replace("_", " ") or "limit", 80)
    opens = "" if event.reset_at is None else f", opens again {_when(event.reset_at, event.at)}"
    return f"{window}{used}{opens}" if used else f"{window} {event.status}{opens}"


def _when(due: float, now: float) -> str:
    return until(due, now).replace("until ", "at ", 1)
