"""Who may write a run: one process at a time, proved by a number that only grows.

A lease's row stays when it is given back, with no process in it, so that every lease of a run has
a higher epoch than all before it. What is written under a lease is written only while the row
still has its epoch, in one statement; so a driver that was taken for dead can write nothing more.

Whether a holder lives is known where its process can be seen: same boot of the same machine, same
table of processes. There a process that was stopped for an hour still holds its runs, and one that
died holds nothing. Anywhere else a holder lives as long as it renews its lease: by the machine's
running time where it is of the same boot, in another container, say, so that a clock which is set
ends no lease; between machines by their wall clocks.
"""

from __future__ import annotations

import functools
import os
import sqlite3
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from handrail.errors import RunLocked
from handrail.ports.journal import Holder
from handrail.system.marker import HAS_PROC, stat_of


@dataclass(frozen=True, slots=True)
class Claim:
    """What a lease's row says of its holder."""

    token: str
    pid: int
    start_ticks: int
    host: str
    boot: str
    since: float
    expires_at: float

    @property
    def machine(self) -> str:
        """The boot of its machine and its table of processes, as ``boot`` gives them."""
        return self.boot.partition(_UNTIL)[0]

    @property
    def left_s(self) -> float | None:
        """How long it lasts yet in running time, where that can be said: the clock of its process
        is this one's, and it was not begun anew since.
        """
        written = self.boot.partition(_UNTIL)[2].split(maxsplit=2)
        if len(written) < 3 or written[2] != _clock():
            return None
        left_s, lease_s = float(written[0]) - time.monotonic(), float(written[1])
        return left_s if left_s <= lease_s else None


_UNTIL = " until "
_CLAIMS = "SELECT token, pid, start_ticks, host, boot, since, expires_at, epoch, run_id FROM leases"
_mine: set[str] = set()
"""The tokens of all leases that this process holds; a fork's child has new ones only."""


def take(
    connection: sqlite3.Connection, run_id: str, now: float, lease_s: float
) -> tuple[int, str]:
    """Become the holder, inside a transaction that the caller began: the epoch and the token.

    Raises:
        RunLocked: its holder may still live.
    """
    row = connection.execute(f"{_CLAIMS} WHERE run_id = ?", (run_id,)).fetchone()
    epoch = 1
    if row is not None:
        *parts, before, _ = row
        epoch = before + 1
        if parts[1] is not None:
            claim = Claim(*parts)
            if lives(claim, now):
                raise RunLocked(run_id, claim.pid, claim.host, max(0.0, now - claim.since))
    token = uuid.uuid4().hex
    pid = os.getpid()
    ticks = stat_of(pid).start_ticks
    connection.execute(
        "INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (run_id, epoch, token, pid, ticks, host(), _where(lease_s), now, now, now + lease_s),
    )
    _mine.add(token)
    return epoch, token


def renew(
    connection: sqlite3.Connection, run_id: str, epoch: int, now: float, lease_s: float
) -> bool:
    """Hold it for that much longer; False if it is another's now."""
    done = connection.execute(
        "UPDATE leases SET renewed_at = ?, expires_at = ?, boot = ? WHERE run_id = ? AND epoch = ?",
        (now, now + lease_s, _where(lease_s), run_id, epoch),
    )
    return done.rowcount == 1


def give_back(connection: sqlite3.Connection, run_id: str, epoch: int) -> bool:
    """Let the next one have it at once; False if it is another's already."""
    done = connection.execute(
        "UPDATE leases SET pid = NULL WHERE run_id = ? AND epoch = ?", (run_id, epoch)
    )
    return done.rowcount == 1


def forget(token: str) -> None:
    """Count the lease of this process as no longer held, whatever its row says."""
    _mine.discard(token)


def holders(connection: sqlite3.Connection, now: float) -> dict[str, Holder]:
    """Who drives which run, as far as they live."""
    rows = connection.execute(f"{_CLAIMS} WHERE pid IS NOT NULL")
    claims = {run_id: Claim(*parts) for *parts, _, run_id in rows}
    return {
        run_id: Holder(claim.pid, claim.host, claim.since)
        for run_id, claim in claims.items()
        if lives(claim, now)
    }


def lives(claim: Claim, now: float) -> bool:
    """True if the holder may still live; see the module's text."""
    if not _in_sight(claim):
        return _goes_on(claim, now)
    if claim.pid == os.getpid():
        return claim.token in _mine
    if HAS_PROC:
        stat = stat_of(claim.pid)
        return stat.alive and stat.start_ticks == claim.start_ticks
    # A process id without a start time may be another's by now; so it must be renewed, too.
    return _exists(claim.pid) and _goes_on(claim, now)


def _in_sight(claim: Claim) -> bool:
    if claim.machine or boot():
        return claim.machine == boot()
    return claim.host == host()


def _goes_on(claim: Claim, now: float) -> bool:
    """True if the lease has not run out."""
    left_s = claim.left_s
    if left_s is None or (left_s <= 0 and not boot()):  # no boot: it may be one of another
        return now < claim.expires_at
    return left_s > 0


def _where(lease_s: float) -> str:
    """What a lease's row says of its machine: which it is, and when the lease ends by its clock."""
    return f"{boot()}{_UNTIL}{time.monotonic() + lease_s:.3f} {lease_s:.3f} {_clock()}"


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@functools.cache
def host() -> str:
    """The name of this machine."""
    return os.uname().nodename


@functools.cache
def boot() -> str:
    """This boot of this machine and this table of processes; empty where that cannot be known."""
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot_id} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


@functools.cache
def _clock() -> str:
    """Whose running time this process sees: the same for all of a boot, but for those in another
    namespace of time.
    """
    boot_id, _, _ = boot().partition(" ")
    try:
        return f"{boot_id} {Path('/proc/self/ns/time').readlink()}"
    except OSError:
        return boot_id or host()


def _forget_all() -> None:
    _mine.clear()
    boot.cache_clear()
    _clock.cache_clear()


os.register_at_fork(after_in_child=_forget_all)
