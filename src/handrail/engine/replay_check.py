"""Whether today's code still replays a recorded run; nothing is performed, nothing is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from handrail.engine.executor import Engine
from handrail.engine.step_names import yielded_at
from handrail.model import events as ev
from handrail.model.definition import WorkflowDefinition
from handrail.model.history import Divergence, ReplayReport
from handrail.model.paths import all_above
from handrail.model.plan import Plan
from handrail.model.results import WaitsFor, WorkflowResult
from handrail.ports.journal import waits_of
from handrail.record.comparing import equal
from handrail.record.dropped import begun
from handrail.record.reading import ended, refuse_other_workflow
from handrail.typed.jsonsafe import short_repr

_TRAILING = (ev.RollbackStarted, ev.RollbackCompleted, ev.LimitReached)


async def replayed(
    engine: Engine, history: Sequence[ev.Event], definition: WorkflowDefinition
) -> ReplayReport:
    """The code of a workflow against a recorded run of it.

    Raises:
        WrongUse: it is a run of another workflow.
    """
    refuse_other_workflow(history, definition)
    last = ended(history)
    entered = _to_be_entered(_before_its_end(history, last))
    plan, finished = await engine.rehearsed(entered, definition, is_strict=True)
    found = (
        _changed(plan, definition)
        or _other_course(plan, history, definition, is_over=last is not None)
        or _other_end(finished, last, engine.parts.journal.codec.identity, waits_of(history))
    )
    return ReplayReport(history[0].run_id, found)


def _before_its_end(
    history: Sequence[ev.Event], last: ev.WorkflowCompleted | None
) -> Sequence[ev.Event]:
    """The history as if the process had died when the code was through."""
    if last is None:
        return history
    end = next(index for index, event in enumerate(history) if event is last)
    if last.status == "cancelled":
        asked = (i for i in range(end, -1, -1) if isinstance(history[i], ev.CancelRequested))
        return history[: next(asked, end)]
    while isinstance(history[end - 1], _TRAILING):
        end -= 1
    return history[:end]


_ENTERED = frozenset({"parallel", "for_each", "subworkflow", "branch", "scope"})


def _to_be_entered(history: Sequence[ev.Event]) -> list[ev.Event]:
    """The same without the ends of composites that succeeded: on a resume those count, and here the
    steps in them are to be looked at, too.
    """
    if any(isinstance(event, ev.RollbackStarted) for event in history):
        return list(history)  # an end that is not there is one that rollbacks have begun for
    composites = {
        event.path
        for event in history
        if isinstance(event, ev.StepStarted) and event.step_type in _ENTERED
    }

    def counts(event: ev.Event) -> bool:
        if isinstance(event, ev.MemberCompleted):
            return not event.result.success
        if isinstance(event, ev.StepCompleted):
            return event.path not in composites or not event.result.success
        return not isinstance(event, ev.SubworkflowEnded)

    return [event for event in history if counts(event)]


def _changed(plan: Plan, definition: WorkflowDefinition) -> Divergence | None:
    for one in plan.changes:
        return Divergence(one.path, one.was, one.now, yielded_at(definition, one.path))
    return None


def _other_course(
    plan: Plan, history: Sequence[ev.Event], definition: WorkflowDefinition, *, is_over: bool
) -> Divergence | None:
    """A step that the code comes to where the run did not, or one that it does not come to."""
    known = begun(history)
    left = [one.path for one in plan.steps if one.state == "orphaned" or not one.reached]
    new = [one for one in plan.steps if one.state == "will run" and one.path not in known]
    if new and (is_over or left):
        one = new[0]
        kind = one.step_type or "step"
        return Divergence(one.path, "no such step", kind, yielded_at(definition, one.path))
    if left:
        seen = {one.path for one in plan.steps if one.path not in left}
        above = [one for one in all_above(left[0], known) if one not in seen]
        path = [left[0], *above][-1]
        kind = next((one.step_type for one in plan.steps if one.path == left[0]), "step")
        return Divergence(path, kind, "no such step", yielded_at(definition, path))
    return None


def _other_end(
    finished: WorkflowResult[Any] | None,
    last: ev.WorkflowCompleted | None,
    identity: Any,
    waits: Sequence[WaitsFor],
) -> Divergence | None:
    if finished is None or (last is not None and last.status == "cancelled"):
        return None
    now = _end(finished.status, finished.value, finished.error)
    if last is None:  # it may have been killed when all was done, but not while it waited
        asked = next((str(one) for one in waits if one.kind in {"answer", "signal"}), None)
        return Divergence("", f"waiting for {asked}", now) if asked else None
    was = _end(last.status, last.value, last.error)
    same = finished.status == last.status and equal(finished.value, last.value, identity)
    return None if same else Divergence("", was, now)


def _end(status: str, value: Any, error: str | None) -> str:
    return f"{status} with {short_repr(value)}" if error is None else f"{status}: {error}"
