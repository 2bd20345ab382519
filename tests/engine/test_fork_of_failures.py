"""A fork of a run in which something failed, or was undone: what of that it keeps."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest

from handrail import Executor, Steps, step, workflow
from handrail.testing import TextJournal

LOG: list[str] = []
BROKEN: set[str] = set()


async def quick(name: str) -> int:
    """End at once."""
    return do(name)


async def slow(name: str) -> int:
    """End after the quick ones, or not at all while one of these fails."""
    for _ in range(20):
        await anyio.lowlevel.checkpoint()
    if "p" in BROKEN:
        await anyio.sleep_forever()
    return do(name)


def do(name: str) -> int:
    """Note that it was done, or fail."""
    LOG.append(name)
    if name in BROKEN:
        raise OSError(f"{name} fails")
    return 1


@pytest.fixture(autouse=True)
def begin_anew() -> None:
    """Nothing was done, and nothing is broken."""
    LOG.clear()
    BROKEN.clear()


@workflow
def both() -> Steps[int]:
    """A group that fails with its first member that does."""
    p, r = yield from step("both").parallel(step("p").call(quick, "p"), step("r").call(slow, "r"))
    return (yield from step("sum").call(int, p + r))


@workflow
def each() -> Steps[int]:
    """The same of items."""

    def member(name: str) -> Any:
        return step("one").call(slow if name == "r" else quick, name)

    p, r = yield from step("both").for_each(["p", "r"], member)
    return (yield from step("sum").call(int, p + r))


@workflow
def collects() -> Steps[list[str]]:
    """A group that collects failures."""
    members = step("p").call(quick, "p"), step("r").call(slow, "r")
    found = yield from step("both").parallel(*members, on_error="continue")
    return [one.status for one in found]


@pytest.mark.parametrize(("flow", "path"), [(both, "both/p"), (each, "both/0/one")])
def test_a_fork_repairs_the_failure_that_ended_a_group(flow: Any, path: str) -> None:
    """The output given to the failed member counts; the one that was cancelled for it runs."""
    executor = Executor(journal=TextJournal(), workflows=[flow])
    BROKEN.add("p")
    failed = executor.run_sync(flow)
    assert (failed.status, LOG) == ("failed", ["p"])
    BROKEN.clear()
    result = executor.resume_sync(executor.fork_sync(failed.run_id, outputs={path: 10}))
    assert (result.value, LOG) == (11, ["p", "r"])


@pytest.mark.parametrize("resumed", [False, True])
def test_a_failure_that_ended_the_run_is_not_kept(*, resumed: bool) -> None:
    """Of a step that was at work when the given one ended: whether the run was resumed since, and
    succeeded, or not.
    """
    executor = Executor(journal=TextJournal(), workflows=[both])
    BROKEN.add("r")
    run_id = executor.run_sync(both).run_id
    BROKEN.clear()
    if resumed:
        assert executor.resume_sync(run_id).value == 2
    LOG.clear()
    result = executor.resume_sync(executor.fork_sync(run_id, outputs={"both/p": 10}))
    assert (result.value, LOG) == (11, ["r"])


def test_a_failure_that_the_run_went_on_from_is_kept() -> None:
    """A group collected it: the fork has it, too, and does not run that step again."""
    executor = Executor(journal=TextJournal(), workflows=[collects])
    BROKEN.add("r")
    run_id = executor.run_sync(collects).run_id
    LOG.clear()
    result = executor.resume_sync(executor.fork_sync(run_id, outputs={"both/p": 10}))
    assert (result.value, LOG) == (["succeeded", "failed"], [])
