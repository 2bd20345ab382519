"""One prompt and what comes of it: the same order of things in every protocol."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Container, Mapping
from typing import Any, Protocol

from handrail.testing.fake_programs.launch import Entry, Launch
from handrail.testing.fake_programs.output import Ended, Signalled

WAITING: Mapping[str, Any] = {
    "command": "sleep 600",
    "output": "",
    "exit_code": 0,
    "name": None,
    "input": None,
    "asks": False,
}


class Voice(Protocol):
    """How one program words a turn. Every method prints; the last two give exit codes."""

    def started(self) -> None:
        """The session is there."""

    def noise(self, size: int) -> None:
        """An event that nobody knows."""

    def retried(self, attempt: int, fail: Entry, /) -> None:
        """The program tries again by itself."""

    def thought(self, text: str) -> None:
        """The model thought."""

    def said(self, text: str) -> None:
        """The model said something before its answer."""

    def tool_started(self, tool: Entry) -> bool:
        """A tool begins; False if it may not."""
        ...

    def tool_completed(self, tool: Entry, *, allowed: bool) -> None:
        """A tool has ended."""

    def answered(self) -> None:
        """The last message."""

    def wait(self, seconds: float) -> None:
        """Silence."""

    def completed(self) -> int:
        """The end, with all well."""
        ...

    def failed(self, fail: Entry) -> int:
        """The end, with a failure."""
        ...

    def interrupted(self, number: int, /, *, in_tool: bool) -> int:
        """The end, by a signal."""
        ...


def perform(launch: Launch, voice: Voice, entry: Entry) -> int:
    """Do what the act says; the exit code."""
    turn = _Turn(launch, voice, entry)
    try:
        return turn.run()
    except Signalled as signalled:
        return voice.interrupted(signalled.number, in_tool=turn.in_tool)


class _Turn:
    """Where a turn stands. Mutable."""

    def __init__(self, launch: Launch, voice: Voice, entry: Entry) -> None:
        self.in_tool = False
        self._out = launch.out
        self._voice = voice
        self._entry = entry

    def run(self) -> int:
        entry, voice = self._entry, self._voice
        self._at("launch")
        if garbage := entry.get("garbage"):
            self._out.raw(garbage["data"].encode("latin-1"))
            raise Ended(garbage["exit_code"])
        voice.started()
        self._at("start")
        if entry["noise_bytes"]:
            voice.noise(entry["noise_bytes"])
        if entry["reasoning"]:
            voice.thought(entry["reasoning"])
        for tool in self._tools():
            self._use(tool)
        code = self._conclude()
        self._at("result")
        return code

    def _tools(self) -> list[Entry]:
        writes: Mapping[str, str | None] = self._entry["writes"]
        tools = [*self._entry["tools"], *(_written(*item) for item in writes.items())]
        return tools or ([WAITING] if self._stops_at("tool") else [])

    def _use(self, tool: Entry) -> None:
        self.in_tool = True  # before it is told: a signal may come as soon as it is
        allowed = self._voice.tool_started(tool)
        self._at("tool")
        if allowed and "content" in tool:
            _write(tool["path"], tool["content"])
        self._voice.tool_completed(tool, allowed=allowed)
        self.in_tool = False

    def _conclude(self) -> int:
        fail: Entry | None = self._entry.get("fail")
        if fail is None:
            self._voice.answered()
            return self._voice.completed()
        if self._entry["text"]:
            self._voice.said(self._entry["text"])
        for attempt in range(1, fail["retries"] + 1):
            self._voice.retried(attempt, fail)
        return self._voice.failed(fail)

    def _stops_at(self, moment: str) -> bool:
        stop: Entry = self._entry.get("hang") or self._entry.get("death") or {"after": None}
        return bool(stop["after"] == moment)

    def _at(self, moment: str) -> None:
        if not self._stops_at(moment):
            return
        death: Entry | None = self._entry.get("death")
        if death is None:
            self._voice.wait(self._entry["hang"]["seconds"])
            return
        raise Ended(-death["signal"] if death["signal"] else death["exit_code"])


def final_text(entry: Entry) -> str:
    """The last message; where a program has no other form for a value, that is its JSON."""
    value = entry["structured"]
    return str(entry["text"]) if value is None else json.dumps(value)


def call_of(tool: Entry, *, runs: str, writes: str, path: str) -> tuple[str, Mapping[str, Any]]:
    """The name and the input of a tool call.

    ``runs`` is what the program calls its shell, ``writes`` the tool that writes a file, whose name
    that takes as ``path``.
    """
    if "content" not in tool:
        asked = {"command": tool["command"], "description": tool["command"]}
        return tool["name"] or runs, tool["input"] or asked
    file = os.path.abspath(tool["path"])
    if tool["content"] is None:
        return runs, {"command": f"rm {file}", "description": "remove a file"}
    return writes, {path: file, "content": tool["content"]}


def unsayable(launch: Launch, entry: Entry, kinds: Container[str]) -> str | None:
    """What to say if the act is a failure that a protocol has no words for."""
    fail: Entry = entry.get("fail") or {"kind": None}
    if fail["kind"] is None or fail["kind"] in kinds:
        return None
    how = " ".join(launch.argv)
    return f"fake {launch.name}: with {how} it has no words for {fail['kind']!r}"


def _written(path: str, content: str | None) -> Entry:
    return {**WAITING, "command": "", "name": "Write", "path": path, "content": content}


def _write(path: str, content: str | None) -> None:
    if content is None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        return
    if folder := os.path.dirname(path):
        os.makedirs(folder, exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(content)


def die_of(number: int) -> None:
    """End as a program that has no handler for this signal."""
    if number not in {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
