"""The end of a child and of all that it started, in steps that each take a bounded time.

A dead child stays a zombie until its tree is gone, so that its id cannot come to mean another
process, and is reaped last. Ending is shielded from the cancellation that may have caused it;
whatever breaks into the ending itself (a second interruption) kills the tree at once instead.
"""

from __future__ import annotations

import contextlib
import selectors
import signal
import subprocess
from collections.abc import Callable, Generator

import anyio

from handrail.system.pump import Pump, Stream
from handrail.system.tree import ProcessTree

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


@contextlib.contextmanager
def attended(
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


async def leave(tree: ProcessTree, pump: Pump) -> None:
    """Give what closed its outputs, as all do who exit, the moment that exiting takes."""
    if pump.silent:
        with anyio.move_on_after(LEAVE_S):
            await _gone(tree, pump, set())


async def end(
    tree: ProcessTree, pump: Pump, grace_s: float, *, interrupt_s: float | None = None
) -> int:
    """End what lives of the tree; how many processes that were, the child itself not counted.

    SIGTERM, up to ``grace_s`` seconds, SIGKILL. With ``interrupt_s`` the child's group is first
    sent SIGINT, as by Ctrl-C, and has that long for the child to exit by itself.
    """
    try:
        if interrupt_s is not None and not pump.exited:
            tree.interrupt()
            with anyio.CancelScope(shield=True), anyio.move_on_after(interrupt_s):
                await _exited(pump)
        rest = tree.signal(signal.SIGTERM)
        if rest or not pump.exited:
            with anyio.CancelScope(shield=True):
                with anyio.move_on_after(grace_s):
                    await _ended(tree, pump, rest)
                with anyio.move_on_after(KILL_S):
                    while tree.signal(signal.SIGKILL) or not pump.exited:
                        await pump.turn(LOOK_S)
    except BaseException:
        tree.signal(signal.SIGKILL)
        raise
    return len(rest)


async def _exited(pump: Pump) -> None:
    """Return when the child has exited; until then its output is read, lest it block on it."""
    while not pump.exited:
        await pump.turn()


async def _ended(tree: ProcessTree, pump: Pump, told: set[int]) -> None:
    """Return when nothing of the tree lives. What was started while the signal went round has not
    heard it, and is told once those that have are gone.
    """
    await _exited(pump)
    while told := tree.still(told) or tree.signal(signal.SIGTERM):
        await pump.turn(LOOK_S)


async def _gone(tree: ProcessTree, pump: Pump, known: set[int]) -> None:
    """Return when nothing of the tree lives."""
    await _exited(pump)
    while known := tree.still(known) or tree.rest():
        await pump.turn(LOOK_S)
