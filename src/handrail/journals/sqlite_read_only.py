"""A journal that this process may not write, opened to be read and never changed.

SQLite reads a write-ahead log with the help of an index that stands in a file beside it, and makes
that file if it is not there; in a folder that is read-only it cannot. There is a log only while
somebody has the journal open, or after a crash. Without one all is in the database, and it can be
read as a file that nobody changes, as long as nobody does: ``state`` tells that.
"""

from __future__ import annotations

import os
import sqlite3  # noqa: TID253 - loaded with SqliteJournal, on its first use
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias
from urllib.parse import quote

from handrail.errors import JournalFailed

State: TypeAlias = tuple[int, int, int, bool]

_LOG_HINT = (
    "Copy its folder to where you may write, and name the copy; or have somebody look at it first "
    "who may write there."
)


def is_read_only(path: Path) -> bool:
    """True if the file is there, and this process may not write it or not beside it."""
    return path.is_file() and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))


def state(path: Path) -> State:
    """What changes when somebody writes the journal."""
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_size, _has_log(path)


def open_read_only(
    path: Path, connect: Callable[[str], sqlite3.Connection]
) -> tuple[sqlite3.Connection, bool]:
    """A connection that writes nothing; True if it believes that nobody else does either.

    ``connect`` opens what a URI names.

    Raises:
        JournalFailed: it cannot be read without being written.
        sqlite3.Error, OSError: what else went wrong.
    """
    uri = f"file:{quote(str(path))}"
    if not _has_log(path):
        return connect(f"{uri}?immutable=1"), True
    try:
        return connect(f"{uri}?mode=ro"), False
    except sqlite3.OperationalError as error:
        if path.with_name(f"{path.name}-shm").exists():
            raise
        log = f"{path.name}-wal, left by a process that died"
        why = f"its last events are in {log}, and its folder cannot be written"
        raise JournalFailed(str(path), "reading it", why, _LOG_HINT) from error


def _has_log(path: Path) -> bool:
    try:
        return path.with_name(f"{path.name}-wal").stat().st_size > 0
    except FileNotFoundError:
        return False
