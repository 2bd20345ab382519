"""SQLite for every store: its file, transactions, snapshots, and what to do about errors."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from collections.abc import Generator
from pathlib import Path
from typing import Literal, TypeAlias

Cause: TypeAlias = Literal["full", "write", "locked", "disk", "place", "other", ""]
"""What to do about an error: free space (``full``), allow writing (``write``), end the process with
the lock (``locked``), check the disk (``disk``), name another place (``place``), or another file
(``other``).
"""
_PRIMARY = 0xFF
_CAUSES: dict[int, Cause] = {
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_READONLY: "write",
    sqlite3.SQLITE_PERM: "write",
    sqlite3.SQLITE_CANTOPEN: "write",
    sqlite3.SQLITE_AUTH: "write",
    sqlite3.SQLITE_BUSY: "locked",
    sqlite3.SQLITE_LOCKED: "locked",
    sqlite3.SQLITE_IOERR: "disk",
    sqlite3.SQLITE_NOTADB: "other",
}
_OF_SYSTEM: dict[int, Cause] = {
    errno.EISDIR: "place",
    errno.ENOTDIR: "place",
    errno.EEXIST: "place",
    errno.ENOSPC: "full",
    errno.EDQUOT: "full",
    errno.EFBIG: "disk",
    errno.EIO: "disk",
}


def code_of(error: BaseException) -> int:
    """The primary result code of an SQLite error; 0 if it has none."""
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & _PRIMARY


def is_busy(error: BaseException) -> bool:
    """True if another connection had the lock, so that a retry may succeed."""
    return code_of(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def cause_of(error: sqlite3.Error | OSError) -> Cause:
    """What to do about the error; empty if unknown."""
    if isinstance(error, OSError):
        return _OF_SYSTEM.get(error.errno or 0, "write")
    return _CAUSES.get(code_of(error), "")


def why_of(error: sqlite3.Error | OSError) -> str:
    """What SQLite or the operating system said."""
    if isinstance(error, OSError):
        return f"{error.strerror or error} ({type(error).__name__})"
    name = getattr(error, "sqlite_errorname", None)
    return f"{error} ({name})" if name else str(error)


FileIdentity: TypeAlias = tuple[int, int]
"""The device and inode number of a file: no other file has them while it is open."""


def file_identity(name: str | Path) -> FileIdentity | None:
    """The identity of the file that a name leads to; None if there is none."""
    try:
        found = os.stat(name)  # a Path takes twice as long, and this is often
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Generator[None]:
    """Commits all writes of the block, or none; within another transaction, joins that one."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


@contextlib.contextmanager
def snapshot(connection: sqlite3.Connection) -> Generator[None]:
    """All reads of the block see one moment; within a transaction they already do."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
