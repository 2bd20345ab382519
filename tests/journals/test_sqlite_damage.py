"""SqliteJournal: what is read is what was written, or an error."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from handrail.errors import JournalDamaged, JournalFailed
from handrail.journals.sqlite import open as sqlite_open
from handrail.journals.sqlite.journal import SqliteJournal
from handrail.model import events as ev
from tests.journals.sqlite_support import (
    answer,
    change_file,
    child,
    output_of,
    started,
    step,
    written,
)

RUNS = "abc"


def contents(path: Path) -> object:
    """All that a journal holds."""
    journal = SqliteJournal(path)
    try:
        runs = journal.runs()
        found = (
            [journal.events(run) for run in RUNS],
            [(run.run_id, run.workflow_name, run.status, run.events) for run in runs],
            [journal.letters(run, 0) for run in RUNS],
        )
        for run in runs:
            if run.damaged:
                raise JournalDamaged(str(path), "reading the list of runs", run.damaged, "")
        return found
    finally:
        journal.close()


def filled(path: Path, *, ended: bool) -> None:
    """Write a few runs, and give their leases back if they ended."""
    journal = SqliteJournal(path)
    for run, count in zip(RUNS, (15, 30, 20), strict=True):
        lease = journal.acquire(run) if ended else None
        journal.append(started(run))
        for seq in range(2, count):
            journal.append(step(seq, run, "z" * 17_000 if seq == 7 else ""))
        journal.post(answer("yes", "k", run))
        if lease is not None:
            lease.release()
    journal.close()


@pytest.mark.parametrize("whole", [True, False], ids=["small", "large"])
@pytest.mark.parametrize("ended", [True, False], ids=["ended", "killed"])
def test_flipped_bits_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: bool, whole: bool
) -> None:
    """With any bit of the file changed there is an error, or nothing has changed."""
    if not whole:
        monkeypatch.setattr(sqlite_open, "CHECKED_WHOLE_BYTES", 0)
    path = tmp_path / "runs.db"
    filled(path, ended=ended)
    expected, image = contents(path), path.read_bytes()
    draw = random.Random(f"{ended} {whole}")
    errors = 0
    for _ in range(150):
        place, bit = draw.randrange(len(image)), draw.randrange(8)
        changed = bytearray(image)
        changed[place] ^= 1 << bit
        path.write_bytes(changed)
        try:
            found = contents(path)
        except JournalFailed:
            errors += 1
        else:
            assert found == expected, f"bit {bit} of byte {place}"
    assert errors > 50


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE events SET body = body || ' ' WHERE seq = 9", "event 9 is not as"),
        ("UPDATE events SET at = at + 1 WHERE seq = 9", "event 9 is not as"),
        ("UPDATE events SET kind = 'MemberCompleted' WHERE seq = 9", "event 9 is not as"),
        ("UPDATE events SET path = 'x' WHERE seq = 9", "event 9 is not as"),
        ("UPDATE events SET value = NULL WHERE seq = 9", "event 9 is not as"),
        ("UPDATE events SET crc = crc + 1 WHERE seq = 9", "event 9 is not as"),
        ("UPDATE events SET seq = 99 WHERE seq = 9", "event 9 is missing"),
        ("UPDATE events SET seq = 99 WHERE seq = 40", "event 40 is missing"),
        ("DELETE FROM events WHERE seq = 9", "event 9 is missing"),
        ("DELETE FROM events WHERE seq > 30", "events 31 to 40 are missing"),
        ("DELETE FROM events", "events 1 to 40 are missing"),
        ("UPDATE runs SET tail_seq = 10", "its entry is not as"),
        ("UPDATE runs SET workflow = 'x'", "its entry is not as"),
    ],
)
def test_changed_rows_are_named(path: Path, change: str, said: str) -> None:
    """The error names the run, and the first event that is not as it was written."""
    written(path)
    change_file(path, change)
    journal = SqliteJournal(path)
    with pytest.raises(JournalDamaged, match=f"reading run r failed: run r: {said}") as caught:
        journal.events("r")
    if said == "events 1 to 40 are missing":
        assert journal.events_after("r", 5) is None
    else:
        with pytest.raises(JournalDamaged, match=f"reading run r failed: run r: {said}"):
            journal.events_after("r", 5)
    journal.close()
    assert caught.value.journal == str(path)
    assert "Nothing in it is believed" in str(caught.value)
    assert ("fork(at=...)" in str(caught.value)) is bool(caught.value.readable)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE events SET body = replace(body, '}', '!')", "event 15 is not as it was written"),
        (
            "UPDATE events SET body = replace(body, 'failed', 'succeeded')",
            "event 15 is not as it was written",
        ),
        ("UPDATE events SET body = CAST(x'ff' AS text)", "event 15 is not as it was written"),
        ("UPDATE events SET at = 'noon'", "event 15 is not as it was written"),
        ("UPDATE events SET seq = 'last'", "event last is not as it was written"),
        ("UPDATE events SET kind = 'WorkflowComplated'", "event 15 is not as it was written"),
        ("DELETE FROM events", "events 15 to 15 are missing"),
        ("UPDATE runs SET workflow = 'x'", "its entry is not as it was written"),
        ("UPDATE runs SET labels = CAST(x'ff' AS text)", "its entry is not as it was written"),
    ],
)
def test_a_list_names_a_damaged_run_and_believes_the_others(
    path: Path, change: str, said: str
) -> None:
    """What is wrong with the last event of a run, or with its entry, hides no other run."""
    journal = SqliteJournal(path)
    for run in RUNS:
        with_end(journal, run)
    whole = journal.runs()
    journal.close()
    where = "run_id = 'b'" if " runs " in change else "run = 2 AND seq = 15"
    change_file(path, f"{change} WHERE {where}")
    journal = SqliteJournal(path)
    first, damaged, last = journal.runs()
    assert [first, last] == [whole[0], whole[2]]
    assert (damaged.run_id, damaged.status, damaged.damaged) == ("b", None, said)
    with pytest.raises(JournalDamaged, match="reading run b failed: "):
        journal.events("b")
    assert journal.events("a")
    journal.close()


def with_end(journal: SqliteJournal, run: str) -> None:
    """A run that has failed."""
    lease = journal.acquire(run)
    journal.append(started(run))
    for seq in range(2, 15):
        journal.append(step(seq, run))
    end = ev.WorkflowCompleted("failed", error="no", error_type="x.Y")
    journal.append(ev.stamp(end, run, 15, 15.0))
    lease.release()


@pytest.mark.parametrize(
    "change",
    ["DELETE FROM runs", "UPDATE events SET run = 9 WHERE seq = 40", "DROP TABLE blobs"],
)
def test_a_file_that_is_not_whole_is_refused(path: Path, change: str) -> None:
    """Events without a run, and tables that are not there, are found when the file is opened."""
    written(path)
    change_file(path, change)
    with pytest.raises(JournalDamaged):
        SqliteJournal(path).events("nobody")


def test_a_file_that_was_cut_is_refused(path: Path) -> None:
    """A file of which the end is missing is an error, wherever it was cut."""
    written(path, 200)
    image = path.read_bytes()
    for size in (1, 100, 511, 512, 4096, 5000, len(image) - 4096, len(image) - 1):
        path.write_bytes(image[:size])
        with pytest.raises(JournalFailed):
            SqliteJournal(path).events("r")


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes, list[ev.Event]]:
    """The file and the log of a process that was killed, and the events that it had stored."""
    path = tmp_path_factory.mktemp("killed") / "runs.db"
    process = child(
        """
        journal = SqliteJournal(path)
        journal.acquire("r")
        journal.append(started())
        for seq in range(2, 60):
            journal.append(step(seq))
        os.kill(os.getpid(), 9)
        """,
        path,
    )
    process.communicate(timeout=60)
    log = path.with_name("runs.db-wal")
    return path.read_bytes(), log.read_bytes(), [started(), *map(step, range(2, 60))]


def opened(folder: Path, image: bytes, log: bytes) -> tuple[list[ev.Event], list[str]]:
    """The events of a file with this log, and the notices."""
    path = folder / "runs.db"
    shutil.rmtree(folder)
    folder.mkdir()
    path.write_bytes(image)
    path.with_name("runs.db-wal").write_bytes(log)
    journal = SqliteJournal(path)
    found = journal.events("r")
    journal.close()
    return found, journal.notices


def test_a_torn_log_is_cut_with_a_notice(
    tmp_path: Path, killed: tuple[bytes, bytes, list[ev.Event]]
) -> None:
    """Of a log that was cut, scribbled over or changed, what is before that is believed, and a
    notice says that something was cut off.
    """
    image, log, events = killed
    (tmp_path / "x").mkdir()
    draw = random.Random(7)
    for _ in range(25):
        place = draw.randrange(33, len(log))
        place += (place - 32) % 4120 == 0  # between two frames nothing is torn
        garbage = draw.randbytes(draw.randrange(1, 9_000))
        changed = bytearray(log)
        changed[place] ^= 1 << draw.randrange(8)
        for torn in (log[:place], log[:place] + garbage, bytes(changed)):
            found, notices = opened(tmp_path / "x", image, torn)
            assert found == events[: len(found)]
            assert len(found) < len(events)
            assert len(notices) == 1
            assert "write-ahead log" in notices[0]


def test_garbage_behind_a_whole_log_is_cut_with_a_notice(
    tmp_path: Path, killed: tuple[bytes, bytes, list[ev.Event]]
) -> None:
    """What is behind the log's end takes nothing from it."""
    image, log, events = killed
    (tmp_path / "x").mkdir()
    found, notices = opened(tmp_path / "x", image, log + b"garbage" * 900)
    assert found == events
    (notice,) = notices
    assert notice.endswith(
        ": the write-ahead log ended in 6300 bytes that are no whole frames of it. They were cut"
        " off; what is before them is whole."
    )


def test_a_whole_log_gives_no_notice(
    tmp_path: Path, killed: tuple[bytes, bytes, list[ev.Event]]
) -> None:
    """A killed process leaves nothing that is worth a word."""
    image, log, events = killed
    (tmp_path / "x").mkdir()
    for padding in (b"", bytes(5_000)):
        assert opened(tmp_path / "x", image, log + padding) == (events, [])


def test_an_emptied_file_beside_its_log_is_refused(
    tmp_path: Path, killed: tuple[bytes, bytes, list[ev.Event]]
) -> None:
    """SQLite would delete the log of an empty file."""
    _, log, _ = killed
    (tmp_path / "x").mkdir()
    with pytest.raises(JournalDamaged, match="it is empty, while its write-ahead log is not"):
        opened(tmp_path / "x", b"", log)
    assert (tmp_path / "x" / "runs.db-wal").read_bytes() == log


def test_a_live_journal_gives_no_notice(path: Path) -> None:
    """To open a file into which others write is no reason for a notice."""
    out = output_of(
        child(
            """
            import threading
            journal = SqliteJournal(path)
            journal.acquire("r")
            journal.append(started())
            ended = False
            def write():
                seq = 2
                while not ended:
                    journal.append(step(seq))
                    seq += 1
            thread = threading.Thread(target=write)
            thread.start()
            for _ in range(20):
                other = SqliteJournal(path)
                assert other.runs()
                assert other.notices == [], other.notices
                other.close()
            ended = True
            thread.join()
            print("done")
            """,
            path,
        )
    )
    assert out == "done\n"
