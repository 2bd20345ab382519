"""Whether claude can log in, as far as files and variables tell."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from handrail.agents.programs.loose_json import Object, as_object, json_value, object_in, text_in

_KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
_CLOUDS = ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY")
ADVICE = "Run `claude auth login`, or set ANTHROPIC_API_KEY."


def is_logged_in(env: Mapping[str, str], *, has_keychain: bool) -> bool | None:
    """True if a key or login is there, None if it may be somewhere that is not looked at.

    That is a keychain, or a cloud's own credentials. Whether the login still holds, nothing but a
    request would tell.
    """
    home = Path(env.get("HOME") or Path.home())
    folder = Path(env.get("CLAUDE_CONFIG_DIR") or home / ".claude")
    settings = _read(folder / "settings.json")
    if _has_key(env) or _has_key(object_in(settings, "env")) or text_in(settings, "apiKeyHelper"):
        return True
    login = object_in(_read(folder / ".credentials.json"), "claudeAiOauth")
    if text_in(login, "accessToken", "refreshToken"):
        return True
    state = folder if "CLAUDE_CONFIG_DIR" in env else home
    if text_in(_read(state / ".claude.json"), "primaryApiKey"):
        return True
    is_elsewhere = has_keychain or any(env.get(name) for name in _CLOUDS)
    return None if is_elsewhere else False


def _has_key(variables: Mapping[str, object]) -> bool:
    return any(variables.get(name) for name in _KEYS)


def _read(file: Path) -> Object:
    try:
        return as_object(json_value(file.read_text("utf-8", "replace"))[1])
    except OSError:
        return {}
