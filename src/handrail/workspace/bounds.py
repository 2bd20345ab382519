"""A launch of an agent within a scope (``writes=``), a worktree of its own, or both."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio

from handrail.errors import DefinitionError
from handrail.model.agent_options import AgentOptions
from handrail.model.events import ClaimGranted, ClaimWaiting, StepOutput
from handrail.model.launch import AgentError
from handrail.model.shapes import AgentRequest
from handrail.ports.agent import AgentBackend, AgentReply, capabilities_of
from handrail.workspace.errors import ScopeViolated
from handrail.workspace.git import repository_of
from handrail.workspace.places import Places, folder_of, places_of
from handrail.workspace.scope import Findings, Scope, before_launch
from handrail.workspace.shadow import Shadow
from handrail.workspace.tree_lock import Teller, tree_locked
from handrail.workspace.worktree import Worktree, worktree_of


async def confine(
    request: AgentRequest,
    agent: str,
    backend: AgentBackend,
    options: AgentOptions,
    until_checked: AsyncExitStack,
) -> Confined:
    """A launch made ready to be confined as the step's settings ask.

    A launch in the working tree itself waits for its lock, and has it until ``until_checked`` ends.

    Raises:
        DefinitionError: there is no repository, or the backend works in no other folder.
    """
    marker = f"{request.run_id}/{request.path}/git"
    folder = folder_of(options, backend)
    repository = await repository_of(folder, marker)
    settings = request.settings
    if repository is None:
        raise _no_repository(request, folder)
    told = partial(_waits, request)
    places = places_of(repository.root, request.run_id, request.path)
    if settings.worktree:
        _check_can_move(request, backend)
        anew = request.launch.rung == "start" and not request.interrupted
        worktree = await worktree_of(repository, places, marker, anew=anew)
        here, shadow, before = worktree.here, worktree.shadow, worktree.before
    else:
        worktree, here = None, repository
        await until_checked.enter_async_context(tree_locked(places, told))
        shadow = Shadow(places.shadow, repository.root, marker)
        ours: Sequence[Path] = getattr(backend, "own_folders", ())  # a cassette's recordings
        before = await before_launch(shadow, places, repository, ours)
    scope = None
    if settings.writes is not None:
        scope = Scope(settings.writes, here, shadow, places, before)
    return Confined(agent, places, scope, worktree, told)


@dataclass(frozen=True, slots=True)
class Confined:
    """A launch within a scope, a worktree, or both."""

    agent: str
    places: Places
    scope: Scope | None
    worktree: Worktree | None
    told: Teller

    async def failed(self) -> ScopeViolated | None:
        """What is to be done when there is no answer; the violation, if there was one."""
        violated = await self._violated()
        if self.worktree is not None and await self.worktree.is_unchanged():
            await self.worktree.remove()
        return violated

    async def answered(self) -> None:
        """What is to be done when there is one."""
        violated = await self._violated()
        if violated is not None:
            raise violated
        if self.worktree is not None:
            await self.worktree.merge(self.agent, self.told)

    async def _violated(self) -> ScopeViolated | None:
        if self.scope is None:
            return None
        findings = await self.scope.enforced()
        if self.worktree is None:
            self.places.forget()
        return self._error(findings) if findings.files else None

    def _error(self, findings: Findings) -> ScopeViolated:
        assert self.scope is not None
        notes = findings.notes
        if self.worktree is not None:
            kept = f"Nothing was merged: its worktree is {self.worktree.here.root}."
            notes = (*notes, kept)
        return ScopeViolated(self.agent, findings.files, findings.patch, self.scope.patterns, notes)


_TREE = "the working tree"


def _waits(request: AgentRequest, holder: str | None) -> None:
    """Tell that the launch waits, and for whom; None: it does not wait any more."""
    if holder is None:
        request.emit(ClaimGranted(request.path, _TREE))
    else:
        request.emit(ClaimWaiting(request.path, _TREE, holder))


def _no_repository(request: AgentRequest, folder: Path) -> DefinitionError:
    asked = "worktree=True" if request.settings.worktree else "writes="
    return DefinitionError(
        f"step {request.path!r}: {asked} needs a git repository, and {folder} is in none. Make it "
        f"one (git init), or leave {asked} out."
    )


def _check_can_move(request: AgentRequest, backend: AgentBackend) -> None:
    if "cwd" not in capabilities_of(backend).options:
        raise DefinitionError(
            f"step {request.path!r}: worktree=True needs a backend that can be told its working "
            f"folder (cwd), and backend {backend.name!r} cannot."
        )


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

    async with AsyncExitStack() as until_checked:
        confined = await confine(request, agent, backend, options, until_checked)
        async with _checked(request, confined, options) as bounds:
            yield bounds


@asynccontextmanager
async def _checked(
    request: AgentRequest, confined: Confined, options: AgentOptions
) -> AsyncGenerator[Bounds, None]:
    """The launch, and its check behind it, however it ends."""
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
