"""One journal, many executors and threads: leases belong to runs, and the last user closes it."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail import Executor, RunLocked, SqliteJournal, Steps, step, workflow
from handrail.journals.sqlite.rows import PIECE
from handrail.model import events as ev
from handrail.model.results import StepResult
from tests.journals.sqlite_support import step as sqlite_step
from tests.journals.sqlite_support import written
from tests.leftovers import journal_threads


@workflow
def quick() -> Steps[Any]:
    """Two steps."""
    yield from step("a").call(int)
    yield from step("b").call(int)


def held(file: Path) -> list[str]:
    """The runs whose lease a process has, as another process sees it."""
    with contextlib.closing(sqlite3.connect(file)) as connection:
        rows = connection.execute("SELECT run_id FROM leases WHERE pid IS NOT NULL")
        return [run_id for (run_id,) in rows]


async def test_an_executor_that_has_nothing_to_run_gives_back_no_lease_of_another(
    tmp_path: Path,
) -> None:
    """The run of the first goes on, alone, while the second comes and goes."""
    before = journal_threads()
    journal = SqliteJournal(tmp_path / "runs.db")
    first, second = Executor(journal=journal), Executor(journal=journal)
    go_on, begun, performed = anyio.Event(), anyio.Event(), list[str]()

    async def act() -> None:
        performed.append("x")
        begun.set()
        await go_on.wait()

    @workflow
    def slow() -> Steps[Any]:
        yield from step("x").call(act)
        yield from step("y").call(int)

    results: list[Any] = []

    async def run_slow() -> None:
        results.append(await first.options(run_id="slow").run(slow))

    async with anyio.create_task_group() as group:
        group.start_soon(run_slow)
        await begun.wait()
        assert (await second.run(quick)).success
        assert await second.plan("slow", slow)
        async with second:
            pass
        assert held(tmp_path / "runs.db") == ["slow"]
        with pytest.raises(RunLocked):
            await Executor(journal=SqliteJournal(tmp_path / "runs.db")).resume("slow", slow)
        go_on.set()
    assert (results[0].status, performed) == ("succeeded", ["x"])
    assert held(tmp_path / "runs.db") == []
    assert journal_threads() <= before


def test_many_threads_run_on_one_executor_and_on_many(tmp_path: Path) -> None:
    """As a WSGI application does: nobody loses a lease, nothing is done twice, all is closed."""
    journal = SqliteJournal(tmp_path / "runs.db")
    shared = Executor(journal=journal)
    performed: dict[str, int] = {}
    errors: list[BaseException] = []

    def act(name: str) -> None:
        performed[name] = performed.get(name, 0) + 1
        time.sleep(0.002)  # noqa: TID251  # a thread that works

    @workflow
    def flow(name: str) -> Steps[Any]:
        yield from step("a").call(act, f"{name} a")
        yield from step("b").call(act, f"{name} b").checkpoint()

    def work(number: int) -> None:
        try:
            for turn in range(8):
                executor = shared if number % 2 else Executor(journal=journal)
                result = executor.run_sync(flow, f"{number} {turn}")
                assert result.success, result.error
        except BaseException as error:  # noqa: BLE001  # told by the test's own thread
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)
    assert errors == []
    assert set(performed.values()) == {1}
    assert len(performed) == 8 * 8 * 2
    assert held(tmp_path / "runs.db") == []
    infos = journal.runs()
    assert {info.status for info in infos} == {"succeeded"}
    journal.close()


def test_the_first_use_may_be_in_several_threads_at_once(tmp_path: Path) -> None:
    """A new process whose first requests come together."""
    program = """
        import sys, threading
        import handrail

        def one(number):
            try:
                from handrail import Executor, SqliteJournal, step, workflow

                @workflow(name=f"flow{number}")
                def flow():
                    yield from step("a").command(["true"])

                barrier.wait()
                assert Executor(journal=journal).run_sync(flow).success
            except BaseException as error:
                print(type(error).__name__, error, flush=True)

        journal = handrail.SqliteJournal("runs.db")
        barrier = threading.Barrier(6)
        threads = [threading.Thread(target=one, args=(n,)) for n in range(6)]
        [t.start() for t in threads]
        [t.join() for t in threads]
    """
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.stdout, done.returncode) == ("", 0), done.stderr


def test_a_journal_whose_name_is_a_link_is_synced_as_any_other(tmp_path: Path) -> None:
    """The log lies beside the file, not beside the link: it is found, synced, and looked at."""
    (tmp_path / "data").mkdir()
    link, file = tmp_path / "runs.db", tmp_path / "data" / "runs.db"
    link.symlink_to(file)
    journal = SqliteJournal(link, durability="power")
    assert journal.path == file
    synced: list[bool] = []
    wal = journal._store.wal
    sync = wal._sync  # it says what was synced; no other place does

    def note() -> None:
        sync()
        synced.append(wal._fd >= 0)

    wal._sync = note  # type: ignore[method-assign]
    Executor(journal=journal).run_sync(quick)
    assert synced
    assert all(synced)
    other = SqliteJournal(file)
    assert other.identity == journal.identity
    assert isinstance(other.events(other.runs()[0].run_id)[-1], ev.WorkflowCompleted)
    other.close()


# -- a run that is read in pieces ------------------------------------------------------------------


MEANWHILE = list[Callable[[], object]]()
"""What the next ``Hook`` that is made, or read, calls."""


@dataclass
class Hook:
    """An output by which a test gets its turn while a run is read."""

    def __post_init__(self) -> None:
        if MEANWHILE:
            MEANWHILE.pop()()


def long_run(path: Path) -> list[ev.Event]:
    """Write a run of 2,000 events, of which the 1,500th has a hook; returns them."""
    events = written(path, 1499)
    hooked = StepResult("s", "s", "python", "succeeded", Hook())
    events.append(ev.stamp(ev.StepCompleted("s", hooked), "r", 1500, 1500.0))
    events += (sqlite_step(seq) for seq in range(1501, 2001))
    journal = SqliteJournal(path)
    journal.append_all(events[1499:])
    journal.close()
    return events


@pytest.mark.parametrize("count", [PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 2 * PIECE + 1])
def test_a_run_of_any_length_reads_as_it_was_written(tmp_path: Path, count: int) -> None:
    """Whole, and from any of its events on."""
    events = written(tmp_path / "runs.db", count)
    journal = SqliteJournal(tmp_path / "runs.db")
    assert journal.events("r") == events
    for after in (1, abs(count - PIECE), count - 1, count):
        assert journal.events_after("r", after) == events[after:]
    assert journal.events_after("r", count + 1) is None
    journal.close()


def test_others_use_the_journal_while_a_long_run_is_read(tmp_path: Path) -> None:
    """A thread that reads a run does not lock the messages of the event loop out."""
    events = long_run(tmp_path / "runs.db")
    journal = SqliteJournal(tmp_path / "runs.db")
    reads, go_on, found = threading.Event(), threading.Event(), list[object]()

    def wait() -> None:
        reads.set()
        assert go_on.wait(10)

    MEANWHILE.append(wait)
    reading = threading.Thread(target=lambda: found.extend(journal.events("r")), daemon=True)
    reading.start()
    assert reads.wait(10)
    other = threading.Thread(target=lambda: journal.letters("r", 0), daemon=True)
    other.start()
    other.join(5)
    assert not other.is_alive()
    go_on.set()
    reading.join(30)
    assert found == events
    journal.close()


@pytest.mark.parametrize("size", [10, 40_000])
def test_a_run_that_is_removed_while_it_is_read_is_not_there(tmp_path: Path, size: int) -> None:
    """Its rows that are gone by then are no damage; a run of its name is read instead."""
    path = tmp_path / "runs.db"
    events = [*long_run(path), sqlite_step(2001, text="x" * size)]
    other, journal = SqliteJournal(path), SqliteJournal(path)
    other.append(events[-1])
    assert journal.events("r") == events
    MEANWHILE.append(lambda: other.prune(statuses=["dead"]))
    assert journal.events("r") == []
    other.append_run(events)

    def replace() -> None:
        other.prune(statuses=["dead"])
        other.append_run(events[:3])

    MEANWHILE.append(replace)
    assert journal.events("r") == events[:3]
    journal.close()
    other.close()
