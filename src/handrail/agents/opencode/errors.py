"""What an error of opencode is: by its name, then the status of the API, then its words."""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime

from handrail.agents.transport.failures import kind_of_status
from handrail.agents.transport.loose_json import Object, object_in, text_in, whole_in
from handrail.agents.transport.reset_times import reset_time
from handrail.errors import AgentErrorKind

HINTS: dict[AgentErrorKind, str] = {
    "auth": "Run `opencode auth login`.",
    "spending_cap": "Add credits to the provider's account.",
    "config": "Compare the arguments with `opencode run --help`.",
}

_NAMES: dict[str, AgentErrorKind] = {
    "ContextOverflowError": "context_overflow",
    "ProviderAuthError": "auth",
    "MessageOutputLengthError": "output_limit",
    "MessageAbortedError": "interrupted",
    "ProviderModelNotFoundError": "bad_request",
    "ProviderInitError": "config",
    "ConfigInvalidError": "config",
    "ConfigJsonError": "config",
}
NO_SESSION = re.compile(r"session not found", re.IGNORECASE)
"""How opencode says that it does not have a session."""
_OVERFLOW = re.compile(r"prompt is too long|context (?:length|window|limit)|maximum context")
_WAIT = re.compile(r"retry in \d")  # Google speaks of billing then too
_CAP = re.compile(r"usage limit|daily (?:quota|limit)|quota will reset|per ?day")
_CREDIT = re.compile(
    r"\bcredits?\b|billing|quota exceeded|insufficient[_ ](?:quota|balance|funds)|current quota"
)
_NETWORK = re.compile(r"unable to connect|fetch failed|socket|econn|timed? ?out|network|overloaded")
_VAGUE = frozenset({None, "bad_request", "rate_limit", "auth"})
"""What words may say more exactly."""
MAY_PASS: frozenset[AgentErrorKind] = frozenset({"rate_limit", "usage_cap", "transient"})
"""Kinds of failures that may be over some time."""


def kind_of_error(error: Object) -> AgentErrorKind:
    """The kind of an error event's ``error``."""
    name, data = text_in(error, "name"), object_in(error, "data")
    if name in _NAMES:
        return _NAMES[name]
    kind = kind_of_status(whole_in(data, "statusCode"))
    said = message_of(error).lower()
    if kind in _VAGUE and (worded := _worded(said, kind)) is not None:
        return worded
    if name == "UnknownError" and not _NETWORK.search(said):
        return kind or "bad_request"  # such as a model that is not known
    return kind or "transient"


def message_of(error: Object) -> str:
    """What an error says in words; empty if nothing."""
    return text_in(object_in(error, "data"), "message") or text_in(error, "message")


def _worded(said: str, kind: AgentErrorKind | None) -> AgentErrorKind | None:
    if _OVERFLOW.search(said):
        return "context_overflow"
    if kind != "auth" and _CAP.search(said):
        return "usage_cap"
    if kind != "auth" and _WAIT.search(said):
        return "rate_limit"
    return "spending_cap" if _CREDIT.search(said) else None


def retry_at_of(data: Object, now: float) -> float | None:
    """When to try again, by the answer's headers, else by its words."""
    given = {key.lower(): one for key, one in object_in(data, "responseHeaders").items()}
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        if (after := _number(given.get(name))) is not None:
            return now + after * unit_s
    date = _date(given.get("retry-after"))
    return reset_time(text_in(data, "message"), now) if date is None else date


def _number(value: object) -> float | None:
    text = str(value).strip()
    return float(text) if re.fullmatch(r"\d{1,9}(?:\.\d{1,6})?", text) else None


def _date(value: object) -> float | None:
    try:
        return parsedate_to_datetime(value).timestamp() if isinstance(value, str) else None
    except (ValueError, OverflowError, OSError):
        return None
