"""Ends a child and every process that it started, in steps that each take a bounded time.

A dead child stays a zombie until its tree is gone, and is reaped last: so its process id cannot
come to mean another process. The ending is shielded from the cancellation that may have caused it.
If anything interrupts the ending itself (a second interruption), the tree is killed at once.
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

from handrail.system.marker import (
    HAS_PROC,
    carries,
    environ_of,
    group_of,
    live_pids,
    pid_max,
    send,
    session_of,
    stat_of,
)
from handrail.system.pump import Pump, Stream
from handrail.system.spawn import Boundary

_FASTEST_FORKS_PER_S = 100_000
"""More process ids a second than any machine hands out; bounds when ids can have wrapped."""


class ProcessTree:
    """A child that leads its own session, that session, and every process with its marker.

    On Linux they are found in ``/proc``. The child must not be reaped while its tree is in use: as
    long as it is at least a zombie, the kernel does not reuse its id, which is also the id of its
    group and session. Without ``/proc`` the tree is the process group, and processes that left it
    are not found.
    """

    __slots__ = ("_child", "_marker", "_start_ticks", "_started_s")

    def __init__(self, child: subprocess.Popen[bytes], marker: str) -> None:
        self._child = child
        self._marker = marker
        self._started_s = time.monotonic()
        self._start_ticks = stat_of(child.pid).start_ticks

    def others(self) -> set[int]:
        """The tree's living processes besides the child: their ids, or minus the group's id."""
        if not HAS_PROC:
            return {-self._child.pid} if self._group_lives() else set()
        floor = oldest_descendant(
            self._child.pid, time.monotonic() - self._started_s, pid_max=pid_max()
        )
        return {pid for pid in live_pids() if self._belongs(pid, floor)}

    def alive_of(self, pids: set[int]) -> set[int]:
        """Those of ``pids`` that still live; looks at no other process."""
        if not HAS_PROC:
            return self.others()
        return {pid for pid in pids if self._belongs(pid, 0)}

    def signal(self, signum: signal.Signals) -> set[int]:
        """Send a signal once to each process of the tree; returns ``others()`` from before.

        Processes started by the steps of an inner handrail run get only SIGKILL here. Other signals
        are for the inner run to pass on; otherwise it would see its step fail, not an interruption.
        """
        rest = self.others()
        send(-self._child.pid, signum)
        for pid in rest:  # after the group, so that a process that has just left it is not missed
            if self._is_outside(pid, any_run=signum == signal.SIGKILL):
                send(pid, signum)
        return rest

    def interrupt(self) -> None:
        """Send SIGINT to the child's group, as a terminal does. The child itself ends processes
        outside the group: if a tool of the child died first, it would look like a failed tool.
        """
        send(-self._child.pid, signal.SIGINT)

    def _is_outside(self, pid: int, *, any_run: bool) -> bool:
        leader = self._child.pid
        if pid < 0 or group_of(pid) == leader:
            return False
        if any_run or session_of(pid) == leader:
            return True
        return carries(self._environ_of(pid), self._marker, outer=False)

    def _belongs(self, pid: int, floor: int) -> bool:
        leader = self._child.pid
        if pid == leader:
            return False
        if session_of(pid) == leader:
            return stat_of(pid).alive
        return pid > floor and carries(self._environ_of(pid), self._marker)

    def _environ_of(self, pid: int) -> bytes:
        return environ_of(pid, since_ticks=self._start_ticks)

    def _group_lives(self) -> bool:
        # A zombie would keep its group alive, so the child is reaped first here.
        self._child.poll()
        try:
            os.killpg(self._child.pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True


def oldest_descendant(child: int, age_s: float, *, pid_max: int) -> int:
    """The process id above which all descendants of a child lie; 0 if it cannot be known.

    Ids rise until they wrap at ``pid_max``, so descendants of a young child have ids above its own.
    The search is cheap because only their environments are read: 11 us a process.
    """
    may_have_wrapped = child + age_s * _FASTEST_FORKS_PER_S >= pid_max
    return 0 if may_have_wrapped else child


DRAIN_IDLE_S = 0.5
"""After the child's exit: how long output may pause before handrail expects no more."""
DRAIN_S = 2.0
"""After the child's exit: how long handrail reads output that never pauses."""
LEAVE_S = 0.1
"""How long processes that closed their outputs, as every exit does, may take to vanish."""
KILL_S = 1.0
"""How long killed processes may take to vanish; longer only if the kernel cannot stop them."""
REAP_S = 0.2
"""How long reaping a dead child may take; a child that the kernel cannot stop is abandoned."""
POLL_S = 0.02
ALONE_POLL_S = 0.1
"""How often to check whether only the child is left; each check reads all of ``/proc``."""


@contextlib.contextmanager
def start_pump(
    child: subprocess.Popen[bytes],
    stdin: bytes,
    on_bytes: Callable[[Stream, bytes], None],
    selector: selectors.DefaultSelector,
    *,
    more: bool = False,
    boundary: Boundary | None = None,
) -> Generator[Pump, None, None]:
    """The pump of a child; on exit, the pump and the pipes are closed and the child is reaped.
    ``boundary``, which the child runs in, is told what it prints, and ended last.
    """

    def heard(stream: Stream, data: bytes) -> None:
        if boundary is not None:
            boundary.heard(data)
        on_bytes(stream, data)

    receive = on_bytes if boundary is None else heard
    try:
        with contextlib.closing(Pump(child, stdin, receive, selector, more=more)) as pump:
            yield pump
    finally:
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()
        child.kill()
        reap(child)
        if boundary is not None:
            boundary.end()


def reap(child: subprocess.Popen[bytes]) -> int | None:
    """The exit code of a dead child; afterwards the kernel may reuse its id."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        return child.wait(REAP_S)
    return None


async def let_leave(tree: ProcessTree, pump: Pump) -> None:
    """Give processes that closed their outputs, as every exit does, the time to exit."""
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
    """End all living processes of the tree; returns how many there were besides the child.

    SIGTERM, up to ``grace_s`` seconds, SIGKILL. With ``interrupt_s``, the child's group first gets
    SIGINT, as by Ctrl-C, and the child has that long to exit by itself. With ``alone_s``, once no
    other process of the tree is left, the child has only that long and no ``grace_s``.
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
                        await pump.run_once(POLL_S)
    except BaseException:
        tree.signal(signal.SIGKILL)
        raise
    return len(rest)


async def _wait_for_exit(pump: Pump) -> None:
    """Return when the child has exited; reads its output meanwhile, lest the child block."""
    while not pump.exited:
        await pump.run_once()


async def _wait_for_exit_or_alone(tree: ProcessTree, pump: Pump, alone_s: float | None) -> bool:
    """Return when the child has exited, or (True) has been alone in its tree for ``alone_s``."""
    if alone_s is None:
        await _wait_for_exit(pump)
        return False
    since, polled_s = math.inf, -math.inf
    while not pump.exited:
        await pump.run_once(POLL_S)
        now = time.monotonic()
        if now - polled_s >= ALONE_POLL_S:
            polled_s, since = now, math.inf if tree.others() else min(since, now)
        if now - since >= alone_s:
            return not pump.exited
    return False


async def _terminate_until_gone(tree: ProcessTree, pump: Pump, signalled: set[int]) -> None:
    """Return when no process of the tree lives. Processes started while SIGTERM was sent out missed
    it; they get it once the processes that received it are gone.
    """
    await _wait_for_exit(pump)
    while signalled := tree.alive_of(signalled) or tree.signal(signal.SIGTERM):
        await pump.run_once(POLL_S)


async def _wait_until_gone(tree: ProcessTree, pump: Pump, known: set[int]) -> None:
    """Return when no process of the tree lives."""
    await _wait_for_exit(pump)
    while known := tree.alive_of(known) or tree.others():
        await pump.run_once(POLL_S)
