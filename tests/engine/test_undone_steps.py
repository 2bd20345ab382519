"""What was undone when a run failed is done again when it is resumed, wherever it stands."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import anyio.to_thread
import pytest

from handrail import (
    Executor,
    MemoryJournal,
    Stage,
    Steps,
    WorkflowContext,
    current,
    step,
    workflow,
)
from handrail.model import events as ev
from handrail.testing import JumpClock, ProcessGone, TextJournal
from tests.engine.support import RUN, Boom, done, just, undone

Log = list[str]


def resumable(journal: Any) -> Executor:
    """An executor on this journal that is as strict as with one on disk."""
    return Executor(journal=journal, durable=True).options(run_id=RUN)


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_an_interruption_breaks_a_rollback_off_and_the_next_drive_runs_it_again(
    kind: str,
) -> None:
    """The run is suspended, and says of no rollback that it failed."""
    log, begun, slow = Log(), threading.Event(), [True]

    async def undo(_: WorkflowContext) -> None:
        log.append("undo b begins")
        begun.set()
        if slow:
            await anyio.sleep_forever()
        log.append("undo b ends")

    def undo_in_a_thread(_: WorkflowContext) -> None:
        log.append("undo b begins")
        begun.set()
        while slow and not current().cancelled:
            threading.Event().wait(0.001)
        if not slow:
            log.append("undo b ends")

    @workflow
    def flow() -> Steps[Any]:
        yield from step("a").call(log.append, "a").with_rollback(lambda _: log.append("undo a"))
        rollback: Any = undo if kind == "async" else undo_in_a_thread
        yield from step("b").call(log.append, "b").with_rollback(rollback)
        yield from step("c").call(int, "x")

    journal = TextJournal()
    async with Executor(journal=journal).options(run_id=RUN).stream(flow) as run:
        async for event in run:
            if isinstance(event, ev.RollbackStarted):
                await anyio.to_thread.run_sync(begun.wait)
                run.interrupt("asked to go")
    assert run.result.status == "suspended"
    assert not undone(journal)
    slow.clear()
    ended = await Executor(journal=journal).resume(RUN, flow)
    assert (ended.status, ended.rollback_errors) == ("failed", ())
    assert log[-3:] == ["undo b begins", "undo b ends", "undo a"]


async def test_attempts_of_a_sub_workflow_begin_anew_when_its_run_is_resumed() -> None:
    """As those of groups do: the failure of each attempt is tried again."""
    log, failures = Log(), [9]

    def work() -> None:
        log.append("y")
        if failures[0]:
            failures[0] -= 1
            raise Boom("no")

    child = just(done(log, "x", "w"), step("y").call(work))
    flow = just(step("c").run_workflow(child).retry(3, backoff=0))
    executor = resumable(MemoryJournal())
    assert (await executor.run(flow)).status == "failed"
    log.clear()
    failures[0] = 2
    assert (await executor.resume(RUN, flow)).status == "succeeded"
    assert log == ["x", "y", "undo x", "x", "y", "undo x", "x", "y"]


async def test_what_is_entered_again_for_its_rollbacks_has_taken_no_longer() -> None:
    """Nor have its members, however late the run is resumed."""
    clock, journal = JumpClock(), MemoryJournal()

    def member(_: int) -> Steps[Any]:
        yield from step("w").call(int).with_rollback(lambda _: None)
        yield from step("nap").sleep(2.0)

    child = just(step("g").for_each([1], member))
    flow = just(step("c").run_workflow(child), step("go?").ask("?", choices=["y"]))
    executor = Executor(journal=journal, durable=True, clock=clock).options(run_id=RUN)
    await executor.run(flow)
    await clock.sleep(1000.0)
    await executor.resume(RUN, flow)
    took: dict[str, set[float]] = {}
    for event in journal.events(RUN):
        if isinstance(event, (ev.StepCompleted, ev.MemberCompleted)):
            took.setdefault(event.path, set()).add(round(event.result.duration_ms))
    assert [took[path] for path in ("c", "c/g", "c/g/0")] == [{2000}] * 3


async def test_a_plan_of_a_run_that_was_to_be_cancelled_says_so_and_what_it_undoes() -> None:
    """It does not say that its question is asked again."""
    log = Log()
    flow = just(done(log, "w", "w"), step("go?").ask("?", choices=["y"]))
    journal = TextJournal()
    await resumable(journal).run(flow)
    written_so_far = len(journal.events(RUN))
    dying = journal.copied().reopened(stop_at=3)  # the resume, the start of go?, the request
    with pytest.raises(ProcessGone):
        await resumable(dying).cancel(RUN, "enough", flow)
    dead = dying.reopened()
    assert len(dead.events(RUN)) == written_so_far + 3
    plan = await resumable(dead).plan(RUN, flow)
    assert (plan.undoes, plan.unwinds, plan.ends) == (("w",), "enough", None)
    assert [(one.path, one.state) for one in plan.steps] == [("w", "recorded")]


@pytest.mark.parametrize("kind", ["for_each", "validate"])
async def test_what_a_failed_step_leaves_to_undo_is_undone_by_whoever_goes_on(kind: str) -> None:
    """Wherever the process dies between the failure of a group, or validation, and its undoing."""
    log = Log()

    def work(number: int) -> None:
        if number:
            raise Boom("no")

    def member(number: int) -> Steps[Any]:
        yield from step("w").call(work, number).with_rollback(lambda _: log.append("undo"))

    fix = step("fix").call(int).with_rollback(lambda _: log.append("undo"))

    @workflow
    def flow() -> Steps[Any]:
        if kind == "for_each":
            yield from step("g").for_each([0, 1, 2], member, max_concurrency=1)
        else:
            yield from step("g").validate([Stage("k", lambda _: False)], retry=1, on_failure=fix)

    whole = TextJournal()
    await resumable(whole).run(flow)
    history = whole.events(RUN)
    first = next(one.seq for one in history if isinstance(one, ev.RollbackCompleted))
    for writes in range(1, first):
        log.clear()
        dying = TextJournal(stop_at=writes)
        with pytest.raises(ProcessGone):
            await resumable(dying).run(flow)
        result = await resumable(dying.reopened()).resume(RUN, flow)
        assert (result.status, result.failed_step) == ("failed", "g"), writes
        assert log[-1:] == ["undo"], writes


async def test_a_pause_before_the_next_attempt_of_a_group_is_not_begun_anew() -> None:
    """Although what its last attempt left could be undone: what is left of the pause is waited."""
    clock, log = JumpClock(), Log()

    def work(number: int) -> None:
        if number:
            raise Boom("no")

    def member(number: int) -> Steps[Any]:
        yield from step("w").call(work, number).with_rollback(lambda _: log.append("undo"))

    flow = just(step("g").for_each([0, 1], member, max_concurrency=1).retry(2, backoff=100))
    whole = TextJournal()
    await Executor(journal=whole, clock=JumpClock()).options(run_id=RUN).run(flow)
    paused = next(one.seq for one in whole.events(RUN) if isinstance(one, ev.TimerSet))
    dying = TextJournal(stop_at=paused)
    with pytest.raises(ProcessGone):
        await Executor(journal=dying, clock=clock).options(run_id=RUN).run(flow)
    await clock.sleep(60.0)
    journal = dying.reopened()
    await Executor(journal=journal, clock=clock).resume(RUN, flow)
    timers = [one for one in journal.events(RUN) if isinstance(one, ev.TimerSet)]
    failed = [
        one.attempt
        for one in journal.events(RUN)
        if isinstance(one, ev.AttemptFailed) and one.path == "g"
    ]
    assert (len(timers), failed) == (1, [1, 2])
