"""Classifies a failure of an agent that speaks ACP. The protocol lists no errors, so each agent has
its own form: a word in ``data``, an HTTP status as the code, JSON in a text, or only a text.
"""

from __future__ import annotations

import re
from dataclasses import replace

from handrail.agents.acp.agents import Family
from handrail.agents.claude import errors as claude_errors
from handrail.agents.codex import errors as codex_errors
from handrail.agents.copilot import errors as copilot_errors
from handrail.agents.transport.failures import (
    VAGUE,
    Diagnosis,
    better_kind,
    kind_of_status,
    reset_time_in,
    rows,
    status_in,
)
from handrail.agents.transport.loose_json import (
    NOTHING,
    Object,
    as_object,
    object_in,
    object_of,
    text_in,
    whole_in,
)
from handrail.agents.transport.rpc import REFUSED, RpcError
from handrail.errors import AgentErrorKind

AUTH_REQUIRED = -32000
_REFUSED = REFUSED | {-32002}  # the requested thing does not exist
_INTERNAL = re.compile(r"^Internal error:?\s*")
_STATUS = re.compile(
    r"\b(?:HTTP|status|error:?|rejected \()\s?(?:code )?([45]\d\d)\b", re.IGNORECASE
)


def diagnose(error: RpcError, family: Family, now: float) -> Diagnosis:
    """The meaning of an error reply."""
    data = as_object(error.data)
    details = text_in(data, "message", "details", "error")
    inner = _inner(error.message) or object_in(data, "error") or _inner(details)
    said = text_in(inner, "message") or details
    plain = _INTERNAL.sub("", error.message)
    if isinstance(error.data, str) and error.data not in plain:  # the form of agents in Rust
        said = ": ".join(filter(None, (plain, error.data)))
    reason = said or plain or error.message
    status = _status(error, data, inner)
    if claude := text_in(data, "errorKind"):
        return _of_claude(reason, now, claude)
    if "codexErrorInfo" in data:
        diagnosis = codex_errors.diagnose(reason, now, data["codexErrorInfo"])
        return replace(diagnosis, status=diagnosis.status or status)
    is_refused = error.code in _REFUSED
    exact = _NAMES.get(text_in(data, "errorName"))
    if exact is None and error.code == AUTH_REQUIRED:
        exact = "auth"
    if exact is None and family in _BY_FAMILY and status is None and not is_refused:
        return diagnose_text(reason, family, now)
    words = f"{reason} {text_in(inner, 'status')} {_reasons(inner)}".strip()
    otherwise: AgentErrorKind = "bad_request" if is_refused else "transient"
    kind = exact or _kind_of_words(words, status) or otherwise
    at = reset_time_in(kind, reason if exact else f"{words} {str(error.data)[:2000]}", now)
    return Diagnosis(kind, reason, at, status)


def diagnose_reopening(error: RpcError, family: Family, now: float, session: str) -> Diagnosis:
    """The meaning of a refusal to open an earlier session: the agent does not have it, unless the
    error names another cause. Agents share no word for a missing session; some have none.
    """
    diagnosis = diagnose(error, family, now)
    if diagnosis.kind in _NOT_OF_SESSIONS or _is_specific(error, diagnosis):
        return diagnosis
    reason = diagnosis.reason
    if session not in reason:
        reason = f"it could not go on in session {session!r}: {reason}"
    return replace(diagnosis, kind="bad_request", reason=reason, retry_at=None)


def _is_specific(error: RpcError, diagnosis: Diagnosis) -> bool:
    """True if a failure is ``transient`` by its data or status, not just for lack of a cause."""
    is_typed = bool(as_object(error.data).keys() & {"errorKind", "codexErrorInfo"})
    return diagnosis.kind == "transient" and (is_typed or diagnosis.status is not None)


def diagnose_text(text: str, family: Family, now: float) -> Diagnosis:
    """The meaning of a text that an agent sent in place of an error."""
    reason = text.strip()
    if by_family := _BY_FAMILY.get(family):
        return by_family(reason, now)
    status = status_in(_STATUS, reason)
    kind = _kind_of_words(reason, status) or "transient"
    return Diagnosis(kind, reason, reset_time_in(kind, reason, now), status)


def _of_claude(reason: str, now: float, error: str = "") -> Diagnosis:
    diagnosis = claude_errors.diagnose(claude_errors.Failure(text=reason, error=error), now)
    if diagnosis.kind != "crashed":
        return diagnosis
    # It reported its failure, so it has not crashed.
    return replace(diagnosis, kind="transient", retry_at=reset_time_in("transient", reason, now))


def _of_codex(reason: str, now: float) -> Diagnosis:
    diagnosis = codex_errors.diagnose(reason, now)
    return replace(diagnosis, status=diagnosis.status or status_in(_STATUS, reason))


def _of_copilot(reason: str, now: float) -> Diagnosis:
    status = status_in(_STATUS, reason)
    diagnosis = copilot_errors.Fault(message=reason, status=status).diagnose(now)
    known = None if diagnosis.kind == "transient" else diagnosis.kind
    return replace(
        diagnosis, reason=reason, kind=known or _kind_of_words(reason, status) or "transient"
    )


_BY_FAMILY = {"claude": _of_claude, "codex": _of_codex, "copilot": _of_copilot}
"""Agents that pass on the words of a known program."""


def _inner(message: str) -> Object:
    """The error of a model's API, if an agent passes it on as JSON."""
    if not message.lstrip().startswith("{"):
        return NOTHING
    data = object_of(message.encode("utf-8", "replace")) or NOTHING
    return object_in(data, "error") or data


def _reasons(inner: Object) -> str:
    """The text of the details of a Google error."""
    details = inner.get("details")
    return str(details)[:2000] if details else ""


def _status(error: RpcError, data: Object, inner: Object) -> int | None:
    codes = (
        whole_in(data, "statusCode"),
        whole_in(data, "status"),
        whole_in(inner, "code"),
        error.code,
        status_in(_STATUS, error.message),
        status_in(_STATUS, error.data) if isinstance(error.data, str) else None,
    )
    return next((code for code in codes if code is not None and 400 <= code < 600), None)


def _kind_of_words(words: str, status: int | None) -> AgentErrorKind | None:
    return better_kind(kind_of_status(status), words, _ROWS)


_NOT_OF_SESSIONS = frozenset({"auth", "rate_limit", "usage_cap", "spending_cap"})
_NAMES: dict[str, AgentErrorKind] = {  # of opencode
    "ContextOverflowError": "context_overflow",
    "MessageAbortedError": "interrupted",
    "MessageOutputLengthError": "output_limit",
    "ProviderAuthError": "auth",
    "ProviderModelNotFoundError": "bad_request",
}
_ROWS = (
    *rows(
        {*VAGUE, "auth", "spending_cap", "context_overflow"},
        (
            "context_overflow",
            r"context (?:window|length|limit)|context_length|maximum context|too many tokens",
            r"exceeds the maximum number of tokens|(?:prompt|input|request) (?:is|as) too long",
        ),
        ("rate_limit", r"perminute|per minute|requests per"),
        (
            "usage_cap",
            r"exhausted your (?:daily )?(?:quota|capacity)|daily quota|perday|quota will reset",
            r"request allowance|usage limit|limit resets|(?:weekly|5-hour|session) limit",
        ),
        ("rate_limit", r"retry in \d"),  # Google mentions billing then, too
        (
            "spending_cap",
            r"credit balance|out of credits|insufficient[ _](?:funds|credits?|balance|quota)",
            r"billing|payment required|spend(?:ing)? (?:cap|limit)|add (?:funds|credits)",
        ),
        ("auth", r"api[ _-]?key|unauthenticated|authenticat|not logged in|log in again"),
        ("output_limit", r"output token (?:maximum|limit)|max_tokens|max output tokens"),
        ("refusal", r"usage polic|content.filter|safety|prohibited"),
    ),
    *rows(
        {None},
        ("rate_limit", r"rate.?limit|too many requests|resource.exhausted"),
        ("auth", r"unauthorized|forbidden|permission denied|\blogin\b|invalid credentials"),
        ("bad_request", r"model not found|unknown model|not supported|no such session"),
        ("bad_request", r"session.{0,60}not found|invalid (?:params|argument)"),
    ),
)
