"""Moves the bytes between this process and one child, and notices the child's exit.

One selector has the child's pipes and its pidfd, and the event loop waits for that selector. So a
child needs neither tasks nor threads, on asyncio and trio alike. Without a pidfd, the exit is
polled every 20 ms.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from typing import IO, Literal, TypeAlias

import anyio

Stream: TypeAlias = Literal["stdout", "stderr"]

_CHUNK_BYTES = 1 << 16
_POLL_S = 0.02
_FULL_PIPE_READS = 16
"""Reads that empty the largest pipe of an unprivileged process, 1 MiB."""


class Pump:
    """Writes a child's stdin, passes on what it prints, and notices its exit.

    Mutable. A child that does not read its stdin is no error. While ``on_bytes`` runs the pump
    reads nothing, so a slow receiver slows the child and costs no memory. The child's stdin is
    closed after ``stdin``; with ``more`` it stays open for ``send``, until ``close_stdin``.
    """

    def __init__(
        self,
        child: subprocess.Popen[bytes],
        stdin: bytes,
        on_bytes: Callable[[Stream, bytes], None],
        selector: selectors.DefaultSelector,
        *,
        more: bool = False,
    ) -> None:
        self._child = child
        self._stdin = child.stdin
        self._unsent = deque([memoryview(stdin)] if stdin else [])
        self._more = more
        self._feeding = False
        self._on_bytes = on_bytes
        self._selector = selector
        self._open: dict[Stream, IO[bytes]] = {}
        self._moved = False
        self._pidfd = _pidfd_of(child)
        self.exited = False
        self._register()

    @property
    def silent(self) -> bool:
        """True when the child and all processes that share its outputs have closed them."""
        return not self._open

    def is_open(self, stream: Stream) -> bool:
        """False when the child and all processes that share this output have closed it."""
        return stream in self._open

    def send(self, data: bytes) -> None:
        """Queue bytes for its stdin: writes what fits now, the rest as the pipe takes it.

        If the child has closed its stdin or has exited, they are dropped.
        """
        if self._stdin is not None and data:
            self._unsent.append(memoryview(data))
            if not self._feeding:
                self._feed()

    def close_stdin(self) -> None:
        """Close its stdin once all queued bytes are written."""
        self._more = False
        self._watch_stdin()

    async def run_once(self, timeout_s: float | None = None) -> bool:
        """Wait for activity and handle it; returns whether output arrived or ended."""
        self._moved = False
        if self._pidfd is None and not self.exited:
            timeout_s = _POLL_S if timeout_s is None else min(timeout_s, _POLL_S)
        if timeout_s is None:
            await anyio.wait_readable(self._selector.fileno())
        else:
            with anyio.move_on_after(timeout_s):
                await anyio.wait_readable(self._selector.fileno())
        for key, _ in self._selector.select(0):
            key.data()
        if self._pidfd is None:
            self.exited = self.exited or _has_exited(self._child)
        return self._moved

    def drain(self) -> None:
        """Pass on what is in the pipes now, without waiting for more."""
        for stream in tuple(self._open):
            for _ in range(_FULL_PIPE_READS):
                self._moved = False
                self._read(stream)
                if not self._moved or stream not in self._open:
                    break

    def close(self) -> None:
        """Close the pidfd; the caller closes pipes and selector."""
        self._stdin = None
        if self._pidfd is not None:
            os.close(self._pidfd)

    def _register(self) -> None:
        child, selector = self._child, self._selector
        if self._pidfd is not None:
            selector.register(self._pidfd, selectors.EVENT_READ, self._note_exit)
        if child.stdin is not None:
            os.set_blocking(child.stdin.fileno(), False)
            self._watch_stdin()
        if child.stdout is not None:
            self._listen("stdout", child.stdout, lambda: self._read("stdout"))
        if child.stderr is not None:
            self._listen("stderr", child.stderr, lambda: self._read("stderr"))

    def _listen(self, stream: Stream, pipe: IO[bytes], read: Callable[[], None]) -> None:
        os.set_blocking(pipe.fileno(), False)
        self._open[stream] = pipe
        self._selector.register(pipe, selectors.EVENT_READ, read)

    def _read(self, stream: Stream) -> None:
        pipe = self._open[stream]
        try:
            data = os.read(pipe.fileno(), _CHUNK_BYTES)
        except BlockingIOError:
            return
        self._moved = True
        if data:
            self._on_bytes(stream, data)
        else:
            del self._open[stream]
            self._drop(pipe)

    def _feed(self) -> None:
        assert self._stdin is not None
        first = self._unsent.popleft()
        try:
            rest = first[os.write(self._stdin.fileno(), first[:_CHUNK_BYTES]) :]
        except BlockingIOError:
            rest = first
        except (BrokenPipeError, ConnectionResetError):
            self._unsent.clear()
            self._more = False
            rest = first[:0]
        if rest:
            self._unsent.appendleft(rest)
        self._watch_stdin()

    def _watch_stdin(self) -> None:
        """Watch for room in the pipe only while bytes are queued; or the wait would never block."""
        if self._stdin is None or (self._feeding and self._unsent):
            return
        if self._unsent:
            self._selector.register(self._stdin, selectors.EVENT_WRITE, self._feed)
        elif self._feeding:
            self._selector.unregister(self._stdin)
        self._feeding = bool(self._unsent)
        if not self._unsent and not self._more:
            self._stdin.close()
            self._stdin = None

    def _drop(self, pipe: IO[bytes]) -> None:
        self._selector.unregister(pipe)
        pipe.close()

    def _note_exit(self) -> None:
        assert self._pidfd is not None
        self._selector.unregister(self._pidfd)
        self.exited = True


def _pidfd_of(child: subprocess.Popen[bytes]) -> int | None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            return os.pidfd_open(child.pid)
    return None


def _has_exited(child: subprocess.Popen[bytes]) -> bool:
    if sys.platform != "linux":
        return child.poll() is not None
    # Asked with WNOWAIT, which leaves the zombie: its id must stay taken until its tree is gone.
    try:
        how = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, child.pid, how) is not None
    except ChildProcessError:
        return True
