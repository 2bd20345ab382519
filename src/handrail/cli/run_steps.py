"""The steps of a recorded run as a list in tree order, each with how it stands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from handrail.model import events as ev
from handrail.model.results import StepStatus
from handrail.record.run_record import PathRecord, Recorded

StepState: TypeAlias = StepStatus | Literal["running", "waiting", "interrupted", "open"]
"""``open``: it has begun, nobody drives the run, and it was not at work itself."""

_WAITS = frozenset({"ask", "wait_for", "sleep"})


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One step, member of a group, or question whether a budget may be passed.

    ``duration_ms`` is None while it has no end.
    """

    path: str
    depth: int
    step_type: str
    status: StepState
    attempts: int
    duration_ms: float | None
    error: str | None
    error_type: str | None
    output: Any
    name: str
    answer: ev.GateAnswered | None
    """Of a question that was answered."""
    undone: ev.RollbackCompleted | None = None
    """Of a step whose rollback ran."""


def steps_of(history: Sequence[ev.Event], *, alive: bool) -> Iterator[RecordedStep]:
    """The steps whose records count, those above before those below them."""
    recorded = Recorded(history)
    tree = recorded.tree_below("", whole=True)
    kinds = {event.path: event.step_type for event in history if isinstance(event, ev.StepStarted)}
    stack = [(path, 0) for path in reversed(tree.get("", {}))]
    while stack:
        path, depth = stack.pop()
        record, answer = recorded.at(path), recorded.answers.get(path)
        if record.gates and path not in kinds:
            above = recorded.at(path.rpartition("/")[0])
            yield _question(path, depth, record, answer, over=above.ended())
        else:
            kind = kinds.get(path, "member")
            yield _step(path, depth, kind, record, answer, alive=alive)
        stack += [(below, depth + 1) for below in reversed(tree.get(path, {}))]


def _step(
    path: str,
    depth: int,
    kind: str,
    record: PathRecord,
    answer: ev.GateAnswered | None,
    *,
    alive: bool,
) -> RecordedStep:
    end = record.end or record.member_end
    if end is not None:
        return RecordedStep(
            path,
            depth,
            kind,
            end.status,
            end.attempts,
            end.duration_ms,
            end.error,
            end.error_type,
            end.output,
            end.name,
            answer,
            record.undone,
        )
    state = _unfinished(kind, record, alive=alive)
    attempts = record.attempts + (state in {"running", "interrupted"})
    failed = record.failure
    error, error_type = (None, None) if failed is None else (failed.error, failed.error_type)
    name = path.rpartition("/")[2]
    return RecordedStep(
        path, depth, kind, state, attempts, None, error, error_type, None, name, answer
    )


def _question(
    path: str, depth: int, record: PathRecord, answer: ev.GateAnswered | None, *, over: bool
) -> RecordedStep:
    """What was asked about a step that has no step of its own, and what somebody said."""
    since = min((gate.since for gate in (record.gates or {}).values()), default=0.0)
    name = path.rpartition("/")[2]
    if answer is None:
        state: StepState = "cancelled" if over else "waiting"
        return RecordedStep(path, depth, "ask", state, 1, None, None, None, None, name, None)
    took_ms = max(0.0, (answer.at - since) * 1000)
    return RecordedStep(
        path, depth, "ask", "succeeded", 1, took_ms, None, None, answer.answer, name, answer
    )


def _unfinished(kind: str, record: PathRecord, *, alive: bool) -> StepState:
    if kind in _WAITS:
        return "waiting"
    if alive:
        return "running"
    return "interrupted" if record.interrupted else "open"
