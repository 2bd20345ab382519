"""The options of a turn as settings of codex's app-server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from handrail.model.agent_options import AgentOptions, Permission
from handrail.model.launch import AgentError

SANDBOXES: Mapping[Permission, str] = {
    "read_only": "read-only",
    "workspace": "workspace-write",
    "full": "danger-full-access",
}


def thread_settings(
    agent: str, options: AgentOptions, *, cwd: str, profile: Mapping[str, Any]
) -> dict[str, Any]:
    """The parameters of ``thread/start``, ``thread/resume`` and ``thread/fork``.

    Without a permission level the user's own settings apply. With one, codex never asks; it denies
    itself what the level does not allow.

    Raises:
        AgentError: codex has no equivalent of an option of ``agent``.
    """
    _, model = options.profile_and_model
    level = options.permission
    settings = {
        "cwd": cwd,
        "model": model,
        "approvalPolicy": None if level is None else "never",
        "sandbox": None if level is None else SANDBOXES[level],
        "baseInstructions": options.system_prompt,
        "developerInstructions": options.append_system_prompt,
        "config": {**flatten(profile), **_config(agent, options)} or None,
    }
    return {name: value for name, value in settings.items() if value is not None}


def turn_settings(options: AgentOptions, schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """The parameters of ``turn/start`` besides the prompt and its thread."""
    settings = {"effort": options.effort, "outputSchema": schema}
    return {name: value for name, value in settings.items() if value is not None}


def flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by their dotted names, so that one setting does not replace its whole table."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        inner = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        if inner and not any("." in key for key in inner):
            flat.update(flatten(inner, f"{prefix}{name}."))
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _config(agent: str, options: AgentOptions) -> dict[str, Any]:
    servers = mcp_settings(agent, options)
    if not options.add_dirs:
        return servers
    return {"sandbox_workspace_write.writable_roots": list(options.add_dirs), **servers}


_NAME = re.compile(r"[A-Za-z0-9_-]+")
_FIELDS = {"headers": "http_headers"}


def mcp_settings(agent: str, options: AgentOptions) -> dict[str, Any]:
    """The settings of each MCP server, by dotted name; codex infers its kind from its fields.

    Raises:
        AgentError: codex does not accept a server's name.
    """
    made: dict[str, Any] = {}
    for name, server in (options.mcp_servers or {}).items():
        if not _NAME.fullmatch(name):
            raise AgentError(
                agent,
                f"codex takes MCP servers whose names are letters, digits, - and _, not {name!r}",
                kind="config",
            )
        made[f"mcp_servers.{name}"] = {
            _FIELDS.get(field, field): value for field, value in server.items() if field != "type"
        }
    return made
