"""What a resume drops of a history that ended badly."""

from __future__ import annotations

from collections.abc import Sequence

from handrail.errors import LimitExceeded
from handrail.model import events as ev
from handrail.model.results import StepResult, StepStatus, qualified
from handrail.record.dropped import run_again, superseded
from handrail.record.run_record import Recorded


def began(path: str, kind: str = "python", *, cleanup: bool = False) -> ev.Event:
    """A step begins."""
    return ev.StepStarted(path, kind, cleanup=cleanup)


def ended(path: str, status: StepStatus = "succeeded") -> ev.Event:
    """A step ends."""
    return ev.StepCompleted(path, result(path, "python", status))


def result(path: str, kind: str, status: StepStatus) -> StepResult[object]:
    """The result of a step or member."""
    error = None if status == "succeeded" else "what it was"
    return StepResult(path.rpartition("/")[2], path, kind, status, error=error)


def record_of(history: Sequence[ev.Event]) -> Recorded:
    """The record of these events, numbered."""
    return Recorded(ev.stamp(event, "r", seq, 0.0) for seq, event in enumerate(history, 1))


def failed_by(path: str) -> ev.Event:
    """The run ends."""
    return ev.WorkflowCompleted("failed", failed_step=path)


LOST: Sequence[ev.Event] = (
    ev.WorkflowStarted("flow", {}, {}),
    began("race", "race"),
    ev.GroupStarted("race", "race"),
    began("race/g", "parallel"),
    ev.GroupStarted("race/g", "parallel"),
    began("race/g/a"),
    began("race/g/b"),
    began("race/w"),
    ended("race/g/a", "failed"),
    ended("race/w"),
    ended("race/g/b", "cancelled"),
    ended("race/g", "cancelled"),
    ended("race"),
)
"""A group was failing when it lost a race."""


def test_what_failed_in_the_loser_of_a_race_ended_nothing() -> None:
    """The race was won, and is not run again because something else failed."""
    history = [*LOST, began("f"), ended("f", "failed"), failed_by("f")]
    assert superseded(record_of(history)) == ("f",)


def test_what_a_stopped_group_was_failing_by_runs_again() -> None:
    """It had not gone on from it when it was stopped."""
    history = [*LOST[:-4], ended("race/g/b", "cancelled"), ended("race/g", "cancelled")]
    history += [ended("race", "cancelled"), ev.LimitReached("timeout_s", 1.0, "")]
    history += [ev.WorkflowCompleted("failed")]
    assert superseded(record_of(history)) == ("race", "race/g", "race/g/a", "race/g/b")


def test_a_loser_begins_anew_if_its_race_is_run_again() -> None:
    """The winner is named by the user; what was stopped for it may win now."""
    assert run_again(["race/w"], record_of(LOST)) == ("race", "race/g", "race/g/b", "race/w")


def test_clean_up_of_what_was_cancelled_is_dropped_with_it() -> None:
    """However it ended: there will be something to clean up again."""
    history = [
        ev.WorkflowStarted("flow", {}, {}),
        began("g", "for_each"),
        ev.GroupStarted("g", "for_each"),
        ev.MemberStarted("g/0", 0, "0"),
        began("g/0/x"),
        ev.MemberStarted("g/1", 1, "1"),
        began("g/1/x"),
        ended("g/1/x", "failed"),
        ended("g/0/x", "cancelled"),
        began("g/0/tidy", cleanup=True),
        ended("g/0/tidy"),
        ev.MemberCompleted("g/1", 1, result("g/1", "member", "failed")),
        ev.MemberCompleted("g/0", 0, result("g/0", "member", "cancelled")),
        ended("g", "failed"),
        failed_by("g"),
    ]
    assert superseded(record_of(history)) == ("g", "g/0", "g/0/tidy", "g/0/x", "g/1", "g/1/x")


def test_what_a_limit_stopped_keeps_what_it_had_done_before() -> None:
    """A group that is entered again is begun after the limit that it was stopped by, and is no
    clean-up of it.
    """
    history = [
        ev.WorkflowStarted("flow", {}, {}),
        began("g", "parallel"),
        ev.GroupStarted("g", "parallel"),
        began("g/a"),
        ended("g/a"),
        began("g/b"),
        ended("g/b", "failed"),
        ended("g", "failed"),
        failed_by("g"),
        ev.RunResumed(("g", "g/b")),
        ev.LimitReached("max_steps", 1, "g"),
        began("g", "parallel"),
        ended("g", "cancelled"),
        ev.WorkflowCompleted("failed", error_type=qualified(LimitExceeded), failed_step="g"),
    ]
    assert superseded(record_of(history)) == ("g",)
