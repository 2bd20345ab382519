"""The port through which time is told and waited for."""

from __future__ import annotations

from typing import Protocol

SET_S = 1.0
"""A clock that went so much otherwise than running time was set, or its machine slept."""


class Wakeable(Protocol):
    """Something a clock can wait for besides time; an ``anyio.Event`` is one."""

    async def wait(self) -> object: ...

    def is_set(self) -> bool: ...


class Clock(Protocol):
    """Wall time and waiting. Contract suite: ``handrail.testing.contracts.ClockContract``.

    ``now`` never goes back by more than the machine's own clock does. ``wait`` returns when the
    event is set or ``until`` has passed, whichever comes first, at once if either is so already.

    A clock that can be set has ``elapsed()``, too: seconds of running time. Timeouts of attempts
    count these, and ``wait`` may then return early where the clock was set.
    """

    def now(self) -> float:
        """Unix seconds."""
        ...

    async def wait(self, event: Wakeable, until: float | None, *, busy: int) -> None:
        """Wait for the event, at most until ``until`` (unix seconds; None: without end).

        ``busy`` is the number of attempts that the caller has in flight: a clock that jumps must
        not jump while one of them is at work.
        """
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait inside an attempt: a scripted delay, for example."""
        ...
