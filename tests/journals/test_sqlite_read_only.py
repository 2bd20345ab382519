"""SqliteJournal: a journal that may not be written can be read, and nothing of it is changed."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from handrail.journals.sqlite import store as sqlite_store
from handrail.journals.sqlite.journal import SqliteJournal
from handrail.journals.sqlite.open import is_read_only
from tests.journals.sqlite_support import child, output_of, step, written

AS_NOBODY = """
from handrail.system.owners import boot
boot()  # what Python loads for it may lie where nobody can read
if os.getuid() == 0:
    os.setgid(65534), os.setuid(65534)
"""
READING = """
journal = SqliteJournal(path)
try:
    print([(info.run_id, info.events) for info in journal.runs()], len(journal.events("r")))
    print(journal.letters("r", 0))
    for write in (lambda: journal.append(step(41)), lambda: journal.acquire("r")):
        try:
            write()
        except JournalFailed as error:
            print(error)
except JournalFailed as error:
    print(error)
journal.close()
"""
WRITING = """
journal = SqliteJournal(path)
journal.acquire("r")
journal.append(step(41))
print("written", flush=True)
sys.stdin.read()
"""


def killed_in_the_middle(path: Path) -> None:
    """A log is left, with an event in it, and the index beside it."""
    written(path)
    writer = child(WRITING, path)
    assert writer.stdout is not None
    writer.stdout.readline()
    writer.kill()
    writer.communicate(timeout=60)


def log_without_index(path: Path) -> None:
    """What a copy of the two files looks like, say."""
    killed_in_the_middle(path)
    path.with_name("runs.db-shm").unlink()


def said_of(path: Path) -> list[str]:
    """What a process reads that may not write the files, nor beside them."""
    folder = path.parent
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    for file in folder.iterdir():
        file.chmod(0o444)
    folder.chmod(0o555)
    said = output_of(child(AS_NOBODY + READING, path)).splitlines()
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    folder.chmod(0o755)
    return said


@pytest.fixture
def path() -> Iterator[Path]:
    """Where a journal is to be, in a folder of its own that nobody may enter, too."""
    with tempfile.TemporaryDirectory(prefix="handrail-test-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder) / "runs" / "runs.db"


@pytest.mark.parametrize(("leave", "events"), [(written, 40), (killed_in_the_middle, 41)])
def test_it_is_read_and_not_changed(
    path: Path, leave: Callable[[Path], object], events: int
) -> None:
    """Runs, events and letters are there, from a log too; what writes is refused as ever."""
    leave(path)
    assert said_of(path)[:2] == [f"[('r', {events})] {events}", "[]"]


def test_what_writes_is_refused(path: Path) -> None:
    """Each time it is said why, and what to change."""
    written(path)
    said = said_of(path)[2:]
    assert len(said) == 2
    for line in said:
        assert "failed: the file, or its folder, is read-only for this user. " in line
        assert "Change the permissions" in line


def test_a_log_that_cannot_be_read_is_said(path: Path) -> None:
    """Without its last events it is not shown; the way out is named."""
    log_without_index(path)
    (said,) = said_of(path)
    assert "its last events are in runs.db-wal, left by a process that died" in said
    assert "Copy its folder to where you may write" in said


def test_what_others_write_meanwhile_is_seen(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that may not write follows those who may."""
    written(path)
    monkeypatch.setattr(sqlite_store, "is_read_only", lambda _: True)
    reader = SqliteJournal(path)
    assert len(reader.events("r")) == 40
    monkeypatch.setattr(sqlite_store, "is_read_only", lambda _: False)
    writer = SqliteJournal(path)
    lease = writer.acquire("r")
    writer.append(step(41))
    monkeypatch.setattr(sqlite_store, "is_read_only", lambda _: True)
    assert len(reader.events("r")) == 41
    lease.release()
    writer.close()
    assert len(reader.events("r")) == 41
    reader.close()


def test_a_name_that_a_uri_takes_for_its_own_is_no_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blanks and the signs `?`, `#` and `%` are part of the name."""
    path = tmp_path / "a b?mode=rw#%41.db"
    written(path)
    monkeypatch.setattr(sqlite_store, "is_read_only", lambda _: True)
    journal = SqliteJournal(path)
    assert len(journal.events("r")) == 40
    journal.close()
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_only_a_file_that_is_there_is_read_only(path: Path) -> None:
    """What is not there is made, or it is said why not."""
    assert not is_read_only(path)
    written(path)
    assert not is_read_only(path)
