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
from handrail.workspace.git import head_of, repository_of
from handrail.workspace.places import places_of
from handrail.workspace.worktree import Site, Worktree, worktree_gone

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
        site = await self._site(folder)
        if site is None:
            raise DefinitionError(
                f"step {self.owner!r}: .worktree() needs a git repository, and {folder} is in "
                f"none. Make it one (git init)."
            )
        earlier = await site.find(await head_of(site.main.git(self.marker)) or "")
        made = await site.begin(earlier, base)
        return OwnTree(str(made.here.root), str(site.main.root), site.places.branch, made.base)

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
        if (site := await self._site(Path(tree.root))) is not None:
            await site.remove()

    async def leave(self, tree: OwnTree) -> bool:
        """Remove the worktree if it has no changes and no new commits; True if it did."""
        own = await self._found(tree)
        is_untouched = await own.is_untouched()
        if is_untouched:
            await own.remove()
        return is_untouched

    async def _site(self, folder: Path) -> Site | None:
        main = await repository_of(folder, self.marker)
        if main is None:
            return None
        places, who = places_of(main.root, self.run_id, self.owner), f"step {self.owner}"
        return Site(main, places, self.marker, who, of_steps=True)

    async def _found(self, tree: OwnTree) -> Worktree:
        site = await self._site(Path(tree.root))
        found = None if site is None else await site.find(tree.base)
        if found is None:
            places = places_of(Path(tree.root), self.run_id, self.owner)
            raise worktree_gone(f"step {self.owner!r}", Path(tree.folder), places)
        return found
