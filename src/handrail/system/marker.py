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
import signal
from collections.abc import Iterator, Mapping

from handrail.errors import DefinitionError
from handrail.system.procfs import environ_of, live_pids

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

    With ``below`` one that begins with ``marker/`` will do, or with ``marker@``, for the id of a
    run in whatever journal; without ``outer`` the markers around the innermost one do not count.
    """
    wanted = os.fsencode(marker)
    if wanted not in environ:
        return False
    return any(
        line == wanted or (below and line.startswith((wanted + b"/", wanted + b"@")))
        for line in _markers_of(environ, outer=outer)
    )


def kill_marked(marker: str) -> int:
    """Kill every process of a step, or of all steps below it, at once; how many there were.

    ``marker`` is a whole marker, or the part of one before a ``/``: ``<run id>@<journal>`` ends
    all that a run has started, the id alone what runs of this id have in any journal. For
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
