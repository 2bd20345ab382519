"""A run for people: read from its history, and told event by event."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings

from handrail import Executor, MemorySink
from handrail.model import events as ev
from handrail.record.live_view import LiveRun
from handrail.record.view import StepView, view_of
from handrail.testing.shapes import Body, workflow_of
from handrail.testing.strategies import bodies
from tests.engine.support import Jumping

pytestmark = pytest.mark.usefixtures("outside_git")

NOT_RECORDED = {"round", "rollback", ""}
"""Kinds of live steps that have no record of their own."""


def facts(step: StepView) -> tuple[Any, ...]:
    """What both readings must say of a step that has ended."""
    cause = step.cause
    why = None if cause is None else (cause.error, cause.error_type, cause.origin.path)
    return step.step_type, step.state, step.attempts, why


@settings(
    deadline=None,
    max_examples=settings().max_examples * 3 // 2,
    suppress_health_check=list(HealthCheck),
)
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
    recorded = {step.path: step for step in view_of(history, alive=False, now=1e9).steps}
    for step in live.steps():
        if step.step_type not in NOT_RECORDED:
            assert facts(step) == facts(recorded[step.path])


def test_a_view_is_data_that_json_can_hold() -> None:
    """A page may draw what the command draws."""
    gate = ev.OpenGate("ok", "Merge?", ("yes", "no"), since=1.0)
    history: list[Any] = [
        ev.WorkflowStarted("ship", {"task": {"a", "b"}}),
        ev.StepStarted("ok", "ask"),
        ev.GateOpened("ok", gate),
    ]
    found = view_of(history, alive=False, now=2.0).to_dict()
    assert json.loads(json.dumps(found)) == found
    assert found["waiting"][0]["question"] == "Merge?"
    assert [(step["path"], step["status"]) for step in found["steps"]] == [("ok", "waiting")]
