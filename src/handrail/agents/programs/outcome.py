"""How a turn ended, as its last notice and as the error that callers see."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from handrail.errors import AgentError, CommandNotFound
from handrail.model.events import AgentFinished, AgentLimit
from handrail.ports.agent import AgentReply
from handrail.system.spawn import CommandNotStarted


def finished_notice(path: str, outcome: AgentReply | BaseException) -> AgentFinished:
    """The last word of a turn that ended in a reply, an error, or (else) an interruption."""
    match outcome:
        case AgentReply():
            return AgentFinished(
                path,
                "completed",
                usage=outcome.usage,
                model=outcome.model,
                session=outcome.session,
            )
        case AgentError():
            return AgentFinished(
                path,
                "interrupted" if outcome.kind == "interrupted" else "failed",
                kind=outcome.kind or "",
                error=outcome.reason,
                usage=outcome.usage,
                model=outcome.model,
                session=outcome.session,
            )
        case Exception():
            return AgentFinished(path, "failed", error=f"{type(outcome).__name__}: {outcome}")
        case _:
            return AgentFinished(path, "interrupted", kind="interrupted")


def limit_reached(path: str, error: BaseException) -> Iterator[AgentLimit]:
    """The notice of a used-up plan, for backends whose protocol tells it only by failing."""
    if isinstance(error, AgentError) and error.kind == "usage_cap":
        yield AgentLimit(path, "reached", reset_at=error.retry_at)


def attributed(error: AgentError, agent: str) -> AgentError:
    """The same error, named as that agent's; parsers do not know whose turn they read."""
    error.agent = agent
    error.args = (agent, error.reason)
    return error


def start_error(
    agent: str,
    error: CommandNotFound | CommandNotStarted,
    cwd: str | os.PathLike[str] | None,
    program: str,
    install: str | None,
) -> AgentError:
    """Why a program could not be started, as the agent's error, with what a person can do.

    ``install`` is the command that brings it; empty: nobody knows one; None: it may be any program,
    and the words of ``error`` are all the help there is.
    """
    if isinstance(error, CommandNotStarted):  # it is there, but the machine or an update is busy
        return AgentError(agent, str(error), kind="transient")
    if cwd is not None and not Path(cwd).is_dir():
        return AgentError(agent, str(error), kind="config")
    if install is None:
        return AgentError(agent, str(error), kind="not_installed")
    how = f"Install {program}: {install}" if install else f"Install {program}"
    why = str(error).partition(" Did you mean")[0]  # programs of near names are no help here
    return AgentError(
        agent, why, kind="not_installed", hint=f"{how}, or name where it is by executable=."
    )
