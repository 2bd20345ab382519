"""Runs a function in a forked process, and waits for its end within bounds."""

from __future__ import annotations

import os
import select
import signal
import time
import warnings
from collections.abc import Callable

_LOOK_EVERY_S = 0.5


def in_child(work: Callable[[], None], timeout_s: float) -> int | None:
    """Call it in a copy of this process; its wait status, or None if it had to be killed.

    A copy has what the test made, closures and fake agents too, and costs milliseconds. It never
    comes back into the test: it ends with ``work``, whatever that raises, without a word.
    """
    read, write = os.pipe()
    with warnings.catch_warnings():
        # Other threads of this process (pytest-xdist's, a journal's) are not in the copy, and a
        # lock of theirs can hang it: that is what the timeout is for.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        _work_and_end(work, read)
    try:
        os.close(write)
        return _status(pid, read, time.monotonic() + timeout_s)
    finally:
        os.close(read)


def _work_and_end(work: Callable[[], None], read: int) -> None:
    code = 1
    try:
        os.close(read)
        work()
        code = 0
    finally:
        os._exit(code)


def _status(pid: int, read: int, deadline: float) -> int | None:
    """Its wait status. The pipe's other end closes when it ends, and wakes us."""
    ended = False
    try:
        while not ended and time.monotonic() < deadline:
            left = max(0.0, deadline - time.monotonic())
            gone, _, _ = select.select([read], [], [], min(left, _LOOK_EVERY_S))
            found, status = os.waitpid(pid, 0 if gone else os.WNOHANG)
            ended = found == pid
            if ended:
                return status
        return None
    finally:
        if not ended:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
