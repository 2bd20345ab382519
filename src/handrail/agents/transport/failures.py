"""Classifies a failure by the program's words, with a table for each program.

A program's own words for a kind (a type, a code) are exact. An HTTP status says a little; sentences
say the rest. A row of a table applies to failures so far taken for certain kinds (None: for none
yet). If the row's words occur, the failure has the row's kind instead. The first row that fits
counts.

Each program has its own table. The table here has words that all programs pass on: of the network,
the machine, the model's API. Programs also report a lost network as a failed login or a refused
option, or just exit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeAlias

from handrail.agents.transport.reset_times import reset_time
from handrail.errors import AgentErrorKind
from handrail.model.dataclass import dataclass
from handrail.model.launch import AgentError

Rows: TypeAlias = tuple[
    tuple[frozenset[AgentErrorKind | None], AgentErrorKind, re.Pattern[str]], ...
]
"""Rows of: kinds that the row applies to, the better kind, a pattern of words in lower case."""
MAY_PASS: frozenset[AgentErrorKind | None] = frozenset({"usage_cap", "rate_limit", "transient"})
"""Kinds of failures that may pass with time."""
VAGUE: frozenset[AgentErrorKind | None] = frozenset({None, "bad_request", "rate_limit"})
"""Kinds known from a status alone, or not at all: the failure may be many things."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A failure as a program reported it: its kind, and the ``reason`` in the program's words.

    ``kind`` is None if unknown. ``retry_at`` is the unix time from which a retry may work,
    ``status`` the HTTP status.
    """

    kind: AgentErrorKind | None
    reason: str
    retry_at: float | None = None
    status: int | None = None


def rows(
    of: Iterable[AgentErrorKind | None], *entries: tuple[AgentErrorKind, *tuple[str, ...]]
) -> Rows:
    """Rows of a table for failures so far taken for one of the kinds in ``of``. Each row has a
    better kind, and patterns of which one must match.
    """
    kinds = frozenset(of)
    return tuple((kinds, kind, re.compile("|".join(words))) for kind, *words in entries)


def better_kind(kind: AgentErrorKind | None, words: str, table: Rows) -> AgentErrorKind | None:
    """The kind that the words show, for a failure so far taken for ``kind``."""
    said = plain(words)
    for of, better, pattern in table:
        if kind in of and pattern.search(said):
            return better
    return kind


def plain(words: str) -> str:
    """Words as tables have them: in lower case, with plain apostrophes."""
    return words.lower().replace("\u2019", "'")


def reset_time_in(kind: AgentErrorKind | None, words: str, now: float) -> float | None:
    """The unix time from which a retry may work, by the words, if failures of this kind pass."""
    return reset_time(words, now) if kind in MAY_PASS else None


def status_in(pattern: re.Pattern[str], words: str) -> int | None:
    """The HTTP status that the words name in one of the pattern's forms."""
    found = pattern.search(words)
    return int(found[1]) if found else None


_STATUS = re.compile(
    r"\b(?:api error:?|http(?: error| status)?:?|status(?: code)?:?|error:?)\s{0,3}\(?"
    r"(4[0-9]{2}|5[0-9]{2})\b"
)
_STATUSES: dict[int, AgentErrorKind] = {
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
_UNEXPLAINED: frozenset[AgentErrorKind | None] = frozenset({"config", "crashed"})

# The kinds that a failure is taken for, its real kind, and the words that show it.
_TABLE: Rows = (
    *rows(
        {*_UNEXPLAINED, "bad_request", "transient"},
        (
            "refusal",
            r"content[_ -]?(?:filter|management policy)|responsible ai|prohibited[_ ]content",
            r"(?:prompt|response|answer) was blocked|blocked by (?:the )?(?:content|safety)",
        ),
        (
            "context_overflow",
            r"(?:prompt|input|request|conversation) (?:is |as )too (?:long|large)",
            r"context[_ ](?:window|length|limit)|maximum context|ran out of room",
            r"too many tokens(?!,? please wait)|token count of \d{1,9} exceeds",
            r"exceeds? the (?:maximum|model's|limit)\b.{0,40}\btokens|max_prompt_tokens",
            r"reduce context|image dimensions exceed",
        ),
    ),
    *rows(
        {*_UNEXPLAINED, "transient"},
        (
            "bad_request",
            r"unknown model|model not found|invalid model (?:name|id)",
            r"\bmodel\b[^.\n]{0,80}\b(?:does not exist|not found|is not (?:available|supported))",
        ),
    ),
    *rows(
        _UNEXPLAINED,
        ("spending_cap", r"credit balance|out of credits|insufficient[_ ](?:quota|balance|funds)"),
        (
            "usage_cap",
            r"(?:usage|weekly|5-hour|session|daily) (?:limit|quota)\b",
            r"(?:hit|reached) your .{0,40}limit",
        ),
        ("rate_limit", r"rate.?limit|too many requests|too many tokens, please wait"),
    ),
    *rows(
        {*_UNEXPLAINED, "auth", "bad_request"},
        (
            "transient",
            r"\be(?:ai_again|ai_fail|connreset|connrefused|connaborted|hostunreach)\b",
            r"\be(?:hostdown|netunreach|netdown|notfound|timedout|pipe|proto)\b|getaddrinfo",
            r"fetch failed|socket hang up|network (?:error|is unreachable|is down|connection)",
            r"no route to host|connection (?:reset|refused|aborted|timed out|closed|error)",
            r"(?:unable|failed) to connect|could not connect|temporary failure in name resolution",
            r"name or service not known|error sending request|tls handshake",
            r"certificate is not yet valid|(?:request|operation|connection) timed out",
            r"und_err_[a-z_]{0,20}timeout|und_err_socket|socket connection was closed",
            r"stream disconnected|could not resolve host",
        ),
    ),
    *rows(
        {*_UNEXPLAINED, "bad_request"},
        (
            "transient",
            r"\be(?:nospc|mfile|nfile|nomem|txtbsy|dquot)\b|no space left on device",
            r"too many open files|cannot allocate memory|resource temporarily unavailable",
            r"text file busy|disk quota exceeded|database (?:table )?is locked",
            r"failed query:\s{0,3}create table",
        ),
    ),
    *rows(
        _UNEXPLAINED,
        (
            "transient",
            r"overloaded|internal server error|service unavailable|bad gateway|gateway time-?out",
            r"at capacity|high demand",
        ),
    ),
)


def kind_by_words(kind: AgentErrorKind | None, words: str) -> AgentErrorKind | None:
    """The kind that words common to all programs show, for a failure so far taken for ``kind``."""
    better = better_kind(kind, words, _TABLE)
    if better in _UNEXPLAINED and better == kind:
        return kind_of_status(status_in(_STATUS, plain(words))) or kind
    return better


def kind_of_status(status: int | None) -> AgentErrorKind | None:
    """The kind of a failure with this HTTP status; None unless it is 4xx or 5xx."""
    if status is None or not 400 <= status < 600:
        return None
    return _STATUSES.get(status) or ("transient" if status >= 500 else "bad_request")


def classify_by_words(error: AgentError, now: float) -> AgentError:
    """The same error, changed in place to the kind and the retry time that its words show.

    ``now`` is the unix time that relative times refer to.
    """
    kind = kind_by_words(error.kind, error.reason)
    if kind != error.kind:
        error.kind, error.hint = kind, ""
        if error.retry_at is None:
            error.retry_at = reset_time_in(kind, error.reason, now)
    return error
