"""Events as rows, each with a checksum over itself and the one before it."""

from __future__ import annotations

import hashlib
import sqlite3
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias, get_args
from zlib import crc32

import msgspec

from handrail.codec.codec import Codec
from handrail.errors import JournalDamaged, LeaseLost, RunIdTaken
from handrail.journals.memory import OutOfSequence
from handrail.journals.sqlite.leases import holders
from handrail.model.dataclass import dataclass
from handrail.model.events import DriveBegan, DriveEnded, Event
from handrail.model.results import RunStatus, WaitsFor
from handrail.ports.journal import Holder, RunInfo
from handrail.record.rows import (
    Read,
    Record,
    UnreadableRecord,
    forked_from,
    reader,
    waits_recorded,
)
from handrail.record.status import waits_by_last_event
from handrail.system.sqlite import snapshot, transaction

pack = struct.Struct("<qd").pack
LARGE = 16 << 10
"""Values of more characters are stored once each, under a hash of their text."""


@dataclass(slots=True)
class RunHead:
    """The newest event of a run as this journal knows it.

    While ``epoch`` is not None, this journal has the lease, and no other adds events. ``run``: the
    number of the run's row, 0 if it has none yet. ``secrets`` are the ones of the last lease.
    """

    run_id: str
    run: int = 0
    seq: int = 0
    crc: int = 0
    epoch: int | None = None
    secrets: Mapping[str, str] | None = None


Numbered: TypeAlias = tuple[int, float, Record]
"""A record with its number and time."""

_INSERT = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_INSERT_IF_LEASED = (
    "INSERT INTO events SELECT ?, ?, ?, ?, ?, ?, ?, ?, ? "
    "WHERE (SELECT epoch FROM leases WHERE run_id = ?) = ?"
)
RUN = "SELECT id, run_id, workflow, labels, started_at, tail_seq, tail_crc, crc FROM runs"
_END = """
SELECT id, seq, events.crc FROM runs JOIN events ON run = id
WHERE run_id = ? ORDER BY seq DESC LIMIT 1
"""


def insert(  # noqa: PLR0917 - on the hot path: keywords would cost
    connection: sqlite3.Connection,
    cursor: sqlite3.Cursor,
    head: RunHead,
    seq: int,
    at: float,
    record: Record,
) -> None:
    """Store a record under its number and time, and advance the head of its run.

    Raises:
        OutOfSequence: its number is not the next one; nothing was stored.
        LeaseLost: this journal had the lease, and another has it now; nothing was stored.
        sqlite3.Error: another failure; nothing was stored.
    """
    kind, path, body, value = record
    epoch = head.epoch
    if epoch is None or not head.run or (value is not None and len(value) > LARGE):
        _insert_in_transaction(connection, head, seq, float(at), record)
        return
    _check_next(head, seq)
    at = float(at)
    crc = checksum(head.crc, seq, at, kind, path, body, value, None)
    try:
        cursor.execute(
            _INSERT_IF_LEASED,
            (head.run, seq, at, kind, path, body, value, None, crc, head.run_id, epoch),
        )
    except sqlite3.IntegrityError:
        load_head(connection, head)
        raise OutOfSequence(head.run_id, seq, head.seq + 1) from None
    if cursor.rowcount != 1:
        raise lease_lost(connection, head)
    head.seq = seq
    head.crc = crc


def insert_all(
    connection: sqlite3.Connection, cursor: sqlite3.Cursor, head: RunHead, rows: Sequence[Numbered]
) -> None:
    """Store records of one run, in order, or none of them; see ``insert``."""
    if len(rows) == 1:  # its statement is a transaction of its own
        insert(connection, cursor, head, *rows[0])
        return
    was = head.run, head.seq, head.crc
    try:
        with transaction(connection):
            for seq, at, record in rows:
                insert(connection, cursor, head, seq, at, record)
    except BaseException:
        head.run, head.seq, head.crc = was
        raise


def insert_run(
    connection: sqlite3.Connection, events: Sequence[Event], encoded: Callable[[Event], Record]
) -> None:
    """Store a whole run that is not there yet, or nothing. An event that belongs to another run of
    the journal is copied from that run's row as it is.

    Raises:
        RunIdTaken: the run is there. sqlite3.Error: another failure.
    """
    head = RunHead(events[0].run_id)
    ours = [encoded(one) if one.run_id == head.run_id else None for one in events]
    with transaction(connection):
        load_head(connection, head)
        if head.run:
            raise RunIdTaken(head.run_id)
        theirs = {one.run_id for one in events} - {head.run_id}
        stored = {other: _columns(connection, other) for other in theirs}

        def rows() -> Iterator[tuple[Any, ...]]:
            for seq, (event, record) in enumerate(zip(events, ours, strict=True), 1):
                at = float(event.at)
                if record is None:
                    columns = stored[event.run_id][event.seq - 1]
                    crc = checksum(head.crc, seq, at, *columns)
                    row = (head.run, seq, at, *columns, crc)
                else:
                    row = _row(connection, head, seq, at, record)
                head.run, head.seq, head.crc = row[0], seq, row[-1]
                yield row

        connection.executemany(_INSERT, rows())
        store_head(connection, head)


def _columns(connection: sqlite3.Connection, run_id: str) -> list[tuple[Any, ...]]:
    """The columns of a run's events, in order; these are numbered from 1 without a gap."""
    query = (
        "SELECT kind, path, body, value, blob FROM events "
        "WHERE run = (SELECT id FROM runs WHERE run_id = ?) ORDER BY seq"
    )
    return connection.execute(query, (run_id,)).fetchall()


def _insert_in_transaction(
    connection: sqlite3.Connection, head: RunHead, seq: int, at: float, record: Record
) -> None:
    """``insert`` for the first event of a run, a large value, or a write without a lease."""
    with transaction(connection):
        _check_epoch(connection, head)
        load_head(connection, head)
        _check_next(head, seq)
        row = _row(connection, head, seq, at, record)
        connection.execute(_INSERT, row)
    head.run, head.seq, head.crc = row[0], seq, row[-1]


def _row(
    connection: sqlite3.Connection, head: RunHead, seq: int, at: float, record: Record
) -> tuple[Any, ...]:
    """The row of an event behind ``head``; begins its run, and stores its large value apart."""
    kind, path, body, value = record
    run, blob = head.run or _begin(connection, head.run_id, at, record), None
    if value is not None and len(value) > LARGE:
        blob, value = _insert_blob(connection, value), None
    crc = checksum(head.crc, seq, at, kind, path, body, value, blob)
    return run, seq, at, kind, path, body, value, blob, crc


def _check_epoch(connection: sqlite3.Connection, head: RunHead) -> None:
    if head.epoch is not None and epoch_of(connection, head.run_id) != head.epoch:
        raise lease_lost(connection, head)


def _check_next(head: RunHead, seq: int) -> None:
    if seq != head.seq + 1:
        raise OutOfSequence(head.run_id, seq, head.seq + 1)


def checksum(  # noqa: PLR0917 - the columns, in their order
    previous: int,
    seq: int,
    at: float,
    kind: str,
    path: str,
    body: str,
    value: str | None,
    blob: str | None,
) -> int:
    """The checksum of a row that comes after the one with the checksum ``previous``."""
    text = f"{kind}\n{path}\n{body}\n{blob}\n"
    if value is not None:
        text += value
    return crc32(text.encode(), crc32(pack(seq, at), previous))


def checksum_as_read(  # noqa: PLR0917 - the columns, in their order
    previous: int,
    seq: int,
    at: float,
    kind: bytes,
    path: bytes,
    body: bytes,
    value: bytes | None,
    blob: bytes | None,
) -> int:
    """The checksum of a row whose texts are bytes; ``_chain`` repeats this in its loop."""
    parts = (kind, path, body, b"None" if blob is None else blob, value or b"")
    return crc32(b"\n".join(parts), crc32(pack(seq, at), previous))


def begin_checksum(run_id: str) -> int:
    """The checksum in place of a row before the first row of a run."""
    return crc32(run_id.encode())


def load_head(connection: sqlite3.Connection, head: RunHead) -> None:
    """Read the number and the checksum of a run's newest event into its head."""
    row = connection.execute(_END, (head.run_id,)).fetchone()
    if row is None:
        head.run, head.seq, head.crc = 0, 0, begin_checksum(head.run_id)
    else:
        head.run, head.seq, head.crc = row


def store_head(connection: sqlite3.Connection, head: RunHead) -> None:
    """Write a run's head into its own row, so that its last events cannot vanish unnoticed."""
    row = connection.execute(f"{RUN} WHERE run_id = ?", (head.run_id,)).fetchone()
    if row is not None:
        marked = (*row[:5], head.seq, head.crc)
        connection.execute(
            "UPDATE runs SET tail_seq = ?, tail_crc = ?, crc = ? WHERE id = ?",
            (head.seq, head.crc, run_checksum(marked), row[0]),
        )


def run_checksum(row: tuple[Any, ...]) -> int:
    """The checksum of a row of ``runs``, from its columns before the checksum."""
    return crc32("\n".join(map(repr, row)).encode())


def epoch_of(connection: sqlite3.Connection, run_id: str) -> int:
    """The epoch of the run's newest lease; 0 if it never had one."""
    row = connection.execute("SELECT epoch FROM leases WHERE run_id = ?", (run_id,)).fetchone()
    return int(row[0]) if row else 0


def lease_lost(connection: sqlite3.Connection, head: RunHead) -> LeaseLost:
    """The error for a run whose lease another driver has now."""
    row = connection.execute(
        "SELECT coalesce(pid, 0), host FROM leases WHERE run_id = ?", (head.run_id,)
    ).fetchone()
    pid, host = row or (0, "nobody knows where")
    return LeaseLost(head.run_id, int(pid), str(host))


def digest(value: bytes) -> str:
    """The name of a large value: a hash of its content, 32 hex digits."""
    return hashlib.sha256(value).hexdigest()[:32]


def _insert_blob(connection: sqlite3.Connection, value: str) -> str:
    name = digest(value.encode())
    connection.execute("INSERT OR IGNORE INTO blobs VALUES (?, ?)", (name, value))
    return name


def _begin(connection: sqlite3.Connection, run_id: str, at: float, record: Record) -> int:
    body: dict[str, Any] = msgspec.json.decode(record.body)
    workflow, labels = "", {}
    if record.kind == "WorkflowStarted":
        workflow = body.get("workflow_name", "")
        labels = body.get("labels", {})
    text = msgspec.json.encode(labels).decode()
    (number,) = connection.execute("SELECT coalesce(max(id), 0) + 1 FROM runs").fetchone()
    row = (number, run_id, str(workflow), text, at, 0, 0)
    values = (*row, run_checksum(row))
    connection.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
    return int(number)


# The last row of an ended run shows its status. For other runs SQLite reads the rows backwards to
# the last one that does: 0.2 us a row. An index of such rows would cost each event more. Texts come
# as bytes: one that is no longer UTF-8 is damage of its run, and of no other run.
_ROW = """{0}.seq, {0}.at, cast({0}.kind AS blob), cast({0}.path AS blob), cast({0}.body AS blob),
       cast({0}.value AS blob), cast({0}.blob AS blob), {0}.crc,
       (SELECT crc FROM events WHERE run = runs.id AND seq = {0}.seq - 1)"""
_OF_DRIVES = tuple(kind.__name__ for kind in get_args(DriveBegan | DriveEnded))
_LISTED = f"""
SELECT runs.id, cast(runs.run_id AS blob), cast(runs.workflow AS blob), cast(runs.labels AS blob),
       runs.started_at, runs.tail_seq, runs.tail_crc, runs.crc,
       {_ROW.format("last")}, {_ROW.format("drive")}, cast(first.body AS blob)
FROM runs
LEFT JOIN events AS last ON last.run = runs.id
    AND last.seq = (SELECT max(seq) FROM events WHERE run = runs.id)
LEFT JOIN events AS drive ON drive.run = runs.id
    AND drive.seq = (SELECT seq FROM events WHERE run = runs.id AND kind IN
        {_OF_DRIVES}
        ORDER BY seq DESC LIMIT 1)
LEFT JOIN events AS first ON first.run = runs.id AND first.seq = 1
    AND instr(first.body, '"forked_from"')
ORDER BY runs.id
"""  # noqa: S608  # of parts of our own
_FIRST = f"""
SELECT {_ROW.format("first")} FROM runs
JOIN events AS first ON first.run = runs.id AND first.seq = 1
WHERE runs.id = ?
"""  # noqa: S608  # of parts of our own
_OF_RUN, _OF_EVENT = 8, 9
"""How many columns of a row are the run's own, and an event's."""


class _Event(NamedTuple):
    """One event's row, and the checksum of the one before it."""

    seq: int
    at: float
    kind: bytes
    path: bytes
    body: bytes
    value: bytes | None
    blob: bytes | None
    crc: int
    previous: int | None

    def is_as_written(self, run_id: str) -> bool:
        """True if its checksum fits its content and the row before."""
        before = begin_checksum(run_id) if self.seq == 1 else self.previous or 0
        try:
            return checksum_as_read(before, *self[:-2]) == self.crc
        except (TypeError, struct.error):  # a column has a type that was never written
            return False


def list_runs(connection: sqlite3.Connection, now: float, codec: Codec) -> list[RunInfo]:
    """Every run that was begun, oldest first; damage of one run does not hide the others."""
    driven = holders(connection, now)
    rows = connection.execute(_LISTED).fetchall()
    waits = partial(_waits_by_last_event, now=now, codec=codec)
    begun = (row for row in rows if row[_OF_RUN] is not None or row[5])
    return [_with_certain_id(connection, row[0], _info(row, driven, waits, codec)) for row in begun]


def _with_certain_id(connection: sqlite3.Connection, number: int, info: RunInfo) -> RunInfo:
    """The same; a damaged entry whose first event was written under its id has ``?`` as workflow:
    it is no other run's.
    """
    if not info.damaged or info.workflow_name:
        return info
    row = connection.execute(_FIRST, (number,)).fetchone()
    return (
        replace(info, workflow_name="?")
        if row and _Event(*row).is_as_written(info.run_id)
        else info
    )


def _info(
    row: tuple[Any, ...],
    driven: dict[str, Holder],
    since: Callable[[str, _Event], tuple[WaitsFor, ...]],
    codec: Codec,
) -> RunInfo:
    run_id, workflow, labels = (_text(said) for said in row[1:4])
    started_at, tail_seq, tail_crc, crc = row[4:_OF_RUN]
    if run_checksum((row[0], run_id, workflow, labels, started_at, tail_seq, tail_crc)) != crc:
        return RunInfo(run_id, "", None, 0.0, 0, damaged="its entry is not as it was written")
    holder = driven.get(run_id)
    info = RunInfo(run_id, workflow, None, started_at, 0, 0.0, _labels(labels), holder)
    if row[_OF_RUN] is None:
        return replace(info, damaged=f"events 1 to {tail_seq} are missing")
    last = _Event(*row[_OF_RUN : _OF_RUN + _OF_EVENT])
    drive = None if row[_OF_RUN + _OF_EVENT] is None else _Event(*row[_OF_RUN + _OF_EVENT : -1])
    for event in (last,) if drive is None or drive.seq == last.seq else (last, drive):
        if not event.is_as_written(run_id):
            return replace(info, damaged=f"event {event.seq} is not as it was written")
    if last.seq < tail_seq:
        return replace(info, damaged=f"events {last.seq + 1} to {tail_seq} are missing")
    status = None if drive is None else _status(drive)
    waits: tuple[WaitsFor, ...] = ()
    if status == "suspended" and drive is not None:
        waits = waits_recorded(_text(drive.body), codec)
    elif status is None and (holder is not None or last.kind != b"ClaimWaiting"):
        waits = since(run_id, last)
    forked = None if row[-1] is None else forked_from(msgspec.json.decode(row[-1]))
    return replace(
        info,
        status=status,
        events=last.seq,
        updated_at=last.at,
        waits_for=waits,
        forked_from=forked,
    )


def _waits_by_last_event(
    run_id: str, last: _Event, now: float, codec: Codec
) -> tuple[WaitsFor, ...]:
    """The waits of a run without an end, by its last event."""
    if last.blob is not None:
        return ()
    parts = (last.seq, last.at, last.kind, last.path, last.body, last.value)
    try:
        return waits_by_last_event(reader(run_id, codec, None)(*parts), now)
    except UnreadableRecord:  # of another version
        return ()


def _text(said: bytes | None) -> str:
    return (said or b"").decode("utf-8", "backslashreplace")


def _status(drive: _Event) -> RunStatus | None:
    if drive.kind == b"WorkflowCompleted":
        status: RunStatus = msgspec.json.decode(drive.body)["status"]
        return status
    return "suspended" if drive.kind == b"RunSuspended" else None


def _labels(text: str) -> dict[str, str]:
    if text == "{}":
        return {}
    labels: dict[str, Any] = msgspec.json.decode(text)
    # A label that is not a string was a secret.
    return {name: said if isinstance(said, str) else "***" for name, said in labels.items()}


def last_numbers(connection: sqlite3.Connection, run_ids: Collection[str]) -> dict[str, int]:
    """By run, the number of its last event; without runs that have none."""
    query = "SELECT max(seq) FROM events WHERE run = (SELECT id FROM runs WHERE run_id = ?)"
    last = {one: connection.execute(query, (one,)).fetchone()[0] for one in run_ids}
    return {one: number for one, number in last.items() if number}


PIECE = 1000
"""How many events are read at a time: between two pieces other threads use the connection."""
_EVENTS = (
    "SELECT seq, at, kind, path, body, value, blob, crc FROM events "
    "WHERE run = ? AND seq > ? ORDER BY seq LIMIT ?"
)
_CRC = "SELECT crc FROM events WHERE run = ? AND seq = ?"
_AFTER = "SELECT seq FROM events WHERE (run, seq) > (?, ?) ORDER BY run, seq LIMIT 1"
_BLOB = "SELECT cast(data AS blob) FROM blobs WHERE hash = ?"
Reads: TypeAlias = Callable[[Callable[[sqlite3.Connection], Any]], Any]
"""Calls a function with the connection, while no other thread uses it; returns its result."""


_DAMAGED = "Nothing in it is believed; other runs are not affected. Put back a copy of the file."
_RESCUE = "fork(at=...) makes a run of what precedes the damage."


class _NotAsWritten(Exception):
    """A part of a run is not as it was written; the text names the part."""


class _Removed(Exception):
    """The run was removed between two pieces; another may have its name now."""


def read_events(
    journal: str, reads: Reads, run_id: str, read: Read, after: int = 0
) -> list[Event] | None:
    """The events of a run behind a number, in order; None if it has no event of that number.

    Raises:
        JournalDamaged: a row is missing, or is not as it was written; the text says which.
    """
    while True:
        events: list[Event] = []
        try:
            return events if _read_run(reads, run_id, read, events, after) else None
        except _Removed:
            continue
        except _NotAsWritten as wrong:
            hint = f"{_DAMAGED} {_RESCUE}" if events else _DAMAGED
            error = JournalDamaged(journal, f"reading run {run_id}", f"run {run_id}: {wrong}", hint)
            error.readable = events
            raise error from wrong.__cause__


class _Piece(NamedTuple):
    """A run's own row; the checksum at a number; the rows of the next events; the number of the
    event behind them, of whichever run, if they are the last ones.
    """

    run: tuple[Any, ...]
    crc: int
    rows: list[tuple[Any, ...]]
    next_seq: int | None


def _read_run(reads: Reads, run_id: str, read: Read, events: list[Event], after: int) -> bool:
    """Read the events of a run behind a number; False if it has no event of that number."""
    last, crc = after, None
    while True:
        piece: _Piece | None = reads(partial(_piece, run_id=run_id, after=last))
        if crc is not None and (piece is None or piece.crc != crc):
            raise _Removed
        if piece is None:
            return not after
        run, crc, rows, next_seq = piece
        if run_checksum(run[:7]) != run[7]:
            raise _NotAsWritten("its entry is not as it was written")
        try:
            crc = _chain(reads, run, (last, crc), rows, read, events)
        except (TypeError, struct.error) as error:  # a column is of a type that was never written
            where = after + len(events) + 1
            raise _NotAsWritten(f"event {where} is not as it was written") from error
        last = after + len(events)
        if len(rows) < PIECE:
            if last < run[5]:
                raise _NotAsWritten(f"events {last + 1} to {run[5]} are missing")
            if next_seq not in {None, 1}:  # the next row is no first event of another run
                raise _NotAsWritten(f"event {last + 1} is missing")
            return True


def _piece(connection: sqlite3.Connection, run_id: str, after: int) -> _Piece | None:
    """The next events of a run behind a number; None if it has no event of that number."""
    with snapshot(connection):
        run = connection.execute(f"{RUN} WHERE run_id = ?", (run_id,)).fetchone()
        if run is None or (crc := _checksum_at(connection, run, after)) is None:
            return None
        connection.text_factory = bytes  # checksums are over bytes, and msgspec reads bytes
        try:
            rows = connection.execute(_EVENTS, (run[0], after, PIECE)).fetchall()
        finally:
            connection.text_factory = str
        last = rows[-1][0] if rows else after
        behind = connection.execute(_AFTER, (run[0], last)).fetchone()
        return _Piece(run, crc, rows, None if behind is None else behind[0])


def _checksum_at(connection: sqlite3.Connection, run: tuple[Any, ...], after: int) -> int | None:
    """The checksum at the number ``after``, if the run has an event of that number."""
    if after <= 0:
        return begin_checksum(run[1])
    found = connection.execute(_CRC, (run[0], after)).fetchone()
    return None if found is None else int(found[0])


def _chain(  # noqa: PLR0917 - they are one row's parts, and where to
    reads: Reads,
    run: tuple[Any, ...],
    begin: tuple[int, int],
    rows: list[tuple[Any, ...]],
    read: Read,
    events: list[Event],
) -> int:
    """Read rows one by one, and check that each checksum follows from the row before; the last one.

    One loop with as few calls as possible: a replay spends half of its time here.
    """
    after, crc = begin
    number, tail_seq, tail_crc = run[0], run[5], run[6]
    keep = events.append
    for expected, (seq, at, kind, path, body, value, blob, said) in enumerate(rows, after + 1):
        if seq != expected:
            raise _NotAsWritten(f"event {expected} is missing")
        parts = (kind, path, body, b"None" if blob is None else blob, value or b"")
        crc = crc32(b"\n".join(parts), crc32(pack(seq, at), crc))
        if crc != said:
            raise _NotAsWritten(f"event {seq} is not as it was written")
        if seq == tail_seq and crc != tail_crc:
            raise _NotAsWritten(f"event {seq} is not the one that it ended with")
        held = value if blob is None else _large(reads, blob, number, seq, crc)
        keep(read(seq, at, kind, path, body, held))
    return crc


def _large(reads: Reads, name: bytes, run: int, seq: int, crc: int) -> bytes:
    """The large value of an event, by its name; checks that its content has that name.

    Raises:
        _Removed: the event is not in the journal any more.
    """

    def of_event(connection: sqlite3.Connection) -> bytes | None:
        with snapshot(connection):
            row = connection.execute(_BLOB, (name.decode(),)).fetchone()
            if row is None and connection.execute(_CRC, (run, seq)).fetchone() != (crc,):
                raise _Removed
        return None if row is None else row[0]

    data: bytes | None = reads(of_event)
    if data is None:
        raise _NotAsWritten(f"event {seq} is not as it was written")
    if digest(data) != name.decode():
        raise _NotAsWritten(f"the value of event {seq} is not as it was written")
    return data
