"""Search for the settings with which SQLite takes rows the fastest, until nothing better is found.

    python examples/fastest.py [ROWS]
    handrail run examples/fastest.py --input rows=2000
    handrail work RUN --add '4096x500={"page_size": 4096, "batch": 500}'

Each trial is measured here, for real. What to try next is said by an agent that is shown the trial;
here a function of this file answers for it, so that no model is needed.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from handrail import (
    Agent,
    AgentReply,
    AgentTurn,
    ConsoleSink,
    Executor,
    Found,
    Steps,
    Task,
    Work,
    plateau,
    step,
    workflow,
)


@dataclass(frozen=True)
class Settings:
    """What is tried: bytes in a page of the file, rows in a transaction, and rows in all."""

    page_size: int
    batch: int
    rows: int = 1000

    @property
    def id(self) -> str:
        """As the id of a task."""
        return f"{self.page_size}x{self.batch}"


class Neighbours:
    """A backend that proposes less and more of each setting, within what SQLite can do."""

    name = "neighbours"

    async def complete(self, turn: AgentTurn, /) -> AgentReply:
        """The settings beside those of the trial, as JSON."""
        tried: Settings = turn.context["settings"]
        pages = [tried.page_size * 2, tried.page_size // 2]
        batches = [tried.batch * 4, tried.batch // 4]
        beside = [replace(tried, page_size=size) for size in pages if 512 <= size <= 65536]
        beside += [replace(tried, batch=batch) for batch in batches if 1 <= batch <= 4096]
        return AgentReply(json.dumps([asdict(one) for one in beside]), model=self.name)


tuner = Agent(
    "tuner",
    "{{ settings }} took {{ seconds }} s. Which settings are to be tried next?",
    output=list[Settings],
    backend=Neighbours(),
)


@workflow(description="Search for the fastest settings of SQLite, and report what was found")
def fastest(rows: int = 1000, patience: int = 6) -> Steps[str]:
    """A table of all trials, the fastest first."""
    start = Settings(4096, 16, rows)
    found = yield from step("search").work(
        [Task(start.id, start)], trial, max_concurrency=1, at_most=40, stop=plateau(patience)
    )
    return (yield from step("report").call(report, found))


def trial(task: Task) -> Steps[Found[float]]:
    """Measure, and ask what to try next: sooner what is beside a fast one."""
    settings: Settings = task.payload
    seconds = yield from step("measure").call(measure, settings)
    answer = yield from step("propose").agent(tuner, {"settings": settings, "seconds": seconds})
    return Found(seconds, [Task(one.id, one, priority=seconds) for one in answer.output])


def measure(settings: Settings) -> float:
    """Seconds that it takes to add the rows to a new file: the best of three times."""
    with tempfile.TemporaryDirectory() as folder:
        return min(insert(Path(folder) / f"{n}.db", settings) for n in range(3))


def insert(path: Path, settings: Settings) -> float:
    """Seconds that it takes to add the rows to this file."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size = {settings.page_size}")
        connection.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, text TEXT)")
        began = time.perf_counter()
        for first in range(0, settings.rows, settings.batch):
            last = min(first + settings.batch, settings.rows)
            connection.execute("BEGIN")
            values = ((number, "x" * 100) for number in range(first, last))
            connection.executemany("INSERT INTO rows VALUES (?, ?)", values)
            connection.execute("COMMIT")
        return time.perf_counter() - began


def report(found: Work[float]) -> str:
    """All trials as a table in Markdown, and why no more were made."""
    if not found.done:
        raise RuntimeError(f"no trial could be measured: {found.failed[0].error}")
    ranked = sorted(found.done, key=lambda one: one.value)
    lines = [f"| {one.id} | {one.value * 1000:.1f} | {one.parent or ''} |" for one in ranked]
    head = ["| page size x batch | ms | found beside |", "|---|---|---|"]
    why = found.why_stopped or "nothing is left to try"
    return "\n".join([*head, *lines, "", f"{len(ranked)} trials; {why}."])


if __name__ == "__main__":
    given = [int(sys.argv[1])] if len(sys.argv) > 1 else []
    print(Executor(sinks=[ConsoleSink()]).run_sync(fastest, *given).unwrap())
