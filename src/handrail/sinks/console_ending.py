"""The one line with which the console closes a drive."""

from __future__ import annotations

from handrail.model.events import RunSuspended, WorkflowCompleted
from handrail.sinks.console_errors import error_lines, first_line
from handrail.sinks.console_text import TONES, Glyphs, Line, Span, clean, counted, duration
from handrail.sinks.console_tree import ConsoleTree, question_of

_STATES = ("failed", "cancelled", "defaulted", "skipped")


def ending(tree: ConsoleTree, event: WorkflowCompleted | RunSuspended, glyphs: Glyphs) -> Line:
    """Status, time, counts, what failed and why or what is waited for, and the run's id."""
    status = "suspended" if isinstance(event, RunSuspended) else event.status
    spent = max(0.0, event.at - tree.root.started_at)
    if isinstance(event, WorkflowCompleted) and event.duration_ms:
        spent = event.duration_ms / 1000
    took = f"{'after' if status == 'suspended' else 'in'} {duration(spent)}"
    parts = [took, _counts(tree)]
    parts += _waits(event) if isinstance(event, RunSuspended) else _failures(tree, event)
    parts.append(f"run {clean(tree.run_id)}")
    dot = f" {glyphs.dot} "
    return (
        Span(f"{glyphs.of(status)} ", TONES[status]),
        Span(f"{tree.workflow_name} ", "name"),
        Span(status, TONES[status]),
        Span(" " + dot.join(part for part in parts if part)),
    )


def _counts(tree: ConsoleTree) -> str:
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
