"""What the page is told of runs, as JSON data; its shapes are those of ``web/src/api.ts``.

It is drawn from ``record.view``, as all that is shown to people. The row of a step has what the
tree shows of it, so that a run of 10,000 steps is told at once; the rest is told of one step when
somebody looks at it. Times are unix seconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from handrail.errors import DefinitionError
from handrail.model import events as ev
from handrail.model.results import OpenGate, Usage
from handrail.ports.journal import RunInfo
from handrail.record.results import incident_of
from handrail.record.view import RunView, SignalWait, Spent, StepView, plain, state_of
from handrail.typed.jsonsafe import Json, json_safe
from handrail.typed.schema import json_schema
from handrail.web.texts import Texts

MOST_OUTPUT = 1024 * 1024
"""Characters of JSON; of a longer output the beginning is told, as text."""
_SHORT = 2_000
"""Characters of an error in a row."""


@dataclass(frozen=True, slots=True)
class Told:
    """A run as it is read from a journal: its line there, its history, and the view of it."""

    info: RunInfo
    history: Sequence[ev.Event]
    view: RunView


def row_of(info: RunInfo, view: RunView | None = None) -> dict[str, Json]:
    """One run in a list; without its view what it cost is not known."""
    state = state_of(info)
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
        "error": info.damaged or (None if end is None or not end.error else end.error[:_SHORT]),
        "forked_from": json_safe(info.forked_from),
        "holder": None
        if info.holder is None
        else {"pid": info.holder.pid, "host": info.holder.host},
    }


def detail_of(told: Told) -> dict[str, Json]:
    """A run whole, but for what only one who looks at a step wants to know."""
    view, end = told.view, told.view.end
    gates = [_gate(one) for one in view.gates]
    accepts = {
        one.path: one.accepts
        for one in told.history
        if isinstance(one, ev.StepStarted) and one.signal
    }
    return {
        "run": row_of(told.info, view),
        "seq": told.history[-1].seq,
        "inputs": json_safe(plain(view.inputs)),
        "value": None if end is None else json_safe(plain(end.value)),
        "error": None if end is None else end.error,
        "failed_step": None if end is None else end.failed_step,
        "gates": cast("Json", gates),
        "signals": [_signal(one, accepts.get(one.path)) for one in view.signals],
        "needs": list(view.needs),
        "steps": cast("Json", step_rows(told)),
    }


def step_rows(told: Told) -> list[dict[str, Json]]:
    """The steps, those above before those below them."""
    times = _times(told.history)
    sizes = {one.path: one.size for one in told.history if isinstance(one, ev.GroupStarted)}
    return [_row(step, times, sizes) for step in told.view.steps]


def _row(
    step: StepView,
    times: Mapping[str, tuple[float, float | None]],
    sizes: Mapping[str, int | None],
) -> dict[str, Json]:
    began, ended = times.get(step.path, (None, None))
    over = step.duration_ms is not None
    cause = step.cause
    row: dict[str, Json] = {
        "path": step.path,
        "name": step.path.rpartition("/")[2],
        "step_type": step.step_type,
        "state": step.state,
        "attempts": step.attempts,
        "started_at": began,
        "ended_at": ended if over else None,
        "duration_ms": step.duration_ms,
        "error": None if cause is None or not cause.error else cause.error[:_SHORT],
        "error_type": None if cause is None else cause.error_type,
    }
    if step.spent is not None and step.spent.launches:
        row["launches"] = step.spent.launches
        row["usage"] = _usage(step.spent.usage)
    if step.given_by:
        row["given_by"] = step.given_by
    if step.handled:
        row["handled"] = json_safe(step.handled)
    if step.undone is not None:
        row["undone"] = {"error": step.undone.error}
    if sizes.get(step.path) is not None:
        row["size"] = sizes[step.path]
    return row


def _usage(usage: Usage | None) -> Json:
    if usage is None:
        return None
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "tokens": usage.tokens,
        "cost_usd": usage.cost_usd,
    }


def step_of(told: Told, path: str, texts: Texts | None = None) -> dict[str, Json] | None:
    """One step whole; None if there is none at this path. ``texts``: what is on disk of it."""
    step = next((one for one in told.view.steps if one.path == path), None)
    if step is None:
        return None
    events = [one for one in told.history if getattr(one, "path", None) == path]
    return detail_of_step(step, events, texts or Texts())


def detail_of_step(step: StepView, events: Sequence[ev.Event], texts: Texts) -> dict[str, Json]:
    """One step whole, by the events of its path."""
    row = _row(step, _times(events), {})
    ends = [one.result for one in events if isinstance(one, (ev.StepCompleted, ev.MemberCompleted))]
    end = ends[-1] if ends and step.duration_ms is not None else None
    output, cut = _bounded(json_safe(plain(step.output)))
    sessions = [one for one in events if isinstance(one, ev.AgentSessionStarted)]
    session = sessions[-1] if sessions else None
    turns: list[Json] = [{"prompt": prompt, "answer": answer} for prompt, answer in texts.turns]
    more: dict[str, Json] = {
        "error": None if step.cause is None else step.cause.error or None,
        "output": output,
        "output_cut": cut,
        "traceback": None if end is None else end.traceback,
        "turns": turns,
        "text": "" if not texts.turns else texts.turns[-1][1] or "",
        "reasoning": texts.reasoning,
        "ends": json_safe(texts.ends),
        "stdout": texts.stdout,
        "stderr": texts.stderr,
        "tries": [_try(one) for one in events if isinstance(one, ev.AttemptFailed)],
        "incidents": [_incident(one) for one in events if isinstance(one, ev.LadderStep)],
        "session": None if session is None else session.session,
        "backend": None if session is None else session.backend,
        "model": None if session is None else session.model,
        "answer": None
        if step.answer is None
        else {
            "answer": json_safe(plain(step.answer.answer)),
            "by": step.answer.by,
            "at": step.answer.at,
        },
    }
    return row | more


def _bounded(value: Json) -> tuple[Json, bool]:
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= MOST_OUTPUT:
        return value, False
    return (value if isinstance(value, str) else text)[:MOST_OUTPUT], True


def _try(failed: ev.AttemptFailed) -> Json:
    return {
        "number": failed.attempt,
        "at": failed.at,
        "error": failed.error,
        "error_type": failed.error_type,
        "usage": _usage(failed.usage),
    }


def _incident(event: ev.LadderStep) -> Json:
    known = incident_of(event)
    return {"kind": known.kind, "at": event.at, "error": event.error, "next": event.next.rung}


def _gate(gate: OpenGate) -> dict[str, Json]:
    return {
        "path": gate.path,
        "question": gate.question,
        "choices": json_safe(plain(gate.choices)),
        "schema": None if gate.choices else _schema(gate.type),
        "default": json_safe(plain(gate.default)),
        "has_default": gate.has_default,
        "since": gate.since,
        "deadline": gate.deadline,
    }


def _signal(wait: SignalWait, accepts: Any) -> Json:
    return {"name": wait.name, "path": wait.path, "schema": accepts and _schema(accepts)}


def _schema(type_: Any) -> Json:
    """The JSON schema of a type; an empty one, which is any JSON, where it has none here."""
    try:
        return json_safe(json_schema(type_))
    except DefinitionError:
        return {}


def _times(events: Iterable[ev.Event]) -> dict[str, tuple[float, float | None]]:
    """When each step began, and ended the last time it did."""
    found: dict[str, tuple[float, float | None]] = {}
    for event in events:
        if isinstance(event, (ev.StepStarted, ev.MemberStarted)):
            found[event.path] = (event.at, None)
        elif isinstance(event, (ev.StepCompleted, ev.MemberCompleted)):
            began, _ = found.get(event.path, (event.at - event.result.duration_ms / 1000, None))
            found[event.path] = (began, event.at)
        elif isinstance(event, ev.GateOpened):
            found.setdefault(event.path, (event.at, None))
        elif isinstance(event, ev.GateAnswered) and event.path in found:
            found[event.path] = (found[event.path][0], event.at)
    return found
