"""Builds the result of a run from its tree, its steps' results and its end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from handrail.model import events as ev
from handrail.model.events import LadderStep
from handrail.model.results import (
    Incident,
    StepResult,
    Usage,
    WorkflowResult,
    add_usage,
)


def tree_order(
    tree: Mapping[str, dict[str, None] | str],
    results: Mapping[str, StepResult[Any]],
    root: str = "",
) -> tuple[StepResult[Any], ...]:
    """Every finished step below ``root``: parents before children, children as they were yielded.

    ``tree`` maps a path to its children, or to the only one.
    """
    ordered: list[StepResult[Any]] = []
    stack = list(reversed(children_of(tree, root)))
    while stack:
        path = stack.pop()
        result = results.get(path)
        if result is not None:
            ordered.append(result)
        if path in tree:
            stack.extend(reversed(children_of(tree, path)))
    return tuple(ordered)


def children_of(tree: Mapping[str, dict[str, None] | str], path: str) -> tuple[str, ...]:
    """The child paths of a path, in order; ``tree`` may have a lone one as plain text."""
    children = tree.get(path, ())
    return (children,) if isinstance(children, str) else tuple(children)


def workflow_result(
    name: str,
    run_id: str,
    end: ev.DriveEnded,
    tree: Mapping[str, dict[str, None] | str],
    results: Mapping[str, StepResult[Any]],
    *,
    duration_ms: float,
    root: str = "",
    incidents: Iterable[Incident] = (),
) -> WorkflowResult[Any]:
    """The result of a run, or of the child workflow at ``root``, by how it ended."""
    ordered, top = tree_order(tree, results, root), children_of(tree, root)
    degraded, usage = any(result.status == "defaulted" for result in ordered), total_usage(ordered)
    if isinstance(end, ev.RunSuspended):
        is_parked = any(wait.kind == "person" for wait in end.waits_for)
        return WorkflowResult(
            name, run_id, "suspended", ordered, duration_ms, None,
            error=end.reason if is_parked else None,
            waiting=end.waiting,
            degraded=degraded,
            usage=usage,
            waiting_signals=end.signals,
            incidents=tuple(incidents),
            at=end.at,
            waits_for=end.waits_for,
        )  # fmt: skip
    return WorkflowResult(
        name, run_id, end.status, ordered, duration_ms, end.value,
        _final_output(end.value, ordered, top) if end.status == "succeeded" else None,
        end.error, end.failed_step, end.rollback_errors,
        degraded=degraded,
        usage=usage,
        error_type=end.error_type,
        traceback=end.traceback,
        orphaned=end.orphaned,
        incidents=tuple(incidents),
        at=end.at,
    )  # fmt: skip


def _final_output(value: Any, ordered: tuple[StepResult[Any], ...], top: tuple[str, ...]) -> Any:
    if value is not None or not top:
        return value
    shown = set(top)
    for result in reversed(ordered):
        if result.path in shown and result.status != "skipped":
            return result.output
    return None


def incident_of(event: LadderStep) -> Incident:
    """The incident that a result lists for a ladder step."""
    return Incident(
        event.path,
        event.at,
        event.kind,
        event.error,
        event.next.rung,
        max(0.0, event.due - event.at),
        event.parked,
        event.backend,
    )


def total_usage(results: Iterable[StepResult[Any]]) -> Usage | None:
    """What all steps consumed; None if none reported it. A sub-workflow counts by its steps."""
    total, silent = None, 0
    for result in results:
        if result.usage is None:
            silent += result.step_type == "agent" and result.status == "succeeded"
        elif result.step_type != "subworkflow":
            total = add_usage(total, result.usage)
    return total + Usage(unpriced=silent, unknown=silent) if total and silent else total
