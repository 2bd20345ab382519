"""Runs that are resumed more than once: of each step the last that is on record counts."""

from __future__ import annotations

import contextlib
from typing import Any

import anyio
import pytest

from handrail import Executor, MemoryJournal, StepFailed, Steps, step, workflow
from handrail.model import events as ev

pytestmark = pytest.mark.anyio

RUN = "r"


class Acts:
    """What the actions of a workflow do: those that are broken fail, the slow ones wait."""

    def __init__(self) -> None:
        self.broken: set[str] = set()
        self.slow: set[str] = set()
        self.done: list[str] = []

    async def __call__(self, name: str) -> str:
        """Perform this action."""
        self.done.append(name)
        if name in self.broken:
            raise ValueError(name)
        if name in self.slow:
            await anyio.sleep(60)
        return name

    def now(self, *, broken: str = "", slow: str = "") -> None:
        """Begin a drive in which these are broken, or slow."""
        self.broken, self.slow = set(broken.split()), set(slow.split())
        self.done.clear()


async def test_members_that_fail_in_turn_are_not_begun_again_when_they_have_succeeded() -> None:
    """Every bug is mended and the run is resumed: until the last, what succeeded stays."""
    act = Acts()

    def member(number: int) -> Steps[None]:
        for name in "xy":
            yield from step(name).call(act, f"{name}{number}")

    @workflow
    def flow() -> Steps[None]:
        yield from step("each").for_each([1, 2], member, key=str, max_concurrency=1)

    executor = Executor(journal=MemoryJournal())
    act.now(broken="x1")
    assert (await executor.options(run_id=RUN).run(flow)).status == "failed"
    assert act.done == ["x1"]
    act.now(broken="y2")
    assert (await executor.resume(RUN, flow)).status == "failed"
    assert act.done == ["x1", "y1", "x2", "y2"]
    act.now()
    assert (await executor.resume(RUN, flow)).status == "succeeded"
    assert act.done == ["y2"]


async def test_a_step_that_was_cancelled_once_and_succeeded_then_is_kept() -> None:
    """What the second drive came to counts, also if it failed later."""
    act = Acts()

    @workflow
    def flow() -> Steps[None]:
        for name in "ab":
            yield from step(name).call(act, name)

    executor = Executor(journal=MemoryJournal())
    act.now(slow="a")
    async with executor.options(run_id=RUN).stream(flow) as run:
        async for event in run:
            if isinstance(event, ev.StepStarted):
                run.cancel("enough")
    act.now(broken="b")
    assert (await executor.resume(RUN, flow)).status == "failed"
    assert act.done == ["a", "b"]
    act.now()
    assert (await executor.resume(RUN, flow)).status == "succeeded"
    assert act.done == ["b"]


async def test_a_group_that_is_entered_again_is_not_stopped_by_what_was_cancelled_in_it() -> None:
    """The run failed later, and undid steps of the group: so they run again, and may be followed by
    something else now.
    """
    act = Acts()

    def member(name: str) -> Steps[str]:
        yield from step("do").call(act, f"do-{name}").with_rollback(lambda _: act(f"undo-{name}"))
        return (yield from step("then").call(act, f"then-{name}"))

    @workflow
    def flow() -> Steps[Any]:
        with contextlib.suppress(StepFailed):
            yield from step("each").for_each(["a", "b"], member, key=str)
        yield from step("end").call(act, "end")

    executor = Executor(journal=MemoryJournal())
    act.now(broken="then-b end", slow="then-a")
    failed = await executor.options(run_id=RUN).run(flow)
    assert (failed.failed_step, failed.step("each/a/then").status) == ("end", "cancelled")
    act.now()
    result = await executor.resume(RUN, flow)
    assert (result.status, result.step("each").status) == ("succeeded", "failed")
    assert {"do-a", "do-b", "end"} <= set(act.done)
