"""The rows of a run as events, if they are what was written."""

from __future__ import annotations

import sqlite3  # noqa: TID253 - loaded with SqliteJournal, on its first use
import struct
from collections.abc import Mapping
from typing import Any
from zlib import crc32

from handrail.codec.codec import Codec
from handrail.journals.sqlite_failures import damaged
from handrail.journals.sqlite_rows import RUN, begin_checksum, digest, pack, run_checksum
from handrail.journals.sqlite_transactions import snapshot
from handrail.model.events import Event
from handrail.record.rows import Read, reader

_EVENTS = """
SELECT seq, at, cast(kind AS blob), cast(path AS blob), cast(body AS blob), cast(value AS blob),
  cast(blob AS blob), crc
FROM events WHERE run = ? ORDER BY seq
"""
"""As bytes: so they were checksummed, and msgspec reads them."""
_AFTER = "SELECT seq FROM events WHERE (run, seq) > (?, ?) ORDER BY run, seq LIMIT 1"
_BLOB = "SELECT cast(data AS blob) FROM blobs WHERE hash = ?"


class _NotAsWritten(Exception):
    """What was read is not what was written; the text says what of it."""


def read_events(
    journal: str,
    connection: sqlite3.Connection,
    run_id: str,
    codec: Codec,
    secrets: Mapping[str, str] | None,
) -> list[Event]:
    """All events of a run, in order.

    Raises:
        JournalDamaged: a row is missing, or is not as it was written; the text says which.
    """
    try:
        with snapshot(connection):
            run = connection.execute(f"{RUN} WHERE run_id = ?", (run_id,)).fetchone()
            return [] if run is None else _events(connection, run, reader(run_id, codec, secrets))
    except _NotAsWritten as wrong:
        said = f"run {run_id}: {wrong}"
        raise damaged(journal, f"reading run {run_id}", said) from wrong.__cause__


def _events(connection: sqlite3.Connection, run: tuple[Any, ...], read: Read) -> list[Event]:
    """The events of the run with this row of its own."""
    number, run_id, tail_seq = run[0], run[1], run[5]
    if run_checksum(run[:7]) != run[7]:
        raise _NotAsWritten("its entry is not as it was written")
    events: list[Event] = []
    try:
        _chain(connection, number, run_id, (tail_seq, run[6]), read, events)
    except (TypeError, struct.error) as error:  # a column is of a type that was never written
        raise _NotAsWritten(f"event {len(events) + 1} is not as it was written") from error
    count = len(events)
    if count < tail_seq:
        raise _NotAsWritten(f"events {count + 1} to {tail_seq} are missing")
    after = connection.execute(_AFTER, (number, count)).fetchone()
    if after is not None and after[0] != 1:  # another has taken its place
        raise _NotAsWritten(f"event {count + 1} is missing")
    return events


def _chain(  # noqa: PLR0917 - they are one row's parts, and where to
    connection: sqlite3.Connection,
    number: int,
    run_id: str,
    tail: tuple[int, int],
    read: Read,
    events: list[Event],
) -> None:
    """Read rows one by one, each as long as it follows from the one before, as in ``checksum``.

    One loop, and as few calls as can be: half of a replay's time is spent here.
    """
    crc = begin_checksum(run_id)
    tail_seq, tail_crc = tail
    keep = events.append
    rows = connection.execute(_EVENTS, (number,))
    for expected, (seq, at, kind, path, body, value, blob, said) in enumerate(rows, 1):
        if seq != expected:
            raise _NotAsWritten(f"event {expected} is missing")
        parts = (kind, path, body, b"None" if blob is None else blob, value or b"")
        crc = crc32(b"\n".join(parts), crc32(pack(seq, at), crc))
        if crc != said:
            raise _NotAsWritten(f"event {seq} is not as it was written")
        if seq == tail_seq and crc != tail_crc:
            raise _NotAsWritten(f"event {seq} is not the one that it ended with")
        held = value if blob is None else _large(connection, blob, seq)
        keep(read(seq, at, kind, path, body, held))


def _large(connection: sqlite3.Connection, name: bytes, seq: int) -> bytes:
    """A value that is stored by what it says."""
    row = connection.execute(_BLOB, (name.decode(),)).fetchone()
    if row is None:
        raise _NotAsWritten(f"event {seq} is not as it was written")
    data: bytes = row[0]
    if digest(data) != name.decode():
        raise _NotAsWritten(f"the value of event {seq} is not as it was written")
    return data
