"""Events as rows, each with a checksum over itself and the one before it."""

from __future__ import annotations

import hashlib
import sqlite3  # noqa: TID253 - loaded with SqliteJournal, on its first use
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import msgspec

from handrail.errors import LeaseLost
from handrail.journals.memory import OutOfSequence
from handrail.journals.sqlite_transactions import transaction
from handrail.record.rows import Record

pack = struct.Struct("<qd").pack
LARGE = 16 << 10
"""Values of more characters are stored once each, by what they say."""


@dataclass(slots=True)
class Tail:
    """The end of a run as this journal knows it.

    While ``epoch`` is not None, this journal holds the lease, and nobody else moves the end.
    ``run`` is the number of the run's row, 0 if it has none yet. ``secrets`` are the ones of the
    last lease.
    """

    run_id: str
    run: int = 0
    seq: int = 0
    crc: int = 0
    epoch: int | None = None
    secrets: Mapping[str, str] | None = None


_INSERT = "INSERT INTO events SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?"
_FENCED = (
    "INSERT INTO events SELECT ?, ?, ?, ?, ?, ?, ?, ?, ? "
    "WHERE (SELECT epoch FROM leases WHERE run_id = ?) = ?"
)
RUN = "SELECT id, run_id, workflow, labels, started_at, tail_seq, tail_crc, crc FROM runs"
_END = """
SELECT id, seq, events.crc FROM runs JOIN events ON run = id
WHERE run_id = ? ORDER BY seq DESC LIMIT 1
"""


def put(  # noqa: PLR0917 - on the hot path: keywords would cost
    connection: sqlite3.Connection,
    cursor: sqlite3.Cursor,
    tail: Tail,
    seq: int,
    at: float,
    record: Record,
) -> None:
    """Store a record under its number and time, and move the end of its run.

    Raises:
        OutOfSequence: its number is not the next one; nothing was stored.
        LeaseLost: the lease was held and is another's now; nothing was stored.
        sqlite3.Error: what else went wrong; nothing was stored.
    """
    kind, path, body, value = record
    epoch = tail.epoch
    if epoch is None or not tail.run or (value is not None and len(value) > LARGE):
        _put_with_care(connection, tail, seq, float(at), record)
        return
    _check_next(tail, seq)
    at = float(at)
    crc = checksum(tail.crc, seq, at, kind, path, body, value, None)
    try:
        cursor.execute(
            _FENCED,
            (tail.run, seq, at, kind, path, body, value, None, crc, tail.run_id, epoch),
        )
    except sqlite3.IntegrityError:
        move_to_end(connection, tail)
        raise OutOfSequence(tail.run_id, seq, tail.seq + 1) from None
    if cursor.rowcount != 1:
        raise lost(connection, tail)
    tail.seq = seq
    tail.crc = crc


def _put_with_care(
    connection: sqlite3.Connection, tail: Tail, seq: int, at: float, record: Record
) -> None:
    """The same for the first event of a run, a large value, and where there is no lease."""
    kind, path, body, value = record
    blob = None
    with transaction(connection):
        _check_epoch(connection, tail)
        move_to_end(connection, tail)
        _check_next(tail, seq)
        run = tail.run or _begin(connection, tail.run_id, at, record)
        if value is not None and len(value) > LARGE:
            blob, value = _put_blob(connection, value), None
        crc = checksum(tail.crc, seq, at, kind, path, body, value, blob)
        connection.execute(_INSERT, (run, seq, at, kind, path, body, value, blob, crc))
    tail.run, tail.seq, tail.crc = run, seq, crc


def _check_epoch(connection: sqlite3.Connection, tail: Tail) -> None:
    if tail.epoch is not None and epoch_of(connection, tail.run_id) != tail.epoch:
        raise lost(connection, tail)


def _check_next(tail: Tail, seq: int) -> None:
    if seq != tail.seq + 1:
        raise OutOfSequence(tail.run_id, seq, tail.seq + 1)


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


def begin_checksum(run_id: str) -> int:
    """What stands for the row before a run's first."""
    return crc32(run_id.encode())


def move_to_end(connection: sqlite3.Connection, tail: Tail) -> None:
    """Bring what is known of a run's end up to date."""
    row = connection.execute(_END, (tail.run_id,)).fetchone()
    if row is None:
        tail.run, tail.seq, tail.crc = 0, 0, begin_checksum(tail.run_id)
    else:
        tail.run, tail.seq, tail.crc = row


def mark_end(connection: sqlite3.Connection, tail: Tail) -> None:
    """Note in the run's own row how far it has come, so that its last events cannot vanish."""
    row = connection.execute(f"{RUN} WHERE run_id = ?", (tail.run_id,)).fetchone()
    if row is not None:
        marked = (*row[:5], tail.seq, tail.crc)
        connection.execute(
            "UPDATE runs SET tail_seq = ?, tail_crc = ?, crc = ? WHERE id = ?",
            (tail.seq, tail.crc, run_checksum(marked), row[0]),
        )


def run_checksum(row: tuple[Any, ...]) -> int:
    """The checksum of a row of ``runs``, given all of it before the checksum."""
    return crc32("\n".join(map(repr, row)).encode())


def epoch_of(connection: sqlite3.Connection, run_id: str) -> int:
    """The epoch of the run's newest lease; 0 if it never had one."""
    row = connection.execute("SELECT epoch FROM leases WHERE run_id = ?", (run_id,)).fetchone()
    return int(row[0]) if row else 0


def lost(connection: sqlite3.Connection, tail: Tail) -> LeaseLost:
    """The error for a run that somebody else drives now."""
    row = connection.execute(
        "SELECT coalesce(pid, 0), host FROM leases WHERE run_id = ?", (tail.run_id,)
    ).fetchone()
    pid, host = row or (0, "nobody knows where")
    return LeaseLost(tail.run_id, int(pid), str(host))


def digest(value: bytes) -> str:
    """The name of a large value: what it says decides."""
    return hashlib.sha256(value).hexdigest()[:32]


def _put_blob(connection: sqlite3.Connection, value: str) -> str:
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
