"""The token totals of a thread and the windows of a plan, as codex reports them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from handrail.agents.transport.loose_json import Object, count_in, number_in, object_in, text_in
from handrail.agents.transport.turn_state import added_since, usage_in
from handrail.model.events import AgentLimit
from handrail.model.results import Usage

_NOTHING = Usage(
    input_tokens=0, output_tokens=0, cached_tokens=0, cache_write_tokens=0, reasoning_tokens=0
)


class ThreadUsage:
    """The totals of a thread, before this turn and now. Mutable.

    A resumed thread repeats its total before the first call of a model, under the id of an older
    turn. If it does not, the total before is the one the caller knows; without one, it is the first
    total minus its last call.
    """

    def __init__(self, *, fresh: bool, earlier: Usage | None) -> None:
        self.total: Usage | None = None
        self.context_tokens: int | None = None
        self._before = _NOTHING if fresh else earlier

    @property
    def spent(self) -> Usage | None:
        """What was used since the turn began; None if codex reported no count."""
        return None if self.total is None else added_since(self._before, self.total)

    def update(self, usage: Object, *, is_ours: bool, is_call: bool = True) -> None:
        """Take a token count: of our turn or an older one, after a model call or between calls."""
        total, last = object_in(usage, "total"), object_in(usage, "last")
        self.context_tokens = count_in(last, "totalTokens") or self.context_tokens
        counted = _usage_from(total)
        if counted is None:
            return
        if not is_ours:
            self._before = counted
            return
        if self._before is None:
            call = (_usage_from(last) if is_call else None) or _NOTHING
            self._before = counted.since(call)
        self.total = counted


def _usage_from(tokens: Object) -> Usage | None:
    return usage_in(
        tokens,
        input_tokens="inputTokens",
        output_tokens="outputTokens",
        cached_tokens="cachedInputTokens",
        cache_write_tokens="cacheWriteInputTokens",
        reasoning_tokens="reasoningOutputTokens",
    )


_FULL_PERCENT = 100.0
_WARNING_PERCENT = 80.0
_WINDOWS = {300: "five_hour", 1440: "day", 10080: "seven_day"}


class PlanLimits:
    """The last report of each limit. Mutable.

    Updates are sparse: a missing field keeps its value. Only ``spendControlReached`` is cleared.
    """

    def __init__(self) -> None:
        self._reported: dict[str, dict[str, Any]] = {}
        self._emitted: dict[str, AgentLimit] = {}

    @property
    def snapshot(self) -> Object | None:
        """The limit that stops the work: the last one reached, else the last reported."""
        reported = list(self._reported.values())
        reached = [one for one in reported if any(_full(window) for _, window in _windows(one))]
        stopping = reached or reported
        return stopping[-1] if stopping else None

    def update(self, path: str, limits: Object) -> Iterator[AgentLimit]:
        """The limits that an update of the plan's windows changed."""
        name = text_in(limits, "limitId") or "codex"
        before = self._reported.pop(name, {})
        self._reported[name] = {**before, **{key: v for key, v in limits.items() if v is not None}}
        if "spendControlReached" not in limits or limits["spendControlReached"] is None:
            self._reported[name].pop("spendControlReached", None)
        for place, window in _windows(self._reported[name]):
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
