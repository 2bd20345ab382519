"""The windows of a plan as codex tells them, and how full they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from handrail.agents.programs.loose_json import Object, count_in, number_in, object_in, text_in
from handrail.model.events import AgentLimit

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
