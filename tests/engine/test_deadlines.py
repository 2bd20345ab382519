"""Deadlines that pass while a run is suspended: what came before them counts, later things do not.

All runs here begin at 0, have their deadline at 50, and are resumed at 70.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest

from handrail import (
    Agent,
    Budget,
    Executor,
    Found,
    GateClosed,
    Step,
    Steps,
    StepTimeout,
    Task,
    Workflow,
    WorkflowResult,
    step,
    workflow,
)
from handrail.model.events import RunSteered, SignalReceived, TimerSet, stamp
from handrail.ports.journal import Letter
from handrail.testing import FakeBackend, JumpClock, TextJournal
from handrail.testing.clock import START
from handrail.testing.text_journal import ProcessGone
from tests.engine.support import just

Made: TypeAlias = Callable[[], Step[Any]]
LATE = "late"


def question() -> Step[Any]:
    """A question without a deadline of its own."""
    return step("g").ask("Go?")


def signal() -> Step[Any]:
    """A wait for a signal."""
    return step("g").wait_for("s", str)


@workflow
def asks() -> Steps[Any]:
    """A child workflow that asks, and does nothing else."""
    yield from question()


@workflow
def asks_and_acts() -> Steps[Any]:
    """A child workflow that has another step behind the answer."""
    yield from question()
    yield from step("act").call(int)


@workflow
def waits() -> Steps[Any]:
    """A child workflow that waits for a signal."""
    yield from signal()


def task_that_asks(_: Task) -> Steps[Found[Any]]:
    """The body of a task."""
    return Found((yield from question()))


def items(count: int) -> Iterator[str]:
    """Items of which nobody knows how many there are."""
    yield from map(str, range(count))


QUESTIONS: dict[str, tuple[Made, str]] = {
    "ask": (question, "g"),
    "child": (lambda: step("p").run_workflow(asks), "p/g"),
    "parallel": (lambda: step("p").parallel(question(), step("s").call(int)), "p/g"),
    "each": (lambda: step("p").for_each(["a"], lambda _: question(), key=str), "p/a/g"),
    "items": (lambda: step("p").for_each(items(1), lambda _: question(), key=str), "p/0/g"),
    "race": (lambda: step("p").race(question(), step("other").ask("?")), "p/g"),
    "deeper": (lambda: step("q").parallel(step("p").run_workflow(asks)), "q/p/g"),
    "work": (lambda: step("p").work([Task("a")], task_that_asks), "p/a/g"),
}
SIGNALS: dict[str, Made] = {
    "wait_for": signal,
    "child": lambda: step("p").run_workflow(waits),
    "parallel": lambda: step("p").parallel(signal(), step("s").call(int)),
    "race": lambda: step("p").race(signal(), step("other").ask("?")),
}
UNFINISHED: dict[str, tuple[Made, str]] = {
    "child": (lambda: step("p").run_workflow(asks_and_acts), "p/g"),
    "parallel": (lambda: step("p").parallel(question(), step("h").ask("?")), "p/g"),
    "next member": (
        lambda: step("p").parallel(question(), step("s").call(int), max_concurrency=1),
        "p/g",
    ),
    "next item": (
        lambda: step("p").for_each(items(2), lambda _: question(), key=str, max_concurrency=1),
        "p/0/g",
    ),
    "next task": (
        lambda: step("p").work([Task("a"), Task("b")], task_that_asks, max_concurrency=1),
        "p/a/g",
    ),
}
"""Steps in which something is left to do after the answer."""


class Suspended:
    """A run of one step that must end by 50, and that is suspended. Mutable."""

    def __init__(self, made: Made, journal: TextJournal | None = None) -> None:
        self.clock = JumpClock()
        self.journal = journal or TextJournal()
        self.flow: Workflow[[], Any] = just(made().timeout(50).default(LATE))
        self.made = made
        self.result: WorkflowResult[Any] | None = None

    def executor(self) -> Executor:
        """An executor on its journal."""
        return Executor(journal=self.journal, clock=self.clock, suspend_timers_after_s=0)

    async def begin(self) -> WorkflowResult[Any]:
        """Drive it until it is suspended."""
        first = await self.executor().options(run_id="r").run(self.flow)
        assert first.status == "suspended"
        return first

    def at(self, seconds: float) -> Executor:
        """An executor at this time of the run."""
        self.clock.advance(START + seconds - self.clock.now())
        return self.executor()

    async def end(self) -> str:
        """Resume it, past the deadline; the status of its step."""
        flow: Workflow[[], Any] = just(self.made().timeout(50).default(LATE))
        self.result = await self.at(70).resume("r", flow)
        assert self.result.status == "succeeded", self.result
        return next(one.status for one in self.result.step_results if "/" not in one.path)


@pytest.mark.parametrize("name", QUESTIONS)
async def test_an_answer_counts_until_the_nearest_deadline(name: str) -> None:
    """An answer at 40 ends the step well, though the run is resumed later; one at 60 is refused."""
    made, gate = QUESTIONS[name]
    timely, late = Suspended(made), Suspended(made)
    await timely.begin()
    await timely.at(40).answer("r", gate, "yes")
    assert await timely.end() == "succeeded"
    first = await late.begin()
    assert {one.deadline for one in first.waiting} == {START + 50}
    assert {one.until for one in first.waits_for} == {START + 50}
    for _ in range(2):
        with pytest.raises(GateClosed) as refused:
            await late.at(60).answer("r", gate, "yes")
        assert (refused.value.by, refused.value.at) == ("timeout", START + 50)
    assert not late.journal.letters("r", 0)
    assert await late.end() == "defaulted"


@pytest.mark.parametrize("name", SIGNALS)
async def test_a_signal_counts_until_the_nearest_deadline(name: str) -> None:
    """A signal at 40 ends the step well; one at 60 stays in the mailbox."""
    for sent_at, status in ((40, "succeeded"), (60, "defaulted")):
        run = Suspended(SIGNALS[name])
        first = await run.begin()
        assert {one.until for one in first.waits_for} == {START + 50}
        await run.at(sent_at).signal("r", "s", "x")
        assert await run.end() == status


async def test_a_late_signal_is_for_the_next_wait() -> None:
    """It is not lost."""

    @workflow
    def twice() -> Steps[Any]:
        first = yield from signal().timeout(50).default(LATE)
        second = yield from step("again").wait_for("s", str)
        return first, second

    clock = JumpClock()
    executor = Executor(clock=clock)
    await executor.options(run_id="r").run(twice)
    clock.advance(60)
    await executor.signal("r", "s", "x")
    assert (await executor.resume("r", twice)).value == (LATE, "x")


@pytest.mark.parametrize("made", [QUESTIONS["parallel"][0], SIGNALS["parallel"]])
async def test_a_message_in_time_counts_wherever_the_process_dies(made: Made) -> None:
    """It is recorded when the run is resumed, but with the time at which it was sent."""
    run = Suspended(made)
    await run.begin()
    if made is SIGNALS["parallel"]:
        await run.at(40).signal("r", "s", "x")
    else:
        await run.at(40).answer("r", "p/g", "x")
    run.at(70)
    before, status = run.journal.copied(), ""
    for writes in range(1, 30):
        dying = Suspended(made, before.copied().reopened(stop_at=writes, abrupt=True))
        dying.clock = run.clock
        with contextlib.suppress(ProcessGone):
            status = await dying.end()
            break
        dying.journal = dying.journal.reopened()
        assert await dying.end() == "succeeded", writes
    assert status == "succeeded"


@pytest.mark.parametrize("name", UNFINISHED)
async def test_a_step_that_has_more_to_do_at_its_deadline_times_out(name: str) -> None:
    """Nothing is begun after it."""
    made, gate = UNFINISHED[name]
    run = Suspended(made)
    await run.begin()
    await run.at(40).answer("r", gate, "yes")
    assert await run.end() == "defaulted"
    assert run.result is not None
    ended_well = [one.path for one in run.result.step_results if one.status == "succeeded"]
    assert ended_well == [gate]


@pytest.mark.parametrize(
    "inner",
    [
        lambda: step("z").sleep(60),
        lambda: step("z").ask("?", timeout=60, default="nobody"),
        lambda: step("z").parallel(step("y").sleep(60)),
    ],
)
@pytest.mark.parametrize("verb", ["parallel", "race"])
async def test_a_wait_that_ends_after_the_deadline_is_late(inner: Made, verb: str) -> None:
    """So it is if both times have passed when the run is resumed."""
    run = Suspended(lambda: getattr(step("p"), verb)(inner(), question()))
    await run.begin()
    await run.at(40).answer("r", "p/g", "yes")
    assert await run.end() == ("succeeded" if verb == "race" else "defaulted")
    run = Suspended(lambda: step("p").parallel(inner()))
    await run.begin()
    assert await run.end() == "defaulted"


async def test_the_nearest_of_several_deadlines_counts() -> None:
    """A question's own, or one above it."""
    for own, above, nearest in ((20, 50, 20), (90, 50, 50)):
        inner = step("g").ask("Go?", timeout=own)
        flow = just(step("p").parallel(inner.timeout(95)).timeout(above))
        first = await Executor(clock=JumpClock()).run(flow)
        assert first.waiting[0].deadline == START + nearest


async def test_each_attempt_has_a_deadline_of_its_own() -> None:
    """An answer that is too late for the first attempt is refused; the second asks again."""
    flow: Workflow[[], Any] = just(question().timeout(50).retry(2, backoff=0))
    clock = JumpClock()
    executor = Executor(clock=clock, workflows=[flow])
    await executor.options(run_id="r").run(flow)
    clock.advance(60)
    with pytest.raises(GateClosed):
        await executor.answer("r", "g", "yes")
    again = await executor.resume("r", flow)
    assert again.waiting[0].deadline == START + 110
    await executor.answer("r", "g", "yes")
    assert (await executor.resume("r", flow)).status == "succeeded"


async def test_the_question_of_a_budget_has_the_deadline_above_it() -> None:
    """Nobody can allow a launch of a step whose time is over."""
    agent = Agent("a", "Do it.", backend=FakeBackend(["done"]))
    budget = Budget(launches=1, on_breach="ask")
    both = step("p").parallel(step("a").agent(agent), step("b").agent(agent), max_concurrency=1)
    clock = JumpClock()
    executor = Executor(clock=clock)
    first = await executor.options(run_id="r").run(just(both.budget(budget).timeout(50)))
    assert first.waiting[0].deadline == START + 50


async def test_the_code_may_take_a_deadline_away() -> None:
    """A refused answer leaves nothing behind that would refuse a later one."""
    clock = JumpClock()
    executor = Executor(clock=clock)
    await executor.options(run_id="r").run(just(question().timeout(50)))
    clock.advance(60)
    with pytest.raises(GateClosed):
        await executor.answer("r", "g", "yes")
    flow: Workflow[[], Any] = just(question())
    assert (await executor.resume("r", flow)).waiting[0].deadline is None
    await executor.answer("r", "g", "yes")
    assert (await executor.resume("r", flow)).status == "succeeded"


async def test_a_step_without_a_default_fails_by_its_deadline() -> None:
    """With the error that it fails with while it is driven."""
    clock = JumpClock()
    executor = Executor(clock=clock)
    flow: Workflow[[], Any] = just(step("p").parallel(question()).timeout(50))
    await executor.options(run_id="r").run(flow)
    clock.advance(60)
    result = await executor.resume("r", flow)
    assert result.step("p").is_a(StepTimeout)


async def test_timers_that_are_noticed_late_count_in_their_order() -> None:
    """A sleep that was over before the deadline of its group ends the group well."""
    clock = JumpClock(jumps=False)
    flow = just(step("p").parallel(step("z").sleep(10)).timeout(50))
    async with Executor(clock=clock).stream(flow) as run:
        async for event in run:
            if isinstance(event, TimerSet) and event.reason == "sleep":
                clock.advance(70)
    assert run.result.status == "succeeded"


async def test_a_message_that_came_before_a_late_timer_counts_first() -> None:
    """Another process sent it in time, while this one was stopped until both were due."""
    clock, journal = JumpClock(jumps=False), TextJournal()
    flow: Workflow[[], Any] = just(step("r").race(step("nap").sleep(20), signal()))
    async with Executor(journal=journal, clock=clock).options(run_id="r").stream(flow) as run:
        async for event in run:
            if isinstance(event, TimerSet):
                message = SignalReceived("s", "in time")
                journal.post(Letter(stamp(message, "r", 0, clock.now() + 10)))
                clock.advance(40)
    assert run.result.value == "in time"


async def test_a_message_that_came_behind_a_late_timer_counts_behind_it() -> None:
    """Here it is read before the timer is noticed; the timer was due before it was sent."""
    clock = JumpClock(jumps=False)
    flow: Workflow[[], Any] = just(step("r").race(step("nap").sleep(20), signal()))
    async with Executor(clock=clock).stream(flow) as run:
        async for event in run:
            if isinstance(event, TimerSet):
                clock.advance(40)
                run.signal("s", "too late")
    assert run.result.step("r/nap").status == "succeeded"
    assert run.result.value is None


async def test_a_late_message_is_not_lost_before_a_stop() -> None:
    """Who stops the run behind it is recorded behind it, since a resume reads on from there."""
    clock, journal = JumpClock(jumps=False), TextJournal()

    @workflow
    def flow() -> Steps[Any]:
        yield from step("nap").sleep(20)
        return (yield from signal())

    executor = Executor(journal=journal, clock=clock).options(run_id="r")
    async with executor.stream(flow) as run:
        async for event in run:
            if isinstance(event, TimerSet):
                now = clock.now()
                journal.post(Letter(stamp(SignalReceived("s", "kept"), "r", 0, now + 30)))
                journal.post(Letter(stamp(RunSteered("stop"), "r", 0, now + 31)))
                clock.advance(40)
    assert run.result.status == "suspended"
    assert (await executor.resume("r", flow)).value == "kept"


async def test_a_predicate_that_is_not_needed_any_more_leaves_no_warning() -> None:
    """An async predicate behind a signal that came too late is dropped with its race."""

    async def yes(_: object) -> bool:
        return True

    @workflow
    def awaits() -> Steps[Any]:
        yield from signal()
        return (yield from step("s").call(str).when(yes))

    clock = JumpClock(jumps=False)
    flow = just(step("r").race(step("nap").sleep(20), step("w").run_workflow(awaits)))
    executor = Executor(clock=clock, suspend_timers_after_s=1, durable=True)
    await executor.options(run_id="r").run(flow)
    clock.advance(10)
    await executor.signal("r", "s", "in time")
    clock.advance(20)
    assert (await executor.resume("r", flow)).step("r/w/s").status == "cancelled"
