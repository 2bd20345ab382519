"""What was undone when a run failed is done again when it is resumed, wherever it stands."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
import pytest

from handrail import (
    Executor,
    MemoryJournal,
    Stage,
    Step,
    StepFailed,
    Steps,
    WorkflowContext,
    current,
    step,
    workflow,
)
from handrail.model import events as ev
from handrail.testing import JumpClock, ProcessGone, TextJournal
from tests.engine.support import RUN, Boom, bound, done, just, undone

Log = list[str]


def stands_in(log: Log) -> dict[str, Callable[[], Step[Any]]]:
    """Everything that a step can stand in."""

    def member(_: int) -> Steps[Any]:
        yield from done(log, "w", "w")

    def fixed(_: WorkflowContext) -> bool:
        return log.count("w") > log.count("undo w")

    return {
        "for_each, a generator": lambda: step("c").for_each([1], member),
        "for_each, a step": lambda: step("c").for_each([1], lambda _: done(log, "w", "w")),
        "parallel": lambda: step("c").parallel(done(log, "w", "w")),
        "race": lambda: step("c").race(done(log, "w", "w")),
        "branch": lambda: step("c").branch((lambda _: True, done(log, "w", "w"))),
        "a sub-workflow": lambda: step("c").run_workflow(just(done(log, "w", "w"))),
        "a fallback": lambda: step("c").call(int, "x").on_error(lambda *_: done(log, "w", "w")),
        "a fix": lambda: step("c").validate(
            [Stage("k", fixed)], retry=1, on_failure=done(log, "w", "w")
        ),
    }


@bound
def ends_badly(log: Log, broken: set[str], inside: Callable[[], Step[Any]]) -> Steps[Any]:
    """A workflow whose last step fails as long as it is broken."""

    def last() -> None:
        if broken:
            raise Boom("no")
        log.append("last")

    yield from inside()
    yield from step("last").call(last)


def resumable(journal: Any) -> Executor:
    """An executor on this journal that is as strict as with one on disk."""
    return Executor(journal=journal, durable=True).options(run_id=RUN)


@pytest.mark.parametrize("place", sorted(stands_in([])))
async def test_what_was_undone_inside_of_something_that_had_succeeded_is_done_again(
    place: str,
) -> None:
    """However often the run fails before it succeeds, its effect is there in the end."""
    log, broken = Log(), {"last"}
    flow = ends_badly(log, broken, stands_in(log)[place])
    executor = resumable(MemoryJournal())
    assert (await executor.run(flow)).status == "failed"
    assert (await executor.resume(RUN, flow)).status == "failed"
    assert log == ["w", "undo w"] * 2
    broken.clear()
    plan = await executor.plan(RUN, flow)
    assert [one.state for one in plan.steps if one.path.endswith("/w")] != ["recorded"]
    assert (await executor.resume(RUN, flow)).status == "succeeded"
    assert log[4:] == ["w", "last"]


async def test_what_was_undone_when_a_run_was_cancelled_is_done_again() -> None:
    """By a resume that goes on after all."""
    log = Log()
    flow = just(step("p").parallel(done(log, "w", "w")), step("go?").ask("?", choices=["y"]))
    executor = resumable(MemoryJournal())
    await executor.run(flow)
    cancelled = await executor.cancel(RUN, "enough", flow)
    assert cancelled is not None
    assert (cancelled.status, log) == ("cancelled", ["w", "undo w"])
    assert (await executor.resume(RUN, flow)).status == "suspended"
    await executor.answer(RUN, "go?", "y")
    assert (await executor.resume(RUN, flow)).status == "succeeded"
    assert log == ["w", "undo w", "w"]


@pytest.mark.parametrize(
    "options",
    [{}, {"on_error": "continue", "min_success": 3}, {"on_error": "all_or_nothing"}],
    ids=["fail_fast", "continue", "all_or_nothing"],
)
async def test_what_was_undone_of_a_group_that_failed_is_done_again(options: Any) -> None:
    """Its other members, too, were undone, by the group or by the run."""
    log, broken = Log(), {2}

    def work(number: int) -> None:
        if number in broken:
            raise Boom("no")
        log.append(f"w{number}")

    def member(number: int) -> Steps[Any]:
        yield from (
            step("w").call(work, number).with_rollback(lambda _: log.append(f"undo w{number}"))
        )

    flow = just(step("g").for_each([1, 2, 3], member, key=str, max_concurrency=1, **options))
    executor = resumable(MemoryJournal())
    assert (await executor.run(flow)).status == "failed"
    broken.clear()
    assert (await executor.resume(RUN, flow)).status == "succeeded"
    left = [log.count(f"w{number}") - log.count(f"undo w{number}") for number in (1, 2, 3)]
    assert left == [1, 1, 1]


async def test_what_was_undone_in_a_handled_failure_stays_undone() -> None:
    """The run went on from it, so it is no part of what a resume tries again."""
    log, broken = Log(), {"last"}

    def handled() -> Steps[Any]:
        try:
            yield from step("g").parallel(
                done(log, "w", "w"), step("no").call(boom_later), on_error="all_or_nothing"
            )
        except StepFailed:
            log.append("handled")

    async def boom_later() -> None:
        await anyio.wait_all_tasks_blocked()
        raise Boom("no")

    def last() -> None:
        if broken:
            raise Boom("no")

    @workflow
    def flow() -> Steps[Any]:
        yield from handled()
        yield from step("last").call(last)

    executor = resumable(MemoryJournal())
    await executor.run(flow)
    broken.clear()
    assert (await executor.resume(RUN, flow)).status == "succeeded"
    assert log == ["w", "undo w", "handled", "handled"]


async def test_a_crash_while_rolling_back_makes_nothing_else_run_again() -> None:
    """What has no rollback is kept, also if the drive that ended the rollback entered the group."""
    log, broken = Log(), {"last"}

    def member(number: int) -> Steps[Any]:
        yield from step("costly").call(log.append, f"costly {number}")
        yield from done(log, f"w{number}", "w")

    flow = ends_badly(log, broken, lambda: step("g").for_each([1, 2], member, key=str))
    whole = TextJournal()
    await resumable(whole).run(flow)
    first = next(one.seq for one in whole.events(RUN) if isinstance(one, ev.RollbackCompleted))
    log.clear()
    journal = TextJournal(stop_at=first)
    with pytest.raises(ProcessGone):
        await resumable(journal).run(flow)
    journal = journal.reopened()
    assert (await resumable(journal).resume(RUN, flow)).status == "failed"
    assert sorted(one for one in log if one.startswith("undo")) == ["undo w1", "undo w2"]
    broken.clear()
    assert (await resumable(journal).resume(RUN, flow)).status == "succeeded"
    assert [log.count(f"costly {number}") for number in (1, 2)] == [1, 1]
    assert [log.count(f"w{number}") for number in (1, 2)] == [2, 2]


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


async def test_a_plan_of_what_is_to_be_undone_says_what_and_nothing_else() -> None:
    """Of a run that has failed: no step of it will run."""
    log, broken = Log(), {"last"}

    def member(number: int) -> Steps[Any]:
        yield from done(log, f"w{number}", "w")

    flow = ends_badly(log, broken, lambda: step("g").for_each([1, 2], member, key=str))
    whole = TextJournal()
    await resumable(whole).run(flow)
    first = next(one for one in whole.events(RUN) if isinstance(one, ev.RollbackCompleted))
    dead = TextJournal(stop_at=first.seq)
    with pytest.raises(ProcessGone):
        await resumable(dead).run(flow)
    plan = await resumable(dead.reopened()).plan(RUN, flow)
    left = {"g/1/w", "g/2/w"} - {first.path}
    assert (set(plan.undoes), plan.unwinds, plan.ends) == (left, None, None)
    assert {one.state for one in plan.steps} == {"recorded"}
    assert len({one.path for one in plan.steps}) == len(plan.steps)


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
