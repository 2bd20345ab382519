"""A model API on the loopback that answers as it was told, call by call."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

LONG_S = 120.0
"""How long a silent call is kept open if nobody hangs up."""


@dataclass(frozen=True, slots=True)
class Text:
    """The model says this, after a thought if there is one."""

    text: str
    thought: str = ""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The model uses a tool."""

    name: str
    arguments: Mapping[str, Any]
    text: str = ""


@dataclass(frozen=True, slots=True)
class Refused:
    """The API refuses the call."""

    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Silent:
    """The API accepts the call and says nothing."""


Answer = Text | ToolCall | Refused | Silent


@dataclass(frozen=True, slots=True)
class Request:
    """A call as it came."""

    method: str
    path: str
    body: Mapping[str, Any]


class StubServer:
    """Serves in threads while it is open. ``requests`` are the calls of the model, in order.

    The answers are given in turn; the last one is given again to every later call.
    """

    def __init__(self, answers: Sequence[Answer]) -> None:
        self.answers = list(answers)
        self.requests: list[Request] = []
        self.others: list[str] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def respond(self, request: Request, reply: Reply) -> None:
        """Answer one request; each API has its own way."""
        raise NotImplementedError

    def next_answer(self, request: Request) -> Answer:
        """What to say to this call of the model."""
        with self._lock:
            at = min(len(self.requests), len(self.answers) - 1)
            self.requests.append(request)
            return self.answers[at]

    def wait(self) -> None:
        """Until the server closes."""
        self._closing.wait(LONG_S)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self) -> None:
                size = int(self.headers.get("content-length") or 0)
                raw = self.rfile.read(size)
                body = json.loads(raw) if raw[:1] == b"{" else {}
                try:
                    stub.respond(Request(self.command, self.path, body), Reply(self))
                except (BrokenPipeError, ConnectionResetError):
                    return

            do_GET = do_POST = do_HEAD = handle_one  # noqa: N815  # so the base class names them

            def log_message(self, *_: object) -> None:
                """Nothing is printed."""

        return Handler


class Reply:
    """One HTTP reply."""

    def __init__(self, handler: BaseHTTPRequestHandler) -> None:
        self._handler = handler

    def json(
        self, body: object, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        """A whole JSON body."""
        data = json.dumps(body).encode()
        self._head(status, {"content-type": "application/json", **(headers or {})}, len(data))
        self._handler.wfile.write(data)

    def events(self, events: Iterable[tuple[str | None, Mapping[str, Any]]]) -> None:
        """A stream of server-sent events."""
        self._head(200, {"content-type": "text/event-stream"}, None)
        for name, data in events:
            head = "" if name is None else f"event: {name}\n"
            self._handler.wfile.write(f"{head}data: {json.dumps(data)}\n\n".encode())
            self._handler.wfile.flush()

    def _head(self, status: int, headers: Mapping[str, str], size: int | None) -> None:
        self._handler.send_response(status)
        for name, value in headers.items():
            self._handler.send_header(name, value)
        if size is not None:
            self._handler.send_header("content-length", str(size))
        self._handler.send_header("connection", "close")
        self._handler.end_headers()


def pieces(text: str, size: int = 12) -> Iterator[str]:
    """The text in parts, as models stream it."""
    for at in range(0, len(text), size):
        yield text[at : at + size]
