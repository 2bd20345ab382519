"""A run that is cancelled while nobody drives it is unwound as it was left, whatever came since."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from handrail import (
    Executor,
    Stage,
    Step,
    StepFailed,
    Steps,
    Workflow,
    WorkflowContext,
    WorkflowResult,
    current,
    step,
    workflow,
)
from handrail.model import events as ev
from handrail.testing import JumpClock, ProcessGone, TextJournal
from tests.engine.support import RUN, boom, forever, undone


def resumable(journal: TextJournal, clock: JumpClock | None = None) -> Executor:
    """An executor on this journal that leaves every wait to a later drive."""
    executor = Executor(journal=journal, clock=clock or JumpClock(), suspend_timers_after_s=10)
    return executor.options(run_id=RUN)


async def cancelled_at(
    path: str,
    flow: Workflow[[], Any],
    journal: TextJournal,
    at: type[ev.StepStarted | ev.StepCompleted | ev.RollbackStarted] = ev.StepStarted,
) -> Any:
    """The result of a run that is cancelled when this step begins, or at another event of it."""
    async with resumable(journal).stream(flow) as run:
        async for event in run:
            if isinstance(event, at) and event.path == path:
                run.cancel("enough")
    return run.result


def left_by_the_dead(journal: TextJournal) -> Iterator[TextJournal]:
    """The journals of the processes that died after they were asked to cancel this run."""
    events = journal.events(RUN)
    asked = next(at for at, one in enumerate(events) if isinstance(one, ev.CancelRequested))
    for length in range(asked + 1, len(events)):
        left = TextJournal()
        for event in events[:length]:
            left.append(event)
        yield left


def listed(result: WorkflowResult[Any] | None) -> list[tuple[str, str, int]]:
    """What a result says was come to, and how often it was tried."""
    assert result is not None
    assert (result.status, result.error) == ("cancelled", "enough")
    return [(one.path, one.status, one.attempts) for one in result.step_results]


def undoable(name: str) -> Step[Any]:
    """A step that can be undone."""
    return step(name).call(int).with_rollback(lambda _: None)


# -- what stands below something -------------------------------------------------------------------


def fails(_: WorkflowContext) -> bool:
    """Find fault."""
    return False


@workflow
def asks() -> Steps[Any]:
    """A step that can be undone, then a question."""
    yield from undoable("x")
    yield from step("sure").ask("Sure?")


@workflow
def asks_in_a_fallback() -> Steps[Any]:
    """A step whose fallback waits for a person."""

    def fallback(*_: Any) -> Step[Any]:
        return step("o").run_workflow(asks)

    yield from step("c").call(boom).on_error(fallback)


@workflow
def asks_in_a_fix() -> Steps[Any]:
    """A validation whose fix waits for a person."""
    fix = step("fix").run_workflow(asks)
    yield from step("v").validate([Stage("lint", fails)], retry=2, on_failure=fix)


@pytest.mark.parametrize(
    ("flow", "expected"),
    [
        (asks_in_a_fallback, {"c": "cancelled", "c/o": "cancelled"}),
        (asks_in_a_fix, {"v": "cancelled", "v/1/lint": "failed", "v/1/fix": "cancelled"}),
    ],
    ids=["fallback", "fix"],
)
async def test_a_suspended_run_that_is_cancelled_undoes_what_stands_below(
    flow: Workflow[[], Any], expected: dict[str, str]
) -> None:
    """Its question and all that the question stands in are cancelled, also if the process dies."""
    inner = list(expected)[-1]
    journal = TextJournal()
    assert (await resumable(journal).run(flow)).status == "suspended"
    result = await resumable(journal).cancel(RUN, "enough", flow)
    statuses = {path: status for path, status, _ in listed(result)}
    assert statuses == {**expected, f"{inner}/x": "succeeded", f"{inner}/sure": "cancelled"}
    assert undone(journal) == [f"{inner}/x"]
    for left in left_by_the_dead(journal):
        assert listed(await resumable(left).resume(RUN, flow)) == listed(result)
        assert undone(left) == [f"{inner}/x"]


@workflow
def works() -> Steps[Any]:
    """A step that can be undone, then one that does not end."""
    yield from undoable("x")
    yield from step("y").call(forever)


async def does_not_end(_: WorkflowContext) -> bool:
    """Check for good, but for the first round of a validation that has a fix."""
    if "fixed/1/" not in current().path:
        await anyio.sleep_forever()
    return False


@workflow
def works_in_a_fallback() -> Steps[Any]:
    """A step whose fallback does not end."""

    def fallback(*_: Any) -> Step[Any]:
        return step("o").run_workflow(works)

    yield from step("c").call(boom).on_error(fallback)


@workflow
def checks_what_was_fixed() -> Steps[Any]:
    """A validation whose fix has succeeded, and whose second round does not end."""
    lint = Stage("lint", does_not_end)
    yield from step("fixed").validate([lint], retry=2, on_failure=undoable("fix"))


@workflow
def checks_at_once() -> Steps[Any]:
    """A validation whose first round does not end."""
    yield from undoable("a")
    yield from step("v").validate([Stage("lint", does_not_end)])


@pytest.mark.parametrize(
    ("flow", "at", "to_undo"),
    [
        (works_in_a_fallback, "c/o/y", "c/o/x"),
        (checks_what_was_fixed, "fixed/2/lint", "fixed/1/fix"),
        (checks_at_once, "v/1/lint", "a"),
    ],
    ids=["fallback", "a round after a fix", "the first round"],
)
async def test_a_run_that_died_while_it_was_cancelled_lists_and_undoes_what_it_would_have(
    flow: Workflow[[], Any], at: str, to_undo: str
) -> None:
    """Wherever its process died, what was at work is listed as cancelled, and all is undone."""
    journal = TextJournal()
    expected = listed(await cancelled_at(at, flow, journal))
    assert (at, "cancelled", 1) in expected
    assert undone(journal) == [to_undo]
    for left in left_by_the_dead(journal):
        assert listed(await resumable(left).resume(RUN, flow)) == expected
        assert undone(left) == [to_undo]


# -- what was ending by itself ---------------------------------------------------------------------


async def takes_long(_: object = None) -> None:
    """Be stopped slowly, and undo slowly."""
    try:
        await anyio.sleep(0.02)
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0.02)


@workflow
def wins_a_race() -> Steps[Any]:
    """A race whose loser takes its time to stop."""
    yield from step("r").race(step("quick").call(int), step("slow").call(takes_long))


@workflow
def fails_and_goes_on() -> Steps[Any]:
    """A group that undoes its members, and whose failure is as good as a success."""
    done = step("done").call(int).with_rollback(takes_long)
    group = step("g").parallel(done, step("bad").call(boom), on_error="all_or_nothing")
    yield from group.default(0)
    yield from undoable("next").when(lambda _: True)


@pytest.mark.parametrize(
    ("flow", "path", "at", "to_undo"),
    [
        (wins_a_race, "r/quick", ev.StepCompleted, []),
        (fails_and_goes_on, "g/done", ev.RollbackStarted, ["g/done"]),
    ],
    ids=["a race that is won", "a group that undoes its members"],
)
async def test_a_group_that_was_cancelled_while_it_ended_stays_cancelled(
    flow: Workflow[[], Any], path: str, at: Any, to_undo: list[str]
) -> None:
    """Wherever its process died, the run does not go on behind it, and does not succeed."""
    journal = TextJournal()
    expected = listed(await cancelled_at(path, flow, journal, at))
    assert expected[0][1] == "cancelled"
    for left in left_by_the_dead(journal):
        assert listed(await resumable(left).resume(RUN, flow)) == expected
        assert list(dict.fromkeys(undone(left))) == to_undo


# -- what has come, or passed, since ---------------------------------------------------------------


WAITS: dict[str, Step[Any]] = {
    "a sleep": step("q").sleep(50),
    "a pause": step("q").call(boom).retry(2, backoff=50.0),
    "a question": step("q").ask("?", default="yes", timeout=50),
    "a signal": step("q").wait_for("go").timeout(50).default("late"),
    "a signal that may be late": step("q").wait_for("go").timeout(50),
}


@pytest.mark.parametrize("wait", WAITS)
async def test_a_run_that_died_while_it_was_cancelled_has_waited_for_nothing_since(
    wait: str,
) -> None:
    """It ends cancelled at its wait, though its deadline has passed, or its signal come."""
    log: list[str] = []

    @workflow
    def flow() -> Steps[Any]:
        yield from undoable("a")
        with contextlib.suppress(StepFailed):
            yield from WAITS[wait]
        yield from step("deploy").call(log.append, "deploy")

    journal, clock = TextJournal(), JumpClock()
    assert (await resumable(journal, clock).run(flow)).status == "suspended"
    expected = listed(await resumable(journal, clock).cancel(RUN, "enough", flow))
    assert [one[:2] for one in expected] == [("a", "succeeded"), ("q", "cancelled")]
    signalled = "signal" in wait
    for left in left_by_the_dead(journal):
        executor = resumable(left, JumpClock(clock.now() + (0 if signalled else 1000)))
        if signalled:
            await executor.signal(RUN, "go", 1)
        assert listed(await executor.resume(RUN, flow)) == expected
        assert (undone(left), log) == (["a"], [])


# -- what must not run twice -----------------------------------------------------------------------


async def test_a_cancelled_step_that_must_not_run_twice_stays_cancelled() -> None:
    """It does not become a failure that the workflow handles if the resume that cancels dies."""

    @workflow
    def flow() -> Steps[Any]:
        try:
            yield from step("pay").call(forever).once()
        except StepFailed:
            yield from step("ask the bank").call(int)
        finally:
            yield from step("tidy").call(int)

    journal = TextJournal()
    expected = listed(await cancelled_at("pay", flow, journal))
    assert [one[:2] for one in expected] == [("pay", "cancelled"), ("tidy", "succeeded")]
    deaths = 0
    for left in left_by_the_dead(journal):
        if not any(isinstance(one, ev.StepCompleted) for one in left.events(RUN)):
            continue  # whether it has paid is not known
        for writes in range(1, len(journal.events(RUN))):
            dying = left.copied().reopened(stop_at=writes)
            try:
                result = await resumable(dying).resume(RUN, flow)
            except ProcessGone:
                deaths += 1
                result = await resumable(dying.reopened()).resume(RUN, flow)
            assert listed(result) == expected
    assert deaths > 3


@pytest.mark.parametrize("attempts", [1, 2])
async def test_what_a_clean_up_step_stopped_at_its_timeout_stays_in_the_result(
    attempts: int,
) -> None:
    """Its attempt was over, wherever the process died; a sleep that it had cancelled is listed."""

    @workflow
    def flow() -> Steps[Any]:
        try:
            yield from step("work").call(forever)
        finally:
            tidy = step("tidy").parallel(step("a").call(int), step("b").sleep(9)).timeout(5)
            yield from tidy.retry(attempts, backoff=1).skip_on_error()

    journal = TextJournal()
    result = await cancelled_at("work", flow, journal)
    assert ("tidy/b", "cancelled", 1) in listed(result)
    for left in left_by_the_dead(journal):
        clock = JumpClock(left.events(RUN)[-1].at)
        assert listed(await resumable(left, clock).resume(RUN, flow)) == listed(result)
