"""The cost of a member of a group, in time and in memory, against bare tasks."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import Any

import anyio

from bench.measure import Row, interleaved
from bench.steps import Nothing, action
from handrail import (
    Executor,
    Found,
    MemoryJournal,
    Step,
    Steps,
    Task,
    Work,
    Workflow,
    step,
    workflow,
)


def group_of(count: int, window: int | None = None) -> Workflow[[], list[int]]:
    """A workflow of one group of that many members."""

    def body(_: int) -> Step[int]:
        return step("one").call(action)

    @workflow
    def flow() -> Steps[list[int]]:
        return (yield from step("all").for_each(range(count), body, max_concurrency=window))

    return flow


async def find(task: Task) -> Found[int]:
    """The end of a task: it brings as many as its payload says."""
    below = range(task.payload)
    return Found(0, [Task(f"{task.id}.{n}", 0, n) for n in below] if below else ())


def task_body(task: Task) -> Step[Found[int]]:
    """The one step of a task."""
    return step("one").call(find, task)


def some_tasks(count: int, brings: int) -> list[Task]:
    """Tasks of the start, each of which brings as many more."""
    return [Task(str(n), brings) for n in range(count)]


def work_of(tasks: list[Task], **options: Any) -> Workflow[[], Work[int]]:
    """A workflow of these tasks, and of what they bring."""

    @workflow
    def flow() -> Steps[Work[int]]:
        return (yield from step("all").work(tasks, task_body, **options))

    return flow


def members_of(tasks: list[Task], **options: Any) -> Workflow[[], list[Found[int]]]:
    """The same as members of a group, without what they bring."""

    @workflow
    def flow() -> Steps[list[Found[int]]]:
        return (yield from step("all").for_each(tasks, task_body, **options))

    return flow


def run_group(flow: Workflow[[], Any]) -> None:
    """One run by handrail."""

    async def run() -> None:
        result = await Executor(sinks=[Nothing()]).run(flow)
        assert result.success, result.error

    asyncio.run(run())


def run_tasks(count: int) -> None:
    """A task group of that many tasks that do nothing."""

    async def run() -> None:
        async with anyio.create_task_group() as group:
            for _ in range(count):
                group.start_soon(action)

    asyncio.run(run())


def rows(rounds: int) -> list[Row]:
    """The rows of time."""
    big, small = group_of(10_000), group_of(1_000)
    windowed, windowed_small = group_of(10_000, 100), group_of(1_000, 100)
    same, flat = members_of(some_tasks(10_000, 0)), work_of(some_tasks(10_000, 0))
    grown = work_of(some_tasks(1_000, 9))
    bare, ten, one, wide, narrow, same_s, flat_s, grown_s = interleaved(
        rounds,
        lambda: run_tasks(10_000),
        lambda: run_group(big),
        lambda: [run_group(small) for _ in range(5)],
        lambda: run_group(windowed),
        lambda: [run_group(windowed_small) for _ in range(5)],
        lambda: run_group(same),
        lambda: run_group(flat),
        lambda: run_group(grown),
    )
    bare_us, ten_us, one_us = bare * 100, ten * 100, one * 200
    wide_us, narrow_us = wide * 100, narrow * 200
    allowed = 3 * bare_us + 10
    return [
        Row(
            "member of a group of 10,000",
            "task of an anyio task group",
            bare_us,
            ten_us,
            ten_us / allowed,
            1.0,
            "of 3 x the baseline plus 10 us",
        ),
        Row("the same, 10,000 to 1,000", "1,000 members", one_us, ten_us, ten_us / one_us, 1.3),
        Row(
            "member, max_concurrency=100",
            "task of an anyio task group",
            bare_us,
            wide_us,
            wide_us / allowed,
            1.0,
            "of 3 x the baseline plus 10 us",
        ),
        Row(
            "the same, 10,000 to 1,000",
            "1,000 members, max_concurrency=100",
            narrow_us,
            wide_us,
            wide_us / narrow_us,
            1.3,
        ),
        *(
            Row(name, "for_each with the same body", same_s * 100, took * 100, took / same_s, 1.3)
            for name, took in (
                ("task of work, 10,000 at the start", flat_s),
                ("task of work, 9,000 of 10,000 brought by others", grown_s),
            )
        ),
        *memory_rows(),
    ]


# -- memory ----------------------------------------------------------------------------------------


def waiting_flow(count: int) -> Workflow[[], Any]:
    """A workflow of that many members that wait for a timer."""

    def body(_: int) -> Step[None]:
        return step("wait").sleep(3600)

    @workflow
    def flow() -> Steps[Any]:
        return (yield from step("all").for_each(range(count), body))

    return flow


def flying_flow(count: int, gate: asyncio.Event) -> Workflow[[], Any]:
    """A workflow of that many members, each with an attempt in flight."""

    async def held() -> None:
        await gate.wait()

    def body(_: int) -> Step[None]:
        return step("hold").call(held)

    @workflow
    def flow() -> Steps[Any]:
        return (yield from step("all").for_each(range(count), body))

    return flow


def bytes_of_waiting(count: int) -> float:
    """Bytes a member that waits without a task, journal and events left out."""

    async def measure() -> int:
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        async with Executor(journal=Forgetful()).stream(waiting_flow(count)) as run:
            await settle(run, count)
            run.queue.events.clear()
            used = tracemalloc.get_traced_memory()[0] - before
            tracemalloc.stop()
            run.cancel("measured")
        return used

    return asyncio.run(measure()) / count


def bytes_of_flying(count: int) -> float:
    """Bytes a member with an attempt in flight, journal and events left out."""

    async def measure() -> int:
        gate = asyncio.Event()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        async with Executor(journal=Forgetful()).stream(flying_flow(count, gate)) as run:
            await settle(run, count)
            run.queue.events.clear()
            used = tracemalloc.get_traced_memory()[0] - before
            tracemalloc.stop()
            gate.set()
            async for _ in run:
                pass
        return used

    return asyncio.run(measure()) / count


def bytes_of_ended(flow: Workflow[[], Any], count: int) -> float:
    """The most bytes a member that has ended holds before its group ends, journal and events left
    out.
    """

    async def measure() -> int:
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        await Executor(journal=Forgetful(), sinks=[Nothing()]).run(flow)
        most = tracemalloc.get_traced_memory()[1] - before
        tracemalloc.stop()
        return most

    return asyncio.run(measure()) / count


def bytes_of_bare(count: int) -> float:
    """Bytes a bare task of an anyio task group that waits."""

    async def measure() -> int:
        gate = asyncio.Event()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        async with anyio.create_task_group() as group:
            for _ in range(count):
                group.start_soon(gate.wait)
            await anyio.sleep(0.05)
            used = tracemalloc.get_traced_memory()[0] - before
            tracemalloc.stop()
            gate.set()
        return used

    return asyncio.run(measure()) / count


class Forgetful(MemoryJournal):
    """A journal that keeps nothing, so that memory is the run's own."""

    def append(self, event: Any, /, *, sync: bool = False) -> None:
        """Forget the event."""


async def settle(run: Any, count: int) -> None:
    """Wait until every member has begun."""
    started = 0
    async for event in run:
        run.queue.events.clear() if started > count else None
        started += type(event).__name__ == "MemberStarted"
        if started == count:
            break
    await anyio.sleep(0.1)


def memory_rows() -> list[Row]:
    """The rows of memory; ``value`` is KiB a member."""
    count = 5_000
    bytes_of_waiting(10), bytes_of_flying(10), bytes_of_bare(10)  # imports count once, not here
    waiting = bytes_of_waiting(count) / 1024
    bare, flying = bytes_of_bare(count) / 1024, bytes_of_flying(count) / 1024
    few = {"max_concurrency": 100}
    same = bytes_of_ended(members_of(some_tasks(count, 0), **few), count) / 1024
    ended = bytes_of_ended(work_of(some_tasks(count // 10, 9), **few), count) / 1024
    return [
        Row("memory of a waiting member", "none", 0.0, 0.0, waiting, 1.0, "KiB, no task"),
        Row(
            "memory of a member in flight, above a bare task",
            "anyio task",
            0.0,
            0.0,
            flying - bare,
            3.0,
            f"KiB; the task itself {bare:.2f}",
        ),
        Row(
            "memory of an ended task of work",
            "member of for_each",
            0.0,
            0.0,
            ended,
            2.0,
            f"KiB; the member {same:.2f}",
        ),
    ]
