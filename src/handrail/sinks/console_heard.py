"""What backends do about their own troubles, told now and then, so that a log is not silent."""

from __future__ import annotations

from handrail.model import events as ev
from handrail.sinks.console_agents import heard_text

QUIET_S = 30.0
"""Notices of one kind have a line so often, by the time of the events."""

_KEPT = 1_000


class Heard:
    """When each kind of notice was last told, and how many have come since. Mutable."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, type, str], tuple[float, int]] = {}

    def worth_saying(self, event: ev.AgentRetry | ev.AgentLimit, path: str) -> str:
        """What to say of it for ``path``; empty if it says nothing, or the like was said lately."""
        text = heard_text(event)
        if not text:
            return ""
        kind = f"{event.status} {event.window}" if isinstance(event, ev.AgentLimit) else ""
        key = (path, type(event), kind)
        at, since = self._told.pop(key, (None, 0))  # so that the oldest stands first
        if at is not None and event.at - at < QUIET_S:
            self._told[key] = (at, since + 1)
            return ""
        self._told[key] = (event.at, 0)
        if len(self._told) > _KEPT:
            del self._told[next(iter(self._told))]
        return f"{text} ({since} more since the last line)" if since else text
