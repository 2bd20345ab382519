"""A fork waits for no lock for ever: not the process that forks, not the child."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
from pathlib import Path
from typing import Any

from handrail import SqliteJournal
from handrail.sinks.background import BackgroundWriter
from tests.durability.processes import Child, result_of
from tests.system.test_threads import Executor, two_threads

COLLECTIONS = 200
"""More objects than the hooks of a fork make, in the parent and in the child."""


def garbage(path: Path) -> None:
    """A journal that was used, has threads, and which only the garbage collector can free."""
    journal: Any = SqliteJournal(path)
    assert Executor(journal=journal).run_sync(two_threads).success
    circle = [journal]
    circle.append(circle)


def fork_and_collect(folder: Path) -> int:
    """Fork while the collector frees a journal after so many objects; how many forks that were."""
    kept = SqliteJournal(folder / "kept.db")
    assert Executor(journal=kept).run_sync(two_threads).success
    for count in range(1, COLLECTIONS):
        gc.collect()
        gc.disable()
        garbage(folder / f"{count}.db")
        gc.set_threshold(gc.get_count()[0] + count, 1, 1)
        gc.enable()
        with Child(lambda: (gc.collect(), len(kept.runs()))[1]) as child:
            assert child.ends_within(20.0), f"after {count} objects the child waits for ever"
            assert child.result() == 1
    return COLLECTIONS


def test_the_collector_may_free_a_journal_at_any_moment_of_a_fork(tmp_path: Path) -> None:
    """Its finalizer waits for no lock that the fork has taken."""
    assert result_of(lambda: fork_and_collect(tmp_path)) == COLLECTIONS


def fork_in_threads(folder: Path) -> int:
    """Three threads fork, and leave journals to the collector; the status of all children."""
    os.setpgrp()
    statuses: list[int] = []

    def fork(name: str) -> None:
        for count in range(20):
            garbage(folder / f"{name}.{count}.db")
            child = os.fork()
            if not child:
                gc.collect()
                os._exit(0)
            statuses.append(os.waitpid(child, 0)[1])

    threads = [threading.Thread(target=fork, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(statuses) + sum(statuses)


def test_threads_may_fork_at_once(tmp_path: Path) -> None:
    """Two that fork do not wait for the locks that the other holds."""
    with Child(lambda: fork_in_threads(tmp_path)) as child:
        try:
            assert child.ends_within(60.0), "two threads wait for each other"
            assert child.result() == 60
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)


def test_a_child_writes_its_own_files_and_none_of_its_parents(tmp_path: Path) -> None:
    """What waited to be written is the parent's; the child has a thread of its own."""
    writer = BackgroundWriter()
    for number in range(50):
        writer.append(str(tmp_path / "file"), b"p%d\n" % number)

    def write() -> bool:
        writer.append(str(tmp_path / "file"), b"child\n")
        return writer.finish(20.0)

    assert result_of(write)
    assert writer.finish(20.0)
    lines = (tmp_path / "file").read_bytes().split()
    assert sorted(lines) == sorted([b"child", *(b"p%d" % number for number in range(50))])
