"""What an agent may be told besides its prompt: model, rights, surroundings, bounds."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Literal, TypeAlias

import attrs

from handrail.errors import DefinitionError
from handrail.model.policy import count_of, positive_seconds

Permission: TypeAlias = Literal["read_only", "workspace", "full"]
"""What an agent may do without asking: read; change its working folder; anything."""

PERMISSIONS = ("read_only", "workspace", "full")


def _text(_: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None and (not isinstance(value, str) or not value.strip()):
        raise DefinitionError(f"{attribute.name} must be text that is not blank, got {value!r}")


def _permission(_: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None and value not in PERMISSIONS:
        raise DefinitionError(
            f"{attribute.name} must be one of {', '.join(map(repr, PERMISSIONS))}, got {value!r}"
        )


def _count(_: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None:
        count_of(value, attribute.name)


def _dollars(_: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise DefinitionError(f"{attribute.name} must be dollars above 0, got {value!r}")


def _optional_s(value: float | timedelta | None) -> float | None:
    return None if value is None else positive_seconds(value, "a timeout of AgentOptions")


def _texts(given: Iterable[str] | None) -> tuple[str, ...] | None:
    if given is None:
        return None
    if isinstance(given, str):
        raise DefinitionError(f"AgentOptions takes lists of texts, got the text {given!r}")
    return tuple(os.fspath(one) for one in given)


def _folder(given: str | os.PathLike[str] | None) -> str | None:
    return None if given is None else os.fspath(given)


def _dict(given: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if given is None else dict(given)


def _names_only(env: Mapping[str, str] | None) -> str:
    return repr(None if env is None else sorted(env))  # the values may be secrets


@attrs.frozen(kw_only=True)
class AgentOptions:
    """How a backend is to carry an agent out. None: not said here, so an outer setting counts.

    The nearest that says something wins, field by field: the step's, the agent's, the backend's
    own, the run's. A backend refuses an option that it cannot honour (see ``Capabilities``).

    - ``model``: as the backend names it; ``profile@model`` picks a profile of codex too.
    - ``effort``: how hard to think, in the backend's words (``"low"``, ``"high"``, ...).
    - ``system_prompt`` replaces the backend's own, ``append_system_prompt`` follows it.
    - ``permission``: what it may do without asking; what it would have to ask for is denied.
    - ``allowed_tools``, ``denied_tools``: names as the backend has them. ``mcp_servers``: name to
      ``{"command": ..., "args": [...], "env": {...}}`` or ``{"url": ...}``.
    - ``cwd``: its working folder (default: this process's), ``add_dirs``: further ones.
    - ``env`` is added to this process's environment.
    - ``max_turns``: of the model, within one answer. ``max_cost_usd``: for one answer.
    - ``start_timeout_s`` (60): to the first sign of life. ``idle_timeout_s`` (300): without one
      after that; ``tool_timeout_s`` (1800) while a tool is at work. ``timeout_s``: for one answer
      in all (default: none).
    - ``extra_args``: appended to the program's own, at your risk.
    """

    model: str | None = attrs.field(default=None, validator=_text)
    effort: str | None = attrs.field(default=None, validator=_text)
    system_prompt: str | None = attrs.field(default=None, validator=_text)
    append_system_prompt: str | None = attrs.field(default=None, validator=_text)
    permission: Permission | None = attrs.field(default=None, validator=_permission)
    allowed_tools: tuple[str, ...] | None = attrs.field(default=None, converter=_texts)
    denied_tools: tuple[str, ...] | None = attrs.field(default=None, converter=_texts)
    mcp_servers: Mapping[str, Mapping[str, Any]] | None = attrs.field(default=None, converter=_dict)
    cwd: str | None = attrs.field(default=None, converter=_folder)
    add_dirs: tuple[str, ...] | None = attrs.field(default=None, converter=_texts)
    env: Mapping[str, str] | None = attrs.field(default=None, converter=_dict, repr=_names_only)
    max_turns: int | None = attrs.field(default=None, validator=_count)
    max_cost_usd: float | None = attrs.field(default=None, validator=_dollars)
    start_timeout_s: float | None = attrs.field(default=None, converter=_optional_s)
    idle_timeout_s: float | None = attrs.field(default=None, converter=_optional_s)
    tool_timeout_s: float | None = attrs.field(default=None, converter=_optional_s)
    timeout_s: float | None = attrs.field(default=None, converter=_optional_s)
    extra_args: tuple[str, ...] | None = attrs.field(default=None, converter=_texts)

    def over(self, outer: AgentOptions) -> AgentOptions:
        """These, and of ``outer`` what is not said here; the variables of ``env`` are joined."""
        chosen = {
            name: getattr(outer, name) if getattr(self, name) is None else getattr(self, name)
            for name in OPTION_NAMES
        }
        if self.env is not None and outer.env is not None:
            chosen["env"] = {**outer.env, **self.env}
        return AgentOptions(**chosen)

    @property
    def given(self) -> tuple[str, ...]:
        """The names of the options that are said here."""
        return tuple(name for name in OPTION_NAMES if getattr(self, name) is not None)

    @property
    def profile_and_model(self) -> tuple[str | None, str | None]:
        """``profile@model`` in its two parts; either may be missing."""
        profile, at, model = (self.model or "").rpartition("@")
        return (profile or None) if at else None, model or None


OPTION_NAMES: tuple[str, ...] = tuple(field.name for field in attrs.fields(AgentOptions))
WATCHDOGS = frozenset({"start_timeout_s", "idle_timeout_s", "tool_timeout_s", "timeout_s"})
NO_OPTIONS = AgentOptions()
