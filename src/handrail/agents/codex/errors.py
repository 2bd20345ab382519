"""What a failure of codex is, from its typed error where there is one, else from its words.

``codex exec`` has nothing but a sentence; ``codex app-server`` adds a ``codexErrorInfo`` and, for
plans, snapshots of the windows. Both give ``(kind, retry_at)``.

Source: the messages in ``codex-rs/protocol/src/error.rs`` and those that codex 0.169 printed.
"""

from __future__ import annotations

import re
from typing import TypeAlias

from handrail.agents.transport.failures import kind_of_status
from handrail.agents.transport.loose_json import (
    NOTHING,
    Object,
    as_object,
    number_in,
    object_in,
    object_of,
    text_in,
    whole_in,
)
from handrail.agents.transport.reset_times import reset_time
from handrail.errors import AgentErrorKind

Fault: TypeAlias = "tuple[AgentErrorKind, float | None]"
"""The kind of a failure, and the unix time from which it may work again, if it says so."""

_STATUS = re.compile(
    r"(?:last status:|unexpected status|\(status|http status:?|http error:?)\s*(\d{3})\b"
)

# In this order: a plan's limit also speaks of credits, a rate limit of plans, a 400 of anything.
_WORDS: tuple[tuple[AgentErrorKind, re.Pattern[str]], ...] = (
    (
        "usage_cap",
        re.compile(
            r"(?:hit|reached|exceeded) your (?:[\w-]+ )?usage limit"
            r"|usage[_ ]limit[_ ](?:has been |was )?reached"
        ),
    ),
    (
        "spending_cap",
        re.compile(
            r"out of credits|spend(?:ing)? (?:cap|limit)|quota exceeded|exceeded your current quota"
            r"|insufficient_quota|credit balance|billing|with your chatgpt plan|budget exceeded"
        ),
    ),
    (
        "context_overflow",
        re.compile(
            r"ran out of room|context window|context[_ ]length|maximum context"
            r"|(?:prompt|input) is too long"
        ),
    ),
    ("output_limit", re.compile(r"max_output_tokens|reason: length")),
    ("refusal", re.compile(r"content_filter|\bflagged\b|usage polic|for safety reasons")),
)
_MORE_WORDS: tuple[tuple[AgentErrorKind, re.Pattern[str]], ...] = (
    ("config", re.compile(r"sandbox (?:denied|error|rules)")),
    ("rate_limit", re.compile(r"rate.?limit|too many requests")),
    (
        "auth",
        re.compile(
            r"missing environment variable|(?:incorrect|invalid) api key|unauthorized|log ?in again"
            r"|sign(?:ing)? in|log(?:ging)? in|not logged in|refresh token|access blocked"
            r"|codex login"
        ),
    ),
    ("refusal", re.compile(r"\bpolic(?:y|ies)\b|request was refused")),
    ("interrupted", re.compile(r"^interrupted|turn aborted|turn interrupted")),
    (
        "transient",
        re.compile(
            r"high demand|at capacity|overloaded|stream disconnected|idle timeout|timed out"
            r"|connection failed|error sending request|reading the server response|server error"
            r"|waiting for network|temporar"
        ),
    ),
    (
        "bad_request",
        re.compile(
            r"does not exist|do not have access|not supported|unsupported|invalid[_ ]"
            r"|no thread with|no rollout found|not[_ ]found"
        ),
    ),
)

_INFO: dict[str, AgentErrorKind] = {
    "contextwindowexceeded": "context_overflow",
    "sessionbudgetexceeded": "spending_cap",
    "ratelimitexceeded": "rate_limit",
    "modelcap": "rate_limit",
    "serveroverloaded": "transient",
    "flexunavailable": "transient",
    "policycapacityunavailable": "transient",
    "internalservererror": "transient",
    "unauthorized": "auth",
    "cyberpolicy": "refusal",
    "biopolicy": "refusal",
    "misalignmentpolicyviolation": "refusal",
    "inferencehookdenied": "refusal",
    "toomanydenials": "refusal",
    "invalidprompt": "bad_request",
    "badrequest": "bad_request",
    "modelnotfound": "bad_request",
    "sandboxerror": "config",
    "threadrollbackfailed": "bad_request",
    "activeturnnotsteerable": "bad_request",
}
NO_SESSION = re.compile(r"no rollout found|no thread with|thread not found", re.IGNORECASE)
"""How codex says that it does not have a thread."""
_VAGUE = frozenset({"bad_request", "rate_limit"})
"""Kinds of a typed error that its message may say more exactly."""


def fault_of_message(text: str, now: float) -> Fault:
    """What the message of a failed turn says. One that says nothing known is transient."""
    words = _plain(text)
    kind = (
        _first(_WORDS, words)
        or kind_of_status(status_of_message(text))
        or _first(_MORE_WORDS, words)
        or ("bad_request" if words.startswith("{") else "transient")
    )
    return kind, _retry_at(kind, text, now)


def fault_of_info(info: object, message: str, now: float, rate_limits: object = None) -> Fault:
    """What a typed error says, with its message for what the type leaves open.

    ``info`` is the ``codexErrorInfo``: a name, or ``{name: {"httpStatusCode": ...}}``.
    ``rate_limits`` is the last snapshot of the plan's windows, if one came.
    """
    name, details = _tagged(info)
    if name == "usagelimitexceeded":
        return _plan_fault(message, now, rate_limits)
    kind = kind_of_status(whole_in(details, "httpStatusCode")) or _INFO.get(name)
    if kind is None:  # "other", a name not known here, or a failed request without its status
        return fault_of_message(message, now)
    if kind in _VAGUE:
        kind = _first(_WORDS, _plain(message)) or kind
    after_s = number_in(details, "resetAfterSeconds") or number_in(details, "reset_after_seconds")
    return kind, _retry_at(kind, message, now) if after_s is None else now + after_s


def reason_of(message: str) -> str:
    """A message for people: of the JSON that a model's API answered with, what it says in words."""
    if not message:
        return "codex says that the turn failed, but not why"
    told = object_of(message.encode("utf-8", "replace")) or NOTHING
    return (
        text_in(object_in(told, "error"), "message")
        or text_in(told, "message", "detail")
        or message
    )


def status_of_message(text: str) -> int | None:
    """The HTTP status that a message names."""
    found = _STATUS.search(_plain(text))
    return int(found[1]) if found else None


def status_of_info(info: object) -> int | None:
    """The HTTP status that a typed error carries."""
    return whole_in(_tagged(info)[1], "httpStatusCode")


def hint_of(kind: AgentErrorKind) -> str:
    """What a person can do about a failure of codex of this kind; empty if nothing."""
    return _HINTS.get(kind, "")


_HINTS: dict[AgentErrorKind, str] = {
    "auth": "Run `codex login`, or set the API key that its model provider reads.",
    "spending_cap": "Add credits, raise the spend cap or change the plan of the account.",
    "not_installed": "Install it: npm install -g @openai/codex",
    "config": "Compare the options with `codex --help` and its config.toml.",
}


def _plan_fault(message: str, now: float, rate_limits: object) -> Fault:
    limits = as_object(rate_limits)
    reached = str(limits.get("rateLimitReachedType") or "").lower().replace("_", "")
    if reached.startswith("workspace") or limits.get("spendControlReached") is True:
        return "spending_cap", None
    said = _first(_WORDS, _plain(message))
    windows = (object_in(limits, name) for name in ("primary", "secondary"))
    full = [window for window in windows if (number_in(window, "usedPercent") or 0) >= 100]
    is_window = bool(full) or said == "usage_cap" or reached == "ratelimitreached"
    if said == "spending_cap" or not is_window:
        return "spending_cap", None
    times = [at for window in full if (at := number_in(window, "resetsAt")) is not None]
    return "usage_cap", max(times) if times else _retry_at("usage_cap", message, now)


def _retry_at(kind: AgentErrorKind, text: str, now: float) -> float | None:
    return reset_time(text, now) if kind in ("usage_cap", "rate_limit", "transient") else None


def _first(
    rows: tuple[tuple[AgentErrorKind, re.Pattern[str]], ...], words: str
) -> AgentErrorKind | None:
    return next((kind for kind, pattern in rows if pattern.search(words)), None)


def _plain(text: str) -> str:
    return " ".join(text.replace("\u2019", "'").lower().split())


def _tagged(info: object) -> tuple[str, Object]:
    if isinstance(info, str):
        return _name(info), NOTHING
    tagged = as_object(info)
    if len(tagged) != 1 or "type" in tagged:
        return _name(str(tagged.get("type") or "")), tagged
    name, details = next(iter(tagged.items()))
    return _name(str(name)), as_object(details)


def _name(written: str) -> str:
    return written.replace("_", "").lower()
