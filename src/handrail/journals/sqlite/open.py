"""Opens or makes the file of a journal, and checks that it can be trusted."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import sqlite3
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import TypeAlias, TypeVar
from urllib.parse import quote

from handrail.errors import JournalDamaged, JournalFailed
from handrail.model.dataclass import dataclass
from handrail.system.own_files import FOLDER, make_ignored
from handrail.system.sqlite import (
    Cause,
    cause_of,
    code_of,
    is_busy,
    snapshot,
    transaction,
    why_of,
)

_HINTS: dict[Cause, str] = {
    "full": "Free some space on its disk, then {again}; what was recorded is kept.",
    "write": (
        "handrail must be able to write the file, and to create files in its folder. Change the "
        "permissions, or put the journal elsewhere; then {again}."
    ),
    "locked": (
        "Another program keeps it locked: an sqlite3 shell, a backup, or a stopped process "
        "(Ctrl-Z) perhaps. End that, then {again}; what was recorded is kept."
    ),
    "disk": (
        "Look at the disk and at the limits of the process (ulimit -f), then {again}; what was "
        "recorded is kept."
    ),
    "place": "A journal is a file, in a folder. Name another place for it.",
    "other": (
        "It may be a file of another program, or damaged from its first bytes on. Name another."
    ),
    "": "",
}
_DAMAGED = (
    "Nothing in it is believed. Put back a copy of the file, or move it away to begin a new "
    "journal; `sqlite3 FILE .recover` shows what can still be read."
)
_OF_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_FORMAT)


Failure: TypeAlias = sqlite3.Error | OSError | UnicodeDecodeError


def failure(journal: str, doing: str, error: Failure) -> JournalFailed:
    """The error to raise for an error of SQLite or the system while ``doing`` something.

    Text that is not UTF-8 is damage, also if it is the text of SQLite's own error.
    """
    if isinstance(error, UnicodeDecodeError):
        return journal_damaged(journal, doing, str(error))
    why = why_of(error)
    reads = doing.startswith(("reading", "opening"))
    if isinstance(error, sqlite3.Error):
        code = code_of(error)
        if code in _OF_DAMAGE or (code in (0, sqlite3.SQLITE_ERROR) and reads):
            return JournalDamaged(journal, doing, why, _DAMAGED)
    return JournalFailed(journal, doing, why, _fill_hint(_HINTS[cause_of(error)], doing))


def may_not_write(journal: str, doing: str) -> JournalFailed:
    """The error for a journal that can only be read."""
    why = "the file, or its folder, is read-only for this user"
    return JournalFailed(journal, doing, why, _fill_hint(_HINTS["write"], doing))


def busy_while_read(journal: str, doing: str) -> JournalFailed:
    """The error for a journal that can only be read while no process writes it, and one does."""
    why = "it can only be read here while nobody writes it, and others did each time"
    return JournalFailed(journal, doing, why, "Try again.")


def _fill_hint(hint: str, doing: str) -> str:
    """The hint with the next thing to do: only a run that has begun can be resumed."""
    begun = doing.startswith(("storing event", "syncing")) and "storing event 1 " not in doing
    return hint.replace("{again}", "resume the run" if begun else "try again")


def journal_damaged(journal: str, doing: str, why: str) -> JournalDamaged:
    """The error to raise for content that is not as it was written."""
    return JournalDamaged(journal, doing, why, _DAMAGED)


# The tables of a journal in SQLite. ``user_version`` is the number of its format, which is frozen:
# what is written in another way, here or in ``record.rows``, gets the next number. A file that has
# another number is refused.

T = TypeVar("T")

APPLICATION_ID = 0x68726A6C
"""``hrjl`` in ASCII; it marks the file as a journal of handrail."""
FORMAT = 1

TABLES = """
CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL UNIQUE,
    workflow TEXT NOT NULL,
    labels TEXT NOT NULL,
    started_at REAL NOT NULL,
    tail_seq INTEGER NOT NULL,
    tail_crc INTEGER NOT NULL,
    crc INTEGER NOT NULL
);
CREATE TABLE events (
    run INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    at REAL NOT NULL,
    kind TEXT NOT NULL,
    path TEXT NOT NULL,
    body TEXT NOT NULL,
    value TEXT,
    blob TEXT,
    crc INTEGER NOT NULL,
    PRIMARY KEY (run, seq)
) WITHOUT ROWID;
CREATE TABLE blobs (
    hash TEXT NOT NULL PRIMARY KEY,
    data TEXT NOT NULL
);
CREATE TABLE letters (
    run_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    key TEXT NOT NULL,
    at REAL NOT NULL,
    kind TEXT NOT NULL,
    path TEXT NOT NULL,
    body TEXT NOT NULL,
    value TEXT,
    crc INTEGER NOT NULL,
    PRIMARY KEY (run_id, number)
) WITHOUT ROWID;
CREATE UNIQUE INDEX letter_keys ON letters (run_id, key) WHERE key <> '';
CREATE TABLE leases (
    run_id TEXT NOT NULL PRIMARY KEY,
    epoch INTEGER NOT NULL,
    token TEXT NOT NULL,
    pid INTEGER,
    start_ticks INTEGER NOT NULL,
    host TEXT NOT NULL,
    boot TEXT NOT NULL,
    since REAL NOT NULL,
    renewed_at REAL NOT NULL,
    expires_at REAL NOT NULL
) WITHOUT ROWID;
CREATE VIEW history AS
    SELECT runs.run_id, events.seq,
           strftime('%Y-%m-%d %H:%M:%f', events.at, 'unixepoch') AS time,
           events.kind, events.path, events.body, coalesce(events.value, blobs.data) AS value
    FROM runs JOIN events ON events.run = runs.id LEFT JOIN blobs ON blobs.hash = events.blob;
"""


def has_tables(journal: str, connection: sqlite3.Connection) -> bool:
    """True for a journal of this format; False for an empty file.

    Raises:
        JournalFailed: it is a database of another program, or of another format.
    """
    with snapshot(connection):  # another process may be making the file just now
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application == 0 and version == 0 and tables == 0:
        return False
    if application != APPLICATION_ID:
        why = f"it is a database of another program (application_id {application})"
        raise JournalFailed(journal, "opening it", why, "Name another file for the journal.")
    if version != FORMAT:
        why = f"its format is version {version}, this handrail knows version {FORMAT}"
        hint = "Go on with the handrail that wrote it, or name another file for the journal."
        raise JournalFailed(journal, "opening it", why, hint)
    return True


def make_tables(journal: str, connection: sqlite3.Connection) -> None:
    """Make the tables of an empty file, in one transaction."""
    if has_tables(journal, connection):
        return
    with transaction(connection):
        if has_tables(journal, connection):  # another process was faster
            return
        _create(connection)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {FORMAT}")


def _create(connection: sqlite3.Connection) -> None:
    for statement in filter(str.strip, TABLES.split(";\n")):
        connection.execute(statement)


def check_schema(journal: str, connection: sqlite3.Connection) -> None:
    """Make sure that the tables are as they were made; there may be further tables.

    Raises:
        JournalDamaged: a table is missing, or differs.
    """
    there = set(connection.execute(_SCHEMA))
    changed = sorted(name for name, _ in _expected_schema() - there)
    if changed:
        raise journal_damaged(
            journal, "reading its tables", f"{', '.join(changed)}: not as created"
        )


_SCHEMA = "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL"


@functools.cache
def _expected_schema() -> frozenset[tuple[str, str]]:
    """Name and text of every table, index and view."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        _create(connection)
        return frozenset(connection.execute(_SCHEMA))


# The content of SQLite's write-ahead log, read from outside SQLite.
#
# A log is a header of 32 bytes and frames: 24 bytes of header and one page each. SQLite accepts the
# frames from the first on that have the log's salts and a right running checksum, up to the last
# one that ends a transaction. It cuts off the rest silently. When SQLite writes a log from its
# beginning again, old frames stay behind the new ones, with older salts: that is no damage.
#
# This code reads only the headers; a checksum of every page would take longer than the run. SQLite
# itself says how many frames it accepted: see ``describe_cut``. A cut just between two transactions
# cannot be seen.
#
# Nothing here opens the database or its ``-shm``: to close a file drops every lock that the process
# holds on it, and SQLite's are on those two. On the ``-wal`` it has none.
# Source: https://www.sqlite.org/fileformat2.html#the_write_ahead_log

_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_MAGIC = 0x377F0682
_AS_BIG_ENDIAN = 1
_SYSTEM_PAGE = 4096
_OLDEST = 1 << 20
"""How many restarts of a log old frames behind its end can have survived."""


@dataclass(frozen=True, slots=True)
class WalScan:
    """The content of a log's headers.

    ``commits``: the number (from 1) of the last frame that ends a transaction. ``strange``: how
    many bytes behind the frames neither this log nor an earlier one can have left there.
    """

    size_bytes: int = 0
    page_bytes: int = 0
    frames: int = 0
    commits: int = 0
    strange: int = 0
    ends: tuple[int, ...] = field(default=(), compare=False)
    """The numbers of the last frames that end a transaction, ``commits`` the last of them."""

    def ends_after(self, frame: int) -> int:
        """How many of the last transactions, as far as they are known, end behind a frame."""
        return sum(1 for number in self.ends if number > frame)


def scan(wal: str) -> WalScan:
    """Read the headers of the log in the file ``wal``; an empty scan if there is none."""
    try:
        fd = os.open(wal, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return WalScan()
    try:
        return _scan(fd, os.fstat(fd).st_size)
    except OSError:
        return WalScan()
    finally:
        os.close(fd)


def describe_cut(found: WalScan, believed: int) -> str:
    """What SQLite cut off the end of a log, when it ``believed`` so many frames; empty if nothing.

    An unfinished transaction at the end does not count: no caller was told that it was stored. If
    one transaction with its last frame was cut, the cause is not known. It may be damage; or a
    killed process wrote the header of that frame, and the page behind it is an old one, from before
    SQLite began the log from its start again.
    """
    if found.commits > believed:
        lost = found.commits - believed
        size = lost * (found.page_bytes + _FRAME.size)
        why = (
            ""
            if found.ends_after(believed) > 1
            else ", or not written to their end by a killed process"
        )
        return (
            f"the last {lost} of {found.commits} frames of the write-ahead log ({size} bytes) were "
            f"not as they were written{why}"
        )
    if found.strange:
        return f"the write-ahead log ended in {found.strange} bytes that are no whole frames of it"
    return ""


def _is_broken_off(piece: bytes, size: int, salts: tuple[int, int]) -> bool:
    """True for a piece that a killed process can leave in the middle of a write: SQLite writes the
    header of a frame, then its page, and the system stops at a page of its own. No caller was told
    that it was stored.
    """
    if len(piece) == _FRAME.size:
        return _FRAME.unpack(piece)[2:4] == salts
    return size % _SYSTEM_PAGE == 0


def _scan(fd: int, size: int) -> WalScan:
    header = os.pread(fd, _HEADER.size, 0)
    if not header.strip(b"\0"):
        return WalScan(size)
    if len(header) < _HEADER.size:
        return WalScan(size, strange=size)
    magic, _, page, _, salt, salt_2, _, _ = _HEADER.unpack(header)
    if magic | _AS_BIG_ENDIAN != _MAGIC | _AS_BIG_ENDIAN or not 512 <= page <= 65536:
        return WalScan(size, strange=size)
    frame_bytes = _FRAME.size + page
    whole, rest = divmod(size - _HEADER.size, frame_bytes)
    frames = commits = strange = 0
    last: deque[int] = deque(maxlen=2)
    ours = True
    for number in range(whole):
        raw = os.pread(fd, _FRAME.size, _HEADER.size + number * frame_bytes)
        if len(raw) < _FRAME.size:
            break  # another process shortened it meanwhile
        _, ends, theirs, theirs_2, _, _ = _FRAME.unpack(raw)
        ours = ours and (theirs, theirs_2) == (salt, salt_2)
        if ours:
            frames += 1
            if ends:
                commits = number + 1
                last.append(commits)
        elif raw.strip(b"\0") and not 0 < (salt - theirs) % (1 << 32) <= _OLDEST:
            strange += frame_bytes
    piece = os.pread(fd, rest, size - rest) if rest else b""
    if piece.strip(b"\0") and not _is_broken_off(piece, size, (salt, salt_2)):
        strange += rest
    return WalScan(size, page, frames, commits, strange, tuple(last))


# Opens a journal that this process may not write, read-only.
#
# SQLite reads a write-ahead log with an index in a file beside it, and makes that file if it is
# missing; in a read-only folder it cannot. A log exists only while a process has the journal open,
# or after a crash. Without a log everything is in the database file, and SQLite can read that as
# immutable, as long as no process changes it: ``state`` shows whether one did.

State: TypeAlias = tuple[int, int, int, bool]

_LOG_HINT = (
    "Copy its folder to where you may write, and name the copy; or have somebody look at it first "
    "who may write there."
)


def is_read_only(path: Path) -> bool:
    """True if the file exists, and this process may not write it, or not in its folder."""
    return path.is_file() and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))


def state(path: Path) -> State:
    """A value that changes when a process writes the journal."""
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_size, has_log(path)


def _connect_read_only(path: Path) -> tuple[sqlite3.Connection, bool]:
    """A connection that writes nothing; True if SQLite takes the file as immutable.

    Raises:
        JournalFailed: the journal cannot be read without a write.
        sqlite3.Error, OSError: another failure.
    """
    uri = f"file:{quote(str(path))}"
    if not has_log(path):
        return connect(f"{uri}?immutable=1", PATIENCE_S, uri=True), True
    try:
        return connect(f"{uri}?mode=ro", PATIENCE_S, uri=True), False
    except sqlite3.OperationalError as error:
        if path.with_name(f"{path.name}-shm").exists():
            raise
        log = f"{path.name}-wal, left by a process that died"
        why = f"its last events are in {log}, and its folder cannot be written"
        raise JournalFailed(str(path), "reading it", why, _LOG_HINT) from error


def has_log(path: Path) -> bool:
    """True if something is in the write-ahead log beside the file."""
    try:
        return path.with_name(f"{path.name}-wal").stat().st_size > 0
    except FileNotFoundError:
        return False


PATIENCE_S = 10.0
"""How long to wait for another connection's transaction to end."""
CHECKED_WHOLE_BYTES = 32 << 20
"""Larger files are not read whole when they are opened; see ``_check``."""
SMALLEST_BYTES = 512
"""The size of SQLite's smallest page."""
_LOOK_AGAIN_S = 0.02


def connect(path: str, wait_s: float, *, uri: bool = False) -> sqlite3.Connection:
    """A connection in autocommit mode that any thread may use, one at a time.

    A file that is made for it is for this user alone, and so are those that SQLite puts beside it.
    """
    if not uri:
        with contextlib.suppress(OSError):  # SQLite says what is wrong
            # Only if it is made: to close one that is there would drop this process's locks on it.
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
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
    """A connection to the journal; makes the file if there is none. ``notice`` gets the text about
    what was cut off.

    Raises:
        JournalFailed: it is no journal, or one of another format.
        JournalDamaged: it is not as it was written.
        sqlite3.Error, OSError: another failure.
    """
    name = str(path)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    made = _make_folder(path.parent)
    size, found = _scan_file(path)
    connection = connect(name, PATIENCE_S)
    try:
        has_tables(name, connection)
        _use_wal(name, connection)
        if size:
            _report_cut(name, connection, found, notice)
        make_tables(name, connection)
        if size:
            _check(name, connection, size)
        else:  # from now on the file is not empty, whatever happens to the log
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    except BaseException:
        connection.close()
        raise
    if not size:
        for folder in (path.parent, *made):
            sync_folder(folder)
    return connection


def open_to_read(path: Path) -> tuple[sqlite3.Connection, bool]:
    """A read-only connection to a journal; True if it does not see changes by other processes.

    Raises:
        JournalFailed, sqlite3.Error, OSError: as ``open_journal``; or it is empty.
    """
    name = str(path)
    size, _ = _scan_file(path)
    connection, frozen = _connect_read_only(path)
    try:
        _expect_tables(name, connection)
        _check(name, connection, size)
    except BaseException:
        connection.close()
        raise
    return connection, frozen


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that the names of its files survive a loss of power."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class _Caller(threading.local):
    tries_again = False


_caller = _Caller()


def try_once(action: Callable[[], T]) -> T:
    """The result of ``action``; ``retry_busy`` within it raises where it would wait."""
    _caller.tries_again = True
    try:
        return action()
    finally:
        _caller.tries_again = False


def retry_busy(action: Callable[[], T], patience_s: float | None = None) -> T:
    """The result of ``action``, repeated while another connection has the lock, up to
    ``PATIENCE_S``.
    """
    until = time.monotonic() + (PATIENCE_S if patience_s is None else patience_s)
    while True:
        try:
            return action()
        except (sqlite3.Error, JournalFailed) as error:
            if not is_locked(error) or _caller.tries_again or time.monotonic() > until:
                raise
        pause(0.005)


def is_tried_again(error: BaseException) -> bool:
    """True for the error of a lock, below ``try_once``: its caller tries again."""
    return _caller.tries_again and is_locked(error)


def is_locked(error: BaseException) -> bool:
    """True if another connection had the lock, also if ``failure`` made the error of that."""
    return is_busy(error.__cause__ or error)


def pause(seconds: float) -> None:
    """Sleep, in a thread that no event loop runs in."""
    threading.Event().wait(seconds)


def _make_folder(folder: Path) -> list[Path]:
    made: list[Path] = []
    missing = folder
    while not missing.exists():
        made.append(missing.parent)
        missing = missing.parent
    if folder.name == FOLDER:
        make_ignored(folder)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return made


def _expect_tables(journal: str, connection: sqlite3.Connection) -> None:
    if not has_tables(journal, connection):
        why = "it has no tables yet, and they cannot be made here"
        raise JournalFailed(journal, "reading it", why, "Copy it to where you may write.")


def _scan_file(path: Path) -> tuple[int, WalScan]:
    """The size of the file in bytes, and the scan of its log; 0 bytes if the file does not exist.

    The log is read first: SQLite makes it after the file has its first page, and another process
    may be making both just now.

    Raises:
        JournalFailed: it is too small for a database.
        JournalDamaged: SQLite would take it for an empty file, and delete its log.
        OSError: it cannot be read.
    """
    journal = str(path)
    found = scan(f"{journal}-wal")
    size = path.stat().st_size if path.exists() else 0
    if 0 < size < SMALLEST_BYTES:
        why = f"it is not a database: it has {size} bytes"
        raise JournalFailed(journal, "opening it", why, "Name another file for the journal.")
    if not size and found.commits:
        why = "it is empty, while its write-ahead log is not"
        raise journal_damaged(journal, "reading it", why)
    return size, found


def _use_wal(journal: str, connection: sqlite3.Connection) -> None:
    def switch() -> None:
        # SQLite does not wait here by itself if two processes make a new file at once.
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            why = f"its file system has no shared memory for a write-ahead log (mode {mode!r})"
            raise JournalFailed(journal, "opening it", why, "Put it on a local disk.")

    retry_busy(switch)


def _check(journal: str, connection: sqlite3.Connection, size: int) -> None:
    """Make sure that no row has vanished or moved; see the theory in ``sqlite.journal``.

    Source: measured; 0.3 ms for a small file, 3.5 ms for each MiB.
    """
    check_schema(journal, connection)
    tables = [""] if size <= CHECKED_WHOLE_BYTES else ["runs", "letters", "leases"]
    for table in tables:
        pragma = f"PRAGMA integrity_check({table or 1})"
        (said,) = connection.execute(pragma).fetchone()
        if said != "ok":
            raise journal_damaged(journal, "reading it", str(said).replace("\n", "; "))
    last = connection.execute("SELECT run FROM events ORDER BY run DESC LIMIT 1").fetchone()
    if last and not connection.execute("SELECT 1 FROM runs WHERE id = ?", last).fetchone():
        raise journal_damaged(journal, "reading it", f"events of a run {last[0]} that is not there")


def _report_cut(
    name: str, connection: sqlite3.Connection, found: WalScan, notice: Callable[[str], None]
) -> None:
    if not (found.frames or found.strange):
        return
    cut = _find_cut(connection, found)
    if not cut:
        return
    # A live process may have been writing just there, or restarting the log.
    pause(_LOOK_AGAIN_S)
    again = scan(f"{name}-wal")
    if again == found and _find_cut(connection, again) == cut:
        notice(f"journal {name}: {cut}. They were cut off; what is before them is whole.")


def _find_cut(connection: sqlite3.Connection, found: WalScan) -> str:
    try:
        busy, believed, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    except sqlite3.Error as error:
        if cause_of(error) != "full":
            raise
        return ""  # the log stays, and can be read; the next write raises
    return "" if busy or believed < 0 else describe_cut(found, believed)
