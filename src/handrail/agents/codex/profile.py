"""The settings of a codex profile, read from where codex keeps them.

``codex exec -p NAME`` lays ``$CODEX_HOME/NAME.config.toml`` over ``config.toml``; older versions
have tables ``[profiles.NAME]`` in the latter. ``codex app-server`` knows no profiles: it refuses to
start with ``-p``. So what a profile says is given to it as settings of the thread.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from handrail.agents.programs.loose_json import NOTHING, object_in
from handrail.errors import AgentError

_CONFIG = "config.toml"


def profile_settings(agent: str, profile: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """What a profile sets, as in its file.

    Raises:
        AgentError: there is no such profile, or its file cannot be read.
    """
    home = codex_home(environment)
    own, common = home / f"{profile}.{_CONFIG}", home / _CONFIG
    if "/" not in profile and own.is_file():
        return _read(agent, own)
    older = object_in(_read(agent, common), "profiles") if common.is_file() else NOTHING
    if profile in older:
        return dict(object_in(older, profile))
    raise AgentError(
        agent,
        f"codex has no profile {profile!r}: there is neither {own} nor [profiles.{profile}] in "
        f"{common}",
        kind="config",
        hint="Write the profile, or name another one before the @ of the model.",
    )


def codex_home(environment: Mapping[str, str]) -> Path:
    """The folder of codex's settings, sessions and login."""
    named = environment.get("CODEX_HOME")
    return Path(named) if named else Path(environment.get("HOME") or Path.home()) / ".codex"


def _read(agent: str, file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise AgentError(
            agent, f"the codex settings in {file} cannot be read: {error}", kind="config"
        ) from error
