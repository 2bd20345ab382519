"""Files written by a thread, so that the event loop does not wait for the disk.

Theory of operation. A caller appends its text to a list, under a lock that is taken only for that,
and continues. A thread takes the whole list, and opens, writes and closes each file in it once. So
at most one file is open, a written text is with the operating system, and the more texts wait, the
less each one costs. The thread ends when it is idle, and the next text starts another.

The texts in the list are bounded. If they come faster than the disk takes them, some are left out,
and the file says at that place how many bytes are missing. Other operations are never left out:
each writes a prompt, an answer or an output, which the run keeps in memory anyway.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from handrail.system.forks import locks_to_fork

MOST_BYTES = 64 * 1024 * 1024
"""Bytes that may wait to be written."""

PAUSE_S = 0.02
"""How long the thread lets texts gather before it writes them."""

IDLE_S = 1.0

Write: TypeAlias = "Callable[[], None]"


class BackgroundWriter:
    """Appends to files, and runs other file operations, in a thread. Mutable."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._begin()
        locks_to_fork(self)

    def _begin(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._waiting: list[tuple[str, bytes | Write]] = []
        """Texts by file; calls by "", or by the name of what is done afterwards."""
        self._bytes = 0
        self._left_out: dict[str, int] = {}
        """Bytes that are missing at the end of a file, by its path."""
        self._busy = self._urgent = False
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def append(self, file: str, data: bytes) -> None:
        """Queue data to be appended to the file; its folder is created if need be.

        Raises:
            OSError: an earlier write failed.
        """
        with self._changed:
            self._raise_error()
            if self._bytes + len(data) > self._most and self._waiting:
                self._left_out[file] = self._left_out.get(file, 0) + len(data)
                return
            missing = self._left_out.pop(file, 0)
            if missing:
                self._waiting.append((file, _gap_text(missing)))
            self._add(file, data, len(data))

    def do(self, write: Write, size_bytes: int) -> None:
        """Queue a call for the thread. Calls run in order, appends that wait with them afterwards.

        Raises:
            OSError: an earlier write failed.
        """
        with self._changed:
            self._raise_error()
            self._add("", write, size_bytes)

    def afterwards(self, name: str, write: Write) -> None:
        """Queue a call behind all appends that wait; of several with one name, the last is made.

        Raises:
            OSError: an earlier write failed.
        """
        with self._changed:
            self._raise_error()
            self._add(name, write, 0)

    def finish(self, timeout_s: float) -> bool:
        """Wait until everything is written; False if that takes longer than ``timeout_s``.

        Raises:
            OSError: a write failed.
        """
        if threading.current_thread() is self._thread:  # as a finalizer; it goes on by itself
            return False
        with self._changed:
            self._urgent = True
            self._changed.notify_all()
            done = self._changed.wait_for(lambda: not self._waiting and not self._busy, timeout_s)
            self._urgent = False
        self._raise_error()
        return done

    def _add(self, file: str, what: bytes | Write, size: int) -> None:
        self._waiting.append((file, what))
        self._bytes += size
        if self._thread is None:
            name = "handrail artifacts"
            self._thread = threading.Thread(target=self._work, name=name, daemon=True)
            self._thread.start()
        elif len(self._waiting) == 1:
            self._changed.notify_all()

    def _raise_error(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def before_fork(self) -> None:
        """Let the thread take nothing, and nobody add to it, until the process has forked."""
        self._changed.acquire()

    def after_fork_in_parent(self) -> None:
        """Go on."""
        self._changed.release()

    def after_fork_in_child(self) -> None:
        """Start empty: the parent's thread writes what waits."""
        self._begin()

    # -- in the thread ---------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: self._waiting, IDLE_S):
                    self._thread = None
                    return
                self._changed.wait_for(lambda: self._urgent, PAUSE_S)
                todo, self._waiting = self._waiting, []
                self._bytes = 0
                self._busy = True
            try:
                _carry_out(todo)
            except Exception as error:  # noqa: BLE001  # raised to the next caller
                self._error = error
            with self._changed:
                self._busy = False
                if not self._waiting:
                    self._write_what_is_missing()
                self._changed.notify_all()

    def _write_what_is_missing(self) -> None:
        self._waiting += [(file, _gap_text(size)) for file, size in self._left_out.items()]
        self._left_out.clear()


def _gap_text(size: int) -> bytes:
    return f"\n[{size:,} bytes are missing here: the disk was too slow]\n".encode()


def _carry_out(todo: list[tuple[str, bytes | Write]]) -> None:
    appended: dict[str, list[bytes]] = {}
    afterwards: dict[str, Write] = {}
    for file, what in todo:
        if isinstance(what, bytes):
            appended.setdefault(file, []).append(what)
        elif file:
            afterwards[file] = what
        else:
            what()
    for file, texts in appended.items():
        append(file, b"".join(texts))
    for write in afterwards.values():
        write()


def append(file: str, data: bytes) -> None:
    """Append the data to the file; create it and its folder if need be."""
    _write_file(file, data, os.O_APPEND)


def overwrite(file: str, data: bytes) -> None:
    """Replace the content of the file with the data."""
    _write_file(file, data, os.O_TRUNC)


def replace(file: str, data: bytes) -> None:
    """Like ``overwrite``, but a reader sees the old or the new content, also after a crash."""
    overwrite(f"{file}.new", data)
    Path(f"{file}.new").replace(file)


def _write_file(file: str, data: bytes, how: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | how
    try:
        descriptor = os.open(file, flags, 0o600)
    except FileNotFoundError:
        Path(file).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(file, flags, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
    finally:
        os.close(descriptor)
