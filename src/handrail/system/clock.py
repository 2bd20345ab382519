"""The machine's own clock."""

from __future__ import annotations

import time

import anyio

from handrail.ports.clock import SET_S, Wakeable

_LONGEST_WAIT_S = 60.0


class SystemClock:
    """Wall time. Waits at most a minute at a time, so that after the machine slept a wait is at
    most that late; a wait ends early if the clock was set.
    """

    now = staticmethod(time.time)
    """Unix seconds. The function itself, as each step asks three times."""

    def elapsed(self) -> float:
        """Seconds of running time from an arbitrary start. Nothing sets it; it stops while the
        machine sleeps.
        """
        return time.monotonic()

    async def wait(self, event: Wakeable, until: float | None, *, busy: int) -> None:
        """Wait until the event is set or the time has come."""
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
        """Wait for this many seconds."""
        await anyio.sleep(seconds)
