"""Undoing what succeeded when the run does not."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel

from handrail import Executor, StepFailed, Steps, WorkflowContext, WorkflowError, step, workflow
from handrail.model import events as ev
from tests.engine.support import Boom, Jumping, aboom, boom, forever, give, run_seen, same, statuses


async def test_rollbacks_run_in_reverse_order() -> None:
    """When the run fails, what succeeded is undone, last first."""
    undone: list[str] = []

    @workflow
    def flow() -> Steps[Any]:
        for name in "abc":
            yield from step(name).call(same).with_rollback(lambda _, name=name: undone.append(name))
        yield from step("d").call(boom).with_rollback(lambda _: undone.append("d"))

    result, sink = await run_seen(flow)
    assert undone == ["c", "b", "a"]
    assert result.rollback_errors == ()
    assert [e.path for e in sink.of(ev.RollbackStarted)] == ["c", "b", "a"]
    assert [e.path for e in sink.of(ev.RollbackCompleted)] == ["c", "b", "a"]


async def test_only_a_succeeded_step_registers_its_rollback() -> None:
    """Skipped and defaulted steps register none; one that on_error saved does."""
    undone: list[str] = []

    def undo(name: str) -> Any:
        return lambda _: undone.append(name)

    @workflow
    def flow() -> Steps[Any]:
        yield from step("skipped").call(same).when(lambda _: False).with_rollback(undo("skipped"))
        yield from step("defaulted").call(boom).default(1).with_rollback(undo("defaulted"))
        yield from step("forgiven").call(boom).skip_on_error().with_rollback(undo("forgiven"))
        yield from (
            step("saved")
            .call(boom)
            .on_error(lambda _c, _f: step("f").call(same).with_rollback(undo("fallback")))
            .with_rollback(undo("saved"))
        )
        raise WorkflowError("stop")

    await Executor().run(flow)
    assert undone == ["saved", "fallback"]


async def test_a_failing_rollback_does_not_stop_the_others_and_is_told() -> None:
    """All errors of rollbacks are collected, in order, with path, text and type."""
    undone: list[str] = []

    @workflow
    def flow() -> Steps[Any]:
        yield from step("a").call(same).with_rollback(lambda _: undone.append("a"))
        yield from step("b").call(same).with_rollback(lambda _: boom("undo b"))
        yield from step("c").call(same).with_rollback(lambda _: boom("undo c"))
        yield from step("d").call(boom, "first")

    result, _ = await run_seen(flow)
    assert undone == ["a"]
    assert [(one.path, one.error) for one in result.rollback_errors] == [
        ("c", "undo c"),
        ("b", "undo b"),
    ]
    assert {one.error_type for one in result.rollback_errors} == {f"{Boom.__module__}.Boom"}
    assert (result.failed_step, "first" in (result.error or "")) == ("d", True)


async def test_a_rollback_is_given_the_context_and_may_be_async() -> None:
    """The rollback sees the step's own output, and an async one is awaited."""
    seen: list[Any] = []

    async def undo(ctx: WorkflowContext) -> None:
        await anyio.lowlevel.checkpoint()
        seen.append((ctx.output("a"), ctx.inputs["n"], ctx.run_id))

    @workflow
    def flow(n: int) -> Steps[Any]:
        yield from step("a").call(same, "made").with_rollback(undo)
        yield from step("b").call(boom)

    result = await Executor().run(flow, 3)
    assert seen == [("made", 3, result.run_id)]


async def test_a_rollback_that_takes_too_long_is_an_error() -> None:
    """A rollback has 60 s unless told otherwise; then it is stopped, and the next one runs."""
    undone: list[str] = []
    clock = Jumping()

    async def slow(_: Any) -> None:
        await anyio.sleep_forever()

    @workflow
    def flow() -> Steps[Any]:
        yield from step("a").call(same).with_rollback(lambda _: undone.append("a"))
        yield from step("b").call(same).with_rollback(slow)
        yield from step("c").call(same).with_rollback(slow, timeout=7)
        yield from step("d").call(boom)

    result, _ = await run_seen(flow, clock=clock)
    assert undone == ["a"]
    assert [one.path for one in result.rollback_errors] == ["c", "b"]
    assert all("Timeout" in one.error_type for one in result.rollback_errors)
    assert clock.time - 1_000_000.0 == 67


async def test_a_failing_child_is_undone_at_its_own_end() -> None:
    """A child that fails undoes its own steps before its parent goes on."""
    undone: list[str] = []

    @workflow
    def child() -> Steps[Any]:
        yield from step("x").call(same).with_rollback(lambda _: undone.append("x"))
        yield from step("y").call(boom)

    @workflow
    def flow() -> Steps[Any]:
        yield from step("a").call(same).with_rollback(lambda _: undone.append("a"))
        try:
            yield from step("sub").subworkflow(child)
        except StepFailed:
            undone.append("caught")
        yield from step("end").call(same)

    result, _ = await run_seen(flow)
    assert result.status == "succeeded"
    assert undone == ["x", "caught"]


async def test_members_that_succeeded_before_fail_fast_are_undone_with_the_run() -> None:
    """What succeeded in a group that failed is undone when the run fails, not before."""
    undone: list[str] = []

    @workflow
    def flow() -> Steps[Any]:
        try:
            yield from step("g").parallel(
                step("a").call(give).with_rollback(lambda _: undone.append("a")),
                step("b").sleep(3).with_rollback(lambda _: undone.append("b")),
                step("c").sleep(1).with_rollback(lambda _: undone.append("c")),
                step("d").parallel(step("w").sleep(2), step("e").call(forever).timeout(2)),
            )
        except StepFailed:
            undone.append("caught")
        yield from step("z").call(aboom)

    result, _ = await run_seen(flow, clock=Jumping())
    assert undone == ["caught", "c", "a"]
    assert statuses(result)["g/b"] == "cancelled"
