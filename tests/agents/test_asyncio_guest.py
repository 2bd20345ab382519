"""Work that needs asyncio runs on every event loop."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from handrail.agents.api.asyncio_guest import Emit, run_on_asyncio
from handrail.model.events import AgentMessage
from tests.agents.conftest import BOTH_LOOPS

pytestmark = BOTH_LOOPS


def message(number: int) -> AgentMessage:
    """A notice."""
    return AgentMessage("step", str(number))


async def test_work_is_done_on_asyncio_and_told_of_here() -> None:
    """What it emits is emitted by the task that asked, in order, before it returns."""
    heard: list[Any] = []
    here = threading.current_thread()

    def emit(notice: Any) -> None:
        assert threading.current_thread() is here
        heard.append(notice)

    async def work(tell: Emit) -> str:
        for number in range(3):
            await asyncio.sleep(0)
            tell(message(number))
        return "done"

    assert await run_on_asyncio(work, emit) == "done"
    assert heard == [message(0), message(1), message(2)]


async def test_what_it_raises_is_raised_here() -> None:
    """An error of the work is the caller's, after all that it emitted."""
    heard: list[Any] = []

    async def work(tell: Emit) -> None:
        tell(message(1))
        raise KeyError("odd")

    with pytest.raises(KeyError, match="odd"):
        await run_on_asyncio(work, heard.append)
    assert heard == [message(1)]


async def test_cancelling_ends_the_work_first() -> None:
    """The cancellation goes on when the work has ended, and its last word was told."""
    heard: list[Any] = []
    begun = anyio.Event()

    def emit(notice: Any) -> None:
        heard.append(notice)
        begun.set()

    async def work(tell: Emit) -> None:
        tell(message(1))
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
            tell(message(2))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run_on_asyncio, work, emit)
        await begun.wait()
        tasks.cancel_scope.cancel()
    assert heard == [message(1), message(2)]


async def test_an_emit_that_raises_ends_the_work() -> None:
    """Its error is the caller's, and the work goes on no longer."""
    ended: list[bool] = []

    async def work(tell: Emit) -> None:
        try:
            tell(message(1))
            await anyio.sleep_forever()
        finally:
            ended.append(True)

    def emit(notice: Any) -> None:
        raise ValueError("no room")

    with pytest.raises(ValueError, match="no room"):
        await run_on_asyncio(work, emit)
    assert ended == [True]


async def test_several_works_share_a_loop() -> None:
    """What one of them opened on its loop another can use, though the caller is on trio."""
    loops: list[Any] = []

    async def work(tell: Emit) -> None:
        loops.append(asyncio.get_running_loop())

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(run_on_asyncio, work, lambda _: None)
    assert len(loops) == 3
    assert len(set(loops)) == 1


async def test_the_works_context_is_that_of_asyncio() -> None:
    """Tools of anyio work in it, although another event loop asked."""

    async def work(tell: Emit) -> str:
        await anyio.lowlevel.checkpoint()
        with anyio.move_on_after(5):
            return await anyio.to_thread.run_sync(str.upper, "done")
        return "late"

    assert await run_on_asyncio(work, lambda _: None) == "DONE"
