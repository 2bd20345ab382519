"""What the words of a failure say, where a program gave it a kind that they know better.

Each program has a table for its own fields and sentences. These are the words that all of them
pass on: of the network, the machine, the model's API. A network that is gone is also told of as a
failed login, as an option that was refused, or by nothing but the end of the program.
"""

from __future__ import annotations

import re

from handrail.agents.transport.reset_times import reset_time
from handrail.errors import AgentErrorKind
from handrail.model.launch import AgentError

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
_UNEXPLAINED = frozenset({"config", "crashed"})
_ANY = _UNEXPLAINED | {"bad_request", "transient"}

_OVERFLOW = re.compile(
    r"(?:prompt|input|request|conversation) (?:is |as )too (?:long|large)"
    r"|context[_ ](?:window|length|limit)|maximum context|ran out of room"
    r"|too many tokens(?!,? please wait)|token count of \d{1,9} exceeds"
    r"|exceeds? the (?:maximum|model's|limit)\b.{0,40}\btokens|max_prompt_tokens|reduce context"
    r"|image dimensions exceed"
)
_NETWORK = re.compile(
    r"\be(?:ai_again|ai_fail|connreset|connrefused|connaborted|hostunreach|hostdown|netunreach"
    r"|netdown|notfound|timedout|pipe|proto)\b|getaddrinfo|fetch failed|socket hang up"
    r"|network (?:error|is unreachable|is down|connection)|no route to host"
    r"|connection (?:reset|refused|aborted|timed out|closed|error)|(?:unable|failed) to connect"
    r"|could not connect|temporary failure in name resolution|name or service not known"
    r"|error sending request|tls handshake|certificate is not yet valid"
    r"|(?:request|operation|connection) timed out|und_err_[a-z_]{0,20}timeout|und_err_socket"
    r"|socket connection was closed|stream disconnected|could not resolve host"
)
_MACHINE = re.compile(
    r"\be(?:nospc|mfile|nfile|nomem|txtbsy|dquot)\b|no space left on device|too many open files"
    r"|cannot allocate memory|resource temporarily unavailable|text file busy|disk quota exceeded"
    r"|database (?:table )?is locked|failed query:\s{0,3}create table"
)
_SERVER = re.compile(
    r"overloaded|internal server error|service unavailable|bad gateway|gateway time-?out"
    r"|at capacity|high demand"
)
_UNKNOWN_MODEL = re.compile(
    r"(?:unknown model|model not found|invalid model (?:name|id)"
    r"|\bmodel\b[^.\n]{0,80}\b(?:does not exist|not found|is not available|is not supported))"
)
_REFUSED = re.compile(
    r"content[_ -]?(?:filter|management policy)|responsible ai|prohibited[_ ]content"
    r"|(?:prompt|response|answer) was blocked|blocked by (?:the )?(?:content|safety)"
)
_CREDIT = re.compile(r"credit balance|out of credits|insufficient[_ ](?:quota|balance|funds)")
_CAP = re.compile(
    r"(?:usage|weekly|5-hour|session|daily) (?:limit|quota)\b|(?:hit|reached) your .{0,40}limit"
)
_RATE = re.compile(r"rate.?limit|too many requests|too many tokens, please wait")

# Of a failure of one of these kinds, words say that it is another one; the first that fit count.
_TABLE: tuple[tuple[frozenset[str], AgentErrorKind, re.Pattern[str]], ...] = (
    (_ANY, "refusal", _REFUSED),
    (_ANY, "context_overflow", _OVERFLOW),
    (_UNEXPLAINED | {"transient"}, "bad_request", _UNKNOWN_MODEL),
    (_UNEXPLAINED, "spending_cap", _CREDIT),
    (_UNEXPLAINED, "usage_cap", _CAP),
    (_UNEXPLAINED, "rate_limit", _RATE),
    (_UNEXPLAINED | {"auth", "bad_request"}, "transient", _NETWORK),
    (_UNEXPLAINED | {"bad_request"}, "transient", _MACHINE),
    (_UNEXPLAINED, "transient", _SERVER),
)
_MAY_PASS = frozenset({"usage_cap", "rate_limit", "transient"})


def kind_by_words(kind: AgentErrorKind | None, words: str) -> AgentErrorKind | None:
    """The kind of a failure that is taken for ``kind``, by what its words say."""
    said = words.lower().replace("\u2019", "'")
    for of, better, pattern in _TABLE:
        if kind in of and pattern.search(said):
            return better
    if kind in _UNEXPLAINED and (found := _STATUS.search(said)):
        return kind_of_status(int(found[1])) or kind
    return kind


def kind_of_status(status: int | None) -> AgentErrorKind | None:
    """The kind of a failure with this HTTP status; None if it says nothing."""
    if status is None or not 400 <= status < 600:
        return None
    return _STATUSES.get(status) or ("transient" if status >= 500 else "bad_request")


def judged_by_words(error: AgentError, now: float) -> AgentError:
    """The same error, with the kind that its words say, and the time of which they speak.

    ``now`` is the time, in unix seconds, to which relative times refer.
    """
    kind = kind_by_words(error.kind, error.reason)
    if kind != error.kind:
        error.kind, error.hint = kind, ""
        if kind in _MAY_PASS and error.retry_at is None:
            error.retry_at = reset_time(error.reason, now)
    return error
