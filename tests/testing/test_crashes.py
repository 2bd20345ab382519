"""crash_everywhere: what it does to a workflow, and that it complains of each thing that it may."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from handrail import Executor, InsideEventLoop, Step, Steps, WrongUse, current, step, workflow
from handrail.codec.codec import Codec
from handrail.model.events import StepCompleted, StepStarted, stamp
from handrail.model.results import StepResult, WorkflowResult
from handrail.testing import Crashes, FakeAgent, JumpClock, plugin
from handrail.testing import crash_everywhere as everywhere
from handrail.testing.crash_trial import (
    Notebook,
    ProcessLog,
    all_points,
    in_child,
    read_logs,
    repeated,
    spread,
)
from handrail.testing.crash_verdict import verdict_differences, verdict_of

CrashEverywhere = Callable[..., Crashes]
crash_everywhere = (
    plugin.crash_everywhere
)  # where handrail is not installed pytest does not find it


@dataclass(frozen=True)
class Receipt:
    """What a charge gives."""

    amount: int


def charge() -> Receipt:
    """An effect."""
    return Receipt(3)


@workflow
def pay() -> Steps[Any]:
    """One step."""
    return (yield from step("charge").call(charge))


def was_interrupted() -> bool:
    """A bad action: its output tells of a crash."""
    return current().interrupted


AROUND_THE_END = [(3, "before"), (3, "after")]
"""Both sides of the record of the one step's end."""


@workflow
def fragile() -> Steps[Any]:
    """One step whose output a crash changes."""
    return (yield from step("look").call(was_interrupted))


def test_a_process_is_killed_on_both_sides_of_every_record(tmp_path: Path) -> None:
    """The report has the records, two crashes for each, and how often steps were performed."""
    told = everywhere(pay, folder=tmp_path)
    assert told == Crashes(
        ("WorkflowStarted", "StepStarted of 'charge'", "StepCompleted of 'charge'",
         "WorkflowCompleted"), 8, executions={"charge": 2},
    )  # fmt: skip
    assert str(told) == "8 crashes at 4 records"
    assert list(tmp_path.iterdir()) == []


def test_closures_and_fake_agents_work(crash_everywhere: CrashEverywhere) -> None:
    """Children are copies of the test's process, each with its own copy of what the test made."""
    agent = FakeAgent("writer", replies=["text"])
    said: list[str] = []

    @workflow
    def write(task: str) -> Steps[Any]:
        text = yield from step("write").agent(agent, context={"task": task})
        yield from step("keep").call(said.append, text.output)
        return text.output

    told = crash_everywhere(write, "x", only=[(3, "before"), (5, "after")])
    assert (told.crashes, agent.calls, said) == (2, [], [])


def test_a_step_that_is_performed_too_often_is_named(crash_everywhere: CrashEverywhere) -> None:
    """The complaint has the record, the side, what was too much, and how to repeat that crash;
    whether the bound is one step's or that of all.
    """
    with pytest.raises(AssertionError) as caught:
        crash_everywhere(pay, executions={"charge": 1}, only=AROUND_THE_END)
    text = str(caught.value)
    assert "pay: 1 of 2 crashes did not end as they should" in text
    assert "killed at record 3 (StepCompleted of 'charge', before the write):" in text
    assert "'charge' was performed 2 times by 2 processes, 1 allowed" in text
    assert "only=[(3, 'before')]" in text
    with pytest.raises(AssertionError, match="1 of 1 crashes"):
        crash_everywhere(pay, default=1, only=[(3, "before")])


def test_another_result_is_told_with_both(tmp_path: Path) -> None:
    """The complaint says what a value was without the crash, and what it is after it, and names the
    folder in which the journal of that crash is kept.
    """
    with pytest.raises(AssertionError, match=str(tmp_path)) as caught:
        everywhere(fragile, only=AROUND_THE_END, folder=tmp_path)
    assert list(tmp_path.glob("*/3-before.db"))
    text = str(caught.value)
    assert "1 of 2 crashes" in text
    assert "value: false without a crash, true with it" in text
    assert "output of step 'look': false without a crash, true with it" in text


def test_a_workflow_that_is_never_the_same_is_refused(crash_everywhere: CrashEverywhere) -> None:
    """Two runs that differ without a crash are told, not taken for the work of one."""

    @workflow
    def rolls() -> Steps[Any]:
        return (yield from step("roll").call(lambda: os.urandom(8).hex()))

    with pytest.raises(AssertionError, match="two runs without a crash differ already"):
        crash_everywhere(rolls)


def test_results_that_a_value_holds_are_compared_without_their_times(
    crash_everywhere: CrashEverywhere,
) -> None:
    """A group that goes on gives results of its members, whose times are other ones in each run."""

    @workflow
    def goes_on() -> Steps[Any]:
        each = step("each").for_each([1, 0], share, on_error="continue")
        return (yield from each)

    assert crash_everywhere(goes_on, limit=1).crashes == 1


def share(parts: int) -> Step[float]:
    """A step that fails for 0."""
    return step("share").call(lambda: 1 / parts)


def test_a_run_that_fails_each_time_is_told(crash_everywhere: CrashEverywhere) -> None:
    """A proof of a run that never succeeds says so: perhaps only a fake agent was forgotten."""

    @workflow
    def fails() -> Steps[Any]:
        return (yield from step("divide").call(lambda: 1 / 0))

    told = crash_everywhere(fails, limit=1)
    assert told.status == "failed"
    assert str(told).startswith("1 crashes at 5 records of a run that ended as failed, ")


def test_long_values_are_shown_where_they_part() -> None:
    """Of two long texts the place is shown at which the second is another."""
    one, other = ("x" * 500 + end + "y" * 500 for end in ("A", "B"))
    (told,) = verdict_differences({"value": one}, {"value": other})
    assert "xA" in told
    assert "xB" in told
    assert len(told) < 600


def test_a_misspelt_step_in_executions_is_told(crash_everywhere: CrashEverywhere) -> None:
    """A bound that holds for no step, and is nearly one's name, is no proof of anything."""
    with pytest.raises(WrongUse, match=r"names 'chrage'.* Did you mean 'charge'\?"):
        crash_everywhere(pay, executions={"chrage": 2}, limit=1)
    assert crash_everywhere(pay, executions={"refund": 1, "charg": 0}, limit=1).crashes == 1


@workflow
def asks() -> Steps[str]:
    """Ask."""
    return (yield from step("go?").ask("Go?", choices=["yes", "no"]))


def test_an_answer_to_nothing_is_told(crash_everywhere: CrashEverywhere) -> None:
    """Else the run would wait at its question each time, and all behind it would go untested."""
    with pytest.raises(WrongUse, match=r"names 'og\?'.* had asked at 'go\?'"):
        crash_everywhere(asks, answers={"og?": "yes"}, limit=1)
    assert crash_everywhere(asks, answers={"go?": "yes"}, limit=1).status == "succeeded"
    assert crash_everywhere(asks, limit=1).status == "suspended"


@workflow
def listens() -> Steps[int]:
    """Wait for a number."""
    return (yield from step("told").wait_for("go", int))


def test_a_signal_that_nothing_waits_for_is_told(crash_everywhere: CrashEverywhere) -> None:
    """As an answer to nothing; a signal without payloads is never sent."""
    with pytest.raises(WrongUse, match=r"names 'og', .* waits for these signals: .*go"):
        crash_everywhere(listens, signals={"og": [1]}, limit=1)
    assert crash_everywhere(listens, signals={"go": [1]}, limit=1).status == "succeeded"
    assert crash_everywhere(listens, signals={"og": []}, limit=1).status == "suspended"


def test_a_limit_spreads_the_crashes(crash_everywhere: CrashEverywhere) -> None:
    """At most so many are made, and the report says how many were left out."""
    told = crash_everywhere(pay, limit=3)
    assert (told.crashes, told.left_out, told.status) == (3, 5, "succeeded")
    assert str(told) == "3 crashes at 4 records, 5 more were left out"
    assert spread(all_points(3), 2) == [((1, "before"),), ((3, "after"),)]
    assert len(set(spread(all_points(50), 7))) == 7


def test_those_that_resume_are_killed_too(crash_everywhere: CrashEverywhere) -> None:
    """With ``twice`` a step may be at work in two crashes, and is performed three times at most."""
    assert crash_everywhere(pay, twice=True, limit=2).crashes == 4
    assert crash_everywhere(pay, only=[[(3, "before"), (3, "before")]]).executions == {"charge": 3}


def test_a_once_step_is_performed_once(crash_everywhere: CrashEverywhere) -> None:
    """Where it was at work when its process died, the run fails as it should, and that is told."""

    @workflow
    def buy() -> Steps[Any]:
        return (yield from step("charge").call(charge).once())

    told = crash_everywhere(buy, default=9, only=[(2, "after"), *AROUND_THE_END])
    assert (told.interrupted, told.executions) == (2, {"charge": 1})


def test_a_run_that_waits_is_helped_on(crash_everywhere: CrashEverywhere) -> None:
    """Answers and signals are given when they are waited for, each of them once, over all lives."""

    @workflow
    def asks() -> Steps[Any]:
        first = yield from step("first").wait_for("go", int)
        merge = yield from step("merge?").ask("Merge?", choices=("yes", "no"))
        yield from step("nap").sleep(3600)
        second = yield from step("second").wait_for("go", int)
        return first, merge, second

    told = crash_everywhere(
        asks,
        answers={"merge?": "no"},
        signals={"go": [1, 2]},
        executor=lambda journal: Executor(journal=journal, clock=JumpClock()),
        limit=3,
    )
    assert "letter GateAnswered of 'merge?'" in told.records
    assert told.records.count("letter SignalReceived of 'go'") == 2


def test_a_process_that_does_not_end_is_killed_and_told(crash_everywhere: CrashEverywhere) -> None:
    """The test does not hang with it."""

    @workflow
    def hangs() -> Steps[Any]:
        yield from step("hang").call(lambda: current().interrupted and threading.Event().wait())

    with pytest.raises(AssertionError, match="did not end within 2 s and was killed"):
        crash_everywhere(hangs, only=[(3, "before")], timeout_s=2)


def test_a_process_that_dies_by_itself_is_told(crash_everywhere: CrashEverywhere) -> None:
    """A crash that nobody planned is told, with its exit code."""

    @workflow
    def falls() -> Steps[Any]:
        yield from step("fall").call(lambda: current().interrupted and os._exit(7))

    with pytest.raises(AssertionError, match="died by itself, with exit code 7"):
        crash_everywhere(falls, only=[(3, "before")])


def test_an_executor_that_uses_another_journal_is_refused(
    crash_everywhere: CrashEverywhere,
) -> None:
    """Else nothing would be proved."""
    with pytest.raises(AssertionError, match="must use the journal that it is given"):
        crash_everywhere(pay, executor=lambda journal: Executor())


def test_points_are_pairs_of_a_number_and_a_side(crash_everywhere: CrashEverywhere) -> None:
    """Anything else in ``only`` is refused with an example."""
    with pytest.raises(WrongUse, match=r"\(7, 'before'\)"):
        crash_everywhere(pay, only=[7])


async def test_it_is_refused_inside_an_event_loop() -> None:
    """A fork of a running loop cannot run another one."""
    with pytest.raises(InsideEventLoop, match="plain `def`"):
        everywhere(pay)


def test_types_count() -> None:
    """A tuple that comes back as a list is a difference, a duration is none."""

    def verdict(value: Any, took_ms: float) -> Any:
        one = StepResult("a", "a", "python", "succeeded", value, duration_ms=took_ms)
        return verdict_of(WorkflowResult("w", "r", "succeeded", (one,), took_ms, [one]), Codec())

    assert verdict_differences(verdict((1,), 1.0), verdict((1,), 2.0)) == []
    assert verdict_differences(verdict((1,), 1.0), verdict([1], 1.0)) != []


def test_what_is_performed_although_it_was_recorded_is_found(tmp_path: Path) -> None:
    """A process's notes tell it, whatever the journal says later."""
    notes = Notebook(tmp_path / "notes")
    done = StepResult("a", "a", "python", "succeeded")
    notes.note_history([stamp(StepStarted("a", "python"), "r", 1, 1.0), StepCompleted("a", done)])
    notes.performs("attempt", "b", 1, once=False)
    assert repeated(read_logs(tmp_path / "notes")) == []
    notes.performs("attempt", "a", 1, once=False)
    (log,) = read_logs(tmp_path / "notes")
    assert repeated([log]) == ["'a' was performed again although its end was recorded"]
    assert isinstance(log, ProcessLog)


def test_a_child_is_waited_for(tmp_path: Path) -> None:
    """Its wait status says how it ended; None, that it took too long."""
    assert in_child(lambda: None, 30) == 0
    assert os.waitstatus_to_exitcode(in_child(lambda: os._exit(3), 30) or 0) == 3
    killed = in_child(lambda: os.kill(os.getpid(), signal.SIGKILL), 30)
    assert killed is not None
    assert os.WTERMSIG(killed) == signal.SIGKILL
    assert in_child(lambda: threading.Event().wait(), 0.2) is None  # type: ignore[arg-type,func-returns-value]
