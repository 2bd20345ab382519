"""The machine's own clock."""

from __future__ import annotations

import time

import anyio

from handrail.ports.clock import Wakeable

_LONGEST_WAIT_S = 60.0


class SystemClock:
    """Wall time. Waits in turns of a minute, so that a machine that slept, or whose clock was set,
    is late by no more than that.
    """

    def now(self) -> float:
        """Unix seconds."""
        return time.time()

    async def wait(self, event: Wakeable, until: float | None, *, busy: int) -> None:
        """Wait for the event or for the time."""
        del busy
        if until is None:
            await event.wait()
            return
        while not event.is_set():
            left = until - time.time()
            if left <= 0:
                return
            with anyio.move_on_after(min(left, _LONGEST_WAIT_S)):
                await event.wait()

    async def sleep(self, seconds: float) -> None:
        """Wait that long."""
        await anyio.sleep(seconds)
