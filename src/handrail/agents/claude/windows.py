"""The windows of a plan, as a ``rate_limit_event`` of claude tells of them."""

from __future__ import annotations

from typing import Literal, TypeAlias

from handrail.agents.programs.loose_json import Object, number_in, object_in, text_in
from handrail.model.events import AgentLimit

_Status: TypeAlias = Literal["allowed", "warning", "reached"]
_STATUSES: dict[str, _Status] = {
    "allowed": "allowed",
    "allowed_warning": "warning",
    "rejected": "reached",
}


def limit_of(info: Object, path: str) -> AgentLimit | None:
    """The notice that an event's ``rate_limit_info`` is; None if its status is not known."""
    status = _STATUSES.get(text_in(info, "status"))
    if status is None:
        return None
    return AgentLimit(path, status, text_in(info, "rateLimitType"), _used(info), resets_at(info))


def is_used_up(info: Object) -> bool:
    """True if the window is used up."""
    return _STATUSES.get(text_in(info, "status")) == "reached"


def resets_at(info: Object) -> float | None:
    """When the window begins anew, in unix seconds."""
    at = _number(info, "resetsAt")
    if at is None or at <= 0:
        return None
    return at / 1000 if at > 1e11 else at


def _used(info: Object) -> float | None:
    """How much of it is used, from 0 to 1."""
    used = _number(info, "utilization")
    return None if used is None else min(max(used, 0.0), 1.0)


def _number(info: Object, name: str) -> float | None:
    """A number of the window, which stands in one of two places."""
    if (value := number_in(info, name)) is not None:
        return value
    window = object_in(object_in(info, "unifiedWindows"), text_in(info, "rateLimitType"))
    return number_in(window, name)
