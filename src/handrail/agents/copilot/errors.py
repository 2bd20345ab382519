"""What a failure of copilot is, from the type and code of its error, then its status, then words.

Source: ``session.error`` in the session events of ``github/copilot-sdk``, and what copilot 1.0.102
printed, which says ``query`` of all that has no type of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from handrail.agents.transport.failures import kind_of_status
from handrail.agents.transport.reset_times import reset_time
from handrail.errors import AgentErrorKind

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
_OVERFLOW = re.compile(
    r"prompt (?:as|is) too long|context (?:limit|window|length)|maximum context|context_length"
    r"|max_prompt_tokens|token count of \d{1,9} exceeds"
    r"|reduce context|exceeds? the (?:maximum|model's) (?:number of )?(?:prompt )?tokens"
)
_CREDIT = re.compile(r"\bcredits?\b|billing|payment required|spending limit|insufficient_quota")
_REFUSAL = re.compile(
    r"content_filter|content filter|blocked by content|responsible ai|usage polic"
)
BLOCKED = re.compile(
    r"\s*the model returned no content because the response was blocked", re.IGNORECASE
)
"""What copilot says in the model's place. Source: github/copilot-cli#3348."""
_CUT = re.compile(r"output token|max_tokens|finish reason: length")
NO_SESSION = re.compile(
    r"no session\b.{0,60}\b(?:matched|found)|session\b.{0,60}\bnot found", re.IGNORECASE
)
"""How copilot says that it does not have a session."""
_WAITED = re.compile(r"\(total retry wait time:[^)]*\)")

HINTS: dict[AgentErrorKind, str] = {
    "auth": "Run `copilot` and /login, or set COPILOT_GITHUB_TOKEN.",
    "spending_cap": "Add credits or raise the limit of the account or session.",
    "config": "Compare the arguments with `copilot --help`.",
}
_STATUS = re.compile(
    r"(?:\bHTTP|\bstatus(?: code)?|error|failed):?\s{1,3}([45]\d\d)\b", re.IGNORECASE
)


def status_said(message: str) -> int | None:
    """The HTTP status that a message names, as of older programs that say it nowhere else."""
    found = _STATUS.search(message)
    return int(found[1]) if found else None


@dataclass(frozen=True, slots=True)
class Fault:
    """What a failed turn said of itself. ``retry_after_s`` is what copilot told of a limit,
    ``resets_at`` the unix time from which a quota that is used up begins anew.

    ``request`` is the message of the last request to a model that failed, ``status`` that one's if
    the error has none of its own.
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
        """What it is; transient if nothing that is said is known."""
        known = next((name for name in _TYPES if self.type.startswith(name)), "")
        return _CODES.get(self.code) or _TYPES.get(known) or self._guessed

    def retry_at(self, now: float) -> float | None:
        """The time from which it may work again, if it says so."""
        if self.retry_after_s is not None:
            return now + self.retry_after_s
        if self.kind not in ("rate_limit", "usage_cap", "transient"):
            return None
        said = reset_time(_WAITED.sub("", self.message), now)
        is_known = self.kind == "usage_cap" and self.resets_at is not None and self.resets_at > now
        return self.resets_at if said is None and is_known else said

    @property
    def _guessed(self) -> AgentErrorKind:
        said = f"{self.message}\n{self.request}".lower().replace("\u2019", "'")
        is_about_request = self.status is None or self.status in (400, 413, 422)
        if is_about_request:
            for kind, pattern in _ABOUT_REQUESTS:
                if pattern.search(said):
                    return kind
        return kind_of_status(self.status) or "transient"


_ABOUT_REQUESTS: tuple[tuple[AgentErrorKind, re.Pattern[str]], ...] = (
    ("context_overflow", _OVERFLOW),
    ("spending_cap", _CREDIT),
    ("refusal", _REFUSAL),
    ("output_limit", _CUT),
)
