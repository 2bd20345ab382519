"""The tools that an agent uses, as ``session/update`` tells them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from handrail.agents.programs.loose_json import (
    Object,
    as_object,
    object_in,
    objects_in,
    text_in,
    whole_in,
)
from handrail.model.events import AgentToolCompleted, AgentToolStarted, Notice

_ENDED = frozenset({"completed", "failed", "cancelled", "rejected", "error"})
_CHANGING = frozenset({"edit", "delete", "move"})


@dataclass(slots=True)
class _Tool:
    """What is known of one call. Mutable."""

    name: str = ""
    kind: str = ""
    title: str = ""
    given: Any = None
    output: str = ""
    code: int | None = None
    paths: dict[str, None] = field(default_factory=dict[str, None])
    is_told: bool = False


class Tools:
    """The tools of a turn. Mutable.

    Some agents announce a call before they know what it is given: it is told when that is known,
    when it is asked about, or when it is at work.
    """

    def __init__(self, path: str) -> None:
        self.files_changed: dict[str, None] = {}
        self._path = path
        self._open: dict[str, _Tool] = {}
        self._ended: set[str] = set()

    @property
    def open_tools(self) -> int:
        """How many are at work."""
        return len(self._open)

    def close(self) -> None:
        """The turn is over, and so is whatever did not say so."""
        self._open.clear()

    def name_of(self, call: Object) -> str:
        """The name of the tool that a call is of, as far as it is known."""
        known = self._open.get(text_in(call, "toolCallId"))
        return _name(call) or (known.name if known else "") or text_in(call, "title") or "tool"

    def read(self, update: Object, *, is_first: bool = False) -> Iterator[Notice]:
        """What a ``tool_call`` (``is_first``), a ``tool_call_update`` or the call of a permission
        request means.
        """
        call = text_in(update, "toolCallId")
        if not call or call in self._ended:
            return
        tool = self._open.setdefault(call, _Tool())
        _learn(tool, update)
        status = text_in(update, "status")
        is_known = not is_first or bool(as_object(tool.given).keys() - {"cwd"})
        if not tool.is_told and (is_known or status not in ("", "pending")):
            tool.is_told = True
            yield AgentToolStarted(self._path, call, tool.name, tool.given or {"title": tool.title})
        if status in _ENDED:
            del self._open[call]
            self._ended.add(call)
            yield self._completed(call, tool, is_ok=status == "completed")

    def _completed(self, call: str, tool: _Tool, *, is_ok: bool) -> Notice:
        is_ok = is_ok and not tool.code
        if is_ok and tool.kind in _CHANGING:
            self.files_changed.update(tool.paths)
        return AgentToolCompleted(self._path, call, tool.name, is_ok, tool.output, tool.code)


def _learn(tool: _Tool, update: Object) -> None:
    tool.kind = text_in(update, "kind") or tool.kind
    tool.title = text_in(update, "title") or tool.title
    named = _name(update)
    if not tool.is_told:
        tool.name = named or tool.name or tool.kind or tool.title or "tool"
        tool.given = update.get("rawInput") or tool.given
    _learn_output(tool, update)
    code = _code(update)
    tool.code = tool.code if code is None else code
    for place in (*objects_in(update, "locations"), *objects_in(update, "content")):
        if path := text_in(place, "path"):
            tool.paths[path] = None


def _learn_output(tool: _Tool, update: Object) -> None:
    """Before the end ``content`` may be what is going to be done; at the end it is the output."""
    delta = text_in(object_in(object_in(update, "_meta"), "terminal_output_delta"), "data")
    output = _output(update)
    if delta:
        tool.output += delta
    elif output or ("content" in update and text_in(update, "status") in _ENDED):
        tool.output = output


def _name(update: Object) -> str:
    claude = object_in(object_in(update, "_meta"), "claudeCode")
    return text_in(update, "name") or text_in(claude, "toolName") or text_in(update, "kind")


def _output(update: Object) -> str:
    """What a tool gave back, as text: its raw output if it has any, else what is shown of it."""
    raw = object_in(update, "rawOutput")
    meta = object_in(update, "_meta")
    plain = (
        text_in(update, "rawOutput")
        or text_in(raw, "output", "content", "formatted_output", "aggregated_output", "stdout")
        or text_in(object_in(meta, "terminal_output"), "data")
    )
    shown = (text_in(object_in(part, "content"), "text") for part in objects_in(update, "content"))
    return plain or "\n".join(filter(None, shown))


def _code(update: Object) -> int | None:
    raw = object_in(update, "rawOutput")
    exits = [part for part in objects_in(raw, "contents") if "exitCode" in part]
    codes = (
        whole_in(object_in(object_in(update, "_meta"), "terminal_exit"), "exit_code"),
        whole_in(raw, "exitCode"),
        whole_in(raw, "exit_code"),
        whole_in(object_in(raw, "metadata"), "exit"),
        whole_in(exits[-1], "exitCode") if exits else None,
    )
    return next((code for code in codes if code is not None), None)
