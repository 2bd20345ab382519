"""The only way out of a launch that may reach some hosts: a proxy that knows their names.

Theory of operation: the launch has a network of its own, with nothing but a loopback. There a
socket listens that belongs to this process: a few lines of Python, the first that runs inside, make
it and hand it over, and then become the program. So no other network is joined to the launch, and
its names are looked up here, by who connects. One thread accepts; each connection has its own.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from collections import deque
from collections.abc import Iterable
from urllib.parse import urlsplit

PORT = 3128
ADDRESS = f"http://127.0.0.1:{PORT}"
_PORTS = (80, 443)
_HEAD_BYTES = 64 << 10
_CHUNK_BYTES = 64 << 10
_CONNECT_S = 30.0
_IDLE_S = 900.0
_MOST = 256
"""How many connections of one launch are open at once."""

LISTENER = f"""
import _socket, os, sys
there = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
there.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
there.bind(("127.0.0.1", {PORT}))
there.listen(128)
here = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, int(sys.argv[1]))
number = there.fileno().to_bytes(4, sys.byteorder)
here.sendmsg([b"x"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, number)])
here.close()
there.close()
os.execvp(sys.argv[2], sys.argv[2:])
"""
"""What runs first inside of a launch. It calls no ``socket(AF_UNIX)``, which is refused there."""


class Refused(Exception):
    """The proxy does not connect; ``status`` is what it answers."""

    def __init__(self, status: str, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


class Proxy:
    """A proxy for one launch. ``refused`` has what was asked for and is not listed. Mutable."""

    def __init__(self, hosts: Iterable[str]) -> None:
        self.refused: deque[str] = deque()
        self._hosts = tuple(_name_and_port(host.lower()) for host in hosts)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._closed = False
        self._ours, self.theirs = socket.socketpair()

    def start(self) -> None:
        """Begin, once the program has been started with ``theirs``."""
        self.theirs.close()
        threading.Thread(target=self._serve, name="handrail proxy", daemon=True).start()

    def close(self) -> None:
        """End every connection."""
        with self._lock:
            self._closed = True
            left = [self._ours, self.theirs, *self._open]
        for one in left:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def allows(self, host: str, port: int) -> bool:
        """True for a host that is listed; without a port in the list, for the ports of the web."""
        name = host.lower().rstrip(".")
        return any(
            port in ((wanted,) if wanted else _PORTS)
            and (name == known or (known.startswith("*.") and name.endswith(known[1:])))
            for known, wanted in self._hosts
        )

    # -- in threads ------------------------------------------------------------------------------

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            _, handed, _, _ = socket.recv_fds(self._ours, 1, 1)
            for number in handed:
                listener = socket.socket(fileno=number)
                if self._keeps(listener):
                    self._accept(listener)

    def _accept(self, listener: socket.socket) -> None:
        room = threading.Semaphore(_MOST)
        while True:
            connection, _ = listener.accept()
            if not self._keeps(connection):
                return
            room.acquire()
            threading.Thread(target=self._one, args=(connection, room), daemon=True).start()

    def _keeps(self, one: socket.socket) -> bool:
        with self._lock:
            if not self._closed:
                self._open.add(one)
                return True
        one.close()
        return False

    def _one(self, connection: socket.socket, room: threading.Semaphore) -> None:
        upstream: socket.socket | None = None
        try:
            connection.settimeout(_CONNECT_S)
            asked, rest = _read_head(connection)
            upstream, passed_on, answer = self._connected(asked)
            if self._keeps(upstream):
                if answer:
                    connection.sendall(answer)
                upstream.sendall(passed_on + rest)
                _relay(connection, upstream)
        except Refused as error:
            said = f"handrail: {error.why}\n".encode()
            first = f"HTTP/1.1 {error.status}\r\nContent-Length: {len(said)}\r\n"
            with contextlib.suppress(OSError):
                connection.sendall(f"{first}Connection: close\r\n\r\n".encode() + said)
        except (OSError, ValueError):
            pass
        finally:
            for end in filter(None, (connection, upstream)):
                with self._lock:
                    self._open.discard(end)
                end.close()
            room.release()

    def _connected(self, head: bytes) -> tuple[socket.socket, bytes, bytes]:
        """The connection to what a request's head asks for, what to send there, and back, first."""
        line, _, fields = head.partition(b"\r\n")
        method, target, version = line.decode("latin-1").split(" ", 2)
        if method == "CONNECT":
            host, port = _name_and_port(target)
            upstream = self._to(host, port or 443)
            return upstream, b"", b"HTTP/1.1 200 Connection established\r\n\r\n"
        url = urlsplit(target)
        if url.scheme != "http" or not url.hostname:
            raise Refused("400 Bad Request", f"no address of the web: {target[:200]}")
        upstream = self._to(url.hostname, url.port or 80)
        path = url.path or "/"
        asked = f"{method} {path}{'?' + url.query if url.query else ''} {version}\r\n"
        asked += f"Host: {url.netloc.rpartition('@')[2]}\r\nConnection: close\r\n"
        kept = (
            field + b"\r\n"
            for field in fields.split(b"\r\n")
            if field and field.split(b":")[0].strip().lower() not in _OF_ONE_HOP
        )
        return upstream, asked.encode("latin-1") + b"".join(kept) + b"\r\n", b""

    def _to(self, host: str, port: int) -> socket.socket:
        if not self.allows(host, port):
            self.refused.append(f"{host}:{port}")
            raise Refused("403 Forbidden", f"{host}:{port} is not among the hosts of this step")
        try:
            return socket.create_connection((host, port), _CONNECT_S)
        except OSError as error:
            raise Refused("502 Bad Gateway", f"{host}:{port}: {error}") from None


_OF_ONE_HOP = frozenset({
    b"host", b"connection", b"proxy-connection", b"proxy-authorization", b"keep-alive",
})  # fmt: skip


def _name_and_port(host: str) -> tuple[str, int | None]:
    """The name and the port in ``host``, ``host:port``, ``[address]:port``."""
    name, colon, port = host.rpartition(":")
    if colon and port.isdigit() and (":" not in name or name.endswith("]")):
        return name.strip("[]").rstrip("."), int(port)
    return host.strip("[]").rstrip("."), None


def _read_head(connection: socket.socket) -> tuple[bytes, bytes]:
    """The head of a request or an answer, and what has come of the rest."""
    got = b""
    while b"\r\n\r\n" not in got:
        part = connection.recv(_CHUNK_BYTES)
        if not part or len(got) > _HEAD_BYTES:
            raise OSError("no head of a request")
        got += part
    head, _, rest = got.partition(b"\r\n\r\n")
    return head, rest


def _relay(one: socket.socket, other: socket.socket) -> None:
    """Move bytes both ways until both sides have ended, or nothing moves any more."""
    to = {one: other, other: one}
    for end in to:
        end.settimeout(_IDLE_S)
    reading = set(to)
    while reading:
        ready, _, _ = select.select(list(reading), [], [], _IDLE_S)
        if not ready:
            return
        for end in ready:
            data = end.recv(_CHUNK_BYTES)
            if data:
                to[end].sendall(data)
                continue
            reading.discard(end)
            with contextlib.suppress(OSError):
                to[end].shutdown(socket.SHUT_WR)


def listener_words(python: str, proxy: Proxy) -> list[str]:
    """The words before a command that has the proxy's socket made inside of its launch."""
    os.set_inheritable(proxy.theirs.fileno(), True)  # noqa: FBT003
    return [python, "-I", "-S", "-c", LISTENER, str(proxy.theirs.fileno())]
