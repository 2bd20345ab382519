"""The items of a codex thread, as ``codex exec --json`` prints them, as notices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from handrail.agents.programs.loose_json import (
    Object,
    list_in,
    object_in,
    objects_in,
    text_in,
    whole_in,
)
from handrail.model.events import (
    AgentCompaction,
    AgentMessage,
    AgentPermission,
    AgentReasoning,
    AgentToolCompleted,
    AgentToolStarted,
    Notice,
)

_TOOLS = frozenset(
    {"command_execution", "file_change", "mcp_tool_call", "collab_tool_call", "web_search"}
)
_COMPACTIONS = frozenset({"context_compaction", "compaction"})
_BAD = frozenset({"failed", "declined", "errored", "error", "cancelled", "interrupted"})


class ExecItems:
    """Reads items. Mutable: remembers the last message and the tools at work."""

    def __init__(self, path: str) -> None:
        self.message = ""
        self.denials: list[str] = []
        self.files_changed: dict[str, None] = {}  # in the order of their first change
        self._path = path
        self._open: set[str] = set()
        self._done: set[str] = set()

    @property
    def open_tools(self) -> int:
        """How many tools were begun and have not ended."""
        return len(self._open)

    def close(self) -> None:
        """The turn is over, and so is whatever did not say so."""
        self._open.clear()

    def read(self, phase: str, item: Object) -> Iterator[Notice]:
        """What an item means that is ``started``, ``updated`` or ``completed``."""
        ref, kind = text_in(item, "id"), text_in(item, "type")
        if kind in _TOOLS:
            return self._tool(phase, ref, kind, item)
        if kind in _COMPACTIONS and phase != "updated":
            return iter((AgentCompaction(self._path, _phase(phase)),))
        if phase != "completed" or ref in self._done:
            return iter(())
        self._is_done(ref)
        return self._said(kind, text_in(item, "text"))

    def _is_done(self, ref: str) -> None:
        if ref:
            self._done.add(ref)

    def _said(self, kind: str, said: str) -> Iterator[Notice]:
        if not said:
            return
        if kind == "agent_message":
            self.message = said
            yield AgentMessage(self._path, said)
        elif kind == "reasoning":
            yield AgentReasoning(self._path, said)

    def _tool(self, phase: str, ref: str, kind: str, item: Object) -> Iterator[Notice]:
        if ref in self._done:
            return
        name = _tool_name(kind, item)
        if ref not in self._open:
            self._open.add(ref)
            yield AgentToolStarted(self._path, ref, name, _tool_input(kind, item))
        if phase != "completed":
            return
        self._open.discard(ref)
        self._is_done(ref)
        yield from self._ended(ref, kind, name, item)

    def _ended(self, ref: str, kind: str, name: str, item: Object) -> Iterator[Notice]:
        status, code = text_in(item, "status"), whole_in(item, "exit_code")
        is_ok = status not in _BAD and code in (None, 0) and not item.get("error")
        if status == "declined":
            self.denials.append(name)
            yield AgentPermission(self._path, name, "denied", text_in(item, "command"))
        if kind == "file_change" and is_ok:
            paths = (text_in(change, "path") for change in objects_in(item, "changes"))
            self.files_changed.update(dict.fromkeys(path for path in paths if path))
        yield AgentToolCompleted(self._path, ref, name, is_ok, _tool_output(item), code)


def _phase(phase: str) -> Any:
    return "completed" if phase == "completed" else "started"


def _tool_name(kind: str, item: Object) -> str:
    """The name that ``codex app-server`` items have here too."""
    match kind:
        case "command_execution":
            return "shell"
        case "file_change":
            return "apply_patch"
        case "mcp_tool_call":
            parts = (text_in(item, "server"), text_in(item, "tool"))
            return ".".join(part for part in parts if part) or kind
        case _:
            return text_in(item, "tool") or kind


def _tool_input(kind: str, item: Object) -> Any:
    match kind:
        case "command_execution":
            return {"command": text_in(item, "command")}
        case "file_change":
            return {"changes": list_in(item, "changes")}
        case "mcp_tool_call":
            return item.get("arguments")
        case "web_search":
            return {"query": text_in(item, "query")}
        case _:
            return {"prompt": text_in(item, "prompt")}


def _tool_output(item: Object) -> str:
    if output := text_in(item, "aggregated_output"):
        return output
    if error := text_in(object_in(item, "error"), "message") or text_in(item, "error"):
        return error
    blocks = objects_in(object_in(item, "result"), "content")
    return "\n".join(text_in(block, "text") for block in blocks).strip()
