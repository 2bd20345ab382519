"""What is set in an ACP session before the prompt: model, effort and mode, as they are offered.

A session says what can be chosen in ``configOptions``; older agents have ``models`` and ``modes``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from handrail.agents.programs.loose_json import Object, object_in, objects_in, text_in
from handrail.model.agent_options import AgentOptions, Permission

_MODES: dict[Permission, tuple[str, ...]] = {
    "full": ("bypasspermissions", "yolo", "agentfullaccess", "fullaccess"),
    "workspace": ("acceptedits", "autoedit", "workspacewrite"),
    # A mode that asks is as good as one that refuses: what it asks for is denied.
    "read_only": ("readonly", "default", "plan"),
}


Subject: TypeAlias = Literal["model", "effort", "permission"]
SUBJECTS: tuple[Subject, ...] = ("model", "effort", "permission")
"""In this order: which efforts there are depends on the model."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One request that sets something to a value."""

    method: str
    params: dict[str, Any]
    subject: Subject
    value: str


@dataclass(frozen=True, slots=True)
class Unoffered:
    """Something was to be set that the agent does not let be chosen."""

    subject: Subject
    value: str


@dataclass(frozen=True, slots=True)
class _Choice:
    """What can be chosen: the values by name, and which one holds."""

    current: str
    values: dict[str, str]
    method: Literal["session/set_config_option", "session/set_mode", "session/set_model"]
    key: str
    id: str = ""

    def to(self, value: str, subject: Subject) -> Setting:
        chosen = {"configId": self.id, "value": value} if self.id else {self.key: value}
        return Setting(self.method, chosen, subject, value)


def setting_of(
    subject: Subject, session: Object, options: AgentOptions, *, sets_model: bool
) -> Setting | Unoffered | None:
    """How to set one of them in a session of which this was told last; None if it holds already.

    ``sets_model``: the model is to be chosen here, not by an argument of the program.
    """
    if subject == "permission":
        return None if options.permission is None else _permission(session, options.permission)
    if subject == "model":
        return _chosen(_model(session), options.model if sets_model else None, subject)
    return _chosen(
        _option(session, "thought_level", "effort", "reasoning_effort"), options.effort, subject
    )


def _chosen(
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
    """The mode of a level, if there is one; what the agent asks for is answered by it anyway."""
    everything = _option(session, "permissions", "allow_all")
    if everything is not None and {"on", "off"} <= everything.values.keys():
        value = "on" if level == "full" else "off"
        return None if value == everything.current else everything.to(value, "permission")
    choice = _mode(session)
    if choice is None:
        return None
    plain = {_plain(value): value for value in choice.values}
    value = next((plain[mode] for mode in _MODES[level] if mode in plain), choice.current)
    return None if value == choice.current else choice.to(value, "permission")


def _model(session: Object) -> _Choice | None:
    models = object_in(session, "models")
    offered = objects_in(models, "availableModels")
    return _option(session, "model") or (
        _Choice(
            text_in(models, "currentModelId"),
            {text_in(one, "modelId"): text_in(one, "name") for one in offered},
            "session/set_model",
            "modelId",
        )
        if offered
        else None
    )


def _mode(session: Object) -> _Choice | None:
    modes = object_in(session, "modes")
    offered = objects_in(modes, "availableModes")
    return _option(session, "mode") or (
        _Choice(
            text_in(modes, "currentModeId"),
            {text_in(one, "id"): text_in(one, "name") for one in offered},
            "session/set_mode",
            "modeId",
        )
        if offered
        else None
    )


def current_model(session: Object) -> str | None:
    """The model of a session, if it tells."""
    choice = _model(session)
    return choice.current if choice and choice.current not in ("", "default", "auto") else None


def _option(session: Object, category: str, *ids: str) -> _Choice | None:
    """The option of a category, else one with such an id."""
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
    """The values of an option, also of one that has them in groups."""
    for one in objects_in(option, "options"):
        if "value" in one:
            yield one
        else:
            yield from objects_in(one, "options")


def _plain(mode: str) -> str:
    """The name of a mode whose id may be an address."""
    return re.sub(r"[^a-z0-9]", "", mode.rpartition("#")[2].lower())
