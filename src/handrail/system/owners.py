"""Which process owns something that a database row records, and whether that process lives.

If the owner's process is visible (same boot of the same machine, same pid namespace), handrail
looks it up: a process stopped for an hour still owns its things, a dead one owns nothing. Otherwise
an owner counts as alive while it renews its lease. Within one boot (in another container, say) the
lease is measured by the machine's running time, so that setting the clock ends no lease; between
machines, by their wall clocks.
"""

from __future__ import annotations

import functools
import os
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path

from handrail.model.dataclass import dataclass
from handrail.system.forks import reset_in_child
from handrail.system.marker import HAS_PROC, Stat, stat_of


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that owns something, as a database row records it."""

    token: str
    pid: int
    start_ticks: int
    host: str
    boot: str
    since: float
    expires_at: float

    @property
    def machine(self) -> str:
        """The owner's boot and pid namespace, as ``boot`` returns them."""
        return self.boot.partition(_UNTIL)[0]

    @property
    def left_s(self) -> float | None:
        """Running time until the lease ends. None if its process has another clock than this one,
        or if that clock has restarted since.
        """
        written = self.boot.partition(_UNTIL)[2].split(maxsplit=2)
        if len(written) < 3 or written[2] != _clock():
            return None
        left_s, lease_s = float(written[0]) - time.monotonic(), float(written[1])
        return left_s if left_s <= lease_s else None


_UNTIL = " until "
_mine: set[str] = set()
"""The tokens of all that this process owns; after a fork the child starts with none."""


def this_process(now: float, lease_s: float) -> Owner:
    """This process as the owner of a new thing, under a new token."""
    owner = of_process(os.getpid(), now, lease_s)
    _mine.add(owner.token)
    return owner


def of_process(pid: int, now: float, lease_s: float) -> Owner:
    """A process of this machine as the owner of a new thing."""
    ticks = stat_of(pid).start_ticks
    token = uuid.uuid4().hex
    return Owner(token, pid, ticks, host(), place(lease_s), now, now + lease_s)


def forget(token: str) -> None:
    """Stop counting this token as owned by this process, whatever its row says."""
    _mine.discard(token)


def is_alive(owner: Owner, now: float, stat_of: Callable[[int], Stat] = stat_of) -> bool:
    """True if the owner may still live; see the module docstring."""
    if not _is_on_this_machine(owner):
        return is_renewed(owner, now)
    if owner.pid == os.getpid():
        return owner.token in _mine
    if HAS_PROC:
        stat = stat_of(owner.pid)
        return stat.alive and stat.start_ticks == owner.start_ticks
    # Without a start time the id may be another process's by now, so the lease counts, too.
    return _exists(owner.pid) and is_renewed(owner, now)


def any_dead(owners: Iterable[Owner], now: float) -> bool:
    """True if one of these owners is dead; looks each process up once."""
    stat = functools.cache(stat_of)
    return not all(is_alive(one, now, stat) for one in owners)


def _is_on_this_machine(owner: Owner) -> bool:
    if owner.machine or boot():
        return owner.machine == boot()
    return owner.host == host()


def is_renewed(owner: Owner, now: float) -> bool:
    """True if the lease has not run out."""
    left_s = owner.left_s
    if left_s is None or (left_s <= 0 and not boot()):  # without a boot id, maybe another boot's
        return now < owner.expires_at
    return left_s > 0


def place(lease_s: float) -> str:
    """What a row records of this machine: its boot, and when a lease ends by its running time."""
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
    """This boot of this machine and this pid namespace; empty if they cannot be known."""
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot_id} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


@functools.cache
def _clock() -> str:
    """The clock of running time that this process sees: one for each boot and time namespace."""
    boot_id, _, _ = boot().partition(" ")
    try:
        return f"{boot_id} {Path('/proc/self/ns/time').readlink()}"
    except OSError:
        return boot_id or host()


@reset_in_child
def _forget_all() -> None:
    _mine.clear()
    boot.cache_clear()
    _clock.cache_clear()
