"""A run of 500 steps whose processes are killed whenever it happens, on a real file."""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio.lowlevel
import pytest

from handrail import (
    CallbackSink,
    Executor,
    SqliteJournal,
    StepFailed,
    Steps,
    WorkflowResult,
    current,
    step,
    workflow,
)
from handrail.model import events as ev
from tests.durability.processes import PATIENCE_S, Child, Log, show

RUN = "run"
PARTS = 5
KILLS_IN_CI = 3
KILLS_IN_SOAK = 200
KILLS_AT_ONCE = 10
log: Log
"""Where this process leaves its traces."""


class Odd(Exception):
    """What some of these steps fail with."""


def note(*_: object) -> None:
    """Leave a trace of this attempt."""
    here = current()
    log.add("did", here.path, here.attempt)


async def work(part: int, item: int) -> dict[str, int]:
    """An effect and a value; one item of each part fails."""
    note()
    if item == 7:
        raise Odd(f"{part}: {item}")
    await anyio.lowlevel.checkpoint()
    return {"part": part, "item": item}


def in_a_thread(part: int) -> str:
    """An effect and a value, in a thread."""
    note()
    return f"part {part}"


async def flaky(part: int) -> int:
    """Fails twice."""
    note()
    if current().attempt < 3:
        raise Odd(f"attempt {current().attempt}")
    return part


async def broken() -> None:
    """Fails."""
    note()
    raise Odd("no")


@workflow
def one_part(part: int) -> Steps[tuple[Any, ...]]:
    """A hundred steps and more: side by side, in a window, tried again, and failed."""

    def two(item: int) -> Steps[int]:
        made = yield from step("make").call(work, part, item)
        more = yield from step("use").call(work, made["part"], item + 100)
        return made["item"] + more["item"]

    both = yield from step("both").parallel(
        step("thread").call(in_a_thread, part), step("flaky").call(flaky, part).retry(3, backoff=0)
    )
    each = yield from step("each").for_each(
        range(20), two, max_concurrency=6, on_error="continue", min_success=19
    )
    try:
        yield from step("try").call(broken)
    except StepFailed as failed:
        said = str(failed)
    row: list[dict[str, int]] = []
    for number in range(60):
        row += [(yield from step(f"row{number}").call(work, part, number + 200))]
    return both, [(one.status, one.output) for one in each], said, row


@workflow
def parts() -> Steps[list[Any]]:
    """About five hundred steps, in children."""
    values: list[Any] = []
    for part in range(PARTS):
        values += [(yield from step(f"part{part}").run_workflow(one_part, part)).unwrap()]
    return values


@dataclass(frozen=True)
class End:
    """What a run came to."""

    value: Any
    steps: list[tuple[Any, ...]]


def alarming(journal: SqliteJournal) -> list[str]:
    """The notices that cannot come from a kill in the middle of a write."""
    torn = ("not written to their end", "are no whole frames")
    return [one for one in journal.notices if not any(said in one for said in torn)]


def life(folder: Path) -> End:
    """One process: it begins the run or goes on with it."""
    global log  # noqa: PLW0603  # of this process alone
    log = Log(folder / "log")
    journal = SqliteJournal(folder / "runs.db")
    found = journal.events(RUN)
    log.add("begins", len(found))
    for _ in alarming(journal):
        log.add("notice")

    def tell(event: Any) -> None:
        if isinstance(event, ev.StepCompleted):
            log.add("told", event.path)

    # Processes die here more often than a step is given that brings its process down.
    executor = Executor(journal=journal, sinks=[CallbackSink(tell)], max_crashes=1_000)
    result: WorkflowResult[Any]
    if not found:
        result = executor.options(run_id=RUN).run_sync(parts)
    else:
        result = executor.resume_sync(RUN, parts)
    assert result.error is None, result.error
    steps = [(one.path, one.status, one.attempts, one.error) for one in result.step_results]
    return End(result.value, steps)


@dataclass
class Run:
    """A run and the processes that drove it. Mutable while it goes on."""

    folder: Path
    kills: int = 0
    end: End | None = None

    def live(self, seconds: float = PATIENCE_S) -> None:
        """One more process, that is killed after so much time unless it has ended."""
        with Child(lambda: life(self.folder)) as child:
            if child.ends_within(seconds):
                self.end = child.result()
            else:
                self.kills += 1


@dataclass
class Traces:
    """What one process left in the log. Mutable while it is read."""

    found: int
    did: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]])
    told: set[str] = field(default_factory=set[str])
    notices: int = 0


def traces(folder: Path) -> list[Traces]:
    """Those of each process in turn."""
    lives: list[Traces] = []
    for what, *said in Log(folder / "log").lines():
        match what:
            case "begins":
                lives.append(Traces(int(said[0])))
            case "did":
                lives[-1].did[said[0], int(said[1])] += 1
            case "told":
                lives[-1].told.add(said[0])
            case _:
                lives[-1].notices += 1
    return lives


def performed_again(folder: Path) -> int:
    """How many attempts were performed twice; assert that each was at work at a kill, and that
    nothing was lost that a process had told of.
    """
    journal = SqliteJournal(folder / "runs.db")
    history = journal.events(RUN)
    assert [one.seq for one in history] == list(range(1, len(history) + 1))
    assert alarming(journal) == []
    journal.close()
    begun: set[str] = set()
    attempts: set[tuple[str, int]] = set()
    seen, told, again = 0, set[str](), Counter[tuple[str, int]]()
    before: Counter[tuple[str, int]] = Counter()
    for one in traces(folder):
        for event in history[seen : one.found]:
            match event:
                case ev.StepStarted():
                    begun.add(event.path)
                case ev.AttemptFailed():
                    attempts.add((event.path, event.attempt))
                case ev.StepCompleted():
                    begun.remove(event.path)
                    told.discard(event.path)
                    attempts.update((event.path, n) for n in range(1, event.result.attempts + 1))
                case _:
                    pass
        seen = one.found
        assert not told, "a process had told of their end"
        assert not attempts.intersection(one.did), "it was recorded that they ended"
        repeated = one.did & before
        assert {path for path, _ in repeated} <= begun, "they were not at work"
        assert max(one.did.values(), default=1) == 1
        again += repeated
        before += one.did
        told |= one.told
    assert sum(one.notices for one in traces(folder)) == 0, "a kill was taken for damage"
    return again.total()


def test_a_run_is_killed_at_random_moments(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """However its processes were killed, it ends as without: nothing is lost, nothing that was
    recorded is done again.
    """
    prove(tmp_path, KILLS_IN_CI, 0, capfd)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, KILLS_IN_SOAK // KILLS_AT_ONCE + 1))
def test_a_run_is_killed_at_many_random_moments(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], seed: int
) -> None:
    """The same, often enough to hit what is rare."""
    prove(tmp_path, KILLS_AT_ONCE, seed, capfd)


def prove(folder: Path, kills: int, seed: int, capfd: pytest.CaptureFixture[str]) -> None:
    """Kill so many processes of as many runs as it takes, and look at each run."""
    draw = random.Random(seed)
    whole = Run(folder / "whole")
    whole.folder.mkdir()
    began = time.monotonic()
    whole.live()
    whole_s = time.monotonic() - began
    assert performed_again(whole.folder) == 0
    (alone,) = traces(whole.folder)
    assert whole.end is not None
    assert len(whole.end.steps) > 500
    killed = runs = twice = 0
    while killed < kills:
        runs += 1
        run = Run(folder / str(runs))
        run.folder.mkdir()
        planned = min(kills - killed, draw.randint(1, 8))
        while run.kills < planned and run.end is None:
            run.live(draw.uniform(0.0, whole_s))
        if run.end is None:
            run.live()
        assert run.end == whole.end
        twice += performed_again(run.folder)
        assert set[Any]().union(*(one.did for one in traces(run.folder))) == set(alone.did)
        killed += run.kills
        shutil.rmtree(run.folder)
    show(
        capfd,
        f"kill at random, seed {seed}: {killed} kills of {runs} runs of {len(whole.end.steps)} "
        f"steps ({whole_s:.2f} s each without); of {sum(alone.did.values()) * runs} effects "
        f"{twice} were at work at a kill and came twice",
    )
