"""What an HTTP status of a model's API means in the words that all backends share."""

from __future__ import annotations

from handrail.errors import AgentErrorKind

_KINDS: dict[int, AgentErrorKind] = {
    401: "auth",
    402: "spending_cap",
    403: "auth",
    407: "auth",
    408: "transient",
    409: "transient",
    413: "context_overflow",
    425: "transient",
    429: "rate_limit",
}


def kind_of_status(status: int | None) -> AgentErrorKind | None:
    """The kind of a failure with this status; None if it says nothing."""
    if status is None or not 400 <= status < 600:
        return None
    return _KINDS.get(status) or ("transient" if status >= 500 else "bad_request")
