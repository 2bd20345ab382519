"""The list of runs, read from the rows that say how each stands."""

from __future__ import annotations

import sqlite3  # noqa: TID253 - loaded with SqliteJournal, on its first use
from typing import Any

import msgspec

from handrail.journals.sqlite_failures import damaged
from handrail.journals.sqlite_lease import holders
from handrail.journals.sqlite_rows import run_checksum
from handrail.model.results import RunStatus
from handrail.ports.journal import RunInfo

# A run that ended is told by its last row. Of others the rows are read backwards to the last that
# says how the run stands: 0.2 us a row. An index of those rows would cost each event more.
_LISTED = """
SELECT runs.id, runs.run_id, runs.workflow, runs.labels, runs.started_at, runs.tail_seq,
       runs.tail_crc, runs.crc, last.seq, last.at, drive.kind, drive.body
FROM runs
JOIN events AS last ON last.run = runs.id
    AND last.seq = (SELECT max(seq) FROM events WHERE run = runs.id)
LEFT JOIN events AS drive ON drive.run = runs.id
    AND drive.seq = (SELECT seq FROM events WHERE run = runs.id AND kind IN
        ('WorkflowStarted', 'WorkflowCompleted', 'RunSuspended', 'RunResumed')
        ORDER BY seq DESC LIMIT 1)
ORDER BY runs.id
"""


def list_runs(journal: str, connection: sqlite3.Connection, now: float) -> list[RunInfo]:
    """Every run that has events, oldest first."""
    driven = holders(connection, now)
    found: list[RunInfo] = []
    for row in connection.execute(_LISTED).fetchall():
        run_id, workflow, labels, started_at = row[1:5]
        if run_checksum(row[:7]) != row[7] or row[8] < row[5]:
            why = f"the entry of run {run_id} is not as it was written"
            raise damaged(journal, "reading the list of runs", why)
        count, updated_at, kind, body = row[8:]
        status = _status(kind, body)
        found.append(
            RunInfo(
                run_id, workflow, status, started_at, count, updated_at, _labels(labels),
                driven.get(run_id),
            )
        )  # fmt: skip
    return found


def _status(kind: str | None, body: str) -> RunStatus | None:
    if kind == "WorkflowCompleted":
        status: RunStatus = msgspec.json.decode(body)["status"]
        return status
    return "suspended" if kind == "RunSuspended" else None


def _labels(text: str) -> dict[str, str]:
    if text == "{}":
        return {}
    labels: dict[str, Any] = msgspec.json.decode(text)
    # What is not a string any more was a secret.
    return {name: said if isinstance(said, str) else "***" for name, said in labels.items()}
