"""Reads ``session/update`` of a turn: its notices, and the answer."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import field, replace
from typing import Any

from handrail.agents.acp.agents import UNKNOWN
from handrail.agents.transport.loose_json import (
    Object,
    as_object,
    count_in,
    number_in,
    object_in,
    objects_in,
    text_in,
    whole_in,
)
from handrail.agents.transport.turn_state import TurnState
from handrail.model.agent_options import Permission
from handrail.model.dataclass import dataclass
from handrail.model.events import (
    AgentCompaction,
    AgentMessage,
    AgentReasoning,
    AgentRetry,
    Notice,
)
from handrail.model.results import Usage

_ENDED = frozenset({"completed", "failed", "cancelled", "rejected", "error"})
_CHANGING = frozenset({"edit", "delete", "move"})


@dataclass(slots=True)
class _Tool:
    """What is known of one tool call. Mutable."""

    name: str = ""
    kind: str = ""
    title: str = ""
    given: Any = None
    output: str = ""
    code: int | None = None
    paths: dict[str, None] = field(default_factory=dict[str, None])
    is_reported: bool = False


class Tools:
    """What is known of the tool calls of a turn. Mutable.

    Some agents announce a call before its input is known. It is reported once its input is known,
    permission for it is requested, or it runs.
    """

    def __init__(self, state: TurnState) -> None:
        self._state = state
        self._known: dict[str, _Tool] = {}

    def name_of(self, call: Object) -> str:
        """The name of a call's tool, as far as known."""
        known = self._known.get(text_in(call, "toolCallId"))
        return _name(call) or (known.name if known else "") or text_in(call, "title") or "tool"

    def read(self, update: Object, *, is_first: bool = False) -> Iterator[Notice]:
        """Notices of a ``tool_call`` (``is_first``), a ``tool_call_update``, or the call in a
        permission request.
        """
        call = text_in(update, "toolCallId")
        if not call:
            return
        tool = self._known.setdefault(call, _Tool())
        _learn(tool, update)
        status = text_in(update, "status")
        is_known = not is_first or bool(as_object(tool.given).keys() - {"cwd"})
        if not tool.is_reported and (is_known or status not in ("", "pending")):
            tool.is_reported = True
            given = tool.given or {"title": tool.title}
            yield from self._state.tool_started(call, tool.name, given)
        if status in _ENDED:
            is_ok = status == "completed" and not tool.code
            if is_ok and tool.kind in _CHANGING:
                self._state.files_changed.update(tool.paths)
            yield from self._state.tool_ended(call, is_ok=is_ok, output=tool.output, code=tool.code)


def _learn(tool: _Tool, update: Object) -> None:
    tool.kind = text_in(update, "kind") or tool.kind
    tool.title = text_in(update, "title") or tool.title
    named = _name(update)
    if not tool.is_reported:
        tool.name = named or tool.name or tool.kind or tool.title or "tool"
        tool.given = update.get("rawInput") or tool.given
    _learn_output(tool, update)
    code = _code(update)
    tool.code = tool.code if code is None else code
    for place in (*objects_in(update, "locations"), *objects_in(update, "content")):
        if path := text_in(place, "path"):
            tool.paths[path] = None


def _learn_output(tool: _Tool, update: Object) -> None:
    """Before the end ``content`` may be the planned change; at the end it is the output."""
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
    """A tool's output as text: its raw output, or else the content shown for it."""
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


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a message; ``message`` is the id of that message."""

    text: str
    message: str = ""


class Updates:
    """The texts and tool calls of a turn. Mutable.

    Texts arrive in chunks. They are reported as whole blocks; a block ends where another begins.
    The program's own texts (see ``AgentProfile.aside``) are no part of the answer.
    """

    def __init__(self, state: TurnState) -> None:
        self.tools = Tools(state)
        self.profile = UNKNOWN
        self.has_marked = False
        self.calls = 0
        self.network_waits = 0
        self._path = state.path
        self._block: tuple[str, str] = ("", "")
        self._parts: list[str] = []
        self._said: dict[str, str] = {}
        self._unnamed = 0

    @property
    def answer(self) -> str:
        """The last message, even if it is not complete."""
        begun, _ = self.last_words
        said = self._said.get(self._block[1], "") if begun else ""
        return said + begun or next(reversed(self._said.values()), "")

    @property
    def last_words(self) -> tuple[str, str]:
        """The text of the last message if it is not complete, and its last chunk."""
        is_message = self._block[0] == "agent_message_chunk"
        return ("".join(self._parts), self._parts[-1]) if is_message and self._parts else ("", "")

    @property
    def is_unmarked(self) -> bool:
        """True if the last text has no message id."""
        return not self._block[1]

    def withdraw(self, words: str) -> None:
        """Remove these last words from the answer: the model did not say them."""
        said = "".join(self._parts)
        if words and said.endswith(words):
            self._parts = [said.removesuffix(words)]

    def read(self, update: Object) -> Iterator[Notice]:
        """The notices of an update; most kinds have none."""
        kind = text_in(update, "sessionUpdate")
        if kind.startswith(("agent_", "tool_")):
            self.network_waits = 0
        match kind:
            case "agent_message_chunk" | "agent_thought_chunk":
                yield from self._chunk(kind, update)
            case "tool_call":
                yield from self.break_off()
                self.calls += 1
                yield from self.tools.read(update, is_first=True)
            case "tool_call_update":
                yield from self.flush()
                yield from self.tools.read(update)
            case "session_info_update":
                yield from self._retry_notice(update)
            case _:
                pass

    def break_off(self) -> Iterator[Notice]:
        """End the current block; later text is another message, even with the same id."""
        yield from self.flush()
        for message in [one for one in self._said if not one.startswith(" ")]:
            self._unnamed += 1
            self._said[f" {self._unnamed}"] = self._said.pop(message)

    def flush(self) -> Iterator[Notice]:
        """End the current block and report it."""
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
            if self._is_program_text(chunk):
                yield from self.flush()
                yield from self._program_notice(chunk.text)
                return
            self.has_marked = self.has_marked or bool(chunk.message)
        if self._block != (kind, chunk.message):
            yield from self.flush()
            self._block = (kind, chunk.message)
        self._parts.append(chunk.text)

    def _is_program_text(self, chunk: Chunk) -> bool:
        if self.profile.marks_messages and chunk.message:
            return False
        return self.profile.aside.fullmatch(chunk.text) is not None

    def _program_notice(self, text: str) -> Iterator[Notice]:
        if "etrying" in text:
            yield AgentRetry(self._path, reason=text.strip())
        elif text.strip().startswith("Compacting"):
            yield AgentCompaction(
                self._path, "completed" if text.strip().endswith("completed.") else "started"
            )

    def _retry_notice(self, update: Object) -> Iterator[Notice]:
        """A retry of a request that codex-acp reports."""
        error = object_in(object_in(object_in(update, "_meta"), "codex"), "error")
        if error.get("willRetry") is True:
            self.network_waits += "waiting for network" in text_in(error, "message")
            yield AgentRetry(self._path, reason=text_in(error, "additionalDetails", "message"))


# An ACP agent's usage for a turn. The protocol leaves open whether input counts include tokens read
# from a cache, and whether output counts include reasoning. Agents differ; the total shows which.


class SessionUsage:
    """The cost of a session before this turn and now, and the tokens of the turn. Mutable.

    Agents report costs as a session's total. In a continued session a turn's part is known only if
    the total before is, from the agent or from the caller (``earlier``).
    """

    def __init__(self, *, fresh: bool, earlier: Usage | None) -> None:
        known = None if earlier is None else earlier.cost_usd
        self._before = 0.0 if fresh else known
        self._cost: float | None = None
        self._tokens: Usage | None = None
        self._of_calls: Usage | None = None

    @property
    def used_no_known_tokens(self) -> bool:
        """True if the turn used no token, as far as reported."""
        return self._tokens is None or not self._tokens.tokens

    @property
    def reported_zero_tokens(self) -> bool:
        """True if the agent reported that the turn used no token."""
        return self._tokens is not None and self.used_no_known_tokens

    @property
    def total(self) -> Usage | None:
        """The cost of the session so far."""
        return None if self._cost is None else Usage(cost_usd=self._cost, cost_source="reply")

    @property
    def spent(self) -> Usage | None:
        """The usage of the turn; None if nothing is known."""
        if self._cost is None or self._before is None:
            return self._tokens
        grown = self._cost - self._before if self._cost >= self._before else self._cost
        return replace(self._tokens or Usage(), cost_usd=grown, cost_source="reply")

    def on_usage_update(self, update: Object, *, is_turn: bool) -> None:
        """Take a ``usage_update``: of this turn, or of the session before it."""
        cost = cost_of(update)
        if cost is not None and is_turn:
            self._cost = cost
        elif cost is not None:
            self._before = cost

    def on_call(self, meta: Object) -> None:
        """Take what one call of the model used, which some agents tell beside its last words."""
        if used := usage_of(meta):
            self._of_calls = used if self._of_calls is None else self._of_calls + used

    def on_reply(self, reply: Object, *, is_whole: bool) -> None:
        """Take the reply to the prompt. ``is_whole``: it counts all calls, not just the last."""
        tokens = usage_of(reply) or self._of_calls
        self._tokens = tokens if is_whole or tokens is None or not tokens.tokens else None


def usage_of(reply: Object) -> Usage | None:
    """The tokens of a turn, from the reply to its prompt; None if the reply has no counts."""
    counts = object_in(reply, "usage")
    if counts:
        return _usage_from(counts)
    quota = object_in(object_in(object_in(reply, "_meta"), "quota"), "token_count")
    tokens_in = _first_count(quota, "input_tokens", "inputTokens")
    tokens_out = _first_count(quota, "output_tokens", "outputTokens")
    if tokens_in is None and tokens_out is None:
        return None
    return Usage(input_tokens=tokens_in, output_tokens=tokens_out)


def model_of(reply: Object) -> str | None:
    """The model that answered, if the reply names exactly one."""
    used = objects_in(object_in(object_in(reply, "_meta"), "quota"), "model_usage")
    return text_in(used[0], "model") or None if len(used) == 1 else None


def cost_of(update: Object) -> float | None:
    """The cost of a session so far in US dollars; None if it is unknown or in another currency."""
    cost = object_in(update, "cost")
    amount = number_in(cost, "amount")
    if amount is None or amount < 0 or text_in(cost, "currency").upper() not in ("USD", ""):
        return None
    return amount


def _usage_from(counts: Object) -> Usage | None:
    tokens_in, tokens_out = count_in(counts, "inputTokens"), count_in(counts, "outputTokens")
    if tokens_in is None and tokens_out is None:
        return None
    read, written = count_in(counts, "cachedReadTokens"), count_in(counts, "cachedWriteTokens")
    thoughts = count_in(counts, "thoughtTokens")
    cached = (read or 0) + (written or 0)
    apart, thought_apart = _counted_beside(
        count_in(counts, "totalTokens"), (tokens_in or 0) + (tokens_out or 0), cached, thoughts or 0
    )
    return Usage(
        input_tokens=None if tokens_in is None else tokens_in + (cached if apart else 0),
        output_tokens=None
        if tokens_out is None
        else tokens_out + ((thoughts or 0) if thought_apart else 0),
        cached_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=thoughts,
    )


def _counted_beside(total: int | None, plain: int, cached: int, thoughts: int) -> tuple[bool, bool]:
    """Whether the total counts cached tokens, and reasoning, in addition to the others."""
    if total is not None:
        for apart in ((True, False), (False, False), (True, True), (False, True)):
            if plain + cached * apart[0] + thoughts * apart[1] == total:
                return apart
    return True, False


def _first_count(counts: Object, *names: str) -> int | None:
    return next((n for name in names if (n := count_in(counts, name)) is not None), None)


_READING = frozenset({"read", "search", "think"})
_MAY_CHANGE = frozenset({"edit", "delete", "move"})

CANCELLED = {"outcome": {"outcome": "cancelled"}}


def may_do(call: Object, level: Permission | None, folders: Iterable[str]) -> bool:
    """Whether a level allows a tool call. ``full`` allows everything, ``read_only`` reading within
    the working folders, ``workspace`` also changing files there; without a level nothing is
    allowed.
    """
    if level == "full":
        return True
    kinds = {"read_only": _READING, "workspace": _READING | _MAY_CHANGE}.get(level or "")
    if kinds is None or text_in(call, "kind") not in kinds:
        return False
    places = list(_places(call))
    return bool(places) and all(_is_within(place, folders) for place in places)


def outcome(params: Object, *, is_allowed: bool) -> tuple[dict[str, Any], bool]:
    """The answer to a permission request, and whether it allows: it must offer such an answer."""
    offered = {text_in(one, "kind"): text_in(one, "optionId") for one in _options(params)}
    kinds = ("allow_once", "allow_always") if is_allowed else ("reject_once", "reject_always")
    chosen = next((offered[kind] for kind in kinds if offered.get(kind)), None)
    if chosen is None:
        return CANCELLED, False
    return {"outcome": {"outcome": "selected", "optionId": chosen}}, is_allowed


def what_is_asked(call: Object) -> str:
    """The action that an agent asks for, on one line."""
    given = object_in(call, "rawInput")
    return text_in(given, "command") or text_in(call, "title") or ", ".join(_places(call))


def _options(params: Object) -> list[Object]:
    """The offered answers in reverse, so that in a dict the first of each kind wins."""
    return objects_in(params, "options")[::-1]


def _places(call: Object) -> Iterable[str]:
    for place in (*objects_in(call, "locations"), *objects_in(call, "content")):
        if path := text_in(place, "path"):
            yield path


def _is_within(path: str, folders: Iterable[str]) -> bool:
    plain = posixpath.normpath(path)
    return any(
        plain == folder or plain.startswith(f"{folder}/")
        for folder in map(posixpath.normpath, folders)
    )
