"""The wall clock is set while a run goes on: seconds are running time, a datetime is the wall's."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from handrail import Budget, CallbackSink, Executor, Limits, Steps, StepTimeout, step, workflow
from handrail.system.clock import SystemClock
from tests.engine.support import Boom

JUMPS = pytest.mark.parametrize("jump_s", [3_600, -3_600])


class SetClock(SystemClock):
    """The machine's clock, which a test sets."""

    off_s = 0.0

    def now(self) -> float:
        """Unix seconds, as somebody has set them."""
        return super().now() + self.off_s


@pytest.fixture
def clock() -> SetClock:
    """One that is right so far."""
    return SetClock()


def sets(clock: SetClock, jump_s: float, then_s: float) -> Callable[[], Any]:
    """An action in whose midst the clock is set."""

    async def act() -> str:
        await anyio.sleep(0.05)
        clock.off_s += jump_s
        await anyio.sleep(then_s)
        return "done"

    return act


@JUMPS
async def test_an_attempt_has_its_time_whatever_the_clock_says(
    clock: SetClock, jump_s: float
) -> None:
    """It is not stopped by a jump forward, and its duration is how long it ran."""

    @workflow
    def flow() -> Steps[str]:
        return (yield from step("a").call(sets(clock, jump_s, 0.2)).timeout(5))

    result = await Executor(clock=clock).run(flow)
    assert result.value == "done"
    assert 200 < result.step("a").duration_ms < 4_000


@JUMPS
async def test_an_attempt_is_stopped_in_time_whatever_the_clock_says(
    clock: SetClock, jump_s: float
) -> None:
    """A jump back gives it no more time; of a group's timeout the same holds."""

    @workflow
    def flow(*, group: bool) -> Steps[Any]:
        endless = step("a").call(sets(clock, jump_s, 60))
        if group:
            return (yield from step("g").parallel(endless).timeout(0.3))
        return (yield from endless.timeout(0.3))

    for group in (False, True):
        with anyio.fail_after(10):
            result = await Executor(clock=clock).run(flow, group=group)
        failed = result.step("g" if group else "a")
        assert failed.is_a(StepTimeout)
        assert 250 < failed.duration_ms < 8_000


def fails_first() -> Callable[[], None]:
    """An action that fails when it is called for the first time."""
    called: list[None] = []

    def act() -> None:
        called.append(None)
        if len(called) == 1:
            raise Boom

    return act


@workflow
def retried() -> Steps[Any]:
    """A pause before another try."""
    yield from step("a").call(fails_first()).retry(2, backoff=0.4)


@workflow
def sleeps() -> Steps[Any]:
    """A sleep of some seconds, alone."""
    yield from step("a").sleep(0.4)


@workflow
def sleeps_in_groups() -> Steps[Any]:
    """Sleeps of some seconds, in members and in a child."""
    yield from step("g").parallel(
        step("m").sleep(timedelta(seconds=0.4)), step("c").run_workflow(sleeps)
    )


@workflow
def rated() -> Steps[Any]:
    """Members that wait for a rate."""
    yield from step("a").for_each(range(2), lambda _: step("m").call(int).uses("api"))


@workflow
def asks() -> Steps[Any]:
    """A question that is waited for a little, before the run is suspended."""
    yield from step("a").ask("?", choices=["yes", "no"])


@workflow
def endless() -> Steps[Any]:
    """Something that only a limit ends."""
    yield from step("a").call(anyio.sleep, 60)


@workflow
def steady() -> Steps[Any]:
    """Two steps, one after the other, that end."""
    yield from step("a").call(anyio.sleep, 0.3)
    yield from step("b").call(anyio.sleep, 0.1)


@workflow
def unwinds() -> Steps[Any]:
    """Clean-up that has no end."""
    try:
        yield from step("a").call(anyio.sleep, 60)
    finally:
        yield from step("b").call(anyio.sleep, 60)


RATED = Limits(rates={"api": 150})  # one in 0.4 s
WAITS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "a sleep": (sleeps, {}, "succeeded"),
    "sleeps in a group": (sleeps_in_groups, {}, "succeeded"),
    "a pause": (retried, {}, "succeeded"),
    "a rate": (rated, {"limits": RATED}, "succeeded"),
    "a rate of all": (rated, {"shared_limits": RATED}, "succeeded"),
    "lingering": (asks, {"linger_s": 0.4}, "suspended"),
    "the run's timeout": (endless, {"limits": Limits(timeout_s=0.4)}, "failed"),
    "not the run's timeout": (steady, {"limits": Limits(timeout_s=30)}, "succeeded"),
    "a budget": (steady, {"limits": Limits(budget=Budget(wall_s=30))}, "succeeded"),
    "clean-up": (
        unwinds,
        {"limits": Limits(timeout_s=0.2), "cleanup_timeout_s": 0.2},
        "failed",
    ),
}


@JUMPS
@pytest.mark.parametrize("what", WAITS)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # a driver's waits are of one kind
async def test_what_is_so_long_is_so_long_whatever_the_clock_says(
    clock: SetClock, what: str, jump_s: float
) -> None:
    """Pauses, rates and bounds of a run, and all durations, count running time."""
    flow, parts, status = WAITS[what]
    results: list[Any] = []
    began = anyio.Event()
    sinks = [CallbackSink(lambda _: began.set())]

    async def run() -> None:
        results.append(await Executor(clock=clock, sinks=sinks, **parts).run(flow))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await began.wait()
            await anyio.sleep(0.1)
            clock.off_s += jump_s
    (result,) = results
    assert result.status == status
    assert 350 < result.total_duration_ms < 8_000
    assert all(one.duration_ms < 8_000 for one in result.step_results)


async def test_a_sleep_until_a_datetime_goes_by_the_wall(clock: SetClock) -> None:
    """It is over when the clock says so; a jump back makes it longer."""

    def at(seconds: float) -> datetime:
        return datetime.fromtimestamp(clock.now() + seconds, UTC)

    @workflow
    def flow() -> Steps[None]:
        yield from step("both").parallel(
            step("nap").sleep(at(3_600)), step("set").call(sets(clock, 3_700, 0))
        )

    with anyio.fail_after(10):
        assert (await Executor(clock=clock).run(flow)).success

    @workflow
    def back() -> Steps[Any]:
        return (
            yield from step("race").race(
                step("nap").sleep(at(0.3)).default("napped"),
                step("set").call(sets(clock, -60, 0.6)),
            )
        )

    with anyio.fail_after(10):
        assert (await Executor(clock=clock).run(back)).value == "done"
