"""Texts for people: errors traced to their origins, notes, events, usage, and what agents do.

A composite's error contains the error of the member that failed it, and so on inwards. To print
them all would print one error many times. ``FailureCause`` has the original error.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from handrail.model import events as ev
from handrail.model.paths import decode_key
from handrail.model.results import A_PERSON, Failure, OpenGate, Usage
from handrail.record.live_view import LiveStep
from handrail.record.view import FailureCause, Spent
from handrail.shortening import clean, last_line
from handrail.sinks.console_text import counted, duration, error_text, path_text, until

STEERED = {
    "pause": "paused",
    "unpause": "unpaused",
    "stop": "stopped",
    "complete": "completed",
    "skip": "skipped",
    "retry": "retried",
    "guide": "guided",
}
"""The word for each steering action that somebody took on a run."""
INDENT = "    "
WIDTH = 500
"""Characters of one line of an error."""

_HEAD = 5
_FOLLOWS = 200


def origin_from(cause: FailureCause, above: str = "") -> str:
    """``at checks/0/check; 2 more failed``: where a failure began, seen from the path ``above``."""
    path = cause.origin.path
    where = f"at {path_text(path.removeprefix(f'{above}/') if above else path)}"
    rest = "" if cause.inner is None else cause.error.partition(cause.inner.error)[2]
    return where + clean(rest, _FOLLOWS) if rest.startswith("; ") else where


def cause_in_short(cause: FailureCause) -> str:
    """The first line of the error that a failure began with, after its path."""
    origin = cause.origin
    return (
        f"{path_text(origin.path)}: {first_line(origin.error, origin.error_type)}{at_line(origin)}"
    )


def error_of(cause: FailureCause) -> str:
    """A failure on one line; of a long error only its first line."""
    said = error_text(cause.error, cause.error_type)
    if len(said) > _SHORT:
        said = first_line(cause.error, cause.error_type)
    return said + at_line(cause)


def at_line(cause: FailureCause) -> str:
    """`` (flows.py:14)``: the last line of the author's code that a failure passed, or nothing."""
    place = cause.place if cause.inner is None else ""
    near = place.removeprefix(f"{Path.cwd()}{os.sep}")
    return f" ({clean(near)})" if place else ""


def handled_text(status: str, handled: Sequence[Failure], exit_code: int = 0) -> str:
    """``by its fallback, after Gone: no``: the failures that a step handled, or its exit code."""
    if exit_code and status == "succeeded":
        return f"exit code {exit_code}"
    if status == "succeeded" and handled:
        return f"by its fallback, after {error_text(handled[0].error, handled[0].error_type)}"
    before = handled if status == "failed" else handled[:-1]
    return "; ".join(f"before that {error_text(one.error, one.error_type)}" for one in before)


def name_of(step: LiveStep) -> str:
    """The name of a step in its row."""
    match step.kind:
        case "round":
            return f"round {step.name}"
        case "rollback":
            return f"undo {clean(decode_key(step.name))}"
        case _:
            return clean(decode_key(step.name), 80)


def question_of(gate: OpenGate) -> str:
    """A gate's question with its choices: ``Merge? [yes, no]``."""
    question = clean(gate.question)
    if not gate.choices:
        return question
    return f"{question} [{clean(', '.join(str(choice) for choice in gate.choices))}]"


def answer_text(answer: ev.GateAnswered) -> str:
    """``answered yes by ana``."""
    by = f" by {clean(answer.by, 80)}" if answer.by else ""
    return f"answered {clean(answer.answer, 80)}{by}"


def _run_text(event: ev.CancelRequested | ev.RunSteered | ev.LimitReached) -> str:
    match event:
        case ev.CancelRequested():
            return f"cancelling: {clean(event.reason)}"
        case ev.RunSteered():
            return steered_text(event)
        case ev.LimitReached():
            return f"limit reached: {clean(event.name)}={clean(event.value)}"


def note_text(event: ev.Event | None) -> str:
    """The text of a note: the event that a step waits on, or that describes a run's state."""
    match event:
        case ev.GateOpened():
            deadline = " (until its deadline)" if event.gate.deadline is not None else ""
            return f"{question_of(event.gate)}{deadline}"
        case ev.StepStarted():
            return "waits for its signal"
        case ev.TimerSet(reason="retry"):
            return "retries"
        case ev.TimerSet(reason="cap"):
            return "waits for a limit"
        case ev.LadderStep():
            return what_failed(event)
        case ev.ClaimWaiting():
            return claim_text(event)
        case ev.SubworkflowStarted():
            return clean(event.workflow_name, 80)
        case ev.RunResumed():
            return "resumed"
        case ev.CancelRequested() | ev.RunSteered() | ev.LimitReached():
            return _run_text(event)
        case ev.BudgetWarning():
            return f"{whose_budget(event)}: {budget_text(event)}"
        case _:
            return ""


def event_text(event: ev.Event) -> str:
    """The text of an event that all logs share; empty for events that each log words itself."""
    match event:
        case ev.RunResumed(superseded=again):
            return "resumed" + (f", {counted(len(again), 'step')} to run again" if again else "")
        case ev.LimitReached():
            return f"reached the limit {clean(event.name)}={clean(event.value)}"
        case ev.StepInterrupted():
            return f"interrupted: {clean(event.reason)}".rstrip(": ")
        case ev.WorkEdited(add=add, drop=drop, priority=moved):
            counts = ((add, "added"), (drop, "dropped"), (moved, "given another priority"))
            done = ", ".join(f"{counted(len(ids), 'task')} {what}" for ids, what in counts if ids)
            return f"{done} by {clean(event.by or A_PERSON)}"
        case ev.WorkStopped():
            return f"starts no more tasks: {clean(event.reason)}"
        case ev.GateAnswered():
            return answer_text(event)
        case ev.ClaimWaiting():
            return claim_text(event)
        case ev.ClaimGranted():
            return f"has {clean(event.what)} now"
        case ev.AgentGuided():
            return guided_text(event)
        case ev.BudgetWarning():
            return budget_text(event)
        case ev.BudgetRaised():
            return "raised by its original amount"
        case _:
            return ""


def size_text(event: ev.GroupStarted) -> str:
    """``40 members``, ``3 tasks``; empty if the size is not known."""
    what = "task" if event.kind == "work" else "member"
    return "" if event.size is None else counted(event.size, what)


def first_line(error: str, error_type: str | None = None) -> str:
    """An error's first line, with `` ...`` after it if there are more."""
    lines = _lines(error)
    said = error_text(lines[0] if lines else "", error_type, WIDTH)
    return f"{said} ..." if len(lines) > 1 else said


def error_lines(error: str | None, error_type: str | None = None, *, most: int = 20) -> list[str]:
    """An error as lines, the first with the name of its class; the middle of very many is left out.

    Lines after the first are indented, and keep their indentation among themselves.
    """
    lines = _lines(error or "")
    if len(lines) <= 1:
        said = error_text(error, error_type, WIDTH)
        return [said] if said else []
    if len(lines) > most:
        head = min(_HEAD, most // 2)
        tail = most - head - 1
        left_out = f"... {len(lines) - head - tail} lines left out ..."
        lines = [*lines[:head], left_out, *lines[-tail:]]
    first, *others = lines
    return [error_text(first, error_type, WIDTH), *(f"{INDENT}{printable(one)}" for one in others)]


def _lines(error: str) -> list[str]:
    """The nonblank lines, without the indentation that all lines after the first share."""
    lines = [line for line in error.expandtabs(4).splitlines() if line.strip()]
    margin = min((len(line) - len(line.lstrip()) for line in lines[1:]), default=0)
    return [*lines[:1], *(line[margin:] for line in lines[1:])]


def printable(line: str) -> str:
    """A line of text, indented as it was, without terminal codes."""
    blank = len(line) - len(line.lstrip())
    return " " * min(blank, 40) + clean(line, WIDTH)


_SHORT = 80
_WORTH_SAYING_S = 1.0
_UNSAID: Mapping[str, str] = {
    "unknown_usd": "cost",
    "unknown_tokens": "tokens",
}
_NEXT: Mapping[str, str] = {
    "start": "starts over",
    "resume": "continues its session",
    "retry": "tries again",
    "wait": "tries again",
    "reask": "asks again",
    "compact": "continues in its compacted session",
    "summarise": "continues in a new session from a summary",
    "reframe": "asks again in a new session",
    "fallback": "continues with its next backend or model",
}


def what_failed(event: ev.LadderStep) -> str:
    """The kind of the failure, and its backend: ``usage cap, claude``."""
    kind = clean(event.kind.replace("_", " "), 80)
    return f"{kind}, {clean(event.backend, 80)}" if event.backend else kind


def ladder_text(event: ev.LadderStep) -> str:
    """What the ladder does next, and why: ``asks again: invalid output, claude``.

    For a cap, which is also tested before its reset: ``checks again at 21:35 (in 3 h): ...``.
    """
    if event.parked:
        return f"needs a person: {clean(event.kind.replace('_', ' '), 80)}: {clean(event.error)}"
    if event.due - event.at >= _WORTH_SAYING_S:
        waits = f"waits {until(event.due, event.at).removeprefix('in ')}"
        if event.kind == "usage_cap":
            waits = f"checks again {_reset_text(event.due, event.at)}"
        return f"{waits}: {what_failed(event)}: {clean(event.error, 120)}"
    return f"{_NEXT.get(event.next.rung, 'tries again')}: {what_failed(event)}"


def whose_budget(event: ev.BudgetWarning | ev.BudgetRaised) -> str:
    """``budget of step 'a0'``; ``budget`` if it is the run's."""
    return f"budget of step '{path_text(event.scope)}'" if event.scope else "budget"


def budget_text(event: ev.BudgetWarning) -> str:
    """``used 0.9 of 1 cost_usd``; or that launches did not report usage, or wait for the first."""
    unsaid = _UNSAID.get(event.name)
    if unsaid is not None:
        launches = "1 launch" if event.used == 1 else f"{event.used:g} launches"
        them = "it" if event.used == 1 else "them"
        return f"{launches} did not report {unsaid}, so only the amount reserved for {them} counts"
    if event.name == "first_launch":
        return "waits for its first launch, to learn what one uses; set reserve_* to avoid this"
    return f"used {event.used:g} of {event.limit:g} {clean(event.name, 80)}"


def usage_text(usage: Usage | None, unknown_tokens: int = 0, unknown_cost: int = 0) -> str:
    """``120k in, 4.5k out, $0.41``; ``?``: unknown, ``at least``: launches did not report all."""
    usage = usage or Usage()
    tokens = "tokens ?"
    if usage.tokens is not None:
        tokens = f"{_count(usage.input_tokens)} in, {_count(usage.output_tokens)} out"
        if unknown_tokens:
            tokens = f"at least {tokens}"
    cost = "$?" if usage.cost_usd is None else _dollars(usage)
    if usage.cost_usd is not None and unknown_cost and not tokens.startswith("at least"):
        cost = f"at least {cost}"
    return f"{tokens}, {cost}"


def spent_text(spent: Spent) -> str:
    """``5 launches, 120k in, 4.5k out, $0.41``."""
    launches = f"{spent.launches} launch{'es' * (spent.launches != 1)}"
    return f"{launches}, {usage_text(spent.usage, spent.unknown_tokens, spent.unknown_cost)}"


def _count(number: int | None) -> str:
    if number is None:
        return "?"
    if number < 1_000:
        return str(number)
    size, unit = (1_000, "k") if number < 999_500 else (1_000_000, "M")
    scaled = number / size
    return f"{scaled:.1f}".removesuffix(".0") + unit if scaled < 10 else f"{scaled:.0f}{unit}"


def _dollars(usage: Usage) -> str:
    cost = usage.cost_usd or 0.0
    about = "about " if usage.cost_source == "table" else ""
    return f"{about}${cost:.2f}" if cost >= 0.01 or not cost else f"{about}${cost:.2g}"


def claim_text(event: ev.ClaimWaiting) -> str:
    """The claim that a step waits for, and who has it."""
    return f"waits for {clean(event.what)}: {clean(event.holder) or 'another step'} has it"


def steered_text(event: ev.RunSteered) -> str:
    """``completed by ann``, ``guided by ann: use tabs``."""
    said = f": {clean(event.value, 120)}" if event.action == "guide" else ""
    return f"{STEERED[event.action]} by {clean(event.by or A_PERSON)}{said}"


def guided_text(event: ev.AgentGuided) -> str:
    """``continues with guidance by ann: use tabs``, ``starts with guidance by ann: use tabs``."""
    people = ", ".join(clean(one, 80) for one in dict.fromkeys(event.said_by))
    said = "; ".join(clean(one, 120) for one in event.next.guidance)
    does = "starts" if event.next.turn == 1 else "continues"
    return f"{does} with guidance by {people}: {said}"


def activity_text(latest: str | ev.Event | ev.Progress | None) -> str:
    """What a step does now, in a few words: the last line it printed, or what its agent does."""
    match latest:
        case str():
            return latest
        case ev.LadderStep():
            return ladder_text(latest)
        case ev.AgentGuided():
            return guided_text(latest)
        case ev.AgentTurnCompleted(problem=str(problem)):
            return f"asked again: {clean(problem)}"
        case ev.AgentToolStarted():
            return f"{clean(latest.name, 80)} {_input_text(latest.input)}".rstrip()
        case ev.AgentToolCompleted(ok=False):
            return f"{clean(latest.name or 'a tool', 80)} failed: {last_line(latest.output)}"
        case ev.AgentPermission(decision="denied"):
            return f"denied {clean(latest.tool, 80)}: {clean(latest.reason)}".rstrip(": ")
        case ev.AgentRetry():
            pause = "" if latest.delay_s is None else f" in {duration(latest.delay_s)}"
            return f"tries again{pause}: {clean(latest.reason)}".rstrip(": ")
        case ev.AgentCompaction(phase="started"):
            return "compacts its session"
        case ev.AgentLimit(status="warning" | "reached"):
            return _limit(latest)
        case _:
            return ""


def backend_notice_text(event: ev.AgentRetry | ev.AgentLimit) -> str:
    """The text of a backend's own retry or limit; empty while the limit is not near."""
    match event:
        case ev.AgentRetry():
            number = "" if event.attempt is None else f" (retry {event.attempt})"
            pause = "" if event.delay_s is None else f" in {duration(event.delay_s)}"
            return f"its backend tries again{pause}{number}: {clean(event.reason)}".rstrip(": ")
        case ev.AgentLimit():
            return "" if event.status == "allowed" else f"limit of its backend: {_limit(event)}"


def _input_text(value: Any) -> str:
    """The first text in a tool's input: a command, a path, a query."""
    texts = value.values() if hasattr(value, "values") else (value,)
    text = next((text for text in texts if isinstance(text, str)), "")
    return clean(text, 120)


def _limit(event: ev.AgentLimit) -> str:
    used = "" if event.used is None else f" {event.used:.0%} used"
    window = clean(event.window.replace("_", " ") or "limit", 80)
    opens = (
        "" if event.reset_at is None else f", opens again {_reset_text(event.reset_at, event.at)}"
    )
    return f"{window}{used}{opens}" if used else f"{window} {event.status}{opens}"


def _reset_text(due: float, now: float) -> str:
    return until(due, now).replace("until ", "at ", 1)
