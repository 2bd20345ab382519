"""Enforced scope: sets aside and undoes an agent's changes outside of its ``writes=``.

Theory of operation. Before the launch a shadow takes the state of the working tree, tracked and
untracked files alike (see ``shadow``). Also kept are git's own files (see ``git_files`` and
``git_backup``) and what git does not see (see ``folders``). After the launch, however it ended, the
check compares the state now with the one before: first the files that git acts on, byte by byte,
and only then does it ask git. Changes outside of the patterns go into a patch. Their files get the
bytes back that they had before, which need not be those of the last commit; HEAD, its branch and
the index go back too. Changes that the patterns allow stay in the working tree. The check repeats
until it finds nothing more: an undone ignore file may have hidden other changes.

The state before stays on disk until the check is over. If the process is killed meanwhile, the
step's next launch finds that state, and its check covers both: a crash is no way out of the scope.

The check leaves alone files that git ignores, and files that this process has open: its journal,
its logs. Of a repository within the repository (a submodule) it looks only at the commit.

Several agents may work in one tree at the same time, each in the files that it claims (see
``claims``). The check leaves alone files that others claimed at any time during the launch, and
files that another launch's check has put back meanwhile (see ``places.RestoreLog``). Only one check
at a time takes the state (see ``tree_lock``).
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field, replace
from pathlib import Path

import anyio.to_thread
import msgspec

from handrail.errors import CommandFailed
from handrail.model.dataclass import dataclass
from handrail.model.patterns import covers
from handrail.system.own_files import own_files
from handrail.workspace.folders import (
    Folders,
    Inspection,
    UnseenEntry,
    changed_modes,
    folders_of,
    inspect_folders,
    restore_mode,
    restore_modes,
)
from handrail.workspace.git import Listed, Repository, path_of, path_text, printable
from handrail.workspace.git_backup import (
    GitBackup,
    back_up,
    find_damage,
    overwritten_objects,
    repair,
)
from handrail.workspace.git_files import (
    GIT,
    GitFiles,
    SavedFile,
    checked_out,
    head_and_branch,
    listed_in,
    make_accessible,
    put_back,
    put_refs_back,
    read_git_files,
    refs_of,
    remove_empty_states,
    rewind,
    settings_of,
    unstage,
)
from handrail.workspace.places import Places
from handrail.workspace.shadow import Change, Shadow, State


def allows(patterns: Sequence[str], path: str, within: str = "", *, folds: bool = False) -> bool:
    """True if the last pattern that covers the path does not begin with ``!``.

    Paths are relative to the repository; for patterns see ``model.patterns``. For a path in
    ``.git`` only patterns that begin with ``.git`` count; with ``within``, only those that begin
    with it.
    """
    within = GIT if path.startswith(f"{GIT}/") else within
    if within:
        patterns = [pattern for pattern in patterns if _anchored(pattern).startswith(within)]
    return covers(patterns, path, folds=folds)


def _anchored(pattern: str) -> str:
    return pattern.removeprefix("!").removeprefix("./").removeprefix("/")


@dataclass(frozen=True, slots=True)
class Reach:
    """Where changes may be after a launch: in the agent's patterns, and in what others claimed."""

    patterns: tuple[str, ...]
    others: tuple[tuple[str, ...], ...] = ()
    folds: bool = False

    def __call__(self, path: str, within: str = "") -> bool:
        """True if the agent may change the path, or another claimant may have changed it."""
        if allows(self.patterns, path, within, folds=self.folds):
            return True
        return any(allows(other, path, within, folds=self.folds) for other in self.others)


_MAX_PASSES = 10
_SHOWN = 20
_BEFORE = "before.json"
_OF_EARLIER = (
    "They are all changes since an earlier launch of this step, which was killed, whoever made "
    "them."
)


@dataclass(frozen=True, slots=True)
class Before:
    """The state before a launch; ``own``: the files that this process had open."""

    state: State
    inside: GitFiles
    own: frozenset[str]
    of_earlier: bool = False
    """True if this is the state before an earlier launch, which was killed."""
    folders: Folders = field(default_factory=Folders)
    whole: GitBackup = field(default_factory=GitBackup)
    epoch: int = 0
    """The epoch of the claim under which the launch began."""
    undone_from: int = 0
    """The position in ``places.RestoreLog`` from which notes are newer than this state."""


@dataclass(frozen=True, slots=True)
class Violations:
    """An agent's changes outside of its scope, and where they are now."""

    files: tuple[str, ...] = ()
    patch: str | None = None
    notes: tuple[str, ...] = ()


async def before_launch(
    shadow: Shadow,
    places: Places,
    repository: Repository,
    ours: Sequence[Path] = (),
    *,
    alone: bool = True,
    epoch: int = 0,
) -> Before:
    """The state before a launch: now, or, if an earlier launch was killed, before that one.

    ``ours`` are folders into which handrail itself writes meanwhile; states leave them out. With
    ``alone`` nothing else works in the repository, so a copy of all of it is kept.
    """
    if (earlier := read_before(shadow.folder)) is not None:
        return replace(earlier, of_earlier=True)
    places.make()
    ours = [places.base, places.safe, repository.root / ".handrail", *ours]
    shadow.make(repository, ours)
    backup = back_up(repository, shadow.repository if alone else None)
    if backup.kept:
        shadow.borrow(shadow.repository)
    inside = await read_git_files(repository, shadow.marker)
    listed = [Listed(*one, path_of(n)) for n, every in inside.listed.items() for one in every]
    state = await shadow.state(inside.head, listed)
    passed = [*map(path_text, await shadow.ignored()), *_below(repository.root, ours)]
    folders = folders_of(repository.root, passed)
    own = own_files(repository.root)
    undone_from = places.restore_log.position()
    before = Before(
        state, inside, own, folders=folders, whole=backup, epoch=epoch, undone_from=undone_from
    )
    known = shadow.folder / _BEFORE
    fresh = known.with_suffix(".new")
    fresh.write_bytes(msgspec.json.encode(before))
    fresh.replace(known)
    return before


def read_before(shadow: Path) -> Before | None:
    """The state before a launch that has not been checked yet, or None."""
    known = shadow / _BEFORE
    if not known.is_file():
        return None
    return msgspec.json.decode(known.read_bytes(), type=Before)


@dataclass(frozen=True, slots=True)
class Scope:
    """Where an agent may write, in a repository whose state before the launch is known."""

    reach: Reach
    repository: Repository
    shadow: Shadow
    places: Places
    before: Before

    async def enforce(self, reach: Callable[[], Awaitable[Reach]] | None = None) -> Violations:
        """Find, set aside and undo changes outside of the scope; empty if there are none.

        It calls ``reach`` once the repository is whole again: others' claims are kept there.
        """
        found = _ViolationsSoFar(self.places)
        if read_before(self.shadow.folder) is None or not self.shadow.is_whole:
            note = (
                f"NOTHING COULD BE CHECKED OR PUT BACK: the state before the launch was in "
                f"{self.shadow.folder}, and was removed meanwhile. See git status."
            )
            return Violations((f"{self.shadow.folder} (deleted)",), None, (note,))
        await self._restore_repository(found)
        scope = self if reach is None else replace(self, reach=await reach())
        return await scope._undo(found)  # noqa: SLF001  # this class, with another reach

    async def _undo(self, found: _ViolationsSoFar) -> Violations:
        before = self.before.inside
        make_accessible(self.repository, before.named)
        self._restore_settings(found)
        looked = inspect_folders(self.repository.root, self.before.folders)
        try:
            await self._remove_unseen(looked, found)
            after, branch = await head_and_branch(self.repository, self.shadow.marker)
            await self._undo_files(found)
            await self._undo_modes(looked, found)
        finally:
            restore_modes(self.repository.root, looked.shut)
        await self._report_commits(after, found)
        await self._report_head(after, branch, found)
        self._report_shut_folders(looked, found)
        await self._report_staged(found)
        await self._restore_refs(branch, found)
        if found.files:
            if self.before.of_earlier:
                found.notes.insert(0, _OF_EARLIER)
            head = await self._commits_of_others(after)
            alone = not self.reach.others
            put_back = replace(before, head=head)
            await rewind(self.repository, self.shadow.marker, put_back, branch, index=alone)
            if not alone:
                await unstage(self.repository, self.shadow.marker, before, found.paths)
            if after not in {None, head}:
                found.notes.append(f"HEAD is back at {head}; the last commit since was {after}.")
        patch = None if found.patch is None else str(found.patch)
        return Violations(tuple(found.files), patch, tuple(found.notes))

    async def _undo_files(self, found: _ViolationsSoFar) -> None:
        """Undo changes until there are none; one that is there again cannot be undone."""
        tried: set[str] = set()
        for number in range(_MAX_PASSES):
            now = await self.shadow.state(self.before.state.tree, again=number > 0)
            outside = self._outside(await self.changes(now))
            again = [c for c in outside if c.path in tried and not c.is_repository]
            new = [change for change in outside if change.path not in tried]
            why = "what was there before is damaged in the repository, or it changes all the time"
            if new:
                try:
                    await self._set_aside(now, new, found)
                except CommandFailed as error:
                    why = (error.stderr or error.stdout).strip()
                    found.files += [str(change) for change in new]
                    again += new
            if again:
                named = ", ".join(change.display_path for change in again[:_SHOWN])
                found.notes.append(f"NOT PUT BACK, restore it by hand: {named}: {why}.")
            if again or not new:
                break
            tried.update(change.path for change in new)

    async def changes(self, now: State) -> tuple[Change, ...]:
        """The changes since the launch began.

        Without files that this process has open, and without those that other checks put back.
        """
        own = self.before.own | own_files(self.repository.root)
        undone = self.places.restore_log.since(self.before.undone_from)
        changes = await self.shadow.changes(self.before.state, now)
        return tuple(
            change
            for change in changes
            if change.path not in own
            and not (change.path in undone and undone[change.path] == change.after)
        )

    def _outside(self, changes: Sequence[Change]) -> list[Change]:
        """The changes that are not allowed, and those that would block undoing them, sorted."""
        outside = [change for change in changes if not self.reach(change.path)]
        while in_the_way := _in_the_way(outside, changes):
            outside += in_the_way
        return sorted(outside, key=lambda change: change.path)

    async def _set_aside(self, now: State, outside: list[Change], found: _ViolationsSoFar) -> None:
        """Add these changes to the patch, and undo them."""
        files = [change for change in outside if not change.is_repository]
        if files:
            allowed = await self.shadow.with_entries(now, [(c.path, c.before) for c in files])
            patch = await self.shadow.patch(allowed, now)
            found.patch = found.aside("patch")
            with found.patch.open("ab") as file:
                file.write(patch)
            await self.shadow.write(now, allowed)
            self.places.restore_log.note(files)
        found.files += [str(change) for change in outside]
        found.paths.update(change.path for change in files)
        for change in outside:
            if change.is_repository:
                self._set_repository_aside(change, found)

    def _set_repository_aside(self, change: Change, found: _ViolationsSoFar) -> None:
        """Move a new repository aside; only report one that was there before."""
        if change.before is not None:
            name = change.display_path
            found.notes.append(f"The repository in {name} was changed, and left as it is.")
            return
        aside = found.aside("repositories", change.path)
        shutil.move(self.repository.root / change.path, aside)
        found.notes.append(f"The new repository {change.display_path} was moved to {aside}.")

    async def _restore_repository(self, found: _ViolationsSoFar) -> None:
        """Restore the repository itself, if it was replaced or damaged."""
        backup, shadow = self.before.whole, self.shadow
        for broken in await find_damage(self.repository, backup, shadow.repository, shadow.marker):
            aside = found.aside("git", "whole")
            repair(self.repository, broken, backup, shadow.repository, aside)
            found.files.append(f"{GIT} ({broken})")
            found.notes.append(f"{GIT} is as it was before; what was there is in {aside}.")
        if backup.kept:
            kept = shadow.repository
            since_ns = (shadow.folder / _BEFORE).stat().st_ctime_ns
            asked = (self.repository, kept, since_ns)
            over = await anyio.to_thread.run_sync(overwritten_objects, *asked)
            for name, is_back in over.items():
                found.files.append(f"{GIT}/objects/{name} (changed)")
                if not is_back:
                    found.notes.append(
                        f"NOT PUT BACK: {GIT}/objects/{name} is damaged; there is no copy of a "
                        f"file of its size. Get it from another clone."
                    )

    def _restore_settings(self, found: _ViolationsSoFar) -> None:
        """Set aside and undo changes of hooks and settings."""
        was = self.before.inside
        before = was.files
        files = settings_of(self.repository, was.named, before)
        for name in sorted({*before, *files}):
            old, new = before.get(name), files.get(name)
            if (old is None and new is None) or (old is not None and old.is_same(new)):
                continue
            file = Path(os.path.normpath(self.repository.common / path_of(name)))
            shown, within = self._display_name(file)
            if self.reach(shown, within):
                continue
            found.files.append(f"{shown} ({_change_word(old, new)})")
            if new is not None:
                aside = found.aside("git", path_of(name).replace("../", ""))
                _move_aside(file, aside, new)
                found.notes.append(f"What it wrote into {shown} is in {aside}.")
            if within != GIT:
                found.notes.append(
                    f"git acts on {shown}, so writes= has to name {within!r} for it."
                )
            if old is not None and old.data is None:
                found.notes.append(f"{shown} was too large to be kept, and is not put back.")
            put_back(file, old)
        remove_empty_states(self.repository.own)

    def _display_name(self, file: Path) -> tuple[str, str]:
        """The name of a file that git acts on, and how a pattern that allows it begins."""
        root = self.repository.root
        for begin in self.before.inside.named.paths:
            if file.is_relative_to(begin) and file.is_relative_to(root):
                return printable(file.relative_to(root).as_posix()), os.path.relpath(begin, root)
        return printable(f"{GIT}/{os.path.relpath(file, self.repository.common)}"), GIT

    async def _remove_unseen(self, looked: Inspection, found: _ViolationsSoFar) -> None:
        """Set aside, or remove, entries that git does not see and that are not allowed."""
        for one in looked.unseen:
            if one.read_by_git:
                (self.repository.root / one.path).unlink(missing_ok=True)
        hidden = await self.shadow.hidden(
            [one.path for one in looked.unseen if not one.read_by_git]
        )
        tracked = await self.shadow.has([one.path for one in looked.unseen if one.special])
        for one in looked.unseen:
            allowed = self.reach(one.path) and not one.read_by_git
            if allowed or one.is_ignore_file != (one.path in hidden):
                continue
            if one.path not in tracked:
                change = "added" if one.text_before is None else "changed"
                found.files.append(f"{printable(one.path)} ({change})")
            self._remove_or_quarantine(one, found)

    def _remove_or_quarantine(self, one: UnseenEntry, found: _ViolationsSoFar) -> None:
        file = self.repository.root / one.path
        if one.special:
            file.unlink(missing_ok=True)
            return
        aside = found.aside("hidden", one.path)
        shutil.move(file, aside)
        found.notes.append(f"{printable(one.path)}, which git does not look at, is in {aside}.")
        if one.text_before is not None:
            file.write_bytes(one.text_before.encode("latin-1"))

    def _report_shut_folders(self, looked: Inspection, found: _ViolationsSoFar) -> None:
        """Report folders outside of the scope that the launch had made unreadable."""
        for name, mode in sorted(looked.shut.items()):
            if mode is not None and not self.reach(f"{name}/." if name else "."):
                found.files.append(f"{printable(name) or '.'} (mode changed)")

    async def _report_commits(self, after: str | None, found: _ViolationsSoFar) -> None:
        """Report files outside of the scope that changed only in the agent's commits."""
        head = self.before.inside.head
        if after is None or after == head:
            return
        git = self.repository.git(self.shadow.marker)
        known = found.named
        states = State(await git.tree(head)), State(await git.tree(after))
        for change in await self.shadow.changes(*states):
            if change.display_path not in known and not self.reach(change.path):
                found.files.append(f"{change.display_path} (committed)")

    async def _report_head(
        self, after: str | None, branch: str | None, found: _ViolationsSoFar
    ) -> None:
        """Report HEAD if it went to a branch that was there before, or lost commits."""
        before = self.before.inside
        if not self._is_alone or (after, branch) == (before.head, before.branch):
            return
        if branch != before.branch and (branch is None or path_text(branch) in before.refs):
            found.files.append(
                f"HEAD (was on {before.branch or 'none'}, now on {branch or 'none'})"
            )
        elif before.head is not None:
            git = self.repository.git(self.shadow.marker)
            if after is None or not await git.is_within(before.head, after):
                found.files.append("HEAD (lacks commits that it had)")

    @property
    def _is_alone(self) -> bool:
        """True if nothing else works here, and this is no further working tree."""
        return not self.reach.others and self.repository.own == self.repository.common

    async def _report_staged(self, found: _ViolationsSoFar) -> None:
        """Report entries of the index that changed outside of the scope: by ``git add`` alone."""
        was = self.before.inside.listed
        try:
            now = await listed_in(self.repository.git(self.shadow.marker))
        except CommandFailed:
            found.files.append(f"{GIT}/index (damaged)")
            return
        known = found.named
        for name in sorted(was.keys() | now.keys()):
            path = path_of(name)
            if was.get(name) != now.get(name) and not self.reach(path):
                found.paths.add(path)
                if printable(path) not in known:
                    found.files.append(f"{printable(path)} (staged)")

    async def _restore_refs(self, branch: str | None, found: _ViolationsSoFar) -> None:
        """Put back refs, but for the branch of HEAD and new branches that are checked out.

        Where others work too, in this working tree or another, new refs, remotes, the stash, and
        what is checked out are theirs to change.
        """
        was, before = self.before.inside.refs, self.before.inside
        now = await refs_of(self.repository.git(self.shadow.marker))
        mine = {path_text(name) for name in (before.branch, branch) if name}
        if found.files and branch != before.branch:
            mine -= was.keys() - {path_text(before.branch or "")}
        alone = self._is_alone
        out = {ref for ref in checked_out(self.repository) if ref not in was or not alone}
        free = (mine & now.keys()) | out
        if not alone:
            free |= {r for r in now if r not in was and not r.startswith("refs/replace/")}
            free |= {r for r in was | now if r.startswith(("refs/remotes/", "refs/stash"))}
        changed = {
            ref: was.get(ref)
            for ref in sorted(was.keys() | now.keys())
            if was.get(ref) != now.get(ref) and ref not in free
        }
        for ref, old in changed.items():
            new = now.get(ref)
            word = "added" if old is None else "changed" if new else "deleted"
            found.files.append(f"{printable(path_of(ref))} ({word})")
            if new:
                found.notes.append(f"{printable(path_of(ref))} was {new[1] or new[0]}.")
        await put_refs_back(self.repository, self.shadow.marker, changed)

    async def _undo_modes(self, looked: Inspection, found: _ViolationsSoFar) -> None:
        """Put back modes, and empty folders, outside of the scope."""
        root, shut = self.repository.root, {path_text(name) for name in looked.shut}
        changed = await anyio.to_thread.run_sync(changed_modes, root, self.before.folders, shut)
        named = {path_of(name): mode for name, mode in sorted(changed.items(), reverse=True)}
        asked = [f"{path}/" if (root / path).is_dir() else path for path in named]
        hidden = {path.removesuffix("/") for path in await self.shadow.hidden(asked)}
        known = found.named
        for path, mode in named.items():
            is_file = path_text(path) in self.before.folders.files
            asked_path = path if is_file else f"{path}/." if path else "."
            if path not in hidden and not self.reach(asked_path):
                word = restore_mode(root, path, mode)
                if word and printable(path) not in known:
                    found.files.append(f"{printable(path) or '.'} ({word})")

    async def _commits_of_others(self, after: str | None) -> str | None:
        """Where to rewind HEAD: after the leading commits that change only allowed files.

        Without others in the working tree: the commit before the launch.
        """
        head = self.before.inside.head
        if not self.reach.others or head is None or after is None:
            return head
        git = self.repository.git(self.shadow.marker)
        listed = await git("rev-list", "--reverse", "--first-parent", f"{head}..{after}")
        for commit in listed.split():
            states = State(await git.tree(head)), State(await git.tree(commit))
            if not all(self.reach(change.path) for change in await self.shadow.changes(*states)):
                break
            head = commit
        return head


@dataclass(slots=True)
class _ViolationsSoFar:
    """The findings so far. Mutable."""

    places: Places
    files: list[str] = field(default_factory=list[str])
    paths: set[str] = field(default_factory=set[str])
    """The paths of the files that were put back."""
    notes: list[str] = field(default_factory=list[str])
    patch: Path | None = None
    _aside: Path | None = None

    @property
    def named(self) -> set[str]:
        """The paths of ``files``."""
        return {file.rpartition(" (")[0] for file in self.files}

    def aside(self, kind: str, path: str = "") -> Path:
        """Where this check puts what it takes away of a kind; the folder is there."""
        if self._aside is None:
            self._aside = self.places.quarantine()
        aside = self._aside.with_suffix(f".{kind}") / path
        aside.parent.mkdir(parents=True, exist_ok=True)
        return aside


def _in_the_way(outside: Sequence[Change], changes: Sequence[Change]) -> list[Change]:
    """New files in the place of folders to restore, and new files below files to restore."""
    known = {change.path for change in outside}
    back = {change.path for change in outside if change.before is not None}
    above = {folder for path in back for folder in _folders(path)}
    return [
        change
        for change in changes
        if change.after is not None
        and change.path not in known
        and (change.path in above or not back.isdisjoint(_folders(change.path)))
    ]


def _folders(path: str) -> list[str]:
    """The folders that a path is in."""
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]


def _below(root: Path, folders: Sequence[Path]) -> list[str]:
    inside = [folder for folder in folders if folder.is_relative_to(root) and folder != root]
    return [path_text(folder.relative_to(root).as_posix()) for folder in inside]


def _move_aside(file: Path, aside: Path, new: SavedFile) -> None:
    """Copy a changed file aside for people, a link as its target; move it if it is too large."""
    if new.data is None:
        file.chmod(stat.S_IMODE(file.stat().st_mode) | 0o600)
        shutil.move(file, aside)
    else:
        aside.write_bytes(new.link.encode() or new.data)


def _change_word(old: SavedFile | None, new: SavedFile | None) -> str:
    if old is None:
        return "added"
    return "deleted" if new is None else "changed"
