"""Leases: one process at a time may write a run, proved by an epoch, a number that only grows.

The row of a lease stays after its release, without a process, so that every lease of a run has a
higher epoch than all before it. A write under a lease checks in the same statement that the row
still has its epoch. So a driver that was taken for dead can write nothing more.

``system.owners`` decides whether a holder lives.
"""

from __future__ import annotations

import sqlite3

from handrail.errors import RunLocked
from handrail.ports.journal import Holder
from handrail.system.owners import Owner, is_alive, place, this_process

_ROWS = "SELECT token, pid, start_ticks, host, boot, since, expires_at, epoch, run_id FROM leases"


def take(
    connection: sqlite3.Connection, run_id: str, now: float, lease_s: float
) -> tuple[int, str]:
    """Take a run's lease, in a transaction that the caller began; returns its epoch and token.

    Raises:
        RunLocked: another holder may still live.
    """
    row = connection.execute(f"{_ROWS} WHERE run_id = ?", (run_id,)).fetchone()
    epoch = 1
    if row is not None:
        *parts, before, _ = row
        epoch = before + 1
        if parts[1] is not None:
            holder = Owner(*parts)
            if is_alive(holder, now):
                raise RunLocked(run_id, holder.pid, holder.host, max(0.0, now - holder.since))
    mine = this_process(now, lease_s)
    connection.execute(
        "INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(run_id, epoch, mine.token, mine.pid, mine.start_ticks, mine.host, mine.boot),
            *(now, now, mine.expires_at),
        ),
    )
    return epoch, mine.token


def renew(
    connection: sqlite3.Connection, run_id: str, epoch: int, now: float, lease_s: float
) -> bool:
    """Renew a lease for ``lease_s`` from now; False if another driver has it."""
    done = connection.execute(
        "UPDATE leases SET renewed_at = ?, expires_at = ?, boot = ? WHERE run_id = ? AND epoch = ?",
        (now, now + lease_s, place(lease_s), run_id, epoch),
    )
    return done.rowcount == 1


def give_back(connection: sqlite3.Connection, run_id: str, epoch: int) -> bool:
    """Release a lease, so that another driver can take it at once; False if one has already."""
    done = connection.execute(
        "UPDATE leases SET pid = NULL WHERE run_id = ? AND epoch = ?", (run_id, epoch)
    )
    return done.rowcount == 1


def holders(connection: sqlite3.Connection, now: float) -> dict[str, Holder]:
    """The living holders of leases, by run id."""
    rows = connection.execute(f"{_ROWS} WHERE pid IS NOT NULL")
    owners = {run_id: Owner(*parts) for *parts, _, run_id in rows}
    return {
        run_id: Holder(owner.pid, owner.host, owner.since)
        for run_id, owner in owners.items()
        if is_alive(owner, now)
    }
