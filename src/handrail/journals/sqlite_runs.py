"""The list of runs, read from the rows that say how each stands."""

from __future__ import annotations

import sqlite3  # noqa: TID253 - loaded with SqliteJournal, on its first use
import struct
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec

from handrail.journals.sqlite_lease import holders
from handrail.journals.sqlite_rows import begin_checksum, checksum, run_checksum
from handrail.model.results import RunStatus
from handrail.ports.journal import Holder, RunInfo

# A run that ended is told by its last row. Of others the rows are read backwards to the last that
# says how the run stands: 0.2 us a row. An index of those rows would cost each event more. Texts
# come as bytes: one that is no UTF-8 any more is damage of its run, and of no other.
_ROW = """{0}.seq, {0}.at, cast({0}.kind AS blob), cast({0}.path AS blob), cast({0}.body AS blob),
       cast({0}.value AS blob), cast({0}.blob AS blob), {0}.crc,
       (SELECT crc FROM events WHERE run = runs.id AND seq = {0}.seq - 1)"""
_LISTED = f"""
SELECT runs.id, cast(runs.run_id AS blob), cast(runs.workflow AS blob), cast(runs.labels AS blob),
       runs.started_at, runs.tail_seq, runs.tail_crc, runs.crc,
       {_ROW.format("last")}, {_ROW.format("drive")}
FROM runs
LEFT JOIN events AS last ON last.run = runs.id
    AND last.seq = (SELECT max(seq) FROM events WHERE run = runs.id)
LEFT JOIN events AS drive ON drive.run = runs.id
    AND drive.seq = (SELECT seq FROM events WHERE run = runs.id AND kind IN
        ('WorkflowStarted', 'WorkflowCompleted', 'RunSuspended', 'RunResumed')
        ORDER BY seq DESC LIMIT 1)
ORDER BY runs.id
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
        """True if its checksum follows from what it says."""
        before = begin_checksum(run_id) if self.seq == 1 else self.previous or 0
        rest = (self.value, self.blob)
        try:
            kind, path, body = (one.decode() for one in (self.kind, self.path, self.body))
            value, blob = (None if one is None else one.decode() for one in rest)
            said = checksum(before, self.seq, self.at, kind, path, body, value, blob)
        except (TypeError, struct.error, UnicodeDecodeError):  # it was never written so
            return False
        return said == self.crc


def list_runs(connection: sqlite3.Connection, now: float) -> list[RunInfo]:
    """Every run that was begun, oldest first; what is damaged of one does not hide the others."""
    driven = holders(connection, now)
    rows = connection.execute(_LISTED).fetchall()
    return [_info(row, driven) for row in rows if row[_OF_RUN] is not None or row[5]]


def _info(row: tuple[Any, ...], driven: dict[str, Holder]) -> RunInfo:
    run_id, workflow, labels = (_text(said) for said in row[1:4])
    started_at, tail_seq, tail_crc, crc = row[4:_OF_RUN]
    if run_checksum((row[0], run_id, workflow, labels, started_at, tail_seq, tail_crc)) != crc:
        return RunInfo(run_id, "", None, 0.0, 0, damaged="its entry is not as it was written")
    holder = driven.get(run_id)
    info = RunInfo(run_id, workflow, None, started_at, 0, 0.0, _labels(labels), holder)
    if row[_OF_RUN] is None:
        return replace(info, damaged=f"events 1 to {tail_seq} are missing")
    last = _Event(*row[_OF_RUN : _OF_RUN + _OF_EVENT])
    drive = None if row[_OF_RUN + _OF_EVENT] is None else _Event(*row[_OF_RUN + _OF_EVENT :])
    for event in (last,) if drive is None or drive.seq == last.seq else (last, drive):
        if not event.is_as_written(run_id):
            return replace(info, damaged=f"event {event.seq} is not as it was written")
    if last.seq < tail_seq:
        return replace(info, damaged=f"events {last.seq + 1} to {tail_seq} are missing")
    status = None if drive is None else _status(drive)
    return replace(info, status=status, events=last.seq, updated_at=last.at)


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
    # What is not a string any more was a secret.
    return {name: said if isinstance(said, str) else "***" for name, said in labels.items()}
