"""What was written to a write-ahead log, made to survive a loss of power.

SQLite in mode NORMAL writes each transaction to the log, and syncs the log only before it moves
pages into the database. So a sync of the log makes every earlier transaction durable, whoever wrote
it, and one sync serves all who wait. To open and close the log is safe: SQLite's locks are on the
database and its ``-shm``, and a close drops only those on the same file.

Two things make a sync cheap. A file that grows has its new size to be written, too; so zeros are
written ahead, while no transaction can be, and the log then grows into them (SQLite ends a log at
the first frame that is not its own). And to ask a thread and be woken takes 50 us, as long as some
disks take; where they were that quick lately, but for one now and then, and nobody else waits, the
loop does it itself.
Source: measured; a growing file 105 us, zeros ahead 60 us, on the disk of a virtual machine.
"""

from __future__ import annotations

import fcntl
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from handrail.journals.sqlite_failures import failure
from handrail.journals.sqlite_open import sync_folder

QUICK_S = 0.001
"""What the loop may wait for, since to leave it to a thread costs a quarter of that."""
QUICK_SYNCS = 8
"""So many syncs must have been quick, before the next is done on the loop."""
_MOST_QUICK = 2 * QUICK_SYNCS
"""More of them count no more: then one may be slow, and two in a row may not."""
_SLOW_S = 0.005
"""One that takes as long as this says that the disk is no quick one now."""
_AFTER_A_SLOW_ONE = -32
_AHEAD_BYTES = 256 << 10
_ASKED_EVERY = 8
"""So many syncs, of two pages, use a quarter of that."""
_NOTHING = bytes(8192)
"""Longer than a frame: a place in the log that is no other has the header of one."""
_ENOUGH_BYTES = 16 << 20
"""Such a long log is begun anew soon, and overwritten from its start."""


class WalFile:
    """The ``-wal`` file of a journal, held open to be synced beside SQLite.

    ``reserve`` does what it is given while no transaction can be written, or not at all. ``look``
    raises an error if the journal is not where it was.
    """

    def __init__(
        self,
        journal: Path,
        reserve: Callable[[Callable[[], None]], None],
        look: Callable[[], None],
    ) -> None:
        self.lock = threading.Lock()
        self._journal = journal
        self._reserve = reserve
        self._look = look
        self._fd = -1
        self._quick = 0
        self._ahead = 0
        self._since_asked = 0

    def sync(self) -> None:
        """Wait until all that was written so far is on disk.

        Raises:
            JournalFailed: the system could not say that it is, or the file was removed.
        """
        with self.lock:
            self._sync()

    def sync_if_quick(self) -> bool:
        """The same, if it can be expected to be done at once; False, and nothing, if it cannot."""
        if self._quick < QUICK_SYNCS or not self.lock.acquire(blocking=False):
            return False
        try:
            self._sync()
        finally:
            self.lock.release()
        return True

    def close(self) -> None:
        """Let go of the file; the caller holds the lock."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._ahead = 0

    def _sync(self) -> None:
        self._look()
        try:
            self._open()
            began = time.perf_counter()
            _sync_data(self._fd)
            self._judge(time.perf_counter() - began)
            if self._quick > QUICK_SYNCS and self._used_up():
                self._reserve(self._write_ahead)
        except FileNotFoundError:
            return  # all of it was moved into the database, and synced there
        except OSError as error:
            self.close()
            raise failure(str(self._journal), "syncing it to disk", error) from error

    def _judge(self, took_s: float) -> None:
        if took_s <= QUICK_S:
            self._quick = min(self._quick + 1, _MOST_QUICK)
        elif took_s < _SLOW_S:
            self._quick -= QUICK_SYNCS
        else:
            self._quick = _AFTER_A_SLOW_ONE

    def _open(self) -> None:
        if self._fd >= 0 and not os.fstat(self._fd).st_nlink:  # deleted by who used it last
            self.close()
        if self._fd < 0:
            self._fd = os.open(f"{self._journal}-wal", os.O_RDWR | os.O_CLOEXEC)
            sync_folder(self._journal.parent)

    def _used_up(self) -> bool:
        """True if the log has grown into the second half of the zeros, if there are any; asked of
        the file now and then, for most logs grow by two pages a sync.
        """
        if not self._ahead:
            return True
        self._since_asked += 1
        if self._ahead >= _ENOUGH_BYTES or self._since_asked < _ASKED_EVERY:
            return False
        self._since_asked = 0
        middle = os.pread(self._fd, len(_NOTHING), self._ahead - _AHEAD_BYTES // 2)
        return middle != _NOTHING

    def _write_ahead(self) -> None:
        size = os.fstat(self._fd).st_size
        if size < _ENOUGH_BYTES:
            os.pwrite(self._fd, bytes(_AHEAD_BYTES), size)
        self._ahead = size + _AHEAD_BYTES


def _sync_data(fd: int) -> None:
    if sys.platform == "darwin":  # a plain fsync there stops at the drive's cache
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(fd)
