"""The wall clock is set while a run goes on: attempts count running time, timers the wall's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from handrail import Executor, Steps, StepTimeout, step, workflow
from handrail.system.clock import SystemClock

JUMPS = pytest.mark.parametrize("jump_s", [60, 3_600, 86_400, -60, -3_600, -86_400])


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


async def test_a_timer_goes_by_the_wall(clock: SetClock) -> None:
    """A pause of an hour is over when the clock says so; a jump back makes it longer."""

    @workflow
    def flow() -> Steps[None]:
        yield from step("both").parallel(
            step("nap").sleep(3_600), step("set").call(sets(clock, 3_700, 0))
        )

    with anyio.fail_after(10):
        assert (await Executor(clock=clock).run(flow)).success

    @workflow
    def back() -> Steps[Any]:
        return (
            yield from step("race").race(
                step("nap").sleep(0.3).default("napped"),
                step("set").call(sets(clock, -60, 0.6)),
            )
        )

    with anyio.fail_after(10):
        assert (await Executor(clock=clock).run(back)).value == "done"
