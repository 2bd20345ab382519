"""The cost of one step in memory, against a loop that does the least a step needs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any

from bench.measure import Row, interleaved, ratio
from handrail import Executor, Step, StepResult, Steps, Workflow, step, workflow
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


def as_it_is(bare: Step[int]) -> Step[int]:
    """The step without a modifier."""
    return bare


MODIFIED: dict[str, Callable[[Step[int]], Step[int]]] = {
    ".when": lambda bare: bare.when(lambda _: True),
    ".retry(2)": lambda bare: bare.retry(2),
    ".timeout": lambda bare: bare.timeout(60),
}
"""Modifiers that change nothing here."""


def steps_of(
    count: int,
    function: Callable[[], Any] = action,
    modified: Callable[[Step[int]], Step[int]] = as_it_is,
) -> Workflow[[], int]:
    """A workflow of that many steps that call a function, one after the other."""

    @workflow
    def flow() -> Steps[int]:
        total = 0
        for number in range(count):
            total += yield from modified(step(f"s{number}").call(function))
        return total

    return flow


def inlined(count: int) -> Workflow[[], int]:
    """The same of a plain function that the event loop calls."""
    return steps_of(count, inline_action, lambda bare: bare.inline())


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
    asynchronous, inline, plain = steps_of(2000), inlined(2000), steps_of(1000, inline_action)
    least, ours, least_inline, ours_inline, by_hand, by_thread = interleaved(
        rounds,
        lambda: run_reference(asynchronous),
        lambda: run_handrail(asynchronous),
        lambda: run_reference(inline),
        lambda: run_handrail(inline),
        lambda: hand_offs(1000),
        lambda: run_handrail(plain),
    )
    loop, thread = "reference loop", "a hand-off to a thread"
    return [
        ratio("in-memory step, async", loop, least, ours, 1.8, 2000),
        ratio("in-memory step, .inline()", loop, least_inline, ours_inline, 1.8, 2000),
        ratio("in-memory step of a plain def", thread, by_hand, by_thread, 1.5, 1000),
        *_modified(rounds),
        *_many(max(2, rounds // 6)),
    ]


def _modified(rounds: int) -> list[Row]:
    flows = [steps_of(1000, modified=modified) for modified in (as_it_is, *MODIFIED.values())]
    bare, *took = interleaved(rounds, *(partial(run_handrail, flow) for flow in flows))
    return [
        ratio(f"in-memory step with {name}", "the bare step", bare, ours, 1.3, 1000)
        for name, ours in zip(MODIFIED, took, strict=True)
    ]


def _many(rounds: int) -> list[Row]:
    few, many = steps_of(1000), steps_of(100_000)
    found = []
    for gc_on, limit in ((False, 1.2), (True, 1.5)):
        short, long = interleaved(
            rounds,
            lambda: [run_handrail(few) for _ in range(20)],
            lambda: run_handrail(many),
            gc_on=gc_on,
        )
        name = f"100,000 steps, gc {'on' if gc_on else 'off'}"
        found.append(ratio(name, "1,000 steps", short * 5, long, limit, 100_000))
    return found
