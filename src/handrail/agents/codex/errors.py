"""Classifies a failure of codex: by its typed error if there is one, else by its words.

``codex app-server`` adds a ``codexErrorInfo`` to most sentences and, for plans, snapshots of the
windows.

Source: the messages in ``codex-rs/protocol/src/error.rs`` and those that codex 0.169 printed.
"""

from __future__ import annotations

import re

from handrail.agents.transport.failures import (
    VAGUE,
    Diagnosis,
    better_kind,
    kind_of_status,
    plain,
    reset_time_in,
    rows,
    status_in,
)
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
from handrail.errors import AgentErrorKind

_STATUS = re.compile(
    r"(?:last status:|unexpected status|\(status|http status:?|http error:?)\s*(\d{3})\b"
)

# The order matters: a plan's limit also mentions credits, a rate limit plans, a 400 anything.
_SURE = rows(
    VAGUE,
    (
        "usage_cap",
        r"(?:hit|reached|exceeded) your (?:[\w-]+ )?usage limit",
        r"usage[_ ]limit[_ ](?:has been |was )?reached",
    ),
    (
        "spending_cap",
        r"out of credits|spend(?:ing)? (?:cap|limit)|quota exceeded|exceeded your current quota",
        r"insufficient_quota|credit balance|billing|with your chatgpt plan|budget exceeded",
    ),
    (
        "context_overflow",
        r"ran out of room|context window|context[_ ]length|maximum context",
        r"(?:prompt|input) is too long",
    ),
    ("output_limit", r"max_output_tokens|reason: length"),
    ("refusal", r"content_filter|\bflagged\b|usage polic|for safety reasons"),
)
_FAINT = rows(
    {None},
    ("config", r"sandbox (?:denied|error|rules)"),
    ("rate_limit", r"rate.?limit|too many requests"),
    (
        "auth",
        r"missing environment variable|(?:incorrect|invalid) api key|unauthorized|log ?in again",
        r"sign(?:ing)? in|log(?:ging)? in|not logged in|refresh token|access blocked|codex login",
    ),
    ("refusal", r"\bpolic(?:y|ies)\b|request was refused"),
    ("interrupted", r"^interrupted|turn aborted|turn interrupted"),
    (
        "transient",
        r"high demand|at capacity|overloaded|stream disconnected|idle timeout|timed out",
        r"connection failed|error sending request|reading the server response|server error",
        r"waiting for network|temporar",
    ),
    (
        "bad_request",
        r"does not exist|do not have access|not supported|unsupported|invalid[_ ]",
        r"no thread with|no rollout found|not[_ ]found|^\{",
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


def diagnose(
    message: str, now: float, info: object = None, limits: Object | None = None
) -> Diagnosis:
    """A failed turn's kind: by its typed error, and by its message for what that leaves open.

    A failure that neither explains is transient. ``info`` is the ``codexErrorInfo``: a name, or
    ``{name: {"httpStatusCode": ...}}``. ``limits`` is the last snapshot of the plan's windows, if
    codex sent one.
    """
    name, details = _split_tag(info)
    words, reason = _plain(message), _reason(message)
    typed_status = whole_in(details, "httpStatusCode")
    status = typed_status or status_in(_STATUS, words)
    if name == "usagelimitexceeded":
        kind, retry_at = _plan_fault(message, now, limits or NOTHING)
        return Diagnosis(kind, reason, retry_at, status)
    exact = kind_of_status(typed_status) or _INFO.get(name)
    if exact is None:  # "other", an unknown name, or a failed request without its status
        exact = better_kind(None, words, _SURE) or kind_of_status(status)
        kind = exact or better_kind(None, words, _FAINT) or "transient"
        return Diagnosis(kind, reason, reset_time_in(kind, message, now), status)
    kind = better_kind(exact, words, _SURE) or exact
    after_s = number_in(details, "resetAfterSeconds") or number_in(details, "reset_after_seconds")
    at = reset_time_in(kind, message, now) if after_s is None else now + after_s
    return Diagnosis(kind, reason, at, status)


def _reason(message: str) -> str:
    """A message for people: if it is the JSON of a model's API, the text in it."""
    data = object_of(message.encode("utf-8", "replace")) or NOTHING
    return (
        text_in(object_in(data, "error"), "message")
        or text_in(data, "message", "detail")
        or message
        or "codex says that the turn failed, but not why"
    )


def _plan_fault(message: str, now: float, limits: Object) -> tuple[AgentErrorKind, float | None]:
    """Which cap was reached, and when it resets if it is a window of the plan."""
    reached = str(limits.get("rateLimitReachedType") or "").lower().replace("_", "")
    if reached.startswith("workspace") or limits.get("spendControlReached") is True:
        return "spending_cap", None
    said = better_kind(None, _plain(message), _SURE)
    windows = (object_in(limits, name) for name in ("primary", "secondary"))
    full = [window for window in windows if (number_in(window, "usedPercent") or 0) >= 100]
    is_window = bool(full) or said == "usage_cap" or reached == "ratelimitreached"
    if said == "spending_cap" or not is_window:
        return "spending_cap", None
    times = [at for window in full if (at := number_in(window, "resetsAt")) is not None]
    return "usage_cap", max(times) if times else reset_time_in("usage_cap", message, now)


def _plain(text: str) -> str:
    return " ".join(plain(text).split())


def _split_tag(info: object) -> tuple[str, Object]:
    if isinstance(info, str):
        return _name(info), NOTHING
    tagged = as_object(info)
    if len(tagged) != 1 or "type" in tagged:
        return _name(str(tagged.get("type") or "")), tagged
    name, details = next(iter(tagged.items()))
    return _name(str(name)), as_object(details)


def _name(written: str) -> str:
    return written.replace("_", "").lower()
