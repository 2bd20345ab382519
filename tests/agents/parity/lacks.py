"""What backends cannot tell or do by their nature, with the reason: the exceptions to parity.

Whoever is not named here for a notion has it. The tests assert what is lacking, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

Notion: TypeAlias = Literal[
    "sessions",
    "known sessions",
    "forks",
    "denials",
    "thoughts",
    "tools",
    "retries",
    "values",
    "compaction",
    "usage",
    "usage of all calls",
    "kinds",
    "limits",
    "its own last word",
    "watchdogs",
    "installation",
    "probe",
]

_LACKS: Mapping[str, Mapping[Notion, str]] = {
    "command": {
        "sessions": "each turn is a process that remembers nothing",
        "known sessions": "as above",
        "forks": "as above",
        "denials": "it does not say what it wants to do",
        "thoughts": "all that it prints is its answer",
        "tools": "as above",
        "retries": "as above",
        "values": "as above",
        "compaction": "there is no session to make smaller",
        "usage": "nothing of what it prints is counted",
        "kinds": "an exit code of any program is a failure of which nothing is known",
        "its own last word": "its exit is its only word, so 0 is an answer and silence is none",
        "probe": "nobody knows what any program does when asked for its version",
    },
    "fake": {
        "known sessions": "it goes on in whatever session its script says",
        "denials": "a reply of its script may name what was denied, but nothing is asked for",
        "thoughts": "a reply of its script is an answer, or a failure, and no more",
        "tools": "as above",
        "retries": "as above",
        "limits": "as above",
        "compaction": "its sessions hold nothing; it allows it so that ladders can be tested",
        "its own last word": "a reply comes whole, and then there is nothing to wait for",
        "watchdogs": "its time is the run's clock, which may jump",
        "installation": "it is there with handrail",
        "probe": "as above",
    },
    "api": {
        "denials": "its tools are the caller's own functions: whatever it has it may use",
        "retries": "providers' clients are told to try nothing again: that is for the ladder to do",
        "compaction": "a provider has no session that it could make smaller",
        "its own last word": "the end of its response is its word, so silence before it is none",
    },
    "copilot": {
        "forks": "it has no option for it",
        "values": "it takes no schema",
        "compaction": "it cannot be asked to without a person",
    },
    "gemini": {
        "forks": "it does not offer it",
        "retries": "it tells of them on stderr alone, of which ACP knows nothing",
        "values": "ACP has no schema",
        "compaction": "nor a request for it",
    },
    "opencode": {
        "retries": "it tries again in silence",
        "values": "ACP has no schema",
        "compaction": "nor a request for it",
        "usage of all calls": "it tells the tokens of its last call alone",
    },
}

_OTHER_KINDS: Mapping[tuple[str, str], str] = {
    # A stream that breaks off, or is no answer, is no process that crashed.
    ("api", "exit 1"): "transient",
    ("api", "exit 0"): "invalid_output",
    ("api", "killed in a tool"): "transient",
    ("api", "garbage"): "invalid_output",
    # The API's 429, with a time to try again, whatever window it is of.
    ("opencode", "usage_cap"): "rate_limit",
}
"""Failures that a backend meets in another form, of another kind."""

USAGE_AFTER: Mapping[str, tuple[str, ...]] = {
    "api": ("AgentToolStarted",),
    "claude": ("AgentReasoning", "AgentToolStarted"),
    "copilot": ("AgentToolCompleted",),
}
"""Who tells usage also after each call of the model, and after what of one that calls a tool."""


def has(name: str, notion: Notion) -> bool:
    """True unless the backend of this name lacks it."""
    return notion not in _LACKS.get(name, {})


def kind_for(name: str, failure: str, usual: str) -> str | None:
    """The kind of a failure; None where nothing is known of it."""
    return _OTHER_KINDS.get((name, failure), usual) if has(name, "kinds") else None
