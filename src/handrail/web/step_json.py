"""The steps of a run as JSON data: a row for each, and all data of one; see ``run_json``."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from handrail.model import events as ev
from handrail.model.results import Usage
from handrail.record.results import incident_of
from handrail.record.view import RunView, StepView, end_in, exit_code_of, plain
from handrail.typed.jsonsafe import Json, json_safe
from handrail.web.texts import Texts

MOST_OUTPUT = 1024 * 1024
"""Characters of JSON; of a longer output the page gets the beginning, as text."""
SHORT = 2_000
"""Characters of an error in a row."""
_MOST_SPANS = 50


def step_rows(view: RunView) -> list[dict[str, Json]]:
    """The rows of the steps, parents before children."""
    return [_row(step) for step in view.steps]


class StepRows:
    """Makes the rows of one run's steps, as its record grows. Mutable: it keeps the rows.

    ``hide`` masks the secrets in a row.
    """

    def __init__(self, hide: Callable[[dict[str, Json]], dict[str, Json]]) -> None:
        self._hide = hide
        self._content: dict[str, tuple[Any, ...]] = {}
        """By path, the fields that the row was made of."""
        self._rows: dict[str, dict[str, Json]] = {}

    def of(self, view: RunView) -> dict[str, dict[str, Json]]:
        """The rows by path, parents before children; an unchanged row is the same object."""
        content = {step.path: _row_content(step) for step in view.steps}
        self._rows = {step.path: self._row(step, content[step.path]) for step in view.steps}
        self._content = content
        return self._rows

    def _row(self, step: StepView, content: tuple[Any, ...]) -> dict[str, Json]:
        if self._content.get(step.path) == content:
            return self._rows[step.path]
        return self._hide(_row(step))


def _row_content(step: StepView) -> tuple[Any, ...]:
    """The fields of a step that its row is made of; not the output, whose comparison may raise."""
    return (
        step.step_type, step.state, step.attempts, step.duration_ms, step.cause, step.spent,
        step.given_by, step.handled, step.undone, exit_code_of(step.output), step.size,
        step.began, step.ended_at, step.stretches,
    )  # fmt: skip


def _row(step: StepView) -> dict[str, Json]:
    cause = step.cause
    row: dict[str, Json] = {
        "path": step.path,
        "name": step.path.rpartition("/")[2],
        "step_type": step.step_type,
        "state": step.state,
        "attempts": step.attempts,
        "started_at": step.began,
        "ended_at": step.ended_at,
        "duration_ms": step.duration_ms,
        "error": None if cause is None or not cause.error else cause.error[:SHORT],
        "error_type": None if cause is None else cause.error_type,
    }
    if step.spent is not None and step.spent.launches:
        row["launches"] = step.spent.launches
        row["usage"] = _usage(step.spent.usage)
    if exit_code_of(step.output):
        row["exit_code"] = exit_code_of(step.output)
    if step.given_by:
        row["given_by"] = step.given_by
    if step.handled:
        row["handled"] = json_safe(step.handled)
    if step.undone is not None:
        row["undone"] = {"error": step.undone.error}
    if step.size is not None:
        row["size"] = step.size
    if len(step.stretches) > 1:
        row["spans"] = [list(stretch) for stretch in step.stretches[-_MOST_SPANS:]]
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
    """All data of one step; None if there is none at this path. ``texts``: of its artifacts."""
    step = next((one for one in view.steps if one.path == path), None)
    if step is None:
        return None
    events = [event for event in history if getattr(event, "path", None) == path]
    return _row(step) | step_details(step, events, texts or Texts())


def step_details(step: StepView, events: Sequence[ev.Event], texts: Texts) -> dict[str, Json]:
    """The details of a step beyond its row, from the events of its path and its artifacts."""
    end = end_in(events, step)
    output, cut = _cut(json_safe(plain(step.output)))
    sessions = [event for event in events if isinstance(event, ev.AgentSessionStarted)]
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
        "tries": [_attempt_data(event) for event in events if isinstance(event, ev.AttemptFailed)],
        "incidents": [_incident(event) for event in events if isinstance(event, ev.LadderStep)],
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


def _cut(value: Json) -> tuple[Json, bool]:
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= MOST_OUTPUT:
        return value, False
    return (value if isinstance(value, str) else text)[:MOST_OUTPUT], True


def _attempt_data(failed: ev.AttemptFailed) -> Json:
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
