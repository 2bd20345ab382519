"""The MCP servers of a turn, as settings of codex."""

from __future__ import annotations

import re
from typing import Any

from handrail.model.agent_options import AgentOptions
from handrail.model.launch import AgentError

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_FIELDS = {"headers": "http_headers"}


def mcp_settings(agent: str, options: AgentOptions) -> dict[str, Any]:
    """Each server under its dotted name; codex tells its kind by its fields.

    Raises:
        AgentError: codex does not take the name of one.
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
