"""Events as plain lines, for logs and pipes: what a person would want to find there later.

Members of a group speak for themselves up to ``LOUD`` of them. After that the group reports at each
tenth of its way, and only its failures have lines of their own (again up to ``LOUD``), so that a
group of 10,000 leaves a log one can read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar

from handrail.model import events as ev
from handrail.model.events import RunSuspended, WorkflowCompleted
from handrail.model.results import Skipped, StepResult
from handrail.sinks.console_node import GROUPS, LEAVES
from handrail.sinks.console_text import (
    TONES,
    Glyphs,
    Line,
    Span,
    Tone,
    clean,
    counted,
    duration,
    error_text,
    until,
)
from handrail.sinks.console_tree import ConsoleTree, question_of
from handrail.sinks.console_words import (
    Causes,
    budget_text,
    error_lines,
    first_line,
    heard_text,
    ladder_text,
    whose_budget,
)

QUIET_S = 30.0
"""Notices of one kind have a line so often, by the time of the events."""

_KEPT = 1_000


class Heard:
    """When each kind of notice was last told, and how many have come since. Mutable."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, type, str], tuple[float, int]] = {}

    def worth_saying(self, event: ev.AgentRetry | ev.AgentLimit, path: str) -> str:
        """What to say of it for ``path``; empty if it says nothing, or the like was said lately."""
        text = heard_text(event)
        if not text:
            return ""
        kind = f"{event.status} {event.window}" if isinstance(event, ev.AgentLimit) else ""
        key = (path, type(event), kind)
        at, since = self._told.pop(key, (None, 0))  # so that the oldest stands first
        if at is not None and event.at - at < QUIET_S:
            self._told[key] = (at, since + 1)
            return ""
        self._told[key] = (event.at, 0)
        if len(self._told) > _KEPT:
            del self._told[next(iter(self._told))]
        return f"{text} ({since} more since the last line)" if since else text


LOUD = 20
EVERY = 500
"""A group of unknown size reports after this many members."""

_TOLD_LATER = GROUPS | {"ask", "sleep"}  # an event of their own says more than their start


_ATTEMPT = re.compile(r"~\d+\Z")

_LINES_OF_A_RETRY = 4


class _Group:
    """How far a group has come. Mutable."""

    __slots__ = ("ended", "failed", "kind", "size", "told")

    def __init__(self, kind: str, size: int | None) -> None:
        self.kind = kind
        self.size = size
        self.ended = self.failed = self.told = 0

    @property
    def is_large(self) -> bool:
        return self.ended > LOUD if self.size is None else self.size > LOUD


class PlainLog:
    """Turns the events of one drive into lines. Mutable."""

    def __init__(self, glyphs: Glyphs) -> None:
        self._glyphs = glyphs
        self._groups: dict[str, _Group] = {}
        self._failed: dict[str, ev.AttemptFailed] = {}
        self._replayed = 0
        self._due: dict[str, float] = {}
        self._causes = Causes()
        self._heard = Heard()

    def lines(self, event: ev.Event | ev.Progress) -> list[Line]:
        """What to say about this event; mostly nothing."""
        tell = self._TELL.get(type(event))
        if tell is None:
            return []
        lines = tell(self, event)
        if self._replayed and not isinstance(event, ev.StepReplayed):
            told = f"{counted(self._replayed, 'step')} taken from the record"
            lines.insert(0, (Span(f"{self._glyphs.started} {told}", "dim"),))
            self._replayed = 0
        return lines

    # -- the run -----------------------------------------------------------------------------

    def _run_started(self, event: ev.WorkflowStarted) -> list[Line]:
        name = clean(event.workflow_name)
        return [self._line("started", name, "", f"started, run {clean(event.run_id)}")]

    def _run_resumed(self, event: ev.RunResumed) -> list[Line]:
        told = "resumed"
        if event.superseded:
            told += f", {counted(len(event.superseded), 'step')} to run again"
        return [self._line("started", f"run {clean(event.run_id)}", "", told)]

    def _cancel_requested(self, event: ev.CancelRequested) -> list[Line]:
        return [self._line("cancelled", "cancelling", "", clean(event.reason))]

    def _limit_reached(self, event: ev.LimitReached) -> list[Line]:
        where = clean(event.path) or "the run"
        told = f"reached the limit {clean(event.name)}={clean(event.value)}"
        return [self._line("failed", where, "", told)]

    def _sink_dropped(self, event: ev.SinkDropped) -> list[Line]:
        return [self._line("failed", clean(event.sink), "sink", f"dropped: {clean(event.error)}")]

    # -- steps -------------------------------------------------------------------------------

    def _step_started(self, event: ev.StepStarted) -> list[Line]:
        if event.step_type in _TOLD_LATER or event.verdict is False:
            return []
        if "/" in event.path and event.step_type in LEAVES:
            return []
        if self._is_hushed(event.path):
            return []
        return [self._line("started", clean(event.path), event.step_type)]

    def _step_completed(self, event: ev.StepCompleted) -> list[Line]:
        result = event.result
        lines: list[Line] = []
        failed = self._failed.pop(event.path, None)
        if failed is not None and result.attempts > failed.attempt:
            lines += self._retried(failed, "")
        group = self._groups.pop(event.path, None)
        lines += self._member_of_group_ended(event.path, result)
        if not self._is_hushed(event.path):
            lines += self._ended(event.path, result, "" if group is None else _counts(group))
        return lines

    def _attempt_failed(self, event: ev.AttemptFailed) -> list[Line]:
        """Said when it turns out that another attempt follows; else the step's end says it."""
        before = self._failed.get(event.path)
        self._failed[event.path] = event
        return [] if before is None else self._retried(before, "")

    def _retried(self, event: ev.AttemptFailed, when: str) -> list[Line]:
        if self._is_hushed(event.path):
            return []
        cause = self._causes.below(event.path, event.error)
        told = f"attempt {event.attempt} failed, again{when}: "
        if cause is not None:
            error = [cause.named(event.path)]
        else:
            error = error_lines(event.error, event.error_type, most=_LINES_OF_A_RETRY) or [""]
        line = self._line("again", clean(event.path), "", told + error[0], tone="warn")
        return [line, *_below(error)]

    def _interrupted(self, event: ev.StepInterrupted) -> list[Line]:
        reason = f": {clean(event.reason)}" if event.reason else ""
        return [self._line("interrupted", clean(event.path), "", f"interrupted{reason}")]

    def _step_replayed(self, event: ev.StepReplayed) -> list[Line]:
        del event
        self._replayed += 1
        return []

    # -- groups ------------------------------------------------------------------------------

    def _group_started(self, event: ev.GroupStarted) -> list[Line]:
        self._groups[event.path] = _Group(event.kind, event.size)
        if self._is_hushed(event.path):
            return []
        members = "" if event.size is None else counted(event.size, "member")
        return [self._line("started", clean(event.path), event.kind, members)]

    def _group_completed(self, event: ev.GroupCompleted) -> list[Line]:
        group = self._groups.get(event.path)
        if group is not None:
            group.ended, group.failed, group.size = event.total, event.failed, event.total
        return []

    def _member_completed(self, event: ev.MemberCompleted) -> list[Line]:
        lines = self._member_of_group_ended(event.path, event.result)
        if not self._is_hushed(event.path):
            lines += self._ended(event.path, event.result)
        return lines

    def _member_of_group_ended(self, path: str, result: StepResult[Any]) -> list[Line]:
        """Count it; in a large group, say it if it failed, and how far the group has come."""
        above = path.rpartition("/")[0]
        group = self._group_at(above)
        if group is None:
            return []
        group.ended += 1
        lines: list[Line] = []
        if result.status == "failed":
            group.failed += 1
            if group.is_large and group.failed <= LOUD:
                lines += self._ended(path, result)
        if group.is_large and group.ended < (group.size or group.ended + 1):
            step = EVERY if group.size is None else max(1, group.size // 10)
            if group.ended // step > group.told:
                group.told = group.ended // step
                told = _counts(group)
                lines.append(self._line("started", clean(above), group.kind, told, tone="dim"))
        return lines

    def _is_hushed(self, path: str) -> bool:
        """True for what lies inside a large group: the group speaks for it."""
        if not self._groups:
            return False
        above = path.rpartition("/")[0]
        while above:
            group = self._group_at(above)
            if group is not None and group.is_large:
                return True
            above = above.rpartition("/")[0]
        return False

    def _group_at(self, path: str) -> _Group | None:
        """The group whose members live at this path: its own, or that of a later attempt."""
        return self._groups.get(path) or self._groups.get(_ATTEMPT.sub("", path))

    # -- waiting, undoing --------------------------------------------------------------------

    def _gate_opened(self, event: ev.GateOpened) -> list[Line]:
        deadline = event.gate.deadline
        by = "" if deadline is None else f", answer {until(deadline, event.at)}"
        question = f"{question_of(event.gate)}{by}"
        return [self._line("waiting", clean(event.path), "ask", question)]

    def _gate_answered(self, event: ev.GateAnswered) -> list[Line]:
        who = f" by {clean(event.by)}" if event.by else ""
        return [self._line("started", clean(event.path), "", f"answered{who}")]

    def _timer_set(self, event: ev.TimerSet) -> list[Line]:
        if event.reason == "retry":
            failed = self._failed.pop(event.path, None)
            when = f" {until(event.due, event.at)}"
            return [] if failed is None else self._retried(failed, when)
        if event.reason not in {"sleep", "cap"} or self._is_hushed(event.path):
            return []
        if event.reason == "cap" and self._due.pop(event.path, None) == event.due:
            return []  # it was said why and until when
        kind = "sleep" if event.reason == "sleep" else "waits for a limit"
        return [self._line("waiting", clean(event.path), kind, until(event.due, event.at))]

    # -- agents ------------------------------------------------------------------------------

    def _ladder_step(self, event: ev.LadderStep) -> list[Line]:
        self._due[event.path] = event.due
        if self._is_hushed(event.path):
            return []
        sign = "waiting" if event.parked or event.due > event.at else "again"
        return [self._line(sign, clean(event.path), "", ladder_text(event), tone="warn")]

    def _heard_of_backend(self, event: ev.AgentRetry | ev.AgentLimit) -> list[Line]:
        path = self._speaker_for(event.path)
        told = self._heard.worth_saying(event, path)
        sign = "again" if isinstance(event, ev.AgentRetry) else "waiting"
        return [self._line(sign, clean(path), "", told, tone="warn")] if told else []

    def _speaker_for(self, path: str) -> str:
        """The path itself, or the outermost large group that speaks for what lies inside it."""
        if self._groups:
            for index, character in enumerate(path):
                if character == "/":
                    group = self._group_at(path[:index])
                    if group is not None and group.is_large:
                        return path[:index]
        return path

    def _budget_warning(self, event: ev.BudgetWarning) -> list[Line]:
        return [self._line("started", whose_budget(event), "", budget_text(event), tone="warn")]

    def _budget_raised(self, event: ev.BudgetRaised) -> list[Line]:
        return [self._line("started", whose_budget(event), "", "as much again is allowed")]

    def _signal_received(self, event: ev.SignalReceived) -> list[Line]:
        who = f" from {clean(event.by)}" if event.by else ""
        return [self._line("started", f"signal {clean(event.name)}", "", f"received{who}")]

    def _rollback_completed(self, event: ev.RollbackCompleted) -> list[Line]:
        path = clean(event.path)
        if event.error is None:
            return [self._line("undo", path, "", "rolled back", tone="warn")]
        error = error_text(event.error, event.error_type)
        return [self._line("failed", path, "", f"rollback failed: {error}")]

    # -- lines -------------------------------------------------------------------------------

    def _ended(self, path: str, result: StepResult[Any], counts: str = "") -> list[Line]:
        parts: list[str] = [] if result.status == "succeeded" else [result.status]
        if counts:
            parts.append(counts)
        if result.attempts > 1:
            parts.append(f"{self._glyphs.times}{result.attempts}")
        if result.status != "skipped":
            parts.append(duration(result.duration_ms / 1000))
        error = self._why(path, result)
        if not error and isinstance(result.output, Skipped):
            error = [clean(result.output.reason)]
        told = "  ".join([*parts, *error[:1]])
        kind = "" if result.step_type == "member" else result.step_type
        line = self._line(result.status, clean(path), kind, told)
        return [line, *_below(error)] if len(error) > 1 else [line]

    def _why(self, path: str, result: StepResult[Any]) -> list[str]:
        """The lines of its error; of one that was told at a step inside, only where that is."""
        if result.error is None and result.error_type is None:
            return []
        cause = self._causes.ended(path, result)
        if cause.inner is not None:
            return [cause.named(path)]
        return error_lines(result.error, result.error_type)

    def _line(
        self, sign: str, subject: str, kind: str, told: str = "", *, tone: Tone | None = None
    ) -> Line:
        spans = [
            Span(f"{self._glyphs.of(sign)} ", tone or TONES.get(sign, "dim")),
            Span(subject, "name"),
        ]
        if kind:
            spans.append(Span(f"  {kind}", "dim"))
        if told:
            spans.append(Span(f"  {told}", "bad" if sign == "failed" else "plain"))
        return tuple(spans)

    _TELL: ClassVar[dict[type, Callable[[Any, Any], list[Line]]]] = {
        ev.WorkflowStarted: _run_started,
        ev.RunResumed: _run_resumed,
        ev.WorkflowCompleted: lambda _, __: [],
        ev.RunSuspended: lambda _, __: [],
        ev.CancelRequested: _cancel_requested,
        ev.LimitReached: _limit_reached,
        ev.SinkDropped: _sink_dropped,
        ev.StepStarted: _step_started,
        ev.StepCompleted: _step_completed,
        ev.AttemptFailed: _attempt_failed,
        ev.StepInterrupted: _interrupted,
        ev.StepReplayed: _step_replayed,
        ev.GroupStarted: _group_started,
        ev.GroupCompleted: _group_completed,
        ev.MemberCompleted: _member_completed,
        ev.GateOpened: _gate_opened,
        ev.GateAnswered: _gate_answered,
        ev.TimerSet: _timer_set,
        ev.SignalReceived: _signal_received,
        ev.RollbackCompleted: _rollback_completed,
        ev.LadderStep: _ladder_step,
        ev.BudgetWarning: _budget_warning,
        ev.BudgetRaised: _budget_raised,
        ev.AgentRetry: _heard_of_backend,
        ev.AgentLimit: _heard_of_backend,
    }


def _below(error: list[str]) -> list[Line]:
    """The lines of an error after its first, which stands in the line of its step."""
    return [(Span(line),) for line in error[1:]]


def _counts(group: _Group) -> str:
    of = f" of {group.size}" if group.size is not None else ""
    failed = f", {group.failed} failed" if group.failed else ""
    return f"{group.ended}{of} done{failed}"


_STATES = ("failed", "cancelled", "defaulted", "skipped")


def ending(tree: ConsoleTree, event: WorkflowCompleted | RunSuspended, glyphs: Glyphs) -> Line:
    """Status, time, counts, what failed and why or what is waited for, and the run's id."""
    status = "suspended" if isinstance(event, RunSuspended) else event.status
    spent = max(0.0, event.at - tree.root.started_at)
    if isinstance(event, WorkflowCompleted) and event.duration_ms:
        spent = event.duration_ms / 1000
    took = f"{'after' if status == 'suspended' else 'in'} {duration(spent)}"
    parts = [took, _ended_counts(tree)]
    parts += _waits(event) if isinstance(event, RunSuspended) else _failures(tree, event)
    parts.append(f"run {clean(tree.run_id)}")
    dot = f" {glyphs.dot} "
    return (
        Span(f"{glyphs.of(status)} ", TONES[status]),
        Span(f"{tree.workflow_name} ", "name"),
        Span(status, TONES[status]),
        Span(" " + dot.join(part for part in parts if part)),
    )


def _ended_counts(tree: ConsoleTree) -> str:
    total = sum(tree.steps.values())
    parts = [f"{tree.steps[state]} {state}" for state in _STATES if tree.steps.get(state)]
    told = counted(total, "step")
    if parts:
        told += f" ({', '.join(parts)})"
    return f"{told}, {tree.replayed} from the record" if tree.replayed else told


def error_below(
    tree: ConsoleTree, event: WorkflowCompleted | RunSuspended, *, told: bool
) -> list[Line]:
    """The whole error that a run ended with, if it has several lines; each after the first
    indented. ``told``: those of steps were told when they ended.
    """
    cause = tree.cause
    if isinstance(event, RunSuspended) or (told and cause is not None):
        return []
    path, error, error_type = "", event.error, None
    if cause is not None:
        origin = cause.origin
        path, error, error_type = origin.path, origin.error, origin.error_type
    first, *others = error_lines(error, error_type) or [""]
    if not others:
        return []
    subject = (Span(f"{clean(path)}  ", "name"),) if path else ()
    return [(*subject, Span(first, "bad")), *((Span(line),) for line in others)]


def _failures(tree: ConsoleTree, event: WorkflowCompleted) -> list[str]:
    parts: list[str] = []
    error = first_line(event.error or "")
    step = event.failed_step
    if tree.cause is not None and tree.cause.inner is not None:
        parts.append(tree.cause.in_short())
    elif error:
        parts.append(error if not step or step in error else f"{clean(step)}: {error}")
    if event.rollback_errors:
        undone = ", ".join(clean(error.path, 80) for error in event.rollback_errors[:3])
        parts.append(f"{counted(len(event.rollback_errors), 'rollback')} failed: {undone}")
    return parts


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
