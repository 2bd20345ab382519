"""Which process holds something that is written in a database, and whether it still lives.

Whether an owner lives is known where its process can be seen: same boot of the same machine, same
table of processes. There a process that was stopped for an hour still owns what it has, and one
that died owns nothing. Anywhere else an owner lives as long as it renews its lease: by the
machine's running time where it is of the same boot, in another container, say, so that a clock
which is set ends no lease; between machines by their wall clocks.
"""

from __future__ import annotations

import functools
import os
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from handrail.system.marker import HAS_PROC, stat_of


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that holds something, as a row of a database says it."""

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
_mine: set[str] = set()
"""The tokens of all that this process owns; a fork's child has new ones only."""


def this_process(now: float, lease_s: float) -> Owner:
    """This process as the owner of something new, with a token of its own."""
    owner = of_process(os.getpid(), now, lease_s)
    _mine.add(owner.token)
    return owner


def of_process(pid: int, now: float, lease_s: float) -> Owner:
    """A process of this machine as the owner of something new."""
    ticks = stat_of(pid).start_ticks
    token = uuid.uuid4().hex
    return Owner(token, pid, ticks, host(), place(lease_s), now, now + lease_s)


def forget(token: str) -> None:
    """Count what this process owns under this token as no longer its own, whatever its row says."""
    _mine.discard(token)


def is_alive(owner: Owner, now: float) -> bool:
    """True if the owner may still live; see the module's text."""
    if not _is_on_this_machine(owner):
        return is_renewed(owner, now)
    if owner.pid == os.getpid():
        return owner.token in _mine
    if HAS_PROC:
        stat = stat_of(owner.pid)
        return stat.alive and stat.start_ticks == owner.start_ticks
    # A process id without a start time may be another's by now; so it must be renewed, too.
    return _exists(owner.pid) and is_renewed(owner, now)


def _is_on_this_machine(owner: Owner) -> bool:
    if owner.machine or boot():
        return owner.machine == boot()
    return owner.host == host()


def is_renewed(owner: Owner, now: float) -> bool:
    """True if the lease has not run out."""
    left_s = owner.left_s
    if left_s is None or (left_s <= 0 and not boot()):  # no boot: it may be one of another
        return now < owner.expires_at
    return left_s > 0


def place(lease_s: float) -> str:
    """What a row says of this machine: which it is, and when a lease ends by its clock."""
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
