"""Narrow Protocols for the things a step refers to: workflows and agents."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from handrail.model.agent_options import NO_SETTINGS, AgentSettings
from handrail.model.context import WorkflowContext
from handrail.model.events import Notice
from handrail.model.launch import FIRST, Launch

if TYPE_CHECKING:
    from handrail.model.definition import WorkflowDefinition
    from handrail.model.results import AgentResult, WorkflowResult

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
T_co = TypeVar("T_co", covariant=True)


class WorkflowLike(Protocol[P, R_co]):
    """Something with a workflow's definition; what ``@workflow`` returns satisfies it."""

    @property
    def definition(self) -> WorkflowDefinition: ...

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> WorkflowResult[R_co]: ...


@dataclass(frozen=True, slots=True)
class OwnTree:
    """A worktree that steps work in: its folder, and that of the working tree it stands for; the
    branch that is checked out in it, and the commit that it began at.
    """

    folder: str
    root: str
    branch: str = ""
    base: str = ""

    def inside(self, path: str) -> str:
        """Where a path of that working tree is in this one; another path stays as it is."""
        absolute = os.path.realpath(path)
        if absolute != self.root and not absolute.startswith(f"{self.root}/"):
            return path
        return os.path.normpath(f"{self.folder}/{os.path.relpath(absolute, self.root)}")


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """One launch of an agent step, as an agent is asked to carry it out.

    ``emit`` takes what happens meanwhile (never blocks); ``sleep`` waits on the executor's clock,
    so that scripted delays pass at once under a clock that jumps; ``now`` is its time, in unix
    seconds. ``launch`` says which launch it is and what it follows from, ``settings`` what the step
    says of backend, model and session, ``defaults`` what the run does.
    ``mark`` is what the run's processes are found by. ``output`` is the type that the agent in the
    workflow says it answers with, which a fake in its place keeps to; Any if it says none.
    ``prompt`` is what that agent's prompt makes of the context, for a fake in its place.
    ``tree`` is the worktree that the steps around it work in, None if they work where the process
    does; ``claims`` are what it keeps others out with (a ``LaunchClaims``), None if no run does.
    """

    run_id: str
    path: str
    attempt: int
    context: Mapping[str, Any]
    workflow: WorkflowContext
    idempotency_key: str
    interrupted: bool
    emit: Callable[[Notice], None]
    sleep: Callable[[float], Any]
    launch: Launch = FIRST
    settings: AgentSettings = NO_SETTINGS
    defaults: AgentSettings = NO_SETTINGS
    now: Callable[[], float] = lambda: 0.0
    mark: str = ""
    output: Any = Any
    prompt: str = ""
    tree: OwnTree | None = None
    claims: Any = None


class AgentLike(Protocol[T_co]):
    """A named task for a model: ``handrail.Agent``, ``handrail.testing.FakeAgent``, or your own."""

    @property
    def name(self) -> str: ...

    async def run(self, request: AgentRequest, /) -> AgentResult[T_co]:
        """The answer.

        Raises:
            Exception: anything; it fails this attempt of the step.
        """
        ...
