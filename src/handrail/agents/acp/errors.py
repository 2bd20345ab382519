"""What a failure of an agent that speaks ACP is. The protocol has no list of errors, so each agent
tells its own: a word in ``data``, a code that is an HTTP status, JSON in a text, or only a text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from handrail.agents.acp.agents import Family
from handrail.agents.claude import errors as claude_errors
from handrail.agents.codex import errors as codex_errors
from handrail.agents.copilot import errors as copilot_errors
from handrail.agents.transport.failures import kind_of_status
from handrail.agents.transport.loose_json import (
    NOTHING,
    Object,
    as_object,
    object_in,
    object_of,
    text_in,
    whole_in,
)
from handrail.agents.transport.reset_times import reset_time
from handrail.agents.transport.rpc import REFUSED, RpcError
from handrail.errors import AgentErrorKind

AUTH_REQUIRED = -32000
_REFUSED = REFUSED | {-32002}  # what was asked for is not there
_INTERNAL = re.compile(r"^Internal error:?\s*")
_STATUS = re.compile(
    r"\b(?:HTTP|status|error:?|rejected \()\s?(?:code )?([45]\d\d)\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a turn failed: ``reason`` in the agent's words, and what these mean."""

    kind: AgentErrorKind
    reason: str
    retry_at: float | None = None
    status: int | None = None
    hint: str = ""


def fault_of_error(error: RpcError, family: Family, now: float) -> Fault:
    """What an error reply means."""
    data = as_object(error.data)
    details = text_in(data, "message", "details", "error")
    inner = _inner(error.message) or object_in(data, "error") or _inner(details)
    said = text_in(inner, "message") or details
    plain = _INTERNAL.sub("", error.message)
    if isinstance(error.data, str) and error.data not in plain:  # as agents in Rust tell it
        said = ": ".join(filter(None, (plain, error.data)))
    reason = said or plain or error.message
    status = _status(error, data, inner)
    words = f"{reason} {text_in(inner, 'status')} {_reasons(inner)}".strip()
    if claude := text_in(data, "errorKind"):
        return _claude(reason, claude, now)
    if "codexErrorInfo" in data:
        kind, retry_at = codex_errors.fault_of_info(data["codexErrorInfo"], reason, now)
        status = codex_errors.status_of_info(data["codexErrorInfo"]) or status
        return Fault(kind, reason, retry_at, status, codex_errors.hint_of(kind))
    if named := _NAMES.get(text_in(data, "errorName")):
        return _made(named, reason, now, status)
    if error.code == AUTH_REQUIRED:
        return _made("auth", reason, now, status)
    is_refused = error.code in _REFUSED
    if family in ("claude", "codex", "copilot") and status is None and not is_refused:
        return fault_of_text(reason, family, now)
    otherwise: AgentErrorKind = "bad_request" if is_refused else "transient"
    known = _of_words(words, status) or kind_of_status(status)
    fault = _made(known or otherwise, f"{words} {str(error.data)[:2000]}", now, status)
    return replace(fault, reason=reason)


def fault_of_reopening(error: RpcError, family: Family, now: float, session: str) -> Fault:
    """What a refusal to open an earlier session means: that the agent does not have it, unless the
    error says of what else it is. Agents have no common word for it, some none at all.
    """
    fault = fault_of_error(error, family, now)
    if fault.kind in _NOT_OF_SESSIONS or _says_more(error, fault):
        return fault
    reason = fault.reason
    if session not in reason:
        reason = f"it could not go on in session {session!r}: {reason}"
    return replace(fault, kind="bad_request", reason=reason, retry_at=None)


def _says_more(error: RpcError, fault: Fault) -> bool:
    """True if a failure that may pass is known by more than that nothing else is known of it."""
    is_typed = bool(as_object(error.data).keys() & {"errorKind", "codexErrorInfo"})
    return fault.kind == "transient" and (is_typed or fault.status is not None)


def fault_of_text(text: str, family: Family, now: float) -> Fault:
    """What a text means that an agent told instead of an error."""
    reason = text.strip()
    status = _status_in(reason)
    match family:
        case "claude":
            return _claude(reason, "", now)
        case "codex":
            kind, retry_at = codex_errors.fault_of_message(reason, now)
            status = codex_errors.status_of_message(reason) or status
            return Fault(kind, reason, retry_at, status, codex_errors.hint_of(kind))
        case "copilot":
            fault = copilot_errors.Fault(message=reason, status=status)
            known = None if fault.kind == "transient" else fault.kind
            kind = known or _of_words(reason, status) or "transient"
            hint = copilot_errors.HINTS.get(kind, "")
            return Fault(kind, reason, fault.retry_at(now), status, hint)
        case _:
            kind = _of_words(reason, status) or kind_of_status(status) or "transient"
            return _made(kind, reason, now, status)


def _claude(reason: str, error: str, now: float) -> Fault:
    failure = claude_errors.Failure(text=reason, error=error)
    kind = claude_errors.kind_of(failure)
    kind = "transient" if kind == "crashed" else kind  # it told its failure, so it has not crashed
    return Fault(
        kind,
        reason,
        claude_errors.retry_at(failure, kind, now),
        claude_errors.status_of(failure),
        claude_errors.hint_of(kind),
    )


def _made(kind: AgentErrorKind, reason: str, now: float, status: int | None) -> Fault:
    may_pass = kind in ("rate_limit", "usage_cap", "transient")
    return Fault(
        kind, reason, reset_time(reason, now) if may_pass else None, status, _HINTS.get(kind, "")
    )


def _inner(message: str) -> Object:
    """The error of a model's API, where an agent passes it on as JSON."""
    if not message.lstrip().startswith("{"):
        return NOTHING
    told = object_of(message.encode("utf-8", "replace")) or NOTHING
    return object_in(told, "error") or told


def _reasons(inner: Object) -> str:
    """What the details of a Google error say in words of their own."""
    details = inner.get("details")
    return str(details)[:2000] if details else ""


def _status(error: RpcError, data: Object, inner: Object) -> int | None:
    codes = (
        whole_in(data, "statusCode"),
        whole_in(data, "status"),
        whole_in(inner, "code"),
        error.code,
        _status_in(error.message),
        _status_in(error.data) if isinstance(error.data, str) else None,
    )
    return next((code for code in codes if code is not None and 400 <= code < 600), None)


def _status_in(text: str) -> int | None:
    found = _STATUS.search(text)
    return int(found[1]) if found else None


def _of_words(words: str, status: int | None) -> AgentErrorKind | None:
    lowered = words.lower().replace("\u2019", "'")
    patterns: tuple[tuple[AgentErrorKind, re.Pattern[str]], ...] = ()
    if status is None:
        patterns = (*_WORDS, *_FAINT)
    elif status in (400, 402, 403, 413, 422, 429):
        patterns = _WORDS
    return next((kind for kind, pattern in patterns if pattern.search(lowered)), None)


_NOT_OF_SESSIONS = frozenset({"auth", "rate_limit", "usage_cap", "spending_cap"})
_NAMES: dict[str, AgentErrorKind] = {  # of opencode
    "ContextOverflowError": "context_overflow",
    "MessageAbortedError": "interrupted",
    "MessageOutputLengthError": "output_limit",
    "ProviderAuthError": "auth",
    "ProviderModelNotFoundError": "bad_request",
}
_WORDS: tuple[tuple[AgentErrorKind, re.Pattern[str]], ...] = (
    (
        "context_overflow",
        re.compile(
            r"context (?:window|length|limit)|context_length|maximum context|too many tokens"
            r"|exceeds the maximum number of tokens|(?:prompt|input|request) (?:is|as) too long"
        ),
    ),
    ("rate_limit", re.compile(r"perminute|per minute|requests per")),
    (
        "usage_cap",
        re.compile(
            r"exhausted your (?:daily )?(?:quota|capacity)|daily quota|perday|quota will reset"
            r"|request allowance|usage limit|limit resets|(?:weekly|5-hour|session) limit"
        ),
    ),
    ("rate_limit", re.compile(r"retry in \d")),  # Google speaks of billing then too
    (
        "spending_cap",
        re.compile(
            r"credit balance|out of credits|insufficient[ _](?:funds|credits?|balance|quota)"
            r"|billing|payment required|spend(?:ing)? (?:cap|limit)|add (?:funds|credits)"
        ),
    ),
    ("auth", re.compile(r"api[ _-]?key|unauthenticated|authenticat|not logged in|log in again")),
    ("output_limit", re.compile(r"output token (?:maximum|limit)|max_tokens|max output tokens")),
    ("refusal", re.compile(r"usage polic|content.filter|safety|prohibited")),
)
_FAINT: tuple[tuple[AgentErrorKind, re.Pattern[str]], ...] = (
    ("rate_limit", re.compile(r"rate.?limit|too many requests|resource.exhausted")),
    ("auth", re.compile(r"unauthorized|forbidden|permission denied|\blogin\b|invalid credentials")),
    ("bad_request", re.compile(r"model not found|unknown model|not supported|no such session")),
    ("bad_request", re.compile(r"session.{0,60}not found|invalid (?:params|argument)")),
)
_HINTS: dict[AgentErrorKind, str] = {
    "auth": "Log in to the agent with its own program, or set the API key that it reads.",
    "spending_cap": "Add credits or raise the limit of the account.",
}
