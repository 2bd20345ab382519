"""What is waited for in an event loop, and told from any thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread

from handrail.ports.claims import Claimant, Waiting
from handrail.system.running_loop import running_loop

T = TypeVar("T")


class Awaited:
    """Something that comes, or fails by its ``error``; ``behind`` is who is in the way of it.
    Mutable.
    """

    def __init__(self) -> None:
        self.behind: tuple[Claimant, ...] = ()
        self.error: Exception | None = None
        self._loop = running_loop()
        self._event = anyio.Event()

    async def until(self, is_there: Callable[[], bool], waiting: Waiting | None = None) -> None:
        """Return once it is there; ``waiting`` is called with who is in the way until then.

        Raises:
            ClaimsFailed: it will not come.
        """
        told: tuple[Claimant, ...] = ()
        while not is_there():
            if self.error is not None:
                raise self.error
            if waiting is not None and told != self.behind:
                told = self.behind
                waiting(told)
            await self._event.wait()
            self._event = anyio.Event()

    def wake(self) -> None:
        """Have it looked at again."""
        self._loop.soon_from_anywhere(self._set)

    def _set(self) -> None:
        self._event.set()


async def in_thread(action: Callable[[], T]) -> T:
    """What it returns; no other work keeps it from a thread."""
    return await anyio.to_thread.run_sync(action, limiter=anyio.CapacityLimiter(1))
