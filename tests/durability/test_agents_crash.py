"""Agents that fail in all ways, in runs whose process is killed at every record."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from handrail import (
    Agent,
    AgentError,
    Budget,
    Executor,
    FakeBackend,
    Limits,
    SqliteJournal,
    Steps,
    step,
    workflow,
)
from handrail.model import events as ev
from handrail.model.results import Usage
from handrail.ports.agent import AgentReply, AgentTurn
from handrail.ports.journal import Journal
from handrail.system.marker import carries, environ_of, kill_marked, live_pids
from handrail.testing import Crashes, JumpClock, ProcessGone, TextJournal, plugin
from tests.durability.processes import until

CrashEverywhere = Callable[..., Crashes]
crash_everywhere = plugin.crash_everywhere
IN_CI = 4


def troubled(turn: AgentTurn) -> Any:
    """First a cap, then a crash with a session, then an answer that does not fit, then one that
    does: by the turn, so that it is the same in every process.
    """
    used = Usage(10, 1, 0.01)
    match turn.turn:
        case 1:
            return AgentError("coder", "capped", kind="usage_cap", usage=used)
        case 2:
            return AgentError("coder", "died", kind="crashed", session="s-1", usage=used)
        case 3:
            return AgentReply("no idea", session="s-2", usage=used)
        case _:
            return AgentReply("42", session="s-3", usage=used)


def agent_of() -> Agent[int]:
    """An agent with a hard day."""
    return Agent("coder", "Count.", output=int, backend=FakeBackend([troubled] * 200))


@workflow
def day() -> Steps[Any]:
    """Two agents beside one another, and one after them in a session of its own."""
    agent = agent_of()
    both = yield from step("both").parallel(step("a").agent(agent), step("b").agent(agent).retry(2))
    last = yield from step("last").agent(agent).checkpoint()
    return [result.output for result in both], last.output


def jumping(journal: Journal) -> Executor:
    """An executor that waits for nothing in real time, and counts what is spent."""
    budget = Limits(budget=Budget(launches=500, tokens=100_000))
    return Executor(journal=journal, clock=JumpClock(), limits=budget)


def test_agents_survive_crashes(crash_everywhere: CrashEverywhere) -> None:
    """Killed at places spread over its record, the run ends as it would have."""
    told = crash_everywhere(day, executor=jumping, limit=IN_CI)
    assert told.crashes == IN_CI
    assert any("LadderStep" in record for record in told.records)
    assert any("BudgetSettled" in record for record in told.records)


@pytest.mark.soak
def test_agents_survive_every_crash_and_a_second_one(crash_everywhere: CrashEverywhere) -> None:
    """At every record, and once more while it is resumed."""
    told = crash_everywhere(day, executor=jumping, twice=True)
    assert told.left_out == 0


async def launches_of(killed_after: int | None) -> int:
    """How often an agent is launched whose answers never fit, in a step of three attempts, if its
    process dies after so many writes and another one goes on.
    """
    backend = FakeBackend(["?"] * 30)
    agent = Agent("count", "Count it.", output=int, backend=backend)

    @workflow
    def flow() -> Steps[Any]:
        return (yield from step("count").agent(agent).retry(3))

    journal = TextJournal(stop_at=killed_after)
    try:
        result = await jumping(journal).options(run_id="r").run(flow)
    except ProcessGone:
        result = await jumping(journal.reopened()).resume("r", flow)
    assert (result.status, result.step_results[0].attempts) == ("failed", 3)
    return len(backend.turns)


async def test_re_asks_are_multiplied_neither_by_retries_nor_by_crashes() -> None:
    """Wherever the process is killed, only the launch that was at work is made again."""
    assert await launches_of(None) == 5
    assert {await launches_of(writes) for writes in range(1, 22, 3)} == {5, 6}


def test_an_interrupted_step_goes_on_in_its_own_session_and_no_other_does() -> None:
    """The session that was recorded is resumed with the task; the step after it starts clean."""
    calls: list[AgentTurn] = []

    def die(turn: AgentTurn) -> Any:
        calls.append(turn)
        turn.emit(ev.AgentSessionStarted(turn.path, "s-1", "fake"))
        raise KeyboardInterrupt

    def answer(turn: AgentTurn) -> Any:
        calls.append(turn)
        return AgentReply("done", session="s-1")

    agent = Agent("coder", "Do it.", backend=FakeBackend([die, answer, answer]))

    @workflow
    def flow() -> Steps[str]:
        first = yield from step("first").agent(agent)
        yield from step("second").agent(agent)
        return first.output

    journal = TextJournal()
    executor = Executor(journal=journal)
    with pytest.raises(KeyboardInterrupt):
        executor.options(run_id="r").run_sync(flow)
    assert executor.resume_sync("r", flow).value == "done"
    assert [turn.session for turn in calls] == [None, "s-1", None]
    assert "You were interrupted" in calls[1].prompt
    assert calls[1].prompt.endswith("Do it.")


KILLED = """
import sys
from handrail import Executor, SqliteJournal, step, workflow

@workflow
def flow():
    yield from step("long").command("setsid sh -c 'echo > {begun}; kill -STOP $$' & wait")

Executor(journal=SqliteJournal({db!r})).options(run_id={run!r}).run_sync(flow)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="markers are read from /proc")
@pytest.mark.parametrize("does", ["resume", "cancel"])
def test_what_a_killed_process_left_running_is_ended_by_the_next_start(
    tmp_path: Path, does: str
) -> None:
    """A tool in a session of its own outlives SIGKILL of the run, and not its resume or cancelling.

    The tool says itself that it has begun, and then stands still: in an exec it has no environment
    for a moment, in which nobody knows whose it is. What is killed takes a while to be gone.
    """
    run = f"swept-{os.getpid()}-{tmp_path.name}"
    db, begun = tmp_path / "runs.db", tmp_path / "begun"
    code = KILLED.format(begun=begun, db=str(db), run=run)
    driver = subprocess.Popen([sys.executable, "-c", code])
    until(begun.exists, "the tool has begun")
    driver.kill()
    driver.wait()
    assert left_of(run)

    @workflow
    def flow() -> Steps[int]:
        yield from step("long").command("true")
        return 1

    try:
        executor = Executor(journal=SqliteJournal(db))
        if does == "resume":
            assert executor.resume_sync(run, flow, rerun=["long"]).value == 1
        else:
            result = executor.cancel_sync(run, workflow=flow)
            assert result is not None
            assert result.status == "cancelled"
        until(lambda: not left_of(run), "nothing of the run is left")
    finally:
        kill_marked(run)


@pytest.mark.skipif(sys.platform != "linux", reason="markers are read from /proc")
def test_a_run_of_the_same_id_in_another_journal_is_left_alone(tmp_path: Path) -> None:
    """What two projects call "nightly" are two runs: resuming one ends nothing of the other."""
    run = f"nightly-{os.getpid()}-{tmp_path.name}"

    @workflow
    def flow() -> Steps[str]:
        done = yield from step("mark").command(["sh", "-c", "echo $HANDRAIL_STEP"])
        return done.stdout.strip()

    marks = []
    for name in ("one", "two"):
        executor = Executor(journal=SqliteJournal(tmp_path / name / "runs.db"))
        marks.append(executor.options(run_id=run).run_sync(flow).unwrap())
    assert marks[0] != marks[1]
    assert all(mark.startswith(f"{run}@") for mark in marks)
    other = subprocess.Popen(["sleep", "60"], env={**os.environ, "HANDRAIL_STEP": marks[1]})
    try:
        executor = Executor(journal=SqliteJournal(tmp_path / "one" / "runs.db"))
        executor.resume_sync(run, flow, rerun=["mark"])
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def left_of(run_id: str) -> list[int]:
    """The processes that still carry a marker of this run."""
    return [pid for pid in live_pids() if carries(environ_of(pid), run_id, below=True)]
