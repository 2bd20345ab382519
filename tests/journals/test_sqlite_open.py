"""SqliteJournal: one process opens or reads it while another makes, writes or leaves it."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from handrail.errors import JournalDamaged, JournalFailed
from handrail.journals.sqlite import open as sqlite_open
from handrail.journals.sqlite import store as sqlite_store
from handrail.journals.sqlite.journal import SqliteJournal
from tests.journals.sqlite_support import started, step

OPENING = {sqlite_open.__file__}
READING = {sqlite_open.__file__, sqlite_store.__file__}
LOCKED = {"_create", "check_schema", "has_tables", "make_tables"}
"""What runs within a transaction, where no other can write."""


def interrupted(
    files: set[str], moment: int, others: Callable[[], object], action: Callable[[], object]
) -> bool:
    """Do it, with what others do before that line of those files; False if it has fewer lines."""
    lines = itertools.count()
    come = False

    def trace(frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        nonlocal come
        if frame.f_code.co_filename not in files or frame.f_code.co_name in LOCKED:
            return None
        if event == "line" and not come and next(lines) == moment:
            come = True
            sys.settrace(None)
            others()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return come


@pytest.mark.parametrize("leaves", [True, False], ids=["a log", "none"])
@pytest.mark.parametrize("new", [True, False], ids=["new", "old"])
def test_another_may_write_while_it_is_opened(tmp_path: Path, new: bool, leaves: bool) -> None:
    """At whatever line of opening another process makes the journal or goes on with it, and goes or
    stays: it is whole, and nothing of it was cut off.
    """
    for moment in itertools.count():
        path = tmp_path / str(moment) / "runs.db"
        other = SqliteJournal(path)
        if not new:
            other.append(started())
            other.close()

        def write(other: SqliteJournal = other) -> None:
            if new:
                other.append(started())
            other.append(step(2))
            if not leaves:
                other.close()

        def opened(path: Path = path) -> None:
            sqlite_open.open_journal(path, pytest.fail).close()

        come = interrupted(OPENING, moment, write, opened)
        if come:
            assert other.events("r") == [started(), step(2)]
        other.close()
        if not come:
            break
    assert moment > 30


def test_another_may_write_while_it_is_read_as_unchanging(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may not write a journal, and reads it without its locks, takes no change of others
    for damage.
    """
    reading = False
    monkeypatch.setattr(sqlite_store, "is_read_only", lambda _: reading)
    path, seqs = tmp_path / "runs.db", iter(range(2, 42))

    def write() -> None:
        nonlocal reading
        reading = False
        journal = SqliteJournal(path)
        lease = journal.acquire("r")
        for seq in itertools.islice(seqs, 20):
            journal.append(step(seq, text="x" * 300))
        lease.release()
        journal.close()
        reading = True

    def read() -> None:
        assert len(reader.events("r")) in (21, 41)
        assert [run.events for run in reader.runs()] in ([21], [41])

    journal = SqliteJournal(path)
    journal.append(started())
    write()
    journal.close()
    image = path.read_bytes()
    for moment in itertools.count():
        path, seqs = tmp_path / f"{moment}.db", iter(range(22, 42))
        path.write_bytes(image)
        reader = SqliteJournal(path)
        come = interrupted(READING, moment, write, read)
        assert len(reader.events("r")) == (41 if come else 21)
        reader.close()
        if not come:
            break
    assert moment > 60


def test_a_journal_that_never_stands_still_is_said_to_be_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no damage; what is damaged is, whoever writes beside it."""
    journal = SqliteJournal(path)
    journal.append(started())
    journal.close()
    monkeypatch.setattr(sqlite_store, "READ_AGAIN_S", 0.0)
    monkeypatch.setattr(sqlite_store, "is_read_only", lambda _: True)
    times = itertools.count(1)
    state = sqlite_open.state
    with monkeypatch.context() as patch:
        patch.setattr(sqlite_store, "state", lambda path: (*state(path)[:3], next(times)))
        reader = SqliteJournal(path)
        with pytest.raises(JournalFailed, match="and others did each time") as raised:
            reader.runs()
        assert not isinstance(raised.value, JournalDamaged)
    assert [run.events for run in reader.runs()] == [1]
    reader.close()
    path.write_bytes(path.read_bytes()[:-4096])
    with pytest.raises(JournalDamaged):
        SqliteJournal(path).runs()


@pytest.mark.parametrize("inside", [".handrail", "data"])
def test_git_ignores_the_folder_that_a_journal_makes_of_that_name(
    tmp_path: Path, inside: str
) -> None:
    """As the command's; a folder of another name is the user's own, and so is one that exists."""
    for home, there in ((tmp_path / "a", False), (tmp_path / "b", True)):
        folder = home / inside
        if there:
            folder.mkdir(parents=True)
        journal = SqliteJournal(folder / "runs.db")
        journal.acquire("r").release()
        journal.close()
        assert (folder / ".gitignore").exists() is (inside == ".handrail" and not there)
