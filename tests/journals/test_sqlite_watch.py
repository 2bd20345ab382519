"""SqliteJournal: a file that is removed or replaced takes no event in silence."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from handrail.errors import JournalFailed
from handrail.journals.sqlite.journal import SqliteJournal
from handrail.model import events as ev
from handrail.model.results import WorkflowResult
from tests.journals.sqlite_support import answer, started, step, written


def remove_folder(path: Path) -> None:
    """What `git clean -fdx` does."""
    shutil.rmtree(path.parent)


def replace(path: Path) -> None:
    """Another journal in its place, as a copy that was put back is one."""
    other = path.with_name("other.db")
    written(other)
    other.replace(path)


def remove_log(path: Path) -> None:
    """Only the file that the newest events are in."""
    path.with_name("runs.db-wal").unlink()


def move(path: Path) -> None:
    """The whole folder, to another place."""
    path.parent.rename(path.parent.with_name("elsewhere"))


HARMS = {
    "the file was removed": remove_folder,
    "the file was replaced by another": replace,
    "its write-ahead log was removed": remove_log,
    "the file was removed ": move,
}
NAMES = [harm.__name__ for harm in HARMS.values()]
harms = pytest.mark.parametrize(("said", "harm"), HARMS.items(), ids=NAMES)
Harm = Callable[[Path], None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a journal is to be, in a folder of its own."""
    return tmp_path / "runs" / "runs.db"


def at(seconds: float, seq: int) -> ev.Event:
    """A step that ended then, as event number ``seq``."""
    return ev.stamp(step(seq), "r", seq, seconds)


@harms
@pytest.mark.parametrize("durability", ["process", "power"])
def test_the_next_write_says_what_happened_to_the_file(
    path: Path, said: str, harm: Harm, durability: str
) -> None:
    """Nothing is stored where nobody can find it, and nothing is made in its place."""
    journal = SqliteJournal(path, durability="power" if durability == "power" else "process")
    lease = journal.acquire("r")
    journal.append(started())
    harm(path)
    there = path.exists()
    for _ in range(2):
        with pytest.raises(
            JournalFailed, match=f"storing event 2 of run r failed: {said}"
        ) as caught:
            journal.append(at(1e9, 2))
    with pytest.raises(JournalFailed, match=said):
        journal.letters("r", 0)
    lease.release()
    journal.close()
    assert "start the run again" in str(caught.value)
    assert path.exists() == there


@harms
@pytest.mark.parametrize("at_s", [1.0, 1e9])
def test_no_drive_ends_well_without_a_record(
    path: Path, said: str, harm: Harm, at_s: float
) -> None:
    """The end of a drive is not stored in silence, however soon it comes and whatever its clock."""
    journal = SqliteJournal(path)
    journal.acquire("r")
    journal.append(started())
    harm(path)
    result = WorkflowResult("w", "r", "succeeded")
    with pytest.raises(JournalFailed, match=said):
        journal.append(ev.stamp(ev.WorkflowCompleted(result), "r", 2, at_s))
    journal.close()


@harms
@pytest.mark.parametrize("loop", ["asyncio", pytest.param("trio", marks=pytest.mark.extra("trio"))])
def test_a_sync_says_it_too(path: Path, said: str, harm: Harm, loop: str) -> None:
    """What must survive a loss of power is not said to, when its file is gone."""

    async def synced() -> None:
        journal = SqliteJournal(path)
        journal.acquire("r")
        for seq in range(1, 3):
            stored = journal.append(started() if seq == 1 else step(seq), sync=True)
            if stored is not None:
                await stored
            if seq == 1:
                harm(path)
                journal._store.look_at = 1e12  # no write looks

    with pytest.raises(JournalFailed, match=said):
        anyio.run(synced, backend=loop)


@harms
def test_it_is_noticed_though_no_write_looks(path: Path, said: str, harm: Harm) -> None:
    """A thread looks, too; so a clock that stands still is no way past it."""
    journal = SqliteJournal(path)
    journal.acquire("r")
    journal.append(started())
    journal._store.look_at = 1e12
    harm(path)
    journal._store.checkpoint_thread.wake()
    looking = threading.Event()
    for _ in range(1_000):  # it looks once a second
        if journal._store.writer is None or looking.wait(0.01):
            break
    with pytest.raises(JournalFailed, match=said):
        journal.append(step(2))
    journal.close()


@pytest.mark.parametrize("harm", [remove_folder, move])
def test_a_journal_that_nobody_writes_is_begun_anew(path: Path, harm: Harm) -> None:
    """Without a lease of the old file, the next call finds what is there now."""
    journal = SqliteJournal(path)
    lease = journal.acquire("r")
    journal.append(started())
    harm(path)
    lease.release()
    assert not path.exists()
    assert journal.runs() == []
    lease = journal.acquire("r")
    journal.append(started())
    journal.append(at(1e9, 2))
    lease.release()
    journal.close()
    assert [info.events for info in SqliteJournal(path).runs()] == [2]


def test_what_another_put_there_is_read(path: Path) -> None:
    """A journal that is only read shows the file that has its name now."""
    journal = SqliteJournal(path)
    assert journal.runs() == []
    move(path)
    written(path)
    events = journal.events("r")
    journal.close()
    assert len(events) == 40


def test_other_files_of_the_folder_may_go(path: Path) -> None:
    """Only the journal's own files matter."""
    journal = SqliteJournal(path)
    lease = journal.acquire("r")
    journal.append(started())
    other = path.with_name("notes.txt")
    other.write_text("")
    other.unlink()
    journal.append(at(1e9, 2))
    journal.post(answer("x"))
    lease.release()
    journal.close()
    assert len(SqliteJournal(path).events("r")) == 2


def test_a_fork_is_no_removal(path: Path) -> None:
    """All connections are closed for a fork, and the log with them; the lease is good still."""
    journal = SqliteJournal(path)
    lease = journal.acquire("r")
    journal.append(started())
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    journal.append(at(1e9, 2))
    journal.append(at(1e9 + 1, 3))
    lease.release()
    journal.close()
    assert len(SqliteJournal(path).events("r")) == 3
