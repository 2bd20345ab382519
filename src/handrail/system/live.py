"""A program in dialogue with its caller: lines from it, bytes to it, and a guaranteed end.

Theory of operation: as in ``run``, the child leads its own session and carries a marker, and one
pump moves all bytes. But here the caller drives the pump, by asking for the next line. So nothing
runs between two calls, a slow caller slows the child, and no task can outlive the block. After the
child has exited, other processes may print into its pipes for a bounded time; then they are ended.
Only then ``Exited`` is returned: a caller that has it can rely on no process being left. Leaving
the block goes through the same end, whatever the reason.
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
from dataclasses import field

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from handrail.model.dataclass import dataclass
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
from handrail.system.spawn import Boundary, Command, checked, open_selector

LINE_BYTES = 64 << 20
"""The longest line that is kept whole; agents print whole files and screenshots as one line."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its ending (a newline, perhaps with a carriage return before it).

    ``cut``: the line was too long, and this is its beginning. ``end`` is its ending, empty if the
    stream ended there; lines that differ only in ``end`` are equal.
    """

    stream: Stream
    data: bytes
    cut: bool = False
    end: bytes = field(default=b"\n", compare=False)


class LineFramer:
    """Splits the bytes of one stream into lines. Mutable.

    Each byte is scanned once, however long its line is: the pieces of a line are kept as they
    arrived and joined at its end. A caller decodes whole lines only, so a character that arrived
    in two pieces is whole.
    """

    __slots__ = ("_cut", "_kept_bytes", "_limit", "_pieces", "_stream")

    def __init__(self, stream: Stream, limit_bytes: int = LINE_BYTES) -> None:
        self._stream: Stream = stream
        self._limit = limit_bytes
        self._pieces: list[bytes] = []
        self._kept_bytes = 0
        self._cut = False

    def feed(self, data: bytes) -> list[Line]:
        """The lines that these bytes complete."""
        *ends, rest = data.split(b"\n")
        lines: list[Line] = []
        for piece in ends:
            self._keep(piece)
            lines.append(self._line())
        self._keep(rest)
        return lines

    def finish(self) -> list[Line]:
        """The last line, if it has no newline."""
        return [self._line(b"")] if self._pieces else []

    def _keep(self, piece: bytes) -> None:
        room = self._limit - self._kept_bytes
        if len(piece) > room:
            piece = piece[:room]
            self._cut = True
        if piece:
            self._pieces.append(piece)
            self._kept_bytes += len(piece)

    def _line(self, end: bytes = b"\n") -> Line:
        data, cut = b"".join(self._pieces), self._cut
        self._pieces.clear()
        self._kept_bytes = 0
        self._cut = False
        if cut or not data.endswith(b"\r"):
            return Line(self._stream, data, cut, end)
        return Line(self._stream, data[:-1], cut, b"\r" + end)


# The start of a program that may be updating itself at this moment.
#
# Agents' programs replace their own files while other processes start them. For a moment the file
# is open for writing ("text file busy"), missing, not yet executable, or empty. A missing file is
# an error after half a second; a file that is open for writing gets more time.

_PATIENCE_S = {errno.ETXTBSY: 2.0, errno.ENOENT: 0.5, errno.EACCES: 0.5, errno.ENOEXEC: 0.5}
_RETRY_S = 0.05


async def spawn_patiently(command: Command) -> subprocess.Popen[bytes]:
    """A running child as ``spawn`` returns it; retries while the program's file is being replaced.

    Raises:
        CommandNotFound, CommandNotStarted: see ``Command.spawn``.
    """
    asked_s = time.monotonic()
    while True:
        try:
            return command.start()
        except OSError as error:
            if time.monotonic() - asked_s >= _PATIENCE_S.get(error.errno or 0, 0.0):
                raise command.refusal(error) from None
        await anyio.sleep(_RETRY_S)


__all__ = ["Exited", "Line", "LiveProcess", "open_live"]

INTERRUPT_S = 3.0
"""How long a program may take to exit by itself on SIGINT; those that tidy up need 1.6 s."""
GRACE_S = 5.0
"""How long it and all processes that it started may then take on SIGTERM."""
TAIL_BYTES = 64 << 10
UNREAD_BYTES = LINE_BYTES
"""How much of what a program prints while it is being ended is kept for the caller."""
LINE_COST_BYTES = 128
"""What a line takes in memory besides its bytes."""


@dataclass(frozen=True, slots=True)
class Exited:
    """A program has exited, and no process that it started is left. ``code`` is negative for a
    signal, None if the kernel could not end the program.
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
    alone_s: float | None = None,
    boundary: Boundary | None = None,
) -> AsyncGenerator[LiveProcess, None]:
    """A running program. After the block no process of it is left, even if it was cancelled.

    ``env`` is its whole environment (None: this process's), plus ``HANDRAIL_STEP=<marker>``; no two
    programs may run under one marker at the same time. ``stdin`` is its whole input; with None its
    stdin stays open for ``send``. ``alone_s`` is how long it may take to exit when it is stopped,
    once no process that it started is left. ``boundary`` is what it runs in. If its file is being
    updated at this moment, the start is retried for up to two seconds.

    Raises:
        CommandNotFound, CommandNotStarted, DefinitionError: see ``spawn.Command``.
    """
    around = os.environ if env is None else env
    environment = {**around, **marked_environment(marker, os.environ)}
    unread = _Unread()
    await checkpoint_if_cancelled()
    with open_selector(argv) as selector:
        has_stdin = stdin != b""
        child = await spawn_patiently(
            checked(argv, cwd=cwd, env=environment, has_stdin=has_stdin, boundary=boundary)
        )
        started = start_pump(
            child, stdin or b"", unread.feed, selector, more=stdin is None, boundary=boundary
        )
        with started as pump:
            tree = ProcessTree(child, marker)
            live = LiveProcess(child, tree, pump, unread, alone_s=alone_s)
            try:
                yield live
            finally:
                await live.stop()


class LiveProcess:
    """A running program. Mutable.

    Only one task at a time may call ``next`` or ``stop``; any task may call ``send``.
    """

    def __init__(
        self,
        child: subprocess.Popen[bytes],
        tree: ProcessTree,
        pump: Pump,
        unread: _Unread,
        *,
        alone_s: float | None = None,
    ) -> None:
        self._child = child
        self._tree = tree
        self._pump = pump
        self._unread = unread
        self._alone_s = alone_s
        self._moved_s = time.monotonic()
        self._exited_s = math.inf
        self._ended: Exited | None = None
        self.closed_s: float | None = None
        """When it closed its stdout, by ``time.monotonic()``; None while that is open."""

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
        """The last 64 KiB of its stderr."""
        return self._unread.stderr.text()

    def send(self, data: bytes) -> None:
        """Queue bytes for its stdin, without waiting. Bytes that the pipe does not take now are
        written while ``next`` waits. If the program does not read any more, they are dropped.
        """
        self._pump.send(data)

    def close_stdin(self) -> None:
        """Close its stdin once all queued bytes are written."""
        self._pump.close_stdin()

    async def next(self, timeout_s: float | None = None) -> Line | Exited | None:
        """Its next line; at last ``Exited``, again on every later call; None if the time ran out.

        Lines of one stream come in order; between the two streams there is no order. A line that
        has arrived is returned at once, whatever the time. Ending what an exited program left
        behind may take some seconds more than ``timeout_s``.
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
        """The lines that have arrived and were not yet taken, without waiting."""
        while line := self._unread.take():
            yield line

    async def stop(self, interrupt_s: float = INTERRUPT_S, grace_s: float = GRACE_S) -> int | None:
        """End the program and every process that it started; returns its exit code.

        The child's group gets SIGINT and the child has ``interrupt_s`` seconds; then all that are
        left get SIGTERM and have ``grace_s``; then SIGKILL. Cancellation does not interrupt this.
        Lines printed meanwhile, up to 64 MiB, can still be read. If the program has been ended
        already, by ``next`` or an earlier call, it only returns the code.
        """
        if self._ended is None:
            try:
                await end(
                    self._tree, self._pump, grace_s, interrupt_s=interrupt_s, alone_s=self._alone_s
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
        if self.closed_s is None and not self._pump.is_open("stdout"):
            self.closed_s = time.monotonic()

    def _limit_s(self) -> float:
        """When to give up on more output of an exited program, unless something comes before."""
        if not self._pump.exited:
            return math.inf
        if self._pump.silent:
            return -math.inf
        idle_s = max(self._moved_s, self._exited_s) + DRAIN_IDLE_S
        return min(idle_s, self._exited_s + DRAIN_S)


class _Unread:
    """The lines that arrived and were not yet taken. Mutable."""

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
            # Lines pile up only while the program is being ended, when no caller takes them. A line
            # as long as the whole limit still leaves room for the lines that arrived with it.
            size_bytes = _cost_bytes(line)
            if not self._lines or self._bytes + size_bytes <= UNREAD_BYTES:
                self._lines.append(line)
                self._bytes += size_bytes


def _cost_bytes(line: Line) -> int:
    return min(len(line.data), UNREAD_BYTES // 2) + LINE_COST_BYTES
