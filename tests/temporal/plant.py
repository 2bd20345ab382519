"""A cluster and its workers as processes, with a wire between them that can be cut."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from handrail.temporal.dev import DevServer, free_port

_SERVES_WITHIN_S = 60.0
ROOT = Path(__file__).parents[2]


class Wire:
    """Passes on what comes to a port, to another port. Mutable: it is cut, and joined."""

    def __init__(self, to: int) -> None:
        self.port = free_port()
        self._to = to
        self._open: set[socket.socket] = set()
        self._listener: socket.socket | None = None
        self.join()

    def join(self) -> None:
        """Let everything pass."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(64)
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def cut(self) -> None:
        """Let nothing pass any more."""
        assert self._listener is not None
        self._end(self._listener)
        for one in list(self._open):
            self._end(one)

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self._to), 2)
                except OSError:
                    self._end(near)
                    continue
                self._open |= {near, far}
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(one, other), daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
        self._end(one)
        self._end(other)

    def _end(self, one: socket.socket) -> None:
        self._open.discard(one)
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()


class TemporalPlant:
    """One cluster with a file, and worker processes that reach it by a wire.

    ``server``: a cluster that others use, too, and that nothing happens to.
    """

    def __init__(
        self,
        folder: Path,
        queue: str,
        modules: Sequence[str],
        *more: str,
        server: DevServer | None = None,
    ) -> None:
        self.folder = folder
        self._is_own = server is None
        self.server = DevServer(folder / "db") if server is None else server
        if self._is_own:
            self.server.start()
        self.wire = Wire(self.server.port)
        self._queue = queue
        self._words = [*modules, *more]
        self._workers: dict[int, subprocess.Popen[bytes]] = {}
        self._count = 0

    def start_worker(self, *more: str, cwd: Path = ROOT) -> int:
        """Start one, and wait until it serves."""
        return self.start_workers(1, *more, cwd=cwd)[0]

    def start_workers(self, count: int, *more: str, cwd: Path = ROOT) -> list[int]:
        """Start some side by side."""
        started = [self._start(more, cwd) for _ in range(count)]
        for process, log in started:
            until = time.monotonic() + _SERVES_WITHIN_S
            while b"serves task queue" not in log.read_bytes():
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < until, log.read_text()
                time.sleep(0.02)  # noqa: TID251  # a process comes up in its own time
        return [process.pid for process, _ in started]

    def _start(self, more: Sequence[str], cwd: Path) -> tuple[subprocess.Popen[bytes], Path]:
        self._count += 1
        log = self.folder / f"worker-{self._count}.log"
        where = f"127.0.0.1:{self.wire.port}"
        words = ["worker", *self._words, *more, "--temporal", where, "--task-queue", self._queue]
        with log.open("wb") as said:
            process = subprocess.Popen(
                [sys.executable, "-m", "handrail", *words],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd=cwd,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
        self._workers[process.pid] = process
        return process, log

    def workers(self) -> Sequence[int]:
        """Those that live."""
        return [pid for pid, one in self._workers.items() if one.poll() is None]

    def kill_worker(self, pid: int) -> None:
        """Kill one."""
        process = self._workers.pop(pid)
        process.kill()
        process.wait()

    def kill_server(self) -> None:
        """Kill the cluster."""
        self.server.kill()

    def start_server(self) -> None:
        """Start it again, from its file."""
        self.server.start()

    def cut(self) -> None:
        """Cut the wire."""
        self.wire.cut()

    def join(self) -> None:
        """Join it."""
        self.wire.join()

    def close(self) -> None:
        """End everything."""
        for process in self._workers.values():
            process.kill()
            process.wait()
        self.wire.cut()
        if self._is_own:
            self.server.kill()
