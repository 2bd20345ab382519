"""Any workflow, killed at any write, ends as if it had not been: drawn shapes on both loops."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from handrail import JournalFailed
from handrail.testing.shapes import Body, workflow_of
from handrail.testing.strategies import bodies
from tests.durability.support import Lives, essence, hold

pytestmark = pytest.mark.extra("trio")

SOAKING = settings().max_examples > 100
LAW = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    max_examples=settings().max_examples if SOAKING else 40,
)
CRASHES = st.lists(st.tuples(st.integers(0, 25), st.booleans()), min_size=1, max_size=3)
GATES = st.sampled_from(["approve", None])


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@LAW
@given(body=bodies(timeless=True), crashes=CRASHES, gates=GATES)
def test_a_run_that_is_killed_anywhere_ends_as_if_it_had_not_been(
    backend: str, *, body: Body, crashes: list[tuple[int, bool]], gates: Any
) -> None:
    """Where nothing is decided by time, no crash changes a result or repeats what is recorded."""
    flow = workflow_of(body)
    whole = Lives(flow, backend=backend, gates=gates).through()
    story = Lives(flow, backend=backend, gates=gates).through(crashes)
    hold(story)
    assert essence(story.result) == essence(whole.result)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@LAW
@given(body=bodies(), crashes=CRASHES, gates=GATES)
def test_a_run_that_races_against_time_and_crashes_repeats_nothing(
    backend: str, *, body: Body, crashes: list[tuple[int, bool]], gates: Any
) -> None:
    """Races, timeouts and ``fail_fast``: a crash may change who is faster, but nothing that is
    recorded is performed again, lost, or taken twice, and the run ends once.
    """
    hold(Lives(workflow_of(body), backend=backend, gates=gates).through(crashes))


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@LAW
@given(body=bodies(timeless=True), number=st.integers(1, 30), gates=GATES)
def test_a_run_whose_write_fails_goes_on_from_there(
    backend: str, body: Body, number: int, gates: Any
) -> None:
    """The caller is told, and a resume ends as if nothing had failed."""
    flow = workflow_of(body)
    expected = essence(Lives(flow, backend=backend, gates=gates).through().result)
    lives = Lives(flow, backend=backend, gates=gates)
    with contextlib.suppress(JournalFailed):
        lives.live(fail_at=number)
    story = lives.through()
    hold(story)
    assert essence(story.result) == expected
