"""The connections of one journal to its file; it closes them before the process forks.

Callers use two connections, each with a lock. The first writes events, the second does the rest.
Both may be used on an event loop, so each wait for another process is 5 ms at most, and
``retry_busy`` repeats it, without the lock. The threads have their own connections.

SQLite must not be carried across a fork: the child's copy believes in locks that it does not have.
So the parent closes all connections before a fork, and opens them again when they are needed. The
leases stay the parent's.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from handrail.errors import HandrailError
from handrail.journals.sqlite import leases
from handrail.journals.sqlite.open import (
    State,
    busy_while_read,
    connect,
    failure,
    has_log,
    is_read_only,
    is_tried_again,
    may_not_write,
    open_journal,
    open_to_read,
    pause,
    retry_busy,
    state,
)
from handrail.journals.sqlite.rows import Numbered, RunHead, insert_all, load_head, store_head
from handrail.journals.sqlite.threads import CheckpointThread, WalFile, WriterThread
from handrail.journals.sqlite.watch import LOOK_S, Watch, journal_removed
from handrail.system.forks import locks_to_fork
from handrail.system.owners import forget
from handrail.system.sqlite import cause_of, is_busy, transaction

SHORT_WAIT_MS = 5
READ_TIMES = 50
READ_AGAIN_S = 0.02
THREAD_NAME = "handrail journal"
T = TypeVar("T")


class Store:
    """One journal's connections, threads, and the heads of the runs that it writes."""

    def __init__(self, path: Path, lease_s: float) -> None:
        self.path = path
        self.name = str(path)
        self.lease_s = lease_s
        self.notices: list[str] = []
        self.heads: dict[str, RunHead] = {}
        self._begin()
        locks_to_fork(self)

    def _begin(self) -> None:
        self.lock = threading.Lock()
        self.writer: sqlite3.Connection | None = None
        self.cursor: sqlite3.Cursor | None = None
        self._connection_lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._opened = 0
        """How often the connection was opened."""
        self._reads_only = False
        self._frozen: State | None = None
        self._held: dict[str, tuple[int, str]] = {}
        self._unreleased: dict[str, int] = {}
        self._watch = Watch(self.name)
        self.look_at = 0.0
        """From this time on, the next event is stored only after a look at the file's name."""
        self.wal = WalFile(self.path, self._check_not_removed, self._on_frequent_syncs)
        self.writer_thread = WriterThread(self.wal.sync)
        self.checkpoint_thread = CheckpointThread(
            self.name,
            self.lock,
            self._renew,
            has_leases=self._has_leases,
            is_gone=self._is_gone,
            every_s=self.lease_s / 3,
        )

    # -- for the journal -----------------------------------------------------------------------

    @contextlib.contextmanager
    def connection(self, doing: str, *, to_write: bool = False) -> Generator[sqlite3.Connection]:
        """The connection for all but events, opened if need be, for one caller at a time.

        Raises:
            JournalFailed: an error of SQLite or the system in the block; or the journal was
                removed, or may not be written.
        """
        with self._connection_lock:
            try:
                connection = self._open(doing, to_write=to_write)
                if to_write and self._reads_only:
                    raise may_not_write(self.name, doing)
                yield connection
            except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
                self._drop_connection(error)
                raise failure(self.name, doing, error) from error

    def read(self, doing: str, reading: Callable[[sqlite3.Connection], T]) -> T:
        """The result of ``reading`` with the connection for all but events.

        SQLite reads a file that may not be written as immutable, but another process may begin to
        write it. Then the result, or the error, does not count, and the file is read again.

        Raises:
            JournalFailed: as ``connection``; or other processes wrote the file each time.
        """
        return retry_busy(lambda: self._read(doing, reading))

    def change(self, doing: str, changing: Callable[[sqlite3.Connection], T]) -> T:
        """The result of ``changing``, which writes with that connection, or raises and wrote
        nothing.

        Raises:
            JournalFailed: as ``connection``.
        """

        def once() -> T:
            with self.connection(doing, to_write=True) as connection:
                return changing(connection)

        return retry_busy(once)

    def _read(self, doing: str, reading: Callable[[sqlite3.Connection], T]) -> T:
        last: HandrailError | None = None
        with self._connection_lock:
            for _ in range(READ_TIMES):
                before = self._state()
                try:
                    with self.connection(doing) as connection:
                        found = reading(connection)
                except HandrailError as error:
                    if not self._reads_only or before == self._state():
                        raise
                    last = error
                else:
                    if self._frozen is None or self._frozen == self._state():
                        return found
                pause(READ_AGAIN_S)
        raise busy_while_read(self.name, doing) from last

    def version(self) -> object:
        """A value that is another once any process has written to the file: SQLite counts what
        others commit, and what this connection itself wrote.
        """
        with self.connection("looking whether it was written") as connection:
            (number,) = connection.execute("PRAGMA data_version").fetchone()
            return self._opened, number, connection.total_changes

    def head(self, run_id: str) -> RunHead:
        """The head of a run; an empty one for a run that is new to this store."""
        return self.heads.setdefault(run_id, RunHead(run_id))

    def write(self, head: RunHead, rows: Sequence[Numbered]) -> None:
        """Store events, and wait for other connections up to ``PATIENCE_S``.

        Raises:
            JournalFailed: an error of SQLite or the system.
        """
        try:
            retry_busy(lambda: self._write(head, rows))
        except sqlite3.Error as error:
            raise self.append_error(head.run_id, rows[0][0], error) from error

    def check_path(self, run_id: str, seq: int, at: float) -> None:
        """Check, before an event of time ``at`` is stored, that the file is in its place.

        Raises:
            JournalFailed: the file was removed, or another is in its place.
        """
        self.look_at = at + LOOK_S
        if why := self._watch.why_gone():
            with self.lock:
                self._drop_writer()
            raise journal_removed(self.name, f"storing event {seq} of run {run_id}", why)

    def append_error(self, run_id: str, seq: int, error: sqlite3.Error) -> HandrailError:
        """The error for an event that was not stored; the next one gets a new connection."""
        if not is_busy(error):
            with self.lock:
                self._drop_writer()
        return failure(self.name, f"storing event {seq} of run {run_id}", error)

    def count_pages(self, pages: int) -> None:
        """Count written pages; wake the checkpoint thread when there are enough to move."""
        self.checkpoint_thread.written += pages
        if self.checkpoint_thread.is_due:
            self.checkpoint_thread.wake()

    def acquire(self, run_id: str, secrets: Mapping[str, str] | None) -> tuple[int, str]:
        """Take the lease of a run, and load the run's head; returns the lease's epoch and token."""

        def take(connection: sqlite3.Connection) -> tuple[int, str]:
            head = RunHead(run_id, secrets=secrets)
            with transaction(connection):
                now = time.time()
                epoch, token = leases.take(connection, run_id, now, self.lease_s)
                load_head(connection, head)
            head.epoch = epoch
            self.heads[run_id] = head
            self._held[run_id] = (epoch, token)
            self.checkpoint_thread.wake()
            return epoch, token

        return self.change(f"taking the lease of run {run_id}", take)

    def release(self, run_id: str, epoch: int, token: str) -> None:
        """Release a lease, if this store still has it; a release that fails is retried later.

        Raises:
            JournalFailed: the file is locked, and ``try_once`` has called this; call it again.
        """
        doing = f"releasing run {run_id}"

        def once() -> None:
            with self._connection_lock:
                if self._held.get(run_id) == (epoch, token):
                    del self._held[run_id]
                    forget(token)
                    self.head(run_id).epoch = None
                    self._unreleased[run_id] = epoch
                if self._unreleased.get(run_id) != epoch:
                    return
                if self._watch.why_gone():
                    self._forget_file()
                    self._unreleased.pop(run_id, None)
                    return
                with self.connection(doing) as connection:
                    self._give_back(connection, run_id, epoch, self.head(run_id))
                    self._unreleased.pop(run_id, None)

        try:
            retry_busy(once)
        except (sqlite3.Error, OSError, HandrailError) as error:
            if is_tried_again(error):
                raise

    def close(self) -> None:
        """Finish all queued writes, release all leases, and close the file."""
        self.writer_thread.stop()
        self.checkpoint_thread.stop()
        with self._connection_lock:
            for run_id, (epoch, token) in list(self._held.items()):
                self.release(run_id, epoch, token)
            self._truncate_wal()
            self._disconnect()

    # -- connections ---------------------------------------------------------------------------

    def _open(self, doing: str, *, to_write: bool = False) -> sqlite3.Connection:
        """The connection, opened if need be. A file that is gone is an error while this store has a
        lease in it; else the store opens the file that has its name now.
        """
        if why := self._watch.why_gone():
            if self._held:
                raise journal_removed(self.name, doing, why)
            self._forget_file()
        if self._frozen is not None and (
            self._frozen != state(self.path) or (to_write and not is_read_only(self.path))
        ):
            self._close_connection()
        if self._connection is None:
            try:
                self._connection = self._connect(to_write=to_write)
                self._opened += 1
            except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
                raise failure(self.name, "opening it", error) from error
            if not self._held:
                self._watch.forget()
            self._connection.execute(f"PRAGMA busy_timeout = {SHORT_WAIT_MS}")
            self._watch.begin()
            for run_id, epoch in list(self._unreleased.items()):
                leases.give_back(self._connection, run_id, epoch)
                del self._unreleased[run_id]
        return self._connection

    def _connect(self, *, to_write: bool) -> sqlite3.Connection:
        self._reads_only = is_read_only(self.path)
        if not self._reads_only:
            try:
                return open_journal(self.path, self._notice)
            except sqlite3.Error as error:
                if to_write or cause_of(error) not in {"full", "disk"} or has_log(self.path):
                    raise
            self._reads_only = True  # there is no room for files beside it
        before = state(self.path)
        connection, frozen = open_to_read(self.path)
        self._frozen = before if frozen else None
        return connection

    def _state(self) -> State | None:
        """A value that changes when a process writes the file; None if it cannot be read."""
        try:
            return state(self.path)
        except OSError:
            return None

    def open_writer(self, run_id: str, seq: int) -> None:
        """Open the connection that writes events.

        Raises:
            JournalFailed: an error of SQLite or the system.
        """
        with self.connection(f"storing event {seq} of run {run_id}", to_write=True), self.lock:
            self._open_writer()

    def _open_writer(self) -> tuple[sqlite3.Connection, sqlite3.Cursor]:
        if self.writer is None or self.cursor is None:
            self.writer = connect(self.name, SHORT_WAIT_MS / 1000)
            self.cursor = self.writer.cursor()
        return self.writer, self.cursor

    def _write(self, head: RunHead, rows: Sequence[Numbered]) -> None:
        if self.cursor is None:
            self.open_writer(head.run_id, rows[0][0])
        with self.lock:
            insert_all(*self._open_writer(), head, rows)

    def _forget_file(self) -> None:
        """Close a file that is gone, once this store has no lease in it. The caller has locked
        ``_connection_lock``.
        """
        if self._held:
            return
        self._unreleased.clear()
        self.checkpoint_thread.stale = True
        self._disconnect()

    def _drop_connection(self, error: Exception) -> None:
        if not is_busy(error):
            self._close_connection()

    def _close_connection(self) -> None:
        connection, self._connection, self._frozen = self._connection, None, None
        if connection is not None:
            self._watch.forget_log()
            connection.close()

    def _drop_writer(self) -> None:
        if self.cursor is not None:
            self.cursor.close()  # a traceback may keep it, and it keeps the connection open
        writer, self.writer, self.cursor = self.writer, None, None
        if writer is not None:
            writer.close()

    def _truncate_wal(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):  # others may use the log: then it stays
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    def _disconnect(self) -> None:
        with self.lock:
            self._drop_writer()
        self._close_connection()
        self._watch.forget()
        with self.wal.lock:
            self.wal.close()

    def _check_not_removed(self) -> None:
        if why := self._watch.why_gone():
            raise journal_removed(self.name, "syncing it to disk", why)

    def _on_frequent_syncs(self) -> None:
        self.checkpoint_thread.lengthens = True
        self.checkpoint_thread.wake()

    def _is_gone(self) -> bool:
        """True if the file is gone; then the next write of an event connects again, and raises."""
        if not self._watch.why_gone():
            return False
        with self.lock:
            self._drop_writer()
        return True

    def _notice(self, text: str) -> None:
        import structlog

        self.notices.append(text)
        structlog.get_logger("handrail").warning("journal cut", journal=self.name, notice=text)

    # -- leases --------------------------------------------------------------------------------

    def _has_leases(self) -> bool:
        return bool(self._held or self._unreleased)

    def _renew(self, connection: sqlite3.Connection) -> None:
        now = time.time()
        for run_id, (epoch, _) in list(self._held.items()):
            leases.renew(connection, run_id, epoch, now, self.lease_s)
        for run_id, epoch in list(self._unreleased.items()):
            leases.give_back(connection, run_id, epoch)
            self._unreleased.pop(run_id, None)

    def _give_back(
        self, connection: sqlite3.Connection, run_id: str, epoch: int, head: RunHead
    ) -> None:
        with transaction(connection):
            if leases.give_back(connection, run_id, epoch) and head.run:
                store_head(connection, head)

    # -- forks ---------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Take all locks, close all connections; no code takes these locks in reverse order."""
        self.checkpoint_thread.lock.acquire()
        self._connection_lock.acquire()
        self.lock.acquire()
        self.wal.lock.acquire()
        self.writer_thread.starting.acquire()
        self._drop_writer()
        self._close_connection()
        self.checkpoint_thread.disconnect()
        self.wal.close()

    def after_fork_in_parent(self) -> None:
        """Release the locks; connections are opened again when needed."""
        self.writer_thread.starting.release()
        self.wal.lock.release()
        self.lock.release()
        self._connection_lock.release()
        self.checkpoint_thread.lock.release()

    def after_fork_in_child(self) -> None:
        """Reset the store: new locks, no connection, no thread and no lease."""
        self._begin()
        for head in self.heads.values():
            head.epoch = None
