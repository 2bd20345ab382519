"""Detects that a journal's file was removed or replaced while it is open.

A process that has a file open can still write it after it was removed: SQLite notices nothing, and
everything is gone when the process closes it. ``git clean -fdx`` removes a folder of runs like
that, and so does an agent that tidies up. So the journal looks its name up now and then, as SQLite
itself does for journals of another kind. As long as a file is open, no other file can have its
inode number.
"""

from __future__ import annotations

from handrail.errors import JournalFailed
from handrail.system.sqlite import FileIdentity, file_identity

LOOK_S = 0.05
"""How long after a look a write looks again; a look takes 2 us, a tenth of a write."""
LOOK_EVERY_S = 1.0
"""How often a thread looks while the process has a lease, with or without writes."""

_LOG = "-wal"
_HINT = (
    "What was recorded is gone with it, and nothing more is performed. If there is a copy of its "
    "folder, put that back and resume the run; else start the run again. Keep the journal where "
    "nothing tidies up: `git clean -x` removes ignored files, too."
)


class Watch:
    """The device and inode numbers of one journal's open files. Mutable."""

    def __init__(self, journal: str) -> None:
        self._journal = journal
        self._known: FileIdentity | None = None
        self._log: FileIdentity | None = None

    def begin(self) -> None:
        """Remember the files just opened; keep the journal's own numbers if they are known."""
        if self._known is None:
            self._known = file_identity(self._journal)
        self._log = file_identity(self._journal + _LOG)

    def forget_log(self) -> None:
        """Expect another log from now on: the last connection to close removes the log."""
        self._log = None

    def forget(self) -> None:
        """Expect no files: the next ones opened may be others."""
        self._known = self._log = None

    def why_gone(self) -> str:
        """Why a file is gone, in words; empty if both names lead to the files opened."""
        known, log = self._known, self._log
        if known is None:
            return ""
        said = _change_of(self._journal, known, "the file")
        if not said and log is not None:
            said = _change_of(self._journal + _LOG, log, "its write-ahead log")
            if log is not self._log:  # forgotten meanwhile
                return ""
        return said


def journal_removed(journal: str, doing: str, why: str) -> JournalFailed:
    """The error for a journal whose file was removed or replaced."""
    return JournalFailed(journal, doing, why, _HINT)


def _change_of(name: str, known: FileIdentity, what: str) -> str:
    found = file_identity(name)
    if found == known:
        return ""
    happened = "removed" if found is None else "replaced by another"
    return f"{what} was {happened} while it was in use"
