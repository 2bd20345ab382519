"""Runs work that needs asyncio from any event loop."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import anyio

from handrail.model.events import Notice

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task

T = TypeVar("T")
Emit: TypeAlias = Callable[[Notice], None]


async def run_on_asyncio(work: Callable[[Emit], Coroutine[Any, Any, T]], emit: Emit) -> T:
    """The result of ``work``, which gets a function to emit notices with.

    On asyncio the work runs on the current loop. On trio it runs on an asyncio loop in a thread
    that this process keeps for it, and its notices are emitted on trio's loop. A cancellation
    cancels the work, and continues once the work has ended.
    """
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return await _run_as_guest(work, emit)
    return await work(emit)


async def _run_as_guest(work: Callable[[Emit], Coroutine[Any, Any, T]], emit: Emit) -> T:
    from trio.lowlevel import current_trio_token

    here = current_trio_token()
    loop = _LOOP.running()
    said, heard = anyio.create_memory_object_stream[Notice](math.inf)
    started: list[Task[T]] = []

    def start() -> None:
        task = loop.create_task(work(lambda one: here.run_sync_soon(said.send_nowait, one)))
        task.add_done_callback(lambda _: here.run_sync_soon(said.close))
        started.append(task)

    def stop() -> None:
        started[0].cancel()

    # In a new context: the current one says that its event loop is trio.
    loop.call_soon_threadsafe(start, context=Context())
    with heard:
        try:
            async for notice in heard:
                emit(notice)
        except BaseException:
            loop.call_soon_threadsafe(stop)
            with anyio.CancelScope(shield=True):
                async for notice in heard:
                    emit(notice)
            raise
    if started[0].cancelled():
        raise RuntimeError("the work on asyncio was cancelled, but not from here")
    return started[0].result()


class _Loop:
    """An asyncio loop in its own thread, which ends with the process. Mutable."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: AbstractEventLoop | None = None

    def running(self) -> AbstractEventLoop:
        """The loop; started if it does not run, for instance after a fork."""
        import asyncio

        with self._starting:
            if self._loop is None or self._thread is None or not self._thread.is_alive():
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="handrail-asyncio", daemon=True
                )
                self._thread.start()
            return self._loop


_LOOP = _Loop()
