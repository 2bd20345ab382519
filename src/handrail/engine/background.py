"""Work in the background of an executor's block: it ends with the block at the latest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import anyio

from handrail.system.running_loop import AsyncioLoop, running_loop

Work: TypeAlias = Callable[[], Awaitable[object]]


class AsyncioBackground:
    """Tasks of asyncio. The block may end in another task than it began in, as in a fixture."""

    def __init__(self) -> None:
        self._tasks: set[Any] = set()

    async def begin(self) -> None:
        """Nothing is to be done."""

    def start(self, work: Work) -> None:
        """Do it in the background; it raises nothing."""
        import asyncio

        task = asyncio.get_running_loop().create_task(_awaited(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def end(self) -> None:
        """Cancel what is at work, and wait for it."""
        import asyncio

        for task in self._tasks:
            task.cancel()
        while self._tasks:
            await asyncio.wait(set(self._tasks))
            await asyncio.sleep(0)  # so that those that have ended are discarded


class GroupBackground:
    """Tasks of any loop; the block ends in the task that it began in."""

    def __init__(self) -> None:
        self._group = anyio.create_task_group()

    async def begin(self) -> None:
        """Open the group."""
        await self._group.__aenter__()

    def start(self, work: Work) -> None:
        """Do it in the background; it raises nothing."""
        self._group.start_soon(_awaited, work)

    async def end(self) -> None:
        """Cancel what is at work, and wait for it."""
        self._group.cancel_scope.cancel()
        await self._group.__aexit__(None, None, None)


Background: TypeAlias = AsyncioBackground | GroupBackground


def background() -> Background:
    """The background of a block that begins here."""
    return AsyncioBackground() if isinstance(running_loop(), AsyncioLoop) else GroupBackground()


async def _awaited(work: Work) -> None:
    await work()
