"""Runs as JSON data for the page, in the shapes of ``web/src/api.ts``.

The data come from ``record.view``, like all that people see. The row of a step has only what the
tree shows, so that a run of 10,000 steps is sent at once; the page gets the details of a step when
somebody opens it. Times are unix seconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import cast

from handrail.model import events as ev
from handrail.model.results import OpenGate, Usage, prompts_of
from handrail.ports.journal import RunInfo
from handrail.record.spending import Spent
from handrail.record.state import RecordedRun
from handrail.record.status import shown_status
from handrail.record.view import OpenSignal, RunView, plain
from handrail.record.work_view import WorkView
from handrail.shortening import shortened
from handrail.typed.jsonsafe import Json, json_safe
from handrail.typed.schema import open_schema
from handrail.web.step_json import SHORT, step_rows

_MOST_ACTS = 200
_MOST_AT_WORK = 3
_MOST_TASKS = 100
_HOLDS_STEPS = frozenset({
    "parallel", "for_each", "race", "member", "validate", "branch", "subworkflow", "run_workflow",
    "scope", "work", "holding", "worktree",
})  # fmt: skip


def row_of(info: RunInfo, view: RunView | None = None, *, unread: str = "") -> dict[str, Json]:
    """The row of a run in a list; without the view, which may be ``unread``, it has no cost."""
    state = shown_status(info)
    spent = Spent() if view is None else view.spent
    usage = spent.usage or Usage()
    end = None if view is None else view.end
    waits = info.waits_for if view is None else view.waits_for
    return {
        "run_id": info.run_id,
        "workflow": info.workflow_name,
        "state": state,
        "started_at": info.started_at,
        "updated_at": info.updated_at,
        "duration_ms": None
        if state == "running"
        else max(0.0, info.updated_at - info.started_at) * 1000,
        "events": info.events,
        "labels": json_safe(info.labels),
        "waits_for": json_safe(waits),
        "cost_usd": usage.cost_usd,
        "tokens": usage.tokens,
        "launches": spent.launches if view is not None else None,
        "unread": unread or None,
        "error": info.damaged or (None if end is None or not end.error else end.error[:SHORT]),
        "at_work": [] if view is None else list(islice(at_work(view), _MOST_AT_WORK)),
        "forked_from": json_safe(info.forked_from),
        "holder": None
        if info.holder is None
        else {"pid": info.holder.pid, "host": info.holder.host},
    }


def at_work(view: RunView) -> Iterator[str]:
    """The paths of the steps at work that contain no other steps."""
    for step in view.steps:
        if step.state == "running" and step.step_type not in _HOLDS_STEPS:
            yield step.path


def detail_of(recorded: RecordedRun, *, steps: bool = True) -> dict[str, Json]:
    """All data of a run but the details of its steps; with the rows of its steps or without."""
    view, end = recorded.view, recorded.view.end
    gates = [_gate(one) for one in view.gates]
    return {
        "run": row_of(recorded.info, view),
        "seq": recorded.history[-1].seq,
        "inputs": json_safe(plain(view.inputs)),
        "value": None if end is None else json_safe(plain(end.value)),
        "error": None if end is None else end.error,
        "failed_step": None if end is None else end.failed_step,
        "gates": cast("Json", gates),
        "signals": [_signal(one) for one in view.signals],
        "needs": list(view.needs),
        "acts": actions_of((*recorded.history, *view.inbox)),
        "drives": [[began, _last(recorded) if end is None else end] for began, end in view.drives],
        "steps": cast("Json", step_rows(view)) if steps else [],
        "work": [_queue(one, view.inbox) for one in view.works],
    }


def _queue(work: WorkView, inbox: Iterable[ev.Event]) -> Json:
    """A queue: the first 100 of each list, its length, and the edits that the run has not read."""
    edits = [one for one in inbox if isinstance(one, ev.WorkEdited) and one.path == work.path]
    more: dict[str, Json] = {
        "queued": [_task(*one) for one in work.queued[:_MOST_TASKS]],
        "queued_count": len(work.queued),
        "running": list(work.running[:_MOST_TASKS]),
        "running_count": len(work.running),
        "refused": list(islice(dict.fromkeys(work.refused), _MOST_TASKS)),
        "refused_count": len(work.refused),
        "unread": [_edit(one) for one in edits[-_MOST_TASKS:]],
    }
    return {**work.to_dict(), **more}


def _task(task_id: str, priority: float) -> Json:
    return {"id": task_id, "priority": priority}


def _edit(event: ev.WorkEdited) -> Json:
    return {
        "add": [_task(one.id, one.priority) for one in event.add],
        "drop": list(event.drop),
        "priority": dict(event.priority),
        "by": event.by,
    }


def _last(recorded: RecordedRun) -> float | None:
    """When the last drive ended; None while a process drives the run."""
    return None if recorded.info.holder is not None else recorded.history[-1].at


def actions_of(events: Iterable[ev.Event]) -> list[Json]:
    """What people did to a run, in order: at most the last 200."""
    found = [act for event in events if (act := _act(event)) is not None]
    return list(found[-_MOST_ACTS:])


def _act(event: ev.Event) -> Json:
    what: str
    match event:
        case ev.RunSteered():
            what, path, value, by = event.action, event.path, event.value, event.by
        case ev.WorkEdited():
            edits = (
                ("add", [one.id for one in event.add]),
                ("drop", list(event.drop)),
                ("priority", dict(event.priority)),
            )
            changed: Json = {name: json_safe(ids) for name, ids in edits if ids}
            what, path, value, by = "edit", event.path, changed, event.by
        case ev.GateAnswered():
            what, path, value, by = "answer", event.path, event.answer, event.by
        case ev.SignalReceived():
            what, path, value, by = "signal", event.name, event.payload, event.by
        case ev.CancelRequested():
            what, path, value, by = "cancel", "", event.reason, None
        case _:
            return None
    said = "" if value is None else _brief(json_safe(plain(value)))
    return {"at": event.at, "action": what, "path": path, "value": said, "by": by}


def _brief(value: Json) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return shortened(text, SHORT)


def _gate(gate: OpenGate) -> dict[str, Json]:
    return {
        "path": gate.path,
        "question": gate.question,
        "choices": json_safe(plain(gate.choices)),
        "prompts": json_safe(prompts_of(gate.choices, gate.values)),
        "schema": None if gate.choices else json_safe(open_schema(gate.type)),
        "default": json_safe(plain(gate.default)),
        "has_default": gate.has_default,
        "since": gate.since,
        "deadline": gate.deadline,
    }


def _signal(wait: OpenSignal) -> Json:
    schema = None if wait.accepts is None else json_safe(open_schema(wait.accepts))
    return {"name": wait.name, "path": wait.path, "schema": schema}
