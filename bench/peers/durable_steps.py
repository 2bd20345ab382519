"""python-durable: a workflow function that awaits tasks; its SQLite store."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from common import report
from durable import Workflow
from durable.store import InMemoryStore, SQLiteStore


def run(count: int, store: Any = None) -> None:
    """So many tasks, one after the other."""
    made = Workflow("bench", db=store or InMemoryStore())

    @made.task
    async def one() -> int:
        return 1

    @made.workflow(id="{count}")
    async def flow(count: int) -> int:
        return sum([await one(step_id=str(number)) for number in range(count)])

    assert asyncio.run(flow(count=count)) == count


def durable(count: int) -> None:
    """Each task's output is in the file before the next begins."""
    with tempfile.TemporaryDirectory() as folder:
        run(count, SQLiteStore(str(Path(folder) / "durable.db")))


report("python-durable", run, durable, 200)
