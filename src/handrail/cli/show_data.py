"""``handrail show RUN --json``: all that is known of a recorded run, for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from handrail.cli.run_spending import Spent, total_of
from handrail.cli.run_state import as_data
from handrail.cli.run_steps import RecordedStep
from handrail.cli.run_waits import Waits
from handrail.codec.unresolved import Unresolved
from handrail.engine.history import ended, incidents_of, needs_of
from handrail.model import events as ev
from handrail.ports.journal import RunInfo
from handrail.typed.jsonsafe import json_safe


def run_data(
    info: RunInfo,
    history: Sequence[ev.Event],
    steps: Sequence[RecordedStep],
    waits: Waits,
    spent: Mapping[str, Spent],
) -> dict[str, Any]:
    """A run as JSON-safe data: how it stands, its steps, what it used, waits for, lived through."""
    end = ended(history)
    letters = [{"type": type(letter).__name__, **_fields(letter)} for letter in waits.letters]
    found = json_safe({
        **as_data(info),
        "inputs": inputs_of(history),
        "value": None if end is None else plain(end.value),
        "error": None if end is None else end.error,
        "failed_step": None if end is None else end.failed_step,
        "orphaned": () if end is None else end.orphaned,
        **_spent_data(total_of(spent)),
        "steps": [_step_data(step, spent.get(step.path)) for step in steps],
        "waiting": waits.gates,
        "waiting_signals": waits.signals,
        "needs": needs_of(history),
        "incidents": incidents_of(history),
        "unread": letters,
    })  # fmt: skip
    assert isinstance(found, dict)
    return found


def _step_data(step: RecordedStep, spent: Spent | None) -> dict[str, Any]:
    used = {} if spent is None else _spent_data(spent)
    answered = {} if step.answer is None else {"answered_by": step.answer.by}
    undone = {} if step.undone is None else {"undone": {"error": step.undone.error}}
    return {
        "path": step.path,
        "step_type": step.step_type,
        "status": step.status,
        "attempts": step.attempts,
        "duration_ms": step.duration_ms,
        "error": step.error,
        "error_type": step.error_type,
        "output": plain(step.output),
        **used,
        **answered,
        **undone,
    }


def _spent_data(spent: Spent) -> dict[str, Any]:
    """None in ``usage`` is unknown; ``unknown_*`` are launches that ended without saying it."""
    return {
        "launches": spent.launches,
        "usage": spent.usage,
        "unknown_tokens": spent.unknown_tokens,
        "unknown_cost": spent.unknown_cost,
    }


def _fields(event: ev.Event) -> Mapping[str, Any]:
    fields = json_safe(event)
    assert isinstance(fields, dict)
    return fields


def plain(value: Any) -> Any:
    """A value whose class is not known here as it is written."""
    if isinstance(value, Unresolved):
        return json.loads(value.text)
    return value


def inputs_of(history: Sequence[ev.Event]) -> Any:
    """A run's inputs, by name."""
    started = history[0]
    assert isinstance(started, ev.WorkflowStarted)
    return plain(started.inputs)
