"""``handrail worker``: what is due is driven, by one of several, and suspended when they end."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest

from handrail import SqliteJournal
from handrail.cli.exits import Exit
from handrail.ports.journal import RunInfo
from handrail.record.inbox import runs_of
from handrail.record.status import shown_status
from tests.cli.conftest import Cli
from tests.cli.machines import LEASE_S, Machine, pause, until

FLOW = f"""\
import os, signal, time
from pathlib import Path
from handrail import Executor, SqliteJournal, current, step, workflow

HERE = Path(__file__).parent
journal = SqliteJournal(HERE / ".handrail" / "runs.db", lease_s={LEASE_S})
executor = Executor(journal=journal, suspend_timers_after_s=0.5)


def work(name):
    with (HERE / "effects").open("a") as file:
        file.write(f"{{name}} {{os.environ['MACHINE']}}\\n")
    if name == "b" and not (HERE / "died").exists():
        (HERE / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)


def hold(name):
    work(name)
    while not (HERE / "go").exists():
        time.sleep(0.02)


@workflow
def flow():
    for name in ("a", "b", "c"):
        yield step(name).call(work, name)
    yield step("go?").ask("go?", choices=["yes"])
    yield step("d").call(work, "d")


@workflow
def holds(name: str = "held"):
    yield step("hold").call(hold, name)
    yield step("mark").call(work, f"after {{name}}")


@workflow
def days():
    for day in range(4):
        yield step(f"work{{day}}").call(work, f"day{{day}}")
        yield step(f"night{{day}}").sleep(1.0)


@workflow
def naps():
    yield step("nap").sleep(1.5)


@workflow
def signalled():
    yield step("deploy").wait_for("deployed")


@workflow
def asked():
    yield step("ask").ask("Well?", choices=["yes", "no"], default="no", timeout=1.5)


def fail(name):
    work(name)
    raise RuntimeError("no\\nroom")


@workflow
def fails():
    yield step("fail").call(fail, "b")


@workflow
def ticks(word: str):
    yield step("tick").call(work, word)
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A project with workflows, and an executor whose leases soon end."""
    (tmp_path / "flow.py").write_text(FLOW)
    (tmp_path / "pyproject.toml").write_text('[tool.handrail]\nexecutor = "flow.py:executor"\n')
    return tmp_path


@pytest.fixture
def here(home: Path) -> Generator[Machine]:
    """The machine on which it is."""
    with Machine(home, "here") as machine:
        yield machine


def run_in(home: Path, run_id: str) -> RunInfo | None:
    """How a run is listed."""
    if not (home / ".handrail" / "runs.db").exists():
        return None
    journal = SqliteJournal(home / ".handrail" / "runs.db")
    try:
        return next((one for one in runs_of(journal) if one.run_id == run_id), None)
    finally:
        journal.close()


def stands(home: Path, run_id: str, state: str) -> bool:
    """True if a run is in this state."""
    info = run_in(home, run_id)
    return info is not None and shown_status(info) == state


def effects(home: Path) -> list[str]:
    """What was done, in order."""
    file = home / "effects"
    lines = file.read_text("utf-8").splitlines() if file.exists() else []
    return [line.rpartition(" ")[0] for line in lines]


def driver(home: Path, run_id: str) -> int:
    """The process that drives a run; the test itself is on another machine, as they see it."""
    with contextlib.closing(sqlite3.connect(home / ".handrail" / "runs.db")) as connection:
        words = "SELECT pid FROM leases WHERE run_id = ?"
        return int(connection.execute(words, (run_id,)).fetchone()[0])


def test_two_workers_drive_each_run_once(home: Path, here: Machine, cli: Cli) -> None:
    """A driver is killed, and a gate is answered."""
    assert here.do("run", "flow.py:flow", "--run-id", "r") == -signal.SIGKILL
    for _ in range(2):
        here.begin("worker")
    until(lambda: stands(home, "r", "suspended"))
    assert cli("answer", "r", "go?", "yes").code == 0
    until(lambda: stands(home, "r", "succeeded"))
    assert effects(home) == ["a", "b", "b", "c", "d"]


def test_what_is_at_work_when_a_worker_is_killed_or_stopped(home: Path, here: Machine) -> None:
    """A driver outlives its worker, and is left alone by the next one, also while it is stopped for
    longer than its lease: on one machine it is seen that it lives.
    """
    worker = here.begin("worker")
    killed = here.begin("run", "flow.py:holds", "--run-id", "r")
    until(lambda: "held" in effects(home))
    killed.kill()
    killed.wait()
    until(lambda: effects(home).count("held") == 2)
    worker.kill()
    worker.wait()
    others = [here.begin("worker") for _ in range(2)]
    pid = driver(home, "r")
    os.kill(pid, signal.SIGSTOP)
    until(lambda: sum("resumes runs that are due" in line for line in here.told()) == 3)
    pause(LEASE_S * 3)
    assert (effects(home).count("held"), driver(home, "r")) == (2, pid)
    (home / "go").touch()
    os.kill(pid, signal.SIGCONT)
    until(lambda: stands(home, "r", "succeeded"))
    assert effects(home) == ["held", "held", "after held"]
    assert all(other.poll() is None for other in others)


def test_a_machine_that_froze_can_write_nothing_more(home: Path, here: Machine) -> None:
    """Its runs go on elsewhere once their leases are over; when it goes on, it is told so."""
    with Machine(home, "there") as there:
        assert here.do("run", "flow.py:flow", "--run-id", "q") == -signal.SIGKILL
        (home / "effects").unlink()
        begun = here.begin("run", "flow.py:holds", "--run-id", "r")
        until(lambda: effects(home) == ["held"])
        begun.kill()
        begun.wait()
        here.begin("worker")
        until(lambda: effects(home).count("held") == 2)
        first = driver(home, "r")
        here.freeze(home / ".handrail" / "runs.db")
        there.begin("worker")
        until(lambda: effects(home).count("held") == 3, "another worker")
        (home / "go").touch()
        until(lambda: stands(home, "r", "succeeded"))
        assert effects(home).count("after held") == 1
        here.thaw()
        begins = f"run r: process {first} could not continue: run r was taken over by"
        until(lambda: any(line.startswith(begins) for line in here.told()), "word of it")
        until(lambda: first not in here.processes())
        assert effects(home).count("after held") == 1


def test_a_laptop_that_is_off_each_night_gets_its_work_done(home: Path) -> None:
    """All is killed each night, and in the morning a worker is begun, and nothing else."""
    with Machine(home, "day") as day:
        day.begin("run", "flow.py:days", "--run-id", "r", "--detach").wait()
        until(lambda: "day0" in effects(home))
    for count in range(1, 4):
        with Machine(home, f"day{count}") as day:
            day.begin("worker")
            until(functools.partial(lambda one: one in effects(home), f"day{count}"))
    with Machine(home, "sunday") as day:
        day.begin("worker")
        until(lambda: stands(home, "r", "succeeded"))
    done = Counter(effects(home))
    assert sorted(done) == [f"day{count}" for count in range(4)]
    assert max(done.values()) <= 2


def test_what_time_and_people_bring(home: Path, here: Machine, cli: Cli) -> None:
    """A timer, a deadline, a signal, an answer: each run goes on, whose process has long gone; and
    one that is paused does not.
    """
    for name in ("naps", "signalled", "asked"):
        assert cli("run", f"flow.py:{name}", "--run-id", name).code == Exit.SUSPENDED
    assert cli("run", "flow.py:signalled", "--run-id", "paused").code == Exit.SUSPENDED
    assert cli("pause", "paused").code == 0
    worker = here.begin(
        "worker", "--max-runs", "1", "--notify", "echo $HANDRAIL_REASON $HANDRAIL_RUN_ID >> told"
    )
    until(lambda: stands(home, "naps", "succeeded") and stands(home, "asked", "succeeded"))
    for name in ("signalled", "paused"):
        assert cli("signal", name, "deployed").code == 0
    until(lambda: stands(home, "signalled", "succeeded"))
    assert not stands(home, "paused", "succeeded")
    assert cli("unpause", "paused").code == 0
    until(lambda: stands(home, "paused", "succeeded"))
    worker.terminate()
    assert worker.wait(30) == 0
    told = (home / "told").read_text("utf-8").splitlines()
    ended = [line.split()[1] for line in told if line.startswith("succeeded ")]
    assert sorted(ended) == ["asked", "naps", "paused", "signalled"]


def test_it_suspends_all_that_is_at_work(home: Path, here: Machine) -> None:
    """At SIGTERM, in order; the next one goes on with it."""
    begun: list[subprocess.Popen[bytes]] = []
    for one in "abc":
        words = [f"--input=name=h{one}", "--run-id", f"r{one}"]
        begun.append(here.begin("run", "flow.py:holds", *words))
    until(lambda: sorted(effects(home)) == ["ha", "hb", "hc"])
    for process in begun:
        process.kill()
        process.wait()
    worker = here.begin("worker", "--max-runs", "2")
    until(lambda: len(effects(home)) == 5)
    worker.terminate()
    assert worker.wait(30) == 0
    assert len([line for line in here.told() if "suspended, to be resumed later" in line]) == 2
    assert not here.processes()
    (home / "go").touch()
    here.begin("worker")
    until(lambda: all(stands(home, f"r{one}", "succeeded") for one in "abc"))
    done = Counter(effects(home))
    assert [done[f"after h{one}"] for one in "abc"] == [1, 1, 1]


def test_a_run_that_cannot_be_driven_is_told_of_once(home: Path, here: Machine) -> None:
    """It is not tried again and again, and somebody is told what is wrong, by any worker once."""
    assert here.do("run", "flow.py:flow", "--run-id", "r") == -signal.SIGKILL
    flow = home / "flow.py"
    flow.write_text(FLOW.replace("call(work, name)", "call(work, name + name)"))
    words = ["worker", "--notify", "echo $HANDRAIL_REASON $HANDRAIL_TEXT >> stuck"]
    here.begin(*words)
    until((home / "stuck").exists)
    here.begin(*words)
    until(lambda: [line for line in here.told() if "could not be resumed" in line][1:])
    pause(1)
    said = (home / "stuck").read_text().splitlines()
    assert len(said) == 1
    assert said[0].startswith("person the code no longer matches the record: step 'a'")
    assert len([line for line in here.told() if "could not be resumed" in line]) == 2
    assert effects(home) == ["a", "b"]


def test_instants_of_a_schedule_are_begun_once_by_two_workers(home: Path, here: Machine) -> None:
    """Each has a run of its own, with its inputs; a question of it is told of, as of others."""
    with (home / "pyproject.toml").open("a") as file:
        file.write(
            'notify = "echo $HANDRAIL_REASON $HANDRAIL_RUN_ID >> noted"\n'
            '[[tool.handrail.schedule]]\nworkflow = "flow.py:ticks"\ncron = "*/2 * * * * *"\n'
            'inputs = { word = "tock" }\noverlap = "start"\n'
        )
    workers = [here.begin("worker") for _ in range(2)]
    until(lambda: len(effects(home)) >= 2)
    for worker in workers:
        worker.terminate()
    assert [worker.wait(30) for worker in workers] == [0, 0]
    assert set(effects(home)) == {"tock"}
    journal = SqliteJournal(home / ".handrail" / "runs.db")
    runs = [one for one in journal.runs() if shown_status(one) == "succeeded"]
    assert len(runs) == len(effects(home)) >= 2
    assert {one.labels["schedule"] for one in runs} == {"ticks"}
    noted = sorted(line.split() for line in (home / "noted").read_text().splitlines())
    assert noted == sorted(["succeeded", one.run_id] for one in runs)
    begun = [line for line in here.told() if "started for" in line]
    assert len({line.split()[1] for line in begun}) >= 2
    journal.close()


def test_a_schedule_whose_code_is_broken_holds_up_nothing_else(home: Path, here: Machine) -> None:
    """The worker says so, resumes what is due, and begins runs once the code can be imported."""
    assert here.do("run", "flow.py:naps", "--run-id", "r") == Exit.SUSPENDED
    (home / "broken.py").write_text("1 / 0\n")
    with (home / "pyproject.toml").open("a") as file:
        file.write(
            '[[tool.handrail.schedule]]\nworkflow = "broken.py:ticks"\ncron = "* * * * * *"\n'
            'inputs = { word = "tock" }\n'
        )
    here.begin("worker")
    until(lambda: stands(home, "r", "succeeded"))
    (said,) = [line for line in here.told() if "[[tool.handrail.schedule]] 'ticks': " in line]
    assert "broken.py:1: ZeroDivisionError: division by zero" in said
    assert "cannot start" in said
    until(lambda: any("could not be resumed" in line for line in here.told()))
    (home / "broken.py").write_text("from flow import ticks\n")
    until(lambda: "tock" in effects(home))


def test_a_worker_says_why_a_run_failed(home: Path, here: Machine, cli: Cli) -> None:
    """In one line; and makes no folder that somebody mistyped."""
    assert here.do("run", "flow.py:fails", "--run-id", "r") == -signal.SIGKILL
    assert cli("worker", "--dir", "nowhere").code == Exit.USAGE
    assert not (home / "nowhere").exists()
    here.begin("worker")
    until(lambda: stands(home, "r", "failed"))
    said = "run r: failed: step 'fail' failed: RuntimeError: no room"
    until(lambda: said in here.told())


def test_a_unit_for_systemd(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Systemd reads each word as it was typed here; where it is installed, it says so itself."""
    odd = tmp_path / "a b$c%d"
    odd.mkdir()
    monkeypatch.chdir(odd)
    monkeypatch.setenv("HANDRAIL_DIR", str(odd / "e"))
    done = cli("worker", "--print-systemd", "--notify", 'echo "$HANDRAIL_TEXT" 50%', "--max-runs=3")
    assert done.code == 0
    lines = done.out.splitlines()
    path = str(odd).replace("%", "%%")
    assert f"WorkingDirectory={path}" in lines
    assert f'Environment="HANDRAIL_DIR={path}/e"' in lines
    assert 'worker "--max-runs" 3 "--notify" "echo \\"$$HANDRAIL_TEXT\\" 50%%"' in done.out
    assert "KillMode=mixed" in lines
    if shutil.which("systemd-analyze") is not None:
        unit = odd / "handrail-worker.service"
        unit.write_text(done.out)
        words = ["systemd-analyze", "verify", "--man=no", str(unit)]
        said = subprocess.run(words, capture_output=True, text=True, check=False)
        assert str(unit.name) not in said.stderr, said.stderr
