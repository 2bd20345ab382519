"""The items of a turn of codex: messages, reasoning, tools and compactions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from handrail.agents.transport.loose_json import (
    Object,
    list_in,
    object_in,
    objects_in,
    text_in,
    whole_in,
)
from handrail.agents.transport.parser import Ending
from handrail.agents.transport.programs import CODEX
from handrail.agents.transport.turn_state import TurnState
from handrail.model.events import AgentCompaction, AgentMessage, AgentReasoning, AgentRetry, Notice
from handrail.model.launch import AgentError
from handrail.ports.agent import AgentTurn

Described: TypeAlias = "tuple[str, Any]"
"""A tool's name and its input."""
NETWORK_WAITS = 12
"""How often codex may report that it waits for a network before handrail ends the turn: about three
minutes. Codex never gives up by itself, and while it reports this it is not silent."""
_COMPACTIONS = frozenset({"contextCompaction", "compaction"})
RETRY = re.compile(
    r"^Reconnecting(?:\.{3}|\u2026)\s*(?:(?P<number>\d{1,9})\s*/\s*\d+)?\s*(?P<why>.*)$", re.DOTALL
)
"""Codex's announcement of a retry: which retry it is, and why."""
_DELAY = re.compile(r"try again in (\d{1,9}(?:\.\d{1,9})?)\s*(ms|s)\b", re.IGNORECASE)


class CodexTurn(TurnState):
    """What is known of a turn of codex. Mutable.

    Texts are reported whole, once complete. For texts never completed, the pieces that arrived are
    reported at the end. The answer is the last text that codex marked as final, or else the last.
    """

    def __init__(self, turn: AgentTurn, *, backend: str = "", model: str | None = None) -> None:
        super().__init__(turn, CODEX, backend=backend, model=model)
        self.asked_about: set[str] = set()
        """Items known to be allowed or denied."""
        self.context_tokens: int | None = None
        self._pieces: dict[str, list[str]] = {}
        self._thoughts: dict[str, list[str]] = {}
        self._done: set[str] = set()
        self._texts: set[str] = set()
        self._is_final = False
        self._network_waits = 0
        self._compacting_from: int | None = None
        self._compactions = 0

    @property
    def is_offline(self) -> bool:
        """True once codex has waited for a network in vain."""
        return self._network_waits >= NETWORK_WAITS

    def unfinished(self, ending: Ending, kind: Any = None) -> AgentError:
        """A turn that codex did not end; ``transient`` if it waited for a network in vain."""
        if ending.stopped is None and self.is_offline:
            return self.error("transient", f"codex reaches no network: {self.complaint}")
        return super().unfinished(ending, kind)

    # -- items -----------------------------------------------------------------------------------

    def item_started(self, item: Object) -> Iterator[Notice]:
        """The notices of an item's start; only tools and compactions have one."""
        self._network_waits = 0
        item_id, kind = text_in(item, "id"), text_in(item, "type")
        if kind in _COMPACTIONS:
            self._compacting_from = self.context_tokens
            yield AgentCompaction(self.path, "started", before_tokens=self._compacting_from)
        elif kind in _TOOLS:
            yield from self.tool_started(item_id, *_TOOLS[kind](item))

    def piece(self, item_id: str, text: str) -> None:
        """Keep a piece of an item's text, in case the whole text never arrives."""
        self._network_waits = 0
        if item_id not in self._done:
            self._pieces.setdefault(item_id, []).append(text)

    def thought(self, item_id: str, text: str) -> None:
        """Keep a piece of an item's reasoning, in case the item's end does not have the whole."""
        if item_id not in self._done:
            self._thoughts.setdefault(item_id, []).append(text)

    def item_completed(self, item: Object) -> Iterator[Notice]:
        """The notices of an item's end; a tool without a start gets one first."""
        self._network_waits = 0
        item_id, kind = text_in(item, "id"), text_in(item, "type")
        if kind in _COMPACTIONS:
            self._compactions += 1
            yield self._compaction_notice()
            return
        if item_id and item_id in self._done:
            return
        pieces = "".join(self._pieces.pop(item_id, []))
        if kind == "agentMessage":
            yield from self._say(text_in(item, "text") or pieces, text_in(item, "phase"))
        elif kind == "reasoning":
            pieces = "".join(self._thoughts.pop(item_id, []))
            if thought := _thought_text(item) or pieces:
                yield AgentReasoning(self.path, thought)
        elif kind in _TOOLS:
            if not self.tool_of(item_id):
                yield from self.item_started(item)
            yield from self._tool_done(item_id, item)
        if item_id:
            self._done.add(item_id)

    def items_ended(self, items: list[Object]) -> Iterator[Notice]:
        """Notices of messages that only the turn's own list of items has, and of incomplete texts.
        A reported text is not repeated under another id, or none.
        """
        for item in items:
            if text_in(item, "type") == "agentMessage" and text_in(item, "text") not in self._texts:
                yield from self.item_completed(item)
        for item_id in list(self._pieces):
            self._done.add(item_id)
            text = "".join(self._pieces.pop(item_id))
            yield from self._say("" if text in self._texts else text, "")
        self.close_tools()

    def thread_compacted(self) -> Iterator[Notice]:
        """The notice that older versions send instead of the item; newer ones send both."""
        if self._compactions:
            self._compactions -= 1
        else:
            yield self._compaction_notice()

    def retried(self, message: str, why: str, attempt: str | None) -> AgentRetry:
        """The notice of a retry of codex's, for the network or after the delay that it names."""
        self._network_waits += "waiting for network" in message
        found = _DELAY.search(why)
        unit_s = 0.001 if found and found[2].lower() == "ms" else 1.0
        delay_s = float(found[1]) * unit_s if found else None
        self.extra_silence_s = delay_s or 0.0
        return AgentRetry(self.path, int(attempt) if attempt else None, delay_s, why)

    def _say(self, text: str, phase: str) -> Iterator[Notice]:
        is_final = phase == "final_answer"
        if text:
            self._texts.add(text)
            if is_final or not self._is_final:
                self.text, self._is_final = text, is_final
            yield AgentMessage(self.path, text)

    def _tool_done(self, item_id: str, item: Object) -> Iterator[Notice]:
        status, code = text_in(item, "status"), whole_in(item, "exitCode")
        is_ok = status in ("", "completed") and not code and item.get("success") is not False
        is_ok = is_ok and not item.get("error")
        if status == "declined" and item_id not in self.asked_about:  # declined without asking
            self.asked_about.add(item_id)
            yield self.denied(self.tool_of(item_id), text_in(item, "command"))
        if is_ok and item.get("type") == "fileChange":
            paths = (text_in(change, "path") for change in objects_in(item, "changes"))
            self.files_changed.update(dict.fromkeys(filter(None, paths)))
        yield from self.tool_ended(item_id, is_ok=is_ok, output=_output(item), code=code)

    def _compaction_notice(self) -> Notice:
        before, after = self._compacting_from, self.context_tokens
        self._compacting_from = None
        return AgentCompaction(
            self.path,
            "completed",
            before_tokens=before,
            after_tokens=after if after != before else None,
        )


def _thought_text(item: Object) -> str:
    summary = [one for one in list_in(item, "summary") if isinstance(one, str)]
    content = [one for one in list_in(item, "content") if isinstance(one, str)]
    return "\n\n".join(summary or content) or text_in(item, "text")


def _output(item: Object) -> str:
    """A tool's output as text."""
    error = object_in(item, "error")
    output = (
        text_in(item, "aggregatedOutput") or text_in(error, "message") or text_in(item, "error")
    )
    if output:
        return output
    parts = objects_in(object_in(item, "result"), "content") or objects_in(item, "contentItems")
    return "\n".join(filter(None, (text_in(part, "text") for part in parts)))


def _command(item: Object) -> Described:
    cwd = text_in(item, "cwd")
    return "shell", {"command": text_in(item, "command"), **({"cwd": cwd} if cwd else {})}


def _change(item: Object) -> Described:
    return "apply_patch", {"changes": list_in(item, "changes")}


def _mcp(item: Object) -> Described:
    name = ".".join(filter(None, (text_in(item, "server"), text_in(item, "tool"))))
    return name or "mcp", item.get("arguments")


def _dynamic(item: Object) -> Described:
    return text_in(item, "tool") or "tool", item.get("arguments")


def _collab(item: Object) -> Described:
    arguments = {
        name: item[name] for name in ("prompt", "receiverThreadIds", "model") if item.get(name)
    }
    return text_in(item, "tool") or "agent", arguments


def _search(item: Object) -> Described:
    arguments = {"query": text_in(item, "query"), "action": item.get("action")}
    return "web_search", {name: value for name, value in arguments.items() if value is not None}


def _image(item: Object) -> Described:
    return "view_image", {"path": text_in(item, "path")}


def _as_type(item: Object) -> Described:
    return text_in(item, "type"), None


_TOOLS: dict[str, Callable[[Object], Described]] = {
    "commandExecution": _command,
    "fileChange": _change,
    "mcpToolCall": _mcp,
    "dynamicToolCall": _dynamic,
    "collabAgentToolCall": _collab,
    "collabToolCall": _collab,
    "webSearch": _search,
    "imageView": _image,
    "imageGeneration": _as_type,
    "sleep": _as_type,
}
