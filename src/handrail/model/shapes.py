"""Narrow Protocols for the things a step refers to: workflows and agents."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from handrail.model.agent_options import NO_SETTINGS, AgentSettings
from handrail.model.context import WorkflowContext
from handrail.model.dataclass import dataclass
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
    """A worktree in which steps work.

    ``folder`` is its folder, ``root`` the folder of the working tree that it replaces, ``branch``
    is checked out in it, ``base`` is the commit at which it began.
    """

    folder: str
    root: str
    branch: str = ""
    base: str = ""

    def inside(self, path: str) -> str:
        """A path of the working tree moved into this worktree; any other path is unchanged."""
        absolute = os.path.realpath(path)
        if absolute != self.root and not absolute.startswith(f"{self.root}/"):
            return path
        return os.path.normpath(f"{self.folder}/{os.path.relpath(absolute, self.root)}")


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """One launch of an agent step, as an agent is asked to carry it out.

    - ``emit`` takes notices while the agent works, and never blocks. ``sleep`` waits on the
      executor's clock, so that scripted delays pass at once under a clock that jumps; ``now`` is
      that clock's time, in unix seconds.
    - ``launch`` says which launch this is. ``settings`` are the step's settings of backend, model
      and session, ``defaults`` the run's.
    - ``mark`` is the text by which the run's processes are found.
    - ``output`` is the answer's type as the workflow's agent declares it (Any: not declared), and
      ``prompt`` that agent's rendered prompt: both are for a fake in the agent's place.
    - ``tree`` is the worktree in which the enclosing steps work; None: the process's folder.
      ``hidden`` are the run's own files, which a sandbox does not show.
      ``claims`` (a ``LaunchClaims``) has the launch's claims; None if its run keeps no claims.
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
    hidden: tuple[Path, ...] = ()


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


def is_agent(performer: object) -> bool:
    """True for an agent, rather than a function or a command."""
    return callable(getattr(performer, "run", None))
