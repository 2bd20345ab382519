"""``Ladder(cap="fallback")``: a cap is left for the next of the chain; the last one waits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.core.ladder import GiveUp, LadderDecision, Next, Park, next_launch
from handrail.errors import AgentErrorKind, DefinitionError
from handrail.model.events import LadderStep, stamp
from handrail.model.launch import FIRST, Fault, Launch
from handrail.model.policy import Ladder

NOW = 1_800_000_000.0
HOUR, DAY = 3_600.0, 86_400.0
LEAVES, WAITS = Ladder(cap="fallback"), Ladder()
OTHERS: tuple[AgentErrorKind, ...] = (
    "transient", "rate_limit", "crashed", "timeout", "spending_cap", "auth", "refusal",
    "context_overflow", "invalid_output",
)  # fmt: skip


def capped(route: int, *, routes: int = 3, retry_at: float | None = None, **more: Any) -> Fault:
    """A cap on this route of a chain, in a session that could be gone on in."""
    launch = replace(FIRST, route=route)
    known: dict[str, Any] = {"session": "s", "can_resume": True, "ladder": LEAVES, **more}
    return Fault(launch, "usage_cap", "it failed", retry_at, routes=routes, **known)


ENDS = st.none() | st.floats(NOW - DAY, NOW + 20 * DAY)


@given(retry_at=ENDS, routes=st.integers(1, 4), data=st.data())
def test_a_cap_is_left_exactly_while_the_chain_goes_on(
    retry_at: float | None, routes: int, data: st.DataObject
) -> None:
    """With a fallback left it is gone to at once, in a new session; without one, what follows is
    what follows without the setting.
    """
    route = data.draw(st.integers(0, routes - 1))
    failure = capped(route, routes=routes, retry_at=retry_at)
    after = next_launch(failure, (), NOW, "seed")
    if route + 1 < routes:
        assert isinstance(after, Next)
        assert (after.due, after.launch.rung, after.launch.route) == (NOW, "fallback", route + 1)
        assert after.launch.session is None
    else:
        assert after == next_launch(replace(failure, ladder=WAITS), (), NOW, "seed")


@pytest.mark.parametrize(
    ("ends_after_s", "due_after_s", "margin_s"),
    [(3.0, 33.0, 30.0), (5 * HOUR, 1_800.0, 0.0), (None, 1_800.0, 0.0)],
    ids=["its own end", "a probe before it", "an unknown end"],
)
def test_a_wait_for_the_end_of_a_cap_knows_its_margin(
    ends_after_s: float | None, due_after_s: float, margin_s: float
) -> None:
    """What is added to the end that was told is said apart; nothing is, to the time of a probe."""
    retry_at = None if ends_after_s is None else NOW + ends_after_s
    after = next_launch(capped(0, routes=1, retry_at=retry_at), (), NOW, "seed")
    assert isinstance(after, Next)
    assert (after.due - NOW, after.margin_s) == (due_after_s, margin_s)


@given(kind=st.sampled_from(OTHERS), route=st.integers(0, 2), retry_at=ENDS)
def test_no_other_failure_is_dealt_with_otherwise(
    kind: AgentErrorKind, route: int, retry_at: float | None
) -> None:
    """Money and logins are a person's affair with either setting."""
    failure = replace(capped(route, retry_at=retry_at), kind=kind, max_reasks=2)
    waiting = replace(failure, ladder=WAITS)
    assert next_launch(failure, (), NOW, "s") == next_launch(waiting, (), NOW, "s")


def test_without_the_setting_a_cap_never_goes_to_the_fallback() -> None:
    """It is waited for, or a person is asked for, however long the chain."""
    for retry_at in (None, NOW + HOUR, NOW + 9 * DAY):
        after = next_launch(capped(0, retry_at=retry_at, ladder=WAITS), (), NOW, "seed")
        assert isinstance(after, Park) or (isinstance(after, Next) and after.launch.rung == "wait")


def test_a_cap_of_a_backend_that_keeps_no_session_is_waited_for_as_long() -> None:
    """It names one, which is gone at the next launch; that is no new cap."""
    past: list[LadderStep] = []
    launch, now = FIRST, NOW
    for number in range(2_000):
        kind: AgentErrorKind = "usage_cap" if launch.session is None else "bad_request"
        session = "s" if kind == "usage_cap" else None
        ladder = Ladder(max_launches=2_000)
        failure = Fault(launch, kind, "no", None, session, can_resume=True, ladder=ladder)
        after = next_launch(failure, past, now, "seed")
        if not isinstance(after, Next):
            break
        step = LadderStep("p", 1, kind, "no", after.launch, after.due, "b", session)
        past.append(stamp(step, "r", number + 1, now))
        launch, now = after.launch, max(now, after.due)
    assert isinstance(after, Park)
    assert 7.9 * DAY < now - NOW <= 8 * DAY


def test_a_launch_that_worked_for_long_before_it_failed_met_a_new_cap() -> None:
    """Also one that followed a launch whose session was gone."""
    again = replace(FIRST, number=2)
    gone = stamp(LadderStep("p", 1, "bad_request", "no", again, NOW, "b"), "r", 2, NOW)
    first = LadderStep("p", 1, "usage_cap", "no", replace(again, session="s"), NOW, "b", "s")
    past = [stamp(first, "r", 1, NOW - 7.9 * DAY), gone]
    met = Fault(again, "usage_cap", "no", None, "s", can_resume=True, ladder=Ladder())
    assert isinstance(next_launch(met, past, NOW + 2 * HOUR, "seed"), Next)


def test_caps_all_the_way_end_in_a_wait() -> None:
    """Down the chain once, then probes of the last one, until a person is asked for."""
    past: list[LadderStep] = []
    launch, now, told = FIRST, NOW, list[str]()
    after: LadderDecision = GiveUp()
    while True:
        failure = replace(capped(0), launch=launch)
        after = next_launch(failure, past, now, "seed")
        if not isinstance(after, Next):
            break
        launch, now = after.launch, max(now, after.due)
        told.append(launch.rung)
        step = LadderStep("p", 1, "usage_cap", "", launch, after.due)
        past.append(stamp(step, "r", len(past) + 1, now))
    assert told[:3] == ["fallback", "fallback", "wait"]
    assert set(told[2:]) == {"wait"}
    assert isinstance(after, Park)


def test_the_bound_on_launches_holds_for_it_too() -> None:
    """No fallback is one launch too many."""
    ladder = Ladder(cap="fallback", max_launches=1)
    assert next_launch(capped(0, ladder=ladder), (), NOW, "seed") == GiveUp()


def test_a_setting_that_there_is_not_is_refused() -> None:
    """The error lists the two."""
    with pytest.raises(DefinitionError, match=r"cap of a Ladder must be one of 'wait', 'fallback'"):
        Ladder(cap="leave")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_a_launch_on_the_next_route_begins_as_the_first_did() -> None:
    """It is told of no answer of the one before it."""
    after = next_launch(capped(0, text="half done"), (), NOW, "seed")
    assert isinstance(after, Next)
    assert isinstance(after.launch, Launch)
    assert (after.launch.number, after.launch.reasks, after.launch.fresh) == (2, 0, True)
