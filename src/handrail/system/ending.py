"""The end of a child and of all that it started, in steps that each take a bounded time.

A dead child stays a zombie until its tree is gone, so that its id cannot come to mean another
process, and is reaped last. Ending is shielded from the cancellation that may have caused it;
whatever breaks into the ending itself (a second interruption) kills the tree at once instead.
"""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Generator

import anyio

from handrail.system import marker as procfs
from handrail.system.marker import carries, send
from handrail.system.pump import Pump, Stream

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

    def others(self) -> set[int]:
        """The living processes of the tree besides the child: ids, or minus its group's id."""
        if not procfs.HAS_PROC:
            return {-self._child.pid} if self._group_lives() else set()
        floor = oldest_descendant(
            self._child.pid, time.monotonic() - self._started_s, pid_max=procfs.pid_max()
        )
        return {pid for pid in procfs.live_pids() if self._belongs(pid, floor)}

    def alive_of(self, pids: set[int]) -> set[int]:
        """Those of ``pids`` that still live, without a look at any other process."""
        if not procfs.HAS_PROC:
            return self.others()
        return {pid for pid in pids if self._belongs(pid, 0)}

    def signal(self, signum: signal.Signals) -> set[int]:
        """Send a signal to each process of the tree once; ``others()`` as it was before.

        What steps of an inner run started gets only SIGKILL from here: other signals are the inner
        run's to pass on, or it would take an interruption for the failure of its step.
        """
        rest = self.others()
        send(-self._child.pid, signum)
        for pid in rest:  # looked at behind the group: one that has just left it is told here
            if self._is_outside(pid, any_run=signum == signal.SIGKILL):
                send(pid, signum)
        return rest

    def interrupt(self) -> None:
        """Send SIGINT to the child's group, as a terminal does; what left the group is the child's
        to end, which knows how: a tool that dies by itself would look to it like a failed one.
        """
        send(-self._child.pid, signal.SIGINT)

    def _is_outside(self, pid: int, *, any_run: bool) -> bool:
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


DRAIN_IDLE_S = 0.5
"""How long output may stay away, after the child's exit, before no more of it is expected."""
DRAIN_S = 2.0
"""How long output that does not stop may go on after the child's exit."""
LEAVE_S = 0.1
"""How long processes may take to be gone that have closed their outputs, as all do who exit."""
KILL_S = 1.0
"""How long killed processes may take to vanish; longer only if the kernel cannot stop them."""
REAP_S = 0.2
"""How long a dead child may take to be reaped; one that the kernel cannot stop is left to it."""
LOOK_S = 0.02
ALONE_LOOK_S = 0.1
"""How often it is looked whether anything but the child is left; that reads all of ``/proc``."""


@contextlib.contextmanager
def start_pump(
    child: subprocess.Popen[bytes],
    stdin: bytes,
    on_bytes: Callable[[Stream, bytes], None],
    selector: selectors.DefaultSelector,
    *,
    more: bool = False,
) -> Generator[Pump, None, None]:
    """The pump of a child; afterwards it and the pipes are closed, and the child is reaped."""
    try:
        with contextlib.closing(Pump(child, stdin, on_bytes, selector, more=more)) as pump:
            yield pump
    finally:
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()
        child.kill()
        reap(child)


def reap(child: subprocess.Popen[bytes]) -> int | None:
    """The exit code of a dead child, whose id the system may now give away."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        return child.wait(REAP_S)
    return None


async def let_leave(tree: ProcessTree, pump: Pump) -> None:
    """Give what closed its outputs, as all do who exit, the moment that exiting takes."""
    if pump.silent:
        with anyio.move_on_after(LEAVE_S):
            await _wait_until_gone(tree, pump, set())


async def end(
    tree: ProcessTree,
    pump: Pump,
    grace_s: float,
    *,
    interrupt_s: float | None = None,
    alone_s: float | None = None,
) -> int:
    """End what lives of the tree; how many processes that were, the child itself not counted.

    SIGTERM, up to ``grace_s`` seconds, SIGKILL. With ``interrupt_s`` the child's group is first
    sent SIGINT, as by Ctrl-C, and has that long for the child to exit by itself. With ``alone_s``
    it has only so long, and no ``grace_s``, once nothing that it started is left.
    """
    try:
        if interrupt_s is not None and not pump.exited:
            tree.interrupt()
            with anyio.CancelScope(shield=True), anyio.move_on_after(interrupt_s):
                if await _wait_for_exit_or_alone(tree, pump, alone_s):
                    grace_s = 0.0
        rest = tree.signal(signal.SIGTERM)
        if rest or not pump.exited:
            with anyio.CancelScope(shield=True):
                with anyio.move_on_after(grace_s):
                    await _terminate_until_gone(tree, pump, rest)
                with anyio.move_on_after(KILL_S):
                    while tree.signal(signal.SIGKILL) or not pump.exited:
                        await pump.run_once(LOOK_S)
    except BaseException:
        tree.signal(signal.SIGKILL)
        raise
    return len(rest)


async def _wait_for_exit(pump: Pump) -> None:
    """Return when the child has exited; until then its output is read, lest it block on it."""
    while not pump.exited:
        await pump.run_once()


async def _wait_for_exit_or_alone(tree: ProcessTree, pump: Pump, alone_s: float | None) -> bool:
    """Return when the child has exited, or, True, when it has been alone for so long."""
    if alone_s is None:
        await _wait_for_exit(pump)
        return False
    since, looked_s = math.inf, -math.inf
    while not pump.exited:
        await pump.run_once(LOOK_S)
        now = time.monotonic()
        if now - looked_s >= ALONE_LOOK_S:
            looked_s, since = now, math.inf if tree.others() else min(since, now)
        if now - since >= alone_s:
            return not pump.exited
    return False


async def _terminate_until_gone(tree: ProcessTree, pump: Pump, told: set[int]) -> None:
    """Return when nothing of the tree lives. What was started while the signal went round has not
    heard it, and is told once those that have are gone.
    """
    await _wait_for_exit(pump)
    while told := tree.alive_of(told) or tree.signal(signal.SIGTERM):
        await pump.run_once(LOOK_S)


async def _wait_until_gone(tree: ProcessTree, pump: Pump, known: set[int]) -> None:
    """Return when nothing of the tree lives."""
    await _wait_for_exit(pump)
    while known := tree.alive_of(known) or tree.others():
        await pump.run_once(LOOK_S)
