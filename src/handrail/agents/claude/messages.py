"""What claude's assistant says and does in one turn: text, thoughts, tools, as notices."""

from __future__ import annotations

import re
from collections.abc import Iterator

from handrail.agents.claude.usage import known_input
from handrail.agents.programs.loose_json import (
    NOTHING,
    Object,
    as_object,
    list_in,
    object_in,
    objects_in,
    text_in,
    whole_in,
)
from handrail.model.events import (
    AgentMessage,
    AgentPermission,
    AgentReasoning,
    AgentToolCompleted,
    AgentToolStarted,
    Notice,
)
from handrail.model.results import Usage

_USES = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
_SHELLS = frozenset({"Bash", "PowerShell"})
_WRITERS = frozenset({"Write", "Edit", "MultiEdit", "NotebookEdit"})
_EXIT_CODE = re.compile(r"(?:Error: )?Exit code (\d{1,3})\b")


class ClaudeMessages:
    """Reads the messages of a turn. Mutable.

    ``text`` is what the assistant said last. Of a sub-agent only the tools are told: its words are
    for the agent that sent it, whose answer they are not. Text that came in pieces is not told
    again when it comes whole.
    """

    def __init__(self, path: str) -> None:
        self.text = ""
        self.model: str | None = None
        self.denials: list[str] = []
        self.files_changed: dict[str, None] = {}  # in the order of their first change
        self._path = path
        self._open: dict[str, tuple[str, Object]] = {}
        self._seen: set[str] = set()
        self._told: set[int] = set()
        self._answered: set[int] = set()
        self._blocks: set[tuple[str, str, int]] = set()
        self._denied: set[str] = set()
        self._usage: dict[str, Object] = {}
        self._pieces = {"text": _Pieces(), "thinking": _Pieces()}

    @property
    def open_tools(self) -> int:
        """How many tools were begun and have not ended."""
        return len(self._open)

    @property
    def known_usage(self) -> Usage | None:
        """What is known to be used so far, for a turn that has no result."""
        return known_input(self._usage.values())

    def close(self) -> None:
        """The turn is over, and so is whatever did not say so."""
        self._open.clear()
        self._blocks.clear()
        for pieces in self._pieces.values():
            pieces.forget()

    def assistant(self, event: Object) -> Iterator[Notice]:
        """What a message, or a block of one, means."""
        message = object_in(event, "message")
        is_main = not text_in(event, "parent_tool_use_id")
        if usage := object_in(message, "usage"):
            self._usage[text_in(message, "id")] = usage
        if is_main:
            self.model = text_in(message, "model") or self.model
        if said := text_in(message, "content"):
            yield from self._said("text", said, is_main=is_main)
        for block in objects_in(message, "content"):
            kind = text_in(block, "type")
            if kind in _USES:
                yield from self._started(block)
            elif kind.endswith("_result"):
                yield from self._ended(block, NOTHING)
            elif kind in self._pieces and not self._repeats(text_in(message, "id"), block):
                yield from self._said(kind, text_in(block, kind), is_main=is_main)

    def user(self, event: Object) -> Iterator[Notice]:
        """What tools gave back."""
        results = [
            block
            for block in objects_in(object_in(event, "message"), "content")
            if text_in(block, "type") == "tool_result"
        ]
        details = object_in(event, "tool_use_result") if len(results) == 1 else NOTHING
        for block in results:
            yield from self._ended(block, details)

    def piece(self, event: Object) -> Iterator[Notice]:
        """What a piece of a message means that comes before the message."""
        if text_in(event, "parent_tool_use_id"):
            return
        raw = object_in(event, "event")
        match text_in(raw, "type"):
            case "message_start":
                for pieces in self._pieces.values():
                    pieces.forget()
            case "content_block_start":
                for pieces in self._pieces.values():
                    pieces.next_block()
            case "content_block_delta":
                delta = object_in(raw, "delta")
                for kind, pieces in self._pieces.items():
                    if text_in(delta, "type") == f"{kind}_delta" and (said := text_in(delta, kind)):
                        pieces.add(said)
                        yield self._notice(kind, said)
            case _:
                pass

    def denied(self, event: Object) -> Iterator[Notice]:
        """That a tool was not allowed, told once."""
        use, tool = text_in(event, "tool_use_id"), text_in(event, "tool_name")
        if use and use in self._denied:
            return
        self._denied.add(use)
        self.denials.append(tool)
        yield AgentPermission(
            self._path, tool, "denied", text_in(event, "decision_reason", "message")
        )

    def answer(self, said: str) -> Iterator[Notice]:
        """The answer as the result repeats it, if it was not said before."""
        if said.strip() and hash(said.strip()) not in self._told:
            self._told.add(hash(said.strip()))
            self._answered.add(hash(said.strip()))
            yield AgentMessage(self._path, said)

    def _repeats(self, message: str, block: Object) -> bool:
        """True if this block of the message was printed before; some print all blocks again."""
        kind = text_in(block, "type")
        key = (message, kind, hash(text_in(block, kind)))
        is_known = bool(message) and key in self._blocks
        self._blocks.add(key)
        return is_known

    def _said(self, kind: str, said: str, *, is_main: bool) -> Iterator[Notice]:
        if not is_main or not said:
            return
        if kind == "text":
            self.text = said
            self._told.add(hash(said.strip()))
            if hash(said.strip()) in self._answered:  # the result came before its message
                self._answered.discard(hash(said.strip()))
                return
        if rest := self._pieces[kind].missing(said):
            yield self._notice(kind, rest)

    def _notice(self, kind: str, said: str) -> Notice:
        is_text = kind == "text"
        return AgentMessage(self._path, said) if is_text else AgentReasoning(self._path, said)

    def _started(self, block: Object) -> Iterator[Notice]:
        use, name = text_in(block, "id"), text_in(block, "name")
        if use in self._seen:
            return
        if use:  # without an id its end could not be told
            self._seen.add(use)
            self._open[use] = name, object_in(block, "input")
        yield AgentToolStarted(self._path, use, name, block.get("input"))

    def _ended(self, block: Object, details: Object) -> Iterator[Notice]:
        use = text_in(block, "tool_use_id")
        if use not in self._open:
            return
        name, given = self._open.pop(use)
        is_ok, output = not block.get("is_error"), _output(block)
        if is_ok and name in _WRITERS and (file := text_in(given, "file_path", "notebook_path")):
            self.files_changed[file] = None
        code = _exit_code(name, output, details, is_ok=is_ok)
        yield AgentToolCompleted(self._path, use, name, is_ok, output, code)


class _Pieces:
    """What came in pieces of blocks that have not come whole. Mutable."""

    def __init__(self) -> None:
        self._blocks: list[list[str]] = []
        self._is_new = True

    def add(self, piece: str) -> None:
        if self._is_new:
            self._blocks.append([])
            self._is_new = False
        self._blocks[-1].append(piece)

    def next_block(self) -> None:
        self._is_new = True

    def forget(self) -> None:
        self._blocks.clear()
        self._is_new = True

    def missing(self, whole: str) -> str:
        """What of a whole block did not come in pieces before."""
        for index, block in enumerate(self._blocks):
            told = "".join(block)
            is_same = whole.strip() == told.strip()
            if is_same or whole.startswith(told):
                del self._blocks[: index + 1]
                self._is_new = True
                return "" if is_same else whole[len(told) :]
        return whole


def _output(block: Object) -> str:
    if said := text_in(block, "content"):
        return said
    parts = (part if isinstance(part, str) else _part(part) for part in list_in(block, "content"))
    return "\n".join(part for part in parts if part)


def _part(part: object) -> str:
    block = as_object(part)
    kind = text_in(block, "type")
    return text_in(block, "text") or (f"[{kind}]" if kind and kind != "text" else "")


def _exit_code(name: str, output: str, details: Object, *, is_ok: bool) -> int | None:
    """How a command exited; claude says so only of one that failed."""
    if name not in _SHELLS:
        return None
    if (code := whole_in(details, "exitCode")) is not None:
        return code
    if not is_ok:
        found = _EXIT_CODE.match(output)
        return int(found[1]) if found else None
    in_background = text_in(details, "backgroundTaskId") or details.get("interrupted") is True
    return None if in_background else 0
