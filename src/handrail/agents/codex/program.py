"""The program codex, whichever way it is asked: what it can do, and whether it is there."""

from __future__ import annotations

from collections.abc import Mapping

from handrail.agents.codex.profile import codex_home
from handrail.agents.programs.environment import child_environment
from handrail.agents.programs.probe import json_file, probe_program
from handrail.model.agent_options import PERMISSIONS, AgentOptions
from handrail.ports.agent import Capabilities, Probe

INSTALL = "npm install -g @openai/codex"

CAPABILITIES = Capabilities(
    options=frozenset(
        {"model", "effort", "system_prompt", "append_system_prompt", "permission", "mcp_servers"}
        | {"cwd", "add_dirs", "env", "extra_args"}
    ),
    permissions=frozenset(PERMISSIONS),
    sessions=True,
    fork=True,
    schema=True,
    profiles=True,
    usage=True,
    reset_times=True,
)


async def probe_codex(executable: str, options: AgentOptions) -> Probe:
    """Whether codex is there, its version, and whether it has a login."""
    return await probe_program(
        executable,
        child_environment(options),
        logged_in=_is_logged_in,
        install=INSTALL,
        login="codex login",
    )


def _is_logged_in(env: Mapping[str, str]) -> bool | None:
    """Whether codex has a login, as far as files and variables tell.

    None if its settings name a model provider of their own, which may need none.
    """
    if env.get("CODEX_API_KEY") or env.get("OPENAI_API_KEY"):
        return True
    home = codex_home(env)
    login = json_file(home / "auth.json")
    if login.get("OPENAI_API_KEY") or login.get("tokens"):
        return True
    try:
        settings = (home / "config.toml").read_text("utf-8")
    except (OSError, ValueError):
        return False
    return None if "model_provider" in settings else False
