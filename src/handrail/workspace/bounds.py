"""A launch of an agent within its bounds: a scope (``writes=``), a worktree of its own, a sandbox.

Theory of operation. Before the launch, what the agent may change is claimed, and the state of the
working tree is taken (see ``scope``), or the agent gets a worktree. After the launch, however it
ended, what it changed outside of its scope is undone. Only then, and only after an answer, is the
worktree merged. A sandbox around all of this keeps the rest of the machine.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import attrs

from handrail.errors import ClaimLost, ClaimsFailed, DefinitionError
from handrail.model.agent_options import AgentOptions
from handrail.model.dataclass import dataclass
from handrail.model.events import StepOutput
from handrail.model.patterns import display_pattern
from handrail.model.sandbox import chosen_sandbox
from handrail.model.shapes import AgentRequest, OwnTree
from handrail.ports.agent import AgentBackend, AgentTurn, capabilities_of
from handrail.ports.claims import Claim, LaunchClaims, Resource
from handrail.sandbox.mounts import Scene
from handrail.sandbox.programs import needs_of
from handrail.workspace.claims.holding import claims_of, find_lost_claim
from handrail.workspace.claims.resources import files_of
from handrail.workspace.errors import ScopeViolated
from handrail.workspace.git import head_of, repository_of
from handrail.workspace.places import Places, folder_of, places_of
from handrail.workspace.sandboxed import own_branch_of, within_sandbox
from handrail.workspace.scope import Reach, Scope, Violations, before_launch, read_before
from handrail.workspace.shadow import Shadow
from handrail.workspace.tree_lock import tree_locked
from handrail.workspace.worktree import FILES, Site, Worktree

_BOUND_S = 600
"""How long git may take after a launch; far more than these commands need."""


@asynccontextmanager
async def within_bounds(
    request: AgentRequest, turn: AgentTurn, backend: AgentBackend
) -> AsyncGenerator[AgentTurn]:
    """The turn, where its step and the enclosing ones let it work; the end of the block checks it.

    Raises:
        DefinitionError: there is no repository, or the backend cannot work in another folder.
        ScopeViolated: the agent wrote outside of its scope; these changes were undone.
        ClaimDeadlock, ClaimsFailed: the claim cannot be waited for.
        ClaimLost: the claim was taken away meanwhile; nothing was merged.
        WorktreeConflict: the agent's work cannot be merged; nothing was.
        SandboxUnavailable: what the sandbox needs cannot be made here.
    """
    settings, tree, options = request.settings, request.tree, turn.options
    writes, sandbox = settings.writes, chosen_sandbox(options.sandbox)
    is_confined = writes is not None or settings.worktree
    if tree is not None:
        options = _moved(options, tree, backend)
        turn = replace(turn, options=options)
    elif sandbox is None and not is_confined:
        yield turn
        return
    own = own_branch_of(tree)
    async with AsyncExitStack() as stack:
        if is_confined:
            worktree = await stack.enter_async_context(_confined(request, turn, backend))
            if worktree is not None:
                here, main = str(worktree.here.root), str(worktree.main.root)
                options, own = _moved(options, OwnTree(here, main), backend), worktree.own_branch
        boundary = None
        if sandbox is not None:
            if options.permission == "read_only":  # reading alone changes nothing
                own, writes = None, ()
            folder = folder_of(options, backend).absolute()
            read = tuple(folder / further for further in options.add_dirs or ())
            scene = Scene(folder, needs_of(backend.name), writes, own, request.hidden, read)
            around = within_sandbox(sandbox, scene, turn.path, request.emit, f"{turn.marker}/git")
            boundary = await stack.enter_async_context(around)
        yield replace(turn, options=options, boundary=boundary)


def _moved(options: AgentOptions, tree: OwnTree, backend: AgentBackend) -> AgentOptions:
    """The options with the folders of the main working tree mapped to those of another one."""
    cwd = tree.inside(str(folder_of(options, backend)))
    Path(cwd).mkdir(parents=True, exist_ok=True)
    more = options.add_dirs and tuple(map(tree.inside, options.add_dirs))
    return attrs.evolve(options, cwd=cwd, add_dirs=more)


# -- before and after ------------------------------------------------------------------------------


@asynccontextmanager
async def _confined(
    request: AgentRequest, turn: AgentTurn, backend: AgentBackend
) -> AsyncGenerator[Worktree | None]:
    """Prepare a launch as its step asks, and check it after its end; its worktree, if it has one.

    A launch in the main working tree claims the files of ``writes=`` until it has been checked.
    """
    settings, marker = request.settings, f"{turn.marker}/git"
    folder = folder_of(turn.options, backend)
    repository = await repository_of(folder, marker)
    asked = "worktree=True" if settings.worktree else "writes="
    if repository is None:
        raise DefinitionError(
            f"step {request.path!r}: {asked} needs a git repository, and {folder} is in none. Make "
            f"it one (git init), or leave {asked} out."
        )
    if settings.worktree and "cwd" not in capabilities_of(backend).options:
        raise DefinitionError(
            f"step {request.path!r}: {asked} needs a backend that can be told its working folder "
            f"(cwd), and backend {backend.name!r} cannot."
        )
    places = places_of(repository.root, request.run_id, request.path)
    claims, agent = claims_of(request), turn.agent
    resource = None if settings.writes is None else files_of(repository, settings.writes)
    async with AsyncExitStack() as until_checked:
        if settings.worktree:
            anew = request.launch.rung == "start" and not request.interrupted
            site = Site(repository, places, marker, agent, of_steps=False)
            worktree = await _worktree_at(site, anew=anew)
            here, claim = worktree.here, None
            shadow = Shadow(places.shadow, here.root, marker)
            before = await before_launch(shadow, places, here, alone=False)
        else:
            assert resource is not None  # otherwise nothing is confined
            worktree, here, claim = None, repository, claims.claim
            if claim is None or resource not in claim.resources:
                claim = await until_checked.enter_async_context(claims.take((resource,)))
            shadow = Shadow(places.shadow, here.root, marker)
            ours: Sequence[Path] = getattr(backend, "own_folders", ())  # a cassette's recordings
            async with tree_locked(places):
                before = await before_launch(shadow, places, here, ours, epoch=claim.epoch)
        scope = None if resource is None else Scope(_reach(resource), here, shadow, places, before)
        launch = _Confined(agent, places, scope, worktree, claims, claim)
        try:
            yield worktree
        except BaseException as error:
            with anyio.fail_after(_BOUND_S, shield=True):
                violated = await launch.clean_up()
            if violated is not None and isinstance(error, Exception):
                raise violated from error
            if violated is not None:  # a cancellation comes before the violation
                request.emit(StepOutput(request.path, "stderr", f"{violated}\n"))
            raise
        with anyio.fail_after(_BOUND_S, shield=True):
            violated, lost = await launch.check_answer()
        if lost is not None and violated is not None:
            request.emit(StepOutput(request.path, "stderr", f"{violated}\n"))
        if (broken := lost or violated) is not None:
            raise broken
        if worktree is not None:
            await (await worktree.found_again()).merge(FILES, claims)


async def _worktree_at(site: Site, *, anew: bool) -> Worktree:
    """The step's worktree: the one that an earlier launch left, or, if ``anew``, a new one.

    Raises:
        DefinitionError, CommandFailed, WorktreeConflict: see ``Site.begin``.
    """
    known = read_before(site.places.shadow)
    base = None if known is None else known.inside.head
    found = await site.find(base or await head_of(site.main.git(site.marker)) or "")
    if found is not None and base is not None and not anew:
        return found
    return await site.begin(found)


def _reach(resource: Resource, others: Sequence[Claim] = ()) -> Reach:
    theirs = (
        its.patterns for other in others for its in other.resources if its.tree == resource.tree
    )
    return Reach(resource.patterns, tuple(theirs), resource.folds)


@dataclass(frozen=True, slots=True)
class _Confined:
    """A launch within a scope, a worktree, or both; ``claim``: of the main working tree."""

    agent: str
    places: Places
    scope: Scope | None
    worktree: Worktree | None
    claims: LaunchClaims
    claim: Claim | None

    async def clean_up(self) -> ScopeViolated | None:
        """Check and clean up after a launch without an answer; the violation, or None."""
        violated = await self._find_violation()
        if self.worktree is not None:
            worktree = await self.worktree.found_again()
            if await worktree.is_untouched():
                await worktree.remove()
        return violated

    async def check_answer(self) -> tuple[ScopeViolated | None, ClaimLost | None]:
        """Check a launch that gave an answer: what it changed elsewhere, and the loss of its claim.

        Raises:
            ClaimsFailed: it is not known whether the claim was lost.
        """
        violated = await self._find_violation()
        if self.claim is None:
            return violated, None
        try:
            return violated, await find_lost_claim(self.claims.claims, self.claim)
        except ClaimsFailed:
            if violated is None:
                raise
            return violated, None  # it has damaged the repository, which has the claims file

    async def _find_violation(self) -> ScopeViolated | None:
        if self.worktree is not None:
            await self.worktree.found_again()
        if self.scope is None:
            return None
        scope = self.scope
        if self.claim is None:
            violations = await scope.enforce()
        else:
            async with tree_locked(self.places):
                violations = await scope.enforce(partial(self._reach_beside_others, self.claim))
        if self.worktree is None:
            self.places.forget()
        return self._error(violations, scope) if violations.files else None

    async def _reach_beside_others(self, claim: Claim) -> Reach:
        assert self.scope is not None
        others = await self.claims.claims.others_since(claim, self.scope.before.epoch)
        return _reach(next(its for its in claim.resources if its.tree), others)

    def _error(self, violations: Violations, scope: Scope) -> ScopeViolated:
        notes = violations.notes
        if self.worktree is not None:
            kept = f"Nothing was merged: its worktree is {self.worktree.here.root}."
            notes = (*notes, kept)
        patterns = tuple(map(display_pattern, scope.reach.patterns))
        return ScopeViolated(self.agent, violations.files, violations.patch, patterns, notes)
