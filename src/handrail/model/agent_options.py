"""The options of an agent besides its prompt: model, permissions, surroundings, bounds."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Literal, TypeAlias, cast

import attrs

from handrail.errors import DefinitionError, did_you_mean
from handrail.model.policy import Ladder, checked, count_of, number, positive_seconds, word_of
from handrail.model.results import Usage
from handrail.model.sandbox import Boundary, InheritEnv, boundary_of, inherited_of
from handrail.typed.jsonsafe import short_repr

Permission: TypeAlias = Literal["read_only", "workspace", "full"]
"""What an agent may do without asking: read; change its working folder; anything."""

PERMISSIONS = ("read_only", "workspace", "full")

ContextMode: TypeAlias = Literal["explicit", "last", "accumulate"]
"""Which results of earlier steps an agent sees: none, the last one, all that fit."""
CONTEXT_MODES = ("explicit", "last", "accumulate")


def _text_of(value: object, what: str) -> None:
    if not isinstance(value, str) or not value.strip():
        raise DefinitionError(f"{what} must be text that is not blank, got {value!r}")


# A converter returns a value of the wrong kind unchanged: the validator after it knows the name.


def _seconds(value: float | timedelta | None) -> float | None:
    return value.total_seconds() if isinstance(value, timedelta) else value


def _texts(given: Iterable[str | os.PathLike[str]] | None) -> tuple[str, ...] | None:
    wrong: object = given
    if isinstance(wrong, (str, bytes, Mapping)) or not isinstance(wrong, Iterable):
        return cast("None", wrong)
    return tuple(os.fspath(one) if isinstance(one, os.PathLike) else one for one in given or ())


def _list_of(value: object, what: str) -> None:
    given = cast("tuple[object, ...]", value)
    if not isinstance(value, tuple) or not all(isinstance(one, str) for one in given):
        raise DefinitionError(f"{what} must be a list of texts, got {short_repr(given)}")


def _folder(given: str | os.PathLike[str] | None) -> str | None:
    return os.fspath(given) if isinstance(given, os.PathLike) else given


def _dict(given: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return dict(given) if isinstance(given, Mapping) else given


def _mapping_of(value: object, what: str) -> None:
    if not isinstance(value, dict):  # not shown: it may contain secrets
        raise DefinitionError(f"{what} must be a mapping, got {type(value).__name__}")


def names_only(env: Mapping[str, str] | None) -> str:
    """Variables for people: their names."""
    return repr(None if env is None else sorted(env))  # the values may be secrets


def _inherited(given: Any) -> Any:
    return inherited_of(given, "inherit_env of AgentOptions")


_CLASS = "AgentOptions"
_TEXT = checked(_text_of, _CLASS)
_LIST = checked(_list_of, _CLASS)
_MAPPING = checked(_mapping_of, _CLASS)


_SERVER_FIELDS = ("command", "args", "env", "url", "headers", "type")
"""What an MCP server may have, on every backend."""


def _servers_of(value: object, what: str) -> None:
    _mapping_of(value, what)
    for name, server in cast("Mapping[str, object]", value).items():
        _mapping_of(server, f"{name!r} in {what}")
        for field in cast("Mapping[str, object]", server):
            if field not in _SERVER_FIELDS:  # its value is not shown: it may be secret
                near = did_you_mean([field], _SERVER_FIELDS)
                near = near or f" A server may have: {', '.join(_SERVER_FIELDS)}."
                said = f"{name!r} in {what} has {field!r}, which no backend passes on."
                raise DefinitionError(f"{said}{near}")


_SERVERS = checked(_servers_of, _CLASS)
_TIMEOUT = checked(positive_seconds, _CLASS)


@attrs.frozen(kw_only=True)
class AgentOptions:
    """How a backend carries out an agent. None: not set here, so an outer setting applies.

    The nearest setting wins, field by field: the step's, the agent's, the backend's own, the
    run's. A backend refuses an option that it cannot honour (see ``Capabilities``).

    - ``model``: as the backend names it; ``profile@model`` picks a profile of codex too.
    - ``effort``: how hard to think, in the backend's words (``"low"``, ``"high"``, ...).
    - ``system_prompt`` replaces the backend's own, ``append_system_prompt`` follows it.
    - ``permission``: what the agent may do without asking; whatever else it asks for is denied.
    - ``tools``: the only tools that it has, whatever its permission; ``()`` for none.
      ``allowed_tools`` need no permission, ``denied_tools`` are never used. Names as the backend
      has them. ``mcp_servers``: name to ``{"command": ..., "args": [...], "env": {...}}`` or
      ``{"url": ..., "headers": {...}}``; with ``"type"`` if need be.
    - ``temperature`` of the model, and ``max_tokens`` of one of its messages.
    - ``cwd``: its working folder (default: this process's), ``add_dirs``: further ones.
    - ``env`` is added to what it inherits of this process's environment: ``inherit_env="safe"``
      (all but what looks like a secret, and what it needs itself), ``"all"``, or a list of names.
    - ``sandbox``: the boundary that the kernel keeps around it, a ``Sandbox``, or True for one that
      follows from the step. False: none, whatever the run says.
    - ``max_turns``: of the model, within one answer. ``max_cost_usd``: for one answer.
    - ``start_timeout_s`` (60): until the first sign of life. ``idle_timeout_s`` (300): from one
      sign to the next; ``tool_timeout_s`` (1800) while a tool is at work. ``timeout_s``: for one
      answer in all (default: none).
    - ``extra_args``: appended to the program's own, at your risk.
    """

    model: str | None = attrs.field(default=None, validator=_TEXT)
    effort: str | None = attrs.field(default=None, validator=_TEXT)
    system_prompt: str | None = attrs.field(default=None, validator=_TEXT)
    append_system_prompt: str | None = attrs.field(default=None, validator=_TEXT)
    permission: Permission | None = attrs.field(
        default=None, validator=checked(word_of, _CLASS, words=PERMISSIONS)
    )
    tools: tuple[str, ...] | None = attrs.field(default=None, converter=_texts, validator=_LIST)
    allowed_tools: tuple[str, ...] | None = attrs.field(
        default=None, converter=_texts, validator=_LIST
    )
    denied_tools: tuple[str, ...] | None = attrs.field(
        default=None, converter=_texts, validator=_LIST
    )
    mcp_servers: Mapping[str, Mapping[str, Any]] | None = attrs.field(
        default=None, converter=_dict, validator=_SERVERS
    )
    cwd: str | None = attrs.field(default=None, converter=_folder, validator=_TEXT)
    add_dirs: tuple[str, ...] | None = attrs.field(default=None, converter=_texts, validator=_LIST)
    env: Mapping[str, str] | None = attrs.field(
        default=None, converter=_dict, validator=_MAPPING, repr=names_only
    )
    inherit_env: InheritEnv | None = attrs.field(default=None, converter=_inherited)
    sandbox: Boundary = attrs.field(default=None, validator=checked(boundary_of, _CLASS))
    temperature: float | None = attrs.field(
        default=None, validator=number("a number from 0 up", lambda t: 0 <= t < math.inf, _CLASS)
    )
    max_tokens: int | None = attrs.field(default=None, validator=checked(count_of, _CLASS))
    max_turns: int | None = attrs.field(default=None, validator=checked(count_of, _CLASS))
    max_cost_usd: float | None = attrs.field(
        default=None, validator=number("dollars above 0", lambda usd: 0 < usd < math.inf, _CLASS)
    )
    start_timeout_s: float | None = attrs.field(
        default=None, converter=_seconds, validator=_TIMEOUT
    )
    idle_timeout_s: float | None = attrs.field(default=None, converter=_seconds, validator=_TIMEOUT)
    tool_timeout_s: float | None = attrs.field(default=None, converter=_seconds, validator=_TIMEOUT)
    timeout_s: float | None = attrs.field(default=None, converter=_seconds, validator=_TIMEOUT)
    extra_args: tuple[str, ...] | None = attrs.field(
        default=None, converter=_texts, validator=_LIST
    )

    def over(self, outer: AgentOptions) -> AgentOptions:
        """These options; None is filled in from ``outer``, and the two ``env`` are merged."""
        return self if outer is NO_OPTIONS else nearest(self, outer)

    @property
    def given(self) -> tuple[str, ...]:
        """The names of the options that are set here."""
        return tuple([name for name in OPTION_NAMES if getattr(self, name) is not None])

    @property
    def profile_and_model(self) -> tuple[str | None, str | None]:
        """``profile@model`` in its two parts; either may be missing."""
        profile, at, model = (self.model or "").rpartition("@")
        return (profile or None) if at else None, model or None


def nearest(*levels: AgentOptions) -> AgentOptions:
    """The options of several levels, the nearest first; their ``env`` are merged."""
    levels = tuple([level for level in levels if level is not NO_OPTIONS])
    if len(levels) < 2:
        return levels[0] if levels else NO_OPTIONS
    made, is_first = object.__new__(AgentOptions), True  # all its values have been checked
    for name in OPTION_NAMES:
        value = None
        for level in levels:
            if (value := getattr(level, name)) is not None:
                is_first = is_first and level is levels[0]
                break
        _set(made, name, value)
    env = {name: value for one in reversed(levels) for name, value in (one.env or {}).items()}
    if made.env and made.env != env:
        _set(made, "env", env)
        is_first = False
    return levels[0] if is_first else made


def with_model(model: str | None, options: AgentOptions, whose: str) -> AgentOptions:
    """The options with this model.

    Raises:
        DefinitionError: they name another model.
    """
    if model is None:
        return options
    if options.model not in (None, model):
        raise DefinitionError(
            f"{whose}: model={model!r} and options that say model={options.model!r}: "
            f"keep one of them"
        )
    return attrs.evolve(options, model=model)


_set = object.__setattr__
OPTION_NAMES: tuple[str, ...] = tuple(field.name for field in attrs.fields(AgentOptions))
WATCHDOGS = frozenset({"start_timeout_s", "idle_timeout_s", "tool_timeout_s", "timeout_s"})
NO_OPTIONS = AgentOptions()


@attrs.frozen
class AgentSettings:
    """What a step, an agent or a run sets for launches. None: not set here.

    - ``backend``: a backend, or the name of one. ``replace_backend`` is called on every backend and
      returns the one to use; only a run sets it.
    - ``session``: the session to continue; ``fork``: continue a copy of it. ``lent``: the session
      belongs to another run, so only a copy may be continued. ``session_usage``: what the session
      has used so far, if known. ``session_backend``: the backend that keeps it ("": not known).
    - ``writes``: patterns of the files that the agent may write. ``worktree``: it works in its own.
      ``check``: a function of the answer, or an agent, that accepts or refuses it.
    """

    backend: Any = None
    options: AgentOptions = NO_OPTIONS
    session: str | None = None
    session_usage: Usage | None = None
    fork: bool = False
    lent: bool = False
    writes: tuple[str, ...] | None = None
    worktree: bool = False
    check: Any = None
    replace_backend: Callable[[Any], Any] | None = None
    session_backend: str = ""
    ladder: Ladder | None = None
    context_mode: ContextMode | None = None


NO_SETTINGS = AgentSettings()
