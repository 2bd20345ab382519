"""Settings of an ACP session before the prompt: model, effort and mode, as far as offered.

A session lists its choices in ``configOptions``; older agents have ``models`` and ``modes``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from handrail.agents.transport.loose_json import (
    Object,
    as_object,
    object_in,
    objects_in,
    text_in,
    whole_in,
)
from handrail.model.agent_options import AgentOptions, Permission
from handrail.model.dataclass import dataclass
from handrail.ports.agent import AgentTurn

_MODES: dict[Permission, tuple[str, ...]] = {
    "full": ("bypasspermissions", "yolo", "agentfullaccess", "fullaccess"),
    "workspace": ("acceptedits", "autoedit", "workspacewrite"),
    # A mode that asks is as good as one that refuses: handrail denies its requests.
    "read_only": ("readonly", "default", "plan"),
}


Method: TypeAlias = Literal["session/set_config_option", "session/set_mode", "session/set_model"]
Subject: TypeAlias = Literal["model", "effort", "permission"]
SUBJECTS: tuple[Subject, ...] = ("model", "effort", "permission")
"""In this order, because the available efforts depend on the model."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One request that sets a subject to a value."""

    method: str
    params: dict[str, Any]
    subject: Subject
    value: str


@dataclass(frozen=True, slots=True)
class Unoffered:
    """The options name a value for a subject that the agent does not let be chosen."""

    subject: Subject
    value: str


@dataclass(frozen=True, slots=True)
class _Choice:
    """The available values of a subject, with their names, and the current one."""

    current: str
    values: dict[str, str]
    method: Method
    key: str
    id: str = ""

    def to(self, value: str, subject: Subject) -> Setting:
        chosen = {"configId": self.id, "value": value} if self.id else {self.key: value}
        return Setting(self.method, chosen, subject, value)


def setting_of(
    subject: Subject, session: Object, options: AgentOptions, *, sets_model: bool
) -> Setting | Unoffered | None:
    """How to set a subject in a session with these choices; None if nothing has to be set.

    ``sets_model``: the model is chosen here, not by an argument of the program.
    """
    if subject == "permission":
        return None if options.permission is None else _permission(session, options.permission)
    if subject == "model":
        return _choose_setting(
            _offer(session, "model"), options.model if sets_model else None, subject
        )
    return _choose_setting(
        _option(session, "thought_level", "effort", "reasoning_effort"), options.effort, subject
    )


def _choose_setting(
    choice: _Choice | None, wanted: str | None, subject: Subject
) -> Setting | Unoffered | None:
    if wanted is None:
        return None
    if choice is None:
        return Unoffered(subject, wanted)
    named = {name: value for value, name in choice.values.items()}
    value = wanted if wanted in choice.values else named.get(wanted, wanted)
    return None if value == choice.current else choice.to(value, subject)


def _permission(session: Object, level: Permission) -> Setting | None:
    """The mode of a level, if there is one; the level also decides on the agent's requests."""
    everything = _option(session, "permissions", "allow_all")
    if everything is not None and {"on", "off"} <= everything.values.keys():
        value = "on" if level == "full" else "off"
        return None if value == everything.current else everything.to(value, "permission")
    choice = _offer(session, "mode")
    if choice is None:
        return None
    plain = {_plain(value): value for value in choice.values}
    value = next((plain[mode] for mode in _MODES[level] if mode in plain), choice.current)
    return None if value == choice.current else choice.to(value, "permission")


_OLDER: dict[str, tuple[Method, str, str, str, str]] = {
    "model": ("session/set_model", "models", "availableModels", "currentModelId", "modelId"),
    "mode": ("session/set_mode", "modes", "availableModes", "currentModeId", "id"),
}
"""How older agents offer the options of newer ones: the request, and the names of fields in their
session.
"""


def _offer(session: Object, what: str) -> _Choice | None:
    """The choice of models or of modes."""
    method, place, listed, current, named = _OLDER[what]
    offer = object_in(session, place)
    if (option := _option(session, what)) or not objects_in(offer, listed):
        return option
    values = {text_in(one, named): text_in(one, "name") for one in objects_in(offer, listed)}
    return _Choice(text_in(offer, current), values, method, f"{what}Id")


def current_model(session: Object) -> str | None:
    """The model of a session, if the session names it."""
    choice = _offer(session, "model")
    return choice.current if choice and choice.current not in ("", "default", "auto") else None


def _option(session: Object, category: str, *ids: str) -> _Choice | None:
    """The option of a category, or else one with such an id."""
    options = objects_in(session, "configOptions")
    found = [one for one in options if text_in(one, "category") == category] or [
        one for one in options if text_in(one, "id") in (category, *ids)
    ]
    if not found:
        return None
    values = {text_in(value, "value"): text_in(value, "name") for value in _values(found[0])}
    current, name = text_in(found[0], "currentValue"), text_in(found[0], "id")
    return _Choice(current, values, "session/set_config_option", "value", name)


def _values(option: Object) -> Iterator[Object]:
    """The values of an option, including those in groups."""
    for one in objects_in(option, "options"):
        if "value" in one:
            yield one
        else:
            yield from objects_in(one, "options")


def _plain(mode: str) -> str:
    """The plain name of a mode, whose id may be a URI."""
    return re.sub(r"[^a-z0-9]", "", mode.rpartition("#")[2].lower())


VERSION = 1
SESSION_SETUP = frozenset({"session/new", "session/load", "session/resume", "session/fork"})


def initialize_params(client_version: str) -> dict[str, Any]:
    """The parameters of ``initialize``; handrail offers the agent no files and no terminals."""
    return {
        "protocolVersion": VERSION,
        "clientCapabilities": {
            "fs": {"readTextFile": False, "writeTextFile": False},
            "terminal": False,
        },
        "clientInfo": {"name": "handrail", "title": "handrail", "version": client_version},
    }


def session_request(
    greeted: Object,
    turn: AgentTurn,
    *,
    cwd: str,
    folders: Sequence[str],
    servers: Mapping[str, Mapping[str, Any]],
) -> tuple[str, dict[str, Any]] | str:
    """The request that opens the session of a turn, or why it is impossible.

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
    """True for ``{}`` too, which means a capability without details."""
    return capabilities.get(name) not in (None, False)


def _server(name: str, server: Mapping[str, Any]) -> dict[str, Any]:
    """An MCP server in ACP's form."""
    settings = as_object(server)
    if url := text_in(settings, "url"):
        kind = text_in(settings, "type") or "http"
        headers = _pairs(object_in(settings, "headers"))
        return {"type": kind, "name": name, "url": url, "headers": headers}
    return {
        "name": name,
        "command": text_in(settings, "command"),
        "args": [str(one) for one in settings.get("args") or ()],
        "env": _pairs(object_in(settings, "env")),
    }


def _pairs(table: Object) -> list[dict[str, str]]:
    return [{"name": name, "value": str(value)} for name, value in table.items()]
