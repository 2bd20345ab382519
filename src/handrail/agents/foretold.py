"""Whether an agent can be carried out with what it is told, asked before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import attrs

from handrail.agents.agent import Agent
from handrail.agents.routes import check_backend, check_options, routes_of
from handrail.errors import DefinitionError
from handrail.model.agent_options import AgentSettings


def check_told(
    given: object, settings: AgentSettings, defaults: Callable[[], AgentSettings] | None
) -> None:
    """Do nothing, or raise what a launch of an agent would raise before its backend is asked.

    Without ``defaults``, what holds for the run, only what the step itself says counts. Agents of
    other classes take what they like. What else is wrong, such as that nobody names a backend, is
    the launch's to say.

    Raises:
        DefinitionError: a backend cannot honour what it is told, or there is none of its name.
    """
    if getattr(type(given), "run", None) is not Agent[Any].run:
        return
    agent = cast("Agent[Any]", given)
    if defaults is None:
        whose = f"agent {agent.name!r}"
        check_backend(settings.backend, whose)
        check_options(settings.backend, settings.options, whose)
        return
    try:
        routes_of(agent, settings, attrs.evolve(defaults(), wrap=None))
    except DefinitionError:
        raise
    except Exception:  # noqa: BLE001  # the launch tells of it
        return
