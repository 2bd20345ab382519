"""One journal, many executors and threads: leases belong to runs, and the last user closes it."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail import Executor, RunLocked, SqliteJournal, Steps, step, workflow
from handrail.model import events as ev
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
