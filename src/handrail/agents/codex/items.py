"""What codex did in a turn, item by item: what it said, thought, ran and changed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from handrail.agents.transport.loose_json import (
    NOTHING,
    Object,
    count_in,
    list_in,
    number_in,
    object_in,
    objects_in,
    text_in,
    whole_in,
)
from handrail.agents.transport.parser import added_since
from handrail.agents.transport.rpc import Message, Request, answer, refusal
from handrail.model.events import (
    AgentCompaction,
    AgentLimit,
    AgentMessage,
    AgentPermission,
    AgentReasoning,
    AgentRetry,
    AgentToolCompleted,
    AgentToolStarted,
    AgentUsage,
    Notice,
)
from handrail.model.results import Usage

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

NETWORK_WAITS = 12
"""How often codex may say that it waits for a network before that is the end: about three minutes.
It never gives up by itself, and as long as it says so it is not silent."""

_ATTEMPT = re.compile(r"^Reconnecting(?:\.{3}|\u2026)\s*(\d{1,9})\s*/")
_DELAY = re.compile(r"try again in (\d{1,9}(?:\.\d{1,9})?)\s*(ms|s)\b", re.IGNORECASE)


class News:
    """All that was told of a turn. Mutable.

    ``fresh``: the thread is a new one; ``earlier`` is what an old one had used, if that is known.
    """

    def __init__(self, path: str, *, fresh: bool, earlier: Usage | None) -> None:
        self.items = ThreadItems(path)
        self.limits = PlanLimits()
        self.usage = ThreadUsage(fresh=fresh, earlier=earlier)
        self.model: str | None = None
        self.complaint = ""
        self.fault: Object = NOTHING
        """The last error that codex did not mean to try again after."""
        self.patience_s = 0.0
        self._path = path
        self._spent: Usage | None = None
        self._network_waits = 0
        self._compacting_from: int | None = None
        self._compactions = 0

    @property
    def is_cut_off(self) -> bool:
        """True once codex has waited for a network in vain."""
        return self._network_waits >= NETWORK_WAITS

    def read(self, method: str, params: Object) -> Iterator[Notice]:
        """What a notification about our turn means; most mean nothing."""
        match method:
            case "item/started":
                yield from self._item_started(object_in(params, "item"))
            case "item/completed":
                yield from self._item_completed(object_in(params, "item"))
            case "item/agentMessage/delta":
                self._network_waits = 0
                self.items.piece(text_in(params, "itemId"), text_in(params, "delta"))
            case "item/reasoning/summaryTextDelta":
                self.items.thought(text_in(params, "itemId"), text_in(params, "delta"))
            case "thread/compacted":
                yield from self._thread_compacted()
            case "model/rerouted":
                self.model = text_in(params, "toModel") or self.model
            case _:
                pass

    def counted(self, params: Object, *, is_ours: bool, is_call: bool) -> Iterator[Notice]:
        """What a count of tokens means: of our turn, or of one before it."""
        self.usage.told(object_in(params, "tokenUsage"), is_ours=is_ours, is_call=is_call)
        spent = self.usage.spent
        if is_ours and spent is not None and spent != self._spent:
            self._spent = spent
            yield AgentUsage(self._path, spent)

    def limited(self, params: Object) -> Iterator[Notice]:
        """What changed of the plan's windows."""
        yield from self.limits.told(self._path, object_in(params, "rateLimits"))

    def complained(self, params: Object) -> Iterator[Notice]:
        """An error that is not the end: codex tries again, or the turn's end will tell."""
        error = object_in(params, "error")
        message, details = text_in(error, "message"), text_in(error, "additionalDetails")
        self.complaint = details or message or self.complaint
        if params.get("willRetry") is not True:
            self.fault = error
            return
        if "waiting for network" in message:
            self._network_waits += 1
        attempt = _ATTEMPT.match(message)
        delay_s = _delay_s(details or message)
        self.patience_s = delay_s or 0.0
        yield AgentRetry(
            self._path, int(attempt[1]) if attempt else None, delay_s, details or message
        )

    def _item_started(self, item: Object) -> Iterator[Notice]:
        self._network_waits = 0
        if text_in(item, "type") == "contextCompaction":
            self._compacting_from = self.usage.context_tokens
            yield AgentCompaction(self._path, "started", before_tokens=self._compacting_from)
        else:
            yield from self.items.started(item)

    def _item_completed(self, item: Object) -> Iterator[Notice]:
        self._network_waits = 0
        if text_in(item, "type") == "contextCompaction":
            self._compactions += 1
            yield self._compacted()
        else:
            yield from self.items.completed(item)

    def _thread_compacted(self) -> Iterator[Notice]:
        """What older versions tell instead of the item, newer ones beside it."""
        if self._compactions:
            self._compactions -= 1
        else:
            yield self._compacted()

    def _compacted(self) -> Notice:
        before, after = self._compacting_from, self.usage.context_tokens
        self._compacting_from = None
        return AgentCompaction(
            self._path,
            "completed",
            before_tokens=before,
            after_tokens=after if after != before else None,
        )


def _delay_s(text: str) -> float | None:
    found = _DELAY.search(text)
    if found is None:
        return None
    delay = float(found[1])
    return delay / 1000 if found[2].lower() == "ms" else delay


# What codex's app-server asks while it works, and what it is answered. Nobody is there to decide:
# all that it asks for is allowed at the level ``full``, and denied below it.

_NOBODY = "nobody is there to answer"

Answered: TypeAlias = "tuple[Message, AgentPermission | None]"
"""What is sent back, and what is told about it if something was allowed or denied."""


def answered(request: Request, *, path: str, is_full: bool, tool: str = "") -> Answered:
    """The answer to a request. ``tool`` is the open tool that it is about, if one is."""
    method = request.method
    if method not in _ANSWERS:
        return refusal(request, f"handrail does not do {method}"), None
    name, allowing, denying = _ANSWERS[method]
    given = allowing(request.params) if is_full else None
    result = denying(request.params) if given is None else given
    permission = AgentPermission(
        path,
        tool or name,
        "denied" if given is None else "allowed",
        _reason(request.params),
    )
    return answer(request, result), permission


def _reason(params: Object) -> str:
    """What is asked, in a line."""
    words = [str(word) for word in list_in(params, "command")]
    asked = text_in(params, "command") or shlex.join(words)
    questions = [text_in(question, "question") for question in objects_in(params, "questions")]
    why = text_in(params, "reason", "message") or " ".join(filter(None, questions))
    return ": ".join(filter(None, (why, asked)))


def _always(result: Any) -> Callable[[Object], Any]:
    return lambda _: result


def _granted(params: Object) -> Any:
    return {"permissions": dict(object_in(params, "permissions")), "scope": "turn"}


def _agreed(params: Object) -> Any:
    """Yes to a question; a form with fields that must be filled in is none."""
    schema = object_in(params, "requestedSchema")
    if text_in(params, "mode") == "url" or list_in(schema, "required"):
        return None
    return {"action": "accept", "content": {}, "_meta": None}


_Given: TypeAlias = Callable[[Object], Any]

_ACCEPT = _always({"decision": "accept"})
_DECLINE = _always({"decision": "decline"})
_DENIED = _always({"decision": {"denied": {"rejection": _NOBODY}}})
_NEVER = _always(None)

# By method: what it is about, the answer that allows it (None: it cannot be), the one that denies.
_ANSWERS: dict[str, tuple[str, _Given, _Given]] = {
    "item/commandExecution/requestApproval": ("shell", _ACCEPT, _DECLINE),
    "item/fileChange/requestApproval": ("apply_patch", _ACCEPT, _DECLINE),
    "item/permissions/requestApproval": (
        "permissions",
        _granted,
        _always({"permissions": {}, "scope": "turn"}),
    ),
    "mcpServer/elicitation/request": (
        "elicitation",
        _agreed,
        _always({"action": "decline", "content": None, "_meta": None}),
    ),
    "item/tool/requestUserInput": ("request_user_input", _NEVER, _always({"answers": {}})),
    "item/tool/call": (
        "tool",
        _NEVER,
        _always(
            {
                "contentItems": [{"type": "inputText", "text": f"not available: {_NOBODY}"}],
                "success": False,
            }
        ),
    ),
    "execCommandApproval": (
        "shell",
        _always({"decision": "approved"}),
        _DENIED,
    ),
    "applyPatchApproval": (
        "apply_patch",
        _always({"decision": "approved"}),
        _DENIED,
    ),
}


_NOTHING = Usage(
    input_tokens=0,
    output_tokens=0,
    cached_tokens=0,
    cache_write_tokens=0,
    reasoning_tokens=0,
)


class ThreadUsage:
    """The totals of a thread, before this turn and now. Mutable.

    A thread that is gone on in tells its total again before the first call of a model, under the
    id of an older turn. Where it does not, the total before is what the caller knows, else what
    remains of the first one when its last call is taken off.
    """

    def __init__(self, *, fresh: bool, earlier: Usage | None) -> None:
        self.total: Usage | None = None
        self.context_tokens: int | None = None
        self._before = _NOTHING if fresh else earlier

    @property
    def spent(self) -> Usage | None:
        """What was used since the turn began; None if nothing was told."""
        return None if self.total is None else added_since(self._before, self.total)

    def told(self, usage: Object, *, is_ours: bool, is_call: bool = True) -> None:
        """Take in what codex said: of our turn or of an older one, after a call or between."""
        total, last = object_in(usage, "total"), object_in(usage, "last")
        self.context_tokens = count_in(last, "totalTokens") or self.context_tokens
        counted = _counted(total)
        if counted is None:
            return
        if not is_ours:
            self._before = counted
            return
        if self._before is None:
            call = (_counted(last) if is_call else None) or _NOTHING
            self._before = counted.since(call)
        self.total = counted


def _counted(tokens: Object) -> Usage | None:
    found = Usage(
        input_tokens=count_in(tokens, "inputTokens"),
        output_tokens=count_in(tokens, "outputTokens"),
        cached_tokens=count_in(tokens, "cachedInputTokens"),
        cache_write_tokens=count_in(tokens, "cacheWriteInputTokens"),
        reasoning_tokens=count_in(tokens, "reasoningOutputTokens"),
    )
    return None if found == Usage() else found


_FULL_PERCENT = 100.0
_WARNING_PERCENT = 80.0
_WINDOWS = {300: "five_hour", 1440: "day", 10080: "seven_day"}


class PlanLimits:
    """The last that was told of each limit. Mutable.

    Updates are sparse: what one leaves out is as it was.
    """

    def __init__(self) -> None:
        self._told: dict[str, dict[str, Any]] = {}
        self._emitted: dict[str, AgentLimit] = {}

    @property
    def snapshot(self) -> Object | None:
        """The limit that stops the work: a reached one, else the last that was told of."""
        told = list(self._told.values())
        reached = [one for one in told if any(_full(window) for _, window in _windows(one))]
        stopping = reached or told
        return stopping[-1] if stopping else None

    def told(self, path: str, limits: Object) -> Iterator[AgentLimit]:
        """What an update changed."""
        name = text_in(limits, "limitId") or "codex"
        before = self._told.pop(name, {})
        self._told[name] = {**before, **{key: v for key, v in limits.items() if v is not None}}
        if "spendControlReached" not in limits or limits["spendControlReached"] is None:
            self._told[name].pop("spendControlReached", None)
        for place, window in _windows(self._told[name]):
            limit = _limit(path, name, place, window)
            key = f"{name} {place}"
            if self._emitted.get(key) != limit:
                self._emitted[key] = limit
                yield limit


def _windows(limits: Object) -> Iterator[tuple[str, Object]]:
    for place in ("primary", "secondary"):
        window = object_in(limits, place)
        if window:
            yield place, window


def _limit(path: str, name: str, place: str, window: Object) -> AgentLimit:
    percent = number_in(window, "usedPercent")
    minutes = count_in(window, "windowDurationMins")
    label = place if minutes is None else _WINDOWS.get(minutes, f"{minutes} min")
    return AgentLimit(
        path,
        "reached" if _full(window) else _status(percent or 0.0),
        window=label if name == "codex" else f"{name} {label}",
        used=None if percent is None else percent / 100,
        reset_at=number_in(window, "resetsAt"),
    )


def _status(percent: float) -> Any:
    return "warning" if percent >= _WARNING_PERCENT else "allowed"


def _full(window: Object) -> bool:
    return (number_in(window, "usedPercent") or 0.0) >= _FULL_PERCENT
