"""Runs commands to their end, and leaves no process of them behind.

Theory of operation: a child leads its own session and carries its step's marker, so every process
that it starts can be found and signalled (``ending.ProcessTree``). One loop drives the pump until
the child has exited. Then, in every case, its tree is ended: SIGTERM, a grace, SIGKILL.
"""

from __future__ import annotations

import codecs
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from handrail.errors import DefinitionError
from handrail.model.dataclass import dataclass
from handrail.shortening import LONGEST_WORD, head_end, tail_start
from handrail.system.ending import DRAIN_IDLE_S, DRAIN_S, ProcessTree, end, let_leave, start_pump
from handrail.system.marker import kill_marked, marked_environment
from handrail.system.pump import Pump, Stream
from handrail.system.spawn import Boundary, CommandNotStarted, checked, input_bytes, open_selector

_LONGEST_UTF8_TAIL = 3


class Capture:
    """Keeps at most ``limit_bytes`` of the bytes fed to it: all, or the first and the last half.

    A word that a cut would split is left out too, see ``shortening``. Mutable. Uses memory for at
    most ``limit_bytes``, two words and one chunk. Kept and left-out bytes always add up to the
    bytes fed.
    """

    __slots__ = ("_fed_bytes", "_head", "_head_limit", "_tail", "_tail_limit")

    def __init__(self, limit_bytes: int) -> None:
        if limit_bytes < 0:
            raise DefinitionError(f"limit_bytes must be 0 or more, got {limit_bytes}")
        self._tail_limit = limit_bytes // 2
        self._head_limit = limit_bytes - self._tail_limit
        self._head = bytearray()  # and as much after it as the last word may need
        self._tail = bytearray()  # and as much before it as the first word may need
        self._fed_bytes = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes; they displace the oldest ones after the first half."""
        room = self._head_limit + LONGEST_WORD - len(self._head)
        if room > 0:
            self._head += data[:room]
        _append(self._tail, data, self._tail_limit)
        self._fed_bytes += len(data)

    def text(self, errors: str = "replace") -> tuple[str, int]:
        """The captured text, and how many bytes it leaves out.

        Bytes that are not UTF-8 become U+FFFD, or what ``errors`` says if nothing is left out. If
        bytes were left out, a line in the middle says how many; a character that the cut would
        split is left out whole.
        """
        if self._fed_bytes <= self._head_limit + self._tail_limit:
            rest_bytes = max(0, self._fed_bytes - len(self._head))
            rest = self._tail[len(self._tail) - rest_bytes :]
            return (self._head + rest).decode("utf-8", errors), 0
        first, last = _first(self._head, self._head_limit), _last(self._tail, self._tail_limit)
        head, head_cut = _whole_head(first)
        tail, tail_cut = _whole_tail(last)
        left_out = self._fed_bytes - len(first) - len(last) + head_cut + tail_cut
        return f"{head}\n[... {left_out} bytes left out ...]\n{tail}", left_out


class Tail:
    """Keeps the last ``limit_bytes`` of the bytes fed to it, from the start of a word. Mutable."""

    __slots__ = ("_data", "_limit")

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._data = bytearray()  # and as much before it as the first word may need

    def feed(self, data: bytes) -> None:
        """Take the next bytes; they displace the oldest ones."""
        _append(self._data, data, self._limit)

    def text(self) -> str:
        """The text; U+FFFD for bytes that are not UTF-8, without a character that the cut split."""
        if len(self._data) <= self._limit:
            return self._data.decode("utf-8", "replace")
        return _whole_tail(_last(self._data, self._limit))[0]


def _append(kept: bytearray, data: bytes, limit_bytes: int) -> None:
    kept += data
    excess = len(kept) - limit_bytes - LONGEST_WORD
    if excess > 0:
        del kept[:excess]


def _first(data: bytearray, limit_bytes: int) -> bytearray:
    """At most ``limit_bytes`` from the start, up to the end of a word."""
    start = max(0, limit_bytes - LONGEST_WORD)
    around = data[start : limit_bytes + LONGEST_WORD].decode("latin-1")
    return data[: start + head_end(around, limit_bytes - start)]


def _last(data: bytearray, limit_bytes: int) -> bytearray:
    """At most ``limit_bytes`` from the end, from the start of a word."""
    at = len(data) - limit_bytes
    start = max(0, at - LONGEST_WORD)
    around = data[start : at + LONGEST_WORD].decode("latin-1")
    return data[start + tail_start(around, at - start) :]


def _whole_head(data: bytearray) -> tuple[str, int]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data)
    return text, len(decoder.getstate()[0])


def _whole_tail(data: bytearray) -> tuple[str, int]:
    cut = 0
    while cut < min(_LONGEST_UTF8_TAIL, len(data)) and data[cut] & 0xC0 == 0x80:
        cut += 1
    return data[cut:].decode("utf-8", "replace"), cut


__all__ = ["CommandNotStarted", "OnOutput", "ProcessResult", "Stream", "kill_marked", "run_process"]

OnOutput: TypeAlias = Callable[[Stream, str], None]


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """How a process ended and what it printed.

    ``exit_code`` is negative for a signal. ``leftovers`` counts the processes that outlived it and
    that handrail then ended (without ``/proc``: 1 for any number).
    """

    exit_code: int
    stdout: str
    stderr: str
    stdout_truncated_bytes: int
    stderr_truncated_bytes: int
    duration_ms: float
    leftovers: int = 0


async def run_process(
    argv: Sequence[str] | str,
    *,
    marker: str,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    around: Mapping[str, str] | None = None,
    boundary: Boundary | None = None,
    stdin: str | bytes | None = None,
    on_output: OnOutput | None = None,
    limit_bytes: int = 8 << 20,
    grace_s: float = 2.0,
    errors: str = "replace",
) -> ProcessResult:
    """The result of a command, after it and every process that it started have ended.

    ``/bin/sh -c`` runs a command given as one text. ``env`` is added to this process's environment
    or to ``around``, and so is ``HANDRAIL_STEP=<marker>``; no two commands may run under one marker
    at the same time. ``boundary`` is what the command runs in.
    Without ``stdin`` the command reads ``/dev/null``. Output is decoded as UTF-8 with U+FFFD for
    other bytes (or, in the result's ``stdout``, as ``errors`` says), and passed to
    ``on_output(stream, text)`` as it arrives, cut anywhere; a slow receiver slows the command. The
    result has ``limit_bytes`` of each stream: half from the start,
    half from the end.

    After the command's exit, its background processes may print until they are silent for half a
    second, two seconds at most; then they are ended. If this call is cancelled, or ``on_output``
    raises, the whole tree is ended: SIGTERM, up to ``grace_s`` seconds, SIGKILL. The cancellation
    continues only then.

    On Linux the tree includes processes that left the session (see ``marker``), on other POSIX
    systems it is the process group.

    Raises:
        CommandNotFound, CommandNotStarted, DefinitionError: see ``spawn.Command``.
    """
    outputs = _Outputs(limit_bytes, on_output)
    data = input_bytes(stdin)
    inherited = os.environ if around is None else around
    environment = {**inherited, **(env or {}), **marked_environment(marker, os.environ)}
    await checkpoint_if_cancelled()
    started_s = time.perf_counter()
    with open_selector(argv) as selector:
        child = checked(
            argv, cwd=cwd, env=environment, has_stdin=bool(data), boundary=boundary
        ).spawn()
        with start_pump(child, data, outputs.feed, selector, boundary=boundary) as pump:
            tree = ProcessTree(child, marker)
            try:
                while not pump.exited:
                    await pump.run_once()
                duration_ms = (time.perf_counter() - started_s) * 1000
                await _drain(tree, pump)
            finally:
                leftovers = await end(tree, pump, grace_s)
            pump.drain()
            outputs.finish()
    stdout, stdout_left_out = outputs.captures["stdout"].text(errors)
    stderr, stderr_left_out = outputs.captures["stderr"].text()
    return ProcessResult(
        exit_code=child.returncode,
        stdout=stdout,
        stderr=stderr,
        stdout_truncated_bytes=stdout_left_out,
        stderr_truncated_bytes=stderr_left_out,
        duration_ms=duration_ms,
        leftovers=leftovers,
    )


async def _drain(tree: ProcessTree, pump: Pump) -> None:
    """Read output of background processes for a bounded time, then give them time to exit."""
    with anyio.move_on_after(DRAIN_S):
        while not pump.silent and await pump.run_once(DRAIN_IDLE_S):
            pass
    await let_leave(tree, pump)


class _Outputs:
    """The output of both streams: captured, and decoded for ``on_output``. Mutable."""

    def __init__(self, limit_bytes: int, on_output: OnOutput | None) -> None:
        self.captures: dict[Stream, Capture] = {
            "stdout": Capture(limit_bytes),
            "stderr": Capture(limit_bytes),
        }
        new_decoder = codecs.getincrementaldecoder("utf-8")
        self._decoders = {"stdout": new_decoder("replace"), "stderr": new_decoder("replace")}
        self._on_output = on_output

    def feed(self, stream: Stream, data: bytes, *, final: bool = False) -> None:
        self.captures[stream].feed(data)
        receiver, self._on_output = self._on_output, None
        if receiver is None:
            return
        if text := self._decoders[stream].decode(data, final):
            receiver(stream, text)
        self._on_output = receiver  # not restored if it raised: then it is never called again

    def finish(self) -> None:
        self.feed("stdout", b"", final=True)
        self.feed("stderr", b"", final=True)
