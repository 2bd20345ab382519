"""Classifies the exceptions of pydantic-ai.

It recognises them by the names of their classes. So it imports nothing, and also works with a
version of the library that has fewer or more of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from handrail.agents.transport.failures import Diagnosis, kind_by_words, kind_of_status
from handrail.agents.transport.programs import Program
from handrail.errors import AgentErrorKind
from handrail.shortening import shortened

_SHOWN_CHARS = 600

# The first class that matches an exception or a base of it counts, so special classes come first.
_KINDS: tuple[tuple[str, AgentErrorKind], ...] = (
    ("ModelRateLimitError", "rate_limit"),
    ("ModelQuotaExceededError", "spending_cap"),
    ("ModelContextWindowExceededError", "context_overflow"),
    ("ModelAuthenticationError", "auth"),
    ("ModelNotFoundError", "bad_request"),
    ("ModelRequestRejectedError", "bad_request"),
    ("ModelRequestTimeout", "timeout"),
    ("ModelUnavailableError", "transient"),
    ("ModelServerError", "transient"),
    ("ModelConnectionError", "transient"),
    ("RunTimedOut", "timeout"),
    ("RunCancelled", "interrupted"),
    ("UsageLimitExceeded", "max_turns"),
    ("ConcurrencyLimitExceeded", "transient"),
    ("ContentFilterError", "refusal"),
    ("OutputTokenLimitExceeded", "output_limit"),
    ("IncompleteToolCall", "output_limit"),
    ("UnexpectedModelBehavior", "invalid_output"),
    ("UserError", "config"),
    ("ImportError", "not_installed"),
)
# For these only a status, if there is one, says more.
_PLAIN: tuple[tuple[str, AgentErrorKind], ...] = (
    ("ModelAPIError", "transient"),
    ("TransportError", "transient"),  # httpx, where a provider's client lets it through
    ("ConnectionError", "transient"),
    ("TimeoutError", "transient"),
)
_RESETS_DAILY = re.compile(r"per.?day|daily", re.IGNORECASE)
_KEY_MISSING = re.compile(r"api.?key", re.IGNORECASE)


API = Program(
    "api",
    hints={
        "auth": "Set the provider's API key in the environment, then resume the run.",
        "spending_cap": "Add credit or raise the limit at the provider, then resume the run.",
        "not_installed": "Install the provider's library.",
        "config": "A model is named as provider:model, such as openai:gpt-5.",
    },
)


def diagnose(error: BaseException, now: float | None = None) -> Diagnosis:
    """The meaning of an exception from a model request."""
    if isinstance(error, BaseExceptionGroup):  # from a chain of models: the last one's failure
        group = cast("BaseExceptionGroup[BaseException]", error)
        return diagnose(group.exceptions[-1], now)
    status = getattr(error, "status_code", None)
    http_status = status if isinstance(status, int) else None
    after = getattr(error, "retry_after", None)
    has_delay = isinstance(after, (int, float)) and after >= 0
    reason = _reason(error)
    kind = kind_by_words(_kind(error, http_status, reason), reason)
    retry_at = None if now is None or after is None or not has_delay else now + after
    return Diagnosis(kind, reason, retry_at, http_status)


def hint_of(diagnosis: Diagnosis) -> str:
    """Advice for a person; empty if the reason already says which library to install."""
    hint = API.hints.get(diagnosis.kind, "") if diagnosis.kind else ""
    return "" if "pip install" in diagnosis.reason else hint


def _kind(error: BaseException, status: int | None, reason: str) -> AgentErrorKind | None:
    names = {cls.__name__ for cls in type(error).__mro__}
    known: AgentErrorKind | None = next((kind for name, kind in _KINDS if name in names), None)
    if known == "spending_cap" and _RESETS_DAILY.search(reason):
        return "usage_cap"
    if known == "config" and _KEY_MISSING.search(reason):
        return "auth"
    plain: AgentErrorKind | None = next((kind for name, kind in _PLAIN if name in names), None)
    return known or kind_of_status(status) or plain


def _reason(error: BaseException) -> str:
    """The provider's own sentence if there is one, or else the exception's."""
    said = _message(getattr(error, "body", None)) or str(error).strip()
    name = type(error).__name__.lstrip("_")
    text = " ".join(said.split()) or name
    known = isinstance(error, ImportError) or any(
        cls.__module__.startswith("pydantic_ai") for cls in type(error).__mro__
    )
    shown = text if known or text == name else f"{name}: {text}"
    return shortened(shown, _SHOWN_CHARS)


def _message(body: object) -> str:
    if not isinstance(body, Mapping):
        return ""
    fields = cast("Mapping[str, Any]", body)
    inner = fields.get("error")
    if isinstance(inner, Mapping):
        return _message(cast("Mapping[str, Any]", inner))
    said = fields.get("message")
    return said.strip() if isinstance(said, str) else ""
