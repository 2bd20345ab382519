"""Any workflow, killed at any write, ends as if it had not been: drawn shapes on both loops."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from handrail import JournalFailed
from handrail.testing import TextJournal
from handrail.testing.shapes import (
    ALWAYS,
    Act,
    Action,
    Ask,
    Body,
    Child,
    Choice,
    Each,
    Raise,
    Rounds,
    Shape,
    Together,
    Try,
    workflow_of,
)
from handrail.testing.strategies import bodies
from handrail.testing.text_journal import GroupingTextJournal
from tests.durability.support import (
    LAW,
    RUN,
    Lives,
    backends,
    essence,
    hold,
    nothing_recorded_is_performed_again,
    nothing_was_lost,
    performed_at_most_once_a_life,
    the_record_lists_the_same,
    what_can_be_undone_is_undone,
    what_was_undone_is_done_again,
    with_rollbacks,
)

pytestmark = pytest.mark.usefixtures("outside_git")

CRASHES = st.lists(st.tuples(st.integers(0, 25), st.booleans()), min_size=1, max_size=3)
GATES = st.sampled_from(["approve", None])

ACT = Shape(Act())
FAILS_ONCE = Shape(Act(1))
# Shapes that a crash told on once: only the list of what had been done was another after it.
HAS_CHOSEN = Body(
    (Shape(Ask()), Shape(Each((ACT, Body(()), Shape(Choice(((True, ACT),)))), "continue")))
)
PAUSES = Body((Try((ACT,), final=(Shape(Child(Body((FAILS_ONCE,))), attempts=2, backoff_s=1.0),)),))
TIDIES_UP = Body((Shape(Child(Body((Try((FAILS_ONCE,), final=(ACT,)),))), attempts=2),))

HAS_A_FALLBACK = Body((Shape(Each((Body((Raise(),)),), "all_or_nothing"), fallback=ACT),))
ASKS_TWICE = Together((FAILS_ONCE, Shape(Ask(), rollback="succeeds")), "all_or_nothing")
IS_TRIED_AGAIN = Body((Shape(ASKS_TWICE, attempts=2, backoff_s=1.0),))
CHILD_TIDIES_UP = Body((Shape(Child(Body((Try((FAILS_ONCE, ACT), final=(ACT,)),)))),))


@backends
@LAW
@given(body=bodies(timeless=True), crashes=CRASHES, gates=GATES, grouping=st.booleans())
def test_a_run_that_is_killed_anywhere_ends_as_if_it_had_not_been(
    backend: str, *, body: Body, crashes: list[tuple[int, bool]], gates: Any, grouping: bool
) -> None:
    """Where nothing is decided by time, no crash changes a result or repeats what is recorded, nor
    does it whether events are stored one by one or together.
    """
    flow = workflow_of(body)
    journal = GroupingTextJournal() if grouping else TextJournal()
    whole = Lives(flow, backend=backend, gates=gates).through()
    story = Lives(flow, backend=backend, gates=gates, journal=journal).through(crashes)
    hold(story)
    assert essence(story.result) == essence(whole.result)


@backends
@LAW
@given(body=bodies(), crashes=CRASHES, gates=GATES, grouping=st.booleans())
def test_a_run_that_races_against_time_and_crashes_repeats_nothing(
    backend: str, *, body: Body, crashes: list[tuple[int, bool]], gates: Any, grouping: bool
) -> None:
    """Races, timeouts and ``fail_fast``: a crash may change who is faster, but nothing that is
    recorded is performed again, lost, or taken twice, and the run ends once. So it is where ends
    that come at once are recorded as one.
    """
    lives = Lives(workflow_of(body), backend=backend, gates=gates)
    if grouping:
        lives = replace(lives, journal=GroupingTextJournal(), few=0)
    hold(lives.through(crashes))


@backends
@LAW
@given(body=bodies(depth=2).map(with_rollbacks), crashes=CRASHES, gates=GATES)
def test_a_run_that_fails_in_the_end_leaves_nothing_to_undo(
    backend: str, *, body: Body, crashes: list[tuple[int, bool]], gates: Any
) -> None:
    """Whatever was done in attempts that failed, in what was stopped, or in earlier lives."""
    handled = (Try((one,), ()) for one in body.statements)
    flow = workflow_of(Body((*handled, Shape(Act(ALWAYS)))))
    hold(Lives(flow, backend=backend, gates=gates).through(crashes))


@backends
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


@backends
@LAW
@given(
    body=bodies(timeless=True, depth=2), crash=st.tuples(st.integers(0, 25), st.booleans()),
    gates=GATES, fixed=st.booleans(),
)  # fmt: skip
@example(body=TIDIES_UP, crash=(5, False), gates="approve", fixed=False)
@example(body=CHILD_TIDIES_UP, crash=(0, False), gates="approve", fixed=True)
def test_a_failed_run_that_is_resumed_and_killed_ends_as_if_it_had_not_been_killed(
    backend: str, *, body: Body, crash: tuple[int, bool], gates: Any, fixed: bool
) -> None:
    """Whether its code was mended or not: what the resume supersedes is performed again, nothing
    else is, and a crash in it changes nothing.
    """
    flow = workflow_of(body)
    lives = Lives(flow, backend=backend, gates=gates)
    if lives.through().result.status != "failed":
        return
    with mended() if fixed else contextlib.nullcontext():
        whole, killed = lives.twin(), lives.twin()
        whole.again = killed.again = True
        expected = whole.through()
        if killed.live(stop_at=crash[0], abrupt=not crash[1]) is None:
            killed.again = len(killed.journal.records(RUN)) == len(killed.found[0])
        story = killed.through() if killed.journal.gone else expected
    for one in (expected, story):
        nothing_recorded_is_performed_again(one)
        performed_at_most_once_a_life(one)
        nothing_was_lost(one)
        the_record_lists_the_same(one)
        what_can_be_undone_is_undone(one)
        what_was_undone_is_done_again(one)
    assert essence(story.result) == essence(expected.result)


@contextlib.contextmanager
def mended() -> Generator[None]:
    """Meanwhile no action of a shape fails."""
    usual = Action.fails
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Action, "fails", lambda *_: False)
        yield
    assert Action.fails is usual


@backends
@LAW
@given(
    body=bodies(timeless=True, depth=2), first=st.integers(1, 25),
    crash=st.tuples(st.integers(0, 20), st.booleans()), gates=GATES,
)  # fmt: skip
@example(body=HAS_CHOSEN, first=15, crash=(12, False), gates="approve")
@example(body=Body((Shape(Rounds((0,))),)), first=4, crash=(0, False), gates="approve")
@example(body=PAUSES, first=15, crash=(4, False), gates="approve")
@example(body=HAS_A_FALLBACK, first=1, crash=(4, False), gates="approve")
@example(body=IS_TRIED_AGAIN, first=25, crash=(0, False), gates="approve")
def test_a_cancelled_run_that_is_killed_ends_cancelled(
    backend: str, *, body: Body, first: int, crash: tuple[int, bool], gates: Any
) -> None:
    """A dead run that is cancelled unwinds to the same end, also if the process that does it dies
    once the request is recorded.
    """
    lives = Lives(workflow_of(body), backend=backend, gates=gates)
    if lives.live(stop_at=first) is not None or lives.at_its_end():
        return
    whole, killed = lives.twin(), lives.twin()
    whole.cancels = killed.cancels = "enough"
    expected = whole.through()
    story = killed.through([crash])
    hold(expected)
    hold(story)
    assert essence(story.result) == essence(expected.result)
