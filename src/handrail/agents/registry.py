"""Backends by name, each imported when it is first asked for."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from functools import cache

from handrail.errors import DefinitionError
from handrail.model.agent_options import AgentOptions
from handrail.ports.agent import AgentBackend, capabilities_of

_MADE_BY = {
    "claude": ("handrail.agents.claude.backend", "ClaudeBackend"),
    "codex": ("handrail.agents.codex.app_server", "CodexBackend"),
    "codex-exec": ("handrail.agents.codex.exec", "CodexExecBackend"),
    "copilot": ("handrail.agents.copilot.backend", "CopilotBackend"),
    "gemini": ("handrail.agents.acp.backend", "gemini"),
    "opencode": ("handrail.agents.acp.backend", "opencode"),
    "gemini-cli": ("handrail.agents.gemini.backend", "GeminiBackend"),
    "opencode-run": ("handrail.agents.opencode.backend", "OpencodeBackend"),
    "api": ("handrail.agents.api.backend", "ApiBackend"),
}
_ONE_PROGRAM = ({"codex", "codex-exec"}, {"gemini", "gemini-cli"}, {"opencode", "opencode-run"})


def backend_names() -> tuple[str, ...]:
    """The names that ``make_backend`` knows."""
    return tuple(_MADE_BY)


@cache
def make_backend(name: str) -> AgentBackend:
    """The backend of this name with its default settings; the same one each time.

    Raises:
        DefinitionError: there is none.
    """
    check_name(name, "a backend")
    module, attribute = _MADE_BY[name]
    made: AgentBackend = getattr(importlib.import_module(module), attribute)()
    return made


def check_name(name: str, whose: str) -> None:
    """Do nothing for the name of a backend.

    Raises:
        DefinitionError: there is none of this name; the text lists those that there are.
    """
    if name in _MADE_BY:
        return
    near = difflib.get_close_matches(name, _MADE_BY, n=1)
    meant = f" Did you mean {near[0]!r}?" if near else ""
    raise DefinitionError(
        f"{whose}: there is no backend {name!r}.{meant} Known: {', '.join(_MADE_BY)}."
    )


def one_program(name: str, other: str) -> bool:
    """True if both launch the same program, so that each may go on in sessions of the other."""
    return any({name, other} <= names for names in _ONE_PROGRAM)


def who_can(options: AgentOptions) -> tuple[str, ...]:
    """The names of the backends that honour all of these options."""
    return tuple(name for name in _able(backend_names(), options))


def _able(names: Iterable[str], options: AgentOptions) -> Iterable[str]:
    for name in names:
        if not capabilities_of(make_backend(name)).lacking(options):
            yield name
