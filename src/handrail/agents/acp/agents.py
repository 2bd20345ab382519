"""Deviations of known agents from ACP and from one another; all code that depends on names.

Some agents report failures, warnings and retries as if the model had said them. The patterns here
match those texts, and are used only where the model cannot have spoken (see ``dialogue``).

Source: the behaviour of codex-acp 2.6, copilot 1.0.102, claude-agent-acp 0.100, gemini 0.61 and
opencode 1.18, and texts in the sources of the adapters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Literal, TypeAlias

from handrail.model.dataclass import dataclass

Family: TypeAlias = Literal["claude", "codex", "copilot", "gemini", "opencode", ""]

_NEVER = re.compile(r"(?!)")


@dataclass(frozen=True, slots=True)
class AgentProfile:
    """How one agent differs from the protocol.

    ``aside`` matches a whole chunk of the program's own text; ``error`` the beginning of a chunk
    that reports a failure. ``marks_messages``: chunks of the model have a ``messageId``, chunks of
    the program have none. ``counts_last_step``: its usage covers only the last call of a turn.
    ``asking`` are variables that make it ask before actions that it takes unasked by default; they
    are set at the levels below ``full``.
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


_PERMISSION_OF = {"write": "edit", "apply_patch": "edit", "patch": "edit"}


def only_tools(asking: Mapping[str, str], tools: Iterable[str]) -> Mapping[str, str]:
    """Variables for an opencode that has these tools alone, and asks for what it asked for."""
    ((name, asked),) = asking.items() or {"OPENCODE_PERMISSION": "{}"}.items()
    levels = json.loads(asked)
    kept = (_PERMISSION_OF.get(tool, tool) for tool in tools)
    return {name: json.dumps({"*": "deny"} | {one: levels.get(one, "allow") for one in kept})}


def profile_of(*names: str) -> AgentProfile:
    """The profile of the known agent whose name occurs in one of these names."""
    for name in names:
        for family, profile in _KNOWN.items():
            if family in name.lower():
                return profile
    return UNKNOWN
