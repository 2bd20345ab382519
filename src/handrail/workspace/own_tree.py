"""The worktree of a body of steps: each of its git operations is a step, repeatable."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from handrail.errors import DefinitionError
from handrail.model.dataclass import dataclass
from handrail.model.shapes import OwnTree
from handrail.ports.claims import LaunchClaims
from handrail.workspace.git import Repository, head_of, repository_of
from handrail.workspace.places import Places, places_of
from handrail.workspace.worktree import (
    Worktree,
    find_worktree,
    make_worktree,
    remove_worktree,
    worktree_gone,
)

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
        head = await head_of(main.git(self.marker)) or ""
        here = await find_worktree(main, places, self.marker, head)
        if here is not None:
            await self._worktree(main, here, head).set_aside(as_patch=False)
        await remove_worktree(main, places, self.marker)
        here, commit = await make_worktree(main, places, self.marker, base)
        return OwnTree(str(here.root), str(main.root), places.branch, commit)

    async def merge(
        self, tree: OwnTree, how: str | Callable[..., Any], claims: LaunchClaims, call: Call
    ) -> None:
        """Merge the worktree's commits into the main working tree, once its files are free.

        ``how``: "ff" puts them on top of HEAD, "merge" adds a merge commit; ``call`` runs a user's
        function.

        Raises:
            WorktreeConflict: they conflict; nothing was changed, and the worktree is kept.
            ClaimLost: others took the claim of the files and HEAD; likewise.
        """
        own = await self._found(tree)
        await own.merge(how if isinstance(how, str) else partial(call, how, tree), claims)

    async def remove(self, tree: OwnTree) -> None:
        """Remove the worktree and its branch; does not raise if git cannot."""
        main = await repository_of(Path(tree.root), self.marker)
        if main is not None:
            await remove_worktree(main, self.places(main), self.marker)

    async def leave(self, tree: OwnTree) -> bool:
        """Remove the worktree if it has no changes and no new commits; True if it did."""
        if not await (await self._found(tree)).is_untouched():
            return False
        await self.remove(tree)
        return True

    def places(self, main: Repository) -> Places:
        """The places of the worktree's step."""
        return places_of(main.root, self.run_id, self.owner)

    def _worktree(self, main: Repository, here: Repository, base: str) -> Worktree:
        who = f"step {self.owner}"
        return Worktree(main, here, self.places(main), self.marker, base, who, of_steps=True)

    async def _found(self, tree: OwnTree) -> Worktree:
        main = await repository_of(Path(tree.root), self.marker)
        here = None
        if main is not None:
            here = await find_worktree(main, self.places(main), self.marker, tree.base)
        if here is None or main is None:
            places = places_of(Path(tree.root), self.run_id, self.owner)
            raise worktree_gone(f"step {self.owner!r}", Path(tree.folder), places)
        return self._worktree(main, here, tree.base)
