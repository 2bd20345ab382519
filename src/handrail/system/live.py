"""A program that is talked with while it runs: lines from it, bytes to it, and a sure end.

Theory of operation: as in ``processes`` the child leads a session of its own and carries a marker,
and one pump moves all bytes; but here the caller turns it, by asking for the next line. So nothing
runs between two questions, a slow caller slows the child, and there is no task that could outlive
the block. When the child has exited, what others still print into its pipes is waited for a bounded
time, then they are ended, and only then its exit is told: whoever was told can rely on there being
nothing left. The way out of the block goes through the same end, whatever the reason.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import subprocess
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from handrail.system.ending import (
    DRAIN_IDLE_S,
    DRAIN_S,
    ProcessTree,
    end,
    let_leave,
    reap,
    start_pump,
)
from handrail.system.marker import marked_environment
from handrail.system.pump import Pump, Stream
from handrail.system.run import Tail
from handrail.system.spawn import checked, open_selector

LINE_BYTES = 64 << 20
"""The longest line that is kept whole; agents print whole files as one line, screenshots too."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its end (a newline, with or without a carriage return before it).

    ``cut``: it was too long, and this is its beginning. ``end`` is what ended it, nothing if the
    stream did; lines that differ in that alone are equal.
    """

    stream: Stream
    data: bytes
    cut: bool = False
    end: bytes = field(default=b"\n", compare=False)


class LineFramer:
    """Makes lines of the bytes of one stream. Mutable.

    Each byte is looked at once, however long its line is: the pieces of a line are kept as they
    came and are joined when it ends. It is decoded only then, if at all, so that a character which
    came in two pieces is whole.
    """

    __slots__ = ("_cut", "_held_bytes", "_limit", "_pieces", "_stream")

    def __init__(self, stream: Stream, limit_bytes: int = LINE_BYTES) -> None:
        self._stream: Stream = stream
        self._limit = limit_bytes
        self._pieces: list[bytes] = []
        self._held_bytes = 0
        self._cut = False

    def feed(self, data: bytes) -> list[Line]:
        """The lines that these bytes complete."""
        *ends, rest = data.split(b"\n")
        lines: list[Line] = []
        for piece in ends:
            self._hold(piece)
            lines.append(self._line())
        self._hold(rest)
        return lines

    def finish(self) -> list[Line]:
        """The last line, if it has no newline."""
        return [self._line(b"")] if self._pieces else []

    def _hold(self, piece: bytes) -> None:
        room = self._limit - self._held_bytes
        if len(piece) > room:
            piece = piece[:room]
            self._cut = True
        if piece:
            self._pieces.append(piece)
            self._held_bytes += len(piece)

    def _line(self, end: bytes = b"\n") -> Line:
        data, cut = b"".join(self._pieces), self._cut
        self._pieces.clear()
        self._held_bytes = 0
        self._cut = False
        if cut or not data.endswith(b"\r"):
            return Line(self._stream, data, cut, end)
        return Line(self._stream, data[:-1], cut, b"\r" + end)


# The start of a program that may just be updating itself.
#
# Agents' programs replace their own files while others start them. For a moment the file is then
# open for writing ("text file busy"), or not there, not yet executable, or empty. What is missing
# for good is refused after half a second; a file that is being written is waited for longer.

_PATIENCE_S = {
    errno.ETXTBSY: 2.0,
    errno.ENOENT: 0.5,
    errno.EACCES: 0.5,
    errno.ENOEXEC: 0.5,
}
_LOOK_S = 0.05


async def spawn_patiently(
    argv: Sequence[str] | str,
    *,
    cwd: str | os.PathLike[str] | None,
    env: Mapping[str, str],
    has_stdin: bool,
) -> subprocess.Popen[bytes]:
    """A running child as ``spawn`` gives it, also of a program that is being replaced right now.

    Raises:
        CommandNotFound, CommandNotStarted, DefinitionError: see ``spawn``.
    """
    command = checked(argv, cwd=cwd, env=env, has_stdin=has_stdin)
    asked_s = time.monotonic()
    while True:
        try:
            return command.start()
        except OSError as error:
            if time.monotonic() - asked_s >= _PATIENCE_S.get(error.errno or 0, 0.0):
                raise command.refusal(error) from None
        await anyio.sleep(_LOOK_S)


__all__ = ["Exited", "Line", "LiveProcess", "open_live"]

INTERRUPT_S = 3.0
"""How long a program may take to end by itself on SIGINT; those that tidy up need 1.6 s."""
GRACE_S = 5.0
"""How long it and all it started may then take on SIGTERM."""
EXIT_S = 5.0
"""How long a program may go on in silence that has closed its stdout."""
TAIL_BYTES = 64 << 10
UNREAD_BYTES = LINE_BYTES
"""How much of what a program prints while it is being ended is kept until it is asked for."""
LINE_COST_BYTES = 128
"""What a line takes in memory besides its bytes."""


@dataclass(frozen=True, slots=True)
class Exited:
    """A program has exited and nothing it started is left. ``code`` is negative for a signal, None
    if the kernel could not end it.
    """

    code: int | None


@contextlib.asynccontextmanager
async def open_live(
    argv: Sequence[str] | str,
    *,
    marker: str,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    exit_s: float = EXIT_S,
    alone_s: float | None = None,
) -> AsyncGenerator[LiveProcess, None]:
    """A running program, of which nothing is left after the block, also if that is cancelled.

    ``env`` is its whole environment (None: this process's), but for ``HANDRAIL_STEP=<marker>``; no
    two programs may run under one marker at the same time. ``stdin`` is all that it can read; with
    None its stdin stays open for ``send``. ``exit_s`` is how long it may go on in silence after it
    has closed its stdout, ``alone_s`` how long it may take to exit when it is stopped, once nothing
    that it started is left. A program that is being updated on disk at this moment is waited for,
    two seconds at most.

    Raises:
        CommandNotFound, CommandNotStarted, DefinitionError: see ``spawn``.
    """
    around = os.environ if env is None else env
    environment = {**around, **marked_environment(marker, os.environ)}
    unread = _Unread()
    await checkpoint_if_cancelled()
    with open_selector(argv) as selector:
        child = await spawn_patiently(argv, cwd=cwd, env=environment, has_stdin=stdin != b"")
        with start_pump(child, stdin or b"", unread.feed, selector, more=stdin is None) as pump:
            tree = ProcessTree(child, marker)
            live = LiveProcess(child, tree, pump, unread, exit_s, alone_s=alone_s)
            try:
                yield live
            finally:
                await live.stop()


class LiveProcess:
    """A running program. Mutable.

    One task at a time may ask for the next line or stop it; ``send`` may be called from any.
    """

    def __init__(
        self,
        child: subprocess.Popen[bytes],
        tree: ProcessTree,
        pump: Pump,
        unread: _Unread,
        exit_s: float,
        *,
        alone_s: float | None = None,
    ) -> None:
        self._child = child
        self._tree = tree
        self._pump = pump
        self._unread = unread
        self._exit_s = exit_s
        self._alone_s = alone_s
        self._moved_s = time.monotonic()
        self._exited_s = math.inf
        self._ended: Exited | None = None

    @property
    def pid(self) -> int:
        """Its process id, which is also that of its group and session."""
        return self._child.pid

    @property
    def heard_s(self) -> float | None:
        """When it last printed a byte, by ``time.monotonic()``; None if it never has."""
        return self._unread.heard_s

    @property
    def stderr_tail(self) -> str:
        """The last 64 KiB that it printed as error output."""
        return self._unread.stderr.text()

    def send(self, data: bytes) -> None:
        """Put more on its stdin, in order, without waiting: what the pipe does not take now goes
        while the next line is waited for. What it does not read any more is dropped.
        """
        self._pump.send(data)

    def close_stdin(self) -> None:
        """Let its stdin end after all that was sent."""
        self._pump.close_stdin()

    async def next(self, timeout_s: float | None = None) -> Line | Exited | None:
        """Its next line, the last thing being that it has exited, or None when the time ran out.

        Lines of one stream come in order; between the two there is none. A line that is there is
        given at once, whatever the time. To end what an exited program left behind may take some
        seconds more than ``timeout_s``. A program that has closed its stdout, but neither exits nor
        prints within ``exit_s`` (five seconds), is stopped.
        """
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        waited = False
        while (found := self._unread.take() or self._ended) is None:
            now = time.monotonic()
            if waited and now >= deadline:
                return None
            limit = self._limit_s()
            if now >= limit:
                await let_leave(self._tree, self._pump)
                await self.stop()
            else:
                await self._turn(min(deadline, limit) - now)
            waited = True
        return found

    def ready(self) -> Iterator[Line]:
        """The lines that have come and were not asked for yet, without waiting."""
        while line := self._unread.take():
            yield line

    async def stop(self, interrupt_s: float = INTERRUPT_S, grace_s: float = GRACE_S) -> int | None:
        """Its exit code, after it and all it started were ended.

        It is sent SIGINT and has ``interrupt_s`` seconds; then SIGTERM goes to all that is left,
        which has ``grace_s``; then SIGKILL. Cancellation does not interrupt this. What it prints
        meanwhile, up to 64 MiB, can still be asked for. Of a program that has ended it is the code.
        """
        if self._ended is None:
            try:
                await end(
                    self._tree,
                    self._pump,
                    grace_s,
                    interrupt_s=interrupt_s,
                    alone_s=self._alone_s,
                )
            finally:
                self._pump.drain()
                self._unread.finish()
                self._ended = Exited(reap(self._child))
        return self._ended.code

    async def _turn(self, wait_s: float) -> None:
        if await self._pump.run_once(None if wait_s == math.inf else max(0.0, wait_s)):
            self._moved_s = time.monotonic()
        if self._pump.exited:
            self._exited_s = min(self._exited_s, time.monotonic())

    def _limit_s(self) -> float:
        """The moment from which nothing more is expected of it, unless it moves before that."""
        if self._pump.exited:
            if self._pump.silent:
                return -math.inf
            idle_s = max(self._moved_s, self._exited_s) + DRAIN_IDLE_S
            return min(idle_s, self._exited_s + DRAIN_S)
        return math.inf if self._pump.is_open("stdout") else self._moved_s + self._exit_s


class _Unread:
    """What came and was not asked for yet. Mutable."""

    def __init__(self) -> None:
        self.heard_s: float | None = None
        self.stderr = Tail(TAIL_BYTES)
        self._framers = {"stdout": LineFramer("stdout"), "stderr": LineFramer("stderr")}
        self._lines: deque[Line] = deque()
        self._bytes = 0

    def feed(self, stream: Stream, data: bytes) -> None:
        self.heard_s = time.monotonic()
        if stream == "stderr":
            self.stderr.feed(data)
        self._add(self._framers[stream].feed(data))

    def finish(self) -> None:
        for framer in self._framers.values():
            self._add(framer.finish())

    def take(self) -> Line | None:
        if not self._lines:
            return None
        line = self._lines.popleft()
        self._bytes -= _cost_bytes(line)
        return line

    def _add(self, lines: list[Line]) -> None:
        for line in lines:
            # Only what comes while nobody asks, because it is being ended, can pile up. A line that
            # is as long as all that may be unread leaves room for those that came with it.
            size_bytes = _cost_bytes(line)
            if not self._lines or self._bytes + size_bytes <= UNREAD_BYTES:
                self._lines.append(line)
                self._bytes += size_bytes


def _cost_bytes(line: Line) -> int:
    return min(len(line.data), UNREAD_BYTES // 2) + LINE_COST_BYTES
