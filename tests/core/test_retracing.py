"""The mode of the machine in which every path answers from the record."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail import Executor, StepFailed, Steps, step, workflow
from handrail.core import commands as cmd
from handrail.core.comparison import Comparison
from handrail.core.machine import act
from handrail.core.run_state import RunState
from handrail.model import events as ev
from handrail.record.reading import ended
from handrail.testing import TextJournal
from handrail.testing.shapes import Body, workflow_of
from handrail.testing.strategies import bodies
from tests.durability.support import LAW, RUN
from tests.testing.test_replays import CRASHES, drawn

pytestmark = pytest.mark.usefixtures("outside_git")


async def retraced(history: list[ev.Event], flow: Any) -> RunState:
    """The run that stands for the real one, after its code was retraced along this record."""
    run, evaluator = Executor(durable=True).as_recorded(history, flow.definition)
    comparison = Comparison(run, act, ended(history))
    search = comparison.of_run()
    while search.question is not None:
        search.answer(await evaluator.evaluated(search.question, 0.0))
    comparison.close()
    return run


@LAW
@given(body=bodies(), crashes=CRASHES, cancels=st.booleans(), ends=st.booleans())
def test_a_retraced_run_equals_its_record(
    *, body: Body, crashes: list[tuple[int, bool]], cancels: bool, ends: bool
) -> None:
    """Each step that it comes to ends as recorded; it records nothing, and asks handlers alone.

    Of a run that has succeeded it comes to every step.
    """
    history = drawn(body, crashes, cancels=cancels, ends=ends).journal.reopened().events(RUN)
    if not history:
        return
    run = anyio.run(retraced, history, workflow_of(body))
    recorded, end = run.recorded, ended(history)
    assert all(isinstance(one, (cmd.AskFallback, cmd.FindStages)) for one in run.out)
    for path, result in run.results.items():
        known = recorded.at(path).result
        assert known is not None
        assert (result.status, result.output) == (known.status, known.output)
    if end is not None and end.status == "succeeded":
        assert {*recorded.ended_paths()} - {*end.orphaned} <= {*run.results}


UNDONE: list[str] = []


async def fails() -> None:
    """Fail once the other member is at work."""
    await anyio.sleep(0.01)
    raise ValueError("no")


def member(item: str) -> Steps[int]:
    """A member that cleans up, and one that fails."""
    if item == "bad":
        yield from step("bad").call(fails)
    try:
        yield from step("slow").call(anyio.sleep, 60)
        yield from step("next").call(abs, 1)
    finally:
        yield from step("clean").call(abs, 2).with_rollback(lambda *_: UNDONE.append(item))
    return 0


@workflow
def stopped() -> Steps[None]:
    """A group that fails, a question, and a failure."""
    with suppress(StepFailed):
        yield from step("each").for_each(["ok", "bad"], member, key=str)
    yield from step("gate").ask("Go on?", choices=["yes"])
    raise ValueError("end")


def test_what_cleaned_up_behind_a_step_that_had_just_ended_is_undone() -> None:
    """The stop came when the step before the clean-up had succeeded, and no other had begun."""
    UNDONE.clear()
    first = Executor(journal=TextJournal())
    run_id = first.run_sync(stopped).run_id
    journal = TextJournal()
    for event in first.journal.events(run_id):
        if isinstance(event, ev.StepCompleted) and event.path == "each/ok/slow":
            result = replace(event.result, status="succeeded", error=None)
            journal.append(replace(event, result=result))
        else:
            journal.append(event)
    executor = Executor(journal=journal)
    executor.answer_sync(run_id, "gate", "yes")
    result = executor.resume_sync(run_id, stopped)
    assert (result.status, UNDONE, result.rollback_errors) == ("failed", ["ok"], ())
