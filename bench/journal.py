"""What a journal on disk costs, against SQLite itself in the same run."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import anyio
import msgspec

from bench.measure import Row, cores_busy, interleaved, ratio
from bench.steps import Nothing, action, hand_offs, inline_action, inlined, steps_of
from handrail import Executor, SqliteJournal, Steps, Workflow, WorkflowError, step, workflow
from handrail.model.events import Event, StepStarted
from handrail.steps.fingerprint import matches

STEPS = 2000
SYNCED = 1000
REPLAYED = 5000
LONG = 30_000
REPLAY = 1.0
"""What it may cost to read a recorded step, decode it and compare its fingerprint, in steps in
memory of the same run.
"""
RESUME = 1.2
"""The same of all that a resume does for it: it also runs the body, which builds the step, indexes
the record by path, sends the result and shows it.

Two fifths of it are to read two rows: to fetch them is one, and none may be left out, since the
checksum of each covers the one before; their checksums and events are the other.
"""
MANY = 10_000
FORK = 1.1
"""What a fork may cost, in resumes of the same record: it reads it, and copies its rows. It is
about 1.0, and of 100,000 steps 0.9.
"""
AT_MOST_MS = 500.0
"""What it may take to ask anything of a journal of ``MANY`` runs."""
STEP = 1.7
"""What a journaled step may cost, in two inserts of its bytes."""
THREADED, BUSY = 1.5, 1.3
"""What a recorded step of a plain function may cost, in a hand-off to a thread and two inserts; and
how much more of them while other processes keep the cores busy.
"""
MEMBERS, WINDOW = 3000, 8
CHAIN = 1.2
"""What a step without effects outside may cost when it is synced, in such steps that are not."""
SYNCED_STEP = 1.25
"""What one that is synced may cost, in synced inserts of its bytes."""
SYNCED_MORE_US = 60.0
"""Or that much more than one: on a quick disk a third of an insert is less than the engine."""
ONCE = 2.6
MEMBER, SYNCED_MEMBER = 2.0, 4.0
"""What a member of a durable group may cost, in inserts of its bytes by a task each, committed
together.
"""
LARGE = 1.2
"""What an output of 1 MiB of JSON may cost, in what it takes to encode and insert it."""


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A folder of its own for one measurement."""
    with tempfile.TemporaryDirectory(prefix="handrail-bench-") as name:
        yield Path(name)


def run_journaled(
    flow: Workflow[[], int], durability: Literal["process", "power"] = "process"
) -> None:
    """One run with its journal in a new file."""
    with folder() as where:
        journal = SqliteJournal(where / "runs.db", durability=durability)
        result = Executor(journal=journal, sinks=[Nothing()]).run_sync(flow)
        assert result.success, result.error


def row_bytes(count: int) -> int:
    """How many bytes the two records of one step have, numbers and checksums not counted."""
    with folder() as where:
        Executor(journal=SqliteJournal(where / "runs.db")).run_sync(steps_of(count))
        connection = sqlite3.connect(where / "runs.db")
        (total,) = connection.execute(
            "SELECT sum(length(kind) + length(path) + length(body) + length(coalesce(value, ''))) "
            "FROM events"
        ).fetchone()
        connection.close()
    return int(total) // count


@contextlib.contextmanager
def raw_table(synchronous: Literal["NORMAL", "FULL"]) -> Iterator[sqlite3.Connection]:
    """A table in a new file."""
    with folder() as where:
        connection = sqlite3.connect(where / "raw.db", isolation_level=None)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={synchronous}")
        connection.execute("CREATE TABLE raw (seq INTEGER PRIMARY KEY, body TEXT)")
        yield connection
        connection.close()


def run_raw(count: int, size: int, synchronous: Literal["NORMAL", "FULL"]) -> None:
    """That many inserts of that many bytes, each its own transaction."""
    body = "x" * size
    with raw_table(synchronous) as connection:
        for seq in range(count):
            connection.execute("INSERT INTO raw VALUES (?, ?)", (seq, body))


class Timed:
    """A journal that notes how long the longest append kept the loop."""

    def __init__(self, journal: SqliteJournal) -> None:
        self._journal = journal
        self.longest_s = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def append(self, event: Event, /, *, sync: bool = False) -> Awaitable[None] | None:
        """Append, on the clock."""
        began = time.perf_counter()
        pending = self._journal.append(event, sync=sync)
        self.longest_s = max(self.longest_s, time.perf_counter() - began)
        return pending

    def append_all(
        self, events: Sequence[Event], /, *, sync: bool = False
    ) -> Awaitable[None] | None:
        """The same for several."""
        began = time.perf_counter()
        pending = self._journal.append_all(events, sync=sync)
        self.longest_s = max(self.longest_s, time.perf_counter() - began)
        return pending


def longest_stall_s(flow: Workflow[[], int]) -> float:
    """The longest time that one append kept the loop in a long run."""
    with folder() as where:
        journal = Timed(SqliteJournal(where / "runs.db"))
        result = Executor(journal=journal, sinks=[Nothing()]).run_sync(flow)
        assert result.success, result.error
        return journal.longest_s


def resumable(count: int, where: Path) -> Callable[[], None]:
    """A function that replays that many recorded steps, and nothing else."""

    @workflow
    def flow() -> Steps[int]:
        total = 0
        for number in range(count):
            total += yield from step(f"s{number}").call(action)
        raise WorkflowError(f"stopped at {total}")

    executor = Executor(journal=SqliteJournal(where / "runs.db"), sinks=[Nothing()])
    executor.options(run_id="r").run_sync(flow)

    def replay() -> None:
        result = executor.resume_sync("r", flow)
        assert result.status == "failed"
        assert all(one.replayed for one in result.step_results)

    return replay


def readable(count: int, where: Path) -> Callable[[], None]:
    """A function that reads that many recorded steps, and compares each with what it is now."""
    flow = steps_of(count)
    journal = SqliteJournal(where / "read.db")
    Executor(journal=journal).options(run_id="r").run_sync(flow)
    now = {f"s{number}": step(f"s{number}").call(action) for number in range(count)}

    def read() -> None:
        events = journal.events("r")
        begun = [event for event in events if type(event) is StepStarted]
        assert len(begun) == count
        assert all(matches(one.fingerprint, now[one.path], journal.codec) for one in begun)

    return read


def in_memory(flow: Workflow[[], int]) -> None:
    """One run that is recorded nowhere."""
    assert Executor(sinks=[Nothing()]).run_sync(flow).success


def fan_out(
    count: int, function: Callable[[], Any] = action, window: int | None = None
) -> Workflow[[], int]:
    """A group of that many members."""

    @workflow
    def flow() -> Steps[int]:
        done = yield from step("each").for_each(
            range(count), lambda _: step("s").call(function), max_concurrency=window
        )
        return len(done)

    return flow


def large_values(count: int, size: int) -> list[Any]:
    """Values that are as large as that as JSON, and all different: rows of a few fields."""

    def row(number: int, index: int) -> dict[str, Any]:
        return {
            "id": index, "name": f"file-{number}-{index}.py", "ok": True, "score": index / 7,
            "tags": ["a", "b", f"t{index % 13}"], "note": None, "lines": [index, index + 3],
        }  # fmt: skip

    rows = size // len(msgspec.json.encode([row(0, 1000)]))
    return [{"rows": [row(number, index) for index in range(rows)]} for number in range(count)]


LARGE_VALUES: list[Any] = []
"""Not held by the action: what an action holds is compared before and after it."""


async def large(number: int) -> Any:
    """One of them."""
    return LARGE_VALUES[number]


def large_outputs(values: list[Any]) -> Workflow[[], int]:
    """Steps with these outputs."""
    LARGE_VALUES[:] = values

    @workflow
    def flow() -> Steps[int]:
        for number in range(len(LARGE_VALUES)):
            yield from step(f"s{number}").call(large, number)
        return len(LARGE_VALUES)

    return flow


def run_raw_large(values: list[Any]) -> None:
    """These values encoded and inserted, each its own transaction."""
    with raw_table("NORMAL") as connection:
        for seq, value in enumerate(values):
            text = msgspec.json.encode(value).decode()
            connection.execute("INSERT INTO raw VALUES (?, ?)", (seq, text))


def run_raw_members(count: int, size: int) -> None:
    """That many tasks that insert that many bytes each, committed together, a turn of the loop."""

    async def run(connection: sqlite3.Connection) -> None:
        waiting: list[anyio.Event] = []
        body = "x" * size

        async def member(seq: int) -> None:
            if not waiting:
                connection.execute("BEGIN")
                tasks.start_soon(commit)
            connection.execute("INSERT INTO raw VALUES (?, ?)", (seq, body))
            done = anyio.Event()
            waiting.append(done)
            await done.wait()

        async def commit() -> None:
            connection.execute("COMMIT")
            for done in waiting:
                done.set()
            waiting.clear()

        async with anyio.create_task_group() as tasks:
            for seq in range(count):
                tasks.start_soon(member, seq)

    with raw_table("NORMAL") as connection:
        anyio.run(run, connection)


def rows(rounds: int) -> list[Row]:
    """The rows of the journal, of its stalls and of replay."""
    return [
        *_journaled(rounds),
        *_synced(max(2, rounds // 3)),
        _stall(rounds),
        *_replay(rounds),
        *_history(max(2, rounds // 5)),
    ]


def _journaled(rounds: int) -> list[Row]:
    flow = steps_of(STEPS)
    size = row_bytes(STEPS)
    base, ours = interleaved(
        rounds, lambda: run_raw(2 * STEPS, size // 2, "NORMAL"), lambda: run_journaled(flow)
    )
    return [
        ratio("journaled step, process-crash safe", "two raw inserts", base, ours, STEP, STEPS),
        *_threaded(max(2, rounds // 3), size),
        *_members(max(2, rounds // 5)),
        _large(max(2, rounds // 5)),
    ]


def _threaded(rounds: int, size: int) -> list[Row]:
    """Steps of a plain function, one after the other and in a group, idle and busy."""

    def by_hand() -> None:
        hand_offs(MEMBERS)
        run_raw(2 * MEMBERS, size // 2, "NORMAL")

    flows = steps_of(MEMBERS, inline_action), fan_out(MEMBERS, inline_action, WINDOW)
    measured = partial(
        interleaved, rounds, by_hand, *(partial(run_journaled, one) for one in flows)
    )
    idle, *ours = measured()
    with cores_busy():
        busy, *ours_busy = measured()
    names = "journaled step of a plain def", "a journaled member of it, 8 at once"
    found = []
    for name, one, crowded in zip(names, ours, ours_busy, strict=True):
        found.append(ratio(name, "a hand-off, two raw inserts", idle, one, THREADED, MEMBERS))
        share = crowded / busy / (one / idle)
        row = ratio("the same, all cores busy", "", busy, crowded, BUSY, MEMBERS, "x idle's ratio")
        found.append(replace(row, value=share))
    return found


def _members(rounds: int) -> list[Row]:
    many, size = fan_out(MANY), 2 * row_bytes(STEPS)
    base, process, power = interleaved(
        rounds,
        lambda: run_raw_members(MANY, size),
        lambda: run_journaled(many),
        lambda: run_journaled(many, "power"),
    )
    of = "insert by a task, committed together"
    return [
        ratio("durable member of 10,000", of, base, process, MEMBER, MANY),
        ratio('the same, durability="power"', of, base, power, SYNCED_MEMBER, MANY),
    ]


def _large(rounds: int) -> Row:
    values = large_values(40, 1 << 20)
    flow = large_outputs(values)
    base, ours = interleaved(rounds, lambda: run_raw_large(values), lambda: run_journaled(flow))
    return ratio("output of 1 MiB of JSON", "encode and insert", base, ours, LARGE, 40)


def _synced(rounds: int) -> list[Row]:
    flow, chain = steps_of(SYNCED), inlined(SYNCED)
    checkpoint = steps_of(SYNCED, modified=lambda bare: bare.checkpoint())
    once = steps_of(SYNCED, modified=lambda bare: bare.once())
    size = row_bytes(SYNCED)
    base, one, power, two, normal, chained = interleaved(
        rounds,
        lambda: run_raw(SYNCED, size, "FULL"),
        lambda: run_journaled(checkpoint),
        lambda: run_journaled(flow, "power"),
        lambda: run_journaled(once),
        lambda: run_journaled(chain),
        lambda: run_journaled(chain, "power"),
    )
    most = max(SYNCED_STEP, 1 + SYNCED_MORE_US / (base / SYNCED * 1e6))
    of, not_synced = "raw insert, synchronous=FULL", 'durability="process"'
    return [
        ratio("journaled step, .checkpoint()", of, base, one, most, SYNCED),
        ratio('journaled step, durability="power"', of, base, power, most, SYNCED),
        ratio("journaled step, .once()", of, base, two, ONCE, SYNCED),
        ratio("power-safe chain of .inline()", not_synced, normal, chained, CHAIN, SYNCED),
    ]


def _stall(rounds: int) -> Row:
    flow = steps_of(LONG)
    longest = min(longest_stall_s(flow) for _ in range(max(1, rounds // 5)))
    return Row(
        "longest stall by the journal, 30,000 steps",
        "",
        0.0,
        longest * 1e6,
        longest * 1e3,
        10.0,
        "ms",
    )


def forkable(count: int, where: Path) -> tuple[Callable[[], None], Callable[[], None]]:
    """Functions that resume a run of so many recorded steps, and that fork it before the last."""
    resume = resumable(count, where)
    executor = Executor(journal=SqliteJournal(where / "runs.db"), sinks=[Nothing()])

    def fork() -> None:
        executor.fork_sync("r", at=f"s{count - 1}")

    return resume, fork


def of_many(count: int, where: Path) -> list[Callable[[], Any]]:
    """Functions that list so many runs, fork and compare two of them, and let a hundred go."""
    flow = steps_of(3)
    journal = SqliteJournal(where / "many.db")
    executor = Executor(journal=journal, sinks=[Nothing()])

    async def make() -> None:
        async with executor:
            for number in range(count):
                await executor.options(run_id=f"r{number}").run(flow)

    anyio.run(make)
    return [
        journal.runs,
        lambda: executor.fork_sync(f"r{count - 1}", at="s1"),
        lambda: executor.diff_sync(f"r{count - 1}", f"r{count - 2}"),
        lambda: journal.prune(keep_last=len(journal.runs()) - 100),
    ]


def _history(rounds: int) -> list[Row]:
    with folder() as where:
        resumed, forked = interleaved(rounds, *forkable(REPLAYED, where))
    with folder() as where:
        took = interleaved(rounds, *of_many(MANY, where))
    names = ("list", "fork one of", "compare two of", "let go a hundred of")
    return [
        ratio("fork of a run, a recorded step", "resume of it", resumed, forked, FORK, REPLAYED)
    ] + [
        Row(f"{name} {MANY:,} runs", "", 0.0, one * 1e6, one * 1e3, AT_MOST_MS, "ms")
        for name, one in zip(names, took, strict=True)
    ]


def _replay(rounds: int) -> list[Row]:
    flow = steps_of(REPLAYED)
    with folder() as where:
        memory, read, resumed = interleaved(
            rounds,
            lambda: in_memory(flow),
            readable(REPLAYED, where),
            resumable(REPLAYED, where),
        )
    of = "in-memory step"
    return [
        ratio("replay: read, decode, fingerprint", of, memory, read, REPLAY, REPLAYED),
        ratio("resume, all of it, a recorded step", of, memory, resumed, RESUME, REPLAYED),
    ]
