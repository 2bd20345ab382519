"""A clock whose time passes at once: hours of sleep and retry in a millisecond of test.

Theory of operation
===================

Time stands still while an attempt is at work. When none is, time jumps to the next moment that a
driver or an attempt waits for. The clock counts to know whether an attempt is at work:

- a run's driver says in ``wait`` how many of its attempts are in flight (``busy``);
- an attempt that is in ``sleep`` is in flight, but not at work;
- so no attempt is at work if as many attempts are asleep as the waiting drivers have in flight. (If
  an attempt is all that its run can do next, the driver performs it in its own task: then the
  attempt is asleep, and no driver counts it.)

An attempt that does anything but sleep here (a thread, a process, real I/O) is at work, and time
stands still until it ends. A driver that was woken, or a task unknown to the clock (a test that
reads the events of a run, say), gets ``QUIET_TURNS`` turns of the loop to call the clock before a
jump. The clock never waits in real time, so what a test sees does not depend on the machine.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from datetime import datetime, timedelta

import anyio
import anyio.lowlevel

from handrail.engine.current import CURRENT
from handrail.errors import DefinitionError
from handrail.model.policy import seconds_of
from handrail.ports.clock import Wakeable
from handrail.system.threads import Loop, running_loop

START = 1_704_067_200.0
"""The default time at which a clock begins: 2024-01-01 00:00 UTC."""

QUIET_TURNS = 16
"""How many turns of the loop must pass without a call of the clock before it jumps."""


class JumpClock:
    """A ``Clock`` of made-up time, for ``Executor(clock=JumpClock())``.

    It begins at ``start`` (unix seconds, or an aware datetime). While no attempt is at work, it
    jumps by itself to the next moment that a run or a scripted delay waits for; with
    ``jumps=False`` only ``advance`` and ``set`` move it. Several runs may share a clock, on one
    event loop at a time. Mutable.
    """

    def __init__(self, start: float | datetime = START, *, jumps: bool = True) -> None:
        self._now = _moment(start)
        self._jumps = jumps
        self._lock = threading.Lock()
        self._loop: Loop | None = None
        self._looking = False
        self._quiet = 0
        self._order = 0
        self._dues: list[tuple[float, int, _Waiter]] = []
        self._waiting: set[_Waiter] = set()
        self._busy = 0
        self._asleep: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self._now}>"

    # -- reading and setting --------------------------------------------------------------------

    def now(self) -> float:
        """Unix seconds."""
        self._quiet = 0
        return self._now

    def advance(self, seconds: float | timedelta) -> None:
        """Let time pass; a test, an action or a thread may call this.

        It wakes all who wait for a moment on the way; they run when the event loop gets to them.
        """
        with self._lock:
            self._now += seconds_of(seconds, "advance")
        self._wake_elsewhere()

    def set(self, moment: float | datetime) -> None:
        """Set the time (unix seconds, or an aware datetime).

        It may be an earlier time, because the clocks of machines are set back, too.
        """
        with self._lock:
            self._now = _moment(moment)
        self._wake_elsewhere()

    # -- waiting --------------------------------------------------------------------------------

    async def wait(self, event: Wakeable, until: float | None, *, busy: int) -> None:
        """Wait for the event or for the time, whichever is first; see ``ports.clock.Clock``."""
        if event.is_set() or (until is not None and until <= self._now):
            return
        with anyio.CancelScope() as scope:
            waiter = _Waiter(until, scope.cancel, CURRENT.get(None), busy)
            self._join(waiter)
            try:
                await event.wait()
            finally:
                self._leave(waiter)

    async def sleep(self, seconds: float) -> None:
        """A scripted delay, inside an attempt or inside a function that answers a gate."""
        await self._sleep(seconds, CURRENT.get(None) or object())

    async def elapse(self, seconds: float | timedelta) -> None:
        """Wait this long: in a test while runs continue, or in an attempt that takes this long."""
        await self._sleep(seconds_of(seconds, "elapse"), CURRENT.get(None))

    async def _sleep(self, seconds: float, attempt: object) -> None:
        if seconds <= 0:
            await anyio.lowlevel.checkpoint()
            return
        woken = anyio.Event()
        waiter = _Waiter(self._now + seconds, woken.set, attempt)
        self._join(waiter)
        try:
            await woken.wait()
        finally:
            self._leave(waiter)

    # -- who waits ------------------------------------------------------------------------------

    def _join(self, waiter: _Waiter) -> None:
        self._enter(running_loop())
        self._waiting.add(waiter)
        self._busy += waiter.busy
        if waiter.attempt is not None:
            whose = id(waiter.attempt)
            self._asleep[whose] = self._asleep.get(whose, 0) + 1
        if waiter.due is not None:
            self._order += 1
            heapq.heappush(self._dues, (waiter.due, self._order, waiter))
        self._stir()

    def _leave(self, waiter: _Waiter) -> None:
        self._forget(waiter)
        self._stir()

    def _forget(self, waiter: _Waiter) -> None:
        if waiter not in self._waiting:
            return  # it was woken, or its event loop is gone
        self._waiting.remove(waiter)
        self._busy -= waiter.busy
        whose = id(waiter.attempt)
        if self._asleep.get(whose, 0) > 1:
            self._asleep[whose] -= 1
        else:
            self._asleep.pop(whose, None)

    def _enter(self, loop: Loop) -> None:
        """Start over on a new event loop: all who waited on the previous one are gone with it."""
        if self._loop is not None and loop.this is self._loop.this:
            return
        self._loop, self._looking = loop, False
        self._dues, self._waiting, self._asleep, self._busy = [], set(), {}, 0

    # -- jumping --------------------------------------------------------------------------------

    def _stir(self) -> None:
        """Note a change: restart the count of quiet turns, and look again in the next turn."""
        self._quiet = 0
        if not self._looking:
            self._look_soon()

    def _look_soon(self) -> None:
        if self._loop is not None:
            self._looking = True
            self._loop.soon(self._look)

    def _look(self) -> None:
        self._looking = False
        self._wake_due()
        due = self._next_due()
        if due is None or not self._jumps:
            return
        self._quiet += 1
        if self._quiet <= QUIET_TURNS:
            self._look_soon()
        elif self._busy <= len(self._asleep):
            with self._lock:
                self._now = max(self._now, due)
            self._wake_due()
            self._stir()

    def _next_due(self) -> float | None:
        while self._dues and self._dues[0][2] not in self._waiting:
            heapq.heappop(self._dues)
        return self._dues[0][0] if self._dues else None

    def _wake_due(self) -> None:
        while True:
            due = self._next_due()
            if due is None or due > self._now:
                return
            _, _, waiter = heapq.heappop(self._dues)
            self._forget(waiter)
            waiter.wake()

    def _wake_elsewhere(self) -> None:
        """Have the event loop, if there is one, wake all whose time has come."""
        if self._loop is not None:
            self._loop.soon_from_anywhere(self._stir_and_wake)

    def _stir_and_wake(self) -> None:
        self._wake_due()
        self._stir()


class _Waiter:
    """One who waits: a sleeper, or a driver with its busy attempts.

    ``attempt`` identifies the attempt that it is part of, for all tasks of that; None outside.
    """

    __slots__ = ("attempt", "busy", "due", "wake")

    def __init__(
        self,
        due: float | None,
        wake: Callable[[], object],
        attempt: object,
        busy: int = 0,
    ) -> None:
        self.due = due
        self.wake = wake
        self.attempt = attempt
        self.busy = busy


def _moment(value: float | datetime) -> float:
    if not isinstance(value, datetime):
        return float(value)
    if value.tzinfo is None or value.utcoffset() is None:
        raise DefinitionError(
            f"a clock needs a datetime with a time zone, got {value!r}. "
            f"Write datetime(..., tzinfo=UTC), or unix seconds."
        )
    return value.timestamp()
