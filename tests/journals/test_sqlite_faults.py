"""SqliteJournal: what fails is said, is not half-stored, and can go on when the cause is gone."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
import threading
from pathlib import Path

import pytest

from handrail.errors import JournalDamaged, JournalFailed
from handrail.journals.sqlite import open as sqlite_open
from handrail.journals.sqlite.journal import SqliteJournal
from tests.journals.sqlite_support import (
    answer,
    change_file,
    child,
    open_files,
    output_of,
    started,
    step,
    written,
)


def may_mount() -> bool:
    """True if a child of ours can have a file system of its own."""
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "-rm", "mount", "-t", "tmpfs", "-o", "size=64k", "none", "/mnt"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("durability", ["process", "power"])
def test_a_killed_process_loses_nothing_that_was_stored(path: Path, durability: str) -> None:
    """After SIGKILL every event is there whose append had returned, and the run can go on."""
    process = child(
        """
        import asyncio
        async def main():
            journal = SqliteJournal(path, durability=sys.argv[2])
            journal.acquire("r")
            for seq in range(1, 100_000):
                stored = journal.append(step(seq) if seq > 1 else started())
                if stored is not None:
                    await stored
                os.write(1, b"%d\\n" % seq)
        asyncio.run(main())
        """,
        path,
        durability,
    )
    assert process.stdout is not None
    said = [process.stdout.readline() for _ in range(300)]
    process.kill()
    said += process.stdout.read().splitlines()
    process.communicate(timeout=60)
    acknowledged = int(said[-1])
    journal = SqliteJournal(path)
    found = journal.events("r")
    lease = journal.acquire("r")  # at once: its holder is dead
    journal.append(step(len(found) + 1))
    lease.release()
    journal.close()
    assert process.returncode == -signal.SIGKILL
    assert found == [started(), *(step(seq) for seq in range(2, len(found) + 1))]
    assert len(found) in (acknowledged, acknowledged + 1)
    for notice in journal.notices:  # the kill fell between the header of a frame and its page
        assert "the last 1 of " in notice
        assert "or not written to their end by a killed process" in notice


LIMITED = """
import resource
def fill():
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
def empty():
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
"""
FULL = """
import subprocess
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", os.path.dirname(path)], check=True)
filler = path + ".filler"
def fill():
    with open(filler, "wb") as file:
        file.write(bytes(1_700_000))
def empty():
    os.unlink(filler)
"""
FILLING = """
fill()
journal = SqliteJournal(path)
lease = journal.acquire("r")
seq = 0
try:
    while True:
        journal.append(step(seq + 1) if seq else started())
        seq += 1
except JournalFailed as error:
    said = error
reader = {"read": journal, "open": SqliteJournal(path)}.get(sys.argv[2])
before = len(reader.events("r")) if reader else seq
try:
    journal.append(step(seq + 1))
    raise SystemExit("it is not full")
except JournalFailed:
    pass
empty()
for more in range(seq + 1, seq + 20):
    assert journal.append(step(more)) is None
lease.release()
events = journal.events("r")
journal.close()
assert events == [started(), *(step(n) for n in range(2, seq + 20))]
again = SqliteJournal(path)
assert again.events("r") == events and seq > 10 and before == seq
again.close()
print(said)
"""
CLOSED = """
journal = SqliteJournal(path)
journal.append(started())
journal.close()
with open(filler, "wb", buffering=0) as file:
    try:
        while True:
            file.write(bytes(512))
    except OSError:
        pass
journal = SqliteJournal(path)
assert journal.events("r") == [started()]
try:
    journal.append(step(2))
except JournalFailed as error:
    said = error
assert journal.events("r") == [started()]
empty()
assert journal.append(step(2)) is None
assert journal.events("r") == [started(), step(2)]
journal.close()
print(said)
"""
DISK = ("unshare -rm", FULL)
FULL_DISKS = [("", LIMITED, "read"), ("", LIMITED, "go on")] + [
    (*DISK, then) for then in ("read", "open", "go on", "closed") if may_mount()
]  # to open it under a limit makes room: what is in the log is moved into the file


@pytest.mark.parametrize(
    ("before", "room", "then"),
    FULL_DISKS,
    ids=[f"{'a full disk' if before else 'a limit'}-{then}" for before, _, then in FULL_DISKS],
)
def test_a_full_disk_is_said_and_the_run_goes_on_when_there_is_room(
    tmp_path: Path, before: str, room: str, then: str
) -> None:
    """What was stored stays, what was not is not half there, and its number is free again."""
    path = tmp_path / "full" / "runs.db"
    path.parent.mkdir()
    code, doing, instead = FILLING, "storing event", "resume the run"
    if then == "closed":
        code, doing, instead = CLOSED, "opening it", "try again"
    said = output_of(child(room + code, path, then, before=before.split()))
    assert doing in said
    assert f"{instead}; what was recorded is kept" in said


def test_a_file_that_may_not_be_written_is_said(tmp_path: Path, path: Path) -> None:
    """Without the right to write, the file is named, and what to change."""
    events = written(path)
    path.chmod(0o444)
    tmp_path.chmod(0o555)
    code = """
        if os.getuid() == 0:
            os.setgid(65534), os.setuid(65534)
        journal = SqliteJournal(path)
        for action in (
            lambda: journal.append(step(99)),
            lambda: journal.acquire("r"),
            lambda: journal.post(answer("x")),
        ):
            try:
                action()
            except JournalFailed as error:
                print(error)
        """
    for folder in (tmp_path, *list(tmp_path.parents)[:2]):
        folder.chmod(folder.stat().st_mode | 0o055)
    said = output_of(child(code, path)).splitlines()
    tmp_path.chmod(0o755)
    path.chmod(0o644)
    journal = SqliteJournal(path)
    found = journal.events("r")
    journal.close()
    assert len(said) == 3
    assert all(str(path) in line and "be able to write the file" in line for line in said)
    assert found == events


def test_a_folder_in_the_place_of_the_file_is_said(tmp_path: Path) -> None:
    """A path that is a folder is an error of the journal, with its name."""
    with pytest.raises(JournalFailed, match=r"opening it failed: Is a directory .* is a file"):
        SqliteJournal(tmp_path).runs()


def test_a_file_in_the_place_of_the_folder_is_said(tmp_path: Path) -> None:
    """A path below a file is an error of the journal, with what the system said."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(JournalFailed, match=r"opening it failed: File exists .* in a folder"):
        SqliteJournal(tmp_path / "file" / "runs.db").runs()


@pytest.mark.parametrize("content", ["some text\n" * 200, "x"], ids=["long", "short"])
def test_a_text_file_is_refused_and_stays(tmp_path: Path, content: str) -> None:
    """A file that is no database is not touched."""
    path = tmp_path / "notes.txt"
    path.write_text(content)
    journal = SqliteJournal(path)
    with pytest.raises(JournalFailed, match="not a database"):
        journal.append(started())
    journal.close()
    assert path.read_text() == content


def test_a_database_of_another_program_is_refused_and_stays(tmp_path: Path) -> None:
    """Tables of somebody else get no tables of a journal beside them."""
    path = tmp_path / "other.db"
    change_file(path, "CREATE TABLE runs (id)")
    before = path.read_bytes()
    with pytest.raises(JournalFailed, match="database of another program"):
        SqliteJournal(path).runs()
    assert path.read_bytes() == before


def test_an_empty_file_becomes_a_journal(path: Path) -> None:
    """What mktemp made can be a journal."""
    path.touch()
    written(path)
    journal = SqliteJournal(path)
    assert len(journal.events("r")) == 40
    journal.close()


async def test_a_lock_of_another_program_is_waited_for_without_stalling_the_loop(
    path: Path,
    journal: SqliteJournal,
) -> None:
    """While the file is locked an append is an awaitable, those after it queue up in order, and
    all are stored when the lock is gone.
    """
    lease = journal.acquire("r")
    journal.append(started())
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    pending = [journal.append(step(seq), sync=seq == 3) for seq in (2, 3, 4)]
    other.execute("ROLLBACK")
    other.close()
    for stored in pending:
        assert stored is not None
        await stored
    lease.release()
    assert journal.events("r") == [started(), step(2), step(3), step(4)]


async def test_a_lock_that_stays_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond its patience the journal says who to look for; afterwards it can be used again."""
    monkeypatch.setattr(sqlite_open, "PATIENCE_S", 0.1)
    journal = SqliteJournal(path)
    journal.acquire("r")
    journal.append(started())
    holder = child(
        """
        import sqlite3
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        print("locked", flush=True)
        sys.stdin.readline()
        """,
        path,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "locked\n"
    stored = journal.append(step(2))
    assert stored is not None
    with pytest.raises(JournalFailed, match=r"event 2 of run r failed: .*keeps it locked"):
        await stored
    with pytest.raises(JournalFailed, match="keeps it locked"):
        journal.post(answer("yes"))
    holder.communicate("\n", timeout=60)
    stored = journal.append(step(2))
    if stored is not None:
        await stored
    found = journal.events("r")
    journal.close()
    assert found == [started(), step(2)]


def test_without_a_loop_append_waits_itself(path: Path) -> None:
    """Where no event loop runs nothing is awaited: append and sync are done when they return."""
    journal = SqliteJournal(path, durability="power")
    journal.acquire("r")
    assert journal.append(started()) is None
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN EXCLUSIVE")
    timer = threading.Timer(0.05, lambda: other.execute("ROLLBACK"))
    timer.start()
    assert journal.append(step(2), sync=True) is None
    timer.join()
    other.close()
    found = journal.events("r")
    journal.close()
    assert found == [started(), step(2)]


def test_a_child_of_a_fork_has_the_journal_but_not_the_lease(path: Path) -> None:
    """After a fork both processes use the journal; the parent drives its run, the child cannot."""
    out = output_of(
        child(
            """
            journal = SqliteJournal(path)
            lease = journal.acquire("r")
            journal.append(started())
            child = os.fork()
            if not child:
                try:
                    journal.acquire("r")
                except RunLocked as error:
                    print("locked by the parent:", error.pid == os.getppid(), flush=True)
                journal.acquire("c")
                journal.append(started("c"))
                journal.append(step(2, "c"))
                assert journal.events("r")[0] == started()
                sys.exit()
            for seq in range(2, 50):
                journal.append(step(seq))
            assert os.waitpid(child, 0)[1] == 0
            for seq in range(50, 99):
                journal.append(step(seq))
            lease.release()
            journal.close()
            """,
            path,
        )
    )
    journal = SqliteJournal(path)
    found = (len(journal.events("r")), len(journal.events("c")))
    journal.close()
    assert out == "locked by the parent: True\n"
    assert found == (98, 2)
    assert journal.notices == []


def test_threads_write_their_runs_at_once(tmp_path: Path) -> None:
    """Several threads use one journal, each for its own run, and nothing is lost or mixed up."""
    journal = SqliteJournal(tmp_path / "runs.db")
    errors: list[BaseException] = []

    def write(run_id: str) -> None:
        try:
            lease = journal.acquire(run_id)
            journal.append(started(run_id))
            for seq in range(2, 200):
                journal.append(step(seq, run_id))
            assert len(journal.events(run_id)) == 199
            lease.release()
        except BaseException as error:  # noqa: BLE001 - shown by the assert below
            errors.append(error)

    threads = [threading.Thread(target=write, args=(f"run {n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = [run.events for run in journal.runs()]
    journal.close()
    assert (errors, counts) == ([], [199] * 6)


def test_processes_make_one_file_at_once(tmp_path: Path) -> None:
    """Ten processes that find no file make one journal together."""
    path = tmp_path / "deep" / "er" / "runs.db"
    output_of(
        child(
            """
            reader, writer = os.pipe()
            children = []
            for n in range(10):
                child = os.fork()
                if not child:
                    os.close(writer)
                    os.read(reader, 1)
                    journal = SqliteJournal(path)
                    journal.append(started(f"run {n}"))
                    journal.close()
                    os._exit(0)
                children.append(child)
            os.close(reader), os.close(writer)
            assert all(os.waitpid(child, 0)[1] == 0 for child in children)
            """,
            path,
        )
    )
    journal = SqliteJournal(path)
    found = sorted(run.run_id for run in journal.runs())
    journal.close()
    assert found == [f"run {n}" for n in range(10)]


async def test_a_value_that_cannot_be_recorded_leaves_its_number_free(tmp_path: Path) -> None:
    """Nothing is stored of an event whose value cannot come back, and another takes its place."""
    journal = SqliteJournal(tmp_path / "runs.db")
    journal.acquire("r")
    journal.append(started())
    event = step(2)
    object.__setattr__(event.result, "output", threading.Lock())  # type: ignore[union-attr]
    with pytest.raises(Exception, match="s2"):
        journal.append(event)
    journal.append(step(2, text="other"))
    found = journal.events("r")
    journal.close()
    assert found == [started(), step(2, text="other")]


def test_large_values_are_stored_once(path: Path) -> None:
    """The same megabyte in ten events is in the file once, and in each event that comes back."""
    journal = SqliteJournal(path)
    journal.acquire("r")
    journal.append(started())
    events = [step(seq, text="x" * 1_000_000) for seq in range(2, 12)]
    for event in events:
        assert journal.append(event) is None
    found = journal.events("r")
    journal.close()
    assert found == [started(), *events]
    assert path.stat().st_size < 1_200_000


def test_a_damaged_large_value_is_not_believed(path: Path) -> None:
    """A large value must be what its name says."""
    journal = SqliteJournal(path)
    journal.append(started())
    journal.append(step(2, text="x" * 100_000))
    journal.close()
    change_file(path, "UPDATE blobs SET data = replace(data, 'xxxx', 'xxxy')")
    with pytest.raises(JournalDamaged, match="run r: the value of event 2 is not as it was"):
        SqliteJournal(path).events("r")


def test_the_file_can_be_read_by_people(path: Path) -> None:
    """The view `history` shows each event with its run, a time that can be read, and its value."""
    journal = SqliteJournal(path)
    journal.append(started())
    journal.append(step(2, text="y" * 20_000))
    journal.close()
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT run_id, seq, time, kind, path, value FROM history").fetchall()
    connection.close()
    assert rows == [
        ("r", 1, "1970-01-01 00:00:01.000", "WorkflowStarted", "", '{"n":1}'),
        ("r", 2, "1970-01-01 00:00:02.000", "StepCompleted", "s2", '"' + "y" * 20_000 + '"'),
    ]


def test_nothing_is_left_open(tmp_path: Path, path: Path) -> None:
    """A closed journal has no file open, and leaves one file behind."""
    written(path)
    assert open_files(tmp_path) == []
    assert [file.name for file in tmp_path.iterdir()] == ["runs.db"]
