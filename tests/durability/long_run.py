"""A run of 100,000 steps, driven once by a process of its own, which prints what that took.

``python -m tests.durability.long_run SHAPE PATH``
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

from handrail import Executor, SqliteJournal, Step, Steps, WorkflowError, step, workflow
from handrail.model import events as ev
from handrail.record.reading import ended

STEPS = 100_000
IN_A_PART = 100
RUN = "run"
performed = 0
"""How many steps this process did."""


async def work(number: int) -> dict[str, Any]:
    """A small value, as steps give."""
    global performed  # noqa: PLW0603  # of this process alone
    performed += 1
    return {"number": number, "text": f"item {number}", "done": True}


@workflow
def row() -> Steps[None]:
    """One step after the other."""
    for number in range(STEPS):
        yield from step(f"step{number}").call(work, number)
    raise WorkflowError("the end")


def one(number: int) -> Step[dict[str, Any]]:
    """The step of an item."""
    return step("do").call(work, number)


@workflow
def group() -> Steps[None]:
    """One group of them all."""
    yield from step("all").for_each(range(STEPS), one, max_concurrency=16)
    raise WorkflowError("the end")


@workflow
def part(first: int) -> Steps[int]:
    """A child: half of its steps one by one, the others side by side."""
    half = first + IN_A_PART // 2
    for number in range(first, half):
        yield from step(f"step{number}").call(work, number)
    yield from step("rest").for_each(range(half, first + IN_A_PART), one, max_concurrency=8)
    return first


@workflow
def children() -> Steps[None]:
    """A thousand children."""
    for first in range(0, STEPS, IN_A_PART):
        yield from step(f"part{first}").run_workflow(part, first)
    raise WorkflowError("the end")


SHAPES = {"row": row, "group": group, "children": children}


def peak_kib() -> int:
    """The most memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main(shape: str, path: Path) -> dict[str, Any]:
    """Begin the run, or go on with it."""
    flow = SHAPES[shape]
    journal = SqliteJournal(path)
    executor = Executor(journal=journal)
    begun = path.exists()
    # What is imported on first use is no part of the run.
    Executor(journal=SqliteJournal(path.with_suffix(".warm"))).run_sync(part, 0)
    before = performed
    before_kib = peak_kib()
    began = time.perf_counter()
    if begun:
        result = executor.resume_sync(RUN, flow)
    else:
        result = executor.options(run_id=RUN).run_sync(flow)
    took_s = time.perf_counter() - began
    told = {
        "took_s": took_s,
        "memory_kib": peak_kib() - before_kib,
        "performed": performed - before,
    }
    history = journal.events(RUN)
    last = ended(history)
    return {
        **told,
        "status": result.status,
        "error": result.error,
        "results": sum(one.step_type == "python" for one in result.step_results),
        "replayed": sum(one.replayed for one in result.step_results),
        "ended": last is not None and last is history[-1],
        "resumed": sum(isinstance(one, ev.RunResumed) for one in history),
        "size_bytes": path.stat().st_size,
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]))))  # noqa: T201  # a test reads it
