"""What a run lived through, from its events."""

from __future__ import annotations

import time
from typing import Any

import pytest

from handrail.cli.run_text import incident_lines, incident_summary
from handrail.model import events as ev
from handrail.model.launch import Launch
from handrail.model.results import StepResult
from handrail.record.run_record import Recorded
from handrail.record.view import view_of
from handrail.sinks.console_text import UNICODE
from handrail.sinks.event_words import event_text, note_text

NOON = time.mktime((2026, 3, 2, 12, 0, 0, 0, 0, -1))
HOUR = 3600.0


def climb(
    hours: float, kind: str, rung: Any, wait_h: float = 0.0, path: str = "code", **fields: Any
) -> ev.LadderStep:
    """A ladder step so many hours after noon."""
    at = NOON + hours * HOUR
    due = at + wait_h * HOUR if wait_h else 0.0
    event = ev.LadderStep(path, 1, kind, "no luck", Launch(2, rung=rung), due, "x", **fields)
    return ev.stamp(event, "r", 1, at)


def ended(hours: float) -> ev.StepCompleted:
    """The step ends."""
    event = ev.StepCompleted("code", StepResult("code", "code", "agent", "succeeded"))
    return ev.stamp(event, "r", 1, NOON + hours * HOUR)


def told(*history: ev.Event, now_h: float = 1000.0, alive: bool = False) -> list[str]:
    """The lines, without the path."""
    incidents = view_of(Recorded(history), alive=alive, now=NOON + now_h * HOUR).incidents
    lines = incident_lines(incidents, UNICODE, alive=alive)
    return [line.replace("  code  ", "  ") for line in lines]


def test_each_failure_is_a_line_with_when_and_what_followed() -> None:
    """The words of the program, whose they are, what was done about it, and until when."""
    assert told(
        climb(0, "transient", "retry"),
        climb(1, "usage_cap", "wait", 3.5),
        climb(5, "context_overflow", "summarise"),
        climb(6, "invalid_output", "reask"),
        climb(7, "refusal", "fallback"),
        ended(8),
    ) == [
        "agent failures that the run recovered from: 5",
        "  12:00:00  transient (x): no luck; tried again",
        "  13:00:00  usage cap (x): no luck; waited until 16:30 (3 h 30 min), then tried again",
        "  17:00:00  context overflow (x): no luck; continued in a new session from a summary",
        "  18:00:00  invalid output (x): no luck; asked again",
        "  19:00:00  refusal (x): no luck; continued with its next backend or model",
        "in all: 1 usage cap waited 3 h 30 min, 1 retry, 1 overflow, 1 re-ask, 1 fallback",
    ]


def test_what_is_still_waited_for_is_said_as_that() -> None:
    """With the day, if it is another one; only a process that is there looks again."""
    for alive, waits in ((True, "checks again at"), (False, "waits until")):
        (line,) = told(climb(1, "usage_cap", "wait", 20), now_h=2, alive=alive)[1:-1]
        assert line.endswith(f"no luck; {waits} Tue 03 Mar 09:00 (20 h)")
    assert line.startswith("  2026-03-02 13:00:00  ")
    (other,) = told(climb(1, "transient", "retry", 2), now_h=2)[1:-1]
    assert other.endswith("no luck; waits until 15:00 (2 h)")


@pytest.mark.parametrize(
    ("cap_s", "margin_s", "why"),
    [
        (3.0, 30.0, " (3.0 s + cap_margin_s 30 s)"),
        (0.0, 60.0, " (0 ms + cap_margin_s 1 min)"),
        (4_000.0, 30.0, ""),
        (3.0, 0.0, ""),
    ],
)
def test_a_wait_much_longer_than_its_cap_says_why(cap_s: float, margin_s: float, why: str) -> None:
    """The tree, the log, the page's log and ``show`` tell the margin in the same words."""
    due = NOON + cap_s + margin_s
    cap = ev.LadderStep("code", 1, "usage_cap", "no", Launch(2), due, margin_s=margin_s)
    ev.stamp(cap, "r", 1, NOON)
    assert note_text(cap) == f"usage cap{why}"
    until_then = event_text(cap).removeprefix("checks again ").removesuffix(": usage cap: no")
    assert until_then.endswith(f"s{why}" if due < NOON + 60 else f"){why}")
    (line,) = told(cap, now_h=0, alive=True)[1:-1]
    assert line.endswith(f"){why}")


def test_a_wait_that_was_broken_off_is_not_counted_whole() -> None:
    """The step that was cancelled meanwhile did not wait until the end."""
    assert told(climb(0, "usage_cap", "wait", 5), ended(1))[-1] == (
        "in all: 1 usage cap waited 1 h"
    )


def test_a_suspension_says_when_the_run_went_on() -> None:
    """If it did."""
    parked = climb(0, "auth", "retry", parked=True)
    assert told(parked)[1].endswith("auth (x): no luck; suspended the run")
    resumed = ev.stamp(ev.RunResumed(), "r", 2, NOON + 2 * HOUR)
    lines = told(parked, resumed)
    assert lines[1].endswith("; suspended the run, resumed at 14:00 (after 2 h)")
    assert lines[-1] == "in all: 1 suspension"


def test_a_cap_that_is_probed_is_one_cap() -> None:
    """Until a launch was at work for long; caps of agents at the same time are waited for once."""
    history = [
        climb(0, "usage_cap", "wait", 1),
        climb(1.01, "usage_cap", "wait", 1),
        climb(0, "usage_cap", "wait", 2, path="other"),
        climb(5, "usage_cap", "wait", 1),
        climb(7, "transient", "retry", 0.01),
        climb(7.1, "crashed", "retry"),
    ]
    assert incident_summary(
        view_of(Recorded(history), alive=False, now=NOON + 99 * HOUR).incidents
    ) == ("3 usage caps waited 3 h, 2 retries")


def test_of_very_many_the_latest_are_told() -> None:
    """The sum is of all of them."""
    lines = told(*(climb(hours, "transient", "retry") for hours in range(100)))
    assert len(lines) == 1 + 1 + 40 + 1
    assert "60 earlier" in lines[1]
    assert lines[-1] == "in all: 100 retries"


def test_without_failures_nothing_is_said() -> None:
    """Not even a heading."""
    assert told(ended(1)) == []
