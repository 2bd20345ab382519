"""Events in words, each in one line, for the console, its log and the page; and their severity.

A line depends on its event alone, so any part of a long record can be shown without the rest. Texts
are cut here, so an event must be masked before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from handrail.model import events as ev
from handrail.model.dataclass import dataclass
from handrail.model.events import Event
from handrail.model.results import A_PERSON, A_SENDER, OpenGate, RollbackError, answer_words
from handrail.record.view import end_view, exit_code_of, plain
from handrail.shortening import clean, error_text, last_line, reason_of
from handrail.sinks.console_text import Tone, counted, duration, path_text, until
from handrail.sinks.console_words import (
    answer_text,
    facts_of,
    handled_text,
    usage_text,
)
from handrail.typed.jsonsafe import json_safe

Severity: TypeAlias = Literal["error", "warning", "info"]

_A_MINUTE_S = 60
_MOST = 400
"""Characters of an error, or of a value."""


@dataclass(frozen=True, slots=True)
class Form:
    """How an event is told: its text and severity, whether people did it or are asked to act.

    ``sign``: that of its line in the console's plain log; empty: the log makes no line of its own,
    or makes it from more than the event. There, ``kind`` and ``tone`` go with it, and
    ``in_large_groups`` is False if in a large group the lines of the group stand for it.
    """

    text: Callable[[Any], str]
    severity: Severity | Callable[[Any], Severity] = "info"
    people: bool | Callable[[Any], bool] = False
    sign: str = ""
    tone: Tone | None = None
    kind: str = ""
    in_large_groups: bool = True


def event_text(event: Event) -> str:
    """What the event says, without its path."""
    return FORMS[type(event)].text(event)


# -- severity --------------------------------------------------------------------------------------


def severity_of(event: Event | ev.Progress) -> Severity:
    """The severity of an event or notice, found without making its text."""
    form = FORMS.get(type(event))
    if form is None:
        return _NOTICES.get(type(event), _info)(event)
    return form.severity(event) if callable(form.severity) else form.severity


def _info(_: object) -> Severity:
    return "info"


def is_of_people(event: Event) -> bool:
    """True if a person did it, or is asked to act."""
    people = FORMS[type(event)].people
    return people(event) if callable(people) else people


def _result_severity(event: ev.Ended) -> Severity:
    result = event.result
    if result.status == "failed":
        return "error"
    got_over = (
        result.status == "defaulted" or bool(result.handled) or bool(exit_code_of(result.output))
    )
    return "warning" if got_over else "info"


def _end_severity(event: ev.WorkflowCompleted | ev.SubworkflowEnded) -> Severity:
    return "error" if event.status == "failed" else "info"


def _is_given(event: ev.Ended) -> bool:
    return bool(event.result.given_by)


_NOTICES: Final[Mapping[type, Callable[[Any], Severity]]] = {
    ev.SinkDropped: lambda _: "error",
    ev.AgentLimit: lambda event: "warning" if event.status == "reached" else "info",
    ev.AgentFinished: lambda event: "warning" if event.status == "failed" else "info",
}
"""The severity of notices that are not always information."""


# -- the run ---------------------------------------------------------------------------------------


def _run_started(event: ev.WorkflowStarted) -> str:
    inputs = ", ".join(f"{name}={_value(one)}" for name, one in event.inputs.items())
    began = f"{clean(event.workflow_name)} began" + (f" with {inputs}" if inputs else "")
    if event.forked_from is None:
        return began
    run, at = event.forked_from
    return f"{began}, forked from {clean(run)}" + (f" at {clean(at)}" if at else "")


def _run_resumed(event: ev.RunResumed) -> str:
    again = len(event.superseded)
    return "resumed" + (f", {counted(again, 'step')} to run again" if again else "")


def _run_ended(event: ev.WorkflowCompleted) -> str:
    error = error_text(event.error, event.error_type, _MOST)
    parts = [f"{event.status} after {duration(event.duration_ms / 1000)}", error]
    return "; ".join(part for part in (*parts, *unrolled_texts(event.rollback_errors)) if part)


def unrolled_texts(errors: Sequence[RollbackError]) -> list[str]:
    """``made was not rolled back: Gone: no``: the rollbacks of a run that failed."""
    return [
        f"{path_text(error.path)} was not rolled back: {reason_of(error.error, error.error_type)}"
        for error in errors
    ]


def _run_suspended(event: ev.RunSuspended) -> str:
    waits = [clean(f"{wait.path} {wait.what}".strip()) for wait in event.waits_for[:3]]
    more = len(event.waits_for) - len(waits)
    said = "; ".join(waits) + (f" and {more} more" if more > 0 else "")
    return f"suspended ({clean(event.reason)})" + (f": {said}" if said else "")


_STEERED = {
    "pause": "paused",
    "unpause": "unpaused",
    "stop": "stopped",
    "complete": "completed",
    "skip": "skipped",
    "retry": "retried",
    "guide": "guided",
}
"""The word for each steering action that somebody took on a run."""


def _steered(event: ev.RunSteered) -> str:
    """``completed by ann``, ``guided by ann: use tabs``."""
    said = f": {clean(event.value, 120)}" if event.action == "guide" else ""
    return f"{_STEERED[event.action]} by {clean(event.by or A_PERSON)}{said}"


# -- steps -----------------------------------------------------------------------------------------


def _step_started(event: ev.StepStarted) -> str:
    if event.verdict is False:
        return f"{event.step_type} is skipped: its condition is false"
    signal = f", waits for the signal {clean(event.signal)}" if event.signal else ""
    return f"{event.step_type} began{signal}"


def _attempt_failed(event: ev.AttemptFailed) -> str:
    return f"attempt {event.attempt} failed: {error_text(event.error, event.error_type, _MOST)}"


def _step_ended(event: ev.Ended) -> str:
    result, view = event.result, end_view(event.result)
    spent = duration(result.duration_ms / 1000)
    parts = [
        result.status if result.status == "skipped" else f"{result.status} in {spent}",
        f"{result.attempts} attempts" if result.attempts > 1 else "",
        error_text(result.error, result.error_type, _MOST),
        *facts_of(view),
        handled_text(view),
    ]
    return ", ".join(part for part in parts if part)


def _round_ended(event: ev.ValidationRound) -> str:
    failed = next((stage for stage in event.round.stages if not stage.passed), None)
    if failed is None:
        return f"round {event.number} passed"
    return f"round {event.number}: {clean(failed.name)}: {clean(failed.error or failed.output)}"


def _child_ended(event: ev.SubworkflowEnded) -> str:
    error = f": {clean(event.error, _MOST)}" if event.error else ""
    return f"{clean(event.workflow_name)} {event.status}{error}"


def _rolled_back(event: ev.RollbackCompleted) -> str:
    if event.error is None:
        return "rolled back"
    return f"rollback failed: {error_text(event.error, event.error_type, _MOST)}"


# -- groups and work -------------------------------------------------------------------------------


def size_text(event: ev.GroupStarted) -> str:
    """``40 members``, ``3 tasks``; empty if the size is not known."""
    what = "task" if event.kind == "work" else "member"
    return "" if event.size is None else counted(event.size, what)


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


def _work_edited(event: ev.WorkEdited) -> str:
    counts = (
        (event.add, "added"), (event.drop, "dropped"), (event.priority, "given another priority"),
    )  # fmt: skip
    done = ", ".join(f"{counted(len(ids), 'task')} {what}" for ids, what in counts if ids)
    return f"{done} by {clean(event.by or A_PERSON)}"


# -- waits -----------------------------------------------------------------------------------------


def question_of(gate: OpenGate) -> str:
    """A gate's question with its choices: ``Merge? [yes, no]``."""
    question = clean(gate.question)
    if not gate.choices:
        return question
    return f"{question} [{clean(', '.join(answer_words(gate.choices, gate.values)))}]"


def _gate_opened(event: ev.GateOpened) -> str:
    deadline = event.gate.deadline
    by = "" if deadline is None else f", answer {until(deadline, event.at)}"
    return f"asks: {question_of(event.gate)}{by}"


def _timer_set(event: ev.TimerSet) -> str:
    what = {"timeout": "its time ends", "run": "the run's time ends", "gate": "must be answered"}
    left = event.due - event.at
    when = f"in {duration(left)}" if left < _A_MINUTE_S else until(event.due, event.at)
    return f"{what.get(event.reason, f'waits, {event.reason}')} {when}"


def _signal_received(event: ev.SignalReceived) -> str:
    value = "" if event.payload is None else f" {_value(event.payload)}"
    return f"signal {clean(event.name)}{value} from {clean(event.by or A_SENDER)}"


def _claim_waiting(event: ev.ClaimWaiting) -> str:
    return f"waits for {clean(event.what)}, behind {clean(event.holder) or 'another step'}"


def _claim_lost(event: ev.ClaimLost) -> str:
    now = f"; {clean(event.holder)} has it now" if event.holder else ""
    return f"lost {clean(event.what)} before it was done{now}"


def _denied(event: ev.SandboxDenied) -> str:
    said = "" if event.source == "proxy" else ", as its output says"
    return f"its sandbox refused {clean(event.what, 160)}{said}"


# -- agents ----------------------------------------------------------------------------------------

_WORTH_SAYING_S = 1.0
_RUNGS: Mapping[str, tuple[str, str]] = {
    "start": ("starts over", "started over"),
    "resume": ("continues its session", "continued its session"),
    "reask": ("asks again", "asked again"),
    "compact": ("continues in its compacted session", "continued in its compacted session"),
    "summarise": (
        "continues in a new session from a summary", "continued in a new session from a summary",
    ),
    "reframe": ("asks again in a new session", "asked again in a new session"),
    "fallback": (
        "continues with its next backend or model", "continued with its next backend or model",
    ),
}  # fmt: skip


def rung_text(rung: str, *, over: bool = False) -> str:
    """``asks again``: what follows a failed launch; ``asked again`` when that is ``over``."""
    return _RUNGS.get(rung, ("tries again", "tried again"))[over]


def _session_started(event: ev.AgentSessionStarted) -> str:
    who = " ".join(clean(one) for one in (event.backend, event.model or "") if one)
    return f"launch {event.launch}" + (f" of {who}" if who else "") + f", session {event.session}"


def _what_failed(event: ev.LadderStep) -> str:
    """The kind of the failure, and its backend: ``usage cap, claude``."""
    kind = clean(event.kind.replace("_", " "), 80)
    return f"{kind}, {clean(event.backend, 80)}" if event.backend else kind


def _ladder_step(event: ev.LadderStep) -> str:
    """What the ladder does next, and why: ``asks again: invalid output, claude``.

    For a cap, which is also tested before its reset: ``checks again at 21:35 (in 3 h): ...``.
    """
    if event.parked:
        return f"needs a person: {clean(event.kind.replace('_', ' '), 80)}: {clean(event.error)}"
    if event.due - event.at >= _WORTH_SAYING_S:
        when = until(event.due, event.at).removeprefix("in ")
        if event.kind == "usage_cap":
            when = _reset_text(event.due, event.at)
        return f"{pause_text(event, when)}: {_what_failed(event)}: {clean(event.error, 120)}"
    return f"{rung_text(event.next.rung)}: {_what_failed(event)}"


def pause_text(event: ev.LadderStep, when: str, *, alive: bool = True) -> str:
    """``checks again at 21:35``: how a failed launch is waited after, until ``when``.

    A cap is also tested before its end, while a process drives the run.
    """
    does = "checks again" if alive and event.kind == "usage_cap" else "waits"
    return f"{does} {when}{_margin_text(event)}"


def _margin_text(event: ev.LadderStep) -> str:
    """`` (3.0 s + cap_margin_s 30 s)``: why a wait is much longer than its cap; else empty."""
    cap_s = max(0.0, event.due - event.margin_s - event.at)
    if not event.margin_s or cap_s > 10 * event.margin_s:
        return ""
    return f" ({duration(cap_s)} + cap_margin_s {duration(event.margin_s)})"


def _guided(event: ev.AgentGuided) -> str:
    """``continues with guidance by ann: use tabs``, ``starts with guidance by ann: use tabs``."""
    people = ", ".join(clean(one, 80) for one in dict.fromkeys(event.said_by))
    said = "; ".join(clean(one, 120) for one in event.next.guidance)
    does = "starts" if event.next.turn == 1 else "continues"
    return f"{does} with guidance by {people}: {said}"


def _reset_text(due: float, now: float) -> str:
    return until(due, now).replace("until ", "at ", 1)


# -- budgets ---------------------------------------------------------------------------------------

_UNSAID: Mapping[str, str] = {
    "unknown_usd": "cost",
    "unknown_tokens": "tokens",
}


def _budget_reserved(event: ev.BudgetReserved) -> str:
    parts = [
        f"{event.tokens} tokens" if event.tokens is not None else "",
        f"${event.cost_usd:.2f}" if event.cost_usd is not None else "",
    ]
    said = ", ".join(part for part in parts if part)
    return f"launch {event.launch} is about to start" + (f", {said} reserved" if said else "")


def _budget_settled(event: ev.BudgetSettled) -> str:
    used = "it did not report usage" if event.usage is None else usage_text(event.usage)
    after = f" after {duration(event.duration_s)}" if event.duration_s else ""
    return f"launch {event.launch} ended{after}: {used}"


def _whose_budget(event: ev.BudgetWarning | ev.BudgetRaised) -> str:
    """``budget of step 'a0'``; ``budget`` if it is the run's."""
    return f"budget of step '{path_text(event.scope)}'" if event.scope else "budget"


def _budget_near(event: ev.BudgetWarning) -> str:
    """``budget: used 0.9 of 1 cost_usd``; or what launches did not report, or wait for."""
    return f"{_whose_budget(event)}: {_how_near(event)}"


def _how_near(event: ev.BudgetWarning) -> str:
    unsaid = _UNSAID.get(event.name)
    if unsaid is not None:
        launches = "1 launch" if event.used == 1 else f"{event.used:g} launches"
        them = "it" if event.used == 1 else "them"
        return f"{launches} did not report {unsaid}, so only the amount reserved for {them} counts"
    if event.name == "first_launch":
        return "waits for its first launch, to learn what one uses; set reserve_* to avoid this"
    return f"used {event.used:g} of {event.limit:g} {clean(event.name, 80)}"


def _value(value: Any) -> str:
    data = json_safe(plain(value))
    return clean(data if isinstance(data, str) else json.dumps(data, ensure_ascii=False))


FORMS: Final[Mapping[type, Form]] = {
    ev.WorkflowStarted: Form(_run_started),
    ev.WorkflowCompleted: Form(_run_ended, _end_severity),
    ev.RunSuspended: Form(_run_suspended),
    ev.RunResumed: Form(_run_resumed, sign="started"),
    ev.CancelRequested: Form(
        lambda event: f"cancelling: {clean(event.reason)}", people=True, sign="cancelled"
    ),
    ev.RunSteered: Form(_steered, people=True, sign="waiting"),
    ev.LimitReached: Form(
        lambda event: f"reached the limit {clean(event.name)}={clean(event.value)}",
        "error",
        sign="failed",
    ),
    ev.StepStarted: Form(_step_started),
    ev.AttemptFailed: Form(_attempt_failed, "warning"),
    ev.StepMoved: Form(lambda event: f"is now at position {event.index}"),
    ev.StepInterrupted: Form(
        lambda event: f"interrupted: {clean(event.reason)}".rstrip(": "),
        "warning",
        sign="interrupted",
    ),
    ev.StepCompleted: Form(_step_ended, _result_severity, people=_is_given),
    ev.ValidationRound: Form(_round_ended, lambda event: "info" if event.passed else "warning"),
    ev.GroupStarted: Form(_group_started),
    ev.GroupCompleted: Form(_group_ended),
    ev.MemberStarted: Form(lambda event: f"member {clean(event.key)} began"),
    ev.MemberCompleted: Form(_step_ended, _result_severity, people=_is_given),
    ev.TasksQueued: Form(lambda event: f"starts with {counted(len(event.tasks), 'task')}"),
    ev.WorkEdited: Form(_work_edited, people=True, sign="started", kind="work"),
    ev.WorkStopped: Form(
        lambda event: f"starts no more tasks: {clean(event.reason)}",
        sign="waiting",
        kind="work",
        in_large_groups=False,
    ),
    ev.SubworkflowStarted: Form(lambda event: f"{clean(event.workflow_name)} began"),
    ev.SubworkflowEnded: Form(_child_ended, _end_severity),
    ev.GateOpened: Form(_gate_opened, people=True, sign="waiting"),
    ev.GateAnswered: Form(answer_text, people=True, sign="started"),
    ev.TimerSet: Form(_timer_set),
    ev.SignalReceived: Form(_signal_received, people=True, sign="started"),
    ev.RollbackStarted: Form(lambda _: "is being rolled back"),
    ev.RollbackCompleted: Form(
        _rolled_back,
        lambda event: "info" if event.error is None else "error",
        sign="undo",
        tone="warn",
    ),
    ev.AgentSessionStarted: Form(_session_started),
    ev.ClaimWaiting: Form(_claim_waiting, "warning", sign="waiting", tone="warn"),
    ev.ClaimGranted: Form(lambda event: f"has {clean(event.what)} now", sign="again"),
    ev.ClaimLost: Form(_claim_lost, "error"),
    ev.SandboxDenied: Form(_denied, "warning", sign="waiting", tone="warn", in_large_groups=False),
    ev.LadderStep: Form(
        _ladder_step,
        "warning",
        people=lambda event: event.parked,
        sign="waiting",
        tone="warn",
        in_large_groups=False,
    ),
    ev.AgentGuided: Form(_guided, people=True, sign="again"),
    ev.BudgetReserved: Form(_budget_reserved),
    ev.BudgetSettled: Form(_budget_settled),
    ev.BudgetWarning: Form(_budget_near, "warning", sign="started", tone="warn"),
    ev.BudgetRaised: Form(
        lambda event: f"{_whose_budget(event)}: raised by its original amount",
        people=True,
        sign="started",
    ),
}


# -- beside a live step ----------------------------------------------------------------------------


def note_text(event: Event | ev.Progress | None) -> str:
    """The text of a note: the event that a step waits on, or that describes a run's state.

    The time when a wait ends is not in it, as it is shown beside it.
    """
    match event:
        case ev.GateOpened():
            deadline = " (until its deadline)" if event.gate.deadline is not None else ""
            return f"{question_of(event.gate)}{deadline}"
        case ev.StepStarted():
            return f"waits for the signal {clean(event.signal, 80)}".rstrip()
        case ev.TimerSet():
            return {"retry": "retries", "cap": "waits for a limit"}.get(event.reason, "")
        case ev.LadderStep():
            return _what_failed(event) + _margin_text(event)
        case ev.SubworkflowStarted():
            return clean(event.workflow_name, 80)
        case (
            ev.ClaimWaiting()
            | ev.RunResumed()
            | ev.CancelRequested()
            | ev.RunSteered()
            | ev.LimitReached()
            | ev.BudgetWarning()
        ):
            return event_text(event)
        case _:
            return ""


def activity_text(latest: str | Event | ev.Progress | None) -> str:
    """What a step does now, in a few words: the last line it printed, or what its agent does."""
    match latest:
        case str():
            return latest
        case ev.LadderStep() | ev.AgentGuided() | ev.SandboxDenied():
            return event_text(latest)
        case ev.AgentTurnCompleted(problem=str(problem)):
            return f"asked again: {clean(problem)}"
        case ev.AgentToolStarted():
            return f"{clean(latest.name, 80)} {_input_text(latest.input)}".rstrip()
        case ev.AgentToolCompleted(ok=False):
            return f"{clean(latest.name or 'a tool', 80)} failed: {last_line(latest.output)}"
        case ev.AgentPermission(decision="denied"):
            return f"denied {clean(latest.tool, 80)}: {clean(latest.reason)}".rstrip(": ")
        case ev.AgentCompaction(phase="started"):
            return "compacts its session"
        case ev.AgentRetry() | ev.AgentLimit():
            return backend_notice_text(latest)
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
            return "" if event.status == "allowed" else f"limit of its backend{_limit(event)}"


def _input_text(value: Any) -> str:
    """The first text in a tool's input: a command, a path, a query."""
    texts = value.values() if hasattr(value, "values") else (value,)
    text = next((text for text in texts if isinstance(text, str)), "")
    return clean(text, 120)


def _limit(event: ev.AgentLimit) -> str:
    """``: five hour 90% used, opens again at 14:32 (in 3 min)``."""
    window = f": {clean(event.window.replace('_', ' '), 80)}" if event.window else ""
    state = event.status if event.used is None else f"{event.used:.0%} used"
    opens = (
        "" if event.reset_at is None else f", opens again {_reset_text(event.reset_at, event.at)}"
    )
    return f"{window} {state}{opens}"
