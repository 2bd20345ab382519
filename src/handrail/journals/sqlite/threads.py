"""Syncs and checkpoints of a write-ahead log, and the threads that do them.

SQLite in mode NORMAL writes each transaction to the log, and syncs the log only before it moves
pages into the database. So a sync of the log makes every earlier transaction durable, whoever wrote
it, and one sync serves all callers that wait. To open and close the log is safe: SQLite's locks are
on the database and its ``-shm``, and a close drops only the locks on the same file.

The log is SQLite's file: this module syncs it, and never writes it. To ask a thread and be woken
takes 50 us, as long as a sync on some disks. If recent syncs were that quick, with a slow one now
and then at most, and no other caller waits, the event loop syncs by itself.
Source: measured on the disk of a virtual machine.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Generic, TypeAlias, TypeVar

from handrail.journals.sqlite.open import connect, failure, retry_busy, sync_folder, try_once
from handrail.journals.sqlite.watch import LOOK_EVERY_S
from handrail.system.threads import Pending

QUICK_S = 0.001
"""A sync is quick up to this. The loop may wait so long: a thread would cost a quarter of that."""
QUICK_SYNCS = 8
"""How many quick syncs must come before the loop does one."""
_MOST_QUICK = 2 * QUICK_SYNCS
"""A bound on the count of quick syncs: so it forgives one slow sync, but not two in a row."""
_SLOW_S = 0.005
"""A sync that takes this long shows that the disk is not quick now."""
_AFTER_A_SLOW_ONE = -32
MANY_SYNCS = 32
"""After this many syncs, expect many more."""


class WalFile:
    """The ``-wal`` file of a journal, kept open to be synced beside SQLite.

    ``look`` raises an error if the journal's file was removed or replaced. ``many`` is called once,
    after ``MANY_SYNCS`` syncs.
    """

    def __init__(self, journal: Path, look: Callable[[], None], many: Callable[[], None]) -> None:
        self.lock = threading.Lock()
        self._many = many
        self._syncs = 0
        self._journal = journal
        self._look = look
        self._fd = -1
        self._quick = 0

    def sync(self) -> None:
        """Wait until everything written so far is on disk.

        Raises:
            JournalFailed: the system reported an error, or the file was removed.
        """
        with self.lock:
            self._sync()

    def sync_if_quick(self) -> bool:
        """Sync if that is likely to be quick; else return False, and do nothing."""
        if self._quick < QUICK_SYNCS or not self.lock.acquire(blocking=False):
            return False
        try:
            self._sync()
        finally:
            self.lock.release()
        return True

    def close(self) -> None:
        """Close the file; the caller has locked ``lock``."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _sync(self) -> None:
        self._look()
        try:
            self._open()
            began = time.perf_counter()
            _sync_data(self._fd)
            self._note_duration(time.perf_counter() - began)
            self._syncs += 1
            if self._syncs == MANY_SYNCS:
                self._many()
        except FileNotFoundError:
            return  # no log: everything was moved into the database, and synced there
        except OSError as error:
            self.close()
            raise failure(str(self._journal), "syncing it to disk", error) from error

    def _note_duration(self, took_s: float) -> None:
        if took_s <= QUICK_S:
            self._quick = min(self._quick + 1, _MOST_QUICK)
        elif took_s < _SLOW_S:
            self._quick -= QUICK_SYNCS
        else:
            self._quick = _AFTER_A_SLOW_ONE

    def _open(self) -> None:
        if self._fd >= 0 and not os.fstat(self._fd).st_nlink:  # the last connection deleted it
            self.close()
        if self._fd < 0:
            self._fd = os.open(f"{self._journal}-wal", os.O_RDONLY | os.O_CLOEXEC)
            sync_folder(self._journal.parent)


def _sync_data(fd: int) -> None:
    if sys.platform == "darwin":  # a plain fsync there stops at the drive's cache
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(fd)


# A thread that moves pages from the write-ahead log into the database, and renews leases.
#
# It also checks that the file was not removed or replaced, so that no run continues without one.
#
# SQLite's own checkpoints run inside the commit that makes the log long, and stall it by the time
# of two syncs and all the writes between. Here a connection of its own moves pages while others
# write. It never reaches the end of a log that is written without a pause, and that log would grow
# for ever. So when the log is long, the thread moves the last few pages while it blocks this
# journal's own writes: they wait as awaitables, and the event loop is not blocked.

AFTER_PAGES = 1000
"""How many pages may be written before the thread moves them."""
LONG_PAGES = 2000
"""A log of at least this many pages is written from its beginning again; writers wait for that."""
SYNCED_PAGES = 500
"""Both numbers, for a log that is synced often. The thread extends the log to this length once.

To sync a file that has grown, the file system must write down its new length, which costs as much
as the data: 135 us a sync, on a disk where a sync of a file that is long enough costs 80.
"""
_WAIT_S = 0.05


class CheckpointThread:
    """Moves pages, renews leases and watches the file, in a thread that starts when it is needed.

    ``renew`` renews, on a connection, every lease of the journal, and releases those whose release
    failed before. ``has_leases`` says whether there are any, ``is_gone`` whether the file is gone.
    ``writing`` is the lock of the connection whose writes the thread blocks at times.
    """

    def __init__(
        self,
        path: str,
        writing: threading.Lock,
        renew: Callable[[sqlite3.Connection], None],
        *,
        has_leases: Callable[[], bool],
        is_gone: Callable[[], bool],
        every_s: float,
    ) -> None:
        self.lock = threading.Lock()
        self.written = 0
        """Pages written since the last checkpoint, about."""
        self.stale = False
        """True if its connection is to a file that is gone: another may have taken its place."""
        self.lengthens = False
        """True if the thread should extend the log to ``SYNCED_PAGES``."""
        self._after, self._long = AFTER_PAGES, LONG_PAGES
        self._path = path
        self._writing = writing
        self._renew = renew
        self._has_leases = has_leases
        self._is_gone = is_gone
        self._every_s = every_s
        self._due = threading.Event()
        self._starting = threading.Lock()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._connection: sqlite3.Connection | None = None

    @property
    def is_due(self) -> bool:
        """True if enough pages were written to be moved."""
        return self.written >= self._after

    def wake(self) -> None:
        """Have the thread check at once whether there is something to do."""
        if self._thread is None:
            with self._starting:
                self._start()
        self._due.set()

    def _start(self) -> None:
        if self._thread is None:
            self._ending = threading.Event()
            thread = threading.Thread(
                target=self._work,
                args=(self._ending,),
                name="handrail journal checkpoints",
                daemon=True,
            )
            thread.start()
            self._thread = thread  # once it can be joined

    def stop(self) -> None:
        """End the thread."""
        with self._starting:
            thread, self._thread = self._thread, None
            self._ending.set()
        if thread is not None:
            self._due.set()
            if thread is not threading.current_thread():
                thread.join()
        with self.lock:
            self.disconnect()

    def disconnect(self) -> None:
        """Close its connection, to be opened again when needed; the caller has locked ``lock``."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _work(self, ending: threading.Event) -> None:
        next_renewal = time.monotonic() + self._every_s
        while True:
            wait_s = max(0.0, min(LOOK_EVERY_S, next_renewal - time.monotonic()))
            self._due.wait(wait_s if self._has_leases() else None)
            self._due.clear()
            if ending.is_set():
                return
            with self.lock:
                due = time.monotonic() >= next_renewal
                if due:
                    next_renewal = time.monotonic() + self._every_s
                is_gone = self._is_gone()
                if is_gone or self.stale:
                    self.stale = False
                    self.disconnect()
                if is_gone:  # to open the file would make a new one in its place
                    continue
                try:
                    if due:
                        retry_busy(lambda: self._renew(self._connect()), self._every_s)
                    if self.lengthens:
                        self.lengthens = False
                        self._extend_wal(self._connect())
                    if self.written >= self._after:
                        self.written = 0
                        self._checkpoint(self._connect())
                except sqlite3.Error:  # the next write meets the same error, and raises it
                    self.disconnect()

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = connect(self._path, _WAIT_S)
        return self._connection

    def _checkpoint(self, connection: sqlite3.Connection) -> None:
        passive = "PRAGMA wal_checkpoint(PASSIVE)"
        connection.execute(passive).fetchone()
        _, pages, _ = connection.execute(passive).fetchone()  # pages written during the first
        if pages >= self._long:
            with self._writing:
                self._restart_wal(connection)

    def _restart_wal(self, connection: sqlite3.Connection) -> None:
        """Have the log written from its beginning again; the caller has locked ``_writing``."""
        connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
        # The first write to the new log syncs its header; better here than on the loop.
        self._renew(connection)

    def _extend_wal(self, connection: sqlite3.Connection) -> None:
        """Write one page until the log is long, then restart the log: the file keeps its length."""
        self._after = self._long = SYNCED_PAGES
        with self._writing:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            for _ in range(SYNCED_PAGES):
                connection.execute(f"PRAGMA user_version = {version}")
            self._restart_wal(connection)


T = TypeVar("T")


class Retried(Generic[T]):
    """An action that a thread repeats while the file is locked, until its caller gives it up."""

    result: T

    def __init__(self, action: Callable[[], T]) -> None:
        self._action = action
        self._acting = threading.Lock()
        self._is_wanted = True

    def __call__(self) -> None:
        """Get the result, as ``retry_busy`` does."""
        retry_busy(self._once)

    def give_up(self) -> None:
        """Have the action not begin any more; one that is at work ends first."""
        with self._acting:
            self._is_wanted = False

    def _once(self) -> None:
        with self._acting:
            if self._is_wanted:
                self.result = try_once(self._action)


# A thread for work that would stall an event loop: writes that must wait, and syncs to disk.
#
# Requests that come during a sync share the next one. The thread retries a write that found the
# database locked; writes that come meanwhile queue behind it, so that all keep their order.

Job: TypeAlias = tuple[Callable[[], None] | None, bool, Pending]


class WriterThread:
    """Writes and syncs in a thread, which starts with the first request. ``sync`` makes everything
    written so far survive a loss of power.
    """

    def __init__(self, sync: Callable[[], None]) -> None:
        self._sync = sync
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self.starting = threading.Lock()
        self.waiting = 0
        """How many writes are queued; no other write may overtake them."""
        self.unfinished = 0
        """How many requests are not finished."""

    def submit(self, write: Callable[[], None] | None, pending: Pending, *, sync: bool) -> Pending:
        """Queue a write (or None), and a sync if ``sync``; finishes ``pending`` afterwards."""
        with self.starting:
            self.unfinished += 1
            if write is not None:
                self.waiting += 1
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name="handrail journal writer", daemon=True
                )
                self._thread.start()
            self._queue.put((write, sync, pending))
        return pending

    def stop(self) -> None:
        """Finish all requests, and end the thread."""
        with self.starting:
            thread, self._thread = self._thread, None
            if thread is None:
                return
            self._queue.put(None)
        if thread is not threading.current_thread():
            thread.join()

    def _work(self) -> None:
        queue = self._queue
        while True:
            job = queue.get()
            batch: list[Job] = []
            while job is not None:
                batch.append(job)
                try:
                    job = queue.get_nowait()
                except Empty:
                    break
            self._write_batch(batch)
            if job is None:
                return

    def _write_batch(self, batch: list[Job]) -> None:
        unsynced: list[Pending] = []
        for write, sync, pending in batch:
            if write is not None:
                self._write(write, pending)
            if sync and pending.error is None:
                unsynced.append(pending)
            else:
                self._finish(pending)
        if not unsynced:
            return
        try:
            self._sync()
        except Exception as error:  # noqa: BLE001 - raised where it is awaited
            for pending in unsynced:
                pending.error = error
        for pending in unsynced:
            self._finish(pending)

    def _finish(self, pending: Pending) -> None:
        with self.starting:
            self.unfinished -= 1
        pending.finish()

    def _write(self, write: Callable[[], None], pending: Pending) -> None:
        try:
            write()
        except Exception as error:  # noqa: BLE001 - raised where it is awaited
            pending.error = error
        finally:
            with self.starting:
                self.waiting -= 1
