"""Waits in an event loop for something that any thread may report."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread

from handrail.ports.claims import Claimant, Waiting
from handrail.system.threads import running_loop

T = TypeVar("T")


class Awaited:
    """A wait that ends, or fails with ``error``; ``behind``: who is in the way. Mutable."""

    def __init__(self) -> None:
        self.behind: tuple[Claimant, ...] = ()
        self.error: Exception | None = None
        self._loop = running_loop()
        self._event = anyio.Event()

    async def until(self, is_there: Callable[[], bool], waiting: Waiting | None = None) -> None:
        """Return once ``is_there()``; until then calls ``waiting`` when ``behind`` has changed.

        Raises:
            ClaimsFailed: the wait has failed.
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
        """Have the waiting task look again; from any thread."""
        self._loop.soon_from_anywhere(self._set)

    def _set(self) -> None:
        self._event.set()


async def in_thread(action: Callable[[], T]) -> T:
    """The action's result, from a thread of its own, outside of the shared thread limit."""
    return await anyio.to_thread.run_sync(action, limiter=anyio.CapacityLimiter(1))
