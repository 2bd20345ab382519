"""Schedules calls on the running event loop, asyncio's or trio's."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeAlias

import anyio


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


Loop: TypeAlias = AsyncioLoop | TrioLoop


def running_loop() -> Loop:
    """The event loop that this code runs in."""
    if anyio.get_cancelled_exc_class().__module__.partition(".")[0] == "trio":
        import trio

        return TrioLoop(trio.lowlevel.current_trio_token())
    import asyncio

    return AsyncioLoop(asyncio.get_running_loop())
