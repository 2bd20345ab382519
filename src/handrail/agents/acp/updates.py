"""What ``session/update`` tells of a turn, as notices, and the answer that comes of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from handrail.agents.acp.agents import UNKNOWN
from handrail.agents.acp.tools import Tools
from handrail.agents.programs.loose_json import Object, object_in, text_in
from handrail.model.events import (
    AgentCompaction,
    AgentMessage,
    AgentReasoning,
    AgentRetry,
    Notice,
)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of what was said; ``message`` is the id of the message that it belongs to."""

    text: str
    message: str = ""


class Updates:
    """What was told in a turn. Mutable.

    Texts come in chunks; they are told as whole blocks, which end where something else begins.
    What an agent says beside its model (see ``Manners.aside``) is no part of the answer.
    """

    def __init__(self, path: str) -> None:
        self.tools = Tools(path)
        self.manners = UNKNOWN
        self.has_marked = False
        self.calls = 0
        self.network_waits = 0
        self._path = path
        self._block: tuple[str, str] = ("", "")
        self._parts: list[str] = []
        self._said: dict[str, str] = {}
        self._unnamed = 0

    @property
    def answer(self) -> str:
        """The last message, also if it is not over."""
        begun, _ = self.last_words
        said = self._said.get(self._block[1], "") if begun else ""
        return said + begun or next(reversed(self._said.values()), "")

    @property
    def last_words(self) -> tuple[str, str]:
        """What was said last and is not over: the whole of it, and its last chunk."""
        is_message = self._block[0] == "agent_message_chunk"
        return ("".join(self._parts), self._parts[-1]) if is_message and self._parts else ("", "")

    @property
    def is_unmarked(self) -> bool:
        """True if what was said last belongs to no message."""
        return not self._block[1]

    def withdraw(self, words: str) -> None:
        """These last words are no part of the answer: it was not the model that said them."""
        said = "".join(self._parts)
        if words and said.endswith(words):
            self._parts = [said.removesuffix(words)]

    def read(self, update: Object) -> Iterator[Notice]:
        """What an update means; most kinds mean nothing."""
        kind = text_in(update, "sessionUpdate")
        if kind.startswith(("agent_", "tool_")):
            self.network_waits = 0
        match kind:
            case "agent_message_chunk" | "agent_thought_chunk":
                yield from self._chunk(kind, update)
            case "tool_call" | "tool_call_update":
                yield from self.flush()
                self.calls += kind == "tool_call"
                yield from self.tools.read(update, is_first=kind == "tool_call")
            case "session_info_update":
                yield from self._retried(update)
            case _:
                pass

    def flush(self) -> Iterator[Notice]:
        """The block that was being said, which ends here."""
        (kind, message), text = self._block, "".join(self._parts)
        self._block = ("", "")
        self._parts = []
        if not text:
            return
        if kind == "agent_thought_chunk":
            yield AgentReasoning(self._path, text)
            return
        if not message:
            self._unnamed += 1
        name = message or f" {self._unnamed}"
        self._said[name] = self._said.pop(name, "") + text
        yield AgentMessage(self._path, text)

    def _chunk(self, kind: str, update: Object) -> Iterator[Notice]:
        chunk = Chunk(text_in(object_in(update, "content"), "text"), text_in(update, "messageId"))
        if not chunk.text:
            return
        if kind == "agent_message_chunk":
            if self._is_aside(chunk):
                yield from self.flush()
                yield from self._aside(chunk.text)
                return
            self.has_marked = self.has_marked or bool(chunk.message)
        if self._block != (kind, chunk.message):
            yield from self.flush()
            self._block = (kind, chunk.message)
        self._parts.append(chunk.text)

    def _is_aside(self, chunk: Chunk) -> bool:
        if self.manners.marks_messages and chunk.message:
            return False
        return self.manners.aside.fullmatch(chunk.text) is not None

    def _aside(self, text: str) -> Iterator[Notice]:
        if "etrying" in text:
            yield AgentRetry(self._path, reason=text.strip())
        elif text.strip().startswith("Compacting"):
            yield AgentCompaction(
                self._path, "completed" if text.strip().endswith("completed.") else "started"
            )

    def _retried(self, update: Object) -> Iterator[Notice]:
        """What codex-acp passes on of a request that is tried again."""
        error = object_in(object_in(object_in(update, "_meta"), "codex"), "error")
        if error.get("willRetry") is True:
            self.network_waits += "waiting for network" in text_in(error, "message")
            yield AgentRetry(self._path, reason=text_in(error, "additionalDetails", "message"))
