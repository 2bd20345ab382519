"""What a suspended run waits for: what, from whom, until when."""

from __future__ import annotations

from typing import Any

import pytest

from handrail import (
    Agent,
    AgentError,
    Executor,
    Steps,
    WaitsFor,
    WorkflowFailed,
    step,
    workflow,
)
from handrail.record.run_record import Recorded
from handrail.record.view import view_of
from handrail.testing import FakeBackend, JumpClock, TextJournal
from handrail.testing.clock import START

CAPPED = AgentError("coder", "limit reached", kind="usage_cap", retry_at=START + 7_200)
LOGGED_OUT = AgentError("coder", "Not logged in", kind="auth", hint="Run `coder login`.")


@workflow
def waits() -> Steps[Any]:
    """Waits for all there is at once."""
    capped = Agent("coder", "Do it.", backend=FakeBackend([CAPPED]))
    parked = Agent("coder", "Do it.", backend=FakeBackend([LOGGED_OUT]))
    yield from step("all").parallel(
        step("merge").ask("Merge?", timeout=9_000),
        step("go").wait_for("go").timeout(8_000),
        step("nap").sleep(600),
        step("code").agent(capped),
        step("login").agent(parked),
    )


EXPECTED = (
    WaitsFor("person", "all/login", "fake: Not logged in. Run `coder login`.", "a person"),
    WaitsFor("answer", "all/merge", "Merge?", "a person", START + 9_000),
    WaitsFor("signal", "all/go", "go", "a sender", START + 8_000),
    WaitsFor("time", "all/nap", "sleep", "", START + 600),
    WaitsFor("time", "all/code", "usage_cap", "", START + 1_800),
)


async def test_a_suspended_run_says_what_it_waits_for() -> None:
    """The result, the list of runs, the plan, the record and the view of it say the same."""
    journal = TextJournal()
    executor = Executor(clock=JumpClock(), journal=journal, suspend_timers_after_s=60)
    result = await executor.options(run_id="r").run(waits)
    assert result.status == "suspended"
    assert result.waits_for == EXPECTED
    (info,) = journal.runs()
    assert info.waits_for == EXPECTED
    assert (await executor.plan("r", waits)).waits_for == EXPECTED
    view = view_of(Recorded(journal.events("r")), alive=False, now=START + 1)
    by_kind = {wait.path or wait.what: wait for wait in view.waits_for}
    assert {path: (one.kind, one.whom) for path, one in by_kind.items()} == {
        one.path if one.kind != "person" else one.what: (one.kind, one.whom) for one in EXPECTED
    }
    times = [one for one in EXPECTED if one.kind == "time"]
    assert [by_kind[one.path] for one in times] == times
    with pytest.raises(WorkflowFailed, match="the signal 'go' until 2") as caught:
        result.unwrap()
    assert "an answer to 'all/merge'" in str(caught.value)


async def test_a_run_whose_process_died_waits_for_the_same() -> None:
    """Its plan says for what, though no suspension is recorded."""
    suspended, journal = TextJournal(), TextJournal()
    first = Executor(clock=JumpClock(), journal=suspended, suspend_timers_after_s=60)
    await first.options(run_id="r").run(waits)
    lease = journal.acquire("r")
    for event in suspended.events("r")[:-1]:
        journal.append(event)
    lease.release()
    planned = await Executor(clock=JumpClock(), journal=journal).plan("r", waits)
    assert planned.status is None
    assert [one for one in planned.waits_for if one.kind != "person"] == [*EXPECTED[1:]]


async def test_a_run_that_goes_on_waits_for_nothing() -> None:
    """What it waited for before its end is history."""
    journal = TextJournal()

    @workflow
    def naps() -> Steps[None]:
        yield from step("nap").sleep(600)

    clock = JumpClock()
    executor = Executor(clock=clock, journal=journal, suspend_timers_after_s=60)
    assert (await executor.options(run_id="r").run(naps)).waits_for[0].until == START + 600
    patient = Executor(clock=clock, journal=journal)
    result = await patient.resume("r", naps)
    assert (result.status, result.waits_for) == ("succeeded", ())
    (info,) = journal.runs()
    assert info.waits_for == ()
    assert view_of(Recorded(journal.events("r")), alive=False, now=clock.now()).waits_for == ()
