"""Commands, run to their end and with nothing of them left behind.

Theory of operation: a child leads a session of its own and carries its step's marker, so the whole
of what it starts can be found and signalled (``tree``). One loop turns the pump until the child has
exited. Then, in every case, its tree is ended: SIGTERM, a grace, SIGKILL (``ending``).
"""

from __future__ import annotations

import codecs
import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from handrail.system.capture import Capture
from handrail.system.ending import DRAIN_IDLE_S, DRAIN_S, attended, end, leave
from handrail.system.marker import kill_marked, marked_environment
from handrail.system.pump import Pump, Stream
from handrail.system.refusal import CommandNotStarted
from handrail.system.spawn import input_bytes, open_selector, spawn
from handrail.system.tree import ProcessTree

__all__ = ["CommandNotStarted", "OnOutput", "ProcessResult", "Stream", "kill_marked", "run_process"]

OnOutput: TypeAlias = Callable[[Stream, str], None]


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """How a process ended and what it printed.

    ``exit_code`` is negative if a signal ended it. ``leftovers`` counts the processes that it left
    behind and that were ended after it (without ``/proc``: 1 for any number).
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
    stdin: str | bytes | None = None,
    on_output: OnOutput | None = None,
    limit_bytes: int = 8 << 20,
    grace_s: float = 2.0,
) -> ProcessResult:
    """The result of a command that has ended, together with every process it started.

    A text is run by ``/bin/sh -c``. ``env`` is added to this process's environment, and so is
    ``HANDRAIL_STEP=<marker>``; no two commands may run under one marker at the same time. Without
    ``stdin`` it reads ``/dev/null``. Output is decoded as UTF-8 with U+FFFD for what is not, and
    given to ``on_output(stream, text)`` as it comes, cut anywhere; a slow receiver slows the
    command. Of each stream ``limit_bytes`` are kept, the first and the last half of it.

    After its exit, a command's background processes may print until they are silent for half a
    second, then they are ended. When this call is cancelled, or ``on_output`` raises, the whole
    tree is: SIGTERM, up to ``grace_s`` seconds, SIGKILL; only then does the cancellation go on.

    On Linux the tree includes processes that left the session (see ``marker``), on other POSIX
    systems it is the process group.

    Raises:
        CommandNotFound, CommandNotStarted, DefinitionError: see ``spawn``.
    """
    outputs = _Outputs(limit_bytes, on_output)
    data = input_bytes(stdin)
    environment = {**os.environ, **(env or {}), **marked_environment(marker, os.environ)}
    await checkpoint_if_cancelled()
    started_s = time.perf_counter()
    with _started(argv, cwd, environment, data, outputs.feed) as (child, pump):
        tree = ProcessTree(child, marker)
        try:
            while not pump.exited:
                await pump.turn()
            duration_ms = (time.perf_counter() - started_s) * 1000
            await _drain(tree, pump)
        finally:
            leftovers = await end(tree, pump, grace_s)
        pump.empty()
        outputs.finish()
    stdout, stdout_left_out = outputs.captures["stdout"].text()
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


@contextlib.contextmanager
def _started(
    argv: Sequence[str] | str,
    cwd: str | os.PathLike[str] | None,
    env: Mapping[str, str],
    stdin: bytes,
    on_bytes: Callable[[Stream, bytes], None],
) -> Generator[tuple[subprocess.Popen[bytes], Pump], None, None]:
    """A child and its pump; afterwards both are closed and the child is reaped."""
    with open_selector(argv) as selector:
        child = spawn(argv, cwd=cwd, env=env, has_stdin=bool(stdin))
        with attended(child, stdin, on_bytes, selector) as pump:
            yield child, pump


async def _drain(tree: ProcessTree, pump: Pump) -> None:
    """Let background processes print, while it comes and for a bounded time, and then go."""
    with anyio.move_on_after(DRAIN_S):
        while not pump.silent and await pump.turn(DRAIN_IDLE_S):
            pass
    await leave(tree, pump)


class _Outputs:
    """What both streams bring: captured, and decoded for whoever listens. Mutable."""

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
        self._on_output = receiver  # not after it raised: it is not called again then

    def finish(self) -> None:
        self.feed("stdout", b"", final=True)
        self.feed("stderr", b"", final=True)
