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


@given(strategies.bodies(timeless=True), SCHEDULES)
def test_any_order_of_ends_gives_the_same_result(body: Body, schedule: list[int]) -> None:
    """Statuses, values, outputs and attempts do not depend on which attempt ends first."""
    assert essence(drive(body, schedule).result) == essence(drive(body).result)


@settings(max_examples=2 * settings().max_examples)
@given(strategies.bodies(), SCHEDULES, st.booleans(), st.none() | MOMENTS)
def test_a_drive_keeps_the_laws(
    body: Body, schedule: list[int], time: bool, cancel_at: int | None
) -> None:
    """What starts ends once and inside its parent; the drive has one end, which is last, and leaves
    nothing behind; results and commands are in the order of the tree, what is undone is in reverse;
    groups keep to their window; and what is cancelled at any moment has ended.
    """
    hand = drive(body, schedule, time=time or cancel_at is not None, cancel_at=cancel_at)
    undoable = {path for path, one in hand.steps.items() if one.modifiers.rollback is not None}
    assert hand.result is not None
    laws.numbered_without_a_hole(hand.events)
    laws.one_start_and_one_end(hand.events)
    laws.children_inside_their_parents(hand.events)
    laws.one_end_and_nothing_after_it(hand.events)
    laws.nothing_left(hand)
    laws.results_in_tree_order(hand.events, hand.result)
    laws.rolled_back_in_reverse(hand.events, hand.result, undoable)
    laws.groups_count_their_members(hand.events)
    laws.commands_in_tree_order(hand)
    if cancel_at is not None:
        laws.cancelled_to_the_end(hand)


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
