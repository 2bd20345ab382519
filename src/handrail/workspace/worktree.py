"""A git worktree for one step: made from HEAD, its changes merged back, then removed.

Theory of operation. The step's worktree has a branch of its own, so the step can run beside others.
A shadow keeps the state in which the worktree began (see ``workspace.shadow``). When the agent has
answered, all changes since then, committed or not, become a patch. It is merged three-way into the
state that the working tree has by then, and written there only once the merge has succeeded. If
several steps finish at once, one merges at a time.

Until a launch answers, the worktree stays: the step's next launch, by the ladder or after a crash,
continues in it. So a killed process loses no work. Only a step that starts over sets the unfinished
work aside, as a patch.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import anyio
import anyio.to_thread

from handrail.errors import ClaimLost, CommandFailed, DefinitionError
from handrail.model.agent_options import AgentOptions
from handrail.model.dataclass import dataclass
from handrail.model.shapes import OwnTree
from handrail.ports.claims import LaunchClaims
from handrail.system.own_files import own_files
from handrail.workspace.claims.holding import find_lost_claim
from handrail.workspace.claims.resources import these_files
from handrail.workspace.errors import WorktreeConflict
from handrail.workspace.git import Repository, head_of, repository_of
from handrail.workspace.places import Places, prune
from handrail.workspace.scope import Before, before_launch, interrupted_patch
from handrail.workspace.shadow import Shadow
from handrail.workspace.tree_lock import list_locked, tree_locked

_BOUND_S = 600
"""How long a merge may take once the files are free."""


@dataclass(frozen=True, slots=True)
class Worktree:
    """A step's worktree (``here``), and the main working tree (``main``) that it belongs to."""

    main: Repository
    here: Repository
    places: Places
    shadow: Shadow
    before: Before

    def map_options(self, options: AgentOptions) -> AgentOptions:
        """The options, with folders of the main working tree mapped to those of the worktree."""
        tree = OwnTree(str(self.here.root), str(self.main.root))
        return options_in_tree(tree, options, Path(options.cwd or Path.cwd()))

    async def is_unchanged(self) -> bool:
        """True if the worktree is as it was before the launch."""
        now = await self.shadow.state()
        return not await self.shadow.changes(self.before.state, now)

    async def merge(self, agent: str, claims: LaunchClaims) -> None:
        """Claim the changed files, merge the changes into the main working tree, remove this one.

        Raises:
            WorktreeConflict: the changes conflict; the main working tree is unchanged.
            ClaimLost: the claim was taken away meanwhile; likewise.
        """
        done = await self.shadow.state()
        changes = await self.shadow.changes(self.before.state, done)
        files = [(c.path, c.after) for c in changes if not c.is_repository]
        if files:
            # A repository within the worktree is not merged: no state has its files.
            wanted = await self.shadow.with_entries(self.before.state, files)
            patch = await self.shadow.patch(self.before.state, wanted)
            resource = these_files(self.main, [path for path, _ in files])
            async with claims.take((resource,)) as claim:
                with anyio.fail_after(_BOUND_S, shield=True):
                    async with tree_locked(self.places):
                        await self._apply(
                            agent, patch, lambda: find_lost_claim(claims.claims, claim)
                        )
        await self.remove()

    async def _apply(
        self, agent: str, patch: bytes, is_lost: Callable[[], Awaitable[ClaimLost | None]]
    ) -> None:
        theirs = self.shadow.at(self.main.root, "main")
        now = await theirs.state(await head_of(self.main.git(self.shadow.marker)))
        try:
            merged = await theirs.apply_patch(now, patch, three_way=True)
        except CommandFailed as error:
            reason = (error.stderr or error.stdout).strip()
            unmerged = re.findall(r"^U (.+)$", f"{error.stdout}\n{error.stderr}", re.MULTILINE)
            raise await self._conflict(agent, reason, unmerged) from None
        own = own_files(self.main.root)
        held = [c.display_path for c in await theirs.changes(now, merged) if c.path in own]
        if held:
            raise await self._conflict(agent, f"this process has {', '.join(held)} open", held)
        if (gone := await is_lost()) is not None:
            raise gone
        await theirs.write(now, merged)

    async def _conflict(self, agent: str, reason: str, files: Sequence[str]) -> WorktreeConflict:
        """Commit all the work, for people to merge by hand; the error that says so."""
        message = f"What agent {agent} did in step {self.places.path}"
        await commit_all(self.here, self.shadow.marker, message)
        return WorktreeConflict(agent, str(self.here.root), self.places.branch, reason, files)

    async def remove(self) -> None:
        """Remove the worktree and its branch; a failure to do so does not fail the step."""
        await remove_worktree(self.main, self.places, self.shadow.marker)
        self.places.forget()


def options_in_tree(tree: OwnTree, options: AgentOptions, folder: Path) -> AgentOptions:
    """The options with ``folder`` as ``cwd``, all their folders mapped into the own tree."""
    cwd = tree.inside(str(folder))
    Path(cwd).mkdir(parents=True, exist_ok=True)
    more = options.add_dirs and tuple(map(tree.inside, options.add_dirs))
    return AgentOptions(cwd=cwd, add_dirs=more).over(options)


async def worktree_of(main: Repository, places: Places, marker: str, *, anew: bool) -> Worktree:
    """The step's worktree: the one that an earlier launch left, or, if ``anew``, a new one.

    Raises:
        DefinitionError: the repository has no commit yet.
        CommandFailed: git cannot make the worktree.
    """
    shadow = Shadow(places.shadow, places.worktree, marker)
    here = await _leftover_worktree(places, shadow)
    if here is not None and anew:
        await interrupted_patch(shadow, places)
        here = None
    if here is None:
        await remove_worktree(main, places, marker)
        places.forget()
        here = await make_worktree(main, places, marker)
    before = await before_launch(shadow, places, here, alone=False)
    return Worktree(main, here, places, shadow, before)


async def _leftover_worktree(places: Places, shadow: Shadow) -> Repository | None:
    """The worktree that an earlier launch left, if its shadow is still there; else None."""
    return await worktree_at(places, shadow.marker) if shadow.folder.is_dir() else None


async def worktree_at(places: Places, marker: str) -> Repository | None:
    """The step's worktree, or None."""
    if not places.worktree.is_dir():
        return None
    found = await repository_of(places.worktree, marker)
    return found if found is not None and found.root == places.worktree.resolve() else None


async def make_worktree(
    main: Repository, places: Places, marker: str, base: str | None = None
) -> Repository:
    """A new worktree, on its own new branch from commit ``base`` (default: HEAD).

    Raises:
        DefinitionError: there is no such commit. CommandFailed: git cannot make the worktree.
    """
    git = main.git(marker)
    asked = f"base={base!r}" if base else "a worktree"
    code, _, _ = await git.run_unchecked(
        "rev-parse", "--quiet", "--verify", f"{base or 'HEAD'}^{{commit}}"
    )
    if code:
        raise DefinitionError(
            f"step {places.path!r}: {asked} needs a commit to begin with, and the repository "
            f"{main.root} has {'no such one' if base else 'none. Commit something there first'}."
        )
    places.make()
    places.worktree.parent.mkdir(parents=True, exist_ok=True)
    words = ("worktree", "add", "--quiet", "--no-track", "--force", "-B", places.branch)
    async with list_locked(main):
        await git(*words, str(places.worktree), base or "HEAD")
    here = await repository_of(places.worktree, marker)
    assert here is not None  # git has just made it
    return here


async def remove_worktree(main: Repository, places: Places, marker: str) -> None:
    """Remove the worktree and its branch, if they are there."""
    git = main.git(marker)
    async with list_locked(main):
        if places.worktree.exists():
            await git.run_unchecked(
                "worktree", "remove", "--force", "--force", str(places.worktree)
            )
            await anyio.to_thread.run_sync(shutil.rmtree, places.worktree, True)  # noqa: FBT003
        await git.run_unchecked("worktree", "prune")
        await git.run_unchecked("branch", "--quiet", "-D", places.branch)
    prune(places.worktree.parent, places.base)


async def commit_all(here: Repository, marker: str, message: str) -> None:
    """Commit all uncommitted changes, if there are any."""
    git = here.git(marker)
    await git("add", "--all")
    code, _, _ = await git.run_unchecked("diff", "--cached", "--quiet")
    if code:
        await git("commit", "--quiet", "--no-verify", "--message", message)
