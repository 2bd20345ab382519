"""How agents that speak ACP differ from it, and from one another: all that depends on a name.

Some tell failures, warnings and retries as if the model had said them. The patterns here are those
texts; they are looked for only where the model cannot have spoken (see ``acp_dialogue``).

Source: what codex-acp 2.6, copilot 1.0.102, claude-agent-acp 0.100, gemini 0.61 and opencode 1.18
did, and the texts in the sources of the adapters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Family: TypeAlias = Literal["claude", "codex", "copilot", "gemini", "opencode", ""]

_NEVER = re.compile(r"(?!)")


@dataclass(frozen=True, slots=True)
class AgentProfile:
    """How one agent differs from the protocol.

    ``aside`` matches a whole chunk that the program itself said beside the model; ``error`` the
    beginning of a chunk that is a failure. ``marks_messages``: what its model says has a
    ``messageId``, what the program says has none. ``counts_last_step``: its usage is that of the
    last call of a turn alone. ``asking`` are variables that make it ask for what it does unasked by
    default, to be set where it may not do everything.
    """

    family: Family = ""
    aside: re.Pattern[str] = _NEVER
    error: re.Pattern[str] = _NEVER
    marks_messages: bool = False
    counts_last_step: bool = False
    asking: Mapping[str, str] = field(default_factory=dict[str, str])


UNKNOWN = AgentProfile()

_KNOWN: dict[Family, AgentProfile] = {
    "codex": AgentProfile(
        "codex",
        aside=re.compile(r"\s*(?:(?:Config )?[Ww]arning: |\[codex-acp ).*", re.DOTALL),
        error=re.compile(
            r"\s*(?:exceeded retry limit|unexpected status|stream disconnected|rate limit exceeded"
            r"|Codex ran out of room|You['\u2019]ve hit your|You hit your|Quota exceeded|Incomplete"
            r" response|Your workspace|To use Codex|Missing environment variable|Selected model is"
            r"|We['\u2019]re currently experiencing|timeout waiting|\{\s*\"error\"|\{\s*\"detail\")"
        ),
        marks_messages=True,
    ),
    "copilot": AgentProfile(
        "copilot",
        aside=re.compile(
            r"\s*(?:Info|Warning): .*(?:\.\.\.|\u2026|retry|Retry|compact).*", re.DOTALL
        ),
        error=re.compile(r"\s*Error: "),
    ),
    "claude": AgentProfile(
        "claude",
        aside=re.compile(r"\s*Compacting(?:\.\.\.| completed\.)\s*"),
        error=re.compile(
            r"\s*(?:API Error|Invalid API key|Prompt is too long|You['\u2019]ve hit your|Credit"
            r" balance is too low|Not logged in|Please run /login)"
        ),
    ),
    "gemini": AgentProfile("gemini", error=re.compile(r"\s*\[API Error")),
    "opencode": AgentProfile(
        "opencode",
        counts_last_step=True,
        asking={
            "OPENCODE_PERMISSION": '{"bash":"ask","edit":"ask","webfetch":"ask",'
            '"external_directory":"ask"}'
        },
    ),
}


def profile_of(*names: str) -> AgentProfile:
    """The profile of the agent that one of these names is known to belong to."""
    for name in names:
        for family, profile in _KNOWN.items():
            if family in name.lower():
                return profile
    return UNKNOWN
