"""Finds the processes that carry a step's marker in their environment, wherever they are.

Every child gets ``HANDRAIL_STEP=<marker>``, and its descendants inherit it, even those that leave
its process group and session. So handrail finds them without a list. When handrail itself runs
inside a step of another run, ``HANDRAIL_OUTER_STEPS`` lists the enclosing markers, one a line, so
that the outer run finds the inner run's processes.

Environments of other processes are read from ``/proc``, which only Linux has; elsewhere nothing is
found. Processes that dropped their environment, or that run as another user, are not found either.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

from handrail.errors import DefinitionError

HAS_PROC = sys.platform == "linux" and os.path.exists("/proc/self/environ")

_READ_BYTES = 1 << 17
_EXEC_POLLS = 20
_EXEC_POLL_S = 0.001
_PF_KTHREAD = 0x00200000


class Stat(NamedTuple):
    """Whether a process still runs (a zombie does not), and when it started, in clock ticks.

    ``kernel``: it is a kernel thread, which never has an environment.
    """

    alive: bool
    start_ticks: int
    kernel: bool = False


def live_pids() -> Iterator[int]:
    """The ids of all visible processes except this one, zombies included."""
    own = os.getpid()
    with contextlib.suppress(OSError):
        for entry in os.listdir("/proc"):
            if entry.isdigit() and (pid := int(entry)) != own:
                yield pid


def environ_of(pid: int, *, since_ticks: int = 0) -> bytes:
    """The environment a process started with, NUL-separated; empty if it cannot be read.

    During an exec a process briefly has no environment. So if a live process has none, this waits
    up to 20 ms for one, unless the process started before ``since_ticks``.
    """
    for _ in range(_EXEC_POLLS):
        environ = _read_file(f"/proc/{pid}/environ")
        if environ is None:
            return b""
        if environ:
            return environ
        stat = stat_of(pid)
        if not stat.alive or stat.kernel or stat.start_ticks < since_ticks:
            return b""
        time.sleep(_EXEC_POLL_S)  # noqa: TID251 - also called where no loop runs any more
    return b""


def stat_of(pid: int) -> Stat:
    """The state of a process; a missing process counts as not alive."""
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
    """The id of a process's session; 0 if it cannot be known.

    It is 0 for a process that is gone, and for a container's session led by a process outside.
    """
    with contextlib.suppress(OSError):
        return os.getsid(pid)
    return 0


def group_of(pid: int) -> int:
    """The id of a process's group; 0 if it cannot be known, as with ``session_of``."""
    with contextlib.suppress(OSError):
        return os.getpgid(pid)
    return 0


def pid_max() -> int:
    """The number at which process ids wrap; 0 if it cannot be known."""
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
"""Stops ``kill_marked`` if processes fork faster than it kills them."""


def marked_environment(marker: str, around: Mapping[str, str]) -> dict[str, str]:
    """The variables that mark a child; ``around`` is this process's own environment."""
    if not marker or not marker.isprintable():
        raise DefinitionError(f"a marker must be printable text on one line, got {marker!r}")
    outer = [line for name in (OUTER_STEPS, STEP) if (line := around.get(name))]
    return {STEP: marker, **({OUTER_STEPS: "\n".join(outer)} if outer else {})}


def carries(environ: bytes, marker: str, *, below: bool = False, outer: bool = True) -> bool:
    """True if a NUL-separated environment has this marker.

    With ``below``, a marker that ``is_below`` it counts too; without ``outer``, the enclosing
    markers do not count.
    """
    wanted = os.fsencode(marker)
    if wanted not in environ:
        return False
    return any(
        line == wanted or (below and is_below(os.fsdecode(line), marker))
        for line in _markers_of(environ, outer=outer)
    )


def is_below(marker: str, above: str) -> bool:
    """True for markers of steps and attempts within the step or run ``above``. If that is a run id,
    also for markers of runs with that id in any journal.
    """
    return marker.startswith(above) and _BELOW.match(marker, len(above)) is not None


_BELOW = re.compile(r"(~\d+)?[/#]|@")


def is_inside(marker: str, around: Mapping[str, str]) -> bool:
    """True for the environment of a process that a step with this marker, or one below, started."""
    markers = (around.get(STEP, ""), *around.get(OUTER_STEPS, "").split("\n"))
    return any(one == marker or is_below(one, marker) for one in markers if one)


class EnclosingStep(NamedTuple):
    """A step whose program started this process, directly or not."""

    run_id: str
    journal: str
    path: str

    def __str__(self) -> str:
        return f"step {self.path!r} of run {self.run_id}"


MARKED = re.compile(r"(?P<run>.+?)@(?P<journal>[0-9a-f]{8})/(?P<path>.*?)(#\d+.*)?")
_MOST_ANCESTORS = 64


def enclosing_step(run_id: str | None = None, journal: str = "") -> EnclosingStep | None:
    """The innermost step around this process; of this run or of a run of this journal, if named.

    A process that dropped its environment is known by those of its ancestors. ``handrail lock`` is
    no step.
    """
    own = (os.environ.get(STEP, ""), *os.environ.get(OUTER_STEPS, "").split("\n"))
    for marker in dict.fromkeys((*own, *_markers_above())):
        found = MARKED.fullmatch(marker)
        if found is None or found["path"].startswith("lock-"):
            continue
        step = EnclosingStep(found["run"], found["journal"], found["path"])
        if run_id is None or step.run_id == run_id or step.journal == journal:
            return step
    return None


@cache
def _markers_above() -> tuple[str, ...]:
    found: list[str] = []
    pid = os.getppid()
    for _ in range(_MOST_ANCESTORS):
        if pid <= 1 or not HAS_PROC:
            break
        environ = _read_file(f"/proc/{pid}/environ") or b""
        found += map(os.fsdecode, _markers_of(environ, outer=True))
        fields = (_read_file(f"/proc/{pid}/stat") or b"").rpartition(b")")[2].split()
        pid = int(fields[1]) if fields else 0
    return tuple(found)


def kill_marked(marker: str) -> int:
    """SIGKILL every process of a step, or of all steps below it; returns how many there were.

    ``marker`` is a whole marker, or its beginning up to a ``/``. ``<run id>@<journal>`` matches all
    processes of a run; the run id alone, those of runs with this id in any journal. Append the path
    of a step to match the processes of that step.

    For emergencies: no grace, no event loop, no waiting. The calling process itself is spared.
    Linux only; elsewhere it finds nothing and returns 0.
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
    """Send a signal to a process, or to the group ``-pid``; ignores processes that are gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signum)


def _markers_of(environ: bytes, *, outer: bool) -> Iterator[bytes]:
    for variable in environ.split(b"\0"):
        name, _, value = variable.partition(b"=")
        if name == _STEP_BYTES:
            yield value
        elif outer and name == _OUTER_BYTES:
            yield from value.split(b"\n")
