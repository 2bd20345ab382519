"""A fork keeps what had ended, performs the rest, and leaves the other run as it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail import Executor
from handrail.model import events as ev
from handrail.testing import TextJournal
from handrail.testing.shapes import Act, Ask, Body, Shape, workflow_of
from handrail.testing.strategies import bodies
from tests.durability.support import (
    LAW,
    LEAVES,
    RUN,
    EveryGate,
    Lives,
    Story,
    essence,
    every_crash,
    every_flow,
    lives,
    nothing_recorded_is_performed_again,
    performed_at_most_once_a_life,
)

pytestmark = pytest.mark.usefixtures("outside_git")

SIGNALS = {"go": [1] * 100}
CRASHES = st.lists(st.tuples(st.integers(0, 25), st.booleans()), max_size=2)
PLACES = st.none() | st.integers(0, 30)


def fork_of(run: Lives, **changes: Any) -> Lives:
    """The fork, before it is driven, as a run of its own; the other is as it was."""
    journal = run.journal.reopened()
    before = journal.records(RUN)
    executor = Executor(journal=journal, clock=run.clock, workflows=[run.flow])
    fork_id = executor.fork_sync(RUN, **changes)
    assert journal.records(RUN) == before
    twin = run.twin()
    rows = journal._store.rows
    twin.journal = TextJournal()
    twin.journal._store.rows[RUN] = rows.pop(fork_id)
    return twin


def begun_in(history: list[ev.Event]) -> list[str]:
    """The paths of all steps, in the order in which they began."""
    return list(dict.fromkeys(one.path for one in history if isinstance(one, ev.StepStarted)))


def performs_only_what_is_not_kept(story: Story) -> None:
    """What had ended, and its record counts, is done no more."""
    nothing_recorded_is_performed_again(story)
    performed_at_most_once_a_life(story)


@LAW
@given(body=bodies(timeless=True), crashes=CRASHES, place=PLACES)
def test_a_fork_with_nothing_changed_ends_the_same(
    *, body: Body, crashes: list[tuple[int, bool]], place: int | None
) -> None:
    """From wherever, of a run whatever happened to it, which has ended or has just died."""
    flow = workflow_of(body)
    whole = Lives(flow, signals=SIGNALS).through()
    run = Lives(flow, signals=SIGNALS)
    died = [run.live(stop_at=writes, abrupt=not back) for writes, back in crashes]
    if not died or died[-1] is not None:
        run.through()
    history = run.journal.reopened().events(RUN)
    if not history:
        return
    paths = begun_in(history)
    at = paths[place % len(paths)] if paths and place is not None else None
    forks = [fork_of(run, at=at) for _ in range(2)]
    assert forks[0].journal.records(RUN)[1:] == forks[1].journal.records(RUN)[1:]
    story = forks[0].through()
    assert essence(story.result) == essence(whole.result)
    performs_only_what_is_not_kept(story)


@every_flow
def test_a_fork_from_each_step_does_that_step_again(name: str) -> None:
    """And keeps what had ended by then, and was not undone later."""
    run = replace(lives(name), signals=SIGNALS)
    whole = run.through()
    for at in begun_in(whole.history):
        fork = fork_of(run, at=at)
        began = next(i for i, one in enumerate(whole.history) if getattr(one, "path", "") == at)
        kept = {one.path for one in whole.history[:began] if isinstance(one, ev.StepCompleted)}
        kept -= {one.path for one in whole.history[began:] if isinstance(one, ev.RollbackStarted)}
        story = fork.through()
        assert essence(story.result) == essence(whole.result)
        performed = {did.path for did in story.did if did.kind == "attempt"}
        assert performed.isdisjoint(kept)
        kinds = {one.path: one.step_type for one in whole.result.step_results}
        assert at in performed or kinds.get(at) not in LEAVES


@every_flow
def test_a_fork_is_whole_or_not_there(name: str) -> None:
    """Whichever write its maker dies at; and whoever drives it dies at."""
    run = replace(lives(name), signals=SIGNALS)
    whole = run.through()
    for returns in (True, False):
        journal = run.journal.reopened(stop_at=0 if returns else 1, abrupt=not returns)
        executor = Executor(journal=journal, clock=run.clock, workflows=[run.flow])
        with pytest.raises(BaseException, match="died"):
            executor.fork_sync(RUN, fork_id="other")
        found = run.journal.reopened()
        assert [one.run_id for one in found.runs()] == [RUN, "other"][: 1 if returns else 2]
        found._store.rows.pop("other", None)
    at = begun_in(whole.history)[-1]
    for crash in every_crash(name)[::7]:
        story = fork_of(run, at=at).through([crash])
        assert essence(story.result) == essence(whole.result)


@pytest.mark.parametrize("cancels", [True, False])
def test_a_fork_of_a_run_that_is_dying_does_not_die(*, cancels: bool) -> None:
    """It begins before what the run dies by, though that died three times: one that is cancelled
    just goes on, and of one that fails the step that failed runs again.
    """
    act = Shape(Act(), rollback="succeeds")
    flow = workflow_of(Body((act, act, Shape(Ask()), Shape(Act(0 if cancels else 1)))))
    dying = 0
    for writes in range(1, 25):
        run = Lives(flow, answers={} if cancels else EveryGate("yes"))
        if cancels:
            run.through()
            run.cancels = "stop"
        run.live(stop_at=writes)
        for _ in range(2):
            run.live(stop_at=2)
        kinds = {type(one) for one in run.journal.reopened().events(RUN)}
        unwinds = not kinds.isdisjoint({ev.RollbackStarted, ev.CancelRequested})
        if run.at_its_end() or not unwinds:
            continue
        dying += 1
        fork = fork_of(run)
        fork.answers, fork.cancels = EveryGate("yes"), None
        made = {type(one) for one in fork.journal.reopened().events(RUN)}
        assert made.isdisjoint({ev.RollbackStarted, ev.CancelRequested})
        story = fork.through()
        assert story.performed("3") == [0]
        assert story.result.status == ("succeeded" if cancels else "failed")
    assert dying > 1
