"""Processes that carry a step's marker in their environment, wherever they have gone.

Every child gets ``HANDRAIL_STEP=<marker>``, and its descendants inherit it, also those that leave
its process group and session. So they can be found with no list of them being kept. When handrail
itself runs inside a step of another run, ``HANDRAIL_OUTER_STEPS`` lists the markers around it, one
a line, so that the outer run finds what the inner one started.

The environment of other processes is read from ``/proc``, which only Linux has; elsewhere nothing
is found. Nor is a process that dropped its environment, or that runs as another user.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from handrail.errors import DefinitionError

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
        environ = _read_file(f"/proc/{pid}/environ")
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
    fields = (_read_file(f"/proc/{pid}/stat") or b"").rpartition(b")")[2].split()
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
    return int(_read_file("/proc/sys/kernel/pid_max") or 0)


def _read_file(path: str) -> bytes | None:
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


STEP = "HANDRAIL_STEP"
OUTER_STEPS = "HANDRAIL_OUTER_STEPS"

_STEP_BYTES = STEP.encode()
_OUTER_BYTES = OUTER_STEPS.encode()
_MAX_PASSES = 100
"""A bound for the case that the processes fork faster than they are killed."""


def marked_environment(marker: str, around: Mapping[str, str]) -> dict[str, str]:
    """The variables that mark a child of this process, whose own environment is ``around``."""
    if not marker or not marker.isprintable():
        raise DefinitionError(f"a marker must be printable text on one line, got {marker!r}")
    outer = [line for name in (OUTER_STEPS, STEP) if (line := around.get(name))]
    return {STEP: marker, **({OUTER_STEPS: "\n".join(outer)} if outer else {})}


def carries(environ: bytes, marker: str, *, below: bool = False, outer: bool = True) -> bool:
    """True if a NUL-separated environment has this marker.

    With ``below`` one that ``is_below`` it will do; without ``outer`` the markers around the
    innermost one do not count.
    """
    wanted = os.fsencode(marker)
    if wanted not in environ:
        return False
    return any(
        line == wanted or (below and is_below(os.fsdecode(line), marker))
        for line in _markers_of(environ, outer=outer)
    )


def is_below(marker: str, above: str) -> bool:
    """True for the marker of a step or attempt within what is above, or of a run of that id in
    whatever journal.
    """
    return marker.startswith(above) and _BELOW.match(marker, len(above)) is not None


_BELOW = re.compile(r"(~\d+)?[/#]|@")


def is_inside(marker: str, around: Mapping[str, str]) -> bool:
    """True if what has this environment was started by a step of this marker, or below it."""
    markers = (around.get(STEP, ""), *around.get(OUTER_STEPS, "").split("\n"))
    return any(one == marker or is_below(one, marker) for one in markers if one)


def kill_marked(marker: str) -> int:
    """Kill every process of a step, or of all steps below it, at once; how many there were.

    ``marker`` is a whole marker, or the part of one before a ``/``: ``<run id>@<journal>`` ends
    all that a run has started, the id alone what runs of this id have in any journal, and with
    the path of a step behind it what that has. For
    emergencies: SIGKILL, no grace, no event loop, nothing is waited for. The calling process itself
    is spared. Linux only; elsewhere it finds nothing and returns 0.
    """
    killed: set[int] = set()
    for _ in range(_MAX_PASSES):
        found = {pid for pid in live_pids() if carries(environ_of(pid), marker, below=True)}
        if found <= killed:
            break
        for pid in found:
            send(pid, signal.SIGKILL)
        killed |= found
    return len(killed)


def send(pid: int, signum: signal.Signals) -> None:
    """Send a signal to a process, or to the group ``-pid``; one that is gone is no error."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signum)


def _markers_of(environ: bytes, *, outer: bool) -> Iterator[bytes]:
    for variable in environ.split(b"\0"):
        name, _, value = variable.partition(b"=")
        if name == _STEP_BYTES:
            yield value
        elif outer and name == _OUTER_BYTES:
            yield from value.split(b"\n")
