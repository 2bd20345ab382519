"""All processes that one child started, found and signalled together."""

from __future__ import annotations

import os
import signal
import subprocess
import time

from handrail.system import procfs
from handrail.system.marker import carries, send

_FASTEST_FORKS_PER_S = 100_000
"""More process ids a second than a machine can hand out, to tell when they cannot have wrapped."""


class ProcessTree:
    """A child that leads its own session, its session, and every carrier of its marker.

    On Linux these are found in ``/proc``. The child must not be reaped while its tree is in use:
    as long as it is at least a zombie, the kernel gives its id, which is also that of its group
    and session, to no stranger. Where there is no ``/proc`` the tree is the process group, and
    a process that left it is out of reach.
    """

    __slots__ = ("_child", "_marker", "_start_ticks", "_started_s")

    def __init__(self, child: subprocess.Popen[bytes], marker: str) -> None:
        self._child = child
        self._marker = marker
        self._started_s = time.monotonic()
        self._start_ticks = procfs.stat_of(child.pid).start_ticks

    def rest(self) -> set[int]:
        """What lives of the tree besides the child itself: process ids, or minus its group's id."""
        if not procfs.HAS_PROC:
            return {-self._child.pid} if self._group_lives() else set()
        floor = oldest_descendant(
            self._child.pid, time.monotonic() - self._started_s, pid_max=procfs.pid_max()
        )
        return {pid for pid in procfs.live_pids() if self._belongs(pid, floor)}

    def still(self, pids: set[int]) -> set[int]:
        """Those of ``pids`` that still live, without a look at any other process."""
        if not procfs.HAS_PROC:
            return self.rest()
        return {pid for pid in pids if self._belongs(pid, 0)}

    def signal(self, signum: signal.Signals) -> set[int]:
        """Send a signal to each process of the tree once; ``rest()`` as it was before.

        What steps of an inner run started gets only SIGKILL from here: other signals are the inner
        run's to pass on, or it would take an interruption for the failure of its step.
        """
        rest = self.rest()
        outside = [pid for pid in rest if self._outside(pid, any_run=signum == signal.SIGKILL)]
        send(-self._child.pid, signum)
        for pid in outside:
            send(pid, signum)
        return rest

    def interrupt(self) -> None:
        """Send SIGINT to the child's group, as a terminal does; what left the group is the child's
        to end, which knows how: a tool that dies by itself would look to it like a failed one.
        """
        send(-self._child.pid, signal.SIGINT)

    def _outside(self, pid: int, *, any_run: bool) -> bool:
        leader = self._child.pid
        if pid < 0 or procfs.group_of(pid) == leader:
            return False
        if any_run or procfs.session_of(pid) == leader:
            return True
        return carries(self._environ_of(pid), self._marker, outer=False)

    def _belongs(self, pid: int, floor: int) -> bool:
        leader = self._child.pid
        if pid == leader:
            return False
        if procfs.session_of(pid) == leader:
            return procfs.stat_of(pid).alive
        return pid > floor and carries(self._environ_of(pid), self._marker)

    def _environ_of(self, pid: int) -> bytes:
        return procfs.environ_of(pid, since_ticks=self._start_ticks)

    def _group_lives(self) -> bool:
        # A zombie would keep its group alive, so here it is reaped first.
        self._child.poll()
        try:
            os.killpg(self._child.pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True


def oldest_descendant(child: int, age_s: float, *, pid_max: int) -> int:
    """The process id above which all descendants of a child lie, 0 if that cannot be known.

    Ids rise until they wrap at ``pid_max``, so those of a young child's descendants are above its
    own. To read the environment of these few is what makes the search cheap: 11 us a process.
    """
    may_have_wrapped = child + age_s * _FASTEST_FORKS_PER_S >= pid_max
    return 0 if may_have_wrapped else child
