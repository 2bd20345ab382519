"""Classifies a failure of claude: by its structured fields, and by its words where those are vague.

Claude reports one failure in several places: the error of the last assistant line, the result's
subtype, ``terminal_reason`` and ``api_error*``, the HTTP status, a plan's window, and a sentence.
The most exact of them decides. For a plan's limit, the sentence says which of two caps it is.

Source: the enumerations and messages of claude 2.1.197 to 2.1.330, and their output.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from handrail.agents.transport.failures import (
    MAY_PASS,
    Diagnosis,
    better_kind,
    kind_of_status,
    plain,
    rows,
    status_in,
)
from handrail.agents.transport.loose_json import Object, number_in, object_in, text_in
from handrail.agents.transport.reset_times import reset_time
from handrail.errors import AgentErrorKind
from handrail.model.dataclass import dataclass
from handrail.model.events import AgentLimit

ABORTED = frozenset({"aborted_streaming", "aborted_tools"})
"""Terminal reasons of an interrupted turn."""
UNDONE = ABORTED | {
    "api_error", "background_requested", "blocking_limit", "budget_exhausted", "image_error",
    "malformed_tool_use_exhausted", "max_turns", "model_error", "prompt_too_long",
    "rapid_refill_breaker", "structured_output_retry_exhausted", "tool_deferred",
    "tool_deferred_unavailable", "turn_setup_failed",
}  # fmt: skip
"""Terminal reasons without a complete answer, whatever else the result says."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What claude reported of a failed turn, by the names that claude uses; empty if not reported.

    ``cut`` is that of ``api_error_params``. ``is_capped``: a window of the plan was used up, until
    ``resets_at`` (unix seconds) if that was reported.
    """

    text: str = ""
    subtype: str = ""
    terminal_reason: str = ""
    stop_reason: str = ""
    error: str = ""
    api_error: str = ""
    api_error_type: str = ""
    cut: str = ""
    status: int | None = None
    is_capped: bool = False
    resets_at: float | None = None


def kind_of(failure: Failure) -> AgentErrorKind:
    """The failure's kind, as all backends name it."""
    if failure.terminal_reason in ABORTED:
        return "interrupted"
    if kind := _SUBTYPES.get(failure.subtype):
        return kind
    if failure.stop_reason == "refusal":
        return "refusal"
    if exact := _API_ERRORS.get(failure.api_error):
        return exact
    is_wordless = status_of(failure) == 429 and not (failure.error or failure.api_error)
    if is_wordless or failure.api_error in _LIMITS or failure.error in _LIMITS:
        return _limit(failure)
    if failure.api_error == "max_output_tokens" or failure.error == "max_output_tokens":
        return "context_overflow" if _is_window_full(failure) else "output_limit"
    if exact := _TERMINAL.get(failure.terminal_reason) or _ERRORS.get(failure.error):
        return exact
    return (
        _kind_by_words(failure)
        or _TYPES.get(failure.api_error_type)
        or kind_of_status(status_of(failure))
        or _VAGUE.get(failure.error)
        or ("transient" if failure.terminal_reason == "api_error" else "crashed")
    )


def diagnose(failure: Failure, now: float) -> Diagnosis:
    """The failure's kind, and the time from which a retry may work, if it was reported."""
    kind = kind_of(failure)
    at = failure.resets_at if kind == "usage_cap" else None
    if at is None and kind in MAY_PASS | {"spending_cap"}:
        at = reset_time(failure.text, now)
    return Diagnosis(kind, failure.text, at, status_of(failure))


def status_of(failure: Failure) -> int | None:
    """The HTTP status; if no field has it, the one in the sentence."""
    return status_in(_STATUS, failure.text) if failure.status is None else failure.status


_STATUS = re.compile(r"(?:API Error:?\s{0,3}\(?|Request rejected \()([45]\d\d)\b")
_LIMITS = frozenset({"usage_limit_reached", "rate_limit", "billing_error"})

_SUBTYPES: dict[str, AgentErrorKind] = {
    "error_max_turns": "max_turns",
    "error_max_budget_usd": "spending_cap",
    "error_max_structured_output_retries": "invalid_output",
}
_TERMINAL: dict[str, AgentErrorKind] = {
    "background_requested": "interrupted",
    "blocking_limit": "context_overflow",
    "budget_exhausted": "spending_cap",
    "image_error": "bad_request",
    "malformed_tool_use_exhausted": "transient",
    "max_turns": "max_turns",
    "model_error": "transient",
    "prompt_too_long": "context_overflow",
    "rapid_refill_breaker": "context_overflow",
    "structured_output_retry_exhausted": "invalid_output",
    "tool_deferred": "interrupted",
    "tool_deferred_unavailable": "interrupted",
}
_API_ERRORS: dict[str, AgentErrorKind] = {
    "autocompact_thrashing": "context_overflow",
    "computer_slept": "transient",
    "connection_failed": "transient",
    "empty_completion": "transient",
    "message_over_context_limit": "context_overflow",
    "model_requires_usage_credits": "spending_cap",
    "org_disabled_credential": "auth",
    "stream_idle_timeout": "transient",
}
_ERRORS: dict[str, AgentErrorKind] = {
    "account_on_hold": "auth",
    "authentication_failed": "auth",
    "cloud_credential_error": "auth",
    "model_not_found": "bad_request",
    "oauth_org_not_allowed": "auth",
    "overloaded": "transient",
    "server_error": "transient",
    "verification_required": "auth",
}
_VAGUE: dict[str, AgentErrorKind] = {"invalid_request": "bad_request", "unknown": "transient"}
_TYPES: dict[str, AgentErrorKind] = {  # of the API itself
    "api_error": "transient",
    "authentication_error": "auth",
    "billing_error": "spending_cap",
    "not_found_error": "bad_request",
    "overloaded_error": "transient",
    "permission_error": "auth",
    "rate_limit_error": "rate_limit",
    "request_too_large": "context_overflow",
    "timeout_error": "transient",
}

_WINDOW_FULL = re.compile(
    r"prompt is too long|context (?:window|limit)|maximum context|conversation is too long"
    r"|max_tokens.{0,20} exceed|request (?:is )?too large"
)
_MONEY = re.compile(
    r"credit balance|spend(?:ing)? (?:limit|cap)|add funds|specified api usage limits"
    r"|usage credits are required|extra usage is required|requires usage credits"
    r"|insufficient (?:credit|fund)|payment required|billing"
    # Limits that a person set; they do not reset with a window:
    r"|seat type doesn't include|disabled (?:by your admin|for your org)|limit is set to \$0"
)
_WINDOW = re.compile(  # resets by itself, whatever else claude offers until then
    r"hit your (?!.{0,40}spend).{0,40}limit\s{0,4}[·∙]\s{0,4}resets"
)
_OUT_OF_CREDITS = re.compile(r"out of (?:usage|extra usage|credits?|usage credits)\b")
_PLAN = re.compile(
    r"(?:hit|reached) your .{0,40}limit|usage limit reached|limit reached|limit will reset"
    r"|(?:5-hour|weekly|session|monthly usage) limit"
)
_NO_SESSION = r"no conversation found|session .{0,60}not found"
_ROWS = rows(
    {None},
    ("bad_request", _NO_SESSION, r"^unknown (?:slash )?command:"),
    ("rate_limit", r"rate.?limit|too many requests"),
    (
        "auth",
        r"not logged in|/login|api key|authenticat|oauth token|unauthorized|forbidden",
        r"organization has been disabled|disabled organization|does not have access to claude",
    ),
    ("refusal", r"usage policy|safeguards flagged"),
    ("output_limit", r"output token maximum|output token limit"),
    ("bad_request", r"model.{0,80}(?:may not exist|not found)|invalid_request"),
    (
        "transient",
        r"overloaded|internal server error|server error|connection|timed? ?out|socket|network",
        r"econn|enotfound|etimedout|epipe|unavailable|bad gateway|fetch failed",
    ),
)
_COMPLAINT = re.compile(
    r"\s{0,4}(?:(?:failed to authenticate\. )?API Error(?:: | \()|Claude AI usage limit reached"
    r"|You['\u2019]ve (?:hit|reached) your .{0,40}limit|(?:5-hour|weekly|session) limit reached"
    r"|Credit balance is too low|Invalid API key ·|Not logged in ·|Login expired ·"
    r"|OAuth token .{0,40} /login|Prompt is too long\b)",
    re.IGNORECASE,
)


def is_complaint(text: str) -> bool:
    """True if claude itself, not a model, wrote this text, and it reports a failure."""
    return _COMPLAINT.match(text) is not None


def is_unknown_session(text: str) -> bool:
    """True if the failure is that the session to continue does not exist."""
    return re.search(_NO_SESSION, plain(text)) is not None


def _limit(failure: Failure) -> AgentErrorKind:
    """Which limit it is: money, a window of the plan, or the rate of requests."""
    said = plain(failure.text)
    if failure.error == "billing_error" or (not _WINDOW.search(said) and _MONEY.search(said)):
        return "spending_cap"
    if _OUT_OF_CREDITS.search(said):  # the plan's window may reset before there is credit
        opens = failure.resets_at is not None or "resets" in said
        return "usage_cap" if opens else "spending_cap"
    is_plan_limit = failure.api_error == "usage_limit_reached" or failure.is_capped
    return "usage_cap" if is_plan_limit or _PLAN.search(said) else "rate_limit"


def _is_window_full(failure: Failure) -> bool:
    return failure.cut == "context_window" or _WINDOW_FULL.search(plain(failure.text)) is not None


def _kind_by_words(failure: Failure) -> AgentErrorKind | None:
    """The kind that the sentence shows, if no field is exact; None if it shows none."""
    said = plain(failure.text)
    if _WINDOW_FULL.search(said):
        return "context_overflow"
    if _MONEY.search(said) or _OUT_OF_CREDITS.search(said) or _PLAN.search(said):
        return _limit(failure)
    return better_kind(None, said, _ROWS)


_Status: TypeAlias = Literal["allowed", "warning", "reached"]
_STATUSES: dict[str, _Status] = {
    "allowed": "allowed",
    "allowed_warning": "warning",
    "rejected": "reached",
}


def limit_of(info: Object, path: str) -> AgentLimit | None:
    """The notice for an event's ``rate_limit_info``; None if its status is unknown."""
    status = _status_of(info)
    if status is None:
        return None
    return AgentLimit(
        path, status, text_in(info, "rateLimitType"), _used_fraction(info), resets_at(info)
    )


def is_used_up(info: Object) -> bool:
    """True if the window is used up, and nothing is left to pay for more."""
    return _status_of(info) == "reached"


def _status_of(info: Object) -> _Status | None:
    """The window's status; a used up one is a warning while further use is paid for."""
    status, overage = _STATUSES.get(text_in(info, "status")), text_in(info, "overageStatus")
    goes_on = overage.startswith("allowed") if overage else info.get("isUsingOverage") is True
    return "warning" if status == "reached" and goes_on else status


def resets_at(info: Object) -> float | None:
    """When the window resets, in unix seconds."""
    at = _number(info, "resetsAt")
    if at is None or at <= 0:
        return None
    return at / 1000 if at > 1e11 else at


def _used_fraction(info: Object) -> float | None:
    """How much of the window is used, from 0 to 1."""
    used = _number(info, "utilization")
    return None if used is None else min(max(used, 0.0), 1.0)


def _number(info: Object, name: str) -> float | None:
    """A number of the window, which may be in either of two places."""
    if (value := number_in(info, name)) is not None:
        return value
    window = object_in(object_in(info, "unifiedWindows"), text_in(info, "rateLimitType"))
    return number_in(window, name)
