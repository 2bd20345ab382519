"""How attempts end: their time bound, and the events of their success or failure."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from handrail.core.commands import Perform, Queue
from handrail.errors import (
    BudgetExceeded,
    ClaimLost,
    CommandFailed,
    DefinitionError,
    MissingExtra,
    NotPortable,
    OutputChanged,
    StepTimeout,
)
from handrail.model.dataclass import assembler
from handrail.model.described import facts_of_error, text_of
from handrail.model.events import AttemptFailed, RollbackCompleted, StepCompleted
from handrail.model.launch import AgentError, NotReady, PromptError
from handrail.model.outcome import INTERRUPTIONS
from handrail.model.results import (
    CommandResult,
    StageFailed,
    StepResult,
    Usage,
    add_usage,
    qualified,
)
from handrail.model.sandbox import SandboxUnavailable

_step_result: Callable[..., StepResult[Any]] = assembler(StepResult)
_step_completed = assembler(StepCompleted)


def time_bound(command: Perform, now: float) -> tuple[float, Exception]:
    """The seconds that an attempt may run from ``now``, and the error it fails with after them.

    The bound is the step's timeout, less the seconds its earlier launches ran, or a budget's
    deadline if that comes first; infinite without both.
    """
    timeout_s, deadline = command.step.modifiers.timeout_s, command.deadline
    left_s = math.inf if timeout_s is None else timeout_s - command.spent_s
    if deadline is not None and deadline.due - now < left_s:
        return deadline.due - now, deadline.error
    return left_s, StepTimeout(command.path, timeout_s or 0.0)


def success_event(command: Perform, output: Any, usage: Usage | None, now: float) -> StepCompleted:
    """The event of an attempt that succeeded with this output."""
    step = command.step
    took_ms = (now - command.started_at) * 1000
    path = command.path
    result = _step_result(
        step.name,
        path,
        step.verb.kind,
        "succeeded",
        output,
        None,
        None,
        (),
        None,
        took_ms if took_ms > 0 else 0.0,
        command.attempt,
        False,  # noqa: FBT003  # by position, for speed: replayed, abandoned, masked
        False,  # noqa: FBT003
        False,  # noqa: FBT003
        usage if command.used is None else add_usage(command.used, usage),
        (),
        0.0,
        None,
    )
    return _step_completed("", 0, 0.0, path, result, "", 0, (), command.used, "")


def _is_permanent(command: Perform | Queue, error: BaseException) -> bool:
    """True if another attempt is bound to fail in the same way, whatever happens meanwhile."""
    unmakeable = isinstance(error, PromptError) and command.step.verb.launches_agent()
    return (
        unmakeable
        or _is_not_ready(command, error)
        or isinstance(error, (BudgetExceeded, NotPortable, OutputChanged))
    )


def _is_not_ready(command: Perform | Queue, error: BaseException) -> bool:
    """True if what the step needs to run at all is not there (``NotReady``)."""
    if isinstance(error, AgentError):
        return error.not_ready
    wrong = isinstance(error, DefinitionError) and command.step.verb.launches_agent()
    return wrong or isinstance(error, (MissingExtra, SandboxUnavailable))


def _facts_of(
    command: Perform | Queue, error: BaseException
) -> tuple[str, str, tuple[str, ...], str]:
    """The facts of an error; ``NotReady`` is a base if the step's agent could not begin at all."""
    text, kind, bases, traceback = facts_of_error(error)
    if _is_not_ready(command, error):
        bases = (*bases, qualified(NotReady))
    return text, kind, bases, traceback


def failure_event(
    command: Perform | Queue,
    error: BaseException,
    spent: Usage | None = None,
    output: Any = None,
    *,
    abandoned: bool = False,
) -> AttemptFailed:
    """The event of an attempt that raised. ``on=`` is applied here, to the live exception.

    ``spent`` is the total usage of an agent that was stopped. ``output`` is what the attempt left;
    a failed command, stage or merge of a worktree brings its own in ``error``. ``abandoned``: it
    left a thread behind.
    """
    if isinstance(error, CommandFailed):
        output = CommandResult[None](error.exit_code, error.stdout, error.stderr)
    elif isinstance(error, StageFailed):
        output = error.result
    elif isinstance(error, AgentError):
        output = getattr(error, "conflict", None)  # of a worktree's merge
    retryable = isinstance(error, Exception) and not _is_permanent(command, error)
    retry = command.step.modifiers.retry
    if retry is not None and retryable:
        try:
            retryable = retry.covers(error)
        except INTERRUPTIONS:
            raise
        except BaseException as broken:  # noqa: BLE001  # the user's predicate
            error, retryable = broken, False
    usage = spent or command.launch.spent
    if isinstance(error, (ClaimLost, StageFailed)):
        usage = add_usage(usage, error.usage)
    if isinstance(error, AgentError):
        usage = error.fault.spent if error.fault is not None else add_usage(usage, error.usage)
    return AttemptFailed(
        command.path,
        command.attempt,
        *_facts_of(command, error),
        retryable,
        output,
        usage,
        abandoned=abandoned,
    )


def rollback_event(path: str, error: BaseException | None = None) -> RollbackCompleted:
    """The event of a rollback that completed, or failed with ``error``."""
    if error is None:
        return RollbackCompleted(path)
    return RollbackCompleted(path, text_of(error), qualified(type(error)))
