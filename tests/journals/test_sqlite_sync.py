"""When a sync of the log is done on the loop, and when it is left to a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from handrail.journals.sqlite import threads as sqlite_sync
from handrail.journals.sqlite.threads import WalFile

QUICK_S, SLOW_S, STALLED_S = 0.0002, 0.002, 0.02
Syncs = Callable[..., None]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[WalFile]:
    """The log of a journal, which nobody else uses."""
    (tmp_path / "runs.db-wal").touch()
    wal = WalFile(tmp_path / "runs.db", lambda: None, lambda: None)
    yield wal
    with wal.lock:
        wal.close()


@pytest.fixture
def syncs(log: WalFile, monkeypatch: pytest.MonkeyPatch) -> Syncs:
    """A function that syncs the log so often, on a disk that takes so long for each."""
    now = 0.0
    takes = QUICK_S

    def sync_data(fd: int) -> None:
        nonlocal now
        assert fd >= 0
        now += takes

    def syncs(count: int, takes_s: float) -> None:
        nonlocal takes
        takes = takes_s
        for _ in range(count):
            log.sync()

    monkeypatch.setattr(sqlite_sync, "_sync_data", sync_data)
    monkeypatch.setattr(sqlite_sync.time, "perf_counter", lambda: now)
    return syncs


def test_a_disk_is_not_known_to_be_quick_at_first(log: WalFile, syncs: Syncs) -> None:
    """Eight quick syncs must have been seen before the next is done at once."""
    syncs(7, QUICK_S)
    assert not log.sync_if_quick()
    syncs(1, QUICK_S)
    assert log.sync_if_quick()


def test_one_slow_sync_of_a_quick_disk_is_forgiven(log: WalFile, syncs: Syncs) -> None:
    """But not two in a row."""
    syncs(20, QUICK_S)
    syncs(1, SLOW_S)
    assert log.sync_if_quick()
    syncs(2, SLOW_S)
    assert not log.sync_if_quick()


def test_a_stalled_disk_is_left_to_a_thread_for_long(log: WalFile, syncs: Syncs) -> None:
    """The loop must not wait like that again soon."""
    syncs(20, QUICK_S)
    syncs(1, STALLED_S)
    syncs(39, QUICK_S)
    assert not log.sync_if_quick()
    syncs(1, QUICK_S)
    assert log.sync_if_quick()


def test_a_slow_disk_is_never_taken_for_a_quick_one(log: WalFile, syncs: Syncs) -> None:
    """However long it is at work."""
    for _ in range(20):
        syncs(6, QUICK_S)
        syncs(1, SLOW_S)
        assert not log.sync_if_quick()


def test_that_a_log_is_synced_often_is_said_once(tmp_path: Path) -> None:
    """So that it is made long before it has to grow."""
    (tmp_path / "runs.db-wal").touch()
    said: list[int] = []
    log = WalFile(tmp_path / "runs.db", lambda: None, lambda: said.append(1))
    for _ in range(2 * sqlite_sync.MANY_SYNCS):
        log.sync()
    with log.lock:
        log.close()
    assert said == [1]
