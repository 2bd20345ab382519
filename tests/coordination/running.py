"""A hub in a process of its own, and clients of it that only know the wire."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

PATIENCE_S = 20.0


class Running:
    """``handrail hub`` with these options, as it listens."""

    def __init__(
        self, *words: object, cwd: Path, within: Sequence[str] = (), port: int = 0
    ) -> None:
        hub = ["hub", "--port", str(port), *map(str, words)]
        command = [sys.executable, "-m", "handrail", *hub]
        self.process = subprocess.Popen(
            [*within, *command], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.clients = contextlib.ExitStack()
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.url.rpartition(":")[2])

    def end(self, signum: int) -> tuple[int, str]:
        """Exit code and what was said on stderr."""
        self.process.send_signal(signum)
        _, said = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, said

    def socket(self, name: str, **options: Any) -> Client:
        """A socket that has said nothing."""
        opened = connect(
            self.url, compression=None, ping_interval=None, close_timeout=0.1, **options
        )
        return Client(name, self.clients.enter_context(opened))

    def client(self, name: str, **fields: Any) -> Client:
        """A client that has said its name, and was welcomed."""
        client = self.socket(name)
        client.say("heartbeat", payload="online", **fields)
        client.until("welcome")
        return client


@contextmanager
def running(
    *words: object, cwd: Path, within: Sequence[str] = (), port: int = 0
) -> Generator[Running]:
    """The hub until the block ends."""
    hub = Running(*words, cwd=cwd, within=within, port=port)
    try:
        yield hub
    finally:
        hub.process.kill()
        hub.process.communicate(timeout=PATIENCE_S)
        hub.clients.close()


class Client:
    """One socket. ``heard`` is all that came on it."""

    def __init__(self, name: str, socket: ClientConnection) -> None:
        self.name = name
        self.heard: list[dict[str, Any]] = []
        self.socket = socket

    def say(self, kind: str, /, **fields: Any) -> None:
        """Send a message."""
        frame = {"sender": self.name, "target": "System", "type": kind, "payload": "", **fields}
        self.socket.send(json.dumps({**frame, "timestamp": time.time()}))

    def next(self, timeout: float = PATIENCE_S) -> dict[str, Any]:
        """The next message; the end of the socket is one, too."""
        try:
            frame: dict[str, Any] = json.loads(self.socket.recv(timeout=timeout))
        except ConnectionClosed as closed:
            code = closed.rcvd.code if closed.rcvd else 1006
            frame = {"type": "closed", "code": code}
        self.heard.append(frame)
        return frame

    def until(self, *kinds: str, **fields: Any) -> dict[str, Any]:
        """The next message of one of these types, with these fields."""
        while True:
            frame = self.next()
            if frame["type"] in kinds and fields.items() <= frame.items():
                return frame
            assert frame["type"] != "closed", (kinds, frame)

    def ask(self, kind: str, /, *answers: str, **fields: Any) -> dict[str, Any]:
        """The answer to a message, which has one of these types."""
        self.say(kind, **fields)
        task = {"task_id": fields["task_id"]} if "task_id" in fields else {}
        return self.until(*answers, **task)

    def claim(self, task_id: str, **fields: Any) -> dict[str, Any]:
        """The answer to a claim."""
        return self.ask("claim", "claim_granted", "claim_denied", task_id=task_id, **fields)
