"""Brings work from a worktree home, into the files and the branch of the main working tree.

All is computed in the object database first; files are written once it has worked. While HEAD is
moved the index is locked as git itself locks it, so nobody commits in between.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio

from handrail.model.dataclass import dataclass
from handrail.system.own_files import own_files
from handrail.workspace.git import Repository, head_of, index_entries, printable
from handrail.workspace.shadow import Change, Entry, Shadow, State, skipped

_LOCK_TRIES = 40
_POLL_S = 0.05
_OURS = b"handrail "
_LARGEST = 16 << 20
_REGULAR = ("100644", "100755")


class Refused(Exception):
    """The work cannot come home; nothing was changed."""

    def __init__(self, reason: str, files: Sequence[str] = ()) -> None:
        super().__init__(reason, tuple(files))
        self.reason = reason
        self.files = tuple(files)


@dataclass(frozen=True, slots=True)
class Landing:
    """The main working tree, and a shadow with the work."""

    main: Repository
    work: Shadow

    @property
    def _files(self) -> Shadow:
        """The shadow of the main working tree; its states are no objects of the repository."""
        return replace(self.work, root=self.main.root, index="main", objects=None)

    async def _now(self) -> State:
        git = self.main.git(self.work.marker)
        entries = await index_entries(git)
        state = await self._files.state(await head_of(git), entries)
        absent = skipped(self.main.root, entries)
        return await self._files.with_entries(state, absent) if absent else state

    async def merged_files(self, base: State, done: State) -> tuple[State, State]:
        """The files as they are now, and as they are to be: with what was done since ``base``.

        Raises:
            Refused: there are conflicts.
        """
        files = self._files
        now = await self._now()
        mine = {change.path: change for change in await files.changes(base, now)}
        touched = [c.path for c in await files.changes(base, done) if c.path in mine]
        ends = {path: one for path in touched if (one := await self._with_lf(mine[path]))}
        plain = [(p, mine[p].before) for p in touched if await files.is_smudged(mine[p])]
        ours = await files.with_entries(now, [*ends.items(), *plain]) if ends or plain else now
        tree, conflicts, reason = await files.merge(base.tree, ours.tree, done.tree)
        if conflicts:
            raise Refused(reason or f"conflicts in {', '.join(conflicts)}", conflicts)
        wanted = await self._with_crlf(State(tree, now.bare), list(ends))
        return now, wanted

    async def _with_lf(self, change: Change) -> Entry | None:
        """The file as it is now with the line ends of ``before``, if it only has CRLF for LF."""
        if change.before is None or change.after is None or change.after.mode not in _REGULAR:
            return None
        file = self.main.root / change.path
        if file.stat().st_size > _LARGEST or change.before.mode not in _REGULAR:
            return None
        was = await self._files.content(change.before)
        text = await self._files.content(change.after)
        if b"\r" in was or b"\0" in text or text.count(b"\r\n") != text.count(b"\n"):
            return None
        if b"\r\n" not in text:
            return None
        return await self._files.entry(change.after.mode, text.replace(b"\r\n", b"\n"))

    async def _with_crlf(self, state: State, paths: Sequence[str]) -> State:
        """The state with CRLF for LF in these files."""
        files, none = self._files, State(await self._files.git().tree(None))
        found = {c.path: c.after for c in await files.changes(none, state)} if paths else {}
        put: list[tuple[str, Entry | None]] = []
        for path in paths:
            entry = found.get(path)
            if entry is not None and entry.mode in _REGULAR:
                text = (await files.content(entry)).replace(b"\r\n", b"\n")
                put.append((path, await files.entry(entry.mode, text.replace(b"\n", b"\r\n"))))
        return await files.with_entries(state, put) if put else state

    async def write(self, now: State, wanted: State) -> None:
        """Write the wanted files, unless something else is in their place.

        Raises:
            Refused: a file is there that git ignores, or that this process has open.
        """
        changes = await self._files.changes(now, wanted)
        held = sorted({c.path for c in changes} & own_files(self.main.root))
        if held:
            raise Refused(f"this process has {', '.join(map(printable, held))} open", held)
        gone = {change.path for change in changes if change.before is not None}
        taken = [c.path for c in changes if c.before is None and await self._is_taken(c, gone)]
        if taken:
            shown = ", ".join(map(printable, taken))
            raise Refused(
                f"{shown}: is there already, in {self.main.root}, where git ignores it", taken
            )
        await self._files.write(now, wanted)

    async def _is_taken(self, change: Change, gone: set[str]) -> bool:
        """True if something is in the place of a new file, and not the same."""
        assert change.after is not None
        found = _in_place_of(self.main.root, change.path, gone)
        if isinstance(found, bool) or change.after.mode not in _REGULAR:
            return found is not False
        return (await self._files.entry(change.after.mode, found)).blob != change.after.blob

    # -- commits --------------------------------------------------------------------------------

    async def has(self, commit: str) -> bool:
        """True if HEAD has the commit."""
        return await self.main.git(self.work.marker).is_within(commit, "HEAD")

    async def merge_commit(self, head: str, last: str, base: str, message: str) -> str:
        """A merge commit of HEAD and the work.

        Raises:
            Refused: there are conflicts.
        """
        git = self.main.git(self.work.marker)
        _, fork, _ = await git.run_unchecked("merge-base", head, last)
        # If commits that were there before were changed, the work began at ``base`` all the same.
        since = fork.strip() if fork and await git.is_within(base, fork.strip()) else base
        tree = await self._merged(since, head, last)
        parents = ("-p", head, "-p", last)
        return (await git("commit-tree", tree, *parents, "-m", message)).strip()

    async def on_top(self, head: str, last: str, base: str, message: str) -> str:
        """The commits of the work on top of HEAD; merge commits stay what they are.

        Raises:
            Refused: there are conflicts.
        """
        del message
        git = self.main.git(self.work.marker)
        if await git.is_within(head, last):
            return last
        words = ("rev-list", "--first-parent", "--reverse", "--parents", last, f"^{head}")
        onto = head
        for number, line in enumerate((await git(*words)).splitlines()):
            commit, *parents = line.split(" ")
            since = parents[0] if parents else base
            if number == 0 and not await git.is_within(base, since):
                since = base
            tree = await self._merged(since, onto, commit)
            if tree != await git.tree(onto) or await git.tree(since) == await git.tree(commit):
                more = [parent for parent in parents[1:] if not await git.is_within(parent, onto)]
                onto = await self._copied(commit, tree, [onto, *more])
        return onto

    async def _merged(self, base: str, ours: str, theirs: str) -> str:
        trees = [await self.work.git().tree(one) for one in (base, ours, theirs)]
        if trees[0] == trees[1]:
            return trees[2]
        tree, conflicts, reason = await self.work.merge(*trees)
        if conflicts:
            raise Refused(reason or f"conflicts in {', '.join(conflicts)}", conflicts)
        return tree

    async def _copied(self, commit: str, tree: str, parents: Sequence[str]) -> str:
        """The commit with other parents and files: its author and message stay, byte by byte."""
        git = self.main.git(self.work.marker)
        head, _, message = os.fsencode(await git("cat-file", "commit", commit)).partition(b"\n\n")
        kept = [line for line in head.split(b"\n") if line.startswith((b"author ", b"encoding "))]
        committer = os.fsencode(await git("var", "GIT_COMMITTER_IDENT")).strip()
        lines = [
            b"tree " + tree.encode(),
            *(b"parent " + parent.encode() for parent in parents),
            *kept[:1],
            b"committer " + committer,
            *kept[1:],
        ]
        told = b"\n".join(lines) + b"\n\n" + message
        return (await git("hash-object", "-t", "commit", "-w", "--stdin", stdin=told)).strip()

    async def move_head(self, head: str, target: str) -> bool:
        """Bring branch, index and files from ``head`` to ``target``; False if HEAD was moved.

        Raises:
            Refused: files were changed that differ, or the index is locked.
        """
        git = self.main.git(self.work.marker)
        async with self._index_held() as index:
            if await head_of(git) != head:
                return False
            now, wanted = await self._over_changes(
                State(await git.tree(head)), State(await git.tree(target))
            )
            here = self._files.git(index)
            code, _, error = await here.run_unchecked("read-tree", "-i", "-m", head, target)
            if code:
                files = re.findall(r"Entry '(.+?)'", error)
                raise Refused(f"staged changes would be overwritten: {error.strip()}", files)
            await self.write(now, wanted)
            await here.run_unchecked("update-index", "-q", "--refresh")
            words = ("update-ref", "-m", "handrail: merge", "HEAD", target, head)
            code, _, error = await git.run_unchecked(*words)
            if code:
                await self._files.write(wanted, now)
                raise Refused(error.strip())
            fresh = self.main.own / "index.handrail"
            shutil.copyfile(index, fresh)
            if (self.main.own / "index").exists():
                shutil.copymode(self.main.own / "index", fresh)
            fresh.replace(self.main.own / "index")
        return True

    async def _over_changes(self, head: State, target: State) -> tuple[State, State]:
        """The files as they are now, and with those of ``target`` that ``head`` has not."""
        now = await self._now()
        dirty = {change.path: change for change in await self._files.changes(head, now)}
        touched = await self._files.changes(head, target)
        put: list[tuple[str, Entry | None]] = []
        ends: list[str] = []
        in_the_way: list[str] = []
        for change in touched:
            mine = dirty.get(change.path)
            if mine is None or mine.after == change.after:
                put.append((change.path, change.after))
            elif (lf := await self._with_lf(mine)) and lf.blob == (mine.before or lf).blob:
                put.append((change.path, change.after))
                ends.append(change.path)
            elif await self._files.is_smudged(mine):
                put.append((change.path, change.after))
            else:
                in_the_way.append(change.path)
        wanted = await self._files.with_entries(now, put)
        paths = {path for path, _ in put}
        in_the_way += [
            c.path for c in await self._files.changes(now, wanted) if c.path not in paths
        ]
        if in_the_way:
            shown = ", ".join(map(printable, in_the_way))
            raise Refused(
                f"changes that are not committed would be overwritten: {shown}", in_the_way
            )
        return now, await self._with_crlf(wanted, ends)

    @asynccontextmanager
    async def _index_held(self) -> AsyncGenerator[Path]:
        """Hold git's lock of the index; a copy of the index to work on."""
        lock = self.main.own / "index.lock"
        for _ in range(_LOCK_TRIES):
            if self._locked(lock):
                break
            await anyio.sleep(_POLL_S)
        else:
            raise Refused(
                f"the index is locked by {lock}: another git is at work in {self.main.root}, or "
                f"was killed there. If none is, remove that file"
            )
        try:
            copy = self.work.folder / "home"
            copy.unlink(missing_ok=True)
            if (self.main.own / "index").is_file():
                shutil.copy(self.main.own / "index", copy)
            for shared in self.main.own.glob("sharedindex.*"):
                shutil.copy(shared, self.work.folder)
            yield copy
        finally:
            lock.unlink(missing_ok=True)

    def _locked(self, lock: Path) -> bool:
        try:
            if lock.read_bytes().startswith(_OURS):  # of a killed process: the tree's lock is ours
                lock.unlink()
        except OSError:
            pass
        try:
            with lock.open("xb") as file:
                file.write(_OURS + str(os.getpid()).encode())
        except FileExistsError:
            return False
        return True


def _in_place_of(root: Path, path: str, gone: set[str]) -> bool | bytes:
    """The content of the file at a path; True if something else is in its place, or above it."""
    parts = path.split("/")
    for end in range(1, len(parts)):
        above = "/".join(parts[:end])
        if above not in gone and ((root / above).is_symlink() or (root / above).is_file()):
            return True
    file = root / path
    if file.is_symlink() or not file.exists():
        return file.is_symlink()
    return not _holds_only(file, root, gone) if file.is_dir() else file.read_bytes()


def _holds_only(folder: Path, root: Path, gone: set[str]) -> bool:
    """True if all files of the folder are among those that go."""
    for above, below, names in os.walk(folder):
        inside = [*names, *(name for name in below if Path(above, name).is_symlink())]
        if any(os.path.relpath(Path(above, name), root) not in gone for name in inside):
            return False
    return True
