"""One prompt and what comes of it: the same order of things in every protocol."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Mapping
from typing import Any

from handrail.testing.fake_programs.launch import Entry, Launch, Options
from handrail.testing.fake_programs.output import Ended, Signalled, pause

NONE = Options((), valued=(), otherwise=lambda word: Ended(2, word))
DELTA = 12
"""How many characters a delta has."""
WAITING: Mapping[str, Any] = {
    "command": "sleep 600",
    "output": "",
    "exit_code": 0,
    "name": None,
    "input": None,
    "asks": False,
}


class TurnWriter:
    """Prints a turn in the format of one program. Every method prints; the last three give exit
    codes. Mutable.
    """

    usual_model = ""

    def __init__(
        self,
        launch: Launch,
        entry: Entry,
        session: str = "",
        options: Options = NONE,
    ) -> None:
        self.launch = launch
        self.entry = entry
        self.session = session
        self.options = options
        self.tool: dict[str, Any] = {}
        """The tool that is used now, as the program names it."""

    def write_start(self) -> None:
        """The session is there."""

    def write_noise(self, padding: str) -> None:
        """An event that nobody knows."""
        raise NotImplementedError

    def write_retry(self, attempt: int, fail: Entry, /) -> None:
        """The program tries again by itself."""

    def write_thought(self, text: str) -> None:
        """The model thought."""

    def write_message(self, text: str) -> None:
        """The model said something before its answer."""
        raise NotImplementedError

    def write_tool_start(self, tool: Entry) -> bool:
        """A tool begins; False if it may not."""
        raise NotImplementedError

    def write_tool_result(self, tool: Entry, *, allowed: bool) -> None:
        """A tool has ended."""
        raise NotImplementedError

    def write_answer(self) -> None:
        """The last message."""
        self.write_message(final_text(self.entry))

    def wait(self, seconds: float) -> None:
        """Silence."""
        pause(seconds)

    def write_end(self) -> int:
        """The end, with all well."""
        raise NotImplementedError

    def write_failure(self, fail: Entry) -> int:
        """The end, with a failure."""
        raise NotImplementedError

    def write_interruption(self, number: int, /, *, in_tool: bool) -> int:
        """The end, by a signal."""
        del in_tool
        return -number

    @property
    def model(self) -> str:
        """The model that answers."""
        chosen = self.entry.get("model") or self.options.get("--model")
        return str(chosen or self.usual_model)


def perform(writer: TurnWriter) -> int:
    """Do what the act says; the exit code."""
    turn = _Turn(writer)
    try:
        return turn.run()
    except Signalled as signalled:
        return writer.write_interruption(signalled.number, in_tool=turn.in_tool)


class _Turn:
    """Where a turn stands. Mutable."""

    def __init__(self, writer: TurnWriter) -> None:
        self.in_tool = False
        self._writer = writer
        self._entry = writer.entry

    def run(self) -> int:
        entry, writer = self._entry, self._writer
        self._at("launch")
        if garbage := entry.get("garbage"):
            writer.launch.out.raw(garbage["data"].encode("latin-1"))
            raise Ended(garbage["exit_code"])
        writer.write_start()
        self._at("start")
        if entry["noise_bytes"]:
            writer.write_noise("·" * (entry["noise_bytes"] // 2))
        if entry["reasoning"]:
            writer.write_thought(entry["reasoning"])
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
        allowed = self._writer.write_tool_start(tool)
        self._at("tool")
        if allowed and "content" in tool:
            _write(tool["path"], tool["content"])
        self._writer.write_tool_result(tool, allowed=allowed)
        self.in_tool = False

    def _conclude(self) -> int:
        fail: Entry | None = self._entry.get("fail")
        if fail is None:
            self._writer.write_answer()
            return self._writer.write_end()
        if self._entry["text"]:
            self._writer.write_message(self._entry["text"])
        for attempt in range(1, fail["retries"] + 1):
            self._writer.write_retry(attempt, fail)
        return self._writer.write_failure(fail)

    def _stops_at(self, moment: str) -> bool:
        stop: Entry = self._entry.get("hang") or self._entry.get("death") or {"after": None}
        return bool(stop["after"] == moment)

    def _at(self, moment: str) -> None:
        if not self._stops_at(moment):
            return
        death: Entry | None = self._entry.get("death")
        if death is None:
            self._writer.wait(self._entry["hang"]["seconds"])
            return
        raise Ended(-death["signal"] if death["signal"] else death["exit_code"])


def deltas(text: str) -> list[str]:
    """The text in the pieces in which it is told while it comes."""
    return [text[at : at + DELTA] for at in range(0, len(text), DELTA)]


def final_text(entry: Entry) -> str:
    """The last message; where a program has no other form for a value, that is its JSON."""
    value = entry["structured"]
    return str(entry["text"]) if value is None else json.dumps(value)


def call_of(
    tool: Entry, *, runs: str, writes: str, path: str, text: str = "content"
) -> tuple[str, Mapping[str, Any]]:
    """The name and the input of a tool call.

    ``runs`` is what the program calls its shell, ``writes`` the tool that writes a file, whose name
    that takes as ``path``, and its content as ``text``.
    """
    if "content" not in tool:
        asked = {"command": tool["command"], "description": tool["command"]}
        return tool["name"] or runs, tool["input"] or asked
    file = os.path.abspath(tool["path"])
    if tool["content"] is None:
        return runs, {"command": f"rm {file}", "description": "remove a file"}
    return writes, {path: file, text: tool["content"]}


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
