"""The steps of a run, as JSON data: a row for each, and one of them whole; see ``run_json``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from handrail.model import events as ev
from handrail.model.results import Usage
from handrail.record.results import incident_of
from handrail.record.view import RunView, StepView, plain
from handrail.typed.jsonsafe import Json, json_safe
from handrail.web.texts import Texts
from handrail.web.times import Work, times_of

MOST_OUTPUT = 1024 * 1024
"""Characters of JSON; of a longer output the beginning is told, as text."""
SHORT = 2_000
"""Characters of an error in a row."""
_MOST_SPANS = 50


def step_rows(view: RunView, history: Sequence[ev.Event]) -> list[dict[str, Json]]:
    """The steps, those above before those below them."""
    works = times_of(history).steps
    sizes = {one.path: one.size for one in history if isinstance(one, ev.GroupStarted)}
    sizes.update((one.path, one.size) for one in view.works)
    return [_row(step, works.get(step.path), sizes) for step in view.steps]


def _row(step: StepView, work: Work | None, sizes: Mapping[str, int | None]) -> dict[str, Json]:
    over = step.duration_ms is not None
    cause = step.cause
    row: dict[str, Json] = {
        "path": step.path,
        "name": step.path.rpartition("/")[2],
        "step_type": step.step_type,
        "state": step.state,
        "attempts": step.attempts,
        "started_at": None if work is None else work.began,
        "ended_at": work.ended if work is not None and over else None,
        "duration_ms": step.duration_ms,
        "error": None if cause is None or not cause.error else cause.error[:SHORT],
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
    if work is not None and len(work.all) > 1:
        row["spans"] = [list(one) for one in work.all[-_MOST_SPANS:]]
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


def step_of(
    view: RunView, history: Sequence[ev.Event], path: str, texts: Texts | None = None
) -> dict[str, Json] | None:
    """One step whole; None if there is none at this path. ``texts``: what is on disk of it."""
    step = next((one for one in view.steps if one.path == path), None)
    if step is None:
        return None
    events = [one for one in history if getattr(one, "path", None) == path]
    sizes = {one.path: one.size for one in events if isinstance(one, ev.GroupStarted)}
    row = _row(step, times_of(history).steps.get(path), sizes)
    return row | more_of_step(step, events, texts or Texts())


def more_of_step(step: StepView, events: Sequence[ev.Event], texts: Texts) -> dict[str, Json]:
    """What is known of a step besides its row, by the events of its path."""
    ends = [one.result for one in events if isinstance(one, (ev.StepCompleted, ev.MemberCompleted))]
    end = ends[-1] if ends and step.duration_ms is not None else None
    output, cut = _bounded(json_safe(plain(step.output)))
    sessions = [one for one in events if isinstance(one, ev.AgentSessionStarted)]
    session = sessions[-1] if sessions else None
    turns: list[Json] = [{"prompt": prompt, "answer": answer} for prompt, answer in texts.turns]
    return {
        "error": None if step.cause is None else step.cause.error or None,
        "output": output,
        "output_cut": cut,
        "traceback": None if end is None else end.traceback,
        "turns": turns,
        "turns_before": texts.turns_before,
        "text": "" if not texts.turns else texts.turns[-1][1] or "",
        "reasoning": texts.reasoning,
        "activity": texts.activity,
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
