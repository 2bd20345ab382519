"""What the tests of SqliteJournal share: events, and processes of their own."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from handrail.journals.sqlite.journal import SqliteJournal
from handrail.model import events as ev
from handrail.model.results import StepResult
from handrail.ports.journal import Letter

PRELUDE = """
import os, sys, time
from handrail.errors import *
from handrail.journals.sqlite.journal import SqliteJournal
from tests.journals.sqlite_support import *
path = sys.argv[1]
"""


def started(run_id: str = "r", seq: int = 1) -> ev.Event:
    """The first event of a run."""
    return ev.stamp(ev.WorkflowStarted("w", {"n": 1}, {"team": "a"}), run_id, seq, 1.0)


def step(seq: int, run_id: str = "r", text: str = "") -> ev.Event:
    """A step that ended with a text, as event number ``seq``."""
    result = StepResult(f"s{seq}", f"s{seq}", "python", "succeeded", text or f"output {seq}")
    return ev.stamp(ev.StepCompleted(f"s{seq}", result), run_id, seq, float(seq))


def answer(text: str, key: str = "", run_id: str = "r") -> Letter:
    """A letter that answers the gate ``g``."""
    return Letter(ev.stamp(ev.GateAnswered("g", text), run_id, 0, 1.0), key)


def written(path: Path, count: int = 40, run_id: str = "r") -> list[ev.Event]:
    """The events of a run that was written to a journal, which is closed again."""
    journal = SqliteJournal(path)
    lease = journal.acquire(run_id)
    events = [started(run_id), *(step(seq, run_id) for seq in range(2, count + 1))]
    for event in events:
        assert journal.append(event) is None
    lease.release()
    journal.close()
    return events


def change_file(path: Path, statement: str, *values: object) -> None:
    """Change what is in the file of a journal, as no journal would."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, values)


def child(code: str, *arguments: object, before: Sequence[str] = ()) -> subprocess.Popen[str]:
    """A Python process that runs the code, after ``PRELUDE``; its output is a pipe."""
    source = PRELUDE + textwrap.dedent(code)
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        [*before, sys.executable, "-c", source, *map(str, arguments)],
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output_of(process: subprocess.Popen[str]) -> str:
    """What a child printed, once it has ended well."""
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out


def open_files(folder: Path) -> list[str]:
    """The files below a folder that this process has open."""
    found = []
    for fd in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # what listed them is gone by now
            found.append(str(fd.readlink()))
    return [name for name in found if name.startswith(str(folder))]
