"""The machine's own clock."""

from __future__ import annotations

import time

import anyio

from handrail.ports.clock import SET_S, Wakeable

_LONGEST_WAIT_S = 60.0


class SystemClock:
    """Wall time. Waits in turns of a minute, so that a machine that slept is late by no more than
    that; a wait in which the clock was set ends early.
    """

    def now(self) -> float:
        """Unix seconds."""
        return time.time()

    def elapsed(self) -> float:
        """Seconds of running time since any moment: nothing sets it, and it stands still while the
        machine sleeps.
        """
        return time.monotonic()

    async def wait(self, event: Wakeable, until: float | None, *, busy: int) -> None:
        """Wait for the event or for the time."""
        del busy
        if until is None:
            await event.wait()
            return
        skew = self.now() - self.elapsed()
        while not event.is_set():
            now = self.now()
            if until <= now or abs(now - self.elapsed() - skew) > SET_S:
                return
            with anyio.move_on_after(min(until - now, _LONGEST_WAIT_S)):
                await event.wait()

    async def sleep(self, seconds: float) -> None:
        """Wait that long."""
        await anyio.sleep(seconds)
