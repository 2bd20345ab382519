"""JSON-RPC 2.0 between equals, one message a line: matches answers to requests.

Both sides send requests, answers and notifications. ``Peer`` builds messages to send and classifies
received ones; it does no I/O. It is as lenient as programs are: it accepts replies without
``"jsonrpc"`` (codex), ids that come back as text, and unknown members.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ClassVar, Protocol, TypeAlias

from handrail.agents.transport.loose_json import (
    NOTHING,
    Object,
    as_object,
    object_in,
    object_of,
    text_in,
    whole_in,
)
from handrail.agents.transport.parser import TurnReader
from handrail.agents.transport.programs import Program
from handrail.agents.transport.turn import Transport
from handrail.agents.transport.turn_state import TurnState
from handrail.model.dataclass import dataclass
from handrail.model.events import Notice
from handrail.ports.agent import AgentTurn
from handrail.system.live import Line

METHOD_NOT_FOUND = -32601
REFUSED = frozenset({-32700, -32600, METHOD_NOT_FOUND, -32602})
"""Error codes for requests that were not understood, so that repeating them will not help."""

Message: TypeAlias = dict[str, Any]
"""A JSON-RPC message to send."""


@dataclass(frozen=True, slots=True)
class RpcError:
    """The error that the other side answered a request with."""

    message: str
    code: int | None = None
    data: Any = None


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to our request ``id`` of ``method``: its ``result``, or an ``error``."""

    id: int
    method: str
    result: Object
    error: RpcError | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """A request of the other side, under its own id; the other side waits for an answer."""

    id: Any
    method: str
    params: Object


@dataclass(frozen=True, slots=True)
class Notification:
    """A message of the other side that expects no answer."""

    method: str
    params: Object


Received: TypeAlias = Reply | Request | Notification


class Peer:
    """Our side of a conversation: numbers our requests and matches the answers. Mutable."""

    __slots__ = ("_asked", "_last")

    def __init__(self) -> None:
        self._asked: dict[int, str] = {}
        self._last = 0

    def request(self, method: str, params: Mapping[str, Any]) -> Message:
        """A new request; ``parse`` will recognise its answer by the id."""
        self._last += 1
        self._asked[self._last] = method
        return {"jsonrpc": "2.0", "id": self._last, "method": method, "params": dict(params)}

    def parse(self, message: Object) -> Received | None:
        """The message as a reply, a request or a notification. None if it is none of these, or if
        it answers no request of ours.
        """
        method, number = message.get("method"), message.get("id")
        if not isinstance(method, str):
            return self._answer(message)
        params = object_in(message, "params")
        return Notification(method, params) if number is None else Request(number, method, params)

    def _answer(self, message: Object) -> Reply | None:
        asked = _our_id(message)
        if asked not in self._asked or not ("result" in message or "error" in message):
            return None
        method = self._asked.pop(asked)
        if message.get("error") is None:
            return Reply(asked, method, object_in(message, "result"))
        return Reply(asked, method, NOTHING, _error(message))


def notification(method: str, params: Mapping[str, Any] | None = None) -> Message:
    """A message that expects no answer."""
    message: Message = {"jsonrpc": "2.0", "method": method}
    return message if params is None else {**message, "params": dict(params)}


def answer(request: Request, result: Any) -> Message:
    """The answer to a request of the other side."""
    return {"jsonrpc": "2.0", "id": request.id, "result": result}


def refusal(request: Request, message: str, code: int = METHOD_NOT_FOUND) -> Message:
    """The error that answers a request of the other side."""
    return {"jsonrpc": "2.0", "id": request.id, "error": {"code": code, "message": message}}


def encode(message: Message) -> bytes:
    """A message as a line, with its newline. Lone surrogates, which have no UTF-8, become ``?``:
    a program that cannot read a message would not even say so.
    """
    line = json.dumps(message, separators=(",", ":"), ensure_ascii=False)
    return line.encode("utf-8", "replace") + b"\n"


def _our_id(message: Object) -> int:
    """The id of an answer, as we number requests; 0, which no request has, for anything else."""
    given = text_in(message, "id")
    if given.isascii() and given.isdigit() and len(given) < 10:
        return int(given)
    return whole_in(message, "id") or 0


def _error(message: Object) -> RpcError:
    """The error of an answer, even if it is just a text."""
    error = object_in(message, "error")
    said = text_in(error, "message") or text_in(message, "error") or "it gave no reason"
    return RpcError(said, whole_in(error, "code"), error.get("data"))


# A conversation with a program for one turn: messages in, notices and messages out.
#
# Dialogues do no I/O and read no clock, like parsers (see ``parser``); but they also return
# messages to send. Their caller sends these, in order.


Outgoing: TypeAlias = Iterator[Notice | Message]
"""Notices to emit, and messages (the dicts) to send."""


class Dialogue(TurnReader, Protocol):
    """Our side of one turn, which is a conversation of messages."""

    def start(self) -> list[Message]:
        """The messages to send first."""
        ...

    def on_message(self, message: object, /) -> Iterable[Notice | Message]:
        """The notices of a message, and the messages to send because of it. Never raises."""
        ...

    def interrupt(self) -> list[Message]:
        """The messages that end the turn early; none if the protocol has none at this point."""
        ...


class RpcTurn(TurnState, ABC):
    """Our side of a turn that is a conversation. Mutable."""

    def __init__(
        self, turn: AgentTurn, program: Program, *, backend: str = "", model: str | None = None
    ) -> None:
        super().__init__(turn, program, backend=backend, model=model)
        self.peer = Peer()

    def on_message(self, message: object, /) -> Outgoing:
        """The notices of a message, and the messages to send because of it. Never raises."""
        received = self.peer.parse(as_object(message))
        self.saw_protocol = self.saw_protocol or received is not None
        match received:
            case Reply(method=method, error=error):
                yield from (
                    self.on_reply(received) if error is None else self.on_error(method, error)
                )
            case Request():
                yield from self.on_request(received)
            case Notification():
                yield from self.on_notification(received.method, received.params)
            case None:
                pass

    @abstractmethod
    def on_reply(self, reply: Reply) -> Outgoing:
        """Notices and messages that follow from the result of our request."""

    @abstractmethod
    def on_error(self, method: str, error: RpcError) -> Outgoing:
        """Notices and messages that follow from the error that answered our request."""

    @abstractmethod
    def on_request(self, request: Request) -> Outgoing:
        """Notices and messages that follow from a request of the program."""

    @abstractmethod
    def on_notification(self, method: str, params: Object) -> Outgoing:
        """Notices and messages that follow from a notification of the program."""


@cache
def own_version() -> str:
    """This library's version, which it sends to programs in its greeting."""
    try:
        return version("handrail")
    except PackageNotFoundError:  # run from its sources
        return "0"


@dataclass(frozen=True, slots=True)
class Messages(Transport):
    """The transport of a dialogue: messages go both ways, until the program's stdin is closed."""

    reader: Dialogue
    stdin: None = None
    interrupt_s: ClassVar[float] = 3.0
    """codex needs 0.01 s."""

    def start(self) -> Iterable[bytes]:
        """The messages to send first."""
        return map(encode, self.reader.start())

    def on_line(self, line: Line, /) -> tuple[Iterable[Notice], Iterable[bytes]]:
        """The notices of a line's message, and the lines to send in reply."""
        if line.stream == "stderr":
            return (), ()
        said = list(self.reader.on_message(object_of(line.data)))
        notices = [one for one in said if not isinstance(one, dict)]
        return notices, [encode(one) for one in said if isinstance(one, dict)]

    def interrupt(self) -> Sequence[bytes]:
        """The messages that end the turn early."""
        return [encode(message) for message in self.reader.interrupt()]
