"""How an ACP session is opened: a new one, an old one, or a copy of one, as the agent can."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from handrail.agents.programs.loose_json import Object, as_object, object_in, text_in, whole_in
from handrail.ports.agent import AgentTurn

VERSION = 1
OPENING = frozenset({"session/new", "session/load", "session/resume", "session/fork"})


def greeting(client_version: str) -> dict[str, Any]:
    """The parameters of ``initialize``: no files and no terminals are offered to the agent."""
    return {
        "protocolVersion": VERSION,
        "clientCapabilities": {
            "fs": {"readTextFile": False, "writeTextFile": False},
            "terminal": False,
        },
        "clientInfo": {"name": "handrail", "title": "handrail", "version": client_version},
    }


def how_to_open(
    greeted: Object,
    turn: AgentTurn,
    *,
    cwd: str,
    folders: Sequence[str],
    servers: Mapping[str, Mapping[str, Any]],
) -> tuple[str, dict[str, Any]] | str:
    """The request that opens the session of a turn, or why there is none.

    ``greeted`` is the reply to ``initialize``.
    """
    version = whole_in(greeted, "protocolVersion")
    if version is not None and version != VERSION:
        return f"it speaks version {version} of ACP, not {VERSION}"
    able = object_in(greeted, "agentCapabilities")
    sessions = object_in(able, "sessionCapabilities")
    if folders and not _has(sessions, "additionalDirectories"):
        return "it takes no further working folders (add_dirs)"
    params: dict[str, Any] = {
        "cwd": cwd,
        "mcpServers": [_server(name, server) for name, server in servers.items()],
    }
    if folders:
        params["additionalDirectories"] = list(folders)
    if turn.session is None:
        return "session/new", params
    params["sessionId"] = turn.session
    if turn.fork:
        can_fork = _has(sessions, "fork")
        return ("session/fork", params) if can_fork else "it cannot go on in a copy of a session"
    if _has(sessions, "resume"):
        return "session/resume", params
    if able.get("loadSession") is True:
        return "session/load", params
    return "it cannot go on in an earlier session"


def _has(capabilities: Object, name: str) -> bool:
    """True for ``{}`` too: that is how a capability without details is said."""
    return capabilities.get(name) not in (None, False)


def _server(name: str, server: Mapping[str, Any]) -> dict[str, Any]:
    """An MCP server in the words of ACP."""
    told = as_object(server)
    if url := text_in(told, "url"):
        kind = text_in(told, "type") or "http"
        headers = _pairs(object_in(told, "headers"))
        return {"type": kind, "name": name, "url": url, "headers": headers}
    return {
        "name": name,
        "command": text_in(told, "command"),
        "args": [str(one) for one in told.get("args") or ()],
        "env": _pairs(object_in(told, "env")),
    }


def _pairs(table: Object) -> list[dict[str, str]]:
    return [{"name": name, "value": str(value)} for name, value in table.items()]
