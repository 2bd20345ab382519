"""A fork that is driven goes on at the time at which what it keeps of the other run had ended."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from handrail import Executor, Limits, Steps, step, workflow
from handrail.testing import JumpClock, TextJournal
from handrail.testing.clock import START

DAY_S = 86_400.0
CLOCK = JumpClock(jumps=False)
A_MINUTE = Limits(timeout_s=70)


def work(seconds: float) -> float:
    """Take so long."""
    CLOCK.advance(seconds)
    return seconds


def executor_for(flow: Any, limits: Limits = A_MINUTE) -> Executor:
    """An executor whose clock has just been set, and which waits for nothing in its process."""
    CLOCK.set(START)
    return Executor(
        journal=TextJournal(),
        workflows=[flow],
        clock=CLOCK,
        suspend_timers_after_s=0,
        limits=limits,
    )


@workflow
def inner() -> Steps[float]:
    """Ten seconds, and thirty."""
    a = yield from step("a").call(work, 10)
    return a + (yield from step("b").call(work, 30))


@workflow
def timed() -> Steps[float | None]:
    """It may take a minute."""
    return (yield from step("in").run_workflow(inner).timeout(60)).value


@pytest.mark.parametrize("changes", [{"at": "in/b"}, {"outputs": {"in/a": 10}}])
@pytest.mark.parametrize("spent_s", [0, 15, 65])
def test_the_time_before_a_fork_is_driven_counts_for_no_timeout(
    changes: dict[str, Any], spent_s: float
) -> None:
    """Neither a step's nor the run's. What the run had used counts, and what the fork has."""
    executor = executor_for(timed)
    run_id = executor.run_sync(timed).run_id
    CLOCK.advance(DAY_S)
    fork_id = executor.fork_sync(run_id, **changes)
    CLOCK.advance(spent_s)
    result = executor.resume_sync(fork_id)
    assert result.status == "succeeded"
    took_s = 30 + (10 if "at" in changes else 0)
    assert result.total_duration_ms == pytest.approx(1_000 * took_s)


@workflow
def waits() -> Steps[Any]:
    """A bit of work, beside all that waits."""
    members = (
        step("busy").call(work, 10),
        step("ask").ask("Go?", timeout=60),
        step("nap").sleep(40),
        step("monday").sleep(datetime.fromtimestamp(START + 3 * DAY_S, UTC)),
        step("go").wait_for("go").timeout(50),
    )
    yield from step("all").parallel(*members)


@pytest.mark.parametrize("forks", [1, 2])
@pytest.mark.parametrize("changes", [{}, {"rerun": ["all/busy"]}])
def test_an_open_wait_goes_on_in_a_fork(changes: dict[str, Any], forks: int) -> None:
    """With the time that it had left, except a sleep until a moment."""
    executor = executor_for(waits, Limits())
    run_id = executor.run_sync(waits).run_id
    before = executor.journal.events(run_id)
    CLOCK.advance(DAY_S)
    fork_id = run_id
    for _ in range(forks):
        fork_id = executor.fork_sync(fork_id, **changes)
        CLOCK.advance(100)
    now = CLOCK.now()
    left = {one.path: one.until for one in executor.resume_sync(fork_id).waits_for}
    assert left == {
        "all/ask": now + 50,
        "all/nap": now + 30,
        "all/monday": START + 3 * DAY_S,
        "all/go": now + 40,
    }
    assert executor.journal.events(run_id) == before
    executor.answer_sync(fork_id, "all/ask", "yes")
    CLOCK.set(now + 35)
    executor.signal_sync(fork_id, "go", 1)
    result = executor.resume_sync(fork_id)
    assert [one.path for one in result.waits_for] == ["all/monday"]
    CLOCK.set(START + 3 * DAY_S)
    assert executor.resume_sync(fork_id).success


def test_a_question_of_a_fork_is_open_until_it_is_driven() -> None:
    """Its deadline has not begun to count."""
    executor = executor_for(waits, Limits())
    fork_id = executor.fork_sync(executor.run_sync(waits).run_id)
    CLOCK.advance(DAY_S)
    executor.answer_sync(fork_id, "all/ask", "yes")
    resumed = executor.resume_sync(fork_id)
    assert "all/ask" not in {one.path for one in resumed.waits_for}
    assert resumed.step("all/ask").output == "yes"
