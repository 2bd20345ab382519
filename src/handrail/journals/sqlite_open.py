"""How a file becomes, or proves to be, a journal in SQLite that can be believed."""

from __future__ import annotations

import os
import sqlite3  # noqa: TID253 - loaded with SqliteJournal, on its first use
import threading
import time
from collections.abc import Callable
from pathlib import Path

from handrail.errors import JournalFailed
from handrail.journals.sqlite_failures import damaged, is_busy
from handrail.journals.sqlite_read_only import open_read_only
from handrail.journals.sqlite_schema import MIGRATIONS, check_schema, migrate, version_of
from handrail.journals.wal import WalScan, cut_off, scan

PATIENCE_S = 10.0
"""How long to wait for another connection's transaction to end."""
CHECKED_WHOLE_BYTES = 32 << 20
"""Larger files are not read whole when they are opened; see ``_check``."""
SMALLEST_BYTES = 512
"""What SQLite's smallest page takes."""
_LOOK_AGAIN_S = 0.02


def connect(path: str, wait_s: float, *, uri: bool = False) -> sqlite3.Connection:
    """A connection in autocommit mode that any thread may use, one at a time."""
    connection = sqlite3.connect(
        path,
        timeout=wait_s,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=64,
        uri=uri,
    )
    try:
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("PRAGMA cell_size_check = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
    except BaseException:
        connection.close()
        raise
    return connection


def open_journal(path: Path, notice: Callable[[str], None]) -> sqlite3.Connection:
    """A connection to the journal, made if there is none; ``notice`` is told what was cut off.

    Raises:
        JournalFailed: it is no journal, or one of a newer version.
        JournalDamaged: it is not as it was written.
        sqlite3.Error, OSError: what else went wrong.
    """
    name = str(path)
    made = _make_folder(path.parent)
    size, found = _look(path)
    connection = connect(name, PATIENCE_S)
    try:
        version_of(name, connection)
        _use_wal(name, connection)
        if size:
            _tell_what_was_cut(name, connection, found, notice)
        migrate(name, connection)
        if size:
            _check(name, connection, size)
        else:  # from now on it can be told from an empty file, whatever happens to the log
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    except BaseException:
        connection.close()
        raise
    if not size:
        for folder in (path.parent, *made):
            sync_folder(folder)
    return connection


def open_to_read(path: Path) -> tuple[sqlite3.Connection, bool]:
    """A connection to a journal that may not be written; True if it sees no changes of others.

    Raises:
        JournalFailed, sqlite3.Error, OSError: as ``open_journal``; or it is one of an older
            version.
    """
    name = str(path)
    size, _ = _look(path)
    connection, frozen = open_read_only(path, lambda uri: connect(uri, PATIENCE_S, uri=True))
    try:
        _check_version(name, version_of(name, connection))
        _check(name, connection, size)
    except BaseException:
        connection.close()
        raise
    return connection, frozen


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a loss of power, where folders can be synced."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def retry_busy(action: Callable[[], None], patience_s: float | None = None) -> None:
    """Do it, again and again while another connection has the lock, for ``PATIENCE_S`` or so."""
    until = time.monotonic() + (PATIENCE_S if patience_s is None else patience_s)
    while True:
        try:
            return action()
        except sqlite3.Error as error:
            if not is_busy(error) or time.monotonic() > until:
                raise
        pause(0.005)


def pause(seconds: float) -> None:
    """Let that much time pass, in a thread that no event loop runs in."""
    threading.Event().wait(seconds)


def _make_folder(folder: Path) -> list[Path]:
    made: list[Path] = []
    missing = folder
    while not missing.exists():
        made.append(missing.parent)
        missing = missing.parent
    folder.mkdir(parents=True, exist_ok=True)
    return made


def _check_version(journal: str, version: int) -> None:
    newest = len(MIGRATIONS)
    if version != newest:
        why = f"its format is version {version}, and it cannot be brought to version {newest}"
        raise JournalFailed(journal, "reading it", why, "Copy it to where you may write.")


def _look(path: Path) -> tuple[int, WalScan]:
    """How many bytes the file has, and what its log holds; 0 bytes, if it is not there.

    The log first: SQLite makes it when the file has its first page, and another process may be
    making both just now.

    Raises:
        JournalFailed: it is too small for a database.
        JournalDamaged: SQLite would take it for an empty file, and delete its log.
        OSError: it cannot be looked at.
    """
    journal = str(path)
    found = scan(f"{journal}-wal")
    size = path.stat().st_size if path.exists() else 0
    if 0 < size < SMALLEST_BYTES:
        why = f"it is not a database: it has {size} bytes"
        raise JournalFailed(journal, "opening it", why, "Name another file for the journal.")
    if not size and found.commits:
        why = "it is empty, while its write-ahead log is not"
        raise damaged(journal, "reading it", why)
    return size, found


def _use_wal(journal: str, connection: sqlite3.Connection) -> None:
    def switch() -> None:
        # SQLite does not wait by itself here, when two processes make a new file at once.
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            why = f"its file system has no shared memory for a write-ahead log (mode {mode!r})"
            raise JournalFailed(journal, "opening it", why, "Put it on a local disk.")

    retry_busy(switch)


def _check(journal: str, connection: sqlite3.Connection, size: int) -> None:
    """Make sure that no row has vanished or moved; see the theory in ``sqlite``.

    Source: measured; 0.3 ms for a small file, 3.5 ms for each MiB.
    """
    check_schema(journal, connection)
    tables = [""] if size <= CHECKED_WHOLE_BYTES else ["runs", "letters", "leases"]
    for table in tables:
        pragma = f"PRAGMA integrity_check({table or 1})"
        (said,) = connection.execute(pragma).fetchone()
        if said != "ok":
            raise damaged(journal, "reading it", str(said).replace("\n", "; "))
    last = connection.execute("SELECT run FROM events ORDER BY run DESC LIMIT 1").fetchone()
    if last and not connection.execute("SELECT 1 FROM runs WHERE id = ?", last).fetchone():
        raise damaged(journal, "reading it", f"events of a run {last[0]} that is not there")


def _tell_what_was_cut(
    name: str, connection: sqlite3.Connection, found: WalScan, notice: Callable[[str], None]
) -> None:
    if not (found.frames or found.strange):
        return
    cut = _cut(connection, found)
    if not cut:
        return
    # A live process may have been about to write just there, or to begin the log anew.
    pause(_LOOK_AGAIN_S)
    again = scan(f"{name}-wal")
    if again == found and _cut(connection, again) == cut:
        notice(f"journal {name}: {cut}. They were cut off; what is before them is whole.")


def _cut(connection: sqlite3.Connection, found: WalScan) -> str:
    busy, believed, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return "" if busy or believed < 0 else cut_off(found, believed)
