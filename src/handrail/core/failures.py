"""Failures as recorded facts: of exceptions, of children, of bodies."""

from __future__ import annotations

from typing import Any

from handrail.errors import DefinitionError, HandrailError, RunCancelled, WorkflowError
from handrail.model.described import facts_of_error, raised_at, text_of, with_type
from handrail.model.results import StepFailed, StepResult


class AttemptFailure:
    """Why an attempt failed, its output if it has one all the same, and its usage. Mutable."""

    __slots__ = (
        "abandoned",
        "bases",
        "cause",
        "derived",
        "error",
        "kind",
        "output",
        "retryable",
        "traceback",
        "usage",
    )

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
        self.abandoned = False
        """True if the attempt left a thread behind."""
        self.derived = ""
        """How the output follows from what is recorded below the step; see ``record.outputs``."""
        self.cause: str | None = None
        """The step whose failure ended the body; see ``AttemptFailed``."""

    @property
    def facts(self) -> tuple[str, str, tuple[str, ...], str | None]:
        """Text, type, base types and traceback of the error, as events have them."""
        return self.error, self.kind, self.bases, self.traceback


def facts_of(
    failure: AttemptFailure | None, error: str | None
) -> tuple[str | None, str | None, tuple[str, ...], str | None]:
    """``facts`` of a failure, as results have them; without a failure, only the ``error`` text."""
    return (error, None, (), None) if failure is None else failure.facts


def failure_from(result: StepResult[Any], text: str) -> AttemptFailure:
    """A failure caused by a child's failure: the child's error type, the parent's ``text``."""
    return AttemptFailure(
        text,
        result.error_type or "handrail.errors.StepFailed",
        result.error_bases,
        traceback=result.traceback,
    )


def failure_of(error: BaseException, *, retryable: bool = True) -> AttemptFailure:
    """The recorded facts of an exception."""
    text, kind, bases, traceback = facts_of_error(error)
    return AttemptFailure(text, kind, bases, traceback=traceback, retryable=retryable)


def cause_of(error: BaseException) -> str | None:
    """The step whose failure an exception of a body tells: it is that failure, or was raised
    ``from`` it. None: it is an error of the body's own.
    """
    cause: BaseException | None = error
    seen = set[int]()  # an exception may be raised from itself
    while cause is not None and id(cause) not in seen:
        if isinstance(cause, StepFailed):
            return cause.result.path
        seen.add(id(cause))
        cause = cause.__cause__
    return None


def failure_of_body(error: BaseException) -> AttemptFailure:
    """The facts of an exception that ended a body; ``StepFailed`` keeps the facts of its step."""
    if isinstance(error, StepFailed):
        failure = failure_from(error.result, str(error))
    else:
        failure = failure_of(error)
        failure.error = body_error_text(error)
    failure.cause = cause_of(error) or ""
    return failure


def body_error_text(error: BaseException) -> str:
    """The text of a body's exception in the result of a run: with the author's line."""
    if isinstance(error, (StepFailed, WorkflowError, RunCancelled)):
        return str(error)
    place, text = raised_at(error), text_of(error)
    if not isinstance(error, (DefinitionError, HandrailError)):
        text = with_type(text, type(error).__name__)
    return f"{place}: {text}" if place else text
