"""What ``/proc`` says about other processes; where there is no ``/proc``, nothing."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

HAS_PROC = sys.platform == "linux" and os.path.exists("/proc/self/environ")

_READ_BYTES = 1 << 17
_EXEC_LOOKS = 20
_EXEC_LOOK_S = 0.001
_PF_KTHREAD = 0x00200000


class Stat(NamedTuple):
    """Whether a process still runs (a zombie does not), and when it started, in clock ticks.

    A thread of the kernel is one that has no environment and never gets one.
    """

    alive: bool
    start_ticks: int
    kernel: bool = False


def live_pids() -> Iterator[int]:
    """The ids of all processes that can be seen, but for this one; zombies are among them."""
    own = os.getpid()
    with contextlib.suppress(OSError):
        for entry in os.listdir("/proc"):
            if entry.isdigit() and (pid := int(entry)) != own:
                yield pid


def environ_of(pid: int, *, since_ticks: int = 0) -> bytes:
    """The environment a process started with, NUL-separated; empty if it cannot be read.

    In the midst of an exec a process has none for a moment. So where a live process has none, this
    waits up to 20 ms for one to appear, unless it started before ``since_ticks``.
    """
    for _ in range(_EXEC_LOOKS):
        environ = _read(f"/proc/{pid}/environ")
        if environ is None:
            return b""
        if environ:
            return environ
        stat = stat_of(pid)
        if not stat.alive or stat.kernel or stat.start_ticks < since_ticks:
            return b""
        time.sleep(_EXEC_LOOK_S)  # noqa: TID251 - also called where no loop runs any more
    return b""


def stat_of(pid: int) -> Stat:
    """The state of a process; one that is not there is not alive."""
    # The second field, a name in parentheses, may itself contain blanks and parentheses.
    fields = (_read(f"/proc/{pid}/stat") or b"").rpartition(b")")[2].split()
    if not fields:
        return Stat(alive=False, start_ticks=0)
    return Stat(
        alive=fields[0] not in (b"Z", b"X"),
        start_ticks=int(fields[19]),
        kernel=bool(int(fields[6]) & _PF_KTHREAD),
    )


def session_of(pid: int) -> int:
    """The id of a process's session; 0 where it cannot be known.

    That is not only for what is gone: in a container a session may be led by a process outside.
    """
    with contextlib.suppress(OSError):
        return os.getsid(pid)
    return 0


def group_of(pid: int) -> int:
    """The id of a process's group; 0 where it cannot be known, as with ``session_of``."""
    with contextlib.suppress(OSError):
        return os.getpgid(pid)
    return 0


def pid_max() -> int:
    """The number that process ids wrap at, 0 if it cannot be known."""
    return int(_read("/proc/sys/kernel/pid_max") or 0)


def _read(path: str) -> bytes | None:
    parts: list[bytes] = []
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        while part := os.read(fd, _READ_BYTES):
            parts.append(part)
    except OSError:
        return None
    finally:
        os.close(fd)
    return b"".join(parts)
