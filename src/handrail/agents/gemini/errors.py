"""What a failure of Gemini's CLI is, from the API's own error inside its message, else its words.

Source: what gemini 0.61 printed, and its exit codes.
"""

from __future__ import annotations

import re

from handrail.agents.transport.failures import kind_of_status
from handrail.agents.transport.loose_json import (
    Object,
    as_object,
    json_value,
    object_in,
    text_in,
    whole_in,
)
from handrail.errors import AgentErrorKind

EXITS: dict[int, AgentErrorKind] = {
    41: "auth",
    42: "config",
    44: "config",
    52: "config",
    53: "max_turns",
    130: "interrupted",
}
"""Exit codes that mean something; of a failed answer it is the HTTP status modulo 256."""

HINTS: dict[AgentErrorKind, str] = {
    "auth": "Run `gemini` and log in, or set GEMINI_API_KEY.",
    "spending_cap": "Check plan and billing of the account.",
    "config": "Compare the arguments with `gemini --help`.",
}

_TYPES: dict[str, AgentErrorKind] = {
    "FatalAuthenticationError": "auth",
    "FatalInputError": "config",
    "FatalSandboxError": "config",
    "FatalConfigError": "config",
    "FatalTurnLimitedError": "max_turns",
    "FatalCancellationError": "interrupted",
}
NO_SESSION = re.compile(r"error resuming session|no previous sessions", re.IGNORECASE)
"""How gemini says that it does not have a session."""
_API_ERROR = re.compile(r"^\[API Error: (.*)\]", re.DOTALL)  # advice may follow
_WORDS: tuple[tuple[AgentErrorKind, re.Pattern[str]], ...] = (
    (
        "spending_cap",
        re.compile(r"billing to be enabled|enable billing|billing is (?:not|disabled)"),
    ),
    (
        "auth",
        re.compile(
            r"api key not (?:valid|found)|api_key_invalid|permission_denied|unauthenticated"
        ),
    ),
    (
        "usage_cap",
        re.compile(r"daily quota|per ?day|daily limit|exhausted your capacity|quota will reset"),
    ),
    ("rate_limit", re.compile(r"retry in \d|retrydelay|per ?minute")),  # speaks of billing too
    ("spending_cap", re.compile(r"billing|prepayment|credits? (?:are|is) depleted|spending cap")),
    ("output_limit", re.compile(r"response was truncated")),  # speaks of the token limit too
    (
        "context_overflow",
        re.compile(r"exceeds the maximum number of tokens|context window|token limit"),
    ),
    ("rate_limit", re.compile(r"resource_exhausted|rate limit|too many requests|quota")),
    ("max_turns", re.compile(r"max(?:imum)? session turns|turn limit")),
    ("refusal", re.compile(r"prohibited|blocked (?:by safety|due to)|safety settings|recitation")),
    ("bad_request", re.compile(r"not found|not supported|invalid_argument")),
)


def api_error_of(message: str) -> Object:
    """The API's own error in a message, or an empty one. It may stand in another one's message."""
    found = _API_ERROR.match(message.strip())
    _, value = json_value(found[1]) if found else (False, None)
    outer = object_in(as_object(value), "error") or as_object(value)
    _, within = json_value(text_in(outer, "message"))
    return object_in(as_object(within), "error") or outer


def kind_of_failure(error: Object) -> tuple[AgentErrorKind, int | None]:
    """What the ``error`` of a result is, with its HTTP status if that is known."""
    message = text_in(error, "message")
    api = api_error_of(message)
    status = whole_in(api, "code")
    known = _TYPES.get(text_in(error, "type"))
    if known is not None:
        return known, status
    worded = _worded(message.lower())
    kind: AgentErrorKind = kind_of_status(status) or worded or "transient"
    if kind in ("bad_request", "rate_limit"):  # which words may say more exactly
        kind = worded or kind
    elif kind == "auth" and worded == "spending_cap":
        kind = worded
    return kind, status


def _worded(said: str) -> AgentErrorKind | None:
    return next((kind for kind, pattern in _WORDS if pattern.search(said)), None)
