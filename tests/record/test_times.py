"""When a run was driven, and when each of its steps was at work."""

from __future__ import annotations

from typing import Any

import pytest

from handrail.model import events as ev
from handrail.model.launch import Launch
from handrail.model.results import OpenGate, StepResult
from handrail.record.run_record import Recorded
from handrail.record.view import view_of


def ended(path: str, took_s: float = 0.0) -> ev.StepCompleted:
    """The end of a step."""
    result = StepResult(path, path, "python", "succeeded", duration_ms=took_s * 1000)
    return ev.StepCompleted(path, result)


def history(*moments: tuple[float, ev.Event]) -> list[ev.Event]:
    """Events at these times."""
    return [ev.stamp(event, "r", seq, at) for seq, (at, event) in enumerate(moments, 1)]


RETRIED = [
    (1, ev.StepStarted("a", "python")),
    (3, ev.AttemptFailed("a", 1, "no", "E")),
    (3, ev.TimerSet("a", 5, "retry", 1)),
    (9, ended("a")),
]
CAPPED = [
    (1, ev.StepStarted("a", "agent")),
    (2, ev.LadderStep("a", 1, "usage_cap", "cap", Launch(), due=7.0)),
    (2, ev.TimerSet("a", 7, "cap")),
    (7.5, ev.AgentSessionStarted("a", "s")),
]
KILLED = [
    (0, ev.WorkflowStarted("w")),
    (1, ev.StepStarted("a", "python")),
    (1, ev.StepStarted("ask", "ask")),
    (1, ev.GateOpened("ask", OpenGate("ask", "?"))),
    (4, ev.SignalReceived("s")),
    (9, ev.RunResumed()),
    (10, ev.StepStarted("a", "python")),
    (10, ev.StepStarted("ask", "ask")),
    (12, ended("a")),
]
ANSWERED = [
    (1, ev.StepStarted("ask", "ask")),
    (1, ev.GateOpened("ask", OpenGate("ask", "?"))),
    (5, ev.RunResumed()),
    (5, ev.GateAnswered("ask", "yes")),
    (5, ev.StepStarted("ask", "ask")),
    (6, ended("ask")),
    (7, ev.GateOpened("a/budget", OpenGate("a/budget", "more?"))),
    (9, ev.GateAnswered("a/budget", "yes")),
]
AGAIN = [
    (1, ev.StepStarted("a", "python")),
    (2, ended("a")),
    (5, ev.StepStarted("a", "python")),
]


@pytest.mark.parametrize(
    ("events", "path", "stretches", "began"),
    [
        (RETRIED, "a", [(1, 3, "failed"), (5, 9, "")], 1),
        (CAPPED, "a", [(1, 2, "failed"), (7, None, "")], 1),
        (KILLED, "a", [(1, 4, "interrupted"), (10, 12, "")], 1),
        (KILLED, "ask", [(1, None, "")], 1),
        (ANSWERED, "ask", [(1, 6, "")], 1),
        (ANSWERED, "a/budget", [(7, 9, "")], 7),
        (AGAIN, "a", [(1, 2, ""), (5, None, "")], 5),
    ],
    ids=[
        "a retry",
        "a cap",
        "a crash",
        "a question over a crash",
        "an answer",
        "a question about a budget",
        "run again",
    ],
)
def test_the_stretches_of_a_step(
    events: Any, path: str, stretches: list[Any], began: float
) -> None:
    """A step is at work from each beginning to the failure, crash or end that follows it."""
    state = Recorded(history(*events)).at(path)
    assert stretches == list(state.stretches)
    assert began == state.began


def test_the_drives_of_a_run() -> None:
    """A drive lasts to its end, or to the last that a killed process wrote."""
    recorded = Recorded(
        history(
            (0, ev.WorkflowStarted("w")),
            (2, ev.RunSuspended()),
            (5, ev.RunResumed()),
            (6, ev.SignalReceived("s")),
            (9, ev.RunResumed()),
        )
    )
    assert view_of(recorded, alive=True, now=9).drives == ((0, 2), (5, 6), (9, None))
