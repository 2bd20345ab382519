"""Bounds that nobody need set, and bounds over all runs of an executor."""

from __future__ import annotations

import itertools
import os
import sys
import threading
from typing import Any

import anyio
import pytest

from handrail import Agent, Executor, Limits, MemoryJournal, Step, Steps, WrongUse, step, workflow
from handrail.testing import FakeBackend
from tests.engine.support import RUN, Jumping, boom, forever, just

MOST = max(4, os.cpu_count() or 1)


class Gauge:
    """How many are at work at once; from any thread."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.lock = threading.Lock()

    def __enter__(self) -> None:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.now -= 1

    async def work(self, *_: Any) -> str:
        """Be at work for a moment."""
        with self:
            await anyio.sleep(0.02)
        return "done"

    async def run(self, _: Any) -> Any:
        """The same as an agent."""
        from handrail import AgentResult

        return AgentResult(await self.work(), "done")

    name = "gauge"


def crowd(members: int, member: Any) -> Any:
    """A workflow of so many members."""
    return just(step("all").for_each(range(members), member))


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        (None, MOST),
        (Limits(max_concurrency=MOST + 3), MOST + 3),
        (Limits(tags={"api": MOST + 2}), MOST + 2),
    ],
)
async def test_agents_are_no_more_at_once_than_a_machine_carries(
    limits: Limits | None, most: int
) -> None:
    """Unless a limit of the run, or of a tag of theirs, says otherwise."""
    gauge = Gauge()
    flow = crowd(3 * MOST, lambda _: step("ask").agent(gauge, {}).uses("api"))
    result = await Executor(limits=limits).run(flow)
    assert (result.status, gauge.most) == ("succeeded", most)


async def test_python_calls_are_not_bounded() -> None:
    """Only agents and commands are likely to be programs."""
    gauge = Gauge()
    await Executor().run(crowd(3 * MOST, lambda _: step("call").call(gauge.work)))
    assert gauge.most == 3 * MOST


async def test_commands_are_bounded_and_what_ends_makes_room(tmp_path: Any) -> None:
    """Failed, retried and timed-out ones give their places back."""
    code = f"""
import os, time
os.chdir({str(tmp_path)!r})
open(str(os.getpid()), "w").close()
time.sleep(0.2)
print(sum(os.path.exists(f"/proc/{{name}}") for name in os.listdir()))
os.remove(str(os.getpid()))
raise SystemExit(1)
"""

    def member(number: int) -> Step[Any]:
        one = step("run").command([sys.executable, "-c", code])
        return one.timeout(0.01) if number % 5 == 4 else one.retry(2, backoff=0)

    flow = just(step("all").for_each(range(2 * MOST), member, on_error="continue"))
    with anyio.fail_after(30):
        result = await Executor().run(flow)
    printed = [
        int(line)
        for one in result.step_results
        for line in (one.error or "").split()
        if line.isdigit()
    ]
    assert result.success
    assert all(count <= MOST for count in printed)


async def test_launches_that_are_tried_again_give_their_places_back() -> None:
    """More failures than places."""

    def member(_: int) -> Step[Any]:
        agent = Agent("worker", "Work.", backend=FakeBackend([ConnectionError("gone"), "ok"]))
        return step("ask").agent(agent, {}).retry(2)

    flow = crowd(3 * MOST, member)
    with anyio.fail_after(20):
        result = await Executor(clock=Jumping()).run(flow)
    assert result.success


async def test_shared_limits_hold_over_all_runs_of_an_executor() -> None:
    """Runs at once, in one loop, share places and rates; what ends lets another run go on."""
    gauge = Gauge()
    flow = crowd(5, lambda _: step("call").call(gauge.work).uses("api"))
    executor = Executor(shared_limits=Limits(max_concurrency=3))
    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(executor.run, flow)
    assert gauge.most == 3


async def test_a_shared_rate_spaces_the_starts_of_all_runs() -> None:
    """Two runs one after the other are as one."""
    clock, starts = Jumping(), list[float]()

    async def begin() -> None:
        starts.append(clock.now())

    executor = Executor(clock=clock, shared_limits=Limits(rates={"api": 2}))
    for _ in range(3):
        await executor.run(just(step("x").call(begin).uses("api")))
    gaps = [later - start for start, later in itertools.pairwise(starts)]
    assert gaps == pytest.approx([30, 30], abs=0.1)


def test_shared_limits_hold_over_threads() -> None:
    """Each thread has an event loop of its own."""
    gauge = Gauge()
    executor = Executor(shared_limits=Limits(max_concurrency=2))
    flow = crowd(4, lambda _: step("call").call(gauge.work))
    threads = [threading.Thread(target=executor.run_sync, args=(flow,)) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(20)
    assert (gauge.most, gauge.now) == (2, 0)


@pytest.mark.parametrize("end", ["cancelled", "failed", "suspended"])
async def test_a_run_that_ends_in_any_way_gives_its_places_back(end: str) -> None:
    """Others go on."""

    @workflow
    def first() -> Steps[Any]:
        waits = step("b").call(forever) if end != "suspended" else step("b").ask("?")
        yield from step("g").parallel(step("a").call(boom if end == "failed" else forever), waits)

    executor = Executor(shared_limits=Limits(max_concurrency=1), journal=MemoryJournal())
    with anyio.fail_after(10):
        async with executor.options(run_id=RUN).stream(first) as run:
            await anyio.sleep(0.05)
            if end == "suspended":
                run.interrupt()
            elif end == "cancelled":
                run.cancel()
        result = await executor.run(just(step("x").call(int)))
    assert result.success


def test_what_bounds_one_run_is_no_shared_limit() -> None:
    """A budget, or a count of steps, is a run's."""
    with pytest.raises(WrongUse, match="max_concurrency, tags and rates"):
        Executor(shared_limits=Limits(max_steps=3))
