"""The log line of each event of a run: its level, and its text.

A line depends on its event alone, so any part of a long record can be shown without the rest. Texts
are cut here, so an event must be masked before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from handrail.model import events as ev
from handrail.model.events import Event
from handrail.model.results import A_SENDER, Skipped, StepResult, Usage
from handrail.record.view import exit_code_of, plain
from handrail.shortening import clean
from handrail.sinks.console_text import counted, duration, error_text, until
from handrail.sinks.console_words import (
    event_text,
    handled_text,
    ladder_text,
    question_of,
    size_text,
    steered_text,
    usage_text,
    whose_budget,
)
from handrail.typed.jsonsafe import json_safe

Level: TypeAlias = Literal["error", "warning", "person", "info"]
"""``person``: a person did it, or is asked to act."""

_A_MINUTE_S = 60
_MOST = 400
"""Characters of an error, or of a value."""


class Line(NamedTuple):
    """One event in words."""

    level: Level
    text: str


def line_of(event: Event) -> Line:
    """The line of an event."""
    return Line(level_of(event), _TEXTS[type(event)](event))


def level_of(event: Event) -> Level:
    """The level of an event, found without making its text."""
    level = _LEVELS.get(type(event), "info")
    return level(event) if callable(level) else level


# -- levels ----------------------------------------------------------------------------------------


def _result_level(event: ev.StepCompleted | ev.MemberCompleted) -> Level:
    result = event.result
    if result.given_by:
        return "person"
    if result.status == "failed":
        return "error"
    got_over = (
        result.status == "defaulted" or bool(result.handled) or bool(exit_code_of(result.output))
    )
    return "warning" if got_over else "info"


def _end_level(event: ev.WorkflowCompleted | ev.SubworkflowEnded) -> Level:
    return "error" if event.status == "failed" else "info"


def _ladder_level(event: ev.LadderStep) -> Level:
    return "person" if event.parked else "warning"


def _rollback_level(event: ev.RollbackCompleted) -> Level:
    return "info" if event.error is None else "error"


def _round_level(event: ev.ValidationRound) -> Level:
    return "info" if event.passed else "warning"


_LEVELS: Final[Mapping[type, Level | Callable[[Any], Level]]] = {
    ev.WorkflowCompleted: _end_level,
    ev.CancelRequested: "person",
    ev.RunSteered: "person",
    ev.LimitReached: "error",
    ev.AttemptFailed: "warning",
    ev.StepInterrupted: "warning",
    ev.StepCompleted: _result_level,
    ev.ValidationRound: _round_level,
    ev.MemberCompleted: _result_level,
    ev.WorkEdited: "person",
    ev.SubworkflowEnded: _end_level,
    ev.GateOpened: "person",
    ev.GateAnswered: "person",
    ev.SignalReceived: "person",
    ev.RollbackCompleted: _rollback_level,
    ev.ClaimWaiting: "warning",
    ev.ClaimLost: "error",
    ev.LadderStep: _ladder_level,
    ev.AgentGuided: "person",
    ev.BudgetWarning: "warning",
    ev.BudgetRaised: "person",
}


# -- texts -----------------------------------------------------------------------------------------


def _run_started(event: ev.WorkflowStarted) -> str:
    inputs = ", ".join(f"{name}={_value(one)}" for name, one in event.inputs.items())
    began = f"{clean(event.workflow_name)} began" + (f" with {inputs}" if inputs else "")
    if event.forked_from is None:
        return began
    run, at = event.forked_from
    return f"{began}, forked from {clean(run)}" + (f" at {clean(at)}" if at else "")


def _run_ended(event: ev.WorkflowCompleted) -> str:
    error = error_text(event.error, event.error_type, _MOST)
    parts = [f"{event.status} after {duration(event.duration_ms / 1000)}", error]
    undone = [
        f"{one.path} was not rolled back: {clean(one.error)}" for one in event.rollback_errors
    ]
    return "; ".join(part for part in (*parts, *undone) if part)


def _run_suspended(event: ev.RunSuspended) -> str:
    waits = [clean(f"{one.path} {one.what}".strip()) for one in event.waits_for[:3]]
    more = len(event.waits_for) - len(waits)
    said = "; ".join(waits) + (f" and {more} more" if more > 0 else "")
    return f"suspended ({clean(event.reason)})" + (f": {said}" if said else "")


def _step_started(event: ev.StepStarted) -> str:
    if event.verdict is False:
        return f"{event.step_type} is skipped: its condition is false"
    signal = f", waits for the signal {clean(event.signal)}" if event.signal else ""
    return f"{event.step_type} began{signal}"


def _attempt_failed(event: ev.AttemptFailed) -> str:
    return f"attempt {event.attempt} failed: {error_text(event.error, event.error_type, _MOST)}"


def _step_ended(event: ev.StepCompleted | ev.MemberCompleted) -> str:
    result = event.result
    reason = result.output.reason if isinstance(result.output, Skipped) else ""
    parts = [
        result.status
        if result.status == "skipped"
        else f"{result.status} in {_duration_text(result)}",
        f"{result.attempts} attempts" if result.attempts > 1 else "",
        error_text(result.error, result.error_type, _MOST),
        clean(reason),
        handled_text(result.status, result.handled, exit_code_of(result.output)),
        f"given by {clean(result.given_by)}" if result.given_by else "",
        _usage_text(result.usage),
    ]
    return ", ".join(part for part in parts if part)


def _duration_text(result: StepResult[Any]) -> str:
    return duration(result.duration_ms / 1000)


def _usage_text(usage: Usage | None) -> str:
    return "" if usage is None else usage_text(usage)


def _round_ended(event: ev.ValidationRound) -> str:
    failed = next((one for one in event.round.stages if not one.passed), None)
    if failed is None:
        return f"round {event.number} passed"
    return f"round {event.number}: {clean(failed.name)}: {clean(failed.error or failed.output)}"


def _group_started(event: ev.GroupStarted) -> str:
    return f"{event.kind} of {size_text(event) or '?'}"


def _group_ended(event: ev.GroupCompleted) -> str:
    counts = (
        (event.succeeded, "succeeded"), (event.failed, "failed"), (event.cancelled, "cancelled"),
        (event.skipped, "skipped"),
    )  # fmt: skip
    said = ", ".join(f"{count} {what}" for count, what in counts if count)
    why = f", no more start: {clean(event.why_stopped)}" if event.why_stopped else ""
    return f"{event.total} ended" + (f": {said}" if said else "") + why


def _tasks_queued(event: ev.TasksQueued) -> str:
    return f"starts with {counted(len(event.tasks), 'task')}"


def _child_ended(event: ev.SubworkflowEnded) -> str:
    error = f": {clean(event.error, _MOST)}" if event.error else ""
    return f"{clean(event.workflow_name)} {event.status}{error}"


def _timer_set(event: ev.TimerSet) -> str:
    what = {"timeout": "its time ends", "run": "the run's time ends", "gate": "must be answered"}
    left = event.due - event.at
    when = f"in {duration(left)}" if left < _A_MINUTE_S else until(event.due, event.at)
    return f"{what.get(event.reason, f'waits, {event.reason}')} {when}"


def _signal_received(event: ev.SignalReceived) -> str:
    value = "" if event.payload is None else f" {_value(event.payload)}"
    return f"signal {clean(event.name)}{value} from {clean(event.by or A_SENDER)}"


def _rolled_back(event: ev.RollbackCompleted) -> str:
    if event.error is None:
        return "rolled back"
    return f"not rolled back: {error_text(event.error, event.error_type, _MOST)}"


def _session_started(event: ev.AgentSessionStarted) -> str:
    who = " ".join(clean(one) for one in (event.backend, event.model or "") if one)
    return f"launch {event.launch}" + (f" of {who}" if who else "") + f", session {event.session}"


def _claim_lost(event: ev.ClaimLost) -> str:
    now = f"; {clean(event.holder)} has it now" if event.holder else ""
    return f"lost {clean(event.what)} before it was done{now}"


def _budget_reserved(event: ev.BudgetReserved) -> str:
    parts = [
        f"{event.tokens} tokens" if event.tokens is not None else "",
        f"${event.cost_usd:.2f}" if event.cost_usd is not None else "",
    ]
    said = ", ".join(part for part in parts if part)
    return f"launch {event.launch} is about to start" + (f", {said} reserved" if said else "")


def _budget_settled(event: ev.BudgetSettled) -> str:
    used = _usage_text(event.usage) or "it did not report usage"
    after = f" after {duration(event.duration_s)}" if event.duration_s else ""
    return f"launch {event.launch} ended{after}: {used}"


def _budget_raised_or_near(event: ev.BudgetWarning | ev.BudgetRaised) -> str:
    return f"{whose_budget(event)}: {event_text(event)}"


def _value(value: Any) -> str:
    data = json_safe(plain(value))
    return clean(data if isinstance(data, str) else json.dumps(data, ensure_ascii=False))


_TEXTS: Final[Mapping[type, Callable[[Any], str]]] = {
    ev.WorkflowStarted: _run_started,
    ev.WorkflowCompleted: _run_ended,
    ev.RunSuspended: _run_suspended,
    ev.RunResumed: event_text,
    ev.CancelRequested: lambda event: f"is being cancelled: {clean(event.reason)}",
    ev.RunSteered: steered_text,
    ev.LimitReached: event_text,
    ev.StepStarted: _step_started,
    ev.AttemptFailed: _attempt_failed,
    ev.StepMoved: lambda event: f"is now at position {event.index}",
    ev.StepInterrupted: event_text,
    ev.StepCompleted: _step_ended,
    ev.ValidationRound: _round_ended,
    ev.GroupStarted: _group_started,
    ev.GroupCompleted: _group_ended,
    ev.MemberStarted: lambda event: f"member {clean(event.key)} began",
    ev.MemberCompleted: _step_ended,
    ev.TasksQueued: _tasks_queued,
    ev.WorkEdited: event_text,
    ev.WorkStopped: event_text,
    ev.SubworkflowStarted: lambda event: f"{clean(event.workflow_name)} began",
    ev.SubworkflowEnded: _child_ended,
    ev.GateOpened: lambda event: f"asks: {question_of(event.gate)}",
    ev.GateAnswered: event_text,
    ev.TimerSet: _timer_set,
    ev.SignalReceived: _signal_received,
    ev.RollbackStarted: lambda event: "is being rolled back",  # noqa: ARG005
    ev.RollbackCompleted: _rolled_back,
    ev.AgentSessionStarted: _session_started,
    ev.ClaimWaiting: event_text,
    ev.ClaimGranted: event_text,
    ev.ClaimLost: _claim_lost,
    ev.LadderStep: ladder_text,
    ev.AgentGuided: event_text,
    ev.BudgetReserved: _budget_reserved,
    ev.BudgetSettled: _budget_settled,
    ev.BudgetWarning: _budget_raised_or_near,
    ev.BudgetRaised: _budget_raised_or_near,
}
