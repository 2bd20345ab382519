"""Verifies a journal, and removes old runs from it."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Collection, Iterator
from typing import Any, Literal, TypeAlias

from handrail.codec.codec import Codec
from handrail.journals.sqlite.inbox import letter_checksum
from handrail.journals.sqlite.leases import holders
from handrail.journals.sqlite.rows import (
    RUN,
    begin_checksum,
    checksum_as_read,
    digest,
    list_runs,
    run_checksum,
)
from handrail.model.history import JournalFault, Pruned
from handrail.ports.journal import RunInfo
from handrail.record.rows import Record, UnreadableRecord, from_record
from handrail.system.sqlite import snapshot, transaction

_ROWS = """
SELECT seq, at, cast(kind AS blob), cast(path AS blob), cast(body AS blob), cast(value AS blob),
  cast(blob AS blob), crc, (SELECT cast(data AS blob) FROM blobs WHERE hash = blob)
FROM events WHERE run = ? ORDER BY seq
"""
_LETTERS = """
SELECT run_id, number, key, at, kind, path, body, value, crc FROM letters ORDER BY run_id, number
"""
_UNUSED = "hash NOT IN (SELECT blob FROM events WHERE blob IS NOT NULL)"
PruneStatus: TypeAlias = Literal["succeeded", "failed", "cancelled", "suspended", "dead"]
ENDED: frozenset[PruneStatus] = frozenset({"succeeded", "failed", "cancelled"})


def faults(
    connection: sqlite3.Connection, codec: Codec, run_id: str | None
) -> Iterator[JournalFault]:
    """Everything in a journal, or in one run of it, that is not as it was written."""
    with snapshot(connection):
        if run_id is None:
            for (said,) in connection.execute("PRAGMA quick_check(20)").fetchall():
                if said != "ok":
                    yield JournalFault("", 0, f"the file is damaged: {said}")
        for row in connection.execute(RUN).fetchall():
            if run_id is None or row[1] == run_id:
                yield from _run_faults(connection, codec, row)
        for row in connection.execute(_LETTERS).fetchall():
            if run_id in {None, row[0]} and letter_checksum(row[0], row[1:-1]) != row[-1]:
                yield JournalFault(str(row[0]), 0, f"message {row[1]} is not as it was written")
        if run_id is None:
            yield from _blob_faults(connection)
            yield from _orphan_faults(connection)


def _run_faults(
    connection: sqlite3.Connection, codec: Codec, run: tuple[Any, ...]
) -> Iterator[JournalFault]:
    number, run_id, tail_seq, tail_crc = run[0], str(run[1]), run[5], run[6]
    if run_checksum(run[:7]) != run[7]:
        yield JournalFault(run_id, 0, "its entry is not as it was written")
    crc, last = begin_checksum(run_id), 0
    for seq, *columns, said, data in connection.execute(_ROWS, (number,)).fetchall():
        if seq > last + 1:
            yield JournalFault(run_id, last + 1, f"events {last + 1} to {seq - 1} are missing")
        else:
            wrong = _event_faults(run_id, codec, seq, columns, data, crc, said)
            if wrong:
                yield JournalFault(run_id, seq, f"event {seq} {wrong}")
        crc, last = said, seq
        if seq == tail_seq and said != tail_crc:
            yield JournalFault(run_id, seq, f"event {seq} is not the one that it ended with")
    if last < tail_seq or not last:
        yield JournalFault(run_id, last + 1, f"events {last + 1} to {tail_seq} are missing")


def _event_faults(  # noqa: PLR0917  # the parts of a row
    run_id: str,
    codec: Codec,
    seq: int,
    columns: list[Any],
    data: bytes | None,
    before: int,
    said: int,
) -> str:
    """What is wrong with an event, in words; empty if nothing is."""
    at, kind, path, body, value, blob = columns
    try:
        if checksum_as_read(before, seq, at, kind, path, body, value, blob) != said:
            return "is not as it was written"
        if blob is not None and (data is None or digest(data) != blob.decode()):
            return "has a value that is not as it was written"
        held = data if blob is not None else value
        text = None if held is None else held.decode()
        record = Record(kind.decode(), path.decode(), body.decode(), text)
        from_record(run_id, seq, at, record, codec, None)
    except (TypeError, struct.error, UnicodeDecodeError):
        return "is not as it was written"
    except UnreadableRecord as error:
        return f"cannot be read by this version: {error.why}"
    return ""


def _blob_faults(connection: sqlite3.Connection) -> Iterator[JournalFault]:
    """Faults of large values that no event refers to; others are found with their events."""
    query = f"SELECT hash, cast(data AS blob) FROM blobs WHERE {_UNUSED}"  # noqa: S608
    for name, data in connection.execute(query).fetchall():
        if digest(data) != name:
            yield JournalFault("", 0, f"the value {name} is not as it was written")


def _orphan_faults(connection: sqlite3.Connection) -> Iterator[JournalFault]:
    query = "SELECT DISTINCT run FROM events WHERE run NOT IN (SELECT id FROM runs)"
    for (number,) in connection.execute(query).fetchall():
        yield JournalFault("", 0, f"the entry of the run with the number {number} is missing")


def prunable_runs(
    connection: sqlite3.Connection,
    now: float,
    older_than_s: float | None,
    keep_last: int | None,
    statuses: Collection[PruneStatus],
) -> list[RunInfo]:
    """The runs to remove: of these statuses (default: ended ones), at least ``older_than_s`` old,
    and not among the ``keep_last`` newest. Never one that is driven, or damaged.
    """
    wanted = statuses or ENDED
    found = [
        info
        for info in list_runs(connection, now, Codec())
        if info.holder is None and not info.damaged and (info.status or "dead") in wanted
    ]
    if keep_last:
        kept = {one.run_id for one in sorted(found, key=lambda one: one.updated_at)[-keep_last:]}
        found = [one for one in found if one.run_id not in kept]
    if older_than_s is not None:
        found = [one for one in found if one.updated_at <= now - older_than_s]
    return found


def size_of(connection: sqlite3.Connection, run_id: str) -> int:
    """The size of a run's events in bytes, without large values, which other runs may share."""
    query = (
        "SELECT coalesce(sum(length(cast(path AS blob)) + length(cast(body AS blob)) "
        "+ coalesce(length(cast(value AS blob)), 0) + 32), 0) "
        "FROM events WHERE run = (SELECT id FROM runs WHERE run_id = ?)"
    )
    return int(connection.execute(query, (run_id,)).fetchone()[0])


def remove(connection: sqlite3.Connection, runs: Collection[RunInfo], now: float) -> Pruned:
    """Remove runs, unless a process drives them by now, one a transaction; then unused values."""
    gone: list[RunInfo] = []
    freed = 0
    for info in runs:
        with transaction(connection):
            if info.run_id in holders(connection, now):
                continue
            size = size_of(connection, info.run_id)
            of_run = "run = (SELECT id FROM runs WHERE run_id = ?)"
            connection.execute(f"DELETE FROM events WHERE {of_run}", (info.run_id,))  # noqa: S608
            for table in ("letters", "leases", "runs"):
                connection.execute(f"DELETE FROM {table} WHERE run_id = ?", (info.run_id,))  # noqa: S608
        gone.append(info)
        freed += size
    return Pruned(
        tuple(one.run_id for one in gone),
        sum(one.events for one in gone),
        freed + _remove_values(connection),
    )


def _remove_values(connection: sqlite3.Connection) -> int:
    with transaction(connection):
        query = f"SELECT coalesce(sum(length(cast(data AS blob))), 0) FROM blobs WHERE {_UNUSED}"  # noqa: S608
        (freed,) = connection.execute(query).fetchone()
        connection.execute(f"DELETE FROM blobs WHERE {_UNUSED}")  # noqa: S608
    return int(freed)
