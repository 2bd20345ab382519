"""What a resume asks and begins while it finds what can be undone: no more than it must."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from handrail import (
    Executor,
    LimitExceeded,
    Limits,
    Step,
    StepFailed,
    Steps,
    Workflow,
    WorkflowContext,
    step,
    workflow,
)
from handrail.model import events as ev
from handrail.model.results import StepResult, qualified
from handrail.testing import JumpClock, ProcessGone, TextJournal
from tests.engine.support import RUN, boom, done, just, undone

Log = list[str]


async def dead(flow: Workflow[[], Any], after: int, **options: Any) -> tuple[Executor, TextJournal]:
    """A run that died after so many writes, and whoever goes on with it, at the same time."""
    clock, dying = JumpClock(), TextJournal(stop_at=after)
    with pytest.raises(ProcessGone):
        await Executor(journal=dying, clock=clock, **options).options(run_id=RUN).run(flow)
    journal = dying.reopened()
    return Executor(journal=journal, clock=clock, **options), journal


async def lived(flow: Workflow[[], Any], **options: Any) -> list[ev.Event]:
    """What is on record of a run that nobody kills."""
    journal = TextJournal()
    await Executor(journal=journal, clock=JumpClock(), **options).options(run_id=RUN).run(flow)
    return journal.events(RUN)


def place(history: list[ev.Event], kind: type[ev.Event], path: str) -> int:
    """The number of the first such event of a path."""
    return next(
        one.seq for one in history if isinstance(one, kind) and getattr(one, "path", "") == path
    )


@pytest.mark.parametrize("stands_in", ["a group", "a sub-workflow"])
async def test_a_handler_that_is_asked_again_sees_what_it_saw(stands_in: str) -> None:
    """Neither its siblings in a group, nor what came later: so it chooses the same fallback."""
    log = Log()

    def choose(ctx: WorkflowContext, _: StepResult[Any]) -> Step[Any]:
        return step("other").call(log.append, "other") if ctx.result("a") else done(log, "fb")

    failing = step("b").call(boom).on_error(choose)
    child = just(failing, step("a").call(log.append, "a"))
    group = step("g").parallel(step("a").call(log.append, "a"), failing, max_concurrency=1)

    @workflow
    def flow() -> Steps[Any]:
        yield from group if stands_in == "a group" else step("g").run_workflow(child)
        yield from step("end").call(boom)

    after = place(await lived(flow), ev.StepStarted, "end")
    log.clear()
    executor, journal = await dead(flow, after)
    plan = await executor.plan(RUN, flow)
    assert [one.path for one in plan.steps if one.state == "will run"] == ["end"]
    assert (await executor.resume(RUN, flow)).status == "failed"
    assert undone(journal) == ["g/b/fb"]
    assert sorted(log) == ["a", "fb", "undo fb"]


async def test_a_plan_asks_handlers_too_and_says_what_they_lead_to() -> None:
    """Also one that takes its time."""
    log = Log()

    async def choose(*_: Any) -> Step[Any]:
        await anyio.lowlevel.checkpoint()
        return done(log, "fb")

    @workflow
    def flow() -> Steps[Any]:
        failing: Step[Any] = step("b").call(boom)
        yield from step("g").parallel(failing.on_error(choose))  # type: ignore[arg-type]  # awaited all the same
        yield from done(log, "later")
        yield from step("end").call(boom)

    executor, _ = await dead(flow, place(await lived(flow), ev.StepCompleted, "end"))
    plan = await executor.plan(RUN, flow)
    assert (plan.undoes, plan.ends) == (("later", "g/b/fb"), None)


async def test_an_interruption_while_a_handler_is_asked_fails_nothing() -> None:
    """The run is suspended, and the next drive asks again."""
    log, slow, asked = Log(), [True], anyio.Event()

    async def choose(*_: Any) -> Step[Any]:
        if slow:
            asked.set()
            await anyio.sleep_forever()
        return done(log, "fb")

    @workflow
    def flow() -> Steps[Any]:
        failing: Step[Any] = step("b").call(boom)
        yield from step("g").parallel(failing.on_error(choose))  # type: ignore[arg-type]  # awaited all the same

    journal = TextJournal()
    async with Executor(journal=journal).options(run_id=RUN).stream(flow) as run:
        async for event in run:
            if isinstance(event, ev.AttemptFailed):
                await asked.wait()
                run.interrupt("asked to go")
    assert run.result.status == "suspended"
    slow.clear()
    assert (await Executor(journal=journal).resume(RUN, flow)).status == "succeeded"
    assert log == ["fb"]


async def test_nothing_begins_in_a_group_whose_time_was_over() -> None:
    """Not even on record: a step that may begin only once can do so when the run is resumed."""
    log, quick = Log(), list[bool]()

    def member(number: int) -> Steps[Any]:
        yield from step("act").call(log.append, f"act{number}").once()
        yield from step("nap").sleep(0 if quick else 1000)

    flow = just(step("g").for_each([0, 1], member, key=str, max_concurrency=1).timeout(10))
    history = await lived(flow)
    for after in range(place(history, ev.TimerSet, "g/0/nap"), len(history)):
        log.clear()
        quick.clear()
        executor, journal = await dead(flow, after)
        assert (await executor.resume(RUN, flow)).status == "failed", after
        began = {one.path for one in journal.events(RUN) if isinstance(one, ev.MemberStarted)}
        assert began == {"g/0"}, after
        quick.append(True)
        assert (await executor.resume(RUN, flow)).status == "succeeded", after
        assert log == ["act0", "act1"], after


@pytest.mark.parametrize("keys", ["others", "the same again"])
async def test_a_group_of_endless_items_ends_although_its_items_are_others_now(keys: str) -> None:
    """A member that was at work, and is not among them any more, is not looked for for ever; nor
    are all items, if two of them have one key.
    """
    offset = [0]

    def member(number: int) -> Steps[Any]:
        yield from step("nap").sleep(1000 if number % 100 == 1 else 5)
        yield from step("no").call(boom)

    @workflow
    def flow() -> Steps[Any]:
        items = (number + offset[0] for number in itertools.count())
        yield from step("g").for_each(
            items,
            member,
            key=lambda one: one if keys == "others" else min(one, 100),
            max_concurrency=2,
        )

    history = await lived(flow)
    executor, _ = await dead(flow, place(history, ev.MemberCompleted, "g/0"))
    offset[0] = 100
    with anyio.fail_after(10):
        assert (await executor.resume(RUN, flow)).status == "failed"


@pytest.mark.parametrize("cause", ["a limit", "a mistake"])
async def test_a_run_that_was_closed_fails_wherever_its_process_dies(cause: str) -> None:
    """Its body is not asked to clean up, and never goes on."""
    log, options = Log(), {"limits": Limits(max_steps=5)}

    def member(number: int) -> Steps[Any]:
        yield from done(log, "w")
        yield from step("nap").sleep(1000 if number else 5)
        yield step("sixth").call(int) if cause == "a limit" else 5  # type: ignore[misc]

    @workflow
    def flow() -> Steps[Any]:
        try:
            yield from step("g").for_each([0, 1], member, key=str)
        except StepFailed:
            log.append("handled")
        finally:
            yield from step("tidy").call(log.append, "tidy")
        yield from step("next").call(log.append, "next")

    history = await lived(flow, **options)
    for after in range(place(history, ev.StepCompleted, "g/0/nap"), len(history)):
        log.clear()
        executor, _ = await dead(flow, after, **options)
        result = await executor.resume(RUN, flow)
        assert result.status == "failed", after
        assert (result.error_type == qualified(LimitExceeded)) == (cause == "a limit"), after
        assert {"tidy", "next", "handled"}.isdisjoint(log), after
        assert Counter(log)["undo w"] >= 2, after
