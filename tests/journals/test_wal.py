"""What the headers of a write-ahead log say."""

from __future__ import annotations

import sqlite3
import struct
from pathlib import Path

import pytest

from handrail import SqliteJournal
from handrail.journals.sqlite.open import WalScan, describe_cut, scan
from handrail.model.events import WorkflowStarted, stamp

FRAME = 4096 + 24


@pytest.fixture
def log(tmp_path: Path) -> bytes:
    """A log of SQLite's with four transactions, the last of several pages."""
    path = tmp_path / "x.db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE t (x)")
    for size in (1, 1, 30_000):
        connection.execute("INSERT INTO t VALUES (?)", ("x" * size,))
    log = path.with_name("x.db-wal").read_bytes()
    connection.close()
    return log


def scanned(folder: Path, content: bytes) -> WalScan:
    """What is found in a log with this content."""
    path = folder / "scanned-wal"
    path.write_bytes(content)
    return scan(str(path))


def test_frames_and_transactions_are_counted(tmp_path: Path, log: bytes) -> None:
    """All frames of a whole log are its own, and the last one ends a transaction."""
    frames = (len(log) - 32) // FRAME
    assert scanned(tmp_path, log) == WalScan(len(log), 4096, frames, frames, 0)


def test_an_unfinished_transaction_is_nothing_strange(tmp_path: Path, log: bytes) -> None:
    """Without its last frame a transaction does not count, and nothing was cut off."""
    found = scanned(tmp_path, log[:-FRAME])
    assert found.frames > found.commits
    assert describe_cut(found, found.commits) == ""


@pytest.mark.parametrize("content", [b"", bytes(32), bytes(99_999)], ids=len)
def test_a_log_of_nothing_is_empty(tmp_path: Path, content: bytes) -> None:
    """No bytes, or only zeros, are no frames and nothing strange."""
    assert scanned(tmp_path, content) == WalScan(len(content))


def test_no_log_is_an_empty_log(tmp_path: Path) -> None:
    """Where there is no file there is nothing."""
    assert scan(str(tmp_path / "none")) == WalScan()


@pytest.mark.parametrize("content", [b"x" * 10, b"x" * 10_000], ids=len)
def test_what_is_no_log_is_strange(tmp_path: Path, content: bytes) -> None:
    """A header that is none makes the whole file strange."""
    found = scanned(tmp_path, content)
    assert found.strange == len(content)
    assert f"{len(content)} bytes" in describe_cut(found, 0)


def test_frames_of_an_earlier_log_are_nothing_strange(tmp_path: Path, log: bytes) -> None:
    """A log that began anew has old frames behind its end; a log of another file is strange."""
    first = 32 + FRAME
    salts = struct.unpack_from(">2I", log, 16)

    def begun_anew(salt: int) -> bytes:
        new = struct.pack(">2I", salt % (1 << 32), 5)
        return log[:16] + new + log[24:40] + new + log[48:]

    assert scanned(tmp_path, begun_anew(salts[0] + 1)) == WalScan(len(log), 4096, 1, 0, 0)
    assert scanned(tmp_path, begun_anew(salts[0] - 1)).strange == len(log) - first


def test_what_sqlite_did_not_believe_is_told() -> None:
    """Frames of finished transactions that SQLite cut off are counted, with their bytes."""
    found = WalScan(32 + 9 * FRAME, 4096, 9, 8)
    assert describe_cut(found, 8) == ""
    assert describe_cut(found, 5).startswith(
        "the last 3 of 8 frames of the write-ahead log (12360 byt"
    )


@pytest.mark.parametrize("left", [24, 2048], ids=["the header of a frame", "up to a page"])
def test_what_a_kill_leaves_in_the_middle_of_a_write_is_no_damage(
    tmp_path: Path, path: Path, left: int
) -> None:
    """A piece of a frame that nobody was told of is cut without a notice."""
    journal = SqliteJournal(path)
    journal.append(stamp(WorkflowStarted("w"), "r", 1, 1.0))
    raw = Path(f"{path}-wal").read_bytes()
    copied = tmp_path / "copy" / "runs.db"
    copied.parent.mkdir()
    copied.write_bytes(path.read_bytes())
    room = -len(raw) % 4096 if left != 24 else 24
    piece = raw[32:56] + b"\1" * 4096
    Path(f"{copied}-wal").write_bytes(raw + piece[: room or 4096])
    journal.close()
    again = SqliteJournal(copied)
    found = (len(again.events("r")), again.notices)
    again.close()
    assert found == (1, [])
