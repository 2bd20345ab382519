"""A durable journal in memory, whose process can die at any write.

It keeps records as text, as on a disk, so values go through the codec and come back as new objects.
Crashes cost no process here:

    journal = TextJournal(stop_at=7)
    with pytest.raises(ProcessGone):
        Executor(journal=journal).options(run_id="r").run_sync(ship)
    result = Executor(journal=journal.reopened()).resume_sync("r", ship)
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import NamedTuple

from handrail.codec.codec import Codec
from handrail.errors import JournalFailed, LeaseLost, RunIdTaken, RunLocked
from handrail.journals.memory import OutOfSequence
from handrail.model.dataclass import dataclass
from handrail.model.events import Event
from handrail.ports.journal import Holder, Letter, RunInfo
from handrail.record.rows import Record, from_record, to_record
from handrail.record.status import run_info


class ProcessGone(BaseException):
    """The process that wrote a ``TextJournal`` is dead; whatever it still does has no effect.

    A ``BaseException``, because no code of a dead process runs on after it.
    """


def disk_full() -> Exception:
    """The error that a journal in a file raises if the disk is full."""
    why = os.strerror(errno.ENOSPC)
    return JournalFailed("in memory", "storing an event", why, "Free some space, then resume.")


class TextJournal:
    """Keeps records as text until the process ends, and can fail or die at a given write.

    A write is an event or a message. ``fail_at=n``: the n-th write keeps nothing and raises
    ``error``. ``stop_at=n``: n writes are kept, then the process is dead and each call raises
    ``ProcessGone``; with ``abrupt`` the n-th write is kept and does not return. ``reopened``
    returns the same store as another process finds it. Mutable.
    """

    durable = True

    def __init__(
        self,
        *,
        codec: Codec | None = None,
        fail_at: int | None = None,
        stop_at: int | None = None,
        abrupt: bool = False,
        error: Exception | None = None,
    ) -> None:
        self.codec = codec if codec is not None else Codec()
        self.writes = 0
        """How many writes were tried here."""
        self.gone = False
        self._fail_at = fail_at
        self._stop_at = stop_at
        self._abrupt = abrupt
        self._error = error if error is not None else disk_full()
        self._store = _Store()

    def reopened(
        self,
        *,
        fail_at: int | None = None,
        stop_at: int | None = None,
        abrupt: bool = False,
        error: Exception | None = None,
    ) -> TextJournal:
        """Another journal on the same store; this journal's leases are valid until it is killed."""
        other = type(self)(
            codec=self.codec, fail_at=fail_at, stop_at=stop_at, abrupt=abrupt, error=error
        )
        other._store = self._store  # noqa: SLF001  # another of our own
        return other

    def copied(self) -> TextJournal:
        """A journal on a copy of the store, without the leases."""
        other = type(self)(codec=self.codec)
        theirs, ours = other._store, self._store  # noqa: SLF001  # another of our own
        theirs.rows = {run_id: list(rows) for run_id, rows in ours.rows.items()}
        theirs.letters = {run_id: list(rows) for run_id, rows in ours.letters.items()}
        return other

    def kill(self) -> None:
        """End the process that uses this journal; another journal can take over its leases."""
        self.gone = True

    def records(self, run_id: str) -> list[Record]:
        """The stored records of a run."""
        return [row.record for row in self._store.rows.get(run_id, ())]

    # -- the port -------------------------------------------------------------------------------

    def append(self, event: Event, /, *, sync: bool = False) -> None:
        """Keep the event as text.

        Raises:
            OutOfSequence: its number is not the next one of its run; nothing is kept.
            OutputNotSerializable, LeaseLost: as the port says.
            ProcessGone: see the class.
        """
        del sync
        self._append((event,))

    def _append(self, events: Sequence[Event]) -> None:
        """Keep events of one run, in one write."""
        self._check_alive()
        run_id = events[0].run_id
        rows = self._store.rows.get(run_id, [])
        for seq, event in enumerate(events, len(rows) + 1):
            if event.seq != seq:
                raise OutOfSequence(run_id, event.seq, seq)
        secrets = self._secrets(run_id)
        written = [_Row(one.at, to_record(one, self.codec, secrets)) for one in events]
        if run_id in self._store.lost.get(id(self), ()):
            raise LeaseLost(run_id, os.getpid(), "here")
        self._write()
        self._store.rows.setdefault(run_id, rows).extend(written)
        self._die_if_due()

    def append_run(
        self,
        events: Sequence[Event],
        /,
        *,
        letters: Sequence[Letter] = (),
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        """Keep all events of a run that has none yet, as text, in one write.

        Raises:
            RunIdTaken: there is such a run; nothing is kept.
        """
        self._check_alive()
        run_id = events[0].run_id
        if run_id in self._store.rows:
            raise RunIdTaken(run_id)
        rows = [_Row(one.at, to_record(one, self.codec, secrets)) for one in events]
        mail = list(self._store.letters.get(run_id, ()))
        for one in letters:
            if not _number_of(mail, one.key):
                mail.append(self._letter_row(one, secrets))
        self._write()
        self._store.rows[run_id] = rows
        self._store.letters[run_id] = mail
        self._die_if_due()

    def events(self, run_id: str, /, *, secrets: Mapping[str, str] | None = None) -> list[Event]:
        """All events of a run, read from their text each time."""
        self._check_alive()
        secrets = self._secrets(run_id) if secrets is None else secrets
        rows = self._store.rows.get(run_id, ())
        return [
            from_record(run_id, seq, row.at, row.record, self.codec, secrets)
            for seq, row in enumerate(rows, 1)
        ]

    def runs(self) -> list[RunInfo]:
        """Every run, oldest first."""
        self._check_alive()
        return [self._info(run_id) for run_id in self._store.rows]

    def acquire(self, run_id: str, /, *, secrets: Mapping[str, str] | None = None) -> TextLease:
        """Take the lease of a run.

        Raises:
            RunLocked: a journal whose process is not dead has the lease.
        """
        self._check_alive()
        held = self._store.leases.get(run_id)
        if held is not None:
            if not held.journal.gone:
                raise RunLocked(run_id, held.holder.pid, held.holder.host, 0.0)
            self._store.lost.setdefault(id(held.journal), set()).add(run_id)
        self._store.lost.get(id(self), set()).discard(run_id)
        holder = Holder(os.getpid(), "here", time.time())
        lease = self._store.leases[run_id] = TextLease(self, run_id, holder, secrets)
        return lease

    def give_back(self, lease: TextLease) -> None:
        """Free a lease, if it is the run's current one; a dead process never frees its leases."""
        if self._store.leases.get(lease.run_id) is lease and not self.gone:
            del self._store.leases[lease.run_id]

    def post(self, letter: Letter, /, *, secrets: Mapping[str, str] | None = None) -> Letter:
        """Keep a message, as text; returns it with its number, or the first message of its key."""
        self._check_alive()
        event = letter.event
        kept = self._store.letters.setdefault(event.run_id, [])
        if first := _number_of(kept, letter.key):
            return self._letter(event.run_id, first, kept[first - 1])
        row = self._letter_row(letter, secrets or self._secrets(event.run_id))
        self._write()
        kept.append(row)
        self._die_if_due()
        return replace(letter, number=len(kept))

    def letters(self, run_id: str, after: int, /) -> list[Letter]:
        """The messages of a run whose number is greater than ``after``, in order."""
        self._check_alive()
        kept = self._store.letters.get(run_id, [])
        return [
            self._letter(run_id, number, row) for number, row in enumerate(kept[after:], after + 1)
        ]

    def close(self) -> None:
        """Give back all leases; the store stays, and the journal can be used again."""
        for lease in list(self._store.leases.values()):
            if lease.journal is self:
                self.give_back(lease)

    # -- inside ---------------------------------------------------------------------------------

    def _secrets(self, run_id: str) -> Mapping[str, str] | None:
        """The secrets of this journal's lease of the run, if it has one."""
        lease = self._store.leases.get(run_id)
        return lease.secrets if lease is not None and lease.journal is self else None

    def _check_alive(self) -> None:
        if self.gone:
            raise ProcessGone("the process that used this journal is dead")

    def _write(self) -> None:
        """Count a write; raises if it is the one that fails, or if the process is dead by now."""
        if self._stop_at is not None and self.writes >= self._stop_at:
            self.kill()
            raise ProcessGone(f"it died before write {self.writes + 1}")
        self.writes += 1
        if self.writes == self._fail_at:
            raise self._error

    def _die_if_due(self) -> None:
        if self._abrupt and self.writes == self._stop_at:
            self.kill()
            raise ProcessGone(f"it died after write {self.writes}")

    def _letter_row(self, letter: Letter, secrets: Mapping[str, str] | None) -> _LetterRow:
        event = letter.event
        return _LetterRow(letter.key, event.at, to_record(event, self.codec, secrets))

    def _letter(self, run_id: str, number: int, row: _LetterRow) -> Letter:
        event = from_record(run_id, 0, row.at, row.record, self.codec, self._secrets(run_id))
        return Letter(event, row.key, number)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # only messages were kept

    def _info(self, run_id: str) -> RunInfo:
        lease = self._store.leases.get(run_id)
        holder = None if lease is None or lease.journal.gone else lease.holder
        return run_info(run_id, self.events(run_id), holder, time.time())


@dataclass(frozen=True, slots=True)
class TextLease:
    """The right to write a run, and the secrets that its records replace by references."""

    journal: TextJournal
    run_id: str
    holder: Holder
    secrets: Mapping[str, str] | None

    def release(self) -> None:
        """Free the lease; a second time does nothing."""
        self.journal.give_back(self)


class _Row(NamedTuple):
    at: float
    record: Record


class _LetterRow(NamedTuple):
    key: str
    at: float
    record: Record


def _number_of(rows: Sequence[_LetterRow], key: str) -> int:
    """The number of the message with this key; 0 if there is none, or no key."""
    return next((number for number, row in enumerate(rows, 1) if key and row.key == key), 0)


@dataclass(slots=True)
class _Store:
    """What outlives a process. Mutable; shared by journals that were reopened."""

    rows: dict[str, list[_Row]] = field(default_factory=dict[str, list[_Row]])
    letters: dict[str, list[_LetterRow]] = field(default_factory=dict[str, list[_LetterRow]])
    leases: dict[str, TextLease] = field(default_factory=dict[str, TextLease])
    lost: dict[int, set[str]] = field(default_factory=dict[int, set[str]])


class GroupingTextJournal(TextJournal):
    """A ``TextJournal`` that can also store several events in one write."""

    def append_all(self, events: Sequence[Event], /, *, sync: bool = False) -> None:
        """Keep events of one run as text, all of them or none.

        Raises:
            OutOfSequence, OutputNotSerializable, LeaseLost, ProcessGone: as ``append``.
        """
        del sync
        self._append(events)
