"""Events as plain lines, for logs and pipes: what a person would want to find there later.

In a group of up to ``MAX_VERBOSE_MEMBERS`` members each member has its own lines. A larger group
reports its progress at each tenth. Only its failures have their own lines (again up to
``MAX_VERBOSE_MEMBERS``), so that a group of 10,000 leaves a readable log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

from handrail.model import events as ev
from handrail.model.events import RunSuspended, WorkflowCompleted
from handrail.model.results import StepResult
from handrail.record.live_view import LiveRun, LiveStep
from handrail.record.view import FailureCause, end_view
from handrail.shortening import clean, reason_of
from handrail.sinks.console_text import (
    TONES,
    Glyphs,
    Line,
    Span,
    Tone,
    counted,
    duration,
    local_text,
    path_text,
    until,
)
from handrail.sinks.console_words import (
    at_line,
    cause_in_short,
    error_lines,
    origin_from,
    step_words,
    usage_text,
)
from handrail.sinks.event_words import (
    FORMS,
    Form,
    activity_text,
    backend_notice_text,
    question_of,
    size_text,
    unrolled_texts,
)
from handrail.steps.table import verb_of

QUIET_S = 30.0
"""Seconds, in the time of the events, between two lines for backend notices of one kind."""

_MAX_KEPT = 1_000


class NoticeThrottle:
    """When each kind of backend notice was last printed, and how many came since. Mutable."""

    def __init__(self) -> None:
        self._last_printed: dict[tuple[str, type, str], tuple[float, int]] = {}

    def text_if_due(self, event: ev.AgentRetry | ev.AgentLimit, path: str) -> str:
        """The notice's text for ``path``; empty if it has none, or its kind was printed lately."""
        text = backend_notice_text(event)
        if not text:
            return ""
        kind = f"{event.status} {event.window}" if isinstance(event, ev.AgentLimit) else ""
        key = (path, type(event), kind)
        at, since = self._last_printed.pop(key, (None, 0))  # so that the oldest comes first
        if at is not None and event.at - at < QUIET_S:
            self._last_printed[key] = (at, since + 1)
            return ""
        self._last_printed[key] = (event.at, 0)
        if len(self._last_printed) > _MAX_KEPT:
            del self._last_printed[next(iter(self._last_printed))]
        return f"{text} ({since} more since the last line)" if since else text


MAX_VERBOSE_MEMBERS = 20
REPORT_EVERY_MEMBERS = 500
"""A group of unknown size reports after this many members."""


_LINES_OF_A_RETRY = 4


def _form_of(event: ev.Event) -> Form:
    form = FORMS[type(event)]
    match event:
        case ev.RollbackCompleted(error=str()):
            return replace(form, sign="failed", tone=None)
        case ev.LadderStep(parked=False) if event.due <= event.at:
            return replace(form, sign="again")
        case _:
            return form


class PlainLog:
    """Turns the events of one drive into lines, after its view has applied them. Mutable."""

    def __init__(self, glyphs: Glyphs) -> None:
        self._glyphs = glyphs
        self._failed: dict[str, tuple[ev.AttemptFailed, FailureCause | None]] = {}
        """By path, the last failed attempt, until it is known whether another follows."""
        self._replayed = 0
        self._throttle = NoticeThrottle()
        self._alive: dict[str, tuple[float, float]] = {}
        """By path, when a step at work began, and when it is due for a line."""
        self._groups_with_failures: dict[str, None] = {}
        """Paths of large groups with failed members: the steps in those members have no lines."""

    def lines(self, event: ev.Event | ev.Progress, step: LiveStep | None) -> list[Line]:
        """The lines for this event, mostly none; ``step`` is the step that it is about."""
        lines_of = self._LINES.get(type(event))
        is_end = isinstance(event, ev.DriveEnded)
        if lines_of is None and not is_end:
            return []
        lines = [] if lines_of is None else lines_of(self, event, step)
        if self._replayed and not isinstance(event, ev.StepReplayed):
            taken = f"{counted(self._replayed, 'step')} taken from the record"
            lines.insert(0, (Span(f"{self._glyphs.started} {taken}", "dim"),))
            self._replayed = 0
        return lines

    def long_running(self, run: LiveRun, now: float) -> list[Line]:
        """Lines on steps that have been at work for a minute, two, four and so on."""
        lines: list[Line] = []
        before, self._alive = self._alive, {}
        for step in run.at_work():
            path, began = step.path, step.started_at
            known = before.get(path, (began, began + QUIET_S * 2))
            due = known[1] if known[0] == began else began + QUIET_S * 2
            if now >= due and len(lines) < MAX_VERBOSE_MEMBERS:
                spent, activity = now - began, activity_text(step.latest)
                message = f"at work for {duration(spent)}, since {local_text(began, '%H:%M')}"
                message += f": {activity}" if activity else ""
                lines.append(self._line("started", path_text(path), step.kind, message, tone="dim"))
                due = began + spent * 2
            self._alive[path] = (began, due)
        return lines

    def _format_event(self, event: ev.Event, step: LiveStep | None) -> list[Line]:
        form = _form_of(event)
        if not form.in_large_groups and _is_in_large_group(step):
            return []
        subject = path_text(getattr(event, "path", "")) or f"run {clean(event.run_id)}"
        return [self._line(form.sign, subject, form.kind, form.text(event), tone=form.tone)]

    # -- the run -----------------------------------------------------------------------------

    def _run_started(self, event: ev.WorkflowStarted, _: object) -> list[Line]:
        name = clean(event.workflow_name)
        return [self._line("started", name, "", f"started, run {clean(event.run_id)}")]

    def _sink_dropped(self, event: ev.SinkDropped, _: object) -> list[Line]:
        return [self._line("failed", clean(event.sink), "sink", f"dropped: {clean(event.error)}")]

    # -- steps -------------------------------------------------------------------------------

    def _step_started(self, event: ev.StepStarted, step: LiveStep | None) -> list[Line]:
        verb = verb_of(event.step_type)
        if verb.reported_later or event.verdict is False:
            return []
        if "/" in event.path and verb.leaf:
            return []
        if _is_in_large_group(step):
            return []
        return [self._line("started", path_text(event.path), event.step_type)]

    def _step_completed(self, event: ev.StepCompleted, step: LiveStep) -> list[Line]:
        result = event.result
        lines: list[Line] = []
        failed, cause = self._failed.pop(event.path, (None, None))
        if failed is not None and result.attempts > failed.attempt:
            lines += self._retried(failed, cause, step)
        lines += self._member_of_group_ended(event.path, result, step)
        if not _is_in_large_group(step):
            counts = self._counts(step) if verb_of(step.kind).grouped else ""
            lines += self._ended(event.path, result, step, counts)
        return lines

    def _attempt_failed(self, event: ev.AttemptFailed, step: LiveStep | None) -> list[Line]:
        """Held back until another attempt follows; if none does, the step's end has the error."""
        before, cause = self._failed.get(event.path, (None, None))
        self._failed[event.path] = (event, None if step is None else step.problem)
        return [] if before is None else self._retried(before, cause, step)

    def _retried(
        self,
        event: ev.AttemptFailed,
        cause: FailureCause | None,
        step: LiveStep | None,
        when: str = "",
    ) -> list[Line]:
        if _is_in_large_group(step):
            return []
        if cause is not None and (inner := self._in_log(cause)).inner is not None:
            error = [origin_from(inner, event.path)]
        else:
            error = error_lines(event.error, event.error_type, most=_LINES_OF_A_RETRY) or [""]
        text = f"attempt {event.attempt} failed, retrying{when}: {error[0]}"
        return [
            self._line("again", path_text(event.path), "", text, tone="warn"),
            *((Span(line),) for line in error[1:]),
        ]

    def _step_replayed(self, event: ev.StepReplayed, _: object) -> list[Line]:
        del event
        self._replayed += 1
        return []

    # -- groups ------------------------------------------------------------------------------

    def _group_started(self, event: ev.GroupStarted, step: LiveStep | None) -> list[Line]:
        if _is_in_large_group(step):
            return []
        return [self._line("started", path_text(event.path), event.kind, size_text(event))]

    def _member_completed(self, event: ev.MemberCompleted, step: LiveStep) -> list[Line]:
        lines = self._member_of_group_ended(event.path, event.result, step)
        if not _is_in_large_group(step):
            lines += self._ended(event.path, event.result, step)
        return lines

    def _member_of_group_ended(
        self, path: str, result: StepResult[Any], step: LiveStep
    ) -> list[Line]:
        """In a large group, a line if the member failed, and at times one with the progress."""
        group = step.parent
        if group is None or not _is_large(group):
            return []
        lines: list[Line] = []
        if result.status == "failed" and group.count("failed") <= MAX_VERBOSE_MEMBERS:
            self._groups_with_failures[path.rpartition("/")[0]] = None
            if len(self._groups_with_failures) > _MAX_KEPT:
                del self._groups_with_failures[next(iter(self._groups_with_failures))]
            lines += self._ended(path, result, step)
        ended, size = group.ended, group.size
        every = REPORT_EVERY_MEMBERS if size is None else max(1, size // 10)
        if ended % every == 0 and (size is None or ended < size):
            line = self._line(
                "started", path_text(group.path), group.kind, self._counts(group), tone="dim"
            )
            lines.append(line)
        return lines

    def _counts(self, group: LiveStep) -> str:
        return f" {self._glyphs.dot} ".join(text for text, _ in group.counts(live=False))

    # -- gates and timers --------------------------------------------------------------------

    def _timer_set(self, event: ev.TimerSet, step: LiveStep | None) -> list[Line]:
        if event.reason == "retry":
            failed, cause = self._failed.pop(event.path, (None, None))
            when = f" {until(event.due, event.at)}"
            return [] if failed is None else self._retried(failed, cause, step, when)
        if event.reason not in {"sleep", "cap"} or _is_in_large_group(step):
            return []
        note = None if step is None else step.note
        if event.reason == "cap" and isinstance(note, ev.LadderStep) and note.due == event.due:
            return []  # the line of the ladder's step has said why and until when
        kind = "sleep" if event.reason == "sleep" else "waits for a limit"
        return [self._line("waiting", path_text(event.path), kind, until(event.due, event.at))]

    # -- agents ------------------------------------------------------------------------------

    def _backend_notice(
        self, event: ev.AgentRetry | ev.AgentLimit, step: LiveStep | None
    ) -> list[Line]:
        group = _outermost_large_group(step)
        path = event.path if group is None else group.path
        text = self._throttle.text_if_due(event, path)
        sign = "again" if isinstance(event, ev.AgentRetry) else "waiting"
        return [self._line(sign, path_text(path), "", text, tone="warn")] if text else []

    # -- lines -------------------------------------------------------------------------------

    def _ended(
        self, path: str, result: StepResult[Any], step: LiveStep, counts: str = ""
    ) -> list[Line]:
        cause = None if step.problem is None else self._in_log(step.problem)
        view = replace(end_view(result, cause), path=step.path)
        words, others = step_words(view, self._glyphs, counts=counts)
        kind = "" if result.step_type == "member" else result.step_type
        line = self._line(result.status, path_text(path), kind, "  ".join(words))
        return [line, *((Span(text),) for text in others)]

    def _in_log(self, cause: FailureCause) -> FailureCause:
        """The failure, without those of its inner failures that have no lines in this log."""
        if cause.inner is None:
            return cause
        has_no_lines = cause.path.rpartition("/")[0] in self._groups_with_failures
        return replace(cause, inner=None if has_no_lines else self._in_log(cause.inner))

    def _line(
        self, sign: str, subject: str, kind: str, message: str = "", *, tone: Tone | None = None
    ) -> Line:
        spans = [
            Span(f"{self._glyphs.of(sign)} ", tone or TONES.get(sign, "dim")),
            Span(subject, "name"),
        ]
        if kind:
            spans.append(Span(f"  {kind}", "dim"))
        if message:
            spans.append(Span(f"  {message}", "bad" if sign == "failed" else "plain"))
        return tuple(spans)

    _LINES: ClassVar[dict[type, Callable[[Any, Any, Any], list[Line]]]] = {
        **dict.fromkeys((kind for kind, form in FORMS.items() if form.sign), _format_event),
        ev.WorkflowStarted: _run_started,
        ev.SinkDropped: _sink_dropped,
        ev.StepStarted: _step_started,
        ev.StepCompleted: _step_completed,
        ev.AttemptFailed: _attempt_failed,
        ev.StepReplayed: _step_replayed,
        ev.GroupStarted: _group_started,
        ev.MemberCompleted: _member_completed,
        ev.TimerSet: _timer_set,
        ev.AgentRetry: _backend_notice,
        ev.AgentLimit: _backend_notice,
    }


def _is_large(group: LiveStep) -> bool:
    size = group.ended if group.size is None else group.size
    return verb_of(group.kind).grouped and size > MAX_VERBOSE_MEMBERS


def _is_in_large_group(step: LiveStep | None) -> bool:
    """True for a step inside a large group: the lines of the group stand for it."""
    return _outermost_large_group(step) is not None


def _outermost_large_group(step: LiveStep | None) -> LiveStep | None:
    found = None
    above = None if step is None else step.parent
    while above is not None:
        found = above if _is_large(above) else found
        above = above.parent
    return found


_STATES = ("failed", "cancelled", "defaulted", "skipped")


def ending(run: LiveRun, event: ev.DriveEnded, glyphs: Glyphs) -> Line:
    """The closing line of a drive: status, time, counts, the failure or the waits, the run's id."""
    status = "suspended" if isinstance(event, RunSuspended) else event.status
    spent = max(0.0, event.at - run.root.started_at)
    if isinstance(event, WorkflowCompleted) and event.duration_ms:
        spent = event.duration_ms / 1000
    took = f"{'after' if status == 'suspended' else 'in'} {duration(spent)}"
    parts = [took, _ended_counts(run)]
    if run.usage is not None:
        parts.append(usage_text(run.usage))
    parts += _waits(event) if isinstance(event, RunSuspended) else _failures(run, event)
    parts.append(f"run {clean(run.run_id)}")
    dot = f" {glyphs.dot} "
    return (
        Span(f"{glyphs.of(status)} ", TONES[status]),
        Span(f"{run.workflow_name} ", "name"),
        Span(status, TONES[status]),
        Span(" " + dot.join(part for part in parts if part)),
    )


def _ended_counts(run: LiveRun) -> str:
    total = sum(run.ended.values())
    parts = [f"{run.ended[state]} {state}" for state in _STATES if run.ended.get(state)]
    message = counted(total, "step")
    if parts:
        message += f" ({', '.join(parts)})"
    return f"{message}, {run.replayed} from the record" if run.replayed else message


def error_below(run: LiveRun, event: ev.DriveEnded, *, steps_logged: bool) -> list[Line]:
    """The whole error that a run ended with, if it has several lines; all but the first indented.

    ``steps_logged``: the errors of steps were printed when the steps ended.
    """
    cause = run.cause
    if isinstance(event, RunSuspended) or (steps_logged and cause is not None):
        return []
    path, error, error_type = "", event.error, None
    if cause is not None:
        origin = cause.origin
        path, error, error_type = origin.path, origin.error, origin.error_type
    first, *others = error_lines(error, error_type) or [""]
    if not others:
        return []
    subject = (Span(f"{path_text(path)}  ", "name"),) if path else ()
    return [(*subject, Span(first, "bad")), *((Span(line),) for line in others)]


def _failures(run: LiveRun, event: WorkflowCompleted) -> list[str]:
    parts: list[str] = []
    error = reason_of(event.error or "")
    step = event.failed_step
    if run.cause is not None and run.cause.inner is not None:
        parts.append(cause_in_short(run.cause))
    elif error:
        where = "" if run.cause is None else at_line(run.cause)
        parts.append((error if not step or step in error else f"{clean(step)}: {error}") + where)
    unrolled = unrolled_texts(event.rollback_errors)
    more = [f"{len(unrolled) - 3} more were not rolled back"] if len(unrolled) > 3 else []
    return [*parts, *unrolled[:3], *more]


def _waits(event: RunSuspended) -> list[str]:
    gates = [f"{clean(gate.path, 80)}: {question_of(gate)}" for gate in event.waiting[:3]]
    if len(event.waiting) > len(gates):
        gates.append(f"{len(event.waiting) - len(gates)} more")
    parts = [f"waiting for {'; '.join(gates)}"] if gates else []
    if event.signals:
        signals = ", ".join(clean(name, 80) for name in event.signals[:3])
        parts.append(f"waiting for signal {signals}")
    if event.reason and event.reason != "waiting":
        parts.append(clean(event.reason))
    return parts
