"""A run for people: read from its history, and told event by event."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from handrail import Executor, MemorySink
from handrail.model import events as ev
from handrail.record.live_view import LiveRun, LiveStep
from handrail.record.run_record import Recorded
from handrail.record.view import view_of
from handrail.testing.shapes import Body, workflow_of
from handrail.testing.strategies import bodies
from tests.engine.support import Jumping

pytestmark = pytest.mark.usefixtures("outside_git")

NOT_RECORDED = {"round", "rollback", ""}
"""Kinds of live steps that have no record of their own."""


def known_below(step: LiveStep) -> Iterator[LiveStep]:
    """The steps that are live or still known, and have records of their own."""
    for child in (*step.live_children(), *step.kept_in("failed"), *step.kept_in("done")):
        if child.kind not in NOT_RECORDED:
            yield child
        yield from known_below(child)


def facts(kind: str, state: str, attempts: int, cause: Any) -> tuple[Any, ...]:
    """What both readings must say of a step that has ended."""
    why = None if cause is None else (cause.error, cause.error_type, cause.origin.path)
    return kind, state, attempts, why


@settings(suppress_health_check=list(HealthCheck))
@given(body=bodies())
def test_a_run_told_event_by_event_is_the_one_that_its_history_tells(body: Body) -> None:
    """Of every step that the live view still knows, the recorded view says the same."""
    sink = MemorySink()
    result = Executor(sinks=[sink], clock=Jumping(), gates="approve").run_sync(workflow_of(body))
    assume(result.status != "suspended")
    live = LiveRun(result.run_id)
    for event in sink.events:
        live.apply(event)
    history: list[Any] = [event for event in sink.events if isinstance(event, ev.Event)]
    recorded = {step.path: step for step in view_of(Recorded(history), alive=False, now=1e9).steps}
    for step in known_below(live.root):
        said = recorded[step.path]
        assert facts(said.step_type, said.state, said.attempts, said.cause) == facts(
            step.kind, step.state, step.attempts, step.problem
        )


@settings(suppress_health_check=list(HealthCheck))
@given(body=bodies(), part=st.integers(1, 7), alive=st.booleans())
def test_a_history_read_as_it_grows_is_the_one_read_at_once(
    body: Body, part: int, alive: bool
) -> None:
    """A reading that goes on says what a new one of all events says, at any event."""
    sink = MemorySink()
    Executor(sinks=[sink], clock=Jumping()).run_sync(workflow_of(body))
    history: list[Any] = [event for event in sink.events if isinstance(event, ev.Event)]
    reading = Recorded()
    for end in range(part, len(history) + 1, part):
        reading.take(history[reading.count : end])
        grown = view_of(reading, alive=alive, now=1e9)
        assert grown == view_of(Recorded(history[:end]), alive=alive, now=1e9)


def test_a_view_is_data_that_json_can_hold() -> None:
    """A page may draw what the command draws."""
    gate = ev.OpenGate("ok", "Merge?", ("yes", "no"), since=1.0)
    history: list[Any] = [
        ev.WorkflowStarted("ship", {"task": {"a", "b"}}),
        ev.StepStarted("ok", "ask"),
        ev.GateOpened("ok", gate),
    ]
    found = view_of(Recorded(history), alive=False, now=2.0).to_dict()
    assert json.loads(json.dumps(found)) == found
    assert found["waiting"][0]["question"] == "Merge?"
    assert [(step["path"], step["status"]) for step in found["steps"]] == [("ok", "waiting")]


def test_a_step_at_work_waits_while_it_cannot_go_on() -> None:
    """For a claim until it is granted, for a retry until its pause is over; a process that is gone
    waits for nothing.
    """
    claimed: list[Any] = [
        ev.WorkflowStarted("ship"),
        ev.StepStarted("fix", "agent"),
        ev.ClaimWaiting("fix", "src/**", "ann"),
    ]
    failed: list[Any] = [
        *claimed[:2],
        ev.AttemptFailed("fix", 1, "no", "builtins.OSError"),
        ev.TimerSet("fix", 5.0, "retry"),
    ]
    for events, alive, now, state in (
        (claimed, True, 2.0, "waiting"),
        ([*claimed, ev.ClaimGranted("fix", "src/**", 1)], True, 2.0, "running"),
        (claimed, False, 2.0, "interrupted"),
        (failed, True, 2.0, "waiting"),
        (failed, True, 6.0, "running"),
        (failed, False, 2.0, "interrupted"),
    ):
        (step,) = view_of(Recorded(events), alive=alive, now=now).steps
        assert step.state == state
