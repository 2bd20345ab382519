"""``GeneratorExit``, by which Python closes generators, raised by the user's own functions."""

from __future__ import annotations

from typing import Any

import anyio.lowlevel
import pytest

from handrail import Executor, MemoryJournal, Steps, WorkflowContext, step, workflow
from handrail.testing import TextJournal
from tests.engine.support import same


def in_thread(*_: Any) -> Any:
    """Raise it."""
    raise GeneratorExit


async def at_once() -> Any:
    """Raise it before anything was awaited."""
    raise GeneratorExit


async def later() -> Any:
    """Raise it on the loop."""
    await anyio.lowlevel.checkpoint()
    raise GeneratorExit


FAILING = {
    "thread": step("x").call(in_thread),
    "loop": step("x").call(in_thread).inline(),
    "at once": step("x").call(at_once),
    "later": step("x").call(later),
    "group": step("x").parallel(step("a").call(in_thread), step("b").call(same)),
    "predicate": step("x").call(same).when(in_thread),
}


@pytest.mark.parametrize("failing", FAILING)
@pytest.mark.parametrize("journal", [MemoryJournal, TextJournal])
async def test_it_fails_the_step_and_what_went_before_is_undone(journal: Any, failing: str) -> None:
    """As any BaseException of an action does; it never leaves the call, nor leaves the run open."""
    undone: list[str] = []

    def undo(ctx: WorkflowContext) -> None:
        undone.append(ctx.path)

    @workflow
    def flow() -> Steps[Any]:
        yield from step("before").call(same).with_rollback(undo)
        yield from FAILING[failing]

    result = await Executor(journal=journal()).run(flow)
    assert (result.status, result.failed_step, undone) == ("failed", "x", ["before"])
    assert result.error_type == "builtins.GeneratorExit"
