"""What the agents of a run used, from its events."""

from __future__ import annotations

from typing import Any

import pytest

from handrail.cli.run_text import format_spending
from handrail.model import events as ev
from handrail.model.launch import Launch
from handrail.model.results import StepResult, Usage
from handrail.record.run_record import Recorded
from handrail.record.spending import Spent
from handrail.record.view import view_of
from handrail.sinks.console_words import usage_text

PART = Usage(100, 10, 0.25)
MORE = Usage(900, 90)


def start(path: str = "code", **fields: Any) -> ev.Event:
    """An agent step begins."""
    return ev.StepStarted(path, "agent", **fields)


def end(usage: Usage | None = None, status: Any = "succeeded", path: str = "code") -> ev.Event:
    """It ends."""
    error = "boom" if status == "failed" else None
    return ev.StepCompleted(path, StepResult(path, path, "agent", status, None, error, usage=usage))


def climb(number: int, spent: Usage | None = None, kind: str = "transient") -> ev.Event:
    """A launch failed, and the launch ``number`` follows."""
    return ev.LadderStep("code", 1, kind, "boom", Launch(number, spent=spent))


def fail(
    usage: Usage | None = None, error_type: str = "app.Boom", bases: tuple[str, ...] = ()
) -> ev.Event:
    """An attempt failed."""
    return ev.AttemptFailed("code", 1, "boom", error_type, bases, usage=usage)


def given(usage: Usage | None = None) -> ev.Event:
    """A person gave its output."""
    result = StepResult("code", "code", "agent", "succeeded", "x", usage=usage, given_by="Ann")
    return ev.StepCompleted(path="code", result=result)


def spent_in(history: list[ev.Event], *, alive: bool = False) -> Spent:
    """What the agents of the run used."""
    return view_of(Recorded(history), alive=alive, now=0.0).spent


REFUSED = "handrail.errors.BudgetExceeded"


@pytest.mark.parametrize(
    ("history", "spent"),
    [
        ([start(), end(PART)], Spent(1, PART, 0, 0)),
        ([start(), end()], Spent(1, None, 1, 1)),
        ([start(), end(MORE)], Spent(1, MORE, 0, 1)),
        ([start(), climb(2), end(PART)], Spent(2, PART, 1, 1)),
        ([start(), climb(2, PART), end(PART + MORE)], Spent(2, PART + MORE, 0, 1)),
        ([start(), climb(2, PART), end(PART)], Spent(2, PART, 1, 1)),
        ([start(), fail(PART), fail(MORE), end(status="failed")], Spent(2, PART + MORE, 0, 1)),
        ([start(), fail(error_type=REFUSED), end(status="failed")], Spent()),
        ([start(), climb(2, PART), fail(PART, REFUSED)], Spent(1, PART, 0, 0)),
        ([start(), fail(bases=("handrail.errors.NotReady",)), end(status="failed")], Spent()),
        ([start(), fail(error_type="handrail.errors.PromptError")], Spent()),
        ([start(), climb(2, kind="not_installed"), end(PART)], Spent(1, PART, 0, 0)),
        ([start(), climb(2, PART, kind="config"), end(PART + MORE)], Spent(2, PART + MORE, 0, 1)),
        ([start(), given()], Spent()),
        ([start(), climb(2, PART), given()], Spent(1, PART, 0, 0)),
        ([start(), climb(1, kind="budget"), start(), end(PART)], Spent(1, PART, 0, 0)),
        ([start(), ev.AgentSessionStarted("code", "s"), start(), end(PART)], Spent(2, PART, 1, 1)),
        (
            [
                *(
                    start(),
                    ev.AgentSessionStarted("code", "s"),
                    ev.StepInterrupted("code", "", PART),
                ),
                *(ev.RunResumed(), start(), ev.AgentSessionStarted("code", "s", launch=2)),
                end(PART + PART),
            ],
            Spent(2, PART + PART, 0, 0),
        ),
        (
            [start(), ev.BudgetReserved("code", 1), end(), ev.BudgetSettled("code", 1, PART)],
            Spent(1, PART, 0, 0),
        ),
        ([start(), end(PART), ev.RunResumed(("code",)), start(), end(PART)], Spent(2, PART + PART)),
        ([start(verdict=False), end(status="skipped")], None),
    ],
)
def test_each_launch_counts_once_with_what_it_said(
    history: list[ev.Event], spent: Spent | None
) -> None:
    """Failed launches, further attempts and superseded records were paid for; what a launch did
    not say is unknown, and one that was refused was not made.
    """
    assert spent_in(history) == (spent or Spent())


def test_what_is_at_work_may_still_say_it() -> None:
    """A launch of a run that is driven is not unknown before it ends."""
    history = [start(), ev.AgentSessionStarted("code", "s", launch=1)]
    assert spent_in(history, alive=True) == Spent(1, None, 0, 0)
    assert spent_in(history) == Spent(1, None, 1, 1)


def test_a_run_has_the_sum_of_its_steps() -> None:
    """In the order that they began."""
    history = [start("a"), end(PART, path="a"), start("b"), end(path="b")]
    assert spent_in(history) == Spent(2, PART, 1, 1)


@pytest.mark.parametrize(
    ("spent", "text"),
    [
        (Spent(1, Usage(120_400, 4_500, 0.414)), "120k in, 4.5k out, $0.41"),
        (Spent(1, Usage(1_250_000, 999, 0.0042)), "1.2M in, 999 out, $0.0042"),
        (Spent(1, Usage(10, None, 0.0), 0, 0), "10 in, ? out, $0.00"),
        (Spent(1, Usage(1, 1, 1.5, cost_source="table")), "1 in, 1 out, about $1.50"),
        (Spent(1, None, 1, 1), "tokens ?, $?"),
        (Spent(2, PART, 1, 1), "at least 100 in, 10 out, $0.25"),
        (Spent(2, PART + MORE, 0, 1), "1k in, 100 out, at least $0.25"),
    ],
)
def test_what_is_unknown_is_never_zero(spent: Spent, text: str) -> None:
    """It is a question mark, and a sum that lacks something says so."""
    assert usage_text(spent.usage, spent.unknown_tokens, spent.unknown_cost) == text


def test_a_sum_says_how_many_launches_were_silent() -> None:
    """Of tokens and cost apart where these differ."""
    assert format_spending(Spent(1, PART)) == "1 launch, 100 in, 10 out, $0.25"
    assert format_spending(Spent(3, PART, 2, 2)).endswith(" (2 did not report usage)")
    assert format_spending(Spent(3, PART, 1, 2)).endswith(
        " (1 did not report tokens, 2 did not report costs)"
    )
