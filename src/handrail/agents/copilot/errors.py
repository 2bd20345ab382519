"""What a failure of copilot is, from the type and code of its error, then its status, then words.

Source: ``session.error`` in the session events of ``github/copilot-sdk``, and what copilot 1.0.102
printed, which says ``query`` of all that has no type of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from handrail.agents.programs.http_status import kind_of_status
from handrail.agents.programs.reset_times import reset_time
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
}
_OVERFLOW = re.compile(
    r"prompt (?:as|is) too long|context (?:limit|window|length)|maximum context|context_length"
    r"|reduce context|exceeds? the (?:maximum|model's) (?:number of )?(?:prompt )?tokens"
)
_CREDIT = re.compile(r"\bcredits?\b|billing|payment required|spending limit|insufficient_quota")
_REFUSAL = re.compile(r"content_filter|content filter|responsible ai|usage polic")
_CUT = re.compile(r"output token|max_tokens|finish reason: length")
NO_SESSION = re.compile(r"no session\b.{0,60}\bmatched", re.IGNORECASE)
"""How copilot says that it does not have a session."""
_WAITED = re.compile(r"\(total retry wait time:[^)]*\)")

HINTS: dict[AgentErrorKind, str] = {
    "auth": "Run `copilot` and /login, or set COPILOT_GITHUB_TOKEN.",
    "spending_cap": "Add credits or raise the limit of the account or session.",
    "config": "Compare the arguments with `copilot --help`.",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """What a failed turn said of itself. ``retry_after_s`` is what copilot told of a limit.

    ``request`` is the message of the last request to a model that failed, ``status`` that one's if
    the error has none of its own.
    """

    type: str = ""
    code: str = ""
    message: str = ""
    status: int | None = None
    request: str = ""
    retry_after_s: float | None = None

    @property
    def kind(self) -> AgentErrorKind:
        """What it is; transient if nothing that is said is known."""
        return _CODES.get(self.code) or _TYPES.get(self.type) or self._guessed

    def retry_at(self, now: float) -> float | None:
        """The time from which it may work again, if it says so."""
        if self.retry_after_s is not None:
            return now + self.retry_after_s
        if self.kind not in ("rate_limit", "usage_cap", "transient"):
            return None
        return reset_time(_WAITED.sub("", self.message), now)

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
