"""A hub on its sockets: takes messages, stores each reaction's records, then sends its outputs.

Theory of operation. One event loop has the hub, its file and all sockets, so inputs are handled one
at a time. A reaction waits until the loop's next turn. By then the loop has handled the other
messages that had arrived: one transaction stores the records of all of them, and each socket gets
one write. So no client hears what a crash could take back, and a hundred clients cost as many
commits as one.

Unsent data for a slow client waits in its socket's buffer. Above ``BEHIND`` bytes the server stops
reading the client's messages and leaves chats out (it tells the client, which can ask for them).
Above ``LOST`` bytes it drops the connection. Other clients do not wait for a slow one.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import signal
import socket
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from handrail.coordination.hub.hub import Hub
from handrail.coordination.hub.records import Put
from handrail.coordination.hub.state import Close, Output, Reaction
from handrail.coordination.store import HubStore
from handrail.errors import MissingExtra
from handrail.model.dataclass import dataclass

try:
    from websockets.asyncio.server import Server, ServerConnection, serve
    from websockets.exceptions import ConnectionClosed
    from websockets.frames import Frame, Opcode
    from websockets.protocol import State
except ImportError as error:
    raise MissingExtra("The hub", "websockets", "hub") from error

CAPACITY = 4013
DENIED = 4010
BEHIND = 1024 * 1024
LOST = 8 * 1024 * 1024
PING_S = 15.0
FIRST_S = 10.0
"""How long a socket may take to show its token."""
IN_A_ROW = 8
TURN_S = 0.001
"""The most messages of one socket, and the longest time, before other sockets have a turn."""
LEAVE_S = 2.0
"""How long the sockets may take to close when the hub ends."""
MOST_TOLD = 20
_LOOK_S = 60.0
_log = logging.getLogger("handrail.hub")
_log.propagate = False  # clients' protocol errors do not belong in this process's log
_log.addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The server's limits: clients at once, bytes of a message."""

    clients: int = 64
    message_bytes: int = 1024 * 1024


def run_hub(
    hub: Hub,
    sockets: Sequence[socket.socket],
    *,
    store: HubStore | None = None,
    relay: RelayLog | None = None,
    limits: Limits | None = None,
    ready: Callable[[], None] = lambda: None,
    tell: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve a hub on sockets that listen, until SIGTERM or Ctrl-C.

    It calls ``ready`` when clients can connect, and ``tell`` with the traceback of an error in the
    hub's code, each traceback once.

    Raises:
        HubFailed: a write to the store failed; clients were told nothing that is not stored.
        OSError: the relay log cannot be written.
    """
    with contextlib.suppress(KeyboardInterrupt):
        server = _HubServer(hub, store, relay, limits=limits or Limits(), tell=tell)
        asyncio.run(server.run(sockets, ready))


class _HubServer:
    """Connects a hub to its sockets and its store. Mutable: the sockets, and unsent reactions."""

    def __init__(
        self,
        hub: Hub,
        store: HubStore | None,
        relay: RelayLog | None,
        *,
        limits: Limits,
        tell: Callable[[str], None],
    ) -> None:
        self._hub = hub
        self._store = store
        self._relay = relay
        self._limits = limits
        self._tell = tell
        self._printed: set[str] = set()
        self._connections: dict[int, ServerConnection] = {}
        # No earlier process of this hub has used these numbers: they name anonymous agents.
        self._numbers = itertools.count(time.time_ns() // 1000)
        self._unsaved: list[Put] = []
        self._unsent: list[Output] = []
        self._missed: dict[int, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._now = 0.0
        self._failed = False
        self._ended: asyncio.Future[None]
        self._loop: asyncio.AbstractEventLoop

    # -- its life ----------------------------------------------------------------------------------

    async def run(self, sockets: Sequence[socket.socket], ready: Callable[[], None]) -> None:
        """Serve until a signal, or until a write to the store or the relay log fails."""
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self._loop.add_signal_handler(number, self._end)
        servers = [await self._serve(one) for one in sockets]
        self._react(self._hub.tick(self._clock()))
        ready()
        try:
            await self._ended
        finally:
            await self._leave(servers)

    async def _serve(self, at: socket.socket) -> Server:
        return await serve(
            self._attend,
            sock=at,
            origins=[None],  # no browser pages: any website could connect through one
            compression=None,  # a broadcast would be compressed again for each socket
            max_size=self._limits.message_bytes,
            write_limit=BEHIND,
            ping_interval=PING_S,
            ping_timeout=PING_S,
            open_timeout=FIRST_S,
            close_timeout=LEAVE_S,
            server_header=None,
            logger=_log,
        )

    def _end(self, error: BaseException | None = None) -> None:
        if self._ended.done():
            return
        if error is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(error)

    async def _leave(self, servers: Sequence[Server]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._flush()
        for server in servers:
            server.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2 * LEAVE_S):
                for server in servers:
                    await server.wait_closed()

    def _clock(self) -> float:
        """The time in unix seconds, which never goes back."""
        self._now = max(self._now, time.time())
        return self._now

    # -- one socket --------------------------------------------------------------------------------

    async def _attend(self, connection: ServerConnection) -> None:
        if not self._makes_room():
            await connection.close(CAPACITY, "hub at capacity")
            return
        number = next(self._numbers)
        self._connections[number] = connection
        self._react(self._hub.on_open(number, self._clock()))
        try:
            if self._hub.state.settings.tokens is not None:
                await self._read_first(number, connection)
            await self._read(number, connection)
        except ConnectionClosed:
            pass
        finally:
            self._connections.pop(number, None)
            self._missed.pop(number, None)
            if not self._ended.done():
                self._react(self._hub.on_close(number, self._clock()))

    def _makes_room(self) -> bool:
        """True if there is room for one more socket; closes the oldest nameless one if needed."""
        if self._hub.state.roster.count() < self._limits.clients:
            return True
        least = self._hub.oldest_nameless()
        if least is not None:
            self._react(self._hub.send_away(least, CAPACITY, "hub at capacity", self._clock()))
        return least is not None

    async def _read_first(self, number: int, connection: ServerConnection) -> None:
        try:
            async with asyncio.timeout(FIRST_S):
                first = await connection.recv()
        except TimeoutError:
            reaction = self._hub.send_away(number, DENIED, "auth denied", self._clock())
            self._react(reaction)
            return
        self._react(self._hub.on_message(number, first, self._clock()))

    async def _read(self, number: int, connection: ServerConnection) -> None:
        until = self._loop.time() + TURN_S
        for count in itertools.count(1):
            data = await connection.recv()
            self._react(self._hub.on_message(number, data, self._clock()))
            if count % IN_A_ROW == 0 or self._loop.time() > until:
                await asyncio.sleep(0)
                until = self._loop.time() + TURN_S
            await connection.drain()

    # -- reactions ---------------------------------------------------------------------------------

    def _react(self, reaction: Reaction) -> None:
        idle = not self._unsaved and not self._unsent
        if idle and (reaction.records or reaction.out):
            self._loop.call_soon(self._flush)
        self._unsaved += reaction.records
        self._unsent += reaction.out
        if reaction.mistake is not None:
            self._tell_once("".join(traceback.format_exception(reaction.mistake)))
        self._set_timer()

    def _tell_once(self, text: str) -> None:
        if text not in self._printed and len(self._printed) < MOST_TOLD:
            self._printed.add(text)
            self._tell(text)

    def _flush(self) -> None:
        """Store the records of all pending reactions, then send their outputs."""
        puts, self._unsaved = self._unsaved, []
        out, self._unsent = self._unsent, []
        if self._failed:
            return
        try:
            if puts and self._store is not None:
                self._store.write(puts)
            self._send(out)
        except Exception as error:  # noqa: BLE001  # any failure ends the server
            self._failed = True
            self._end(error)

    def _set_timer(self) -> None:
        due = self._hub.next_tick()
        if due is None:
            return
        when = self._loop.time() + min(max(0.0, due - self._now), _LOOK_S)
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if not self._ended.done():
            self._react(self._hub.tick(self._clock()))

    def _send(self, outputs: Iterable[Output]) -> None:
        parcels: dict[int, list[bytes]] = {}
        for output in outputs:
            if isinstance(output, Close):
                self._write(output.socket, parcels.pop(output.socket, []))
                self._close(output)
                continue
            data = Frame(Opcode.TEXT, output.text.encode()).serialize(mask=False)
            for number in output.to:
                if not (output.spare and self._skips(number)):
                    parcels.setdefault(number, []).append(data)
            if output.public and self._relay is not None:
                self._relay.write(output.text)
        for number, parts in parcels.items():
            self._write(number, parts)
        if self._relay is not None:
            self._relay.flush()

    def _write(self, number: int, parts: list[bytes]) -> None:
        connection = self._connections.get(number)
        if connection is None or connection.state is not State.OPEN:
            return
        connection.transport.write(b"".join(parts))
        if connection.transport.get_write_buffer_size() > LOST:
            connection.transport.abort()

    def _skips(self, number: int) -> bool:
        """True if a socket is too far behind to be sent chats; counts the chat it misses."""
        connection = self._connections.get(number)
        if connection is None or connection.transport.get_write_buffer_size() <= BEHIND:
            return False
        if not self._missed:
            self._loop.call_later(1.0, self._tell_missed)
        self._missed[number] = self._missed.get(number, 0) + 1
        return True

    def _tell_missed(self) -> None:
        """Tell the sockets that have caught up how many chats they missed."""
        for number, count in list(self._missed.items()):
            connection = self._connections.get(number)
            if connection is None:
                del self._missed[number]
            elif connection.transport.get_write_buffer_size() <= BEHIND // 2:
                del self._missed[number]
                self._react(self._hub.on_missed(number, count, self._clock()))
        if self._missed:
            self._loop.call_later(1.0, self._tell_missed)

    def _close(self, close: Close) -> None:
        connection = self._connections.get(close.socket)
        if connection is not None:
            task = self._loop.create_task(connection.close(close.code, close.reason))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


class RelayLog:
    """A hub's broadcasts as lines of a file, for programs that only read along. Mutable.

    The file has the last ``most`` lines, at times up to twice as many.

    Source: the lite relay log of synapse-channel 0.32.0. A line has version, number of the chat or
    0, type, sender, target, payload, time in milliseconds, and the hub's name.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, path: Path, most: int = 5_000) -> None:
        self._path = path
        self._most = max(1, most)
        self._appended = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8")

    def write(self, text: str) -> None:
        """Add a message."""
        frame = msgspec.json.decode(text)
        line = {
            "v": 1,
            "i": frame.get("msg_id", 0),
            "ty": frame["type"],
            "s": frame["sender"],
            "to": frame.get("target", "all"),
            "p": frame.get("payload", ""),
            "t": int(frame["timestamp"] * 1000),
            "h": frame["hub_id"],
        }
        self._file.write(f"{msgspec.json.encode(line).decode()}\n")
        self._appended += 1

    def flush(self) -> None:
        """Write added messages out to readers; trims the file if it is long."""
        self._file.flush()
        if self._appended >= self._most:
            self._trim()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _trim(self) -> None:
        self._appended = 0
        lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        if len(lines) > self._most:
            self._file.close()
            self._path.write_text("".join(lines[-self._most :]), encoding="utf-8")
            self._file = self._path.open("a", encoding="utf-8")
