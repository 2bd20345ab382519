"""The port through which handrail reads the time and waits."""

from __future__ import annotations

from typing import Protocol

SET_S = 1.0
"""If wall time moved this much more or less than running time, the clock was set or the
machine slept."""


class Wakeable(Protocol):
    """Something a clock can wait for besides time; an ``anyio.Event`` is one."""

    async def wait(self) -> object: ...

    def is_set(self) -> bool: ...


class Clock(Protocol):
    """Wall time and waiting. Contract suite: ``handrail.testing.contracts.ClockContract``.

    ``now`` never goes back by more than the machine's own clock does. ``wait`` returns when the
    event is set or ``until`` has passed, whichever comes first; at once if either already holds.

    A clock that can be set also has ``elapsed()``: seconds of running time. Timeouts of attempts
    are measured with it. ``wait`` of such a clock may return early when the clock was set.
    """

    def now(self) -> float:
        """Unix seconds."""
        ...

    async def wait(self, event: Wakeable, until: float | None, *, busy: int) -> None:
        """Wait for the event, at most until ``until`` (unix seconds; None: without end).

        ``busy`` is the number of attempts that the caller has in flight: a clock that jumps must
        not jump while an attempt runs.
        """
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait inside an attempt: a scripted delay, for example."""
        ...
