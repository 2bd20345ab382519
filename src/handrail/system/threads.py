"""Threads that are kept for the next call, and the event loop that awaits what they do."""

from __future__ import annotations

import atexit
import contextlib
import sys
import threading
from collections.abc import Callable, Generator
from contextvars import Context, copy_context
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

from handrail.system.forks import reset_in_child

IDLE_S = 10.0
"""A thread that had nothing to do for so long ends."""


class AsyncioLoop:
    """An asyncio event loop; ``this`` is the loop itself."""

    def __init__(self, this: Any) -> None:
        self.this = this

    def soon(self, function: Callable[[], object]) -> None:
        """Call it on the loop's next turn; from the loop's own thread."""
        self.this.call_soon(function)

    def soon_from_anywhere(self, function: Callable[[], object]) -> None:
        """The same from any thread; does nothing if the loop is closed."""
        with contextlib.suppress(RuntimeError):
            self.this.call_soon_threadsafe(function)

    def pending(self) -> Pending:
        """What a task awaits until a thread has finished."""
        future = self.this.create_future()

        def wake() -> None:
            if not future.done():  # the task may have been cancelled
                future.set_result(None)

        return Pending(self, future.__await__, wake)


class TrioLoop:
    """A run of trio; ``this`` is its token."""

    def __init__(self, this: Any) -> None:
        self.this = this

    def soon(self, function: Callable[[], object]) -> None:
        """Call it on the loop's next turn; does nothing if the run is over."""
        import trio

        with contextlib.suppress(trio.RunFinishedError):
            self.this.run_sync_soon(function)

    soon_from_anywhere = soon

    def pending(self) -> Pending:
        """What a task awaits until a thread has finished."""
        import trio

        event = trio.Event()
        return Pending(self, lambda: event.wait().__await__(), event.set)


Loop: TypeAlias = AsyncioLoop | TrioLoop


def loop_here() -> Loop | None:
    """The event loop that runs in this thread; None if none does."""
    # A running loop has imported its library, so do not import it. Another thread may be doing so.
    lowlevel = getattr(sys.modules.get("trio"), "lowlevel", None)
    in_trio_run = getattr(lowlevel, "in_trio_run", None)
    if lowlevel is not None and in_trio_run is not None and in_trio_run():
        return TrioLoop(lowlevel.current_trio_token())
    running = getattr(sys.modules.get("asyncio"), "get_running_loop", None)
    if running is None:
        return None
    try:
        return AsyncioLoop(running())
    except RuntimeError:
        return None


def running_loop() -> Loop:
    """The event loop that this code runs in.

    Raises:
        RuntimeError: none runs in this thread.
    """
    loop = loop_here()
    if loop is None:
        raise RuntimeError("no event loop runs in this thread")
    return loop


class Pending:
    """An awaitable that a thread completes by ``finish``; it raises ``error``, if that is set.

    Source: measured; to a thread and back takes 55 us this way, and 165 by ``anyio.to_thread``.
    """

    __slots__ = ("_loop", "_wait", "_wake", "error")

    def __init__(
        self, loop: Loop, wait: Callable[[], Generator[Any, Any, Any]], wake: Callable[[], object]
    ) -> None:
        self._loop = loop
        self._wait = wait
        self._wake = wake
        self.error: BaseException | None = None

    def __await__(self) -> Generator[Any, None, None]:
        yield from self._wait()
        if self.error is not None:
            raise self.error

    def finish(self) -> None:
        """Wake the awaiting task; from any thread. If its loop has ended, no task awaits it."""
        self._loop.soon_from_anywhere(self._wake)


def pending_here() -> Pending | None:
    """A ``Pending`` for the event loop that runs in this thread; None if none runs."""
    loop = loop_here()
    return None if loop is None else loop.pending()


class ThreadCall:
    """A function that one of the threads calls, in a copy of the caller's context. Mutable.

    ``ended``: it has returned or raised. ``pending`` is done soon afterwards.
    """

    __slots__ = ("_context", "_function", "_result", "ended", "pending")

    def __init__(self, function: Callable[[], Any], pending: Pending) -> None:
        self._function = function
        self._context = _outside_of_loops(copy_context())
        self._result: Any = None
        self.pending = pending
        self.ended = False

    def make(self) -> None:
        """Call the function, in the thread."""
        try:
            self._result = self._context.run(self._function)
        except BaseException as error:  # noqa: BLE001  # raised where it is awaited
            self.pending.error = error
        finally:
            self.ended = True

    async def result(self) -> Any:
        """What the function returned; raises what it raised."""
        await self.pending
        return self._result


def _outside_of_loops(context: Context) -> Context:
    """The context, in which no event loop runs: code of a thread may run one of its own."""
    sniffio = sys.modules.get("sniffio")  # anyio notes there which library runs
    if sniffio is not None:
        context.run(sniffio.current_async_library_cvar.set, None)
    return context


class _Worker:
    """A thread that makes one call after the other. Mutable."""

    def __init__(self, number: int) -> None:
        self.calls: SimpleQueue[ThreadCall | None] = SimpleQueue()
        self.thread = threading.Thread(
            target=self._work, name=f"handrail action {number}", daemon=True
        )

    def _work(self) -> None:
        while True:
            call = self._next()
            if call is None:
                _ALL.discard(self)
                return
            call.make()
            pending = call.pending
            del call  # its result is the caller's alone
            _IDLE.append(self)
            pending.finish()
            del pending

    def _next(self) -> ThreadCall | None:
        try:
            return self.calls.get(timeout=IDLE_S)
        except Empty:
            try:
                _IDLE.remove(self)
            except ValueError:  # somebody has just taken it
                return self.calls.get()
            return None


_IDLE: list[_Worker] = []
_ALL: set[_Worker] = set()


def call_in_thread(function: Callable[[], Any], pending: Pending) -> ThreadCall:
    """Have a thread call the function: the one that was used last, or a new one."""
    call = ThreadCall(function, pending)
    try:
        worker = _IDLE.pop()
    except IndexError:
        worker = _Worker(len(_ALL) + 1)
        _ALL.add(worker)
        worker.thread.start()
    worker.calls.put(call)
    return call


def any_at_work() -> bool:
    """True if one of the threads has not returned from its call."""
    return len(_ALL) > len(_IDLE)


def _end() -> None:
    """End all threads, as Python does with its own: a call that goes on is waited for."""
    workers = list(_ALL)
    for worker in workers:
        worker.calls.put(None)
    for worker in workers:
        worker.thread.join()


@reset_in_child
def _forget() -> None:
    """A forked process has none of the threads."""
    _IDLE.clear()
    _ALL.clear()


atexit.register(_end)
