"""What a step has held is free when it has ended, whatever happens meanwhile."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from handrail import CannotSteer, Executor, MemoryJournal, Step, Steps, step, workflow
from handrail.model import events as ev
from handrail.ports.claims import Claim
from handrail.workspace.claims.local import LocalClaims

pytestmark = pytest.mark.usefixtures("outside_git")


class Slow(LocalClaims):
    """Takes its time to give back; it says when it begins to."""

    def __init__(self) -> None:
        super().__init__()
        self.begins = anyio.Event()

    async def release(self, claim: Claim, /) -> None:
        """As slowly as over a network."""
        self.begins.set()
        await anyio.sleep(0.05)
        await super().release(claim)


def inside() -> Steps[None]:
    """What is done while something is held."""
    yield from step("inside").call(int)


@pytest.mark.parametrize(
    "second",
    [
        lambda: step("second").call(int).holds("git", wait=0),
        lambda: step("second").holding("git", inside, wait=0),
    ],
)
async def test_what_has_ended_is_in_no_way(second: Callable[[], Step[Any]]) -> None:
    """A step that does not want to wait gets what the step before it held."""

    @workflow
    def flow() -> Steps[None]:
        yield from step("first").holding("git", inside)
        yield second()

    result = await Executor(claims=Slow()).run(flow)
    assert result.success, result.error


async def test_a_step_that_is_stopped_while_it_gives_back_gives_back() -> None:
    """Whoever waits for it gets it."""
    claims = Slow()
    executor = Executor(journal=MemoryJournal(), claims=claims)

    @workflow
    def flow() -> Steps[None]:
        yield step("both").parallel(
            step("a").call(int).holds("git"),
            step("b").call(int).holds("git"),
        )

    with anyio.fail_after(20):
        async with executor.stream(flow) as run, anyio.create_task_group() as people:

            async def retry() -> None:
                await claims.begins.wait()
                with contextlib.suppress(CannotSteer):  # the other one
                    await executor.retry(run.run_id, granted[0])

            granted: list[str] = []
            people.start_soon(retry)
            async for event in run:
                granted.extend([event.path] if isinstance(event, ev.ClaimGranted) else [])
    assert run.result.success
    assert len(granted) == 3
    assert (await claims.listed()).held == ()
