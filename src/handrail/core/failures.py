"""Failures as recorded facts: of exceptions, of children, of bodies."""

from __future__ import annotations

from typing import Any

from handrail.errors import DefinitionError, HandrailError, RunCancelled, WorkflowError
from handrail.model.described import bases_of, raised_at, text_of, traceback_of
from handrail.model.results import StepFailed, StepResult, qualified


class Failure:
    """Why an attempt failed: the recorded facts of an exception."""

    __slots__ = ("bases", "error", "kind", "output", "retryable", "traceback", "usage")

    def __init__(
        self,
        error: str,
        kind: str,
        bases: tuple[str, ...] = (),
        *,
        traceback: str | None = None,
        output: Any = None,
        retryable: bool = True,
    ) -> None:
        self.error = error
        self.kind = kind
        self.bases = bases
        self.traceback = traceback
        self.output = output
        self.retryable = retryable
        self.usage: Any = None


def failure_from(result: StepResult[Any], text: str) -> Failure:
    """A failure that a child's failure caused: the child's kind of error, in the parent's words."""
    return Failure(
        text,
        result.error_type or "handrail.errors.StepFailed",
        result.error_bases,
        traceback=result.traceback,
    )


def failure_of(error: BaseException, *, retryable: bool = True) -> Failure:
    """The recorded facts of an exception."""
    return Failure(
        text_of(error),
        qualified(type(error)),
        bases_of(error),
        traceback=traceback_of(error),
        retryable=retryable,
    )


def failure_of_body(error: BaseException) -> Failure:
    """The facts of an exception that ended a body; a step's failure counts as its own."""
    if isinstance(error, StepFailed):
        return failure_from(error.result, str(error))
    failure = failure_of(error)
    failure.error = body_error_text(error)
    return failure


def body_error_text(error: BaseException) -> str:
    """How the result of a run names an exception of its body: with the author's line."""
    if isinstance(error, (StepFailed, WorkflowError, RunCancelled)):
        return str(error)
    place = raised_at(error)
    kind = (
        "" if isinstance(error, (DefinitionError, HandrailError)) else f"{type(error).__name__}: "
    )
    said = text_of(error)
    if kind and said == type(error).__name__:
        kind = ""
    return f"{place}: {kind}{said}" if place else f"{kind}{said}"
