"""handrail: a generator that yields async steps; recorded in an SQLite file."""

from __future__ import annotations

import tempfile
from pathlib import Path

from common import report

from handrail import Executor, SqliteJournal, Steps, step, workflow


async def one() -> int:
    """What each step does."""
    return 1


@workflow
def flow(count: int) -> Steps[int]:
    """So many steps, one after the other."""
    total = 0
    for number in range(count):
        total += yield from step(f"s{number}").call(one)
    return total


def memory(count: int) -> None:
    """Recorded nowhere."""
    assert Executor().run_sync(flow, count).unwrap() == count


def durable(count: int) -> None:
    """Each step's start and end are in the file before the next begins."""
    with tempfile.TemporaryDirectory() as folder:
        journal = SqliteJournal(Path(folder) / "runs.db")
        assert Executor(journal=journal).run_sync(flow, count).unwrap() == count
        journal.close()


report("handrail", memory, durable)
