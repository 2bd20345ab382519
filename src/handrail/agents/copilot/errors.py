"""Classifies a failure of copilot: by its error's type and code, then its status, then its words.

Source: ``session.error`` in the session events of ``github/copilot-sdk``, and the output of copilot
1.0.102, which reports ``query`` for every error without a type of its own.
"""

from __future__ import annotations

import re

from handrail.agents.transport.failures import (
    Diagnosis,
    better_kind,
    kind_of_status,
    reset_time_in,
    rows,
    status_in,
)
from handrail.errors import AgentErrorKind
from handrail.model.dataclass import dataclass

_TYPES: dict[str, AgentErrorKind] = {
    "rate_limit": "rate_limit",
    "authentication": "auth",
    "authorization": "auth",
    "quota": "usage_cap",
    "context_limit": "context_overflow",
}
_CODES: dict[str, AgentErrorKind] = {
    "user_weekly_rate_limited": "usage_cap",
    "user_global_rate_limited": "usage_cap",
    "quota_exceeded": "usage_cap",
    "session_quota_exceeded": "spending_cap",
    "billing_not_configured": "spending_cap",
    "model_max_prompt_tokens_exceeded": "context_overflow",
}
_ROWS = rows(
    {None, "bad_request", "context_overflow"},  # for a refused request
    (
        "context_overflow",
        r"prompt (?:as|is) too long|context (?:limit|window|length)|maximum context",
        r"context_length|max_prompt_tokens|token count of \d{1,9} exceeds|reduce context",
        r"exceeds? the (?:maximum|model's) (?:number of )?(?:prompt )?tokens",
    ),
    ("spending_cap", r"\bcredits?\b|billing|payment required|spending limit|insufficient_quota"),
    ("refusal", r"content_filter|content filter|blocked by content|responsible ai|usage polic"),
    ("output_limit", r"output token|max_tokens|finish reason: length"),
)
BLOCKED = re.compile(
    r"\s*the model returned no content because the response was blocked", re.IGNORECASE
)
"""Copilot's own text in place of the model's answer. Source: github/copilot-cli#3348."""
_WAITED = re.compile(r"\(total retry wait time:[^)]*\)")

_STATUS = re.compile(
    r"(?:\bHTTP|\bstatus(?: code)?|error|failed):?\s{1,3}([45]\d\d)\b", re.IGNORECASE
)


def status_in_message(message: str) -> int | None:
    """The HTTP status that a message names; older programs report it nowhere else."""
    return status_in(_STATUS, message)


@dataclass(frozen=True, slots=True)
class Fault:
    """What copilot reported of a failed turn. ``retry_after_s`` is copilot's delay for a limit,
    ``resets_at`` the unix time at which a used-up quota resets.

    ``request`` is the message of the last failed request to a model; ``status`` is that request's
    if the error has none.
    """

    type: str = ""
    code: str = ""
    message: str = ""
    status: int | None = None
    request: str = ""
    retry_after_s: float | None = None
    resets_at: float | None = None

    @property
    def kind(self) -> AgentErrorKind:
        """The failure's kind; transient if nothing in it is known."""
        known = next((name for name in _TYPES if self.type.startswith(name)), "")
        exact = _CODES.get(self.code) or _TYPES.get(known)
        by_status, said = kind_of_status(self.status), f"{self.message}\n{self.request}"
        return exact or better_kind(by_status, said, _ROWS) or "transient"

    def diagnose(self, now: float) -> Diagnosis:
        """The failure's kind, and the time from which a retry may work, if it names one."""
        said = self.message or self.request or "copilot failed and did not say why"
        return Diagnosis(self.kind, " ".join(said.split()), self._retry_at(now), self.status)

    def _retry_at(self, now: float) -> float | None:
        if self.retry_after_s is not None:
            return now + self.retry_after_s
        said = reset_time_in(self.kind, _WAITED.sub("", self.message), now)
        is_known = self.kind == "usage_cap" and self.resets_at is not None and self.resets_at > now
        return self.resets_at if said is None and is_known else said
