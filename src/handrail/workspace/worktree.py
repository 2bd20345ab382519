"""A git worktree of one's own, of an agent or of a body of steps: made, read, merged, removed.

Theory of operation. The worktree begins at a commit, ``base``, on a branch of its own. What was
done in it is read from its files, byte by byte (see ``shadow``): neither its index, nor what git is
told to overlook there, nor any setting decides what counts. It comes home in one of two ways. The
files of an agent are merged, three-way, into the files of the main working tree (``FILES``). The
steps of a body leave commits: what is not committed is committed, and these commits go on top of
HEAD (``"ff"``), or are merged with it (``"merge"``). Both are computed in the object database,
where a conflict does no harm; only then are files of the main working tree written.

Nothing is removed before all of it is home. Repositories that were made in the worktree are moved
as they are. What cannot come home fails the step, and the worktree is kept: an unfinished merge or
rebase, commits on the branch that HEAD lacks, work in a submodule.

All of this may be killed anywhere, and is then done again from its beginning. What is home already
changes nothing the second time.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from handrail.errors import CommandFailed, DefinitionError
from handrail.model.dataclass import dataclass
from handrail.model.shapes import OwnTree
from handrail.ports.claims import Claim, LaunchClaims, Resource
from handrail.sandbox.repository import OwnBranch
from handrail.workspace.claims.holding import find_lost_claim
from handrail.workspace.claims.resources import these_files
from handrail.workspace.errors import WorktreeConflict
from handrail.workspace.git import (
    Repository,
    head_of,
    index_entries,
    known_to_git,
    printable,
    repository_of,
)
from handrail.workspace.landing import Landing, Refused
from handrail.workspace.nested import Nested, blocked, move, nested_in
from handrail.workspace.places import Places, places_of, prune
from handrail.workspace.sandboxed import forget_quarantine, own_branch, take_in
from handrail.workspace.shadow import Entry, Shadow, State, shadow_for_a_time, skipped
from handrail.workspace.tree_lock import list_locked, tree_locked

FILES = "files"
_BOUND_S = 600
"""How long a merge may take once the files are free."""
_TRIES = 50
"""The most tries of a merge, if other processes keep moving HEAD."""
_PAUSE_S = 0.1
_REPOSITORY = "160000"
_UNFINISHED = {
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "sequencer": "cherry-pick",
    "BISECT_LOG": "bisect",
}
Call = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Done:
    """What was done in a worktree: its files, its HEAD, and repositories that were made in it."""

    state: State
    head: str | None
    nested: Nested
    unmerged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Site:
    """Where a step has its worktree, if it has one: beside the working tree ``main``.

    ``who`` works in it: an agent, or the steps of a body (``of_steps``).
    """

    main: Repository
    places: Places
    marker: str
    who: str
    of_steps: bool

    async def find(self, base: str = "") -> Worktree | None:
        """The worktree if its folder is there, known to git (again); else None.

        git knows a worktree by a folder of its own in the repository, so one whose ``.git`` file is
        gone is found, and gets it back. Where git has forgotten it, ``base`` is the commit that it
        began at. What a launch in a sandbox committed there is taken in first.
        """
        folder = self.places.worktree
        if not folder.is_dir() or folder.is_symlink():
            return None
        own = known_to_git(self.main.common, folder)
        if own is None:
            if not base:
                return None
            own = await self._make_known(base)
        if not (folder / ".git").exists() and not (folder / ".git").is_symlink():
            (folder / ".git").write_bytes(b"gitdir: " + os.fsencode(own) + b"\n")
        found = self._worktree(own, base)
        await take_in(found.own_branch, self.marker)
        return found

    async def begin(self, earlier: Worktree | None, base: str | None = None) -> Worktree:
        """A new worktree, on its own new branch from commit ``base`` (default: HEAD).

        What was done in an earlier one is kept elsewhere. The new one's files are those of the
        commit, byte by byte: no filter and no line ending is applied.

        Raises:
            DefinitionError: there is no such commit. CommandFailed: git cannot make the worktree.
            WorktreeConflict: what was done in the earlier one can be kept nowhere else.
        """
        if earlier is not None:
            await earlier.set_aside()
        await self.remove()
        commit = await self.main.git(self.marker).commit(base or "HEAD")
        if not commit:
            asked = f"base={base!r}" if base else "a worktree"
            raise DefinitionError(
                f"step {self.places.path!r}: {asked} needs a commit to begin with, and the "
                f"repository {self.main.root} has "
                f"{'no such one' if base else 'none. Commit something there first'}."
            )
        self.places.make()
        self.places.worktree.parent.mkdir(parents=True, exist_ok=True)
        made = self._worktree(await self._add(commit), commit)
        with shadow_for_a_time(made.here.root, self.main, self.marker) as shadow:
            await shadow.git(made.here.own / "index")("read-tree", "--reset", "-u", commit)
        return made

    async def remove(self) -> None:
        """Remove the worktree and its branch, if they are there; a failure fails no step."""
        git, folder = self.main.git(self.marker), self.places.worktree
        async with list_locked(self.main):
            if folder.exists():
                await git.run_unchecked("worktree", "remove", "--force", "--force", str(folder))
                await anyio.to_thread.run_sync(shutil.rmtree, folder, True)  # noqa: FBT003
            await git.run_unchecked("worktree", "prune")
            await git.run_unchecked("branch", "--quiet", "-D", self.places.branch)
        forget_quarantine(folder)
        prune(folder.parent, self.places.base)
        self.places.forget()

    def _worktree(self, own: Path, base: str) -> Worktree:
        here = replace(self.main, root=self.places.worktree.resolve(), own=own)
        return Worktree(self.main, self.places, self.marker, self.who, self.of_steps, here, base)

    async def _make_known(self, base: str) -> Path:
        """Have git know a folder again that was a worktree; its files stay as they are."""
        folder = self.places.worktree
        aside = folder.with_name(f"{folder.name}.again")
        folder.rename(aside)
        try:
            own = await self._add(base, keep=True)
            (folder / ".git").unlink()
        finally:
            if folder.is_dir():
                folder.rmdir()
            aside.rename(folder)
        return own

    async def _add(self, base: str, *, keep: bool = False) -> Path:
        """Have git make the worktree without files, on its branch; the folder by which git knows
        it.
        """
        git, folder, branch = self.main.git(self.marker), self.places.worktree, self.places.branch
        is_there = keep and await git.commit(f"refs/heads/{branch}")
        on = [str(folder), branch] if is_there else ["-B", branch, str(folder), base]
        async with list_locked(self.main):
            await git.run_unchecked("worktree", "prune")
            await git("worktree", "add", "--quiet", "--no-checkout", "--force", *on)
        own = known_to_git(self.main.common, folder)
        assert own is not None  # git has just made it
        return own


@dataclass(frozen=True, slots=True)
class Worktree(Site):
    """A worktree (``here``), which began at commit ``base``."""

    here: Repository
    base: str

    @property
    def own_branch(self) -> OwnBranch:
        """Where launches in it may commit."""
        here = self.here
        return own_branch(here.root, here.own, here.common, self.places.branch)

    async def is_untouched(self) -> bool:
        """True if nothing was done in the worktree."""
        with self._shadow() as shadow:
            done = await self._read(shadow)
            if done.nested != Nested() or done.head != self.base or done.unmerged:
                return False
            tip = await self._tip()
            return tip in {None, self.base} and not await self._changes(shadow, done)

    async def uncommitted(self) -> int:
        """How many files and repositories in it are not committed."""
        with self._shadow() as shadow:
            done = await self._read(shadow)
            changes = await shadow.changes(await self._tree(done.head or self.base), done.state)
            return len(changes) + len(done.nested.carried) + len(done.nested.stuck)

    async def merge(self, how: str | Call, claims: LaunchClaims) -> None:
        """Bring home what was done, once the files are free, and remove the worktree.

        ``how``: ``FILES``, "ff", "merge", or a function that merges the branch by itself.

        Raises:
            WorktreeConflict: it cannot come home; the main working tree is unchanged, and the
                worktree kept. ClaimLost: others took the claim of the files; likewise.
        """
        with self._shadow() as shadow:
            done = await self._read(shadow)
            await self._check(done, done.nested.carried)
            try:
                if how == FILES:
                    await self._merge_files(shadow, done, claims)
                else:
                    await self._merge_commits(shadow, done, how, claims)
            except Refused as error:
                await self._commit(shadow, done, f"What {self.who} did")
                raise self.conflict(error.reason, error.files) from None
        for path in done.nested.carried:
            await anyio.to_thread.run_sync(move, self.here.root / path, self.main.root / path)
        if not self.of_steps:  # theirs is removed by a step of its own
            await self.remove()

    async def set_aside(self) -> None:
        """Keep what an agent did as a patch, what steps did on a branch; and its repositories.

        Raises:
            WorktreeConflict: it cannot be kept elsewhere.
        """
        with self._shadow() as shadow:
            done = await self._read(shadow)
            if done.nested.stuck:
                raise self._kept(f"{', '.join(done.nested.stuck)}: has work of its own")
            aside = self.places.quarantine()
            behind = await self._is_behind(done)
            if behind or not self.of_steps:
                patch = await shadow.patch(await self._tree(self.base), done.state)
                if patch:
                    aside.parent.mkdir(parents=True, exist_ok=True)
                    aside.write_bytes(patch)
            else:
                last = await self._commit(shadow, done, f"Left by {self.who}")
                behind = not await self.main.git(self.marker).is_within(last, "HEAD")
            if behind:
                first = earlier = f"{self.places.branch}-earlier"
                number = 1
                while await self._tip(earlier):
                    number += 1
                    earlier = f"{first}-{number}"
                await self.here.git(self.marker)("branch", "--move", self.places.branch, earlier)
            for path in done.nested.carried:
                to = aside.with_suffix(".repositories") / path
                await anyio.to_thread.run_sync(move, self.here.root / path, to)

    def conflict(self, reason: str, files: Sequence[str] = ()) -> WorktreeConflict:
        """The error for work that is committed on the branch and cannot be merged."""
        named = [printable(file) for file in files]
        told = WorktreeConflict(
            self.who, str(self.here.root), self.places.branch, reason.strip(), named
        )
        told.of_steps = self.of_steps
        return told

    # -- reading --------------------------------------------------------------------------------

    def _shadow(self) -> AbstractContextManager[Shadow]:
        """A shadow of the worktree whose objects are the repository's, for a time."""
        ours, objects = (self.places.base, self.places.safe), self.main.objects
        return shadow_for_a_time(self.here.root, self.main, self.marker, ours, objects)

    async def _read(self, shadow: Shadow) -> Done:
        git = self.here.git(self.marker)
        head = await head_of(git)
        try:
            entries = await index_entries(git)
        except CommandFailed:  # an index that git cannot read: the files and HEAD say all
            entries = []
        state = await shadow.state(head or self.base, entries)
        links = {
            entry.path: Entry(entry.mode, entry.blob)
            for entry in entries
            if entry.mode == _REPOSITORY
        }
        tracked = {entry.path for entry in entries} - (
            links.keys() - await self._links_before(links)
        )
        nested = await nested_in(self.here, await shadow.ignored(), tracked, self.marker)
        absent = skipped(self.here.root, entries)
        if (self.main.common / "lfs").is_dir():
            since = await shadow.changes(await self._tree(head or self.base), state)
            absent += [(c.path, c.before) for c in since if c.before and await shadow.is_smudged(c)]
        moved = [(path, links.get(path)) for path in nested.carried]
        state = State((await shadow.with_entries(state, [*absent, *moved])).tree)
        unmerged = dict.fromkeys(entry.path for entry in entries if entry.stage != "0")
        return Done(state, head, nested, tuple(unmerged))

    async def _links_before(self, links: Iterable[str]) -> set[str]:
        """The paths, of these, that were submodules when the worktree began."""
        told = ""
        if links := list(links):
            words = ("ls-tree", "-z", "--full-tree", self.base, "--", *links)
            told = await self.main.git(self.marker)(*words)
        found = (one.partition("\t") for one in told.split("\0"))
        return {path for fields, _, path in found if fields.startswith(_REPOSITORY)}

    async def _tree(self, commit: str) -> State:
        return State(await self.main.git(self.marker).tree(commit))

    async def _changes(self, shadow: Shadow, done: Done) -> list[str]:
        found = await shadow.changes(await self._tree(self.base), done.state)
        return [change.path for change in found]

    async def _tip(self, branch: str = "") -> str | None:
        name = f"refs/heads/{branch or self.places.branch}"
        return await self.main.git(self.marker).commit(name) or None

    async def _is_behind(self, done: Done) -> bool:
        """True if the branch has commits that HEAD of the worktree lacks."""
        tip = await self._tip()
        if tip is None or tip in {self.base, done.head}:
            return False
        return not await self.main.git(self.marker).is_within(tip, done.head or self.base)

    async def _stashed(self) -> str:
        """The last stash on the branch since the worktree was made, or ""."""
        words = ("log", "--walk-reflogs", "--format=%ct %gd %gs", "refs/stash", "--")
        _, told, _ = await self.main.git(self.marker).run_unchecked(*words)
        made_s = int((self.here.own / "gitdir").stat().st_mtime)
        for line in told.splitlines():
            at_s, _, text = line.partition(" ")
            if f"n {self.places.branch}: " in text and int(at_s) >= made_s:
                return printable(text)
        return ""

    async def found_again(self) -> Worktree:
        """The worktree as git knows it now: the agent may have made git forget it.

        Raises:
            DefinitionError: it is not there any more.
        """
        found = await self.find(self.base)
        if found is None:
            raise worktree_gone(self.who, self.here.root, self.places)
        return found

    async def _check(self, done: Done, carried: Sequence[str]) -> None:
        """Refuse, before anything is done, what cannot come home."""
        own = self.here.own
        begun = list(dict.fromkeys(w for name, w in _UNFINISHED.items() if (own / name).exists()))
        if begun or done.unmerged:
            what = " and a ".join(begun) or "merge"
            files = "".join(f"\n  {file}" for file in done.unmerged)
            reason = f"a {what} was begun there, and not finished{files}"
            raise self._kept(reason, done.unmerged)
        if _leads_away(self.here):
            raise self._kept("another repository is in the place of its .git file")
        if done.nested.stuck:
            reason = "has work that is nowhere else, and cannot be moved as it is"
            raise self._kept(f"{', '.join(done.nested.stuck)}: {reason}", done.nested.stuck)
        if await self._is_behind(done):
            raise self._kept("its HEAD lacks the last commit of its branch")
        if stashed := await self._stashed():
            raise self._kept(f"work of it is stashed away: {stashed}")
        taken = [path for path in carried if blocked(self.main.root / path)]
        if taken:
            raise self._kept(f"{', '.join(taken)}: is there already, as something else", taken)

    def _kept(self, reason: str, files: Sequence[str] = ()) -> WorktreeConflict:
        """The error for work that is kept as it is."""
        told = self.conflict(printable(reason), files)
        told.is_committed = False
        return told

    # -- merging --------------------------------------------------------------------------------

    async def _commit(self, shadow: Shadow, done: Done, message: str) -> str:
        """Commit what is not committed, on the branch, and check that out; the last commit."""
        git = self.here.git(self.marker)
        last = done.head or self.base
        if done.state != await self._tree(last):
            last = (await git("commit-tree", done.state.tree, "-p", last, "-m", message)).strip()
        await git("update-ref", f"refs/heads/{self.places.branch}", last)
        await git("symbolic-ref", "HEAD", f"refs/heads/{self.places.branch}")
        fresh = shadow.git("committed")
        await fresh("read-tree", last)
        await fresh.run_unchecked("update-index", "-q", "--refresh")
        # A killed git's lock of this index is nobody's.
        shutil.copyfile(shadow.folder / "committed", self.here.own / "index")
        (self.here.own / "index.lock").unlink(missing_ok=True)
        return last

    def _wanted(self, files: Sequence[str], carried: Sequence[str]) -> Resource:
        return these_files(self.main, [*files, *carried])

    async def _merge_files(self, shadow: Shadow, done: Done, claims: LaunchClaims) -> None:
        base = await self._tree(self.base)
        whole = [(path, None) for path in done.nested.carried]
        state = await shadow.with_entries(done.state, whole)
        changes = await shadow.changes(base, state)
        links = [change.path for change in changes if change.is_repository]
        if links:
            raise Refused("the commit of a submodule cannot be merged into files", links)
        if not changes and not done.nested.carried:
            return
        resource = self._wanted([change.path for change in changes], done.nested.carried)
        landing = Landing(self.main, shadow)
        async with claims.take((resource,)) as claim:
            with anyio.fail_after(_BOUND_S, shield=True):
                async with tree_locked(self.places):
                    now, wanted = await landing.merged_files(base, state)
                    await self._check(done, done.nested.carried)
                    await self._check_claim(claims, claim)
                    await landing.write(now, wanted)

    async def _merge_commits(
        self, shadow: Shadow, done: Done, how: str | Call, claims: LaunchClaims
    ) -> None:
        last = await self._commit(shadow, done, f"What {self.who} did")
        landing = Landing(self.main, shadow)
        files = await self._changes(shadow, done)
        head = Resource(f"HEAD of {self.main.root}", repository=str(self.main.common))
        wanted = [self._wanted(files, done.nested.carried)] if files or done.nested.carried else []
        for _ in range(_TRIES):
            if await landing.has(last):
                return
            async with claims.take((head, *wanted)) as claim:
                if not isinstance(how, str):
                    await how()
                    return
                with anyio.fail_after(_BOUND_S, shield=True):
                    if await self._move_head(landing, last, how, claims, claim):
                        return
            await anyio.sleep(_PAUSE_S)
        raise Refused(f"HEAD of {self.main.root} was moved by others each time")

    async def _move_head(
        self, landing: Landing, last: str, how: str, claims: LaunchClaims, claim: Claim
    ) -> bool:
        """True if HEAD was moved; False if another process moved it first."""
        head = await head_of(self.main.git(self.marker))
        assert head is not None  # the worktree began at a commit
        combine = landing.merge_commit if how == "merge" else landing.on_top
        target = await combine(head, last, self.base, f"Merge what {self.who} did")
        await self._check_claim(claims, claim)
        async with tree_locked(self.places):
            return await landing.move_head(head, target)

    async def _check_claim(self, claims: LaunchClaims, claim: Claim) -> None:
        if (gone := await find_lost_claim(claims.claims, claim)) is not None:
            raise gone


# -- the worktree of a body of steps: each of its git operations is a step, repeatable -------------

OfTree = Callable[[Callable[..., Any], OwnTree], Awaitable[object]]


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
        self, tree: OwnTree, how: str | Callable[..., Any], claims: LaunchClaims, call: OfTree
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


def worktree_gone(who: str, folder: Path, places: Places) -> DefinitionError:
    """The error for a worktree that was removed before its work was merged."""
    return DefinitionError(
        f"the worktree of {who} is not there any more: {folder}. What was done in it and not "
        f"committed is where it was moved to (git worktree list), or gone with it; what was "
        f"committed is on the branch {places.branch}, if that is there. Run the step again from "
        f"its beginning, rerun=[{places.path!r}] (--rerun)."
    )


def _leads_away(here: Repository) -> bool:
    """True if the worktree's ``.git`` is not the file that leads to its own git directory."""
    file = here.root / ".git"
    if not os.path.lexists(file):
        return False
    if file.is_symlink() or not file.is_file():
        return True
    return file.read_bytes().strip() != b"gitdir: " + os.fsencode(here.own)
