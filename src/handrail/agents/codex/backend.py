"""Codex through ``codex app-server``: typed errors, reset times, compaction, clean interruption."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import attrs

from handrail.agents.codex.dialogue import CodexDialogue
from handrail.agents.transport.cli import (
    ProgramBackend,
    added_folders,
    child_environment,
    working_folder,
)
from handrail.agents.transport.loose_json import NOTHING, object_in
from handrail.agents.transport.programs import CODEX, codex_home
from handrail.agents.transport.rpc import Messages, own_version
from handrail.agents.transport.strict_schema import strict_schema
from handrail.agents.transport.turn import finished_notice
from handrail.model.agent_options import PERMISSIONS, AgentOptions
from handrail.model.launch import AgentError
from handrail.model.sandbox import LAUNCH_OPTIONS
from handrail.ports.agent import AgentReply, AgentTurn, Capabilities

# A codex profile's settings, read from codex's own files.
#
# ``codex exec -p NAME`` lays ``$CODEX_HOME/NAME.config.toml`` over ``config.toml``; older versions
# have tables ``[profiles.NAME]`` in the latter. ``codex app-server`` knows no profiles: it refuses
# to start with ``-p``. So handrail passes a profile's settings as settings of the thread.

_CONFIG = "config.toml"


def profile_settings(agent: str, profile: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """The settings of a profile, as in its file.

    Raises:
        AgentError: there is no such profile, or its file cannot be read.
    """
    home = codex_home(environment)
    own, common = home / f"{profile}.{_CONFIG}", home / _CONFIG
    if "/" not in profile and own.is_file():
        return _read_profile(agent, own)
    older = object_in(_read_profile(agent, common), "profiles") if common.is_file() else NOTHING
    if profile in older:
        return dict(object_in(older, profile))
    raise AgentError(
        agent,
        f"codex has no profile {profile!r}: there is neither {own} nor [profiles.{profile}] in "
        f"{common}",
        kind="config",
        hint="Write the profile, or name another one before the @ of the model.",
    )


def with_profile(agent: str, options: AgentOptions) -> AgentOptions:
    """The options, with the profile that the model names alone, or else ``CODEX_PROFILE``."""
    environment = child_environment(options, "codex")
    profile, model = options.profile_and_model
    if profile is None and model is not None:
        with suppress(AgentError):
            profile_settings(agent, model, environment)
            profile, model = model, None
    profile = profile or environment.get("CODEX_PROFILE") or None
    return options if profile is None else attrs.evolve(options, model=f"{profile}@{model or ''}")


def _read_profile(agent: str, file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise AgentError(
            agent, f"the codex settings in {file} cannot be read: {error}", kind="config"
        ) from error


CAPABILITIES = Capabilities(
    options=frozenset(
        {"model", "effort", "system_prompt", "append_system_prompt", "permission", "mcp_servers"}
        | {"cwd", "add_dirs", "env", "extra_args"}
        | LAUNCH_OPTIONS
    ),
    permissions=frozenset(PERMISSIONS),
    sessions=True,
    fork=True,
    schema=True,
    profiles=True,
    usage=True,
    reset_times=True,
)


@attrs.frozen
class CodexBackend(ProgramBackend):
    """``codex app-server``, one process a turn; it continues, forks and compacts threads.

    Codex does not do what it may not do without asking: handrail denies its requests, unless the
    permission level is ``full``.
    """

    executable: str = "codex"

    name: ClassVar[str] = "codex"
    program = CODEX
    capabilities: ClassVar[Capabilities] = replace(CAPABILITIES, compact=True)

    async def _answer(self, turn: AgentTurn) -> AgentReply:
        """The last message of the turn."""
        try:
            dialogue = self._dialogue(turn)
        except AgentError as error:
            turn.emit(finished_notice(turn.path, error))
            raise
        argv = [self.executable, *_ARGUMENTS, *(turn.options.extra_args or ())]
        return await self._run(turn, argv, Messages(dialogue))

    def _dialogue(self, turn: AgentTurn) -> CodexDialogue:
        """Our side of the turn.

        Raises:
            AgentError: codex has no equivalent of an option.
        """
        options = with_profile(turn.agent, turn.options)
        name, _ = options.profile_and_model
        profile = name and profile_settings(turn.agent, name, child_environment(options, "codex"))
        return CodexDialogue(
            turn,
            attrs.evolve(options, add_dirs=added_folders(options) or None),
            cwd=working_folder(options),
            schema=None if turn.schema is None else strict_schema(turn.schema),
            profile=profile or None,
            client_version=own_version(),
        )


_ARGUMENTS = (
    # Analytics add 5 s to every exit when offline.
    *("app-server", "--listen", "stdio://"),
    *("-c", "analytics.enabled=false"),
)
