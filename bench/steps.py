"""The cost of one step in memory, against a loop that does the least a step needs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from bench.measure import Row, interleaved
from handrail import Executor, StepResult, Steps, Workflow, step, workflow
from handrail.model.events import Event, Progress, StepCompleted, StepStarted


class Nothing:
    """A sink that does nothing."""

    def emit(self, event: Event | Progress, /) -> None:
        """Do nothing."""


async def action() -> int:
    """What each step does."""
    return 1


def inline_action() -> int:
    """What each inline step does."""
    return 1


def steps_of(count: int, *, inline: bool = False) -> Workflow[[], int]:
    """A workflow of that many steps."""

    @workflow
    def asynchronous() -> Steps[int]:
        total = 0
        for number in range(count):
            total += yield from step(f"s{number}").call(action)
        return total

    @workflow
    def inlined() -> Steps[int]:
        total = 0
        for number in range(count):
            total += yield from step(f"s{number}").call(inline_action).inline()
        return total

    return inlined if inline else asynchronous


async def reference(function: Callable[[], Steps[Any]], sink: Nothing) -> list[StepResult[Any]]:
    """The least: build the same step, perform it, make one result and two events."""
    body, value, seq, results = function(), None, 0, []
    try:
        while True:
            now = body.send(value)
            verb: Any = now.verb
            seq += 1
            began = time.time()
            sink.emit(StepStarted(now.name, verb.kind, run_id="r", seq=seq, at=began))
            value = verb.action(*verb.args)
            if not isinstance(value, int):
                value = await value
            ended = time.time()
            result = StepResult(
                now.name, now.name, verb.kind, "succeeded", value, duration_ms=ended - began
            )
            results.append(result)
            seq += 1
            sink.emit(StepCompleted(now.name, result, run_id="r", seq=seq, at=ended))
    except StopIteration:
        return results


def run_reference(flow: Workflow[[], int]) -> None:
    """One reference run."""
    asyncio.run(reference(flow.definition.function, Nothing()))


def run_handrail(flow: Workflow[[], int]) -> None:
    """One run by handrail."""

    async def run() -> None:
        result = await Executor(sinks=[Nothing()]).run(flow)
        assert result.success, result.error

    asyncio.run(run())


def plain_steps(count: int) -> Workflow[[], int]:
    """A workflow of that many steps of a plain function, each of which a thread calls."""

    @workflow
    def flow() -> Steps[int]:
        total = 0
        for number in range(count):
            total += yield from step(f"s{number}").call(inline_action)
        return total

    return flow


def hand_offs(count: int) -> None:
    """That many calls of a function by one thread of one's own, each awaited by a loop."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        asked: SimpleQueue[asyncio.Future[int] | None] = SimpleQueue()

        def work() -> None:
            while (future := asked.get()) is not None:
                loop.call_soon_threadsafe(future.set_result, inline_action())

        thread = threading.Thread(target=work)
        thread.start()
        for _ in range(count):
            future: asyncio.Future[int] = loop.create_future()
            asked.put(future)
            await future
        asked.put(None)
        thread.join()

    asyncio.run(run())


def rows(rounds: int) -> list[Row]:
    """The in-memory rows."""
    found = []
    for inline, name in ((False, "async"), (True, ".inline()")):
        flow = steps_of(2000, inline=inline)
        base, ours = interleaved(
            rounds, lambda flow=flow: run_reference(flow), lambda flow=flow: run_handrail(flow)
        )
        found.append(
            Row(
                f"in-memory step, {name}",
                "reference loop",
                base / 2000 * 1e6,
                ours / 2000 * 1e6,
                ours / base,
                1.8,
            )
        )
    plain = plain_steps(1000)
    base, ours = interleaved(rounds, lambda: hand_offs(1000), lambda: run_handrail(plain))
    found.append(
        Row(
            "in-memory step of a plain def",
            "a hand-off to a thread",
            base * 1e3,
            ours * 1e3,
            ours / base,
            1.5,
        )
    )
    few, many = steps_of(1000), steps_of(100_000)
    for gc_on, limit in ((False, 1.2), (True, 1.5)):
        short, long = interleaved(
            max(2, rounds // 6),
            lambda: [run_handrail(few) for _ in range(20)],
            lambda: run_handrail(many),
            gc_on=gc_on,
        )
        per_short, per_long = short / 20_000 * 1e6, long / 100_000 * 1e6
        found.append(
            Row(
                f"100,000 steps, gc {'on' if gc_on else 'off'}",
                "1,000 steps",
                per_short,
                per_long,
                per_long / per_short,
                limit,
            )
        )
    return found
