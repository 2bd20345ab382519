"""What SQLite says went wrong, as the errors of a journal."""

from __future__ import annotations

import errno
import sqlite3  # noqa: TID253 - loaded with SqliteJournal, on its first use
from typing import TypeAlias

from handrail.errors import JournalDamaged, JournalFailed

_FULL = "Free some space on its disk, then {again}; what was recorded is kept."
_WRITE = (
    "handrail must be able to write the file, and to create files in its folder. Change the "
    "permissions, or put the journal elsewhere; then {again}."
)
_LOCKED = (
    "Another program keeps it locked: an sqlite3 shell, a backup, or a stopped process (Ctrl-Z) "
    "perhaps. End that, then {again}; what was recorded is kept."
)
_DISK = (
    "Look at the disk and at the limits of the process (ulimit -f), then {again}; what was "
    "recorded is kept."
)
_DAMAGED = (
    "Nothing in it is believed. Put back a copy of the file, or move it away to begin a new "
    "journal; `sqlite3 FILE .recover` shows what can still be read."
)
_OTHER = "It may be a file of another program, or damaged from its first bytes on. Name another."

_PRIMARY = 0xFF
_HINTS = {
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_READONLY: _WRITE,
    sqlite3.SQLITE_PERM: _WRITE,
    sqlite3.SQLITE_CANTOPEN: _WRITE,
    sqlite3.SQLITE_AUTH: _WRITE,
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_IOERR: _DISK,
    sqlite3.SQLITE_NOTADB: _OTHER,
}
_OF_SYSTEM = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: _DISK,
    errno.EIO: _DISK,
}
_OF_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_FORMAT)


def code_of(error: BaseException) -> int:
    """The primary result code of an error of SQLite's; 0 if it has none."""
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & _PRIMARY


def is_busy(error: BaseException) -> bool:
    """True if another connection had the lock, so that it is worth trying again."""
    return code_of(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


Failure: TypeAlias = sqlite3.Error | OSError | UnicodeDecodeError


def failure(journal: str, doing: str, error: Failure) -> JournalFailed:
    """The error to raise for what SQLite or the system said while ``doing`` it.

    That a text is no UTF-8 is damage, also where it is the text of SQLite's own error.
    """
    if isinstance(error, OSError):
        said = f"{error.strerror or error} ({type(error).__name__})"
        hint = _OF_SYSTEM.get(error.errno or 0, _WRITE)
        return JournalFailed(journal, doing, said, _again(hint, doing))
    if isinstance(error, UnicodeDecodeError):
        return damaged(journal, doing, str(error))
    code = code_of(error)
    name = getattr(error, "sqlite_errorname", None)
    why = f"{error} ({name})" if name else str(error)
    if code in _OF_DAMAGE or (code in (0, sqlite3.SQLITE_ERROR) and doing.startswith("reading")):
        return JournalDamaged(journal, doing, why, _DAMAGED)
    return JournalFailed(journal, doing, why, _again(_HINTS.get(code, ""), doing))


def may_not_write(journal: str, doing: str) -> JournalFailed:
    """The error for a journal that can only be read."""
    why = "the file, or its folder, is read-only for this user"
    return JournalFailed(journal, doing, why, _again(_WRITE, doing))


def never_still(journal: str, doing: str) -> JournalFailed:
    """The error for a journal that can only be read while nobody writes it, and somebody does."""
    why = "it can only be read here while nobody writes it, and others did each time"
    return JournalFailed(journal, doing, why, "Try again.")


def _again(hint: str, doing: str) -> str:
    """What to do then: only a run that has begun can be resumed."""
    begun = doing.startswith(("storing event", "syncing")) and "storing event 1 " not in doing
    return hint.replace("{again}", "resume the run" if begun else "try again")


def damaged(journal: str, doing: str, why: str) -> JournalDamaged:
    """The error to raise for what is not as it was written."""
    return JournalDamaged(journal, doing, why, _DAMAGED)
