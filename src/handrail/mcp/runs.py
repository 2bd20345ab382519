"""A run as a client sees it: its state in the words of the protocol, its open questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from handrail.model.results import OpenGate
from handrail.ports.journal import RunInfo
from handrail.record.state import RecordedRun
from handrail.record.status import shown_status
from handrail.typed.jsonsafe import json_safe
from handrail.typed.schema import open_schema

_ENDS = {"succeeded": "completed", "failed": "failed", "cancelled": "cancelled"}
_ASKED = frozenset({"string", "integer", "number", "boolean"})
"""What a client's form can ask for."""
ANSWER = "answer"
"""The field of that form."""


def state_of(info: RunInfo) -> str:
    """``working``, ``input_required``, ``completed``, ``failed`` and ``cancelled`` are as of the
    protocol's tasks. ``stopped``: nobody drives the run, and it needs no answer.
    """
    status = shown_status(info)
    if status in _ENDS:
        return _ENDS[status]
    if any(wait.kind == "answer" for wait in info.waits_for):
        return "input_required"
    return "stopped" if info.holder is None else "working"


def has_settled(info: RunInfo) -> bool:
    """True if the run will not go on by itself."""
    return state_of(info) != "working"


def run_data(found: RecordedRun, *, steps: bool) -> dict[str, Any]:
    """The run, with its steps or without."""
    view = found.view.to_dict()
    names = ("value", "error", "failed_step", "waits_for", "needs", "usage", "launches")
    return {
        "run_id": found.info.run_id,
        "workflow": found.info.workflow_name,
        "state": state_of(found.info),
        "status": shown_status(found.info),
        "questions": [question_data(gate) for gate in found.view.gates],
        **{name: view[name] for name in names},
        **({"inputs": view["inputs"], "steps": view["steps"]} if steps else {}),
    }


def question_data(gate: OpenGate) -> dict[str, Any]:
    """An open question, with the JSON schema of its answer."""
    return {
        "path": gate.path,
        "question": gate.question,
        "choices": json_safe(list(gate.choices)),
        "schema": answer_schema(gate),
    }


def answer_schema(gate: OpenGate) -> dict[str, Any]:
    """The JSON schema of an answer."""
    if gate.choices:
        return {"enum": [str(json_safe(choice)) for choice in gate.choices], "type": "string"}
    return open_schema(gate.type)


def form_of(gate: OpenGate) -> dict[str, Any]:
    """The form by which a client asks its user; what it has no field for is typed as JSON."""
    field = answer_schema(gate)
    if field.get("type") not in _ASKED:
        field = {"type": "string", "description": "As JSON."}
    return {"type": "object", "properties": {ANSWER: field}, "required": [ANSWER]}


def list_data(runs: Sequence[RunInfo]) -> Mapping[str, Any]:
    """The runs of a journal, the newest last."""
    return {
        "runs": [
            {
                "run_id": info.run_id,
                "workflow": info.workflow_name,
                "state": state_of(info),
                "waits_for": json_safe(info.waits_for),
                "updated_at": info.updated_at,
            }
            for info in runs
        ]
    }
