"""The steps of a recorded run as a list in tree order, each with how it stands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from handrail.core.replay import PathRecord, Recorded
from handrail.model import events as ev
from handrail.model.results import StepStatus

StepState: TypeAlias = StepStatus | Literal["running", "waiting", "interrupted", "open"]
"""``open``: it has begun, nobody drives the run, and it was not at work itself."""

_WAITS = frozenset({"ask", "wait_for", "sleep"})


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One step, or member of a group; ``duration_ms`` is None while it has no end."""

    path: str
    depth: int
    step_type: str
    status: StepState
    attempts: int
    duration_ms: float | None
    error: str | None
    error_type: str | None
    output: Any


def steps_of(history: Sequence[ev.Event], *, alive: bool) -> Iterator[RecordedStep]:
    """The steps whose records count, those above before those below them."""
    recorded = Recorded(history)
    tree = recorded.tree_below("")
    kinds = {event.path: event.step_type for event in history if isinstance(event, ev.StepStarted)}
    stack = [(path, 0) for path in reversed(tree.get("", {}))]
    while stack:
        path, depth = stack.pop()
        yield _step(path, depth, kinds.get(path, "member"), recorded.at(path), alive=alive)
        stack += [(below, depth + 1) for below in reversed(tree.get(path, {}))]


def _step(path: str, depth: int, kind: str, record: PathRecord, *, alive: bool) -> RecordedStep:
    end = record.end or record.member_end
    if end is None:
        state = _unfinished(kind, record, alive=alive)
        attempts = record.attempts + (state in {"running", "interrupted"})
        failed = record.failure
        error, error_type = (None, None) if failed is None else (failed.error, failed.error_type)
        return RecordedStep(path, depth, kind, state, attempts, None, error, error_type, None)
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
    )


def _unfinished(kind: str, record: PathRecord, *, alive: bool) -> StepState:
    if kind in _WAITS:
        return "waiting"
    if alive:
        return "running"
    return "interrupted" if record.interrupted else "open"
