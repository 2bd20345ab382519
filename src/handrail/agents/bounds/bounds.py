"""What a step allows its agent of the working tree, around one launch."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio

from handrail.errors import AgentError
from handrail.model.agent_options import AgentOptions
from handrail.model.events import StepOutput
from handrail.model.shapes import AgentRequest
from handrail.ports.agent import AgentBackend, AgentReply

_BOUND_S = 600
"""So long git may take before and after a launch; nothing that is asked of it takes as long."""


@dataclass(slots=True)
class Bounds:
    """The options that a launch is made with, and its reply when it has come. Mutable."""

    options: AgentOptions
    reply: AgentReply | None = None


@asynccontextmanager
async def bounds_of(
    request: AgentRequest, agent: str, backend: AgentBackend, options: AgentOptions
) -> AsyncGenerator[Bounds, None]:
    """The bounds that the step's settings ask for; their end checks, undoes and merges.

    Raises:
        DefinitionError: there is no repository, or the backend works in no other folder.
        ScopeViolated: the agent wrote where it may not; that was undone.
        WorktreeConflict: what it did cannot be merged; nothing was.
    """
    settings = request.settings
    if settings.writes is None and not settings.worktree:
        yield Bounds(options)
        return
    from handrail.agents.bounds.confined import confine

    confined = await confine(request, agent, backend, options)
    bounds = Bounds(options if confined.worktree is None else confined.worktree.mapped(options))
    try:
        yield bounds
    except BaseException as error:
        with anyio.fail_after(_BOUND_S, shield=True):
            violated = await confined.failed()
        if violated is None:
            raise
        if not isinstance(error, Exception):  # cancelled: that goes first
            request.emit(StepOutput(request.path, "stderr", f"{violated}\n"))
            raise
        if isinstance(error, AgentError):
            _learn(violated, error, request)
        raise violated from error
    try:
        with anyio.fail_after(_BOUND_S, shield=True):
            await confined.answered()
    except AgentError as error:
        if bounds.reply is not None:
            _learn(error, bounds.reply, request)
        raise


def _learn(error: AgentError, said: AgentReply | AgentError, request: AgentRequest) -> None:
    """Have the error know what the launch has cost, and what the agent said in it."""
    spent, used = request.launch.spent, said.usage
    error.usage = used if spent is None else spent if used is None else spent + used
    error.model, error.session, error.text = said.model, said.session, said.text
