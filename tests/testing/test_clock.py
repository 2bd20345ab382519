from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from handrail import (
    Backoff,
    DefinitionError,
    Executor,
    Limits,
    MemorySink,
    OpenGate,
    Steps,
    step,
    workflow,
)
from handrail.model import events as ev
from handrail.testing import FakeAgent, JumpClock

DAY_S = 86_400


@pytest.fixture
def clock() -> JumpClock:
    """A clock that begins at 0."""
    return JumpClock(0)


@workflow
def naps(first: float, second: float) -> Steps[None]:
    """Sleep, then sleep again."""
    yield from step("first").sleep(first)
    yield from step("second").sleep(second)


async def test_sleeping_steps_take_no_time(clock: JumpClock) -> None:
    """Days of sleep pass at once, and the run's times are those of the clock."""
    result = await Executor(clock=clock).run(naps, DAY_S, 2 * DAY_S)
    assert (result.status, clock.now()) == ("succeeded", 3 * DAY_S)
    assert [one.duration_ms for one in result.step_results] == [DAY_S * 1e3, 2 * DAY_S * 1e3]


async def test_pauses_between_attempts_take_no_time(clock: JumpClock) -> None:
    """Attempts are made at the moments that the backoff says."""
    moments: list[float] = []

    async def fail() -> None:
        moments.append(clock.now())
        raise OSError("again")

    @workflow
    def tries() -> Steps[None]:
        yield from (
            step("a").call(fail).retry(4, backoff=Backoff(initial_s=10, jitter=0)).default(None)
        )

    await Executor(clock=clock).run(tries)
    assert moments == [0, 10, 30, 70]


async def test_scripted_delays_pass_at_once(clock: JumpClock) -> None:
    """An agent that takes minutes is asleep on the clock: alone, and beside others."""
    slow = FakeAgent("slow", ["a", "b", "c"], delay=60)

    @workflow
    def asks() -> Steps[float]:
        yield from step("alone").agent(slow)
        yield from step("both").parallel(
            step("one").agent(slow), step("two").agent(slow), step("nap").sleep(30)
        )
        return clock.now()

    assert (await Executor(clock=clock).run(asks)).value == 120


async def test_an_attempt_that_sleeps_too_long_times_out(clock: JumpClock) -> None:
    """Time stops at the timeout on its way to the end of the delay."""
    slow = FakeAgent("slow", ["late"], delay=DAY_S)

    @workflow
    def asks() -> Steps[float]:
        yield from step("slow").agent(slow).timeout(10).default(None)
        return clock.now()

    result = await Executor(clock=clock).run(asks)
    assert result.value == 10
    assert result.step("slow").is_a(TimeoutError)


async def test_time_stands_while_an_attempt_is_at_work(clock: JumpClock) -> None:
    """A thread that works is waited for: no timeout comes, and no sleep ends, before it does."""
    at_work, let_go = threading.Event(), threading.Event()
    seen: list[float] = []

    def work() -> float:
        at_work.set()
        let_go.wait(10)
        return clock.now()

    async def watch() -> None:
        await anyio.to_thread.run_sync(at_work.wait)
        await turns(200)
        seen.append(clock.now())
        let_go.set()

    @workflow
    def works() -> Steps[Any]:
        outputs = yield from step("both").parallel(
            step("work").call(work).timeout(5), step("nap").sleep(60)
        )
        return outputs[0], clock.now()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        result = await Executor(clock=clock).run(works)
    assert seen == [0]
    assert result.value == (0, 60)


async def test_tasks_of_one_attempt_count_as_one(clock: JumpClock) -> None:
    """Two sleeping tasks of one attempt do not make up for another attempt that is at work."""
    let_go = threading.Event()

    async def both() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(clock.sleep, 10)
            tasks.start_soon(clock.sleep, 20)

    def work() -> float:
        let_go.wait(10)
        return clock.now()

    async def watch() -> None:
        await turns(200)
        let_go.set()

    @workflow
    def works() -> Steps[Any]:
        outputs = yield from step("both").parallel(step("doze").call(both), step("work").call(work))
        return outputs[1], clock.now()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        result = await Executor(clock=clock).run(works)
    assert result.value == (0, 20)


async def test_an_action_can_take_its_time(clock: JumpClock) -> None:
    """An action, in a thread or on the loop, lets time pass with `advance`; who waits is woken."""

    @workflow
    def takes_time() -> Steps[float]:
        yield from step("thread").call(clock.advance, 5)
        yield from step("inline").call(clock.advance, timedelta(minutes=1)).inline()
        yield from step("both").parallel(step("work").call(clock.advance, 20), step("nap").sleep(3))
        return clock.now()

    result = await Executor(clock=clock).run(takes_time)
    assert result.value == 85
    assert result.step("thread").duration_ms == 5000


async def test_a_test_can_act_after_some_time(clock: JumpClock) -> None:
    """`elapse` waits on the clock beside a run, which meanwhile goes on or waits as well."""

    @workflow
    def asks() -> Steps[Any]:
        answer = yield from step("ask").ask("?", timeout=100, default="nobody")
        return answer, clock.now()

    async with Executor(clock=clock, linger_s=1000).stream(asks) as run:
        async for event in run:
            if isinstance(event, ev.GateOpened):
                await clock.elapse(40)
                run.answer("ask", "somebody")
    assert run.result.value == ("somebody", 40)


async def test_elapse_within_attempts_is_their_time(clock: JumpClock) -> None:
    """An action that waits by `elapse` takes that long, in groups too."""

    @workflow
    def takes_time() -> Steps[float]:
        yield from step("alone").call(clock.elapse, 5)
        yield from step("both").parallel(
            step("a").call(clock.elapse, 20), step("b").call(clock.elapse, 30)
        )
        return clock.now()

    with anyio.fail_after(30):
        result = await Executor(clock=clock).run(takes_time)
    assert result.value == 35


async def test_who_reads_events_may_speak_before_time_passes(clock: JumpClock) -> None:
    """A reader of the stream answers a question before its deadline comes."""

    @workflow
    def asks() -> Steps[Any]:
        return (yield from step("ask").ask("?", timeout=1, default="nobody"))

    async with Executor(clock=clock, linger_s=1000).stream(asks) as run:
        async for event in run:
            if isinstance(event, ev.GateOpened):
                for _ in range(5):
                    await anyio.lowlevel.checkpoint()
                run.answer("ask", "reader")
    assert run.result.value == "reader"


async def test_who_answers_questions_may_take_time(clock: JumpClock) -> None:
    """A gate handler sleeps on the clock as an attempt does."""

    async def after_a_while(gate: OpenGate) -> str:
        await clock.sleep(30 if gate.path == "quick" else DAY_S)
        return "handled"

    @workflow
    def asks() -> Steps[Any]:
        quick = yield from step("quick").ask("?", timeout=60, default="nobody")
        slow = yield from step("slow").ask("?", timeout=60, default="nobody")
        return quick, slow, clock.now()

    result = await Executor(clock=clock, gates=after_a_while).run(asks)
    assert result.value == ("handled", "nobody", 90)


async def test_runs_share_a_clock(clock: JumpClock) -> None:
    """Runs at the same time see the same time, each moment in order."""
    sink = MemorySink()
    executor = Executor(clock=clock, sinks=[sink])
    async with anyio.create_task_group() as tasks:
        for first, second in [(1, 1), (10, 5), (3, 0.5)]:
            tasks.start_soon(executor.run, naps, first, second)
    moments = [event.at for event in sink.of(ev.StepCompleted)]
    assert moments == [1, 2, 3, 3.5, 10, 15]


async def test_a_run_inside_a_step_shares_it_too(clock: JumpClock) -> None:
    """A step that runs another workflow on the same clock sleeps while that one does."""
    executor = Executor(clock=clock)

    async def nested() -> str:
        return (await executor.run(naps, 20, 30)).status

    @workflow
    def outer() -> Steps[Any]:
        both = yield from step("both").parallel(step("run").call(nested), step("nap").sleep(40))
        return both[0], clock.now()

    assert (await executor.run(outer)).value == ("succeeded", 50)


async def test_rates_are_waited_for_at_once(clock: JumpClock) -> None:
    """A step that a rate holds back is not at work, and its minute passes at once."""

    @workflow
    def many() -> Steps[float]:
        yield from step("all").for_each(
            range(7), lambda item: step("a").call(abs, item).uses("api")
        )
        return clock.now()

    result = await Executor(clock=clock, limits=Limits(rates={"api": 3})).run(many)
    assert result.value == pytest.approx(120)


async def test_a_clock_that_does_not_jump_is_moved_by_hand() -> None:
    """With `jumps=False` nothing passes until `advance` or `set`."""
    clock = JumpClock(0, jumps=False)
    sink = MemorySink()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Executor(clock=clock, sinks=[sink]).run, naps, 10, 20)
        await turns()
        assert sink.of(ev.StepCompleted) == []
        clock.advance(9)
        await turns()
        assert sink.of(ev.StepCompleted) == []
        clock.advance(1)
        await turns()
        assert [event.at for event in sink.of(ev.StepCompleted)] == [10]
        clock.set(100)
    assert [event.at for event in sink.of(ev.StepCompleted)] == [10, 100]


async def turns(count: int = 100) -> None:
    """Give everybody else that many turns."""
    for _ in range(count):
        await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize(
    "backend", ["asyncio", pytest.param("trio", marks=pytest.mark.extra("trio"))]
)
def test_a_clock_outlives_its_event_loop(clock: JumpClock, backend: str) -> None:
    """One clock serves one loop after the other, also where somebody's wait was cut off."""

    async def whole() -> None:
        assert (await Executor(clock=clock).run(naps, 10, 10)).success

    async def cut_off() -> None:
        with anyio.fail_after(0):
            await clock.wait(anyio.Event(), None, busy=1)

    anyio.run(whole, backend=backend)
    with pytest.raises(TimeoutError):
        anyio.run(cut_off, backend=backend)
    clock.advance(5)
    anyio.run(whole, backend=backend)
    assert clock.now() == 45


@workflow
def twelve_hours() -> Steps[None]:
    """Sleep until noon."""
    yield from step("noon").sleep(datetime(2024, 6, 1, 12, tzinfo=UTC))


def test_time_begins_where_it_is_told() -> None:
    """A datetime or unix seconds say where the clock begins and what it is set to."""
    clock = JumpClock(datetime(2024, 6, 1, tzinfo=UTC))
    assert Executor(clock=clock).run_sync(twelve_hours).total_duration_ms == 12 * 3_600_000
    clock.set(datetime(2024, 1, 1, tzinfo=UTC))
    assert clock.now() == JumpClock().now()
    with pytest.raises(DefinitionError, match="time zone"):
        JumpClock(datetime(2024, 1, 1))  # noqa: DTZ001  # that is the mistake
    with pytest.raises(DefinitionError, match="not negative"):
        clock.advance(-1)
