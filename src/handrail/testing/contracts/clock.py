"""What every clock must do."""

from __future__ import annotations

import anyio
import pytest

from handrail.ports.clock import Clock

TICK_S = 0.02
"""How long the tests wait, on the clock's own time."""

LONG_S = 3600.0
"""Longer than any test takes."""


class ClockContract:
    """The tests of ``handrail.ports.clock.Clock``; subclass it and override the fixture.

    Tests are async and need anyio's pytest plugin: ``anyio_mode = "auto"``, or mark the subclass
    with ``pytest.mark.anyio``.
    """

    @pytest.fixture
    def clock(self) -> Clock:
        """The clock, new for each test."""
        raise NotImplementedError("override the fixture clock in your subclass")

    async def test_it_never_goes_back(self, clock: Clock) -> None:
        """A later reading is not an earlier time."""
        readings = [clock.now() for _ in range(100)]
        assert readings == sorted(readings)

    async def test_a_set_event_ends_the_wait_at_once(self, clock: Clock) -> None:
        """Waiting for an event that is set already takes no time."""
        event = anyio.Event()
        event.set()
        before = clock.now()
        await clock.wait(event, before + LONG_S, busy=0)
        assert clock.now() < before + LONG_S

    async def test_a_past_time_ends_the_wait_at_once(self, clock: Clock) -> None:
        """Waiting until a past moment returns, although the event is not set."""
        event = anyio.Event()
        await clock.wait(event, clock.now() - TICK_S, busy=0)
        await clock.wait(event, clock.now(), busy=0)
        assert not event.is_set()

    async def test_the_time_ends_the_wait(self, clock: Clock) -> None:
        """Waiting until a moment returns when it has come, not before."""
        event = anyio.Event()
        until = clock.now() + TICK_S
        await clock.wait(event, until, busy=0)
        assert clock.now() >= until
        assert not event.is_set()

    @pytest.mark.parametrize("bounded", [True, False])
    async def test_the_event_ends_the_wait(self, clock: Clock, *, bounded: bool) -> None:
        """Waiting ends when the event is set, with a bound and without."""
        event = anyio.Event()
        until = clock.now() + LONG_S if bounded else None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_set, event)
            await clock.wait(event, until, busy=1)
        assert until is None or clock.now() < until

    async def test_sleep_takes_its_time(self, clock: Clock) -> None:
        """A sleeper continues when its time has passed, not before."""
        before = clock.now()
        await clock.sleep(TICK_S)
        assert clock.now() >= before + TICK_S

    async def test_sleepers_go_on_in_order_of_their_times(self, clock: Clock) -> None:
        """Of sleepers that began together, the one with the shorter sleep continues first."""
        order: list[int] = []

        async def sleep(times: int) -> None:
            await clock.sleep(times * TICK_S)
            order.append(times)

        async with anyio.create_task_group() as tasks:
            for times in (3, 1, 2):
                tasks.start_soon(sleep, times)
        assert order == [1, 2, 3]

    async def test_waiting_can_be_cancelled(self, clock: Clock) -> None:
        """A cancelled wait and a cancelled sleep end, and the clock serves the next."""
        with anyio.CancelScope() as scope:
            scope.cancel()
            await clock.wait(anyio.Event(), clock.now() + LONG_S, busy=1)
        assert scope.cancelled_caught
        with anyio.CancelScope() as scope:
            scope.cancel()
            await clock.sleep(LONG_S)
        assert scope.cancelled_caught
        await clock.sleep(TICK_S)


async def _set(event: anyio.Event) -> None:
    event.set()
