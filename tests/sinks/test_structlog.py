"""StructlogSink: events as log entries."""

from __future__ import annotations

from typing import Any

import pytest
import structlog

from handrail.model import events as ev
from handrail.model.events import (
    AgentFinished,
    AgentLimit,
    AgentSessionStarted,
    AgentToolStarted,
    AgentTranscript,
    BudgetWarning,
    LadderStep,
    RollbackCompleted,
    SinkDropped,
    StepOutput,
    StepReplayed,
)
from handrail.model.launch import Launch
from handrail.sinks.structlog import StructlogSink, facts_of, name_of
from handrail.testing.contracts import SinkContract
from handrail.testing.contracts.sample_events import sample_events, sample_progress
from tests.sinks.story import Story


class TestStructlogSink(SinkContract):
    @pytest.fixture
    def make_sink(self) -> Any:
        """A new sink each time."""
        return lambda: StructlogSink(structlog.wrap_logger(Recorder(), processors=[as_is]))


class Recorder:
    """A logger that keeps (level, entry)."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, dict[str, Any]]] = []

    def __getattr__(self, level: str) -> Any:
        return lambda **entry: self.entries.append((level, entry))


def as_is(logger: Any, level: str, entry: Any) -> tuple[tuple[()], dict[str, Any]]:
    """The last processor: what was logged is what the recorder gets."""
    return (), dict(entry)


@pytest.fixture
def recorder() -> Recorder:
    """What was logged."""
    return Recorder()


@pytest.fixture
def story(recorder: Recorder) -> Story:
    """A run whose events are logged."""
    return Story(StructlogSink(structlog.wrap_logger(recorder, processors=[as_is])).emit)


def test_an_entry_has_the_fields_of_its_event(story: Story, recorder: Recorder) -> None:
    """The event's name is in snake case, and what is not set is not logged."""
    story.start("plan", "agent")
    assert recorder.entries == [
        (
            "info",
            {
                "event": "step_started",
                "run_id": "ship-1",
                "seq": 1,
                "at": 1.0,
                "path": "plan",
                "step_type": "agent",
            },
        )
    ]


def test_a_result_is_logged_without_what_the_step_returned(
    story: Story, recorder: Recorder
) -> None:
    """Status, time and error are bound flat; output and traceback are left out."""
    story.run("plan", "python", "failed", output="secret", traceback="Traceback ...")
    level, entry = recorder.entries[-1]
    assert level == "error"
    assert {key: entry[key] for key in ("status", "error", "error_type", "attempts")} == {
        "status": "failed",
        "error": "boom",
        "error_type": "builtins.ValueError",
        "attempts": 1,
    }
    assert not {"output", "traceback", "result"} & set(entry)


@pytest.mark.parametrize(
    ("status", "level"),
    [
        ("succeeded", "info"),
        ("skipped", "info"),
        ("defaulted", "warning"),
        ("cancelled", "warning"),
        ("failed", "error"),
    ],
)
def test_the_level_follows_the_status(
    story: Story, recorder: Recorder, status: str, level: str
) -> None:
    """What failed is an error, what was put up with a warning."""
    story.run("plan", "python", status)
    assert recorder.entries[-1][0] == level


def test_progress_is_for_debugging(story: Story, recorder: Recorder) -> None:
    """Output lines and replayed steps do not fill a log; a dropped sink is an error."""
    story.tell(StepOutput("plan", "stdout", "hello"))
    story.tell(StepReplayed("plan"))
    story.tell(SinkDropped("JsonlSink", "disk full"))
    story.tell(RollbackCompleted("plan"))
    story.tell(RollbackCompleted("plan", "no way back"))
    levels = [level for level, _ in recorder.entries]
    assert levels == ["debug", "debug", "error", "info", "error"]


def test_what_agents_do_is_for_debugging_unless_it_fails(story: Story, recorder: Recorder) -> None:
    """Steps of the ladder, budgets and caps are warnings; lines and inputs are not logged."""
    story.tell(AgentToolStarted("code", "t", "Bash", {"command": "ls"}))
    story.tell(AgentTranscript("code", "{}"))
    story.tell(AgentLimit("code", "warning", "five_hour", 0.9))
    story.tell(AgentLimit("code", "reached", "five_hour", 1.0))
    story.tell(AgentFinished("code", "failed", "usage_cap", "used up"))
    story.tell(LadderStep("code", 1, "usage_cap", "used up", Launch(2, rung="wait"), 9.0))
    story.tell(BudgetWarning("code", "", "cost_usd", 0.9, 1.0))
    story.tell(AgentSessionStarted("code", "s-1", "claude"))
    levels = [level for level, _ in recorder.entries]
    assert levels == ["debug"] * 3 + ["warning"] * 4 + ["info"]
    assert not {"input", "line"} & {name for _, entry in recorder.entries for name in entry}
    kinds = [entry.get("kind") for _, entry in recorder.entries]
    assert kinds[4:6] == ["usage_cap", "usage_cap"]


def test_every_event_has_plain_facts() -> None:
    """Names are snake case, and facts are data that any renderer takes."""
    names = {name_of(event) for event in [*sample_events(), *sample_progress()]}
    assert all(name == name.lower() for name in names)
    assert "agent_turn_started" in names
    for event in [*sample_events(), *sample_progress()]:
        assert set(facts_of(event)) >= {"run_id", "seq", "at"}


def test_the_default_logger_is_structlogs_own() -> None:
    """Without a logger the sink logs to the one that the application configured."""
    with structlog.testing.capture_logs() as entries:
        Story(StructlogSink().emit).begin()
    assert [(entry["event"], entry["workflow_name"]) for entry in entries] == [
        ("workflow_started", "ship")
    ]


def test_an_entry_has_the_name_of_the_workflow() -> None:
    """From its start on, to its end or its suspension."""
    with structlog.testing.capture_logs() as logs:
        sink = StructlogSink()
        for event in (
            ev.WorkflowStarted("ship"),
            ev.StepStarted("plan", "agent"),
            ev.RunSuspended(),
            ev.StepStarted("plan", "agent"),
        ):
            sink.emit(ev.stamp(event, "r", 1, 1.0))
    assert [one.get("workflow") for one in logs] == ["ship", "ship", "ship", None]
