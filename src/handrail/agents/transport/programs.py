"""What is known of each program besides its protocol: install, login, and advice on failures."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, TypeAlias, cast

from handrail.agents.transport.loose_json import object_in
from handrail.errors import AgentErrorKind
from handrail.model.dataclass import dataclass

LoggedIn: TypeAlias = Callable[[Mapping[str, str]], bool | None]
"""Finds a login from an environment and files alone; None if a login may be elsewhere."""


@dataclass(frozen=True, slots=True)
class Program:
    """What is known of a program besides its protocol.

    ``name`` is for people. ``install`` and ``login`` are commands, for advice; ``install`` is None
    if the command may be any program. Only a request would show whether the login that
    ``logged_in`` finds is still valid. ``hints`` say what a person can do about a failure.
    ``no_session`` matches stderr if the program does not have the session.
    """

    name: str
    install: str | None = ""
    login: str = ""
    logged_in: LoggedIn = lambda _: None
    hints: Mapping[AgentErrorKind, str] = field(default_factory=dict[AgentErrorKind, str])
    no_session: re.Pattern[str] | None = None


def codex_home(env: Mapping[str, str]) -> Path:
    """The folder of codex's settings, sessions and login."""
    return Path(env.get("CODEX_HOME") or _home(env) / ".codex")


def json_file(path: Path) -> dict[str, Any]:
    """The object in a JSON file; an empty one if there is none."""
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _home(env: Mapping[str, str]) -> Path:
    return Path(env.get("HOME") or Path.home())


def any_of(variables: Mapping[str, object], *names: str) -> bool:
    """True if one of these variables has a value."""
    return any(variables.get(name) for name in names)


_CLAUDE_KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
_CLOUDS = ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY")


def _claude_logged_in(env: Mapping[str, str]) -> bool | None:
    """None if the login may be in a keychain, or be a cloud's own credentials."""
    folder = Path(env.get("CLAUDE_CONFIG_DIR") or _home(env) / ".claude")
    settings = json_file(folder / "settings.json")
    if any(any_of(variables, *_CLAUDE_KEYS) for variables in (env, object_in(settings, "env"))):
        return True
    login = object_in(json_file(folder / ".credentials.json"), "claudeAiOauth")
    state = folder if "CLAUDE_CONFIG_DIR" in env else _home(env)
    key = json_file(state / ".claude.json").get("primaryApiKey")
    if settings.get("apiKeyHelper") or any_of(login, "accessToken", "refreshToken") or key:
        return True
    return None if sys.platform == "darwin" or any_of(env, *_CLOUDS) else False


def _codex_logged_in(env: Mapping[str, str]) -> bool | None:
    """None if its settings name their own model provider, which may need no login."""
    home = codex_home(env)
    login = json_file(home / "auth.json")
    if any_of(env, "CODEX_API_KEY", "OPENAI_API_KEY") or any_of(login, "OPENAI_API_KEY", "tokens"):
        return True
    try:
        settings = (home / "config.toml").read_text("utf-8")
    except (OSError, ValueError):
        return False
    return None if "model_provider" in settings else False


def _copilot_logged_in(env: Mapping[str, str]) -> bool | None:
    """None if files and variables show none: the token may be in the system's keychain."""
    settings = json_file(Path(env.get("COPILOT_HOME") or _home(env) / ".copilot") / "config.json")
    names = ("COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN", "COPILOT_PROVIDER_BASE_URL")
    known = any_of(env, *names) or any_of(settings, "logged_in_users", "loggedInUsers")
    return True if known else None


def gemini_logged_in(env: Mapping[str, str]) -> bool | None:
    """None if a way to log in was chosen whose credentials are a keychain's, or a cloud's."""
    folder = _home(env) / ".gemini"
    login, names = json_file(folder / "oauth_creds.json"), ("GEMINI_API_KEY", "GOOGLE_API_KEY")
    if any_of(env, *names) or any_of(login, "access_token", "refresh_token"):
        return True
    chosen = object_in(object_in(json_file(folder / "settings.json"), "security"), "auth")
    clouds = ("GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA", "CLOUD_SHELL")
    may_be = any_of(chosen, "selectedType") or any_of(env, *clouds)
    return None if may_be or (folder / ".env").exists() else False


def opencode_logged_in(env: Mapping[str, str]) -> bool | None:
    """None without a login of its own: each provider may have its variable, and some need none."""
    data = Path(env.get("XDG_DATA_HOME") or _home(env) / ".local" / "share")
    return True if json_file(data / "opencode" / "auth.json") else None


CLAUDE = Program(
    "claude",
    install="npm install -g @anthropic-ai/claude-code",
    login="claude auth login (or set ANTHROPIC_API_KEY)",
    logged_in=_claude_logged_in,
    hints={
        "auth": "Log in (`claude auth login`), or set ANTHROPIC_API_KEY; then resume.",
        "spending_cap": (
            "Add credit or raise the limit (claude.ai/settings/usage, or the Console's billing "
            "page; max_cost_usd if it was that), then resume."
        ),
        "config": "Compare the options with `claude --help`; `claude update` brings newer ones.",
    },
)
CODEX = Program(
    "codex",
    install="npm install -g @openai/codex",
    login="codex login",
    logged_in=_codex_logged_in,
    hints={
        "auth": "Run `codex login`, or set the API key that its model provider reads.",
        "spending_cap": "Add credits, raise the spend cap or change the plan of the account.",
        "config": "Compare the options with `codex --help` and its config.toml.",
    },
    no_session=re.compile(r"no rollout found|no thread with|thread not found", re.IGNORECASE),
)
COPILOT = Program(
    "copilot",
    install="npm install -g @github/copilot",
    login="copilot, then /login",
    logged_in=_copilot_logged_in,
    hints={
        "auth": "Run `copilot` and /login, or set COPILOT_GITHUB_TOKEN.",
        "spending_cap": "Add credits or raise the limit of the account or session.",
        "config": "Compare the arguments with `copilot --help`.",
    },
    no_session=re.compile(
        r"no session\b.{0,60}\b(?:matched|found)|session\b.{0,60}\bnot found", re.IGNORECASE
    ),
)
