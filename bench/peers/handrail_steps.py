"""handrail: a generator that yields steps, async and plain; recorded in an SQLite file."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

from common import report

from handrail import Executor, SqliteJournal, Steps, Workflow, step, workflow

Durability: TypeAlias = Literal["process", "power"]


async def one() -> int:
    """What each step does."""
    return 1


def plain() -> int:
    """The same as a plain function, which a thread calls."""
    return 1


def flow_of(function: Callable[[], Any]) -> Workflow[[int], int]:
    """So many steps, one after the other."""

    @workflow
    def flow(count: int) -> Steps[int]:
        total = 0
        for number in range(count):
            total += yield from step(f"s{number}").call(function)
        return total

    return flow


def memory(flow: Workflow[[int], int], count: int) -> None:
    """Recorded nowhere."""
    assert Executor().run_sync(flow, count).unwrap() == count


def durable(flow: Workflow[[int], int], durability: Durability, count: int) -> None:
    """Each step's start and end are in the file, or on disk, before the next begins."""
    with tempfile.TemporaryDirectory() as folder:
        journal = SqliteJournal(Path(folder) / "runs.db", durability=durability)
        assert Executor(journal=journal).run_sync(flow, count).unwrap() == count
        journal.close()


for kind, function in (("async", one), ("plain", plain)):
    flow = flow_of(function)
    report("handrail", partial(memory, flow), partial(durable, flow, "process"), of=kind)
    report("handrail", None, partial(durable, flow, "power"), of=f"{kind}, safe when power fails")
