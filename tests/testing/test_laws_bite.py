"""Each law of a run fails when the core breaks it on purpose."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from handrail.core import attempts, ending, failing, machine, stopping
from handrail.core.groups import GroupNode, Members
from handrail.core.nodes import Node
from handrail.core.nodes import Phase as NodePhase
from handrail.core.run_state import Action, RunState, StepNode, Stop
from handrail.model import events as ev
from handrail.testing import strategies
from tests.testing import laws, test_laws_pure
from tests.testing.by_hand import Hand, Stuck, drive, essence

Law = Callable[[Hand], None]

# A core that is broken on purpose leaves bodies unclosed, which Python says when it collects them.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Collect what a broken core left while its warnings are ignored."""
    yield
    gc.collect()


def same_result(hand: Hand) -> None:
    """The law that any order of ends gives the same result."""
    assert essence(hand.result) == essence(Hand(hand.workflow).run([]).result)


def on_events(law: Callable[[Any], None]) -> Law:
    """The law, of a hand."""
    return lambda hand: law(hand.events)


def results_in_tree_order(hand: Hand) -> None:
    """The law, of a hand."""
    assert hand.result is not None
    laws.results_in_tree_order(hand.events, hand.result)


def rolled_back_in_reverse(hand: Hand) -> None:
    """The law, of a hand."""
    assert hand.result is not None
    undoable = {path for path, one in hand.steps.items() if one.modifiers.rollback is not None}
    laws.rolled_back_in_reverse(hand.events, hand.result, undoable)


class Broken(BaseException):
    """A law was broken. No ``Exception``: to print what was drawn, as Hypothesis would, can take
    minutes.
    """


def breaks(law: Law, *, timeless: bool = False, cancelled: bool = False, first: int = 0) -> None:
    """Do nothing if a drawn workflow breaks the law; ``first`` is a seed that soon draws one."""
    moments = st.integers(0, 20) if cancelled else st.none()

    @settings(max_examples=25, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(strategies.bodies(timeless=timeless), test_laws_pure.SCHEDULES, moments)
    def look(body: Any, schedule: list[int], cancel_at: int | None) -> None:
        try:
            law(drive(body, schedule, time=not timeless, cancel_at=cancel_at))
        except Exception as error:  # a broken core may break down in any way
            raise Broken from error

    for number in (first, *range(40)):
        try:
            seed(number)(look)()
        except Broken:
            return
    pytest.fail("no workflow was found that breaks the law")


def test_results_in_order_of_completion_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that gives its outputs as they come breaks the law of order."""
    usual = GroupNode.output

    def output(group: GroupNode) -> tuple[Any, str]:
        return [result.output for result in group.members.results.values()], usual(group)[1]

    monkeypatch.setattr(GroupNode, "output", output)
    breaks(same_result, timeless=True, first=26)


def test_a_second_end_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed attempt that ends a step which is stopped already is seen."""
    fail = failing.fail_for_good

    def twice(run: RunState, node: StepNode, failure: Any) -> None:
        fail(run, node, failure)
        fail(run, node, failure)

    monkeypatch.setattr(failing, "fail_for_good", twice)
    monkeypatch.setattr(attempts, "fail_for_good", twice)
    breaks(on_events(laws.one_start_and_one_end), first=15)


def test_a_group_that_ends_before_its_members_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that does not wait for those it cancels is seen."""

    def end_at_once(self: GroupNode, run: RunState, child: Node, result: Any) -> None:
        self.members.count(child, result)
        if self.phase is NodePhase.RUNNING:
            self.stopped(run)
            run.succeed(self, None)

    monkeypatch.setattr(GroupNode, "child_ended", end_at_once)
    breaks(on_events(laws.children_inside_their_parents), first=44)


def test_an_event_after_the_end_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event that follows the end of the run is seen."""
    complete = ending._complete

    def complete_and_say_more(run: RunState) -> None:
        complete(run)
        run.record(ev.LimitReached("max_steps", 1))

    monkeypatch.setattr(ending, "_complete", complete_and_say_more)
    breaks(on_events(laws.one_end_and_nothing_after_it))


def test_results_out_of_order_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A result that lists steps by time of end is seen."""
    monkeypatch.setattr(
        "handrail.record.results.tree_order", lambda _tree, results, *_root: tuple(results.values())
    )
    breaks(results_in_tree_order)


def test_rollbacks_in_order_of_success_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undoing the first step first is seen."""
    undo = ending.undo

    def undo_first(run: RunState, node: Node, then: Callable[[], None]) -> None:
        if node.rollbacks:
            node.rollbacks.append(node.rollbacks.pop(0))
        undo(run, node, then)

    monkeypatch.setattr(ending, "undo", undo_first)
    breaks(rolled_back_in_reverse, first=45)


def test_an_attempt_after_a_cancellation_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that goes on to its fallback although it is being stopped is seen."""

    def go_on(run: RunState, node: StepNode) -> None:
        node.stop, node.hard, node.unwinding = None, False, False
        attempts.attempt(run, node)

    monkeypatch.setattr(stopping, "_end_step", go_on)
    breaks(laws.cancelled_to_the_end, cancelled=True, first=4)


def test_a_wait_that_outlives_a_cancellation_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that waits on although its run is cancelled is seen."""
    stop = stopping._stop_childless

    def stop_unless_it_waits(run: RunState, node: Node, reason: str) -> None:
        if node.path not in run.gates:
            stop(run, node, reason)

    monkeypatch.setattr(stopping, "_stop_childless", stop_unless_it_waits)
    breaks(laws.cancelled_to_the_end, cancelled=True, first=19)


def test_a_window_that_opens_too_far_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that starts one member more than it may is seen."""
    may_pull = Members.may_pull

    def may_pull_one_more(self: Members, node: Node) -> bool:
        window, self.window = self.window, None if self.window is None else self.window + 1
        try:
            return may_pull(self, node)
        finally:
            self.window = window

    monkeypatch.setattr(Members, "may_pull", may_pull_one_more)
    breaks(on_events(laws.groups_count_their_members), first=20)


def test_commands_out_of_order_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members that are stopped last first are seen."""

    def stop_last_first(self: GroupNode, run: RunState, reason: str) -> None:
        for member in (self.live or {}).values():
            run.push(Stop(member, reason))

    monkeypatch.setattr(GroupNode, "_stop_members", stop_last_first)
    breaks(laws.commands_in_tree_order, first=42)


def test_recursion_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agenda that is worked off by calls within calls overflows the stack."""
    history = test_laws_pure.finished(test_laws_pure.begun()).events[:-3]

    def act_at_once(run: RunState, action: Action) -> None:
        machine.act(run, action)

    monkeypatch.setattr(RunState, "push", act_at_once)
    with pytest.raises(RecursionError):
        test_laws_pure.in_a_shallow_stack(lambda: Hand(test_laws_pure.many, history=history))


def test_a_drive_that_cannot_end_is_seen() -> None:
    """A run that waits for what nobody gives is told apart from one that has ended."""
    hand = test_laws_pure.begun()
    hand.open_attempts.clear()
    with pytest.raises(Stuck):
        hand.run([])
