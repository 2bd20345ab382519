"""The program's side of a conversation in JSON-RPC lines."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any, TypeAlias

from handrail.testing.fake_programs.launch import Entry, Launch
from handrail.testing.fake_programs.output import Ended, has_input

Message: TypeAlias = dict[str, Any]


class Stopped(Exception):
    """The client stopped the turn."""


class Peer:
    """Exchanges messages with the client. Mutable."""

    def __init__(
        self, launch: Launch, on_message: Callable[[Message], None], *, version: bool
    ) -> None:
        """``on_message`` gets each message; ``version``: sent messages say ``"jsonrpc": "2.0"``."""
        self._launch = launch
        self._on_message = on_message
        self._head: Message = {"jsonrpc": "2.0"} if version else {}
        self._rest = b""
        self._waiting: list[Message] = []
        self._asked = 0
        self._answers: dict[int, Message] = {}

    def serve(self) -> int:
        """Handle messages until the client closes.

        Raises:
            Ended: the client closed, or the script is used up.
        """
        if reason := self._launch.used_up:
            raise Ended(1, reason)
        while True:
            while self._waiting:
                self._on_message(self._waiting.pop(0))
            self._read_lines()

    def wait(self, seconds: float, until: Callable[[Message], bool] = lambda _: False) -> bool:
        """Be silent for so long; True as soon as a message comes for which ``until`` is true.

        Other messages are kept for later.
        """
        end = time.monotonic() + seconds
        seen = 0
        while True:
            while seen < len(self._waiting):
                if until(self._waiting[seen]):
                    self._waiting.pop(seen)
                    return True
                seen += 1
            left = end - time.monotonic()
            if left <= 0:
                return False
            if has_input((0,), left):
                self._read_lines()

    def next_act(self, message: Message, code: int) -> Entry | None:
        """The act for a prompt; if the script is used up, refuses the prompt with this code."""
        entry = self._launch.take()
        if entry is None:
            reason = self._launch.used_up or ""
            self._launch.out.error(reason + "\n")
            self.refuse(message, code, reason)
        return entry

    def answer(self, message: Message, result: object) -> None:
        """Answer a request."""
        self._send({"id": message["id"], "result": result})

    def refuse(self, message: Message, code: int, reason: str, data: object = None) -> None:
        """Answer a request with an error."""
        error: Message = {"code": code, "message": reason}
        if data is not None:
            error["data"] = data
        self._send({"id": message["id"], "error": error})

    def tell(self, method: str, params: object, **more: Any) -> None:
        """Send a notification."""
        self._send({"method": method, "params": params, **more})

    def ask(self, method: str, params: object) -> tuple[int, Message]:
        """Send a request; its id and the client's answer, which is ``{}`` if none comes."""
        number, self._asked = self._asked, self._asked + 1
        self._send({"id": number, "method": method, "params": params})
        found: list[Message] = []

        def is_answer(message: Message) -> bool:
            if message.get("id") != number or "method" in message:
                return False
            found.append(message)
            return True

        self.wait(60.0, is_answer)
        return number, found[0] if found else {}

    def _send(self, message: Message) -> None:
        self._launch.out.line({**self._head, **message})

    def _read_lines(self) -> None:
        has_input((0,))  # unlike a read, it lets a signal in
        part = os.read(0, 65536)
        if not part:
            raise Ended(0)
        self._launch.stdin += part
        *lines, self._rest = (self._rest + part).split(b"\n")
        self._waiting += [json.loads(line) for line in lines if line.strip()]
