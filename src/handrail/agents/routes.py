"""Chooses the backends that carry an agent out, with their options: its own, then fallbacks."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cache
from typing import Any, Protocol, TypeAlias

import attrs

from handrail import addons
from handrail.errors import DefinitionError, WrongUse, did_you_mean
from handrail.model.agent_options import NO_OPTIONS, AgentOptions, AgentSettings, nearest
from handrail.model.launch import AgentError
from handrail.model.retired import RETIRED_BACKENDS, retired
from handrail.ports.agent import AgentBackend, capabilities_of
from handrail.typed.jsonsafe import short_repr

Fallback: TypeAlias = AgentBackend | str
"""A backend, ``"name"`` or ``"name:model"`` of one, or ``":model"`` of the agent's own backend."""


class Routed(Protocol):
    """The part of an agent that chooses its backends."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def backend(self) -> AgentBackend | str | None: ...  # noqa: D102
    @property
    def options(self) -> AgentOptions: ...  # noqa: D102
    @property
    def fallback(self) -> Sequence[Fallback]: ...  # noqa: D102


@attrs.frozen
class Route:
    """A backend, and its options."""

    backend: AgentBackend
    options: AgentOptions

    @property
    def name(self) -> str:
        """The backend's name."""
        return self.backend.name


def check_backend(given: object, whose: str) -> None:
    """Do nothing for a backend, or for the name of one.

    Raises:
        DefinitionError: no backend has this name. WrongUse: it is neither.
    """
    if given is None:
        return
    if isinstance(given, str):
        name, colon, model = given.partition(":")
        check_name(name, whose)
        if colon and not model.strip():
            raise DefinitionError(
                f"{whose}: {given!r} names no model after the colon. Write {name!r} for the "
                f"default model, or {name + ':MODEL'!r}."
            )
        return
    if not callable(getattr(given, "complete", None)):
        raise WrongUse(
            f"{whose}: backend= takes a backend (it has an async complete), such as "
            f'CommandBackend([...]) or FakeBackend([...]), or the name of one, such as "claude", '
            f"got {short_repr(given)}"
        )


def check_options(given: object, options: AgentOptions, whose: str) -> None:
    """Do nothing if a backend honours these options, as far as known before a launch.

    Raises:
        DefinitionError: it does not; the text names the backends that do.
    """
    if given is None or not options.given:
        return
    made, more = _resolve_backend(given, whose)
    _refuse_lacking(made, options.over(more), whose)


def routes_of(agent: Routed, settings: AgentSettings, defaults: AgentSettings) -> tuple[Route, ...]:
    """The agent's chain of backends; settings of the step win over the agent's, then the run's.

    It begins with the backend that has the session which the step continues: after a fallback, that
    is not the chain's first one. Those that do not know the session stay as fallbacks.

    Raises:
        AgentError: no setting names a backend. DefinitionError: one cannot honour its options, or
            none has the session; another would begin a new one.
    """
    whose = f"agent {agent.name!r}"
    levels = [_level(given.backend, given.options, whose) for given in (settings, agent, defaults)]
    backend = next((backend for backend, _ in levels if backend is not None), None)
    if backend is None:
        raise AgentError(agent.name, _NO_BACKEND.format(name=agent.name), kind="config")
    main = _route(backend, levels)
    routes = [main, *[_fallback(one, main, levels, whose) for one in agent.fallback]]
    for route in routes:
        _refuse_lacking(route.backend, route.options, whose)
    if (replace := defaults.replace_backend) is not None:
        routes = [Route(replace(route.backend), route.options) for route in routes]
    return _session_backend_first(routes, settings, whose)


def missing_program(route: Route) -> str | None:
    """Which program of a route is not installed; None if it is, or if the launch must show it."""
    where = getattr(route.backend, "where", None)
    if where is None or where(route.options) is not None:
        return None
    return f"{route.backend.executable!r} is not installed"  # type: ignore[attr-defined]


def _session_backend_first(
    routes: Sequence[Route], settings: AgentSettings, whose: str
) -> tuple[Route, ...]:
    owner = settings.session_backend
    if settings.session is None or not owner:
        return tuple(routes)
    same = [route for route in routes if route.name == owner]
    kin = same or [route for route in routes if one_program(route.name, owner)]
    if not kin:
        names = list(dict.fromkeys(repr(route.name) for route in routes))
        raise DefinitionError(
            f"{whose}: session= is one of backend {owner!r}, and this step is carried out by "
            f"{' or '.join(names)}, which cannot go on in it. "
            f"Put {RETIRED_BACKENDS.get(owner, owner)!r} into backend= or fallback=, or leave "
            f"session= out."
        )
    return (kin[0], *(route for route in routes if route is not kin[0]))


_Level: TypeAlias = tuple[AgentBackend | None, AgentOptions]
"""The backend and options that one level sets: a step, an agent, a run."""


def _level(given: Any, options: AgentOptions, whose: str) -> _Level:
    if given is None:
        return None, options
    backend, named = _resolve_backend(given, whose)
    return backend, options.over(named)


def _route(backend: AgentBackend, levels: Sequence[_Level]) -> Route:
    """The backend with the options of all levels, the nearest first; its own options come before
    those of the last level, which is the run's.

    A level's model belongs to the backend that this level names, or else the next level that names
    one. It does not count for another backend.
    """
    said: list[AgentOptions] = []
    for place, (_, options) in enumerate(levels):
        if options.model is not None:
            meant = next((named for named, _ in levels[place:] if named is not None), backend)
            if meant.name != backend.name:
                options = attrs.evolve(options, model=None)  # noqa: PLW2901  # the same, without it
        said.append(options)
    return Route(backend, nearest(*said[:-1], getattr(backend, "options", NO_OPTIONS), said[-1]))


def _fallback(given: Fallback, main: Route, levels: Sequence[_Level], whose: str) -> Route:
    if isinstance(given, str) and given.startswith(":"):
        return Route(main.backend, AgentOptions(model=given[1:]).over(main.options))
    backend, options = _resolve_backend(given, whose)
    if isinstance(given, str) and backend.name == main.name:
        return Route(backend, options.over(main.options))
    return _route(backend, ((backend, options), *levels))


def _resolve_backend(given: Any, whose: str) -> tuple[AgentBackend, AgentOptions]:
    """The backend of a name, and the model named with it."""
    if not isinstance(given, str):
        return given, NO_OPTIONS

    name, colon, model = given.partition(":")
    check_name(name, whose)
    return make_backend(name), AgentOptions(model=model) if colon and model else NO_OPTIONS


def _refuse_lacking(backend: AgentBackend, options: AgentOptions, whose: str) -> None:
    lacking = capabilities_of(backend).lacking(options)
    if not lacking:
        return

    able = backends_with(options)
    others = f"Those that can: {', '.join(able)}." if able else "No backend here can do all of it."
    raise DefinitionError(
        f"{whose}: backend {backend.name!r} cannot honour {_join_names(lacking)}. {others} "
        f"Leave it out, or choose another backend."
    )


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1]


_NO_BACKEND = (
    "it has no backend. Pass one to Agent(..., backend=...), name one for the run "
    '(Executor(backend="claude"), --backend, HANDRAIL_BACKEND), or put another agent in its place '
    "with Executor(agents={{{name!r}: ...}})."
)

_MADE_BY = {
    "claude": ("handrail.agents.claude.backend", "ClaudeBackend"),
    "codex": ("handrail.agents.codex.backend", "CodexBackend"),
    "copilot": ("handrail.agents.copilot.backend", "CopilotBackend"),
    "gemini": ("handrail.agents.acp.backend", "gemini"),
    "opencode": ("handrail.agents.acp.backend", "opencode"),
    "api": ("handrail.agents.api.backend", "ApiBackend"),
    "agy": ("handrail.agents.agy", "AgyBackend"),
}


ACP_NAMES = ("auggie", "cline", "cursor", "droid", "goose", "junie", "kimi", "kiro", "qwen", "vibe")
"""Agents that are known by a name, and by no more than what ``agents.acp.named`` says of each."""
OTHER_NAMES = ("agy", *ACP_NAMES)
"""Backends that were hardly tried with the real program, if at all."""


def backend_names() -> tuple[str, ...]:
    """The names of the house's backends, and of those that packages registered.

    ``make_backend`` knows ``OTHER_NAMES``, too.
    """
    tried = (name for name in _MADE_BY if name not in OTHER_NAMES)
    return tuple(dict.fromkeys((*tried, *addons.names(addons.BACKENDS))))


@cache
def make_backend(name: str) -> AgentBackend:
    """The backend of this name with its default settings; the same object each time.

    Raises:
        DefinitionError: no backend has this name.
    """
    check_name(name, "a backend")
    if name not in _MADE_BY and name in addons.names(addons.BACKENDS):
        added: AgentBackend = addons.load(addons.BACKENDS, name)()
        return added
    if name in ACP_NAMES:
        from handrail.agents.acp.named import make_named

        return make_named(name)
    module, attribute = _MADE_BY[name]
    made: AgentBackend = getattr(importlib.import_module(module), attribute)()
    return made


def check_name(name: str, whose: str) -> None:
    """Do nothing for the name of a backend.

    Raises:
        DefinitionError: no backend has this name; the text lists the known ones, or says what a
            retired name is now.
    """
    if name in _MADE_BY or name in (known := (*backend_names(), *OTHER_NAMES)):
        return
    if (error := retired(name, whose)) is not None:
        raise error
    meant = did_you_mean([name], known)
    raise DefinitionError(
        f"{whose}: there is no backend {name!r}.{meant} Known: {', '.join(known)}."
    )


def one_program(name: str, other: str) -> bool:
    """True if both name the same program; a record may have a session of a retired backend."""
    return RETIRED_BACKENDS.get(name, name) == RETIRED_BACKENDS.get(other, other)


def backends_with(options: AgentOptions) -> tuple[str, ...]:
    """The names of the backends that honour all of these options."""
    return tuple(
        name for name in backend_names() if not capabilities_of(make_backend(name)).lacking(options)
    )
