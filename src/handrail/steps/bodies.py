"""The verbs that the core carries out step by step: arms, rounds of checks, and bodies."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, ClassVar

from handrail.model.dataclass import dataclass
from handrail.model.results import WorkflowResult
from handrail.model.shapes import WorkflowLike
from handrail.steps.declared import body_output, of_type, returned_by
from handrail.steps.identity import Identity, called_text
from handrail.steps.leaves import merge_text, stage_text
from handrail.steps.verbs import Predicate, Stage, Step, Verb, Wanted

MAKE, MERGE, REMOVE, LEAVE = "(worktree)", "(merge)", "(remove)", "(leave)"
TREE_STEPS = frozenset({MAKE, MERGE, REMOVE, LEAVE})


@dataclass(frozen=True, slots=True)
class Validation(Verb):
    """Run stages; while any fails and rounds are left, run the fix and all stages again."""

    kind: ClassVar[str] = "validate"
    stages: tuple[str | Stage, ...] | None
    retry: int
    on_failure: Step[Any] | None

    def fingerprint(self, identity: Identity) -> str:
        stages = self.stages
        texts = None if stages is None else [stage_text(stage, identity) for stage in stages]
        return f"validate {identity(texts)}"


@dataclass(frozen=True, slots=True)
class ChildWorkflow(Verb):
    """Run another workflow as part of this run."""

    kind: ClassVar[str] = "subworkflow"
    workflow: WorkflowLike[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def fingerprint(self, identity: Identity) -> str:
        definition, args, named = self.workflow.definition, self.args, dict(self.kwargs)
        with contextlib.suppress(TypeError):  # the child refuses them when it begins
            args, named = (), dict(definition.signature.bind(*args, **named).arguments)
        text = f"subworkflow {definition.name} {identity(list(args))}"
        return f"{text} {identity(named)}" if named else text

    def output_type(self) -> Any:
        return of_type(WorkflowResult, returned_by(self.workflow.definition))


@dataclass(frozen=True, slots=True)
class ScopedBody(Verb):
    """Run the steps of a generator, which runs once, below the step's path."""

    kind: ClassVar[str] = "scope"
    runs_once: ClassVar[str] = (
        "a scope cannot be retried, for its generator runs once. Make a workflow of the helper, "
        "and .subworkflow(...) of the scope."
    )
    body: Generator[Step[Any], Any, Any]
    function: str

    def fingerprint(self, identity: Identity) -> str:
        del identity
        return f"scope {self.function}"


@dataclass(frozen=True, slots=True)
class HeldBody(Verb):
    """Run the steps of a function's generator, or its step, under the claims ``claims``."""

    kind: ClassVar[str] = "holding"
    claims: Wanted
    body: Callable[..., Any]
    args: tuple[Any, ...] = ()

    def fingerprint(self, identity: Identity) -> str:
        claims = [*self.claims.names, *(self.claims.patterns or ())]
        return f"holding {identity(claims)} {called_text(self.body, self.args, identity)}"

    def output_type(self) -> Any:
        return body_output(self.body)

    def wanted(self) -> Wanted:
        return self.claims


@dataclass(frozen=True, slots=True)
class TreeBody(Verb):
    """Run a set-up step, and the steps of a function, in a worktree of their own; then merge it."""

    kind: ClassVar[str] = "worktree"
    body: Callable[..., Any]
    args: tuple[Any, ...] = ()
    base: str | None = None
    setup: Step[Any] | None = None
    merge: str | Callable[..., Any] = "ff"

    def fingerprint(self, identity: Identity) -> str:
        called = called_text(self.body, self.args, identity)
        return f"worktree {called} {self.base or 'HEAD'} {merge_text(self.merge, identity)}"

    def output_type(self) -> Any:
        return body_output(self.body)

    def wanted(self) -> Wanted:
        return Wanted(worktree=True)


@dataclass(frozen=True, slots=True)
class Branching(Verb):
    """Run the first arm whose predicate is true."""

    kind: ClassVar[str] = "branch"
    arms: tuple[tuple[Predicate, Step[Any]], ...]

    def fingerprint(self, identity: Identity) -> str:
        return f"branch {identity([arm.name for _, arm in self.arms])}"

    def held(self) -> Sequence[Step[Any]]:
        return [arm for _, arm in self.arms]
