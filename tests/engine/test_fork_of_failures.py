"""A fork of a run in which something failed, or was undone: what of that it keeps."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from handrail import Executor, StepFailed, Steps, step, workflow
from handrail.model import events as ev
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


@workflow
def inner() -> Steps[int]:
    """One step that can be undone, in a workflow of its own."""
    return (yield from step("a").call(do, "a").with_rollback(lambda _: LOG.append("undo a")))


@workflow
def undoes() -> Steps[int]:
    """Of the first two steps the first can be undone; the last one may fail."""
    yield from step("in").run_workflow(inner)
    yield from step("b").call(do, "b")
    return (yield from step("c").call(do, "c"))


UNDONE: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["a", "c"]),
    ({"at": "c"}, ["a", "c"]),
    ({"at": "b"}, ["a", "b", "c"]),
    ({"outputs": {"b": 7}}, ["a", "c"]),
    ({"outputs": {"c": 7}}, ["a"]),
    ({"outputs": {"in/a": 7}}, ["b", "c"]),
    ({"at": "c", "rerun": ["b"]}, ["a", "b", "c"]),
]


@pytest.mark.parametrize(("changes", "done"), UNDONE)
@pytest.mark.parametrize("dies", [False, True])
def test_a_step_that_was_undone_later_runs_again(
    changes: dict[str, Any], done: list[str], *, dies: bool
) -> None:
    """Whatever a fork keeps, also if the process of the other run died while it undid that step;
    but not if its output is given.
    """
    journal = TextJournal()
    BROKEN.add("c")
    failed = Executor(journal=journal).options(run_id="p").run_sync(undoes)
    assert (failed.status, LOG) == ("failed", ["a", "b", "c", "undo a"])
    if dies:
        history, journal = journal.events("p"), TextJournal()
        begun = takewhile(lambda event: not isinstance(event, ev.RollbackCompleted), history)
        journal.append_run(list(begun))
    BROKEN.clear()
    LOG.clear()
    executor = Executor(journal=journal, workflows=[undoes])
    fork_id = executor.fork_sync("p", **changes)
    planned = executor.plan_sync(fork_id)
    result = executor.resume_sync(fork_id)
    assert (result.status, LOG) == ("succeeded", done)
    kept = {one.path for one in planned.steps if one.state == "recorded"}
    assert all(result.step(path).replayed for path in kept)


def test_a_step_that_was_undone_and_made_again_is_kept() -> None:
    """By a resume of the other run: what it made is there."""
    executor = Executor(journal=TextJournal(), workflows=[undoes])
    BROKEN.add("c")
    run_id = executor.run_sync(undoes).run_id
    BROKEN.clear()
    assert executor.resume_sync(run_id).success
    LOG.clear()
    assert executor.resume_sync(executor.fork_sync(run_id, at="b")).success
    assert LOG == ["b", "c"]


@workflow
def whole() -> Steps[str]:
    """A group that is undone as a whole; the workflow goes on without it."""
    a = step("a").call(quick, "a").with_rollback(lambda _: LOG.append("undo a"))
    try:
        yield from step("g").parallel(a, step("r").call(slow, "r"), on_error="all_or_nothing")
    except StepFailed:
        return "without"
    return "with"


def test_a_member_that_its_group_undid_runs_again() -> None:
    """In a fork from another member, or one with that one's output."""
    executor = Executor(journal=TextJournal(), workflows=[whole])
    BROKEN.add("r")
    first = executor.run_sync(whole)
    assert (first.value, LOG) == ("without", ["a", "r", "undo a"])
    BROKEN.clear()
    for changes, done in (({"at": "g/r"}, ["a", "r"]), ({"outputs": {"g/r": 1}}, ["a"])):
        LOG.clear()
        result = executor.resume_sync(executor.fork_sync(first.run_id, **changes))
        assert (result.value, sorted(LOG)) == ("with", done)
