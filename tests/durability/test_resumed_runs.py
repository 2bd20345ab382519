"""What a resume must not lose or mix up: one small workflow for each."""

from __future__ import annotations

import contextlib
import gc
from typing import Any

import pytest

from handrail import (
    Executor,
    JournalFailed,
    StepFailed,
    Steps,
    WorkflowError,
    current,
    step,
    workflow,
)
from handrail.model import events as ev
from handrail.testing import JumpClock, TextJournal
from tests.durability.flows import broken, nothing, undo, undo_in_vain
from tests.durability.support import RUN, Lives, essence


@workflow
def outputs_of_groups_below_a_failed_one() -> Steps[None]:
    """What a member gave is in the result, also if it is composed and its group failed."""
    inner = step("b").parallel(step("c").call(len, "x"))
    with contextlib.suppress(StepFailed):
        yield from step("g").parallel(step("a").call(broken), inner, on_error="all_or_nothing")
    yield from step("end").call(nothing)


@workflow
def errors_of_rollbacks() -> Steps[None]:
    """A rollback that failed before the crash is told at the run's end."""
    first = step("a").call(nothing).with_rollback(undo_in_vain)
    with contextlib.suppress(StepFailed):
        yield from step("g").parallel(first, step("b").call(broken), on_error="all_or_nothing")
    yield from step("end").call(nothing)
    raise WorkflowError("enough")


@workflow
def members_with_rollbacks() -> Steps[None]:
    """A recorded ``for_each`` whose members can be undone is undone after a crash, too."""
    yield from step("each").for_each(
        ["x", "y"], lambda item: step("do").call(nothing, item).with_rollback(undo)
    )
    yield from step("end").call(nothing)
    raise WorkflowError("enough")


@workflow
def attempts_of_a_group_in_order() -> Steps[None]:
    """The result lists attempt by attempt, and the fallback last."""
    yield from (
        step("g")
        .parallel(step("a").call(nothing), step("b").call(broken), on_error="all_or_nothing")
        .retry(3, backoff=0)
        .on_error(lambda context, failed: step("instead").call(nothing))
    )
    yield from step("end").call(nothing)


@pytest.mark.parametrize(
    "flow",
    [
        outputs_of_groups_below_a_failed_one,
        errors_of_rollbacks,
        members_with_rollbacks,
        attempts_of_a_group_in_order,
    ],
    ids=lambda flow: flow.definition.name,
)
def test_a_crash_at_any_write_changes_nothing_that_the_result_says(flow: Any) -> None:
    """Of each of these workflows, for what its own text says."""
    whole = Lives(flow)
    expected = whole.through().result
    for writes in range(whole.writes[0] + 1):
        result = Lives(flow).through([(writes, True)]).result
        assert essence(result) == essence(expected), writes
        assert result.error == expected.error, writes


def test_a_gate_that_its_deadline_closed_has_one_answer() -> None:
    """The deadline's answer is recorded once, however often the process died."""

    @workflow
    def flow() -> Steps[Any]:
        return (
            yield from step("both").parallel(
                step("ask").ask("?", timeout=1, default="nobody"),
                step("nap").sleep(5),
                on_error="continue",
            )
        )

    whole = Lives(flow)
    whole.through()
    for writes in range(whole.writes[0] + 1):
        for returns in (True, False):
            story = Lives(flow).through([(writes, returns)])
            answers = [one.answer for one in story.history if isinstance(one, ev.GateAnswered)]
            assert answers == ["nobody"], (writes, returns)


@workflow
def asks_and_fails() -> Steps[None]:
    """A question whose answer is taken back, for the run fails."""
    yield from step("ask").ask("?").with_rollback(undo)
    raise WorkflowError("enough")


def test_a_question_that_is_asked_again_can_be_answered_again() -> None:
    """Also at the same time of the clock; the first answer was superseded with its step."""
    executor = Executor(journal=TextJournal(), clock=JumpClock())
    executor.options(run_id=RUN).run_sync(asks_and_fails)
    executor.answer_sync(RUN, "ask", "first")
    assert executor.resume_sync(RUN, asks_and_fails).status == "failed"
    again = executor.resume_sync(RUN, asks_and_fails)
    assert [gate.path for gate in again.waiting] == ["ask"]
    executor.answer_sync(RUN, "ask", "second")
    result = executor.resume_sync(RUN, asks_and_fails)
    assert (result.error, result.step("ask").output) == ("enough", "second")


@pytest.mark.parametrize("fail_at", range(2, 9))
def test_bodies_are_closed_when_a_write_fails(fail_at: int) -> None:
    """Their ``finally`` runs before the caller hears of it, not whenever they are collected."""
    ended: list[str] = []

    @workflow
    def child() -> Steps[None]:
        try:
            yield from step("b").call(nothing)
        finally:
            ended.append("child")
            yield from step("c").call(nothing)

    @workflow
    def flow() -> Steps[None]:
        try:
            yield from step("a").run_workflow(child)
        finally:
            ended.append("flow")
            yield from step("d").call(nothing)

    with pytest.raises(JournalFailed):
        Executor(journal=TextJournal(fail_at=fail_at)).run_sync(flow)
    assert ended in (["flow"], ["child", "flow"])
    gc.collect()


def test_what_was_at_work_is_told_that_it_was_interrupted() -> None:
    """The step that is repeated learns it, with the same idempotency key and the same attempt."""
    seen: list[tuple[str, int, bool, str]] = []

    def look() -> None:
        here = current()
        seen.append((here.path, here.attempt, here.interrupted, here.idempotency_key))

    @workflow
    def looks() -> Steps[None]:
        yield from step("before").call(look)
        yield from step("during").call(look)
        yield from step("after").call(look)

    Lives(looks).through([(4, True)])  # its effect was there, its end was not
    before, during, again, after = seen
    assert [one[:3] for one in seen] == [
        ("before", 1, False),
        ("during", 1, False),
        ("during", 1, True),
        ("after", 1, False),
    ]
    assert during[3] == again[3]
    assert len({before[3], during[3], after[3]}) == 3
