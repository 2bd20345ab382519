"""A worktree over several steps: makes, merges and removes it, each repeatable after a crash.

Theory of operation. A merge works on commits: first it commits what the steps left uncommitted. It
combines these commits with the current HEAD inside the worktree, where a conflict does no harm.
Only once that has worked does it move the main working tree's branch forward, which git does for
all files or for none. Meanwhile it claims the changed files and HEAD of the main working tree: if
several worktrees finish at once, one is merged at a time.

After a crash the merge starts again from its beginning. It does not repeat what was done: commits
that HEAD already has are not moved again.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import anyio

from handrail.errors import DefinitionError
from handrail.model.dataclass import dataclass
from handrail.model.shapes import OwnTree
from handrail.ports.claims import Claim, LaunchClaims, Resource
from handrail.workspace.claims.holding import find_lost_claim
from handrail.workspace.claims.resources import these_files
from handrail.workspace.errors import WorktreeConflict
from handrail.workspace.git import Repository, head_of, repository_of
from handrail.workspace.places import Places, places_of
from handrail.workspace.tree_lock import tree_locked
from handrail.workspace.worktree import commit_all, make_worktree, remove_worktree, worktree_at

_BOUND_S = 600
"""How long git may take to merge, once the files are free."""
_TRIES = 50
"""The most tries of a merge, if other processes keep moving HEAD or locking the index."""
_PAUSE_S = 0.1
Call = Callable[[Callable[..., Any], OwnTree], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class OwnTrees:
    """git's work for one step's worktree; ``owner`` is the step's path, with its attempt."""

    run_id: str
    owner: str
    marker: str

    async def make(self, folder: Path, base: str | None) -> OwnTree:
        """A new worktree of the repository that a folder is in.

        Commits the work in an earlier worktree of this step, and keeps it on a branch.

        Raises:
            DefinitionError: there is no repository, or no such commit. CommandFailed: git failed.
        """
        main = await repository_of(folder, self.marker)
        if main is None:
            raise DefinitionError(
                f"step {self.owner!r}: .worktree() needs a git repository, and {folder} is in "
                f"none. Make it one (git init)."
            )
        places = self.places(main)
        await self._keep_earlier(main, places)
        await remove_worktree(main, places, self.marker)
        here = await make_worktree(main, places, self.marker, base)
        head = await head_of(here.git(self.marker))
        return OwnTree(str(here.root), str(main.root), places.branch, head or "")

    async def merge(
        self, tree: OwnTree, how: str | Callable[..., Any], claims: LaunchClaims, call: Call
    ) -> None:
        """Merge the worktree's commits into the main working tree, once its files are free.

        ``how``: "ff" rebases them, "merge" adds a merge commit; ``call`` runs a user's function.

        Raises:
            WorktreeConflict: they conflict; nothing was changed, and the worktree is kept.
            ClaimLost: others took the claim of the files and HEAD; likewise.
        """
        main, here = await self._repositories(tree)
        merging = _Merging(self, tree, main, here, claims)
        await merging.abort_unfinished()
        await commit_all(here, self.marker, f"Step {self.owner} of run {self.run_id}")
        for _ in range(_TRIES):
            if await merging.is_done():
                return
            async with await merging.claim() as claim:
                if not isinstance(how, str):
                    await call(how, tree)
                    return
                with anyio.fail_after(_BOUND_S, shield=True):
                    if await merging.move_head(how, claim):
                        return
            await anyio.sleep(_PAUSE_S)
        raise merging.conflict(f"HEAD of {tree.root} was moved by others each time")

    async def remove(self, tree: OwnTree) -> None:
        """Remove the worktree and its branch; does not raise if git cannot."""
        main = await repository_of(Path(tree.root), self.marker)
        if main is not None:
            await remove_worktree(main, self.places(main), self.marker)

    async def leave(self, tree: OwnTree) -> bool:
        """Remove the worktree if it has no changes and no new commits; True if it did."""
        _, here = await self._repositories(tree)
        git = here.git(self.marker)
        if await git("status", "--porcelain") or await head_of(git) != tree.base:
            return False
        await self.remove(tree)
        return True

    def places(self, main: Repository) -> Places:
        """The places of the worktree's step."""
        return places_of(main.root, self.run_id, self.owner)

    async def _repositories(self, tree: OwnTree) -> tuple[Repository, Repository]:
        main = await repository_of(Path(tree.root), self.marker)
        here = None if main is None else await worktree_at(self.places(main), self.marker)
        if here is None or main is None:
            raise worktree_gone(self.owner, tree)
        return main, here

    async def _keep_earlier(self, main: Repository, places: Places) -> None:
        """Commit an earlier worktree's work; keep it as a branch unless HEAD already has it."""
        here = await worktree_at(places, self.marker)
        if here is None:
            return
        await commit_all(here, self.marker, f"Left by step {self.owner} of run {self.run_id}")
        words = ("merge-base", "--is-ancestor", places.branch, "HEAD")
        code, _, _ = await main.git(self.marker).run_unchecked(*words)
        if code:
            earlier = f"{places.branch}-earlier"
            await here.git(self.marker)("branch", "--move", "--force", places.branch, earlier)


def worktree_gone(owner: str, tree: OwnTree) -> DefinitionError:
    """The error for a worktree that was removed before its steps were done."""
    return DefinitionError(
        f"the worktree of step {owner!r} is not there any more: {tree.folder}. What its steps had "
        f"done is gone with it: run the step again from its beginning, rerun=[{owner!r}] (--rerun)."
    )


@dataclass(frozen=True, slots=True)
class _Merging:
    """One merge of a worktree (``here``) into the main working tree (``main``)."""

    of: OwnTrees
    tree: OwnTree
    main: Repository
    here: Repository
    claims: LaunchClaims

    async def abort_unfinished(self) -> None:
        """Abort an unfinished merge or rebase in the worktree, and check its own branch out."""
        git = self.here.git(self.of.marker)
        for word in _unfinished_operations(self.here.own):
            await git.run_unchecked(word, "--abort")
        code, branch, _ = await git.run_unchecked("symbolic-ref", "--quiet", "--short", "HEAD")
        if code or branch.strip() != self.tree.branch:  # its steps had another one checked out
            await git("checkout", "--quiet", "-B", self.tree.branch)

    async def is_done(self) -> bool:
        """True if the main working tree's HEAD has all commits of the worktree's branch."""
        words = ("merge-base", "--is-ancestor", self.tree.branch, "HEAD")
        code, _, _ = await self.main.git(self.of.marker).run_unchecked(*words)
        return code == 0

    async def claim(self) -> AbstractAsyncContextManager[Claim]:
        """A claim of the changed files and of HEAD, as a context manager around the merge."""
        git = self.main.git(self.of.marker)
        words = ("diff", "--name-only", "-z", "--no-renames", f"HEAD...{self.tree.branch}")
        files = (await git(*words)).split("\0")[:-1]
        head = Resource(f"HEAD of {self.main.root}", repository=str(self.main.common))
        return self.claims.take((head, *([these_files(self.main, files)] if files else [])))

    async def move_head(self, how: str, claim: Claim) -> bool:
        """True if HEAD was moved; False if another process moved it first, or has a git lock."""
        head = await head_of(self.main.git(self.of.marker))
        assert head is not None  # the worktree began at a commit
        target = await (self._merge(head) if how == "merge" else self._rebase(head))
        taken = await find_lost_claim(self.claims.claims, claim)
        if taken is not None:
            raise taken
        async with tree_locked(self.of.places(self.main)):
            return await self._fast_forward(target)

    async def _rebase(self, head: str) -> str:
        """Rebase the worktree's commits onto ``head``; the last commit."""
        git = self.here.git(self.of.marker)
        code, said, more = await git.run_unchecked("rebase", "--quiet", head)
        if code:
            files = await self._unmerged_files()
            await git.run_unchecked("rebase", "--abort")
            raise self.conflict(f"{said}{more}", files)
        return (await git("rev-parse", "HEAD")).strip()

    async def _merge(self, head: str) -> str:
        """Make a merge commit of ``head`` and the worktree's branch; the commit."""
        git = self.here.git(self.of.marker)
        words = ("merge", "--quiet", "--no-commit", "--no-ff", head)
        code, said, more = await git.run_unchecked(*words)
        if code:
            files = await self._unmerged_files()
            await git.run_unchecked("merge", "--abort")
            raise self.conflict(f"{said}{more}", files)
        files_tree = (await git("write-tree")).strip()
        await git.run_unchecked("merge", "--abort")
        message = f"Merge step {self.of.owner} of run {self.of.run_id}"
        parents = ("-p", head, "-p", self.tree.branch)
        return (await git("commit-tree", files_tree, *parents, "-m", message)).strip()

    async def _unmerged_files(self) -> list[str]:
        git = self.here.git(self.of.marker)
        listed = await git("diff", "--name-only", "-z", "--diff-filter=U")
        return listed.split("\0")[:-1]

    async def _fast_forward(self, target: str) -> bool:
        words = ("merge", "--quiet", "--ff-only", target)
        code, said, more = await self.main.git(self.of.marker).run_unchecked(*words)
        text = f"{said}{more}"
        if code == 0:
            return True
        if "Not possible to fast-forward" in text or ".lock" in text:
            return False
        raise self.conflict(text, re.findall(r"^\t(.+)$", text, re.MULTILINE))

    def conflict(self, reason: str, files: list[str] | None = None) -> WorktreeConflict:
        """The error for work that conflicts with the main working tree."""
        tree = self.tree
        who = f"step {self.of.owner}"
        said = "\n".join(line for line in reason.splitlines() if not line.startswith("hint:"))
        error = WorktreeConflict(who, tree.folder, tree.branch, said.strip(), files or ())
        error.of_steps = True
        return error


def _unfinished_operations(own: Path) -> list[str]:
    """The git commands with an unfinished operation in a working tree's git directory ``own``."""
    rebases = any((own / name).exists() for name in ("rebase-merge", "rebase-apply"))
    merges = (own / "MERGE_HEAD").exists()
    return [*["rebase"] * rebases, *["merge"] * merges]
