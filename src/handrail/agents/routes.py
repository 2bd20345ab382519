"""Which backend carries an agent out, with which options: its own, then those to fall back on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from handrail.errors import AgentError, DefinitionError, WrongUse
from handrail.model.agent_options import NO_OPTIONS, AgentOptions
from handrail.model.agent_settings import AgentSettings
from handrail.model.jsonsafe import short_repr
from handrail.ports.agent import AgentBackend, capabilities_of

if TYPE_CHECKING:
    from handrail.agents.agent import Agent

Fallback: TypeAlias = AgentBackend | str
"""A backend, ``"name"`` or ``"name:model"`` of one, or ``":model"`` of the agent's own backend."""


@attrs.frozen
class Route:
    """A backend, and what it is told besides the prompt."""

    backend: AgentBackend
    options: AgentOptions

    @property
    def name(self) -> str:
        """The backend's."""
        return self.backend.name


def check_backend(given: object, whose: str) -> None:
    """Do nothing for a backend, or a name that stands for one.

    Raises:
        DefinitionError: there is no backend of this name. WrongUse: it is neither.
    """
    if given is None:
        return
    if isinstance(given, str):
        from handrail.agents.registry import check_name

        check_name(given.partition(":")[0], whose)
        return
    if not callable(getattr(given, "complete", None)):
        raise WrongUse(
            f"{whose}: backend= takes a backend (it has an async complete), such as "
            f'CommandBackend([...]) or FakeBackend([...]), or the name of one, such as "claude", '
            f"got {short_repr(given)}"
        )


def check_options(given: object, options: AgentOptions, whose: str) -> None:
    """Do nothing if a backend honours these options, as far as that can be known beforehand.

    Raises:
        DefinitionError: it does not; the text names the backends that do.
    """
    if given is None or not options.given:
        return
    made, more = _made(given)
    _refuse_lacking(made, options.over(more), whose)


def routes_of(
    agent: Agent[Any], settings: AgentSettings, defaults: AgentSettings
) -> tuple[Route, ...]:
    """The agent's chain; the nearest setting wins: the step's, the agent's, the run's.

    Raises:
        AgentError: nobody names a backend. DefinitionError: one cannot honour what it is told.
    """
    first = _first(settings.backend, agent.backend, defaults.backend)
    if first is None:
        raise AgentError(agent.name, _NO_BACKEND.format(name=agent.name), kind=None)
    said = settings.options.over(agent.options)
    main = _route(first, said, defaults)
    fallbacks = [_fallback(one, main, said, defaults) for one in agent.fallback]
    whose = f"agent {agent.name!r}"
    for route in (main, *fallbacks):
        _refuse_lacking(route.backend, route.options, whose)
    return (main, *fallbacks)


def _first(*given: Any) -> Any:
    return next((one for one in given if one is not None), None)


def _route(given: Any, said: AgentOptions, defaults: AgentSettings) -> Route:
    backend, named = _made(given)
    return Route(backend, said.over(named).over(_beneath(backend, defaults)))


def _beneath(backend: AgentBackend, defaults: AgentSettings) -> AgentOptions:
    """The backend's own options, over the run's; a model that the run names is its backend's."""
    outer = defaults.options
    if defaults.backend is not None and _made(defaults.backend)[0].name != backend.name:
        outer = attrs.evolve(outer, model=None)
    own: AgentOptions = getattr(backend, "options", NO_OPTIONS)
    return own.over(outer)


def _fallback(given: Fallback, main: Route, said: AgentOptions, defaults: AgentSettings) -> Route:
    """A model that was meant for another backend is not taken along."""
    if isinstance(given, str) and given.startswith(":"):
        return Route(main.backend, AgentOptions(model=given[1:]).over(main.options))
    backend, named = _made(given)
    if backend.name != main.name:
        said = attrs.evolve(said, model=None)
    return Route(backend, named.over(said).over(_beneath(backend, defaults)))


def _made(given: Any) -> tuple[AgentBackend, AgentOptions]:
    """The backend of a name, and the model that was named with it."""
    if not isinstance(given, str):
        return given, NO_OPTIONS
    from handrail.agents.registry import make_backend

    name, colon, model = given.partition(":")
    return make_backend(name), AgentOptions(model=model) if colon and model else NO_OPTIONS


def _refuse_lacking(backend: AgentBackend, options: AgentOptions, whose: str) -> None:
    lacking = capabilities_of(backend).lacking(options)
    if not lacking:
        return
    from handrail.agents.registry import who_can

    able = who_can(options)
    others = f"Those that can: {', '.join(able)}." if able else "No backend here can do all of it."
    raise DefinitionError(
        f"{whose}: backend {backend.name!r} cannot honour {_listed(lacking)}. {others} "
        f"Leave it out, or choose another backend."
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1]


_NO_BACKEND = (
    "it has no backend. Pass one to Agent(..., backend=...), name one for the run "
    '(Executor(backend="claude"), --backend, HANDRAIL_BACKEND), or put another agent in its place '
    "with Executor(agents={{{name!r}: ...}})."
)
