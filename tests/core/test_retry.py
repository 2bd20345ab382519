"""Another attempt follows while there is one left, after a pause that a replay repeats."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.core.retry import delay_s, pause_s
from handrail.model.policy import Backoff, Retry, backoff_of

BACKOFFS = st.builds(
    Backoff,
    initial_s=st.just(0.0) | st.floats(1e-3, 1e6),
    factor=st.floats(1, 1e3),
    max_s=st.floats(0, 1e6),
    jitter=st.floats(0, 1),
)
ATTEMPTS = st.integers(1, 100_000)
FLAT = Backoff(initial_s=1, factor=1, max_s=1, jitter=1)
KNOWN = (0.9027902536213634, 7.417592317258368)


def unjittered(backoff: Backoff, attempt: int) -> float:
    """The pause that a backoff describes, before anything is taken off."""
    if backoff.initial_s == 0:
        return 0.0
    exponent = math.log(backoff.initial_s) + (attempt - 1) * math.log(backoff.factor)
    return backoff.max_s if exponent > 700 else min(math.exp(exponent), backoff.max_s)


@given(BACKOFFS, ATTEMPTS, st.text())
def test_a_pause_is_of_its_backoff_attempt_and_seed(
    backoff: Backoff, attempt: int, seed: str
) -> None:
    """It is at most what the backoff describes, and at least that less the jitter's share; never
    longer than ``max_s``, nor negative; and the same each time.
    """
    most = unjittered(backoff, attempt)
    pause = delay_s(backoff, attempt, seed)
    assert most * (1 - backoff.jitter) * (1 - 1e-9) <= pause <= most * (1 + 1e-9)
    assert 0 <= pause <= backoff.max_s
    twin = Backoff(backoff.initial_s, backoff.factor, backoff.max_s, backoff.jitter)
    assert delay_s(twin, attempt, "".join(list(seed))) == pause


def test_a_known_pause_stays_what_it_was() -> None:
    """The hash behind the jitter is fixed, so a run that a later version resumes waits the same."""
    assert delay_s(Backoff(), 1, "run-1/fetch") == pytest.approx(KNOWN[0], rel=1e-12)
    assert delay_s(Backoff(), 4, "run-1/fetch") == pytest.approx(KNOWN[1], rel=1e-12)


def test_pauses_are_spread_over_the_whole_range() -> None:
    """Of 1,000 steps that fail together, about 100 retry in each tenth of the jitter's range."""
    pauses = [delay_s(FLAT, 1, f"run/step-{number}") for number in range(1_000)]
    tenths = [sum(n / 10 <= pause < (n + 1) / 10 for pause in pauses) for n in range(10)]
    assert all(60 <= count <= 140 for count in tenths)


def test_each_attempt_has_a_jitter_of_its_own() -> None:
    """Two steps whose first pauses are close are not close for ever."""
    assert len({delay_s(FLAT, attempt, "run/step") for attempt in range(1, 101)}) == 100


@pytest.mark.parametrize(
    ("attempt", "expected"), [(1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (9, 10)]
)
def test_pauses_grow_by_the_factor_up_to_the_cap(attempt: int, expected: float) -> None:
    """Without jitter the pauses are 1, 2, 4, 8 and then the cap."""
    backoff = Backoff(initial_s=1, factor=2, max_s=10, jitter=0)
    assert delay_s(backoff, attempt, "seed") == expected


def test_a_power_beyond_floats_is_the_cap() -> None:
    """Attempt 5,000 of an exponential backoff waits the cap, and raises nothing."""
    assert delay_s(Backoff(initial_s=1, factor=10.0, max_s=60, jitter=0), 5_000, "seed") == 60


def test_a_number_of_seconds_is_a_fixed_pause() -> None:
    """``backoff=3`` waits three seconds each time, without jitter, and ``backoff=0`` not at all."""
    assert {delay_s(backoff_of(3), attempt, "seed") for attempt in range(1, 9)} == {3}
    assert {delay_s(backoff_of(0), attempt, "seed") for attempt in range(1, 9)} == {0}


@given(attempt=ATTEMPTS, most=st.integers(1, 1_000), retryable=st.booleans())
def test_another_attempt_follows_exactly_while_one_is_left(
    *, attempt: int, most: int, retryable: bool
) -> None:
    """``retry(n)`` allows n attempts in all, and none after a failure that it does not cover."""
    pause = pause_s(attempt, retryable=retryable, retry=Retry(most), seed="seed")
    assert (pause is not None) == (retryable and attempt < most)


def test_the_pause_is_that_of_the_policy() -> None:
    """What is chosen is the policy's own pause for this attempt and seed."""
    pause = pause_s(2, retryable=True, retry=Retry(3), seed="run/step")
    assert pause == delay_s(Backoff(), 2, "run/step")


@given(ATTEMPTS)
def test_without_a_policy_there_is_one_attempt(attempt: int) -> None:
    """A step without ``.retry`` is not tried again."""
    assert pause_s(attempt, retryable=True, retry=None, seed="seed") is None
