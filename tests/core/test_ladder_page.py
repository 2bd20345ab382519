"""The tables of *The ladder* say what is chosen after a failed launch."""

from __future__ import annotations

import re
import typing
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from handrail import Ladder
from handrail.core.ladder import Next, Park, next_launch
from handrail.errors import AgentError, AgentErrorKind
from handrail.model.events import LadderStep, stamp
from handrail.model.launch import FIRST, Fault, Launch, Rung, fault_of

PAGE = (Path(__file__).parents[2] / "docs/explanation/ladder.md").read_text("utf-8")
ROWS: dict[str, str] = dict(re.findall(r"^\| `(\w+)` \| [^|]* \| ([^|]*) \|$", PAGE, re.MULTILINE))


def climb(kind: Any, **more: Any) -> tuple[list[Launch], object]:
    """What follows when a launch fails like this again and again, up to the second backend."""
    past: list[Any] = []
    launch, now = FIRST, 1_800_000_000.0
    while True:
        fault = Fault(
            launch, kind, "why", session="s", can_resume=True, routes=2, max_reasks=2, **more
        )
        after = next_launch(fault, past, now, "seed")
        if not isinstance(after, Next):
            return [one.next for one in past], after
        launch, now = after.launch, max(now, after.due)
        step = LadderStep("p", 1, kind, "why", launch, after.due)
        past.append(stamp(step, "r", len(past) + 1, now))
        if launch.rung == "fallback":
            return [one.next for one in past], None


def rungs(launches: list[Launch]) -> list[str]:
    """Their names."""
    return [launch.rung for launch in launches]


def test_each_kind_of_failure_has_a_row_and_each_rung() -> None:
    """No kind is left out, and no rung but the first launch."""
    assert set(ROWS) == set(typing.get_args(AgentErrorKind))
    listed = re.findall(r"^\| `(\w+)` \| [^|]* \|$", PAGE, re.MULTILINE)
    assert set(listed) == set(typing.get_args(Rung)) - {"start"}


@pytest.mark.parametrize("kind", sorted(set(ROWS) - {"usage_cap"}))
def test_a_row_has_the_rungs_in_their_order(kind: str) -> None:
    """The rungs, how often each, and whether a person is needed at the end."""
    launches, end = climb(kind, can_compact=True)
    shown = [(rung, len(list(same))) for rung, same in groupby(rungs(launches))]
    found = re.findall(r"`(\w+)`(?: \W (\d+))?", ROWS[kind])
    assert [(rung, int(times or 1)) for rung, times in found] == shown
    assert isinstance(end, Park) == ("*a person*" in ROWS[kind])


def test_a_cap_waits_and_then_needs_a_person() -> None:
    """The fallback gets it only if that is asked for."""
    launches, end = climb("usage_cap", can_compact=True)
    assert set(rungs(launches)) == {"wait"}
    assert isinstance(end, Park)
    assert rungs(climb("usage_cap", ladder=Ladder(cap="fallback"))[0]) == ["fallback"]


def test_a_session_is_kept_where_its_work_is_half_done() -> None:
    """After a crash it continues; a full or a confused one does not."""
    for kind in ("transient", "crashed", "timeout"):
        assert {launch.session for launch in climb(kind)[0][:-1]} == {"s"}
    assert climb("invalid_output")[0][0].session == "s"
    full, confused, refused = (
        climb(kind)[0] for kind in ("context_overflow", "invalid_output", "refusal")
    )
    assert rungs(full) == ["summarise", "summarise", "fallback"]
    assert {launch.session for launch in (*full, *confused[1:], *refused)} == {None}


def test_a_failure_without_a_kind_is_none_of_the_ladder() -> None:
    """The step's own retry decides."""
    assert fault_of(AgentError("a", "why"), FIRST) is None
