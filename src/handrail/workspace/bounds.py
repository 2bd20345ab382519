"""A launch of an agent within a scope (``writes=``), a worktree of its own, or both."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import anyio

from handrail.errors import ClaimLost, ClaimsFailed, DefinitionError
from handrail.model.agent_options import AgentOptions
from handrail.model.dataclass import dataclass
from handrail.model.events import DenialSource, SandboxDenied, StepOutput
from handrail.model.launch import AgentError
from handrail.model.patterns import display_pattern
from handrail.model.sandbox import chosen_sandbox
from handrail.model.shapes import AgentRequest
from handrail.ports.agent import AgentBackend, AgentReply, capabilities_of
from handrail.ports.claims import Claim, LaunchClaims, Resource
from handrail.sandbox.bubblewrap import Confinement
from handrail.sandbox.mounts import Scene
from handrail.sandbox.programs import needs_of
from handrail.sandbox.repository import OwnBranch
from handrail.workspace.claims.holding import claims_of, find_lost_claim
from handrail.workspace.claims.resources import files_of
from handrail.workspace.errors import ScopeViolated
from handrail.workspace.git import Repository, head_of, repository_of
from handrail.workspace.places import Places, folder_of, places_of
from handrail.workspace.sandboxed import committing, own_branch, own_branch_of
from handrail.workspace.scope import Reach, Scope, Violations, before_launch, read_before
from handrail.workspace.shadow import Shadow
from handrail.workspace.tree_lock import tree_locked
from handrail.workspace.worktree import (
    FILES,
    Worktree,
    find_worktree,
    make_worktree,
    options_in_tree,
    remove_worktree,
)


async def confine(
    request: AgentRequest,
    agent: str,
    backend: AgentBackend,
    options: AgentOptions,
    until_checked: AsyncExitStack,
) -> Confined:
    """Prepare a launch's confinement as the step's settings ask.

    A launch in the main working tree claims the files of ``writes=`` until ``until_checked`` ends.

    Raises:
        DefinitionError: there is no repository, or the backend cannot work in another folder.
        ClaimDeadlock, ClaimsFailed: the claim cannot be waited for.
    """
    marker = f"{request.run_id}/{request.path}/git"
    folder = folder_of(options, backend)
    repository = await repository_of(folder, marker)
    settings = request.settings
    if repository is None:
        raise _no_repository(request, folder)
    places = places_of(repository.root, request.run_id, request.path)
    claims = claims_of(request)
    resource = None if settings.writes is None else files_of(repository, settings.writes)
    if settings.worktree:
        _check_can_move(request, backend)
        anew = request.launch.rung == "start" and not request.interrupted
        worktree = await _worktree_of(repository, places, marker, agent, anew=anew)
        here, claim = worktree.here, None
        shadow = Shadow(places.shadow, here.root, marker)
        before = await before_launch(shadow, places, here, alone=False)
    else:
        assert resource is not None  # otherwise the caller confines nothing
        worktree, here, claim = None, repository, claims.claim
        if claim is None or resource not in claim.resources:
            claim = await until_checked.enter_async_context(claims.take((resource,)))
        shadow = Shadow(places.shadow, repository.root, marker)
        ours: Sequence[Path] = getattr(backend, "own_folders", ())  # a cassette's recordings
        async with tree_locked(places):
            before = await before_launch(shadow, places, repository, ours, epoch=claim.epoch)
    scope = None if resource is None else Scope(_reach(resource), here, shadow, places, before)
    return Confined(agent, places, scope, worktree, claims, claim)


async def _worktree_of(
    main: Repository, places: Places, marker: str, agent: str, *, anew: bool
) -> Worktree:
    """The step's worktree: the one that an earlier launch left, or, if ``anew``, a new one.

    Raises:
        DefinitionError: the repository has no commit yet. CommandFailed: git cannot make the
            worktree. WorktreeConflict: what an earlier launch left can be kept nowhere else.
    """
    known = read_before(places.shadow)
    base = None if known is None else known.inside.head
    begun = base or await head_of(main.git(marker)) or ""
    here = await find_worktree(main, places, marker, begun)
    if here is not None and (anew or base is None):
        await Worktree(main, here, places, marker, begun, agent).set_aside(as_patch=True)
        here = None
    if here is None:
        await remove_worktree(main, places, marker)
        places.forget()
        here, begun = await make_worktree(main, places, marker)
    return Worktree(main, here, places, marker, begun, agent)


def _reach(resource: Resource, others: Sequence[Claim] = ()) -> Reach:
    theirs = (
        its.patterns for other in others for its in other.resources if its.tree == resource.tree
    )
    return Reach(resource.patterns, tuple(theirs), resource.folds)


@dataclass(frozen=True, slots=True)
class Confined:
    """A launch confined to a scope, a worktree, or both; ``claim``: of the main working tree."""

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

    async def check_answer(self, tell: Callable[[str], None]) -> None:
        """Check a launch that gave an answer, before its work is merged.

        Raises:
            ScopeViolated: the agent wrote outside of its scope; these changes were undone.
            ClaimLost: the claim was taken away meanwhile; a violation too then goes to ``tell``.
        """
        violated = await self._find_violation()
        try:
            gone = (
                None
                if self.claim is None
                else await find_lost_claim(self.claims.claims, self.claim)
            )
        except ClaimsFailed:
            if violated is None:
                raise
            gone = None  # the agent has damaged the repository, which has the claims file
        if gone is not None:
            if violated is not None:
                tell(f"{violated}\n")
            raise gone
        if violated is not None:
            raise violated

    async def merge(self) -> None:
        """Merge the worktree, if there is one, into the main working tree once its files are free.

        Raises:
            WorktreeConflict: the changes conflict. ClaimLost: others took the claim of the files.
                Either way the main working tree is unchanged.
        """
        if self.worktree is not None:
            await (await self.worktree.found_again()).merge(FILES, self.claims)

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
        return self._error(violations) if violations.files else None

    async def _reach_beside_others(self, claim: Claim) -> Reach:
        assert self.scope is not None
        others = await self.claims.claims.others_since(claim, self.scope.before.epoch)
        return _reach(next(its for its in claim.resources if its.tree), others)

    def _error(self, violations: Violations) -> ScopeViolated:
        assert self.scope is not None
        notes = violations.notes
        if self.worktree is not None:
            kept = f"Nothing was merged: its worktree is {self.worktree.here.root}."
            notes = (*notes, kept)
        patterns = tuple(map(display_pattern, self.scope.reach.patterns))
        return ScopeViolated(self.agent, violations.files, violations.patch, patterns, notes)


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
"""How long git may take after a launch; far more than these commands need."""


@dataclass(slots=True)
class Bounds:
    """The options for a launch, its sandbox, and its reply once that has come. Mutable."""

    options: AgentOptions
    sandbox: Confinement | None = None
    reply: AgentReply | None = None


@asynccontextmanager
async def bounds_of(
    request: AgentRequest, agent: str, backend: AgentBackend, options: AgentOptions
) -> AsyncGenerator[Bounds, None]:
    """Confine a launch as the step's settings ask; the end of the block checks, undoes and merges.

    Raises:
        DefinitionError: there is no repository, or the backend cannot work in another folder.
        ScopeViolated: the agent wrote outside of its scope; these changes were undone.
        ClaimLost: the claim was taken away meanwhile; nothing was merged.
        WorktreeConflict: the agent's work cannot be merged; nothing was.
    """
    settings = request.settings
    if request.tree is not None:
        options = options_in_tree(request.tree, options, folder_of(options, backend))
    own = None if request.tree is None else own_branch_of(request.tree)
    if settings.writes is None and not settings.worktree:
        async with _within_sandbox(request, backend, Bounds(options), own) as bounds:
            yield bounds
        return

    async with AsyncExitStack() as until_checked:
        confined = await confine(request, agent, backend, options, until_checked)
        tree = confined.worktree
        if tree is not None:
            here = tree.here
            own = own_branch(here.root, here.own, here.common, tree.places.branch)
        async with (
            _checked(request, confined, options) as bounds,
            _within_sandbox(request, backend, bounds, own),
        ):
            yield bounds


@asynccontextmanager
async def _within_sandbox(
    request: AgentRequest, backend: AgentBackend, bounds: Bounds, own: OwnBranch | None
) -> AsyncGenerator[Bounds, None]:
    """Put a sandbox around the launch, if its options ask for one. Reading alone changes nothing.

    Raises:
        SandboxUnavailable: what the sandbox needs cannot be made here.
    """
    options, writes = bounds.options, request.settings.writes
    if (sandbox := chosen_sandbox(options.sandbox)) is None:
        yield bounds
        return
    if options.permission == "read_only":
        own, writes = None, ()

    def tell(what: str, source: DenialSource) -> None:
        request.emit(SandboxDenied(request.path, what, source))

    folder = folder_of(options, backend).absolute()
    read = tuple(folder / further for further in options.add_dirs or ())
    async with committing(own, f"{request.run_id}/{request.path}/git"):
        scene = Scene(folder, needs_of(backend.name), writes, own, request.hidden, read)
        bounds.sandbox = Confinement(sandbox, scene, tell)
        yield bounds


@asynccontextmanager
async def _checked(
    request: AgentRequest, confined: Confined, options: AgentOptions
) -> AsyncGenerator[Bounds, None]:
    """Run the launch, and check it after its end, however it ended."""
    bounds = Bounds(options if confined.worktree is None else confined.worktree.options(options))

    def tell(text: str) -> None:
        request.emit(StepOutput(request.path, "stderr", text))

    try:
        yield bounds
    except BaseException as error:
        with anyio.fail_after(_BOUND_S, shield=True):
            violated = await confined.clean_up()
        if violated is None:
            raise
        if not isinstance(error, Exception):  # a cancellation comes before the violation
            tell(f"{violated}\n")
            raise
        if isinstance(error, AgentError):
            _add_launch_facts(violated, error, request)
        raise violated from error
    try:
        with anyio.fail_after(_BOUND_S, shield=True):
            await confined.check_answer(tell)
        await confined.merge()
    except (AgentError, ClaimLost) as error:
        if bounds.reply is not None:
            _add_launch_facts(error, bounds.reply, request)
        raise


def _add_launch_facts(
    error: AgentError | ClaimLost, said: AgentReply | AgentError, req: AgentRequest
) -> None:
    """Give the error the usage of the launch, and an agent's error its text, model and session."""
    spent, used = req.launch.spent, said.usage
    error.usage = used if spent is None else spent if used is None else spent + used
    if isinstance(error, AgentError):
        error.model, error.session, error.text = said.model, said.session, said.text
