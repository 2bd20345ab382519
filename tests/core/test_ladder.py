"""What follows a launch that failed, decided from the failure and the ladder so far alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.core.ladder import GiveUp, LadderDecision, Next, Park, next_launch
from handrail.errors import AgentErrorKind
from handrail.model.events import LadderStep, stamp
from handrail.model.launch import FIRST, Fault, Launch
from handrail.model.policy import Backoff, Ladder
from handrail.model.results import Usage

NOW = 1_800_000_000.0
HOUR, DAY = 3_600.0, 86_400.0
STEADY = Ladder(backoff=Backoff(5, 2, 300, 0))
KINDS: tuple[AgentErrorKind, ...] = (
    "rate_limit", "usage_cap", "spending_cap", "context_overflow", "auth", "transient",
    "bad_request", "invalid_output", "max_turns", "output_limit", "refusal", "timeout",
    "interrupted", "crashed", "not_installed", "config",
)  # fmt: skip


def fault(kind: AgentErrorKind, launch: Launch = FIRST, **more: Any) -> Fault:
    """A failure with a session that could be gone on in."""
    known: dict[str, Any] = {"session": "s", "can_resume": True, "ladder": STEADY, **more}
    return Fault(launch, kind, "it failed", **known)


def climbed(
    failure: Fault, *, at: float = NOW, most: int = 1_000
) -> list[tuple[float, LadderDecision]]:
    """What follows when the same failure comes each time, until nothing more does; with times."""
    past: list[LadderStep] = []
    told: list[tuple[float, LadderDecision]] = []
    now = at
    while len(told) < most:
        launch = past[-1].next if past else failure.launch
        after = next_launch(replace(failure, launch=launch), past, now, "seed")
        told.append((now, after))
        if not isinstance(after, Next):
            break
        event = LadderStep("p", 1, failure.kind, failure.reason, after.launch, after.due)
        past.append(stamp(event, "r", len(past) + 1, now))
        now = max(now, after.due)
    return told


def rungs(failure: Fault) -> list[str]:
    """The rungs of a climb, and how it ended."""
    return [
        after.launch.rung if isinstance(after, Next) else type(after).__name__
        for _, after in climbed(failure)
    ]


def test_a_transient_failure_is_retried_with_backoff_in_its_session() -> None:
    """The pauses double from 5 s, the session is gone on in; a count, if one is said, ends it."""
    plain = fault("transient").ladder
    told = climbed(fault("transient", ladder=attrs.evolve(plain, transient_retries=6)))
    pauses = [after.due - now for now, after in told if isinstance(after, Next)]
    assert pauses == [5, 10, 20, 40, 80, 160]
    assert all(
        (after.launch.rung, after.launch.session) == ("retry", "s")
        for _, after in told
        if isinstance(after, Next)
    )
    assert told[-1][1] == GiveUp()


def test_a_backend_without_sessions_begins_anew() -> None:
    """A session that the backend cannot go on in is not handed on."""
    after = next_launch(fault("transient", can_resume=False), (), NOW, "seed")
    assert isinstance(after, Next)
    assert after.launch.session is None


def test_a_rate_limit_waits_for_the_time_it_names() -> None:
    """The next launch is not before retry_at, and not before the backoff."""
    late = next_launch(fault("rate_limit", retry_at=NOW + 90), (), NOW, "seed")
    soon = next_launch(fault("rate_limit", retry_at=NOW + 1), (), NOW, "seed")
    assert isinstance(late, Next)
    assert isinstance(soon, Next)
    assert (late.due, soon.due) == (NOW + 90, NOW + 5)


def test_a_rate_limit_that_ends_too_late_is_not_waited_for() -> None:
    """Longer than the bound: the next of the chain is asked at once, and without one it is over."""
    far = fault("rate_limit", retry_at=NOW + 2 * HOUR, ladder=Ladder(cap_max_wait_s=HOUR))
    after = next_launch(replace(far, routes=2), (), NOW, "seed")
    assert isinstance(after, Next)
    assert (after.launch.rung, after.due) == ("fallback", NOW)
    assert next_launch(far, (), NOW, "seed") == GiveUp()


def test_a_cap_is_probed_once_and_then_waited_for() -> None:
    """With an end in five hours: one probe after half an hour, then the end and its margin."""
    ends = NOW + 5 * HOUR
    told = climbed(fault("usage_cap", retry_at=ends), most=2)
    (_, probe), (_, wait) = told
    assert isinstance(probe, Next)
    assert isinstance(wait, Next)
    assert (probe.due, wait.due) == (NOW + 1800, ends + 30)
    assert (probe.launch.rung, wait.launch.number) == ("wait", 3)


def test_a_new_cap_is_probed_again() -> None:
    """A cap that comes after another failure is a new one."""
    failure = fault("usage_cap", retry_at=NOW + 5 * HOUR)
    past = [
        stamp(LadderStep("p", 1, kind, "", Launch(number)), "r", number, NOW - HOUR)
        for number, kind in enumerate(["usage_cap", "usage_cap", "transient"], 1)
    ]
    after = next_launch(failure, past, NOW, "seed")
    assert isinstance(after, Next)
    assert after.due == NOW + 1800


def test_a_cap_of_unknown_end_is_probed_until_the_bound() -> None:
    """Every half hour for eight days, then a person is asked for."""
    told = climbed(fault("usage_cap"))
    waits = [now for now, after in told if isinstance(after, Next)]
    assert all(b - a == 1800 for a, b in pairwise(waits))
    last, after = told[-1]
    assert isinstance(after, Park)
    assert 7.9 * DAY < last - NOW <= 8 * DAY
    assert "cap_max_wait_s" in after.advice


@pytest.mark.parametrize(
    ("most_s", "told"), [(8 * DAY, "8 days"), (DAY, "24 hours"), (5_400, "90 minutes"), (9, "9 s")]
)
def test_a_cap_that_ends_too_late_parks_at_once(most_s: float, told: str) -> None:
    """An end in nine days is nothing to wait for in a process; the advice says how long is."""
    ladder = Ladder(cap_max_wait_s=most_s)
    after = next_launch(fault("usage_cap", retry_at=NOW + 9 * DAY, ladder=ladder), (), NOW, "seed")
    assert isinstance(after, Park)
    assert f"more than {told} away" in after.advice


@pytest.mark.parametrize("kind", ["spending_cap", "auth"])
def test_what_only_a_person_can_mend_parks(kind: AgentErrorKind) -> None:
    """No launch is made, however long the chain, and the advice is the backend's hint."""
    after = next_launch(fault(kind, hint="Run `x login`.", routes=3), (), NOW, "seed")
    assert isinstance(after, Park)
    assert after.advice.endswith("it failed. Run `x login`.")


def test_a_program_that_crashed_has_a_moment() -> None:
    """What it crashed of may be over then; an interruption and a hang need none."""
    assert [due - NOW for due, _ in climbed(fault("crashed", ladder=STEADY))][:3] == [0, 5, 15]
    assert [due for due, _ in climbed(fault("interrupted", ladder=STEADY))][:3] == [NOW] * 3


def test_a_login_is_looked_for_again_where_that_is_wanted() -> None:
    """After a minute, then each half hour, until the bound; then a person is needed."""
    climb = climbed(fault("auth", ladder=Ladder(auth="probe", max_launches=1_000)))
    assert [due - NOW for due, _ in climb[:4]] == [0, 60, 1_860, 3_660]
    assert all(isinstance(after, Next) and after.launch.rung == "wait" for _, after in climb[:-1])
    assert isinstance(climb[-1][1], Park)
    assert climb[-1][0] - NOW <= 8 * DAY


def test_a_session_that_is_full_is_compacted_and_then_left() -> None:
    """First the same session made smaller, then a new one with a summary, then the end."""
    assert rungs(fault("context_overflow", can_compact=True)) == ["compact", "summarise", "GiveUp"]
    assert rungs(fault("context_overflow")) == ["summarise", "summarise", "GiveUp"]


def test_a_summary_is_of_what_was_said_last() -> None:
    """The next launch has the end of what the agent said, and no session."""
    after = next_launch(fault("context_overflow", text="I did a and b"), (), NOW, "seed")
    assert isinstance(after, Next)
    assert (after.launch.session, after.launch.answer) == (None, "I did a and b")


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (0, ["GiveUp"]),
        (1, ["reask", "GiveUp"]),
        (2, ["reask", "reframe", "GiveUp"]),
        (4, ["reask", "reask", "reask", "reframe", "GiveUp"]),
    ],
)
def test_an_answer_that_does_not_fit_is_asked_for_again(most: int, expected: list[str]) -> None:
    """max_reasks times in all; the last of several is a new session."""
    assert rungs(fault("invalid_output", max_reasks=most)) == expected


@pytest.mark.parametrize("kind", ["bad_request", "config", "crashed"])
def test_a_session_that_is_gone_is_left(kind: AgentErrorKind) -> None:
    """A launch that could not go on in its session is made again in a new one, once."""
    gone = fault(kind, Launch(2, rung="resume", session="s"), session=None)
    after = next_launch(gone, (), NOW, "seed")
    assert isinstance(after, Next)
    assert (after.launch.session, after.due) == (None, NOW)
    again = next_launch(fault("bad_request", after.launch, session=None), (), NOW, "seed")
    assert again == GiveUp()


def test_re_asks_are_not_multiplied_by_retries() -> None:
    """What an earlier attempt of the step used up is used up."""
    used = Launch(5, reasks=2)
    assert next_launch(fault("invalid_output", used, max_reasks=2), (), NOW, "s") == GiveUp()


def test_the_chain_is_gone_down_once() -> None:
    """When a route's ladder is used up the next begins, clean, with an allowance of its own."""
    told = rungs(fault("crashed", routes=3))
    assert told == ["retry", "retry", "fallback"] * 2 + ["retry", "retry", "GiveUp"]
    after = next_launch(fault("bad_request", routes=2), (), NOW, "seed")
    assert isinstance(after, Next)
    assert (after.launch.route, after.launch.session) == (1, None)


def test_an_attempt_makes_no_more_launches_than_the_ladder_says() -> None:
    """Whatever is left to try: retries of this backend, or the next of the chain."""
    three = Ladder(max_launches=3, transient_retries=9, crash_retries=1)
    assert rungs(fault("transient", ladder=three)) == ["retry", "retry", "GiveUp"]
    assert rungs(fault("crashed", ladder=three, routes=9)) == ["retry", "fallback", "GiveUp"]


def test_spending_is_carried_along() -> None:
    """Each launch knows what those before it used."""
    spent = Launch(2, spent=Usage(10, 1))
    after = next_launch(fault("transient", spent, usage=Usage(5, 2)), (), NOW, "seed")
    assert isinstance(after, Next)
    assert after.launch.spent == Usage(15, 3)


FAULTS = st.builds(
    Fault,
    st.builds(Launch, st.integers(1, 5), reasks=st.integers(0, 3)),
    st.sampled_from(KINDS),
    st.just("why"),
    retry_at=st.none() | st.floats(NOW - DAY, NOW + 20 * DAY),
    session=st.none() | st.just("s"),
    max_reasks=st.integers(0, 3),
    routes=st.integers(1, 3),
    can_resume=st.booleans(),
    can_compact=st.booleans(),
)


@given(FAULTS)
def test_every_climb_ends(failure: Fault) -> None:
    """The same failure for ever comes to an end, within the bound on launches."""
    told = climbed(failure)
    assert isinstance(told[-1][1], (GiveUp, Park))
    assert len(told) <= failure.ladder.max_launches


@given(st.lists(FAULTS, min_size=1, max_size=60))
def test_any_sequence_of_failures_keeps_the_rules(failures: list[Fault]) -> None:
    """Numbers rise by one, nothing is due in the past, routes only go on, re-asks stay in bounds,
    and a session is handed on only by a backend that can go on in it.
    """
    past: list[LadderStep] = []
    now = NOW
    for drawn in failures:
        failure = replace(drawn, launch=past[-1].next if past else FIRST, routes=3, max_reasks=2)
        after = next_launch(failure, past, now, "seed")
        if not isinstance(after, Next):
            break
        launch = after.launch
        assert launch.number == failure.launch.number + 1
        assert after.due >= now
        assert launch.route - failure.launch.route in (0, 1)
        assert launch.reasks <= 2
        assert launch.session is None or (failure.can_resume and failure.session is not None)
        step = LadderStep("p", 1, failure.kind, "", launch, after.due)
        past.append(stamp(step, "r", len(past) + 1, now))
        now = max(now, after.due)
