"""Events of copilot that say by themselves all that there is to tell."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from handrail.agents.programs.loose_json import Object, as_object, number_in, text_in, whole_in
from handrail.model.events import AgentCompaction, AgentLimit

_LOW_PERCENT = 10.0


def compaction_begun(path: str, data: Object) -> AgentCompaction:
    """``session.compaction_start``."""
    return AgentCompaction(path, "started", whole_in(data, "currentTokens"))


def compaction_ended(path: str, data: Object) -> AgentCompaction:
    """``session.compaction_complete``, which may have failed."""
    return AgentCompaction(
        path,
        "failed" if data.get("success") is False else "completed",
        whole_in(data, "preCompactionTokens"),
        whole_in(data, "postCompactionTokens"),
    )


def limits(path: str, snapshots: Object) -> Iterator[AgentLimit]:
    """The quotas that a model call told of, but those without bound."""
    for window, told in snapshots.items():
        snapshot = as_object(told)
        left = number_in(snapshot, "remainingPercentage")
        if left is None or snapshot.get("isUnlimitedEntitlement") is True:
            continue
        reset_at = _unix(text_in(snapshot, "resetDate"))
        used = min(1.0, max(0.0, 1 - left / 100))
        goes_on = snapshot.get("overageAllowedWithExhaustedQuota") is True  # at a price
        if left <= 0 and not goes_on:
            yield AgentLimit(path, "reached", window, used, reset_at)
        else:
            low = left < _LOW_PERCENT
            yield AgentLimit(path, "warning" if low else "allowed", window, used, reset_at)


def _unix(date: str) -> float | None:
    try:
        at = datetime.fromisoformat(date)
        return at.replace(tzinfo=at.tzinfo or UTC).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
