"""One live element of a run's tree: a step, a member of a group, or the run itself."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from enum import IntEnum
from typing import Any

from handrail.model.commands import View
from handrail.model.results import StepResult
from handrail.model.steps import Rollback, Step

RollbackEntry = tuple[str, Rollback, View]


class Phase(IntEnum):
    """Where a node is; the table in ``core.machine`` says what may follow."""

    OPENING = 0  # its predicate is being evaluated
    RUNNING = 1  # an attempt is in flight, or its children are
    PAUSED = 2  # it waits before the next attempt
    FALLING_BACK = 3  # its handler, or the step that the handler returned, is at work
    UNDOING = 4  # its rollbacks run
    ENDING = 5  # its end is on the way to the journal


class Node:
    """Mutable, and the core's only mutable record: one is made for each live path."""

    __slots__ = (
        "attempt",
        "base",
        "child",
        "deadline",
        "failure",
        "generator",
        "hard",
        "index",
        "inputs",
        "live",
        "parent",
        "path",
        "phase",
        "rollbacks",
        "seen",
        "started_at",
        "state",
        "step",
        "stop",
        "timer",
        "unwinding",
    )

    def __init__(
        self, step: Step[Any] | None, path: str, parent: Node | None, inputs: Mapping[str, Any]
    ) -> None:
        self.step = step
        self.path = path
        self.parent = parent
        self.inputs = inputs
        self.phase = Phase.OPENING
        self.attempt = 0
        self.index = 0
        self.started_at = 0.0
        self.base = path  # its children's paths begin with this
        self.child: Node | None = None  # the one child of a node that has one at a time
        self.live: dict[str, Node] | None = None  # the unfinished members of a group, by path
        self.seen: dict[str, None] | None = None  # every child path so far, in order
        self.generator: Generator[Any, Any, Any] | None = None
        self.rollbacks: list[RollbackEntry] | None = None
        self.failure: Failure | None = None
        self.state: Any = None  # what its verb keeps
        self.stop: str | None = None  # why it is being stopped, if it is
        self.hard = False  # its generator is closed, not asked
        self.unwinding = False  # RunCancelled was thrown into it; children opened now are clean-up
        self.timer = 0  # token of the pause or wait it is in
        self.deadline = 0  # token of its deadline


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
