"""Tasks for attempts, on asyncio and on trio.

The driver must be able to cancel one attempt alone, and cheaply: an anyio task group for each would
cost more than most steps. On asyncio a plain task can be cancelled by itself; on trio a cancel
scope is light. So there is one small class for each.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Any, Protocol, Self

import anyio

from handrail.core.timers import InFlight
from handrail.engine.calls import Abandoned, InContext
from handrail.engine.current import Current
from handrail.model.outcome import INTERRUPTIONS


class AttemptStopped(Exception):  # a signal within this package, never shown
    """An attempt was stopped on request; ``abandoned``: what it ran was left behind."""

    def __init__(self, *, abandoned: bool = False) -> None:
        super().__init__(abandoned)
        self.abandoned = abandoned


class Flight(InFlight):
    """Something in flight in this process, in a task of its own or in the driver's. Mutable."""

    __slots__ = ("awaited", "cancels", "current", "handle", "has_begun", "waits", "work")

    def __init__(self, path: str, kind: str, command: Any) -> None:
        super().__init__(path, kind, command)
        self.current: Current | None = None
        self.awaited: Any = None
        """What a small function of the user's returned, if that is awaited."""
        self.handle: Any = None
        self.has_begun = False
        self.waits = False
        """It waits for a claim, and does nothing meanwhile."""
        self.cancels = 0
        self.work: InContext | None = None


STOPPED = object()
ABANDONED = object()

PASSED_ON = (*INTERRUPTIONS, GeneratorExit)
"""Raised on as they are, also by an action that is being stopped."""

Work = Callable[[], Awaitable[Any]]
Deliver = Callable[[Flight, Any], None]


class Tasks(Protocol):
    """Starts and stops flights. ``deliver`` is called with each flight's outcome: a result,
    ``STOPPED``, ``ABANDONED``, or a ``BaseException``.

    ``by_hand``: the caller may run a coroutine to its first wait before ``inline`` awaits it.
    """

    by_hand: bool

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...

    def start(self, flight: Flight, work: Work, context: Context) -> None:
        """Run the work in a task of its own, in this context."""

    def stop(self, flight: Flight) -> None:
        """Cancel the flight; call it once."""
        flight.stopping = True
        if flight.handle is not None:
            flight.handle.cancel()

    def stop_inline(self, flight: Flight, leave_after_s: float) -> None:
        """Cancel a flight that ``inline`` awaits; abandon it if it has not ended in that time.

        On trio nothing can be abandoned: ``inline`` waits until the flight ends.
        """

    async def inline(self, flight: Flight, awaitable: InContext) -> Any:
        """Await in the caller's own task, so that ``stop`` can still reach it.

        What it returns or raises because it was stopped, or because the drive's own task is being
        cancelled, is no end of it.

        Raises:
            AttemptStopped: it was stopped.
        """


class AsyncioTasks(Tasks):
    """Plain tasks."""

    by_hand = True

    def __init__(self, deliver: Deliver) -> None:
        import asyncio

        self._asyncio = asyncio
        self._deliver = deliver
        self._tasks: set[Any] = set()

    async def __aenter__(self) -> Self:
        self._loop = self._asyncio.get_running_loop()
        return self

    async def __aexit__(self, *_: object) -> None:
        left = [task for task in self._tasks if not task.done()]
        for task in left:
            task.cancel()
        if left:
            await self._asyncio.wait(left, timeout=LEAVE_AFTER_S)

    def start(self, flight: Flight, work: Work, context: Context) -> None:
        """Make a task; if it is cancelled before its first step, the outcome is ``STOPPED``."""
        task = self._loop.create_task(self._run(flight, work), context=context)
        flight.handle = task
        self._tasks.add(task)

    def stop(self, flight: Flight) -> None:
        """Cancel the task; what is cancelled before its first step cannot say so itself."""
        super().stop(flight)
        if not flight.has_begun:
            self._loop.call_soon(self._end_unbegun, flight)

    def _end_unbegun(self, flight: Flight) -> None:
        if not flight.has_begun and flight.handle is not None:
            self._tasks.discard(flight.handle)
            self._deliver(flight, STOPPED)

    async def _run(self, flight: Flight, work: Work) -> None:
        flight.has_begun = True
        try:
            outcome = await work()
        except self._asyncio.CancelledError:
            outcome = STOPPED
        except Abandoned:
            outcome = ABANDONED
        except BaseException as error:  # noqa: BLE001  # the driver decides
            outcome = error
        self._tasks.discard(flight.handle)
        self._deliver(flight, outcome)

    def stop_inline(self, flight: Flight, leave_after_s: float) -> None:
        """Cancel what the caller's task awaits, and abandon it after ``leave_after_s``."""
        if not flight.stopping:
            flight.stopping = True
            self._cancel_inline(flight)
            self._loop.call_later(leave_after_s, self._leave_inline, flight)

    def _begin_inline(self, flight: Flight, awaitable: InContext) -> Any:
        task = self._asyncio.current_task()
        assert task is not None
        flight.handle, flight.work = task, awaitable
        if flight.stopping:  # since its first part
            self._cancel_inline(flight)
        return task

    def _cancel_inline(self, flight: Flight) -> None:
        if flight.handle is not None:
            flight.cancels += 1
            flight.handle.cancel()

    def _leave_inline(self, flight: Flight) -> None:
        if flight.work is not None and flight.handle is not None:
            flight.work.abandon = True
            self._cancel_inline(flight)

    async def inline(self, flight: Flight, awaitable: InContext) -> Any:
        """Await it; a cancellation that did not come from ``stop`` is raised on."""
        # long road of attempt_tasks.Attempts.perform_here
        task = self._begin_inline(flight, awaitable)
        abandoned, before = False, task.cancelling()
        try:
            result = await awaitable
        except self._asyncio.CancelledError:
            if not flight.stopping:
                raise
        except Abandoned:
            abandoned = True
        except PASSED_ON:
            raise
        except BaseException:
            if not flight.stopping:
                if task.cancelling() > before:
                    await anyio.lowlevel.checkpoint_if_cancelled()
                raise
        else:
            if not flight.stopping:
                if task.cancelling() > before:
                    await anyio.lowlevel.checkpoint_if_cancelled()
                return result
        finally:
            flight.handle = None
        if _others_cancelled(task, flight):
            raise self._asyncio.CancelledError
        raise AttemptStopped(abandoned=abandoned)


def _others_cancelled(task: Any, flight: Flight) -> bool:
    """True if others cancelled the task, too; takes back the flight's own cancellations."""
    left = task.cancelling()
    for _ in range(flight.cancels):
        left = task.uncancel()
    return bool(left)


class TrioTasks(Tasks):
    """A nursery, and a cancel scope for each flight. The scope must be open before the flight's
    code opens one, so no coroutine is started by hand.
    """

    by_hand = False

    def __init__(self, deliver: Deliver) -> None:
        import trio

        self._trio = trio
        self._deliver = deliver
        self._manager = trio.open_nursery()
        self._nursery: Any = None
        self._scopes: set[Any] = set()

    async def __aenter__(self) -> Self:
        self._nursery = await self._manager.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        for scope in self._scopes:
            scope.cancel()
        self._nursery.cancel_scope.cancel()
        await self._manager.__aexit__(None, None, None)

    def start(self, flight: Flight, work: Work, context: Context) -> None:
        """Start in the nursery, in a scope that only ``stop`` and the nursery's end cancel."""
        flight.handle = self._trio.CancelScope(shield=True)
        self._scopes.add(flight.handle)
        context.run(self._nursery.start_soon, self._run, flight, work)

    async def _run(self, flight: Flight, work: Work) -> None:
        outcome: Any = STOPPED
        with flight.handle:
            if flight.stopping:  # before it began: trio would run it to its first wait
                await self._trio.lowlevel.checkpoint()
            try:
                outcome = await work()
            except self._trio.Cancelled:
                raise
            except Abandoned:
                outcome = ABANDONED
            except BaseException as error:  # noqa: BLE001  # the driver decides
                outcome = error
        self._scopes.discard(flight.handle)
        self._deliver(flight, outcome)

    def stop_inline(self, flight: Flight, leave_after_s: float) -> None:
        """Cancel the scope; ``inline`` waits for its end, however long that takes."""
        del leave_after_s
        if not flight.stopping:
            self.stop(flight)

    async def inline(self, flight: Flight, awaitable: InContext) -> Any:
        """Await it in a scope of its own."""
        with self._trio.CancelScope() as scope:
            flight.handle = scope
            raise_if_cancelled = self._trio.lowlevel.checkpoint_if_cancelled
            try:
                result = await awaitable
            except Abandoned:
                if not flight.stopping:  # the drive's own task was cancelled: raise that
                    await self._trio.lowlevel.checkpoint()
                raise AttemptStopped(abandoned=True) from None
            except (*PASSED_ON, self._trio.Cancelled):
                raise
            except BaseException:
                await raise_if_cancelled()
                raise
            finally:
                flight.handle = None
            await raise_if_cancelled()
            return result
        raise AttemptStopped


LEAVE_AFTER_S = 5.0
"""How long the end of a drive waits for tasks that ignore their cancellation."""


def tasks(deliver: Deliver) -> Tasks:
    """The kind of tasks that fits the running event loop."""
    import anyio

    if anyio.get_cancelled_exc_class().__module__.partition(".")[0] == "trio":
        return TrioTasks(deliver)
    return AsyncioTasks(deliver)
