"""A journal in one SQLite file.

Theory of operation.

*A record is a row*, written by one statement that is its own transaction, on the event loop: with a
write-ahead log and without a sync that takes 10 us, less than to ask a thread. The operating system
has the log then, so a killed process loses nothing. With ``durability="power"``, and for
``sync=True``, ``append`` returns an awaitable that is done once the log is synced. A thread syncs
it, once for all callers that wait (``threads.WriterThread``), unless the disk is known to be
quicker than a thread. Another thread moves the log into the database
(``threads.CheckpointThread``). So the loop waits for no slow disk. If another process has the file
locked, the loop waits 5 ms; then a thread retries, and the awaitable is done once the row is there.
The same thread retries what else must wait for a lock: leases and messages (``when_free``).

*A read returns what was written, or raises.* Each row has a checksum over itself and the row before
it; so no row can have changed, moved, or be missing from the middle unnoticed. The run's own row
shows whether its last rows are missing: it says where the run ended when its lease was released. A
run that was killed has no such end; rows vanish there only if the tree of pages changed, and
SQLite's integrity check finds that. It runs when the file is opened (3.5 ms for each MiB), on the
whole file up to 32 MiB, and on the small tables beyond. The write-ahead log has checksums of
SQLite's own; ``notices``, and a logged warning, say what SQLite cuts off its end.

*One process writes a run*: see ``leases``. The statement that stores a row checks that the lease
still has its epoch. A write without a lease first reads the run's end, in the same transaction.

*A journal that may not be written can be read*: see ``open``.

*The file stays where it is, or the run ends*: see ``watch``. The journal looks its name up before a
write (20 times a second at most), at the end of a drive, with each sync and once a second; if the
file was removed or replaced, writes fail.

*After a failure* the journal drops the connection; the next call opens another. SQLite has rolled
back the failed transaction, so the journal can be used again as soon as the cause is gone.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from handrail.codec.codec import Codec
from handrail.errors import DefinitionError, JournalFailed, RunNotFound, WrongUse
from handrail.journals.sqlite.care import PruneStatus, faults, prunable_runs, remove, size_of
from handrail.journals.sqlite.inbox import MessageTable
from handrail.journals.sqlite.leases import holders
from handrail.journals.sqlite.open import is_locked, try_once
from handrail.journals.sqlite.rows import (
    Numbered,
    RunHead,
    insert_all,
    insert_run,
    last_numbers,
    list_runs,
    read_events,
)
from handrail.journals.sqlite.store import THREAD_NAME, Store
from handrail.journals.sqlite.threads import Retried
from handrail.model.events import DriveEnded, Event
from handrail.model.history import JournalFault, Pruned
from handrail.model.policy import count_of, positive_seconds, seconds_of
from handrail.ports.journal import Letter, RunInfo, SyncLater
from handrail.record.rows import Read, Record, reader, to_record
from handrail.system.forks import finalize
from handrail.system.sqlite import is_busy, transaction
from handrail.system.threads import pending_here

T = TypeVar("T")
PAGE_BYTES = 4096
_BEGINNINGS = frozenset({
    "StepStarted", "MemberStarted", "GroupStarted", "SubworkflowStarted", "TimerSet",
    "AgentSessionStarted", "ClaimWaiting", "ClaimGranted", "ClaimLost",
    "SandboxDenied",
})  # fmt: skip
"""Events without which a run does the same; the next event's sync makes them durable, too."""
_ENDS = frozenset(kind.__name__ for kind in get_args(DriveEnded))
"""The last events of a drive. Its caller learns of the end, so the end must be on record."""
_plain_codec = Codec()


class SqliteJournal:
    """Keeps runs in an SQLite file; makes the file and its folder, if need be.

    ``durability="process"``: a killed process loses nothing; a loss of power may lose the last
    events, which the system had not written yet. ``"power"``: the run continues only when an event
    is on disk (except beginnings of steps). ``lease_s``: how long a driver that cannot be seen from
    here (on another machine, say) counts as alive without a renewal. ``codec`` writes the values.

    The file is opened when it is first needed. ``notices`` says what was cut off its end then.
    People can read it: ``sqlite3 FILE 'SELECT * FROM history'``.
    """

    durable = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Literal["process", "power"] = "process",
        lease_s: float = 30.0,
        codec: Codec = _plain_codec,
    ) -> None:
        if durability not in ("process", "power"):
            raise DefinitionError(f"durability is 'process' or 'power', got {durability!r}")
        lease_s = positive_seconds(lease_s, "lease_s of a SqliteJournal")
        self.codec = codec
        self.durability = durability
        self._power = durability == "power"
        self._store = Store(_file_of(path), lease_s)
        self._inbox = MessageTable(self._store.name, codec)
        weakref.finalize(self, finalize, partial(_close, self._store))

    @property
    def path(self) -> Path:
        """The file."""
        return self._store.path

    @property
    def identity(self) -> str:
        """Eight hex digits that differ from those of other journals on this machine."""
        name = os.fsencode(self._store.path)
        return hashlib.blake2b(name, digest_size=4).hexdigest()

    @property
    def notices(self) -> list[str]:
        """Damage that was found and cut off when the file was opened."""
        return self._store.notices

    def append(self, event: Event, /, *, sync: bool | None = False) -> Awaitable[None] | None:
        """Store the event, on disk if ``sync``, not yet if it is None; see the port.

        Raises:
            OutOfSequence: its number is not the next one of its run; nothing was stored.
            OutputNotSerializable, LeaseLost, JournalFailed: nothing was stored.
        """
        store = self._store
        head = store.heads.get(event.run_id) or store.head(event.run_id)
        record = to_record(event, self.codec, head.secrets)
        if event.at >= store.look_at or record[0] in _ENDS:
            store.check_path(event.run_id, event.seq, event.at)
        if self._power and sync is False:
            sync = record[0] not in _BEGINNINGS
        value = record[3]
        pages = 1 if value is None else 1 + len(value) // PAGE_BYTES
        return self._store_rows(head, ((event.seq, event.at, record),), pages, sync=bool(sync))

    @property
    def sync_later(self) -> SyncLater | None:
        """Syncs what was stored with ``sync=None``; None if a killed process is all it survives."""
        return self._sync if self._power else None

    def append_all(
        self, events: Sequence[Event], /, *, sync: bool = False
    ) -> Awaitable[None] | None:
        """Store events of one run, in order, or none of them; see the port.

        A transaction costs four times what a record in it costs.

        Raises:
            OutOfSequence, OutputNotSerializable, LeaseLost, JournalFailed: nothing was stored.
        """
        store, first = self._store, events[0]
        head = store.heads.get(first.run_id) or store.head(first.run_id)
        rows = [
            (event.seq, event.at, to_record(event, self.codec, head.secrets)) for event in events
        ]
        _, at, last = rows[-1]
        if at >= store.look_at or last[0] in _ENDS:
            store.check_path(first.run_id, first.seq, at)
        if self._power and not sync:
            sync = any(record[0] not in _BEGINNINGS for _, _, record in rows)
        size = sum([len(record[2]) + len(record[3] or "") for _, _, record in rows])
        return self._store_rows(head, rows, 1 + size // PAGE_BYTES, sync=sync)

    def append_run(
        self,
        events: Sequence[Event],
        /,
        *,
        letters: Sequence[Letter] = (),
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        """Store all events of a run that has none yet, or nothing; see the port.

        Raises:
            RunIdTaken: there is such a run. OutputNotSerializable, JournalFailed: see ``append``.
        """

        def encode(event: Event) -> Record:
            return to_record(event, self.codec, secrets)

        def insert(connection: sqlite3.Connection) -> None:
            with transaction(connection):
                insert_run(connection, events, encode)
                for letter in letters:
                    self._inbox.keep(connection, letter, secrets)

        self._store.change(f"storing run {events[0].run_id}", insert)
        if self._power:
            self._store.wal.sync()

    def events(self, run_id: str, /, *, secrets: Mapping[str, str] | None = None) -> list[Event]:
        """All events of a run, in order; see the port.

        Without ``secrets``, the ones of the run's last ``acquire`` resolve references to secrets.

        Raises:
            JournalDamaged: they are not what was written; the text names the run and the number.
        """
        return self.events_after(run_id, 0, secrets=secrets) or []

    def events_after(
        self, run_id: str, after: int, /, *, secrets: Mapping[str, str] | None = None
    ) -> list[Event] | None:
        """The events of a run behind a number; None if it has no event of that number.

        Raises:
            JournalDamaged: they are not what was written; the text names the run and the number.
        """
        store, read = self._store, self._reader(run_id, secrets)
        reads = partial(store.read, f"reading run {run_id}")
        return read_events(store.name, reads, run_id, read, after)

    def runs(self) -> list[RunInfo]:
        """Every run, oldest first."""
        return self._store.read(
            "reading the list of runs",
            lambda connection: list_runs(connection, time.time(), self.codec),
        )

    def acquire(self, run_id: str, /, *, secrets: Mapping[str, str] | None = None) -> SqliteLease:
        """Take the lease of a run; see the port.

        Raises:
            RunLocked: a driver that may still live has it.
        """
        epoch, token = self._store.acquire(run_id, secrets)
        return SqliteLease(self._store, run_id, epoch, token)

    def post(self, letter: Letter, /, *, secrets: Mapping[str, str] | None = None) -> Letter:
        """Keep a message for its run; returns the one that counts, the first of its key."""
        run_id = letter.event.run_id
        secrets = secrets or self._secrets(run_id)
        kept = self._store.change(
            f"storing a message to run {run_id}",
            lambda connection: self._inbox.keep(connection, letter, secrets),
        )
        if self._power:
            self._store.wal.sync()
        return kept

    def letters(self, run_id: str, after: int, /) -> list[Letter]:
        """The messages of a run whose number is greater than ``after``, in order."""
        return self._store.read(
            f"reading the messages of run {run_id}",
            lambda connection: self._inbox.after(connection, run_id, after, self._secrets(run_id)),
        )

    def last_letters(self, run_ids: Collection[str], /) -> dict[str, int]:
        """By run, the number of its last message; without runs that have none."""
        return self._store.read(
            "looking for messages",
            lambda connection: self._inbox.last_numbers(connection, run_ids),
        )

    def last_events(self, run_ids: Collection[str], /) -> dict[str, int]:
        """By run, the number of its last event; without runs that have none."""
        return self._store.read(
            "reading the last events of runs", lambda connection: last_numbers(connection, run_ids)
        )

    def version(self) -> object:
        """A value that is another once any process has written to the file."""
        return self._store.version()

    def verify(self, run_id: str | None = None) -> tuple[JournalFault, ...]:
        """Everything in the journal, or in one run of it, that is not as it was written.

        Raises:
            RunNotFound: there is no such run. JournalFailed: the file cannot be read at all.
        """

        def find_faults(connection: sqlite3.Connection) -> tuple[JournalFault, ...]:
            known = [
                str(one) for (one,) in connection.execute("SELECT run_id FROM runs").fetchall()
            ]
            if run_id is not None and run_id not in known:
                raise RunNotFound(run_id, known)
            return tuple(faults(connection, self.codec, run_id))

        return self._store.read("verifying", find_faults)

    def prune(
        self,
        *,
        older_than: float | timedelta | None = None,
        keep_last: int | None = None,
        statuses: Sequence[PruneStatus] = (),
        dry_run: bool = False,
    ) -> Pruned:
        """Remove runs that have ended, or, if ``statuses`` name them, that are suspended or dead.

        ``older_than``: seconds since their last event. ``keep_last``: how many of the newest stay.
        A run that is driven, or damaged, is never removed. ``dry_run`` only returns what would be
        removed. The file shrinks if no run is driven meanwhile; else later runs use the room.

        Raises:
            WrongUse: the call names no age, number or status.
            DefinitionError: an age or a number is less than 0.
        """
        if older_than is None and keep_last is None and not statuses:
            raise WrongUse("prune: name what may go, by older_than, keep_last or statuses")
        age = None if older_than is None else seconds_of(older_than, "older_than of prune")
        if keep_last is not None:
            count_of(keep_last, "keep_last of prune", least=0)
        now = time.time()

        def due(connection: sqlite3.Connection) -> Sequence[RunInfo]:
            return prunable_runs(connection, now, age, keep_last, statuses)

        def would_remove(connection: sqlite3.Connection) -> Pruned:
            runs = due(connection)
            size = sum(size_of(connection, run.run_id) for run in runs)
            return Pruned(tuple(run.run_id for run in runs), sum(run.events for run in runs), size)

        def prune(connection: sqlite3.Connection) -> Pruned:
            pruned = remove(connection, due(connection), now)
            if pruned.runs and not holders(connection, now):
                with contextlib.suppress(sqlite3.OperationalError):  # others read or write
                    connection.execute("VACUUM")
            return pruned

        if dry_run:
            return self._store.read("removing runs", would_remove)
        pruned = self._store.change("removing runs", prune)
        for gone in pruned.runs:
            self._store.heads.pop(gone, None)
        return pruned

    async def when_free(self, action: Callable[[], T], /) -> T:
        """The result of ``action``, which calls methods of this journal; see the port."""
        writer = self._store.writer_thread
        if not writer.waiting:  # else it would overtake what waits
            try:
                return try_once(action)
            except JournalFailed as error:
                if not is_locked(error):
                    raise
        pending = pending_here()
        if pending is None:
            return action()
        retried = Retried(action)
        try:
            await writer.submit(retried, pending, sync=False)
        finally:
            retried.give_up()
        return retried.result

    def close(self) -> None:
        """Release all leases and close the file; the next call opens it again."""
        self._store.close()

    def _store_rows(
        self, head: RunHead, rows: Sequence[Numbered], pages: int, *, sync: bool
    ) -> Awaitable[None] | None:
        """Store rows, now or by the writer thread; ``pages``: their size in pages, about."""
        store = self._store
        if self._store_now(head, rows):
            store.count_pages(pages)
            return self._sync() if sync else None
        pending = pending_here()
        if pending is None:
            store.write(head, rows)
            return self._sync() if sync else None
        return store.writer_thread.submit(lambda: store.write(head, rows), pending, sync=sync)

    def _store_now(self, head: RunHead, rows: Sequence[Numbered]) -> bool:
        """True if the rows are stored; False if they must wait: for a lock, or earlier writes."""
        store, seq = self._store, rows[0][0]
        if store.cursor is None:
            store.open_writer(head.run_id, seq)
        if store.writer_thread.waiting or not store.lock.acquire(blocking=False):
            return False
        try:
            if store.writer is None or store.cursor is None:
                return False
            insert_all(store.writer, store.cursor, head, rows)
        except sqlite3.Error as error:
            failed = error
        else:
            return True
        finally:
            store.lock.release()
        if is_busy(failed):
            return False
        raise store.append_error(head.run_id, seq, failed) from failed

    def _sync(self) -> Awaitable[None] | None:
        store = self._store
        if not store.writer_thread.unfinished and store.wal.sync_if_quick():
            return None
        pending = pending_here()
        if pending is None:
            store.wal.sync()
            return None
        return store.writer_thread.submit(None, pending, sync=True)

    def _reader(self, run_id: str, secrets: Mapping[str, str] | None) -> Read:
        known = self._secrets(run_id) if secrets is None else secrets
        return reader(run_id, self.codec, known)

    def _secrets(self, run_id: str) -> Mapping[str, str] | None:
        head = self._store.heads.get(run_id)
        return head.secrets if head else None


def _file_of(path: Any) -> Path:
    """The path with links resolved: SQLite keeps its log beside the file itself."""
    text = str(path)
    if not isinstance(path, (str, os.PathLike)) or "\0" in text or not text.strip():
        raise WrongUse(f"a SqliteJournal takes the path of a file, got {path!r}")
    if text == ":memory:":
        raise WrongUse("a SqliteJournal is a file. For a journal in memory: MemoryJournal().")
    absolute = Path(text).absolute()
    try:
        return absolute.resolve()
    except (OSError, RuntimeError):  # links in a circle: to open it raises the error
        return absolute


class SqliteLease:
    """The lease of one run, until it is released or lost; ``epoch`` is higher than any before."""

    def __init__(self, store: Store, run_id: str, epoch: int, token: str) -> None:
        self.run_id = run_id
        self.epoch = epoch
        self._store = store
        self._token = token

    def release(self) -> None:
        """Let another driver take the run; does nothing if the lease was released or lost."""
        self._store.release(self.run_id, self.epoch, self._token)


def _close(store: Store) -> None:
    """Close the store of a garbage-collected journal; a thread of it cannot join itself."""
    if threading.current_thread().name.startswith(THREAD_NAME):
        threading.Thread(target=store.close, daemon=True).start()
    else:
        store.close()
