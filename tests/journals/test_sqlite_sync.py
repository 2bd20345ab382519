"""What makes a journal survive a loss of power: one sync for many, in a thread or at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from handrail.errors import JournalFailed
from handrail.journals import sqlite_sync
from handrail.journals.sqlite import SqliteJournal
from handrail.journals.sqlite_scribe import Scribe
from handrail.journals.sqlite_sync import QUICK_SYNCS, WalFile
from handrail.journals.waking import Pending, pending_here
from handrail.model import events as ev
from tests.journals.sqlite_support import open_files, started, step


async def test_those_who_ask_during_a_sync_share_the_next_one() -> None:
    """Ten requests that come while the disk is busy cost one sync more."""
    syncs: list[int] = []
    begun, go_on = threading.Event(), threading.Event()

    def sync() -> None:
        syncs.append(1)
        begun.set()
        go_on.wait(10)

    scribe = Scribe(sync)

    def ask() -> Pending:
        pending = pending_here()
        assert pending is not None
        return scribe.ask(None, pending, sync=True)

    first = ask()
    assert begun.wait(10)
    later = [ask() for _ in range(10)]
    go_on.set()
    for pending in (first, *later):
        await pending
    scribe.stop()
    assert len(syncs) == 2
    assert scribe.unfinished == 0


async def test_who_does_not_wait_any_more_is_no_trouble() -> None:
    """A task that was cancelled while its event was synced leaves the thread at work."""
    go_on = threading.Event()
    scribe = Scribe(lambda: go_on.wait(10) and None)
    one, other = pending_here(), pending_here()
    assert one is not None
    assert other is not None
    scribe.ask(None, one, sync=True)
    with anyio.move_on_after(0):
        await one
    go_on.set()
    await scribe.ask(None, other, sync=True)
    scribe.stop()


async def test_an_error_of_the_disk_is_raised_where_it_is_awaited() -> None:
    """A sync that fails fails the append of each who waited for it."""

    def sync() -> None:
        raise JournalFailed("runs.db", "syncing it to disk", "I/O error")

    scribe = Scribe(sync)
    pending = pending_here()
    assert pending is not None
    scribe.ask(None, pending, sync=True)
    with pytest.raises(JournalFailed, match="I/O error"):
        await pending
    scribe.stop()


def written_log(path: Path) -> WalFile:
    """A log to sync; nobody else writes it."""
    path.with_name(path.name + "-wal").write_bytes(b"frames" * 100)

    def reserve(action: Callable[[], None]) -> None:
        action()

    return WalFile(path, reserve)


def test_the_loop_syncs_where_the_disk_is_quick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After some quick syncs in a row the next is done at once; after a slow one they are not."""
    monkeypatch.setattr(sqlite_sync, "QUICK_S", 60.0)
    wal = written_log(tmp_path / "runs.db")
    asked = [wal.sync_if_quick()]
    for _ in range(QUICK_SYNCS):
        wal.sync()
    asked.append(wal.sync_if_quick())
    monkeypatch.setattr(sqlite_sync, "QUICK_S", 0.0)
    asked.append(wal.sync_if_quick())
    asked.append(wal.sync_if_quick())
    wal.close()
    assert asked == [False, True, True, False]


def test_a_log_that_was_deleted_is_opened_anew(tmp_path: Path) -> None:
    """What is synced is the log of the name, not one that nobody can find any more."""
    path = tmp_path / "runs.db"
    wal = written_log(path)
    wal.sync()
    log = path.with_name("runs.db-wal")
    log.unlink()
    wal.sync()  # there is nothing to sync
    log.write_bytes(b"new")
    wal.sync()
    opened = open_files(tmp_path)
    wal.close()
    assert opened == [str(log)]


def test_a_sync_that_fails_names_the_journal(tmp_path: Path) -> None:
    """What the system said about the log is an error of the journal."""
    path = tmp_path / "runs.db"
    path.with_name("runs.db-wal").mkdir()
    with pytest.raises(JournalFailed, match=r"runs\.db: syncing it to disk failed: Is a directory"):
        WalFile(path, lambda action: action()).sync()


async def test_a_log_with_zeros_ahead_is_a_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zeros that were written ahead change nothing that is stored: not here, not for others, and
    not after a crash.
    """
    monkeypatch.setattr(sqlite_sync, "QUICK_S", 60.0)
    path = tmp_path / "runs.db"
    journal = SqliteJournal(path, durability="power")
    lease = journal.acquire("r")
    events = [started(), *(step(seq) for seq in range(2, 200))]
    for event in events:
        stored = journal.append(event)
        if stored is not None:
            await stored
    copy = path.with_name("copy.db")
    for suffix in ("", "-wal"):  # a read and close of the file in this process would end its locks
        await anyio.run_process(["cp", f"{path}{suffix}", f"{copy}{suffix}"])
    log = copy.with_name("copy.db-wal").read_bytes()
    other, crashed = SqliteJournal(path), SqliteJournal(copy)
    found = (journal.events("r"), other.events("r"), crashed.events("r"))
    notices = (other.notices, crashed.notices)
    for each in (other, crashed):
        each.close()
    lease.release()
    journal.close()
    assert log.endswith(bytes(10_000))
    assert found == (events, events, events)
    assert notices == ([], [])


@pytest.mark.parametrize("durability", ["process", "power"])
async def test_starts_of_steps_are_not_synced(tmp_path: Path, durability: str) -> None:
    """An end waits for the disk where that is asked for; a start never does by itself."""
    journal = SqliteJournal(tmp_path / "runs.db", durability=durability)  # type: ignore[arg-type]
    journal.acquire("r")
    waits = []
    drafts: list[ev.Event] = [
        ev.WorkflowStarted("w"),
        ev.StepStarted("s", "python"),
        ev.TimerSet("s", 1.0, "sleep"),
        ev.RunSuspended(),
    ]
    for seq, event in enumerate(drafts, 1):
        stored = journal.append(ev.stamp(event, "r", seq, 1.0))
        waits.append(stored is not None)
        if stored is not None:
            await stored
    stored = journal.append(ev.stamp(ev.StepStarted("t", "python"), "r", 5, 1.0), sync=True)
    assert stored is not None
    await stored
    journal.close()
    assert waits == ([True, False, False, True] if durability == "power" else [False] * 4)


def test_other_settings_are_refused(tmp_path: Path) -> None:
    """A durability or a lease that means nothing is an error at once, with the value."""
    with pytest.raises(ValueError, match="durability is 'process' or 'power', got 'full'"):
        SqliteJournal(tmp_path, durability="full")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="lease_s must be more than 0 seconds, got 0"):
        SqliteJournal(tmp_path, lease_s=0)
