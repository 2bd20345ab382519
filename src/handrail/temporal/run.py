"""A cluster's run as a stream of its events."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Generic, Self, TypeVar

from handrail.engine.stream import NO_RESULT, not_entered
from handrail.errors import TooEarly
from handrail.model.events import Event, Progress
from handrail.model.results import WorkflowResult

R_co = TypeVar("R_co", covariant=True)


class ClusterRun(Generic[R_co]):
    """One run, streamed: iterate over it for its events.

    Leaving the block early cancels the run and waits for its end. A cancellation of the block's
    own task leaves the run to the cluster.
    """

    def __init__(
        self,
        run_id: str,
        cancel: Callable[[str, str], Awaitable[object]],
        drive: Callable[[Callable[[Event], None]], Awaitable[WorkflowResult[Any]]],
    ) -> None:
        self.run_id = run_id
        self._cancel = cancel
        self._drive = drive
        self._events: deque[Event] = deque()
        self._woken = asyncio.Event()
        self._task: asyncio.Task[WorkflowResult[Any]] | None = None

    @property
    def result(self) -> WorkflowResult[R_co]:
        """How the run ended, or what it waits for.

        Raises:
            TooEarly: the run has neither ended nor begun to wait.
        """
        if self._task is None or not self._task.done():
            raise TooEarly(self.run_id, NO_RESULT)
        return self._task.result()

    async def cancel(self, reason: str = "cancelled by its caller") -> None:
        """Ask for the run's cancellation; for more, call ``TemporalExecutor`` with ``run_id``."""
        await self._cancel(self.run_id, reason)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event | Progress:
        if self._task is None:
            raise not_entered(self.run_id)
        while not self._events:
            if self._task.done():
                self._task.result()
                raise StopAsyncIteration
            self._woken.clear()
            woken = asyncio.ensure_future(self._woken.wait())
            try:
                await asyncio.wait({woken, self._task}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                woken.cancel()
        return self._events.popleft()

    def _take(self, event: Event) -> None:
        self._events.append(event)
        self._woken.set()

    async def __aenter__(self) -> Self:
        self._task = asyncio.ensure_future(self._drive(self._take))
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        assert self._task is not None
        if isinstance(error, (asyncio.CancelledError, KeyboardInterrupt, SystemExit)):
            self._task.cancel()
            return
        if not self._task.done():
            await self.cancel("its stream was left")
        if error is None:
            await self._task
        else:
            with contextlib.suppress(Exception):
                await self._task
