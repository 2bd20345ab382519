"""What was written to a write-ahead log, made to survive a loss of power.

SQLite in mode NORMAL writes each transaction to the log, and syncs the log only before it moves
pages into the database. So a sync of the log makes every earlier transaction durable, whoever wrote
it, and one sync serves all who wait. To open and close the log is safe: SQLite's locks are on the
database and its ``-shm``, and a close drops only those on the same file.

The file is SQLite's: it is synced here, and never written. To ask a thread and be woken takes
50 us, as long as some disks take. Where they were that quick lately, but for one now and then, and
nobody else waits, the loop syncs by itself.
Source: measured on the disk of a virtual machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

from handrail.journals.sqlite.open import connect, failure, retry_busy, sync_folder
from handrail.journals.sqlite.watch import LOOK_EVERY_S

QUICK_S = 0.001
"""What the loop may wait for, since to leave it to a thread costs a quarter of that."""
QUICK_SYNCS = 8
"""So many syncs must have been quick, before the next is done on the loop."""
_MOST_QUICK = 2 * QUICK_SYNCS
"""More of them count no more: then one may be slow, and two in a row may not."""
_SLOW_S = 0.005
"""One that takes as long as this says that the disk is no quick one now."""
_AFTER_A_SLOW_ONE = -32
MANY_SYNCS = 32
"""After so many syncs more are to be expected."""


class WalFile:
    """The ``-wal`` file of a journal, held open to be synced beside SQLite.

    ``look`` raises an error if the journal is not where it was. ``many`` is called once it was
    synced often.
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
            return  # all of it was moved into the database, and synced there
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
        if self._fd >= 0 and not os.fstat(self._fd).st_nlink:  # deleted by who used it last
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
# It also looks whether the file is still where it was, so that a run does not go on without one.
#
# SQLite's own checkpoints run inside the commit that makes the log long, and stall it by the time
# of two syncs and all the writes between. Here a connection of its own moves what it can while
# others write. A log that is written without a pause is never moved to its end that way and grows
# for ever; so when it is long, the last few pages are moved while this journal's own writes are
# held back: they wait as awaitables, and the loop goes on.

AFTER_PAGES = 1000
"""How many pages may be written before they are moved."""
LONG_PAGES = 2000
"""A log of more pages is begun anew, for which the writers must wait."""
SYNCED_PAGES = 500
"""The same of a log that is synced often. It is made as long as that once, before it is needed.

To sync a file that has grown, the file system must write down its new length, which costs as much
as the data: 135 us a sync on a disk where one of a file that is long enough costs 80.
"""
_WAIT_S = 0.05


class CheckpointThread:
    """The thread, started when it is first needed.

    ``renew`` renews every lease that is held, on the connection that it is given, and gives back
    those that could not be given back before; ``has_leases`` says whether there are any,
    ``is_gone`` whether the file is gone. ``writing`` is the lock of the connection whose writes are
    held back.
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
        """True if its connection is to a file that is gone, and there may be another."""
        self.lengthens = False
        """True once the log is to be as long as it will be."""
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
        """True if there is enough to be moved."""
        return self.written >= self._after

    def wake(self) -> None:
        """Have it look at once whether there is something to do."""
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
        """Close its connection, to be opened again; the caller holds the lock."""
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
                if is_gone:  # nothing is to be opened, and so made, in its place
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
                except sqlite3.Error:  # whoever writes will meet it too, and say so
                    self.disconnect()

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = connect(self._path, _WAIT_S)
        return self._connection

    def _checkpoint(self, connection: sqlite3.Connection) -> None:
        passive = "PRAGMA wal_checkpoint(PASSIVE)"
        connection.execute(passive).fetchone()
        _, pages, _ = connection.execute(passive).fetchone()  # what came in during the first
        if pages >= self._long:
            with self._writing:
                self._restart_wal(connection)

    def _restart_wal(self, connection: sqlite3.Connection) -> None:
        """Have the log written from its beginning; the caller holds the writes back."""
        connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
        # The first write to the new log syncs its header; better here than on the loop.
        self._renew(connection)

    def _extend_wal(self, connection: sqlite3.Connection) -> None:
        """Write one page so often that the log is long, and begin it again: it stays so long."""
        self._after = self._long = SYNCED_PAGES
        with self._writing:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            for _ in range(SYNCED_PAGES):
                connection.execute(f"PRAGMA user_version = {version}")
            self._restart_wal(connection)


class AsyncioPending:
    """Awaited on asyncio until a thread calls ``finish``; raises the ``error`` that it was given.

    Source: measured; to a thread and back takes 55 us so, and 165 by ``anyio.to_thread``.
    """

    __slots__ = ("_future", "_loop", "error")

    def __init__(self, loop: Any) -> None:
        self._loop = loop
        self._future = loop.create_future()
        self.error: BaseException | None = None

    def __await__(self) -> Generator[Any, None, None]:
        yield from self._future.__await__()
        if self.error is not None:
            raise self.error

    def finish(self) -> None:
        """Let the awaiting task go on; from any thread. If its loop is closed, nobody awaits."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._set)

    def _set(self) -> None:
        if not self._future.done():  # the task may have been cancelled
            self._future.set_result(None)


class TrioPending:
    """The same on trio."""

    __slots__ = ("_event", "_token", "error")

    def __init__(self) -> None:
        import trio

        self._token = trio.lowlevel.current_trio_token()
        self._event = trio.Event()
        self.error: BaseException | None = None

    def __await__(self) -> Generator[Any, None, None]:
        yield from self._event.wait().__await__()
        if self.error is not None:
            raise self.error

    def finish(self) -> None:
        """Let the awaiting task go on; from any thread. If its run is over, nobody awaits."""
        import trio

        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._event.set)


Pending: TypeAlias = AsyncioPending | TrioPending


def pending_here() -> Pending | None:
    """Something to await in the event loop that runs here; None if none runs."""
    # A loop that runs has loaded its library; nothing else should. Another thread may be at it.
    in_trio_run = getattr(getattr(sys.modules.get("trio"), "lowlevel", None), "in_trio_run", None)
    if in_trio_run is not None and in_trio_run():
        return TrioPending()
    running_loop = getattr(sys.modules.get("asyncio"), "get_running_loop", None)
    if running_loop is None:
        return None
    try:
        return AsyncioPending(running_loop())
    except RuntimeError:
        return None


# A thread that does what would stall an event loop: writes that must wait, and syncs to disk.
#
# Whoever asks while a sync is under way shares the next one. A write that found the database locked
# is retried here; those that come while it waits queue up behind it, so that all keep their order.

Job: TypeAlias = tuple[Callable[[], None] | None, bool, Pending]


class WriterThread:
    """The thread, started when it is first asked; ``sync`` makes all that was written so far
    survive a loss of power.
    """

    def __init__(self, sync: Callable[[], None]) -> None:
        self._sync = sync
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self.starting = threading.Lock()
        self.waiting = 0
        """How many writes are queued; while there are any, no other may overtake them."""
        self.unfinished = 0
        """How many of those who asked wait still."""

    def submit(self, write: Callable[[], None] | None, pending: Pending, *, sync: bool) -> Pending:
        """Write, if there is something to, then sync, if asked to; ``pending`` is done then."""
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
        """Finish what was asked for, and end the thread."""
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
