"""What a failure is, by what was said of it: one way to classify, with a table for each program.

A program's own words for a kind (a type, a code) are exact. An HTTP status says a little, sentences
say the rest: in a table's rows, of a failure that is taken for one of some kinds (None: for nothing
yet), words say that it is another one. The first row that fits counts.

Each program has a table of its own. Here is the one of the words that all of them pass on: of the
network, the machine, the model's API. A network that is gone is also told of as a failed login, as
an option that was refused, or by nothing but the end of the program.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from handrail.agents.transport.reset_times import reset_time
from handrail.errors import AgentErrorKind
from handrail.model.launch import AgentError

Rows: TypeAlias = tuple[
    tuple[frozenset[AgentErrorKind | None], AgentErrorKind, re.Pattern[str]], ...
]
"""Of which kinds, which other kind, by which words in small letters."""
MAY_PASS: frozenset[AgentErrorKind | None] = frozenset({"usage_cap", "rate_limit", "transient"})
"""Kinds of failures that may be over some time."""
VAGUE: frozenset[AgentErrorKind | None] = frozenset({None, "bad_request", "rate_limit"})
"""What is known by a status alone, or by nothing, and may be many things."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What a failure is that a program told: its kind, and the ``reason`` in the program's words.

    Without a kind nothing is known of it. ``retry_at`` is the unix time from which it may work
    again, ``status`` the HTTP status.
    """

    kind: AgentErrorKind | None
    reason: str
    retry_at: float | None = None
    status: int | None = None


def rows(
    of: Iterable[AgentErrorKind | None], *told: tuple[AgentErrorKind, *tuple[str, ...]]
) -> Rows:
    """Rows of a table, for failures that are taken for one ``of`` these kinds: another kind, and
    patterns of which one is enough.
    """
    kinds = frozenset(of)
    return tuple((kinds, kind, re.compile("|".join(words))) for kind, *words in told)


def better_kind(kind: AgentErrorKind | None, words: str, table: Rows) -> AgentErrorKind | None:
    """The kind of a failure that is taken for ``kind``, by what its words say."""
    said = plain(words)
    for of, better, pattern in table:
        if kind in of and pattern.search(said):
            return better
    return kind


def plain(words: str) -> str:
    """Words as tables have them: in small letters, with plain apostrophes."""
    return words.lower().replace("\u2019", "'")


def reset_time_in(kind: AgentErrorKind | None, words: str, now: float) -> float | None:
    """The unix time from which it may work again, by its words, if it is of a kind that passes."""
    return reset_time(words, now) if kind in MAY_PASS else None


def status_in(pattern: re.Pattern[str], words: str) -> int | None:
    """The HTTP status that words name in one of the forms of the pattern."""
    found = pattern.search(words)
    return int(found[1]) if found else None


_STATUS = re.compile(
    r"\b(?:api error:?|http(?: error| status)?:?|status(?: code)?:?|error:?)\s{0,3}\(?"
    r"(4[0-9]{2}|5[0-9]{2})\b",
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

# What it is taken for, what it is, and the words that say so.
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
    """The kind of a failure that is taken for ``kind``, by what its words say."""
    better = better_kind(kind, words, _TABLE)
    if better in _UNEXPLAINED and better == kind:
        return kind_of_status(status_in(_STATUS, plain(words))) or kind
    return better


def kind_of_status(status: int | None) -> AgentErrorKind | None:
    """The kind of a failure with this HTTP status; None if it says nothing."""
    if status is None or not 400 <= status < 600:
        return None
    return _STATUSES.get(status) or ("transient" if status >= 500 else "bad_request")


def classify_by_words(error: AgentError, now: float) -> AgentError:
    """The same error, with the kind that its words say, and the time of which they speak.

    ``now`` is the time, in unix seconds, to which relative times refer.
    """
    kind = kind_by_words(error.kind, error.reason)
    if kind != error.kind:
        error.kind, error.hint = kind, ""
        if error.retry_at is None:
            error.retry_at = reset_time_in(kind, error.reason, now)
    return error
