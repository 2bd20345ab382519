"""Forked processes that a test kills, and what they wrote before they died."""

from __future__ import annotations

import os
import pickle  # noqa: TID251 - what a child of this very process says
import select
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import pytest

PATIENCE_S = 120.0
"""How long anything may take before it counts as hanging."""


class Child:
    """A copy of this process that calls ``work`` and ends; its closures and modules are there.

    Left by the end of a ``with`` it is dead. Mutable.
    """

    def __init__(self, work: Callable[[], Any]) -> None:
        self._read, write = os.pipe()
        self._ended = False
        with warnings.catch_warnings():
            # Threads of this process (pytest-xdist's) are not in the copy; none of ours needs them.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            os.close(self._read)
            _work_and_end(work, write)
        os.close(write)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        os.close(self._read)

    def fileno(self) -> int:
        """Readable once it has something to say."""
        return self._read

    def ends_within(self, seconds: float) -> bool:
        """True if it ended, or has something to say, before so much time went by."""
        return bool(select.select([self._read], [], [], seconds)[0])

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL, and wait until nothing is left of it."""
        if not self._ended:
            self.send(signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self._ended = True

    def result(self) -> Any:
        """What ``work`` gave; what it raised is raised here, as an assertion."""
        said = bytearray()
        deadline = time.monotonic() + PATIENCE_S
        while self.ends_within(max(0.0, deadline - time.monotonic())):
            piece = os.read(self._read, 1 << 16)
            if not piece:
                break
            said += piece
        else:
            self.kill()
            raise AssertionError(f"process {self.pid} did not end within {PATIENCE_S:g} s")
        _, status = os.waitpid(self.pid, 0)
        self._ended = True
        assert said, f"process {self.pid} died, with status {status}"
        value, raised = pickle.loads(said)
        assert raised is None, raised
        return value


def _work_and_end(work: Callable[[], Any], write: int) -> None:
    try:
        try:
            said = pickle.dumps((work(), None))
        except BaseException:  # noqa: BLE001  # the parent raises it
            said = pickle.dumps((None, traceback.format_exc()))
        while said:
            said = said[os.write(write, said) :]
    finally:
        os._exit(0)


def result_of(work: Callable[[], Any]) -> Any:
    """What ``work`` gives in a process of its own."""
    with Child(work) as child:
        return child.result()


class Barrier:
    """Where processes wait until all of them have come. Mutable."""

    def __init__(self) -> None:
        self._arrived, self._arrive = os.pipe()
        self._gate, self._opener = os.pipe()

    def wait(self) -> None:
        """Say that this process is here, and wait for ``open``."""
        os.close(self._opener)
        os.write(self._arrive, b".")
        os.read(self._gate, 1)

    def open(self, children: Sequence[Child]) -> None:
        """Let these go, once all of them have come; what one raised before that is raised here."""
        deadline = time.monotonic() + PATIENCE_S
        missing = len(children)
        while missing:
            left = max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select([self._arrived, *children], [], [], left)
            assert ready, f"{missing} of {len(children)} did not come within {PATIENCE_S:g} s"
            if self._arrived in ready:
                missing -= len(os.read(self._arrived, missing))
                continue
            raise AssertionError(f"a process did not wait; it said {ready[0].result()!r}")
        for end in (self._opener, self._gate, self._arrived, self._arrive):
            os.close(end)


class Log:
    """A file of lines that outlive a SIGKILL: each is one write to its end."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, *words: object) -> None:
        """Add a line of these words, none of which has a blank."""
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, (" ".join(map(str, words)) + "\n").encode())
        finally:
            os.close(fd)

    def lines(self) -> list[list[str]]:
        """The words of every line so far."""
        if not self.path.exists():
            return []
        return [line.split(" ") for line in self.path.read_text("utf-8").splitlines()]


def until(holds: Callable[[], bool], what: str) -> None:
    """Look until it holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S:g} s: {what}"
        time.sleep(0.002)  # noqa: TID251 - another process does not wake us


def show(capfd: pytest.CaptureFixture[str], figures: str) -> None:
    """Print figures where a person sees them, from pytest-xdist's processes too."""
    with capfd.disabled():
        sys.stderr.write(f"\n{figures}\n")
        sys.stderr.flush()
