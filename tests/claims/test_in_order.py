"""Who wants the same has it in the order of the workflow, however long each takes to ask."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from handrail import ClaimTimeout, Executor, Step, Steps, step, workflow
from handrail.model.results import qualified
from handrail.ports.claims import Claim, ClaimRequest, Waiting
from handrail.workspace.claims.local import LocalClaims

pytestmark = pytest.mark.usefixtures("outside_git")


class Slow(LocalClaims):
    """Takes longer to get into the line for those that ask earlier; ``lost``: one never does."""

    def __init__(self, lost: str = "") -> None:
        super().__init__()
        self.lost = lost

    async def acquire(self, request: ClaimRequest, /, *, waiting: Waiting | None = None) -> Claim:
        """As over a network that favours the last."""
        path = request.claimant.path
        if path.startswith(self.lost) and self.lost:
            await anyio.sleep_forever()
        await anyio.sleep((ord("d") - ord(path.removeprefix("all/")[0])) * 0.02)
        return await super().acquire(request, waiting=waiting)


def begin(log: list[str], name: str) -> None:
    """Note who has begun."""
    log.append(name)


def body(log: list[str], name: str) -> Steps[None]:
    """One step, while something is held."""
    yield from step("one").call(begin, log, name)


@pytest.mark.parametrize(
    "make",
    [
        lambda log, name: step(name).call(begin, log, name).holds("git"),
        lambda log, name: step(name).holding("git", body, log, name),
    ],
)
async def test_who_comes_first_is_served_first(make: Callable[[list[str], str], Step[Any]]) -> None:
    """The steps of a group hold a name in the order in which they are written."""
    log: list[str] = []

    @workflow
    def flow() -> Steps[None]:
        yield from step("all").parallel(*(make(log, name) for name in "abcd"))

    result = await Executor(claims=Slow()).run(flow)
    assert result.success, result.error
    assert log == ["a", "b", "c", "d"]


async def test_nobody_waits_behind_one_that_asks_no_more() -> None:
    """A step that is cancelled before it is in line lets the next ones ask, in their order."""
    log: list[str] = []

    @workflow
    def flow() -> Steps[None]:
        yield from step("all").parallel(
            step("a").call(begin, log, "a").holds("git", wait=0.2),
            step("b").call(begin, log, "b").holds("git", wait=0.1),
            *(step(name).call(begin, log, name).holds("git") for name in "cd"),
            on_error="continue",
        )

    with anyio.fail_after(20):
        result = await Executor(claims=Slow("all/a")).run(flow)
    assert result.success, result.error
    assert log == ["c", "d"]
    failed = [one.name for one in result.step_results if one.error_type == qualified(ClaimTimeout)]
    assert failed == ["a", "b"]


async def test_all_runs_of_an_executor_wait_by_one_thread() -> None:
    """However many wait for a name; a run that ends closes nothing that another one uses."""
    before, go_on = claim_threads(), anyio.Event()

    async def hold() -> None:
        await go_on.wait()

    @workflow
    def flow() -> Steps[None]:
        yield from step("a").call(hold).holds("git")

    results: list[Any] = []
    executor = Executor()

    async def run() -> None:
        results.append(await executor.run(flow))

    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(run)
        await anyio.sleep(1)
        assert len(claim_threads() - before) == 1
        go_on.set()
    assert [one.status for one in results] == ["succeeded"] * 10
    with anyio.fail_after(10):
        while claim_threads() - before:  # noqa: ASYNC110  # it ends by itself
            await anyio.sleep(0.01)


def claim_threads() -> set[threading.Thread]:
    """The threads that look at files of claims."""
    return {one for one in threading.enumerate() if one.name == "handrail claims"}
