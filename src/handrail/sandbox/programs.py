"""What each agent program needs for itself inside of a sandbox: one row a backend."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from handrail.model.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class State:
    """A folder of a program's own state, below the home unless ``variable`` names it.

    ``kept`` are the folders in it that the program may change for good, such as those of sessions;
    ``"."`` is all of it, but for what ``fixed`` names. ``anew``: it lies on a private copy where
    the program may make more, which ends with the launch; what these patterns match is not in that
    copy.
    Settings, logins and hooks are none of these: an agent could plant there what a person runs.
    """

    folder: str
    variable: str = ""
    kept: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    anew: tuple[str, ...] | None = None

    def within(self, env: Mapping[str, str], home: Path) -> Path:
        """The folder, for a program with this environment."""
        named = env.get(self.variable, "") if self.variable else ""
        return Path(named) if Path(named).is_absolute() else home / self.folder


@dataclass(frozen=True, slots=True)
class Needs:
    """What a program needs for itself.

    ``variables`` begin the names of the secrets that it needs; ``hosts`` are its model's, and
    ``addresses`` the variables that name another server.
    """

    states: tuple[State, ...] = ()
    variables: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()

    def hosts_for(self, env: Mapping[str, str]) -> tuple[str, ...]:
        """The hosts of its model, for a program with this environment."""
        named = (urlsplit(env[name]) for name in self.addresses if env.get(name))
        return (*self.hosts, *(url.netloc.rpartition("@")[2] for url in named if url.netloc))


NOTHING = Needs()
_MADE_ANEW = ("*.sqlite*", "*.db", "*.db-*", "*.json.lock", "tmp", ".tmp", "cache", "history.jsonl")

BACKENDS: Mapping[str, Needs] = {
    "claude": Needs(
        states=(
            State(
                ".claude",
                "CLAUDE_CONFIG_DIR",
                kept=("projects", "session-env", "sessions", "shell-snapshots"),
            ),
            State(".claude.json"),
        ),
        variables=("ANTHROPIC_", "CLAUDE_"),
        hosts=("api.anthropic.com", "claude.ai", "console.anthropic.com", "platform.claude.com"),
        addresses=("ANTHROPIC_BASE_URL",),
    ),
    "codex": Needs(
        states=(
            State(
                ".codex",
                "CODEX_HOME",
                kept=("sessions", "archived_sessions", "log", "shell_snapshots"),
                anew=(*_MADE_ANEW, "models_cache.json", "version.json"),
            ),
        ),
        variables=("OPENAI_", "CODEX_"),
        hosts=("api.openai.com", "auth.openai.com", "chatgpt.com"),
        addresses=("OPENAI_BASE_URL",),
    ),
    "copilot": Needs(
        states=(
            State(
                ".copilot",
                "COPILOT_HOME",
                kept=("session-state", "history-session-state", "logs"),
                anew=_MADE_ANEW,
            ),
        ),
        variables=("COPILOT_", "GH_TOKEN", "GITHUB_TOKEN"),
        hosts=("api.github.com", "*.githubcopilot.com", "github.com"),
        addresses=("COPILOT_PROVIDER_BASE_URL",),
    ),
    "gemini": Needs(
        states=(State(".gemini", kept=("tmp", "history"), anew=_MADE_ANEW),),
        variables=("GEMINI_", "GOOGLE_"),
        hosts=("*.googleapis.com", "accounts.google.com"),
        addresses=("GOOGLE_GEMINI_BASE_URL",),
    ),
    "opencode": Needs(
        states=(
            State(".local/share/opencode", kept=(".",), fixed=("auth.json", "bin")),
            State(".local/state/opencode", kept=(".",)),
            State(".cache/opencode", anew=_MADE_ANEW),
            State(".config/opencode", anew=()),
        ),
        variables=("OPENCODE_", "ANTHROPIC_", "OPENAI_", "GEMINI_"),
        hosts=("api.anthropic.com", "api.openai.com", "opencode.ai", "models.dev"),
        addresses=("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"),
    ),
}
"""What each backend's program needs, by the name of the backend, or of the program itself."""


def needs_of(program: str) -> Needs:
    """What a program needs for itself; nothing, if it is none of those that are known."""
    return BACKENDS.get(os.path.basename(program), NOTHING)  # noqa: PTH119  # it is a name
