"""One prompt and its turn: the order of events, which is the same in every protocol."""

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
    """Prints a turn in the format of one program. Mutable.

    Every method prints; the last three return exit codes.
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
        """The tool in use, as the program describes it."""

    def write_start(self) -> None:
        """Print that the session is open."""

    def write_noise(self, padding: str) -> None:
        """Print an event of an unknown kind."""
        raise NotImplementedError

    def write_retry(self, attempt: int, fail: Entry, /) -> None:
        """Print that the program retries by itself."""

    def write_thought(self, text: str) -> None:
        """Print a thought of the model."""

    def write_message(self, text: str) -> None:
        """Print a message of the model."""
        raise NotImplementedError

    def write_tool_start(self, tool: Entry) -> bool:
        """Print that a tool begins; False if the tool is not allowed."""
        raise NotImplementedError

    def write_tool_result(self, tool: Entry, *, allowed: bool) -> None:
        """Print a tool's result."""
        raise NotImplementedError

    def write_answer(self) -> None:
        """Print the last message."""
        self.write_message(final_text(self.entry))

    def wait(self, seconds: float) -> None:
        """Stay silent for so long."""
        pause(seconds)

    def write_end(self) -> int:
        """Print the end of a turn that succeeded."""
        raise NotImplementedError

    def write_failure(self, fail: Entry) -> int:
        """Print the end of a turn that failed."""
        raise NotImplementedError

    def write_interruption(self, number: int, /, *, in_tool: bool) -> int:
        """Print the end of a turn that a signal stopped."""
        del in_tool
        return -number

    @property
    def model(self) -> str:
        """The model that answers."""
        chosen = self.entry.get("model") or self.options.get("--model")
        return str(chosen or self.usual_model)


def perform(writer: TurnWriter) -> int:
    """Carry out the writer's act; the exit code."""
    turn = _Turn(writer)
    try:
        return turn.run()
    except Signalled as signalled:
        return writer.write_interruption(signalled.number, in_tool=turn.in_tool)


class _Turn:
    """A turn under way. Mutable."""

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
        self.in_tool = True  # before the tool is printed: a signal may come as soon as it is
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
    """The text in the pieces in which a program streams it."""
    return [text[at : at + DELTA] for at in range(0, len(text), DELTA)]


def final_text(entry: Entry) -> str:
    """The last message: the text, or the JSON of a structured value."""
    value = entry["structured"]
    return str(entry["text"]) if value is None else json.dumps(value)


def call_of(
    tool: Entry, *, runs: str, writes: str, path: str, text: str = "content"
) -> tuple[str, Mapping[str, Any]]:
    """The name and the input of a tool call.

    ``runs`` is the program's name for its shell, ``writes`` its name for the tool that writes a
    file; that tool takes the file's name as ``path``, and its content as ``text``.
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
