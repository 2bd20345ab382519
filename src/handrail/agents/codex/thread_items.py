"""What codex did in a turn, item by item: what it said, thought, ran and changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from handrail.agents.programs.loose_json import (
    Object,
    list_in,
    object_in,
    objects_in,
    text_in,
    whole_in,
)
from handrail.model.events import (
    AgentMessage,
    AgentReasoning,
    AgentToolCompleted,
    AgentToolStarted,
    Notice,
)

Described: TypeAlias = "tuple[str, Any]"
"""A tool's name and what it was given."""


class ThreadItems:
    """The items of a turn. Mutable.

    Texts are told whole, when they are complete. Of what was never completed the pieces that came
    are told at the end.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._open: set[str] = set()
        self._pieces: dict[str, list[str]] = {}
        self._thoughts: dict[str, list[str]] = {}
        self._said: list[tuple[str, str]] = []
        self._done: set[str] = set()
        self.files_changed: dict[str, None] = {}  # in the order of their first change
        self._names: dict[str, str] = {}

    @property
    def open_tools(self) -> int:
        """How many tools are at work."""
        return len(self._open)

    @property
    def answer(self) -> str:
        """The last thing it said: of what it called its final answer, if it did."""
        final = [text for phase, text in self._said if phase == "final_answer"]
        said = final or [text for _, text in self._said]
        return said[-1] if said else ""

    def tool_of(self, item_id: str) -> str:
        """The name of the tool with this id, or an empty text."""
        return self._names.get(item_id, "")

    def started(self, item: Object) -> Iterator[Notice]:
        """What the start of an item means: only tools have one that is worth telling."""
        item_id, kind = text_in(item, "id"), text_in(item, "type")
        if kind in _TOOLS and item_id not in self._open and item_id not in self._done:
            name, given = _TOOLS[kind](item)
            self._names[item_id] = name
            self._open.add(item_id)
            yield AgentToolStarted(self._path, item_id, name, given)

    def piece(self, item_id: str, text: str) -> None:
        """Keep a piece of what an item says, in case that the whole of it never comes."""
        if item_id not in self._done:
            self._pieces.setdefault(item_id, []).append(text)

    def thought(self, item_id: str, text: str) -> None:
        """Keep a piece of what an item thinks, in case that its end does not have the whole."""
        if item_id not in self._done:
            self._thoughts.setdefault(item_id, []).append(text)

    def completed(self, item: Object) -> Iterator[Notice]:
        """What the end of an item means; one that had no start gets one."""
        item_id, kind = text_in(item, "id"), text_in(item, "type")
        if item_id and item_id in self._done:
            return
        pieces = "".join(self._pieces.pop(item_id, []))
        if kind == "agentMessage":
            yield from self._say(text_in(item, "text") or pieces, text_in(item, "phase"))
        elif kind == "reasoning":
            pieces = "".join(self._thoughts.pop(item_id, []))
            if thought := _thought(item) or pieces:
                yield AgentReasoning(self._path, thought)
        elif kind in _TOOLS:
            yield from self.started(item)
            yield self._tool_done(item_id, item)
        if item_id:
            self._done.add(item_id)

    def ended(self, items: list[Object]) -> Iterator[Notice]:
        """What the turn's own list of its items adds, and what it had begun to say. A text that
        was told is not told again under another id, or none.
        """
        told = {text for _, text in self._said}
        for item in items:
            if text_in(item, "type") == "agentMessage" and text_in(item, "text") not in told:
                yield from self.completed(item)
        told.update(text for _, text in self._said)
        for item_id in list(self._pieces):
            self._done.add(item_id)
            text = "".join(self._pieces.pop(item_id))
            yield from self._say("" if text in told else text, "")
        self._open.clear()

    def _say(self, text: str, phase: str) -> Iterator[Notice]:
        if text:
            self._said.append((phase, text))
            yield AgentMessage(self._path, text)

    def _tool_done(self, item_id: str, item: Object) -> Notice:
        self._open.discard(item_id)
        status = text_in(item, "status")
        code = whole_in(item, "exitCode")
        is_ok = status in ("", "completed") and not code and item.get("success") is not False
        if is_ok and item.get("type") == "fileChange":
            self.files_changed.update(dict.fromkeys(_paths(item)))
        return AgentToolCompleted(
            self._path, item_id, self._names[item_id], is_ok, _output(item), code
        )


def _thought(item: Object) -> str:
    summary = [one for one in list_in(item, "summary") if isinstance(one, str)]
    content = [one for one in list_in(item, "content") if isinstance(one, str)]
    return "\n\n".join(summary or content) or text_in(item, "text")


def _paths(item: Object) -> Iterator[str]:
    yield from filter(None, (text_in(change, "path") for change in objects_in(item, "changes")))


def _output(item: Object) -> str:
    """What a tool gave back, as text."""
    error = text_in(object_in(item, "error"), "message")
    parts = objects_in(object_in(item, "result"), "content") or objects_in(item, "contentItems")
    texts = [text_in(part, "text") for part in parts]
    return text_in(item, "aggregatedOutput") or error or "\n".join(filter(None, texts))


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
    told = {name: item[name] for name in ("prompt", "receiverThreadIds", "model") if item.get(name)}
    return text_in(item, "tool") or "agent", told


def _search(item: Object) -> Described:
    return "web_search", {"query": text_in(item, "query"), "action": item.get("action")}


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
