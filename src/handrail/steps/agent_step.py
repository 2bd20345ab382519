"""What ``.agent()`` takes besides the agent and its context, checked at the user's own line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import attrs

from handrail.errors import DefinitionError, WrongUse
from handrail.model.agent_options import (
    NO_OPTIONS,
    NO_SETTINGS,
    AgentOptions,
    AgentSettings,
    with_model,
)
from handrail.model.results import AgentResult
from handrail.steps.arguments import patterns_of
from handrail.typed.jsonsafe import short_repr

if TYPE_CHECKING:
    from handrail.ports.agent import AgentBackend


def agent_settings(
    name: str,
    backend: AgentBackend | str | None,
    model: str | None,
    options: AgentOptions,
    session: str | AgentResult[Any] | None,
    *,
    fork: bool,
    writes: Sequence[str] | None,
    worktree: bool,
) -> AgentSettings:
    """The settings of an agent step.

    Raises:
        WrongUse, DefinitionError: one of them is of the wrong kind, or two do not go together.
    """
    if (
        (backend, model, session, writes) == (None, None, None, None)
        and options is NO_OPTIONS
        and not fork
        and not worktree
    ):
        return NO_SETTINGS
    if (
        backend is not None
        and not isinstance(backend, str)
        and not callable(getattr(backend, "complete", None))
    ):
        raise WrongUse(
            f'step {name!r}: backend= takes a backend or the name of one, such as "claude", '
            f"got {short_repr(backend)}"
        )
    if not isinstance(options, AgentOptions):
        raise WrongUse(
            f"step {name!r}: options= takes AgentOptions(...), got {short_repr(options)}"
        )
    earlier = _session(name, session)
    if fork and earlier is NO_SETTINGS:
        raise DefinitionError(f"step {name!r}: fork=True needs session=, which is to be copied")
    return attrs.evolve(
        earlier,
        backend=backend,
        options=with_model(model, options, f"step {name!r}"),
        fork=fork,
        writes=None if writes is None else patterns_of(name, "writes=", writes),
        worktree=worktree,
    )


def _session(name: str, given: object) -> AgentSettings:
    """What is known of the session to go on in, from an id or the result of an agent."""
    if given is None:
        return NO_SETTINGS
    if isinstance(given, AgentResult):
        if given.session is None:
            raise DefinitionError(
                f"step {name!r}: session= was given the result of an agent that has no session"
                + (f": backend {given.backend!r} keeps none" if given.backend else "")
            )
        return AgentSettings(
            session=given.session,
            session_usage=given.session_usage,
            session_backend=given.backend or "",
        )
    if isinstance(given, str) and given.strip():
        return AgentSettings(session=given)
    raise WrongUse(
        f"step {name!r}: session= takes the result of an earlier agent step, or the id of a "
        f"session, got {short_repr(given)}"
    )
