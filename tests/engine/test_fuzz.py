"""The driver against its state table: arbitrary workflows, stopped at arbitrary moments.

Each case runs a drawn workflow for real on an event loop, with limits or without, and at a drawn
event it is cancelled, interrupted, or its host task is cancelled. Whatever happens, the drive ends,
and its events say a story that holds together.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from handrail import Executor, Limits, MemorySink
from handrail.model import events as ev
from handrail.testing.shapes import Body, workflow_of
from handrail.testing.strategies import bodies
from tests.engine.support import Jumping, check_drive

pytestmark = [pytest.mark.extra("trio"), pytest.mark.usefixtures("outside_git")]

LIMITS = st.sampled_from(
    [
        Limits(),
        Limits(max_concurrency=1),
        Limits(max_concurrency=2),
        Limits(max_steps=4),
        Limits(timeout_s=30),
    ]
)
STOPS = st.sampled_from(["cancel", "interrupt", "leave", "host"])
GATES = st.sampled_from(["approve", "default", "fail", None])
FUZZ = settings(deadline=None, suppress_health_check=list(HealthCheck))


class Trigger:
    """A sink that does something once, at the n-th event. Mutable."""

    def __init__(self, at: int, act: Callable[[], None]) -> None:
        self.at = at
        self.act = act

    def emit(self, event: Any, /) -> None:
        """Count down."""
        del event
        self.at -= 1
        if self.at == 0:
            self.act()


def check_nesting(sink: MemorySink) -> None:
    """A step starts and ends inside the step that its path lies below."""
    opened: dict[str, bool] = {}
    for event in sink.events:
        if isinstance(event, ev.StepStarted):
            above = event.path.rpartition("/")[0]
            while above:
                assert opened.get(above, True), f"{event.path} started after {above} ended"
                above = above.rpartition("/")[0]
            opened[event.path] = True
        elif isinstance(event, ev.StepCompleted):
            below = [
                path for path, live in opened.items() if live and path.startswith(f"{event.path}/")
            ]
            assert not below, f"{event.path} ended before {below}"
            opened[event.path] = False


async def streamed(body: Body, stop: str, at: int, options: dict[str, Any]) -> MemorySink:
    """Run the workflow, and stop it in this way at this event."""
    sink = MemorySink()
    scope = anyio.CancelScope()
    flow = workflow_of(body)
    run = Executor(sinks=[sink], clock=Jumping(), **options).stream(flow)
    acts: dict[str, Callable[[], None]] = {
        "cancel": lambda: run.cancel("fuzz"),
        "interrupt": lambda: run.interrupt("fuzz"),
        "host": scope.cancel,
        "leave": lambda: None,
    }
    trigger = Trigger(at, acts[stop])
    with scope:
        async with run:
            async for event in run:
                trigger.emit(event)
                if stop == "leave" and trigger.at == 0:
                    break
    return sink


def on(backend: str, work: Callable[[], Awaitable[MemorySink]]) -> MemorySink:
    """Do the work on this kind of event loop, within bounds."""

    async def bounded() -> MemorySink:
        with anyio.fail_after(20):
            return await work()

    return anyio.run(bounded, backend=backend)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@FUZZ
@given(body=bodies(), stop=STOPS, at=st.integers(1, 40), limits=LIMITS, gates=GATES)
def test_a_run_that_is_stopped_anywhere_ends_and_its_events_hold_together(
    backend: str, *, body: Body, stop: str, at: int, limits: Limits, gates: Any
) -> None:
    """However a run is stopped, and whenever, its drive ends once and every start has its end."""
    options = {"limits": limits, "gates": gates}
    sink = on(backend, lambda: streamed(body, stop, at, options))
    check_drive(sink)
    check_nesting(sink)
    assert isinstance(sink.events[-1], (ev.WorkflowCompleted, ev.RunSuspended))
