"""The laws of a run, on workflows that Hypothesis draws, driven by hand without an event loop."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from handrail import Steps, step, workflow
from handrail.model import events as ev
from handrail.testing import strategies
from handrail.testing.shapes import Body
from tests.testing import laws
from tests.testing.by_hand import Hand, drive, essence

SCHEDULES = st.lists(st.integers(0, 6), max_size=40)
MOMENTS = st.integers(0, 20)
some = settings(max_examples=settings().max_examples * 6 // 10)  # of what the profile says


@some
@given(strategies.bodies(timeless=True), SCHEDULES)
def test_any_order_of_ends_gives_the_same_result(body: Body, schedule: list[int]) -> None:
    """Statuses, values, outputs and attempts do not depend on which attempt ends first."""
    assert essence(drive(body, schedule).result) == essence(drive(body).result)


@some
@given(strategies.bodies(), SCHEDULES, st.booleans())
def test_what_starts_ends_once(body: Body, schedule: list[int], time: bool) -> None:
    """Every path has exactly one start and one end in a drive."""
    laws.one_start_and_one_end(drive(body, schedule, time=time).events)


@some
@given(strategies.bodies(), SCHEDULES, st.booleans())
def test_children_lie_inside_their_parents(body: Body, schedule: list[int], time: bool) -> None:
    """All that is said of a path comes after the start and before the end of what it is below."""
    laws.children_inside_their_parents(drive(body, schedule, time=time).events)


@some
@given(strategies.bodies(), SCHEDULES, st.none() | MOMENTS)
def test_a_drive_has_one_end_that_is_last(
    body: Body, schedule: list[int], cancel_at: int | None
) -> None:
    """Exactly one event ends a drive, nothing follows it, and nothing is left behind."""
    hand = drive(body, schedule, time=True, cancel_at=cancel_at)
    laws.numbered_without_a_hole(hand.events)
    laws.one_end_and_nothing_after_it(hand.events)
    laws.nothing_left(hand)


@some
@given(strategies.bodies(), SCHEDULES, st.none() | MOMENTS)
def test_results_are_in_tree_order(body: Body, schedule: list[int], cancel_at: int | None) -> None:
    """The result has every step that ended, in the order of the workflow and not of time."""
    hand = drive(body, schedule, time=True, cancel_at=cancel_at)
    assert hand.result is not None
    laws.results_in_tree_order(hand.events, hand.result)


@some
@given(strategies.bodies(), SCHEDULES, st.none() | MOMENTS)
def test_rollbacks_run_in_reverse(body: Body, schedule: list[int], cancel_at: int | None) -> None:
    """What succeeded is undone last first, once, whatever order it ended in."""
    hand = drive(body, schedule, time=True, cancel_at=cancel_at)
    undoable = {path for path, one in hand.steps.items() if one.modifiers.rollback is not None}
    assert hand.result is not None
    laws.rolled_back_in_reverse(hand.events, hand.result, undoable)


@some
@given(strategies.bodies(), SCHEDULES, MOMENTS)
def test_cancelling_ends_everything(body: Body, schedule: list[int], cancel_at: int) -> None:
    """A run that is cancelled at any moment ends as cancelled, and what had begun has ended."""
    hand = drive(body, schedule, time=True, cancel_at=cancel_at)
    laws.cancelled_to_the_end(hand)
    laws.one_start_and_one_end(hand.events)
    laws.children_inside_their_parents(hand.events)


@some
@given(strategies.bodies(), SCHEDULES, st.none() | MOMENTS)
def test_groups_keep_to_their_window(
    body: Body, schedule: list[int], cancel_at: int | None
) -> None:
    """No more members run at once than a group allows, and its end counts them all."""
    laws.groups_count_their_members(drive(body, schedule, time=True, cancel_at=cancel_at).events)


@some
@given(strategies.bodies(), SCHEDULES, st.none() | MOMENTS)
def test_commands_come_in_tree_order(
    body: Body, schedule: list[int], cancel_at: int | None
) -> None:
    """Within one batch, commands come in the order of the tree."""
    laws.commands_in_tree_order(drive(body, schedule, time=True, cancel_at=cancel_at))


MANY = 2_000


@workflow
def many() -> Steps[int]:
    """Do as many things side by side."""
    outputs = yield from step("many").for_each(
        range(MANY), lambda item: step("one").call(abs, item)
    )
    return len(outputs)


def begun() -> Hand:
    """The run, with every member in flight."""
    hand = Hand(many)
    assert len(hand.open_attempts) == MANY
    return hand


def finished(hand: Hand) -> Hand:
    """The run, with every member ended."""
    for path in list(hand.open_attempts):
        hand.end_with(path, path)
    return hand


@contextmanager
def shallow_stack() -> Iterator[None]:
    """Room for some hundred calls, and no more."""
    depth, frame = 0, sys._getframe()
    while frame.f_back is not None:
        depth, frame = depth + 1, frame.f_back
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + 150)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def in_a_shallow_stack(act: Callable[[], Any]) -> Any:
    """What the function gives, called where there is little room."""
    with shallow_stack():
        return act()


def test_a_group_of_thousands_replays_without_recursion() -> None:
    """Members that are all recorded are gone through in a loop, however many they are."""
    history = finished(begun()).events
    ends = [event for event in history if isinstance(event, ev.MemberCompleted)]
    crashed = history[: history.index(ends[-1])]
    hand = in_a_shallow_stack(lambda: Hand(many, history=crashed))
    assert hand.performed == []
    assert hand.result is not None
    assert (hand.result.status, hand.result.value) == ("succeeded", MANY)


def test_a_group_of_thousands_is_cancelled_without_recursion() -> None:
    """Members in flight are all stopped in a loop, however many they are."""
    hand = begun()
    in_a_shallow_stack(lambda: hand.record(ev.CancelRequested("enough")))
    assert hand.result is not None
    assert hand.result.status == "cancelled"
