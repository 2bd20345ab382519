"""MemorySink: what it keeps, what it asserts, and what it says when an assertion fails."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from handrail.model.events import RunSuspended, StepCompleted, StepReplayed, StepStarted
from handrail.sinks.memory import MemorySink
from handrail.testing.contracts import SinkContract
from tests.sinks.story import Story


class TestMemorySink(SinkContract):
    @pytest.fixture
    def make_sink(self) -> type[MemorySink]:
        """A new sink each time."""
        return MemorySink


@pytest.fixture
def sink() -> MemorySink:
    """A sink that has seen two steps in a row, then two at once, one of which failed."""
    sink = MemorySink()
    story = Story(sink.emit)
    story.begin()
    story.run("plan")
    story.run("build")
    story.start("left")
    story.start("right")
    story.end("right", "failed")
    story.end("left")
    story.finish("failed", error="step 'right' failed")
    return sink


def test_events_are_kept_in_order(sink: MemorySink) -> None:
    """`events` holds what was emitted, in the order of emission."""
    assert [event.seq for event in sink.events] == list(range(1, 11))


def test_events_are_found_by_class(sink: MemorySink) -> None:
    """`of` gives the events of one class."""
    assert [event.path for event in sink.of(StepCompleted)] == ["plan", "build", "right", "left"]


def test_paths_are_in_order_of_start(sink: MemorySink) -> None:
    """`paths` lists each step that started."""
    assert sink.paths() == ["plan", "build", "left", "right"]


def test_results_are_by_path(sink: MemorySink) -> None:
    """`results` and `result` give how steps ended."""
    statuses = {path: result.status for path, result in sink.results().items()}
    assert statuses == {
        "plan": "succeeded",
        "build": "succeeded",
        "right": "failed",
        "left": "succeeded",
    }
    assert sink.result("right").error == "boom"


def test_true_assertions_say_nothing(sink: MemorySink) -> None:
    """Assertions that hold return."""
    sink.assert_ended("plan")
    sink.assert_ended("right", "failed")
    sink.assert_run_ended("failed")
    sink.assert_not_started("deploy")
    sink.assert_order("plan", "build", "left")
    sink.assert_overlap("left", "right")


@pytest.mark.parametrize(
    ("claim", "text"),
    [
        (lambda s: s.assert_ended("right"), r"'right' to end succeeded, but it failed \(boom\)"),
        (lambda s: s.assert_ended("deploy"), "step 'deploy' did not end"),
        (
            lambda s: s.assert_run_ended(),
            r"run to end succeeded, but it failed \(step 'right' fail",
        ),
        (lambda s: s.assert_not_started("plan", "x"), "not to start: plan"),
        (lambda s: s.assert_order("build", "plan"), "'build' to end before 'plan' started"),
        (lambda s: s.assert_order("left", "right"), "'left' to end before 'right' started"),
        (lambda s: s.assert_order("plan", "x"), "step 'x' did not start"),
        (lambda s: s.assert_overlap("plan", "build"), "run at the same time: plan, build"),
    ],
)
def test_a_false_assertion_says_what_happened(
    sink: MemorySink, claim: Callable[[MemorySink], None], text: str
) -> None:
    """An assertion that does not hold names the claim, and tells the run event by event."""
    with pytest.raises(AssertionError, match=text) as caught:
        claim(sink)
    assert "    7 StepStarted right" in str(caught.value) or "StepCompleted right" in str(
        caught.value
    )


def test_a_run_without_an_end_is_said_to_have_none() -> None:
    """Before the last event of a drive there is no status to compare with."""
    with pytest.raises(AssertionError, match=r"it has no end\. What happened:\n  nothing"):
        MemorySink().assert_run_ended()


def test_a_suspended_run_ended_suspended() -> None:
    """The last event of a drive may be its suspension."""
    sink = MemorySink()
    story = Story(sink.emit)
    story.begin()
    story.tell(RunSuspended())
    sink.assert_run_ended("suspended")


def test_a_replayed_step_counts_as_ended() -> None:
    """What came from the record has a result and a place in the order."""
    sink = MemorySink()
    story = Story(sink.emit)
    story.tell(StepReplayed("plan", story.result("plan", "succeeded")))
    story.run("build")
    sink.assert_ended("plan")
    sink.assert_order("plan", "build")


def test_clear_forgets_everything(sink: MemorySink) -> None:
    """After `clear` the sink is as new."""
    sink.clear()
    assert (sink.events, sink.of(StepStarted), sink.timeline()) == ([], [], "")
