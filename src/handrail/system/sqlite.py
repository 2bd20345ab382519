"""SQLite, for all that keep something in a file of it: several statements as one, and causes."""

from __future__ import annotations

import contextlib
import errno
import sqlite3
from collections.abc import Generator
from typing import Literal, TypeAlias

Cause: TypeAlias = Literal["full", "write", "locked", "disk", "place", "other", ""]
"""What is to be done about a failure: free some space, let it be written, end who locks it, look at
the disk, name another place, or another file.
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
    """The primary result code of an error of SQLite's; 0 if it has none."""
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & _PRIMARY


def is_busy(error: BaseException) -> bool:
    """True if another connection had the lock, so that it is worth trying again."""
    return code_of(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def cause_of(error: sqlite3.Error | OSError) -> Cause:
    """What to do about it; nothing, if nobody knows."""
    if isinstance(error, OSError):
        return _OF_SYSTEM.get(error.errno or 0, "write")
    return _CAUSES.get(code_of(error), "")


def why_of(error: sqlite3.Error | OSError) -> str:
    """What SQLite or the system said."""
    if isinstance(error, OSError):
        return f"{error.strerror or error} ({type(error).__name__})"
    name = getattr(error, "sqlite_errorname", None)
    return f"{error} ({name})" if name else str(error)


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Generator[None]:
    """All that is written inside, or nothing; inside another one it is a part of that."""
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
    """All that is read inside is of one moment; inside a transaction it is so already."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
