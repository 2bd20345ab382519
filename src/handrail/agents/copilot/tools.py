"""The tools that copilot uses, and what it was not allowed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from handrail.agents.programs.loose_json import Object, object_in, text_in, whole_in
from handrail.model.events import AgentPermission, AgentToolCompleted, AgentToolStarted, Notice

_SHELLS = frozenset({"bash", "powershell"})
_EXIT_CODE = re.compile(r"<[^<>\n]{0,80}\bexit(?:ed)? (?:with exit )?code (-?\d{1,10})>\s*\Z")
"""How older programs, which have no field for it, end the output of a command."""
_REFUSALS = frozenset({"denied", "rejected"})
"""Codes of tools that ended before they began."""


class Tools:
    """The tools of a turn. Mutable."""

    def __init__(self, path: str) -> None:
        self.denials: list[str] = []
        self._path = path
        self._open: dict[str, str] = {}
        self._done: set[str] = set()
        self._asked: dict[str, tuple[str, str]] = {}
        self._refused: set[str] = set()

    @property
    def open_tools(self) -> int:
        """How many are at work."""
        return len(self._open)

    def close(self) -> None:
        """The turn is over, and so is whatever did not say so."""
        self._open.clear()

    def started(self, data: Object) -> Iterator[Notice]:
        """A tool begins."""
        ref, name = text_in(data, "toolCallId"), text_in(data, "toolName", "mcpToolName")
        if ref not in self._open and ref not in self._done:
            self._open[ref] = name
            yield AgentToolStarted(self._path, ref, name, data.get("arguments"))

    def completed(self, data: Object) -> Iterator[Notice]:
        """A tool ends; one that had no start gets one. A command that failed is no failed call to
        copilot, so its exit code is looked at.
        """
        ref = text_in(data, "toolCallId")
        if ref in self._done:
            return
        if ref not in self._open:
            yield from self.started(data)
        if ref:
            self._done.add(ref)
        name = self._open.pop(ref, "")
        error = object_in(data, "error")
        output = text_in(object_in(data, "result"), "content") or text_in(error, "message")
        code = whole_in(object_in(data, "shellExecution"), "exitCode")
        if code is None and name in _SHELLS and (said := _EXIT_CODE.search(output)):
            code = int(said[1])
        is_ok = data.get("success") is not False and code in (None, 0) and not error
        if text_in(error, "code") in _REFUSALS and "" not in self._refused:
            yield from self._denied(ref, name, text_in(error, "message"))
        yield AgentToolCompleted(self._path, ref, name, is_ok, output, code)

    def asked(self, data: Object) -> None:
        """A tool needs a permission."""
        request = object_in(data, "permissionRequest")
        tool = text_in(request, "toolName", "kind") or "tool"
        self._asked[text_in(data, "requestId")] = tool, text_in(request, "toolCallId")

    def answered(self, data: Object) -> Iterator[Notice]:
        """A permission was given or refused."""
        result = object_in(data, "result")
        verdict = text_in(result, "kind")
        if not verdict:
            return
        tool, ref = self._asked.pop(text_in(data, "requestId"), ("tool", ""))
        if verdict.startswith("approved"):
            yield AgentPermission(self._path, tool, "allowed", verdict)
            return
        reason = text_in(result, "feedback", "message", "reason") or verdict
        yield from self._denied(text_in(data, "toolCallId") or ref, tool, reason)

    def _denied(self, ref: str, tool: str, reason: str) -> Iterator[Notice]:
        """A tool was not allowed, told once: by the permission, or else by how the tool ended.

        A permission that does not name its tool's use has told of any.
        """
        if ref and ref in self._refused:
            return
        self._refused.add(ref)
        self.denials.append(tool)
        yield AgentPermission(self._path, tool, "denied", reason)
