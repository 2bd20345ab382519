"""The line with which a drive closes."""

from __future__ import annotations

from typing import Any

import pytest

from handrail.model import events as ev
from handrail.model.results import OpenGate, RollbackError
from handrail.record.live_view import LiveRun
from handrail.sinks.console_plain import ending, error_below
from handrail.sinks.console_text import ASCII, UNICODE, text_of
from tests.sinks.story import Story


@pytest.fixture
def tree() -> LiveRun:
    """The tree of a run that has not begun."""
    return LiveRun("ship-1")


@pytest.fixture
def story(tree: LiveRun) -> Story:
    """A run with a step of each kind of end."""
    story = Story(tree.apply)
    story.begin()
    story.run("plan")
    story.run("test", status="failed")
    story.run("docs", status="skipped")
    return story


def closing(tree: LiveRun, story: Story, event: Any, **options: Any) -> str:
    """The text of the line after this last event."""
    story.tell(event)
    return text_of(ending(tree, event, options.get("glyphs", UNICODE)))


def test_a_success_is_counted_and_timed(tree: LiveRun, story: Story) -> None:
    """Status, time, steps and the run's id are in the line."""
    assert closing(tree, story, ev.WorkflowCompleted("succeeded")) == (
        "✓ ship succeeded in 7.0 s · 3 steps (1 failed, 1 skipped) · run ship-1"
    )


def test_the_runs_own_duration_counts(tree: LiveRun, story: Story) -> None:
    """A run that was resumed has taken longer than its last drive."""
    line = closing(tree, story, ev.WorkflowCompleted("succeeded", duration_ms=7_500_000))
    assert line.startswith("✓ ship succeeded in 2 h 5 min ·")


def test_a_failure_says_what_failed(tree: LiveRun, story: Story) -> None:
    """The error that ended the run is there, with its step."""
    error = "step 'test' failed: ValueError: boom"
    event = ev.WorkflowCompleted("failed", error=error, failed_step="test")
    assert closing(tree, story, event) == (
        "✗ ship failed in 7.0 s · 3 steps (1 failed, 1 skipped) · "
        "test: ValueError: boom · run ship-1"
    )


def test_a_step_that_the_error_does_not_name_is_added(tree: LiveRun, story: Story) -> None:
    """The path comes first where the error is silent about it."""
    event = ev.WorkflowCompleted("failed", error="boom", failed_step="test")
    assert " · test: boom · " in closing(tree, story, event)


NESTED = "step 'all' failed: ValueError: member 'b' failed: got:\n  1\n  2"


def nest(story: Story) -> None:
    """A group whose member ``b`` failed, with an error of several lines."""
    story.start("all", "parallel")
    story.run("all/b", status="failed", error="got:\n  1\n  2")
    story.end("all", "failed", error="member 'b' failed: got:\n  1\n  2")


def test_a_failure_inside_a_group_is_named_by_its_own_path(tree: LiveRun, story: Story) -> None:
    """The step that failed by itself, and the first line of what it said."""
    nest(story)
    event = ev.WorkflowCompleted("failed", error=NESTED, failed_step="all")
    assert " · all/b: ValueError: got: · run ship-1" in closing(tree, story, event)


def test_an_error_of_several_lines_stands_above_the_end(tree: LiveRun, story: Story) -> None:
    """A tree has no room for it; where it was told at its step, it is not told again."""
    nest(story)
    event = ev.WorkflowCompleted("failed", error=NESTED, failed_step="all")
    story.tell(event)
    below = [text_of(line) for line in error_below(tree, event, steps_logged=False)]
    assert below == ["all/b  ValueError: got:", "    1", "    2"]
    assert error_below(tree, event, steps_logged=True) == []


def test_an_error_of_the_body_is_told_whole(tree: LiveRun, story: Story) -> None:
    """No step has told it: its lines stand above the end, whether there is a tree or not."""
    event = ev.WorkflowCompleted("failed", error="flow.py:3: KeyError: one\n  two")
    assert " · flow.py:3: KeyError: one · " in closing(tree, story, event)
    below = [text_of(line) for line in error_below(tree, event, steps_logged=True)]
    assert below == ["flow.py:3: KeyError: one", "    two"]


def test_failed_rollbacks_are_named(tree: LiveRun, story: Story) -> None:
    """What could not be undone is said last."""
    errors = tuple(RollbackError(path, "no", "E") for path in ("a", "b"))
    event = ev.WorkflowCompleted("cancelled", error="enough", rollback_errors=errors)
    assert " · enough · a was not rolled back: E: no · b was not" in closing(tree, story, event)


def test_a_suspended_run_says_what_it_waits_for(tree: LiveRun, story: Story) -> None:
    """Open gates with their questions and choices, and signals."""
    gates = (OpenGate("merge?", "Merge?", ("yes", "no")), *[OpenGate("g", "Why?")] * 4)
    assert closing(tree, story, ev.RunSuspended(gates, ("go",))) == (
        "⏸ ship suspended after 7.0 s · 3 steps (1 failed, 1 skipped) · "
        "waiting for merge?: Merge? [yes, no]; g: Why?; g: Why?; 2 more · "
        "waiting for signal go · run ship-1"
    )


def test_an_interrupted_run_says_why(tree: LiveRun, story: Story) -> None:
    """Another reason than waiting is told."""
    line = closing(tree, story, ev.RunSuspended(reason="SIGTERM"), glyphs=ASCII)
    assert line == (
        "? ship suspended after 7.0 s | 3 steps (1 failed, 1 skipped) | SIGTERM | run ship-1"
    )


def test_what_came_from_the_record_is_counted_apart(tree: LiveRun, story: Story) -> None:
    """Replayed steps did not run in this drive."""
    story.tell(ev.StepReplayed("old"))
    line = closing(tree, story, ev.WorkflowCompleted("succeeded"))
    assert "3 steps (1 failed, 1 skipped), 1 from the record" in line
