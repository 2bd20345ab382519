"""Machines that run ``handrail`` on one folder: they can be frozen, and switched off."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

BOOT_ID = "/proc/sys/kernel/random/boot_id"
LEASE_S = 1.5
PATIENCE_S = 60.0
_SITE = f"""\
import os, pathlib

read = pathlib.Path.read_text

def read_text(self, *args, **kwargs):
    return os.environ["MACHINE"] if str(self) == "{BOOT_ID}" else read(self, *args, **kwargs)

pathlib.Path.read_text = read_text
"""


def until(condition: Callable[[], Any], what: str = "it") -> Any:
    """Wait for it; what it gives."""
    end = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < end, f"{what} did not come"
        time.sleep(0.05)  # noqa: TID251  # other processes
    return found


def pause(seconds: float) -> None:
    """Let other processes do what they do for so long."""
    time.sleep(seconds)  # noqa: TID251  # other processes


def _is_locked(journal: Path) -> bool:
    with contextlib.closing(sqlite3.connect(journal, timeout=0.5, isolation_level=None)) as one:
        try:
            one.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        one.execute("ROLLBACK")
        return False


class Machine:
    """One boot of a machine, as its processes see it; what they tell is kept in a file. Mutable.

    To leave it by the end of a ``with`` switches it off.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = f"{name}-{os.getpid()}-{time.monotonic_ns()}"
        self._file = folder / f"told-by-{self.name}"
        site = folder / "site"
        site.mkdir(exist_ok=True)
        (site / "sitecustomize.py").write_text(_SITE)
        self._env = {**os.environ, "MACHINE": self.name, "PYTHONPATH": str(site)}
        self._begun: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.off()

    def begin(self, *words: str) -> subprocess.Popen[bytes]:
        """A command there."""
        with self._file.open("a") as told:
            process = subprocess.Popen(
                [sys.executable, "-m", "handrail", *words],
                cwd=self.folder,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=told,
                stderr=told,
            )
        self._begun.append(process)
        return process

    def do(self, *words: str) -> int:
        """The exit code of a command there."""
        return self.begin(*words).wait(PATIENCE_S)

    def told(self) -> list[str]:
        """What its commands said, without whose it is."""
        lines = self._file.read_text("utf-8").splitlines()
        return [line.removeprefix("handrail: ") for line in lines]

    def processes(self) -> list[int]:
        """Those of its own that live."""
        mine = f"MACHINE={self.name}".encode()
        found: list[int] = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and mine in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found

    def freeze(self, journal: Path) -> None:
        """Stop all of it, but not within a write: that would keep SQLite's lock, which the disk of
        a real machine does not share with others.
        """
        self._send(signal.SIGSTOP)
        while _is_locked(journal):
            self.thaw()
            pause(0.01)
            self._send(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let all of it go on."""
        self._send(signal.SIGCONT)

    def off(self) -> None:
        """End all of it at once, as when the power goes."""
        while self.processes():
            self._send(signal.SIGKILL)
            for process in self._begun:
                if process.returncode is None and process.poll() is None:
                    pause(0.01)
        for process in self._begun:
            process.wait()

    def _send(self, number: signal.Signals) -> None:
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
