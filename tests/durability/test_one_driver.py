"""One process drives a run: others are told who, and follow at once when it is dead."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from handrail import Executor, LeaseLost, RunLocked, SqliteJournal, Steps, step, workflow
from handrail.model import events as ev
from tests.durability.processes import Barrier, Child, Log, result_of, until

RUN = "run"
RACES_IN_CI = 3
RACES_IN_SOAK = 50
NEVER_S = 1e6
"""A lease that nobody waits for."""
folder = Path()


def hold() -> None:
    """Leave a trace, and go on once there is a file ``go``."""
    Log(folder / "log").add("hold", os.getpid())
    until((folder / "go").exists, "somebody lets it go")


def mark() -> None:
    """Leave a trace."""
    Log(folder / "log").add("mark", os.getpid())


@workflow
def holds() -> Steps[str]:
    """Hold the run for as long as the test likes."""
    yield from step("ask").ask("Begin?")
    yield from step("hold").call(hold)
    yield from step("mark").call(mark)
    return "done"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal with a run that waits for nothing any more, and that nobody drives."""
    global folder  # noqa: PLW0603  # of this process and those that it forks
    folder = tmp_path
    file = tmp_path / "runs.db"
    executor = Executor(journal=SqliteJournal(file))
    assert executor.options(run_id=RUN).run_sync(holds).status == "suspended"
    executor.answer_sync(RUN, "ask", "yes")
    return file


def resume(path: Path, barrier: Barrier | None = None) -> Any:
    """How the run ended in this process, or who drives it."""
    journal = SqliteJournal(path, lease_s=NEVER_S)
    executor = Executor(journal=journal)
    if barrier is not None:
        barrier.wait()
    try:
        return executor.resume_sync(RUN, holds).value
    except RunLocked as locked:
        return locked
    except LeaseLost as lost:
        return lost


def traces() -> list[list[str]]:
    """What the steps of all processes left."""
    return Log(folder / "log").lines()


def race(path: Path) -> None:
    """Two processes resume the run at the same moment."""
    barrier = Barrier()
    with contextlib.ExitStack() as stack:
        pair = [stack.enter_context(Child(lambda: resume(path, barrier))) for _ in range(2)]
        barrier.open(pair)
        until(lambda: any(child.ends_within(0) for child in pair), "one of them is refused")
        (loser,) = [child for child in pair if child.ends_within(0)]
        (holder,) = [child for child in pair if child is not loser]
        refused = loser.result()
        assert isinstance(refused, RunLocked)
        assert (refused.run_id, refused.pid) == (RUN, holder.pid)
        assert refused.host == os.uname().nodename
        assert 0 <= refused.age_s < 120
        for said in (str(holder.pid), refused.host):
            assert said in str(refused)
        (folder / "go").touch()
        assert holder.result() == "done"
    assert traces() == [["hold", str(holder.pid)], ["mark", str(holder.pid)]]


def test_of_two_that_resume_a_run_one_drives_it(path: Path) -> None:
    """The other is told the process, the host and since when, and does nothing."""
    race(path)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(RACES_IN_SOAK))
def test_of_two_that_resume_a_run_one_drives_it_every_time(path: Path, number: int) -> None:
    """The same, whoever is first."""
    del number
    race(path)


def test_a_run_whose_driver_was_killed_is_taken_over_at_once(path: Path) -> None:
    """Its lease has long to go, and nobody waits for that; what was at work begins again."""
    with Child(lambda: resume(path)) as dead:
        until(lambda: bool(traces()), "the first process holds the run")
        dead.kill()
        with Child(lambda: resume(path)) as heir:
            until(lambda: len(traces()) == 2, "the second process has it")
            (folder / "go").touch()
            assert heir.result() == "done"
    assert traces() == [
        ["hold", str(dead.pid)], ["hold", str(heir.pid)], ["mark", str(heir.pid)]
    ]  # fmt: skip


def test_a_killed_driver_that_its_parent_does_not_look_after_holds_nothing(path: Path) -> None:
    """It is dead although its number is still in the table of processes."""
    with Child(lambda: resume(path)) as zombie:
        until(lambda: bool(traces()), "the first process holds the run")
        zombie.send(signal.SIGKILL)
        assert zombie.ends_within(60)
        (folder / "go").touch()
        assert result_of(lambda: resume(path)) == "done"


def test_a_driver_that_is_stopped_keeps_the_run(path: Path) -> None:
    """A process under a debugger, or of a machine that sleeps, is not robbed."""
    with Child(lambda: resume(path)) as holder:
        until(lambda: bool(traces()), "the first process holds the run")
        holder.send(signal.SIGSTOP)
        refused = result_of(lambda: resume(path))
        holder.send(signal.SIGCONT)
        (folder / "go").touch()
        assert holder.result() == "done"
    assert isinstance(refused, RunLocked)
    assert refused.pid == holder.pid


def test_a_driver_that_lost_its_lease_records_nothing_more(path: Path) -> None:
    """It was taken for dead by another machine, which has the run now; its step's end is not
    believed, and the next step is not begun.
    """
    with Child(lambda: resume(path)) as first:
        until(lambda: bool(traces()), "the first process holds the run")
        first.send(signal.SIGSTOP)
        _let_it_look_like_another_machine_that_is_silent(path)
        with Child(lambda: resume(path)) as second:
            until(lambda: len(traces()) == 2, "the second process has the run")
            first.send(signal.SIGCONT)
            (folder / "go").touch()
            lost = first.result()
            assert second.result() == "done"
    assert isinstance(lost, LeaseLost)
    assert lost.pid in {second.pid, 0}  # 0: that one had ended by then
    assert [who for what, who in traces() if what == "mark"] == [str(second.pid)]
    journal = SqliteJournal(path)
    history = journal.events(RUN)
    journal.close()
    ends = [one.path for one in history if isinstance(one, ev.StepCompleted)]
    assert ends == ["ask", "hold", "mark"]
    assert isinstance(history[-1], ev.WorkflowCompleted)


def _let_it_look_like_another_machine_that_is_silent(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE leases SET host = 'elsewhere', boot = 'b', expires_at = 1")
