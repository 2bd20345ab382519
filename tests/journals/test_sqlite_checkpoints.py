"""The write-ahead log stays short, while somebody writes without a pause and others read."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from handrail.journals.sqlite import threads as sqlite_checkpoints
from handrail.journals.sqlite.journal import SqliteJournal
from tests.journals.sqlite_support import started, step


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_checkpoints, "AFTER_PAGES", 100)
    monkeypatch.setattr(sqlite_checkpoints, "LONG_PAGES", 200)


async def test_the_log_does_not_grow_for_ever(path: Path, journal: SqliteJournal) -> None:
    """Of thousands of events in a row nothing is lost, and the log is begun anew on the way."""
    lease = journal.acquire("r")
    beginnings: set[bytes] = set()
    count = 0
    while len(beginnings) < 4 and count < 60_000:
        count += 1
        stored = journal.append(step(count) if count > 1 else started())
        if stored is not None:
            await stored
        if count % 100 == 0:
            beginnings.add(salt_of(path.with_name("runs.db-wal")))
    lease.release()
    assert journal.events("r") == [started(), *(step(seq) for seq in range(2, count + 1))]
    assert len(beginnings) == 4


async def test_the_log_of_many_syncs_is_as_long_as_it_will_be(path: Path) -> None:
    """A sync of a file that grows costs more; what was written before and after is there."""
    journal = SqliteJournal(path, durability="power")
    journal.acquire("r")
    log, sizes, count = path.with_name("runs.db-wal"), list[int](), 0
    while count < 20_000 and sizes.count(max(sizes, default=0)) < 300:
        count += 1
        stored = journal.append(step(count) if count > 1 else started(), sync=True)
        if stored is not None:
            await stored
        sizes.append(log.stat().st_size)
    found = len(journal.events("r"))
    journal.close()
    assert found == count
    assert sizes[-1] > sqlite_checkpoints.SYNCED_PAGES * 4096
    assert sizes[sqlite_checkpoints.MANY_SYNCS - 2] < sizes[-1] / 4


def salt_of(log: Path) -> bytes:
    """What SQLite writes into the header of a log, another each time that it begins it anew."""
    with log.open("rb") as file:
        return file.read(24)[16:]


async def test_a_reader_that_stays_keeps_nobody_from_writing(
    path: Path, journal: SqliteJournal
) -> None:
    """While somebody reads an old state for long the log grows, and the events are stored."""
    journal.acquire("r")
    journal.append(started())
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    (before,) = reader.execute("SELECT count(*) FROM events").fetchone()
    for seq in range(2, 1_000):
        stored = journal.append(step(seq))
        if stored is not None:
            await stored
    (still,) = reader.execute("SELECT count(*) FROM events").fetchone()
    reader.close()
    found = len(journal.events("r"))
    assert (before, still, found) == (1, 1, 999)
