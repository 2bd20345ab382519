"""``ctx.output`` of a name that no step has is an error, not None."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from handrail import Executor, Stage, Steps, WorkflowContext, step, workflow
from tests.engine.support import give
from tests.static import programs


def asks(name: str) -> Callable[[WorkflowContext], bool]:
    """A predicate that looks at an output."""
    return lambda context: context.output(name) is None


def helper() -> Steps[Any]:
    """A step in a helper of this file."""
    return (yield from step("helped").call(give, 1))


@workflow
def flow(name: str, *, more: bool = False) -> Steps[None]:
    """A step that looks at an output of this name."""
    yield from step("plan").call(give, 1)
    yield from helper()
    for number in range(2):
        yield from step(f"round-{number}").call(give, number)
    yield from step("looks").call(give, 2).when(asks(name))
    yield from step("group").parallel(step("inside").call(give, 3).when(asks(name)))
    if more:
        yield from step("never").call(give, 4)


@pytest.mark.parametrize(
    "name",
    ["plan", "helped", "round-1", "round-7", "looks", "never", "/plan", "group/inside", "never/x"],
)
async def test_a_name_that_a_step_may_have_is_looked_up(name: str) -> None:
    """Whether the step has run, is yet to run, or never does."""
    assert (await Executor().run(flow, name)).success


@pytest.mark.parametrize(
    ("name", "near"), [("plna", "plan"), ("/plna/x", "plan"), ("nevr", "never"), ("zzz", "")]
)
async def test_a_name_that_no_step_has_fails_the_step(name: str, near: str) -> None:
    """With the nearest name, if there is one."""
    result = await Executor().run(flow, name)
    assert (result.status, result.failed_step) == ("failed", "looks")
    said = f"no step of workflow 'flow' is named {name.removeprefix('/').partition('/')[0]!r}."
    assert said in (result.error or "")
    assert (f"Did you mean {near!r}?" in (result.error or "")) == bool(near)


async def test_where_not_all_is_written_out_nothing_is_said() -> None:
    """A helper of another file, a child, a check of stages: their names are not known here."""

    @workflow
    def elsewhere() -> Steps[None]:
        yield from step("a").call(give, 1).when(asks("zzz"))
        yield from getattr(programs, "never", helper)()

    @workflow
    def child() -> Steps[None]:
        yield from step("in-child").call(give, 1).when(asks("before"))

    @workflow
    def parent() -> Steps[None]:
        yield from step("before").call(give, 1)
        yield from step("child").run_workflow(child)

    @workflow
    def checked() -> Steps[None]:
        yield from step("a").call(give, 1).when(asks("zzz"))
        yield from step("v").validate([Stage("lint", "true")])

    for one in (elsewhere, parent, checked):
        assert (await Executor().run(one)).success, one
