"""A run is driven alike whatever its host does with time, turns and pieces of work."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail import Limits, ReplayMismatch, Step, Steps, step, workflow
from handrail.codec.codec import Codec
from handrail.core import commands as cmd
from handrail.core.attempt_ends import failure_event, success_event
from handrail.core.conductor import Conductor, Question
from handrail.core.machine import Machine
from handrail.core.setting import Setting
from handrail.core.timers import InFlight
from handrail.model import events as ev
from handrail.model.shapes import WorkflowLike
from handrail.record.run_record import Recorded
from handrail.testing import strategies
from handrail.testing.shapes import Action, Body, workflow_of
from tests.testing.by_hand import Hand, drive, essence

SCHEDULES = st.lists(st.integers(0, 6), max_size=40)
some = settings(max_examples=settings().max_examples // 2)


class ByPieces(Hand):
    """A hand that carries out one command at a time."""

    def __init__(self, workflow: WorkflowLike[[], Any], **more: Any) -> None:
        self.pieces = 0
        pump = Conductor.pump

        def by_pieces(conductor: Conductor) -> None:
            while not pump(conductor, 1):
                self.pieces += 1

        Conductor.pump = by_pieces  # type: ignore[method-assign, assignment]
        try:
            super().__init__(workflow, **more)
        finally:
            Conductor.pump = pump  # type: ignore[method-assign]
        self._conductor.pump = lambda: by_pieces(self._conductor)  # type: ignore[method-assign, assignment, misc]


@some
@given(strategies.bodies(), SCHEDULES)
def test_work_in_pieces_is_the_same_work(body: Body, schedule: list[int]) -> None:
    """Nothing depends on how much is carried out between two looks at the host."""
    whole = drive(body, schedule)
    pieces = ByPieces(workflow_of(body)).run(schedule)
    assert [_plain(one) for one in pieces.events] == [_plain(one) for one in whole.events]
    assert essence(pieces.result) == essence(whole.result)


@some
@given(strategies.bodies(timeless=True), SCHEDULES, st.integers(0, 20))
def test_a_run_goes_on_in_another_drive_wherever_it_is_idle(
    body: Body, schedule: list[int], moves: int
) -> None:
    """A drive that ends where nothing is in flight, and one that goes on, come to the same end,
    also when that goes through its record piece by piece.
    """
    hand = Hand(workflow_of(body))
    hand.run(schedule[:moves], until=moves)
    hand._conductor.drain("handed on")
    hand._conductor.pump()
    while hand.result is None:
        assert hand.open_attempts, "only what is in flight may keep it"
        hand.end(next(iter(hand.open_attempts)))
    if hand.result.status == "suspended":
        assert hand.result.error is None
        before = hand.events
        hand = ByPieces(workflow_of(body), history=before).run(schedule[moves:])
        performed = [one for one in before if isinstance(one, ev.StepCompleted)]
        again = {one.path for one in hand.events if isinstance(one, ev.StepCompleted)}
        assert not again & {one.path for one in performed if one.result.step_type == "python"}
    assert _essence(hand) == _essence(drive(body))


@workflow
def recorded_rounds() -> Steps[int]:
    """Steps and groups of steps, one after the other."""
    for number in range(20):
        yield from step(f"one-{number}").call(Action("one", 0))
        yield from step(f"some-{number}").for_each(
            range(5), lambda _: step("one").call(Action("one", 0))
        )
    return 20


def test_a_long_record_is_gone_through_in_pieces_of_one_size() -> None:
    """A host has little time for each: none takes much more of the record than it was allowed."""
    before = Hand(recorded_rounds).run([]).events[:-1]
    recorded = Recorded(before)
    recorded.close()
    machine = Machine(recorded_rounds.definition, {}, Setting("run", recorded=recorded))
    conductor = Conductor(
        machine, Told(recorded_rounds), record=lambda _, sync=False: None, seq=len(before)
    )
    conductor.begin(ev.RunResumed())
    taken = [0]
    while not conductor.pump(10):
        taken.append(len(machine.run.results))
    assert len(machine.run.results) == 20 * 7
    assert max(after - before for before, after in pairwise(taken)) <= 10 + 7


def _essence(hand: Hand) -> Any:
    return essence(hand.result)


def _plain(event: ev.Event) -> Any:
    """An event without the memory addresses of errors in it."""
    shown = event.to_dict()
    shown.pop("traceback", None)
    return shown


# -- a host that says each end ---------------------------------------------------------------------


class Told:
    """A host that notes what it is asked for, and answers when the test does."""

    def __init__(self, workflow: Any, history: Sequence[ev.Event] = (), **options: Any) -> None:
        self.performs: list[str] = []
        self.stops: list[tuple[str, str]] = []
        self.questions: list[Question] = []
        self.turns: list[str] = []
        self.alarms: list[float | None] = []
        self.undos: list[str] = []
        self.events: list[ev.Event] = []
        self.time = 100.0
        codec = Codec() if options.pop("codec", False) else None
        limits = options.pop("limits", Limits())
        recorded = Recorded(history)
        recorded.close()
        setting = Setting("run", limits, recorded=recorded, codec=codec)
        machine = Machine(workflow.definition, {}, setting)
        self.conductor = Conductor(
            machine, self, record=self._keep, tell=lambda _: None, seq=len(history), **options
        )
        first = ev.RunResumed() if history else ev.WorkflowStarted(workflow.definition.name)
        self.commands: dict[str, cmd.Perform] = {}
        self.codec = codec
        self.conductor.begin(first)
        self.conductor.pump()

    def _keep(self, event: ev.Event, *, sync: bool = False) -> None:
        if self.codec is not None and isinstance(event, ev.StepCompleted):
            self.codec.dump(event.result.output, where=event.path)
        self.events.append(event)

    def now(self) -> float:
        """What the test says."""
        return self.time

    def perform(self, attempt: cmd.Perform) -> None:
        """Note it."""
        self.performs.append(attempt.path)
        self.commands[attempt.path] = attempt

    def undo(self, rollback: cmd.Undo) -> None:
        """Note it."""
        self.undos.append(rollback.path)

    def evaluate(self, question: Question) -> None:
        """Note it."""
        self.questions.append(question)

    def stop(self, it: InFlight) -> None:
        """Note it."""
        self.stops.append((it.path, it.kind))

    def alarm(self, due: float | None) -> None:
        """Note it."""
        self.alarms.append(due)

    def turn(self, path: str) -> None:
        """Note it."""
        self.turns.append(path)

    def end(self, path: str, output: Any = None) -> None:
        """The attempt at this path gave this."""
        self.conductor.finished(path, success_event(self.commands[path], output, None, self.time))
        self.conductor.pump()

    def status(self) -> str | None:
        """How the drive ended, if it has."""
        result = self.conductor.result
        return None if result is None else result.status


MANY = 300


@workflow
def wide() -> Steps[list[int]]:
    """Many calls side by side."""
    outputs = yield from step("wide").for_each(range(MANY), lambda n: step("one").call(abs, n))
    return outputs


@workflow
def two() -> Steps[int]:
    """One call after another."""
    yield from step("a").call(abs, 1)
    last: int = yield from step("b").call(abs, 2)
    return last


@workflow
def asking() -> Steps[Any]:
    """What a person says, and a step that depends on it."""
    answer = yield from step("ask").ask("Go on?", choices=["yes", "no"])
    return (yield from step("then").call(abs, 1).when(lambda _: answer == "yes"))


def test_no_more_attempts_are_in_flight_than_the_window_has_room_for() -> None:
    """Those behind them begin as places come free; the group is not asked for more meanwhile."""
    host = Told(wide, window=3)
    while host.turns:
        host.conductor.turned(host.turns.pop())
        host.conductor.pump()
    assert len(host.performs) == 3
    begun = sum(isinstance(one, ev.MemberStarted) for one in host.events)
    assert begun < MANY
    for number in range(MANY):
        host.end(host.performs[number])
        assert len(host.performs) - (number + 1) <= 3
        while host.turns:
            host.conductor.turned(host.turns.pop())
            host.conductor.pump()
    assert host.status() == "succeeded"


def test_a_window_is_no_wider_than_the_limit_of_the_run() -> None:
    """The smaller of the two counts."""
    host = Told(wide, window=5, limits=Limits(max_concurrency=2))
    while host.turns:
        host.conductor.turned(host.turns.pop())
        host.conductor.pump()
    assert len(host.performs) == 2


def test_a_drive_that_is_to_end_when_idle_begins_no_attempt_then() -> None:
    """The next step has begun on record, and is performed by the next drive."""
    host = Told(two)
    host.conductor.end_when_idle("continued as new")
    host.end("a")
    assert host.performs == ["a"]
    assert host.status() == "suspended"
    again = Told(two, host.events)
    assert again.performs == ["b"]
    assert not again.commands["b"].interrupted
    again.end("b", 2)
    assert again.conductor.result is not None
    assert again.conductor.result.value == 2


def test_a_drive_that_ends_stops_what_is_in_flight_first() -> None:
    """It is told, and the record says that the step was interrupted; the next drive makes it."""
    host = Told(two)
    host.conductor.end("the process is to end")
    host.conductor.pump()
    assert (host.stops, host.status()) == ([("a", "attempt")], None)
    host.conductor.finished("a", cmd.Stopped("a", 1))
    host.conductor.pump()
    assert host.status() == "suspended"
    assert ev.StepInterrupted("a", "the process is to end") in [
        ev.StepInterrupted(one.path, one.reason)
        for one in host.events
        if isinstance(one, ev.StepInterrupted)
    ]
    assert Told(two, host.events).commands["a"].interrupted


def test_a_drive_that_is_drained_ends_with_the_last_of_what_is_in_flight() -> None:
    """Nothing begins in the place of what ends, and nothing is stopped."""
    host = Told(wide, window=2)
    while host.turns:
        host.conductor.turned(host.turns.pop())
        host.conductor.pump()
    host.conductor.drain("continued as new")
    host.conductor.pump()
    for number, status in enumerate((None, "suspended")):
        assert (host.stops, host.status()) == ([], None)
        host.end(host.performs[number])
        assert (len(host.performs), host.status()) == (2, status)


def test_an_attempt_that_was_broken_off_by_its_host_is_made_again() -> None:
    """It is no failure, and no attempt of the user's."""
    host = Told(two)
    host.conductor.interrupted("a", "its worker is to end")
    host.conductor.pump()
    assert host.status() == "suspended"
    again = Told(two, host.events)
    assert (again.commands["a"].attempt, again.commands["a"].interrupted) == (1, True)


def test_an_end_that_nobody_waits_for_changes_nothing() -> None:
    """An attempt ends once, and what was never begun does not end."""
    host = Told(two)
    host.end("a", 1)
    count = len(host.events)
    host.conductor.finished("a", cmd.Stopped("a", 1))
    host.conductor.finished("elsewhere", cmd.Stopped("elsewhere", 1))
    host.conductor.pump()
    assert len(host.events) == count


def test_an_attempt_that_was_cancelled_from_within_fails() -> None:
    """Nobody asked for it: that is no cancellation of the run's."""
    host = Told(two)
    host.conductor.finished("a", cmd.Stopped("a", 1))
    host.conductor.pump()
    assert host.status() == "failed"
    assert host.conductor.result is not None
    assert "cancelled from within" in str(host.conductor.result.error)


def test_a_question_is_asked_and_its_answer_counts_once() -> None:
    """What the host's handler says late is not heard any more."""
    host = Told(asking, handles_gates=True)
    (question,) = host.questions
    host.conductor.happened(ev.GateAnswered("ask", "no", "a person"))
    host.conductor.pump()
    assert host.stops == [("ask", "gate")]
    host.conductor.evaluated(question, ("yes", "handler"))
    host.conductor.pump()
    assert [one.answer for one in host.events if isinstance(one, ev.GateAnswered)] == ["no"]


def test_an_invalid_answer_of_the_host_fails_the_question() -> None:
    """As a handler's wrong answer does anywhere."""
    host = Told(asking, handles_gates=True)
    host.conductor.evaluated(host.questions[0], ("perhaps", "handler"))
    host.conductor.pump()
    assert host.status() == "failed"


def test_who_waits_for_people_alone_says_so() -> None:
    """Not while a predicate is evaluated, nor while an attempt is in flight."""
    host = Told(asking)
    assert host.conductor.waits_for_people
    host.conductor.happened(ev.GateAnswered("ask", "yes", "a person"))
    host.conductor.pump()
    assert not host.conductor.waits_for_people
    host.conductor.evaluated(host.questions[0], value=True)
    host.conductor.pump()
    assert (host.performs, host.conductor.waits_for_people) == (["then"], False)
    host.end("then")
    assert (host.status(), host.conductor.waits_for_people) == ("succeeded", False)


@workflow
def late() -> Steps[str]:
    """A pause that is over after an hour, and one after a minute."""
    yield from step("both").parallel(
        step("long").sleep(3600), step("short").sleep(60), on_error="continue"
    )
    return "done"


def test_there_is_one_alarm_for_the_earliest_time() -> None:
    """It is set again when that has passed."""
    host = Told(late)
    assert host.alarms[-1] == 160.0
    host.time = 160.0
    host.conductor.tick()
    host.conductor.pump()
    assert host.alarms[-1] == 3700.0
    host.time = 4000.0
    host.conductor.tick()
    host.conductor.pump()
    assert host.status() == "succeeded"


@workflow
def changed() -> Steps[int]:
    """The same steps, one with another argument."""
    yield from step("a").call(abs, 7)
    last: int = yield from step("b").call(abs, 2)
    return last


def repair(one: Step[Any]) -> Step[Any]:
    """What a handler runs instead: this, and something that takes longer."""
    return step("fix").parallel(one, step("two").call(abs, 2))


@workflow
def repaired() -> Steps[Any]:
    """A call that fails, and has a handler."""
    return (
        yield from step("a")
        .call(abs, 1)
        .on_error(lambda _ctx, _failed: repair(step("one").call(abs, 1)))
    )


def test_what_a_handler_returns_is_compared_with_the_record_before_anything_is_recorded() -> None:
    """Messages that come meanwhile wait, too: a mismatch leaves the record as it was."""
    host = Told(repaired, codec=True)
    host.conductor.finished("a", failure_event(host.commands["a"], OSError("gone")))
    host.conductor.pump()
    host.conductor.evaluated(host.questions[0], repair(step("one").call(abs, 1)))
    host.conductor.pump()
    host.end("a/fix/one")
    again = Told(repaired, host.events, codec=True)
    again.conductor.happened(ev.CancelRequested("no more of it"))
    again.conductor.pump()
    again.conductor.evaluated(again.questions[0], repair(step("one").call(abs, 7)))
    with pytest.raises(ReplayMismatch):
        again.conductor.pump()
    assert again.events == []


def test_the_time_of_an_attempt_counts_as_long_as_it_is_in_flight() -> None:
    """The bound of one that has ended wakes nobody; one whose time is over is stopped once."""
    host = Told(two)
    conductor = host.conductor
    conductor.limit("a", "attempt", 5.0)
    host.end("a")
    assert conductor.timers.next_due() is None
    conductor.limit("b", "attempt", 5.0)
    host.time += 10.0
    for _ in range(2):
        conductor.tick()
        conductor.pump()
    assert host.stops == [("b", "attempt")]
    conductor.finished("b", cmd.Stopped("b", 1))
    conductor.pump()
    failed = [one.error_type for one in host.events if isinstance(one, ev.AttemptFailed)]
    assert failed == ["handrail.errors.StepTimeout"]


def test_a_record_of_other_code_is_refused_before_anything_is_recorded() -> None:
    """The mismatch is raised, and the record stays as it was."""
    host = Told(two, codec=True)
    host.end("a", 1)
    host.conductor.end("later")
    host.conductor.pump()
    host.conductor.finished("b", cmd.Stopped("b", 1))
    host.conductor.pump()
    with pytest.raises(ReplayMismatch, match="'a'"):
        Told(changed, host.events, codec=True)


def test_an_output_that_cannot_be_recorded_fails_its_step() -> None:
    """The failure is recorded in its place, under the same number."""
    host = Told(two, codec=True)
    host.end("a", object())
    assert host.status() == "failed"
    failed = next(one for one in host.events if isinstance(one, ev.AttemptFailed))
    assert failed.error_type == "handrail.errors.OutputNotSerializable"
    assert [one.seq for one in host.events] == list(range(1, len(host.events) + 1))


@workflow
def bounded() -> Steps[Any]:
    """Two calls that use one tag of which there is one."""
    return (
        yield from step("both").parallel(
            step("x").call(abs, 1).uses("gpu"), step("y").call(abs, 2).uses("gpu")
        )
    )


def test_a_paused_run_begins_nothing_that_waits_for_a_place() -> None:
    """When it goes on, it does."""
    host = Told(bounded, limits=Limits(tags={"gpu": 1}))
    assert host.performs == ["both/x"]
    host.conductor.happened(ev.RunSteered("pause"))
    host.end("both/x")
    assert host.performs == ["both/x"]
    assert host.conductor.waits_for_people
    host.conductor.happened(ev.RunSteered("unpause"))
    host.conductor.pump()
    assert host.performs == ["both/x", "both/y"]


def test_a_cancelled_run_stops_what_waits_and_what_is_in_flight() -> None:
    """Who waits for a place ends at once, and the host stops the other."""
    host = Told(bounded, limits=Limits(tags={"gpu": 1}))
    host.conductor.happened(ev.CancelRequested("enough"))
    host.conductor.pump()
    assert host.stops == [("both/x", "attempt")]
    host.conductor.finished("both/x", cmd.Stopped("both/x", 1))
    host.conductor.pump()
    assert (host.status(), host.performs) == ("cancelled", ["both/x"])


@workflow
def timed() -> Steps[int]:
    """A call that may take a minute."""
    return (yield from step("a").call(int).timeout(60))


@pytest.mark.parametrize("by_host", [True, False])
def test_a_host_says_of_an_attempt_over_its_time_that_its_thread_was_left(by_host: bool) -> None:
    """Whether the host measures the time, or the conductor does."""
    host = Told(timed)
    if by_host:
        host.conductor.overdue("a", abandoned=True)
    else:
        host.conductor.limit("a", "attempt", 60)
        host.time += 60
        host.conductor.tick()
        host.conductor.pump()
        host.conductor.finished("a", cmd.Stopped("a", 1, abandoned=True))
    host.conductor.pump()
    assert host.conductor.result is not None
    ended = host.conductor.result.step("a")
    assert (ended.status, ended.abandoned) == ("failed", True)


@workflow
def whichever() -> Steps[Any]:
    """A question, until a time."""
    return (yield from step("both").race(step("ask").ask("?"), step("short").sleep(60)))


@pytest.mark.parametrize(("sent_at", "value"), [(159.0, "yes"), (161.0, None)])
def test_a_message_comes_behind_what_was_due_before_it_was_sent(sent_at: float, value: Any) -> None:
    """So it is if the host notices both late, and the message first."""
    host = Told(whichever)
    host.time = 500.0
    answer = ev.stamp(ev.GateAnswered("both/ask", "yes", "a person"), "run", 0, sent_at)
    host.conductor.happened(answer)
    host.conductor.tick()
    host.conductor.pump()
    assert host.conductor.result is not None
    assert host.conductor.result.value == value
