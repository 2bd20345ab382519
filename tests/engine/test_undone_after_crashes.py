"""Wherever a process dies: what its run did, and can be undone, is undone when the run fails."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from handrail import (
    Executor,
    Limits,
    Stage,
    Step,
    StepFailed,
    Steps,
    current,
    step,
    workflow,
)
from handrail.model import events as ev
from handrail.testing import JumpClock, ProcessGone, TextJournal
from tests.durability.support import SOAKING
from tests.engine.support import RUN, Boom, boom, bound, done, just, statuses, undone

Log = list[str]
Inside = Callable[[Log], Step[Any]]


def second_attempt_only(name: str = "no") -> Step[Any]:
    """A step that fails in the first attempt of what it stands in."""

    def work() -> None:
        if "~2/" not in current().path:
            raise Boom("no")

    return step(name).call(work)


def works_and_naps(log: Log) -> Callable[[int], Steps[Any]]:
    """The body of members that do something, and then take very long."""

    def member(number: int) -> Steps[Any]:
        yield from done(log, f"a{number}")
        yield from step("nap").sleep(1000)

    return member


def fails_soon() -> Steps[Any]:
    """The body of a child workflow that fails in the meantime."""
    yield from step("nap").sleep(5)
    yield from step("no").call(boom)


def retried(log: Log) -> Step[Any]:
    """A group whose first attempt fails, with a pause before the second one."""
    return (
        step("g")
        .parallel(done(log, "a"), second_attempt_only(), on_error="continue", min_success=2)
        .retry(2, backoff=50)
    )


def retried_at_once(log: Log) -> Step[Any]:
    """The group in a branch that is tried again."""
    inner = step("x").parallel(done(log, "a"), second_attempt_only(), max_concurrency=1)
    return step("g").branch((lambda _: True, inner)).retry(2, backoff=0)


def validated(log: Log) -> Step[Any]:
    """Rounds with a fix, in two attempts."""

    def check(_: Any) -> bool:
        return current().path == "g~2/2/k"

    fix = done(log, "fix", "fix")
    return step("g").validate([Stage("k", check)], retry=1, on_failure=fix).retry(2, backoff=0)


def defaulted(log: Log) -> Step[Any]:
    """A group whose failure is settled."""
    return step("g").parallel(done(log, "a"), step("no").call(boom), max_concurrency=1).default(())


def overdue(log: Log) -> Step[Any]:
    """Two attempts at a group that takes too long."""

    def member(number: int) -> Steps[Any]:
        yield from done(log, f"a{number}")
        if number == 1:
            yield from step("nap").sleep(1000)

    each = step("g").for_each([0, 1, 2], member, key=str, max_concurrency=1)
    return each.timeout(10).retry(2, backoff=5)


def stopped(log: Log) -> Step[Any]:
    """Members that are stopped, for another one has failed."""

    def member(number: int) -> Steps[Any]:
        yield from done(log, f"a{number}")
        yield from step("nap").sleep(1000 if number else 5)
        yield from step("no").call(boom)
        yield from done(log, f"b{number}", "later")

    return step("g").for_each([0, 1, 2], member, key=str)


def stopped_from_above(log: Log) -> Step[Any]:
    """A group that is stopped, for a sub-workflow beside it has failed."""
    each = step("x").for_each([1, 2], works_and_naps(log), key=str, max_concurrency=1)
    return step("g").parallel(each, step("y").run_workflow(workflow(fails_soon)))


def success_while_stopped(log: Log) -> Step[Any]:
    """Members that are stopped in a step that succeeds all the same: they go no further."""

    async def stubborn() -> None:
        with anyio.CancelScope(shield=True):
            while not current().cancelled:  # noqa: ASYNC110  # nothing tells it
                await anyio.sleep(0.001)

    def member(number: int) -> Steps[Any]:
        yield from done(log, f"a{number}")
        yield from step("no").call(boom) if not number else step("slow").call(stubborn)
        yield from done(log, f"b{number}", "later")

    return step("g").for_each([1, 2, 0], member, key=str)


def loser(log: Log) -> Step[Any]:
    """A group that loses a race."""
    return step("g").race(step("x").for_each([1], works_and_naps(log), key=str), step("t").sleep(5))


def cleaned_up(log: Log) -> Step[Any]:
    """Members that clean up when they are stopped."""

    def member(number: int) -> Steps[Any]:
        try:
            yield from step("nap").sleep(1000 if number else 5)
            yield from step("no").call(boom)
        finally:
            yield from done(log, f"c{number}", "clean-up")

    return step("g").for_each([0, 1], member, key=str)


def fallback_of_a_call(log: Log) -> Step[Any]:
    """What a call that fails is replaced by."""
    return step("g").call(boom).on_error(lambda *_: done(log, "fb", "fb"))


def fallback_of_a_group(log: Log) -> Step[Any]:
    """A group after a group, and whoever chooses it takes its time."""

    async def choose(*_: Any) -> Step[Any]:
        await anyio.lowlevel.checkpoint()
        return step("fb").for_each(iter([1, 2]), lambda number: done(log, f"fb{number}"), key=str)

    group = step("g").parallel(done(log, "a"), step("no").call(boom), max_concurrency=1)
    return group.on_error(choose)  # type: ignore[arg-type]  # awaited all the same


def child_in_child(log: Log) -> Step[Any]:
    """Attempts of a sub-workflow, with one in it that fails, and may."""
    inner = just(step("x").parallel(done(log, "a"), done(log, "b", "v")), second_attempt_only())
    outer = just(done(log, "c"), step("i").run_workflow(inner).skip_on_error())
    return step("g").run_workflow(outer).retry(2)


def iterator(log: Log) -> Step[Any]:
    """Items that are given once, to two attempts."""

    def member(number: int) -> Step[Any]:
        return done(log, f"a{number}") if number < 3 else second_attempt_only()

    return step("g").for_each(iter([1, 2, 3]), member, key=str, max_concurrency=1).retry(2)


def endless(log: Log) -> Step[Any]:
    """Items without an end."""

    def member(number: int) -> Step[Any]:
        return done(log, f"a{number}") if number < 3 else step("no").call(boom)

    return step("g").for_each(itertools.count(1), member, key=str, max_concurrency=1)


def overdue_with_all_stopped(log: Log) -> Step[Any]:
    """A group that takes too long, with nothing left to begin."""
    return step("g").for_each([0, 1], works_and_naps(log), key=str).timeout(10)


def overdue_race(log: Log) -> Step[Any]:
    """A race that nobody wins in time."""
    slow = step("y").parallel(done(log, "a"), step("nap").sleep(1000), max_concurrency=1)
    return step("g").race(step("x").sleep(1000), slow).timeout(10)


def overdue_branch(log: Log) -> Step[Any]:
    """An arm that takes too long."""
    arm = step("x").parallel(done(log, "a"), step("nap").sleep(1000), max_concurrency=1)
    return step("g").branch((lambda _: True, arm)).timeout(10).retry(2, backoff=5)


def all_or_nothing_stopped(log: Log) -> Step[Any]:
    """Members that are undone at once, for what they stand in is stopped."""
    each = step("x").for_each([1, 2], works_and_naps(log), key=str, on_error="all_or_nothing")
    return step("g").parallel(each, step("y").run_workflow(workflow(fails_soon)))


def stopped_after_a_fallback(log: Log) -> Step[Any]:
    """Members that are stopped behind a fallback, and clean up."""

    def member(number: int) -> Steps[Any]:
        yield from step("x").call(boom).on_error(lambda *_: done(log, f"fb{number}", "fb"))
        try:
            yield from done(log, f"later{number}", "later")
            yield from step("nap").sleep(1000 if number else 5)
            yield from step("no").call(boom)
        finally:
            yield from done(log, f"c{number}", "clean-up")

    return step("g").for_each([1, 2, 0], member, key=str)


def stopped_in_a_fallback(log: Log) -> Step[Any]:
    """A member whose fallback is at work when it is stopped."""

    def part(number: int) -> Steps[Any]:
        yield from done(log, f"f{number}")
        yield from step("nap").sleep(1000)

    def member(number: int) -> Steps[Any]:
        if number:
            fallback = step("fb").for_each([1, 2], part, key=str)
            yield from step("x").call(boom).on_error(lambda *_: fallback)
        yield from step("nap").sleep(5)
        yield from step("no").call(boom)

    return step("g").for_each([1, 0], member, key=str)


def stopped_in_a_validation(log: Log) -> Step[Any]:
    """A member whose second fix is at work when it is stopped."""

    def fix(number: int) -> Steps[Any]:
        yield from done(log, f"fix{number}")
        yield from step("nap").sleep(3)

    checked = step("v").validate(
        [Stage("k", lambda _: False)],
        retry=3,
        on_failure=step("fix").for_each([1, 2], fix, key=str, max_concurrency=1),
    )
    quick = step("y").for_each([0], lambda _: step("nap").sleep(8))
    return step("g").race(checked, quick)


SHAPES: tuple[Inside, ...] = (
    retried,
    retried_at_once,
    validated,
    defaulted,
    overdue,
    stopped,
    stopped_from_above,
    success_while_stopped,
    loser,
    cleaned_up,
    fallback_of_a_call,
    fallback_of_a_group,
    child_in_child,
    iterator,
    endless,
    overdue_with_all_stopped,
    overdue_race,
    overdue_branch,
    all_or_nothing_stopped,
    stopped_after_a_fallback,
    stopped_in_a_fallback,
    stopped_in_a_validation,
)


@bound
def fails_later(log: Log, inside: Inside) -> Steps[Any]:
    """A workflow that goes on, whatever becomes of this step, and fails."""
    try:
        yield from inside(log)
    except StepFailed:
        log.append("handled")
    yield from step("next").call(log.append, "next")
    yield from step("end").call(boom)


@pytest.mark.parametrize("inside", SHAPES, ids=lambda inside: inside.__name__)
async def test_what_was_done_is_undone_by_whoever_goes_on(inside: Inside) -> None:
    """Once each; and in what had ended nothing begins."""
    log = Log()
    flow = fails_later(log, inside)
    whole = TextJournal()
    alive = await Executor(journal=whole, clock=JumpClock()).options(run_id=RUN).run(flow)
    assert (alive.status, alive.failed_step) == ("failed", "end")
    expected, performed = to_undo(whole), Counter(log)
    assert Counter(undone(whole)) == Counter(expected)
    for writes in range(1, len(whole.events(RUN)), 1 if SOAKING else 5):
        log.clear()
        abrupt = bool(writes % 2)
        clock, dying = JumpClock(), TextJournal(stop_at=writes, abrupt=abrupt)
        try:
            await Executor(journal=dying, clock=clock).options(run_id=RUN).run(flow)
        except ProcessGone:
            journal = dying.reopened()
            result = await Executor(journal=journal, clock=clock).resume(RUN, flow)
        else:
            journal, result = dying, alive
        assert (result.status, result.failed_step) == ("failed", "end"), writes
        assert Counter(undone(journal)) == Counter(to_undo(journal)), writes
        if inside is success_while_stopped:
            continue  # there it is decided by time who has begun, and what
        assert set(to_undo(journal)) == set(expected), (writes, abrupt)
        assert statuses(result) == statuses(alive), (writes, abrupt)
        assert {one for one in log if one != "handled"} <= performed.keys(), writes


async def test_a_run_whose_time_is_over_ends_so_wherever_its_process_dies() -> None:
    """Cleaned up and undone, and failed by its limit: not cancelled."""
    log = Log()

    def member(number: int) -> Steps[Any]:
        try:
            yield from done(log, f"a{number}")
            yield from step("nap").sleep(1000)
        finally:
            yield from step("tidy").call(log.append, f"tidy {number}")

    @workflow
    def flow() -> Steps[Any]:
        try:
            yield from step("g").for_each([1, 2, 3], member, key=str, max_concurrency=2)
        finally:
            yield from step("last").call(log.append, "last")

    limits = Limits(timeout_s=10)
    whole = Executor(journal=TextJournal(), clock=JumpClock(), limits=limits)
    alive = await whole.options(run_id=RUN).run(flow)
    assert (alive.status, "timeout_s" in (alive.error or "")) == ("failed", True)
    for writes in itertools.count(1):
        log.clear()
        clock, dying = JumpClock(), TextJournal(stop_at=writes)
        executor = Executor(journal=dying, clock=clock, limits=limits)
        try:
            await executor.options(run_id=RUN).run(flow)
        except ProcessGone:
            journal = dying.reopened()
        else:
            break
        again = Executor(journal=journal, clock=clock, limits=limits)
        result = await again.resume(RUN, flow)
        assert (result.status, result.error) == (alive.status, alive.error), writes
        assert Counter(undone(journal)) == Counter(to_undo(journal)), writes
        assert {"tidy 1", "tidy 2", "last"} <= set(log), writes
        assert "a3" not in log, writes


def to_undo(journal: TextJournal) -> list[str]:
    """The steps that succeeded and have a rollback, by their record."""
    history = journal.events(RUN)
    have = {one.path for one in history if isinstance(one, ev.StepStarted) and one.rollback}
    ends = [one for one in history if isinstance(one, ev.StepCompleted)]
    return [one.path for one in ends if one.status == "succeeded" and one.path in have]
