"""``handrail worker``: what is due is driven, by one of several, and suspended when they end."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from handrail import SqliteJournal
from handrail.record.inbox import runs_of
from handrail.record.view import state_of

FLOW = """\
import os, signal, time
from pathlib import Path
from handrail import step, workflow

HERE = Path(__file__).parent


def work(name):
    with (HERE / "effects").open("a") as file:
        file.write(name + "\\n")
    if name == "b" and not (HERE / "died").exists():
        (HERE / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)


def long():
    (HERE / "long").touch()
    time.sleep(60)


@workflow
def flow():
    for name in ("a", "b", "c"):
        yield step(name).call(work, name)
    yield step("go?").ask("go?", choices=["yes"])
    yield step("d").call(work, "d")


@workflow
def endless():
    yield step("long").call(long)
"""


def handrail(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    """A command in the folder; what it tells is appended to a file."""
    with (folder / "told").open("a") as told:
        return subprocess.Popen(
            [sys.executable, "-m", "handrail", *words],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=told,
        )


def until(condition: Callable[[], bool]) -> None:
    """Wait for it."""
    end = time.monotonic() + 40
    while not condition():
        assert time.monotonic() < end
        subprocess.run(["sleep", "0.1"], check=True)


def test_two_workers_drive_each_run_once(tmp_path: Path) -> None:
    """A driver is killed, a gate is answered, and both workers are told to end."""
    (tmp_path / "flow.py").write_text(FLOW)
    assert handrail(tmp_path, "run", "flow.py:flow", "--run-id", "r").wait() == -signal.SIGKILL
    workers = [handrail(tmp_path, "worker") for _ in range(2)]
    journal = SqliteJournal(tmp_path / ".handrail" / "runs.db")

    def stands(run_id: str, state: str) -> bool:
        return any(one.run_id == run_id and state_of(one) == state for one in runs_of(journal))

    try:
        until(lambda: stands("r", "suspended"))
        assert handrail(tmp_path, "answer", "r", "go?", "yes").wait() == 0
        until(lambda: stands("r", "succeeded"))
        assert (tmp_path / "effects").read_text().split() == ["a", "b", "b", "c", "d"]
        killed = handrail(tmp_path, "run", "flow.py:endless", "--run-id", "e")
        until((tmp_path / "long").exists)
        killed.kill()
        killed.wait()
        (tmp_path / "long").unlink()
        until((tmp_path / "long").exists)
        for worker in workers:
            worker.terminate()
        assert [worker.wait(30) for worker in workers] == [0, 0]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert stands("e", "suspended")
    journal.close()
