"""What a folder held, byte for byte, kept in a repository of our own, out of its reach.

Theory of operation. A *shadow* is a small git directory that borrows the objects of the user's
repository and has an index of its own; its working tree is the user's folder. So a state can be
taken, compared and brought back by git, and neither the user's index nor their objects, hooks or
settings have a part in it. No attribute counts in it (no line endings, no filters): what it takes
are the bytes of the files, and those it brings back. What git ignores is in none of its states.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from handrail.workspace.git import Git, Repository

_NOTHING = "000000"
_REPOSITORY = "160000"
_ATTRIBUTES = "* -text !eol -filter -ident !working-tree-encoding !merge !diff\n"


@dataclass(frozen=True, slots=True)
class Entry:
    """A file in a state: its mode as git writes it, and the id of its content."""

    mode: str
    blob: str

    @property
    def is_repository(self) -> bool:
        """True for a repository within the repository, whose files are not looked at."""
        return self.mode == _REPOSITORY


@dataclass(frozen=True, slots=True)
class Change:
    """What became of one path between two states; None: it is not in that state."""

    path: str
    before: Entry | None
    after: Entry | None

    @property
    def what(self) -> str:
        """added, deleted, changed, or mode changed."""
        if self.before is None:
            return "added"
        if self.after is None:
            return "deleted"
        return "changed" if self.before.blob != self.after.blob else "mode changed"

    @property
    def is_repository(self) -> bool:
        """True if either is a repository of its own."""
        return any(one is not None and one.is_repository for one in (self.before, self.after))

    @property
    def display_path(self) -> str:
        """The path, whose bytes need not be UTF-8, as text that can be written."""
        return os.fsencode(self.path).decode("utf-8", "backslashreplace")

    def __str__(self) -> str:
        return f"{self.display_path} ({self.what})"


@dataclass(frozen=True, slots=True)
class State:
    """What a folder held: a tree, and repositories in it that have no commit yet."""

    tree: str
    bare: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Shadow:
    """States of ``root``, kept in ``folder``; see the module's theory of operation."""

    folder: Path
    root: Path
    marker: str
    index: str = "index"

    def at(self, root: Path, index: str) -> Shadow:
        """The same for another working tree of the repository, with an index of its own."""
        return replace(self, root=root, index=index)

    def make(self, repository: Repository, ignored: Sequence[Path] = ()) -> None:
        """Make its folder anew; ``ignored`` are folders that are in no state."""
        shutil.rmtree(self.folder, ignore_errors=True)
        for name in ("objects/info", "refs/heads", "info"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "HEAD").write_text("ref: refs/heads/none\n")
        (self.folder / "config").write_text(_settings(repository), "utf-8")
        (self.folder / "objects/info/alternates").write_bytes(os.fsencode(repository.objects))
        (self.folder / "info/attributes").write_text(_ATTRIBUTES)
        (self.folder / "info/exclude").write_bytes(_excluded(repository, ignored))

    @property
    def repository(self) -> Path:
        """Where a copy of the repository is kept."""
        return self.folder / "git"

    def borrow(self, repository: Path) -> None:
        """Have the objects of this repository, too."""
        with (self.folder / "objects/info/alternates").open("ab") as file:
            file.write(b"\n" + os.fsencode(repository / "objects") + b"\n")

    async def ignored(self) -> list[str]:
        """The folders that git ignores as a whole, in UTF-8 or not (see ``folders.named``)."""
        words = ("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
        listed = (await self._git()(*words)).split("\0")
        return [name[:-1] for name in listed if name.endswith("/")]

    async def hidden(self, paths: Sequence[str]) -> set[str]:
        """Those of the paths that git ignores now."""
        if not paths:
            return set()
        told = b"".join(os.fsencode(path) + b"\0" for path in paths)
        words = ("check-ignore", "-z", "--stdin")
        said = await self._git()(*words, stdin=told, ok=(0, 1))
        return set(said.split("\0"))

    async def has(self, paths: Sequence[str]) -> set[str]:
        """Those of the paths that are files of the state that was taken last."""
        if not paths:
            return set()
        return {*(await self._git()("ls-files", "-z")).split("\0")}.intersection(paths)

    async def state(self, head: str | None = None) -> State:
        """What the folder holds now. ``head``: a commit whose files count even if ignored."""
        git = self._git()
        if head is not None:
            await git("read-tree", head)
        code, _, _ = await git.ends("add", "--all", "--ignore-errors", "--", ".")
        bare = await self._bare() if code else ()
        if code:
            await self._drop_unreadable()
        return State((await git("write-tree")).strip(), bare)

    async def _bare(self) -> tuple[str, ...]:
        """Repositories without a commit: git cannot take them into a tree."""
        listed = await self._git()("ls-files", "-z", "--others", "--exclude-standard")
        return tuple(name[:-1] for name in listed.split("\0") if name.endswith("/"))

    async def _drop_unreadable(self) -> None:
        """Take out of the index what is no file any more, or cannot be read: git leaves it there
        as it was.
        """
        git = self._git()
        entries = (await git("ls-files", "-z", "--stage")).split("\0")[:-1]
        names = [entry.partition("\t") for entry in entries]
        gone = [
            name
            for fields, _, name in names
            if not fields.startswith(_REPOSITORY) and _is_unreadable(self.root / name)
        ]
        if gone:
            told = "".join(f"{name}\0" for name in gone)
            await git("update-index", "-z", "--force-remove", "--stdin", stdin=os.fsencode(told))

    async def changes(self, before: State, after: State) -> tuple[Change, ...]:
        """What became of each path, sorted."""
        found = self.folder / "changes"
        words = ("diff-tree", "-r", "-z", "--raw", "--no-renames", f"--output={found}")
        await self._git()(*words, before.tree, after.tree)
        parts = iter(os.fsdecode(found.read_bytes()).split("\0")[:-1])
        changes = [_change(fields, path) for fields, path in zip(parts, parts, strict=True)]
        unborn = Entry(_REPOSITORY, "")
        changes += [Change(n, None, unborn) for n in after.bare if n not in before.bare]
        changes += [Change(n, unborn, None) for n in before.bare if n not in after.bare]
        return tuple(sorted(changes, key=lambda change: change.path))

    async def with_entries(self, state: State, put: Iterable[tuple[str, Entry | None]]) -> State:
        """A state with other entries at some paths; None: nothing there."""
        git = self._git("mixed")
        lines = sorted(
            (entry is not None, path, entry or Entry(_NOTHING, "0" * len(state.tree)))
            for path, entry in put
            if entry is None or entry.blob
        )
        told = "".join(f"{entry.mode} {entry.blob}\t{path}\0" for _, path, entry in lines)
        await git("read-tree", state.tree)
        words = ("update-index", "-z", "--add", "--replace", "--index-info")
        await git(*words, stdin=os.fsencode(told))
        return State((await git("write-tree")).strip(), state.bare)

    async def patch(self, before: State, after: State) -> bytes:
        """The change as a patch for ``git apply``, binary files too."""
        found = self.folder / "patch"
        words = ("diff-tree", "-r", "-p", "-U3", "--binary", "--full-index", "--no-renames")
        plain = ("--no-ext-diff", "--no-textconv", "--src-prefix=a/", "--dst-prefix=b/")
        await self._git()(*words, *plain, f"--output={found}", before.tree, after.tree)
        return found.read_bytes()

    async def apply_patch(self, state: State, patch: bytes, *, three_way: bool = False) -> State:
        """The state that a patch makes of another; nothing is written into the folder.

        Raises:
            CommandFailed: it does not apply, or, three-way, there are conflicts.
        """
        git = self._git("patched")
        await git("read-tree", state.tree)
        words = ("apply", "--cached", "--whitespace=nowarn", *["--3way"] * three_way, "-")
        await git(*words, stdin=patch)
        return State((await git("write-tree")).strip(), state.bare)

    async def write(self, now: State, wanted: State) -> None:
        """Make the folder, which holds ``now``, hold what is wanted."""
        changes = [c for c in await self.changes(now, wanted) if not c.is_repository]
        for change in changes:
            if change.before is not None:
                _remove(self.root, change.path)
        paths = "".join(f"{change.path}\0" for change in changes if change.after is not None)
        if paths:
            git = self._git("wanted")
            await git("read-tree", wanted.tree)
            await git("checkout-index", "--force", "-z", "--stdin", stdin=os.fsencode(paths))

    async def text(self, entry: Entry) -> str:
        """What a file holds, with U+FFFD for what is not UTF-8."""
        return await self._git()("cat-file", "blob", entry.blob)

    def _git(self, index: str | None = None) -> Git:
        places = {
            "GIT_DIR": str(self.folder),
            "GIT_WORK_TREE": str(self.root),
            "GIT_INDEX_FILE": str(self.folder / (index or self.index)),
        }
        return Git(self.root, self.marker, places)


def _settings(repository: Repository) -> str:
    mac = "true" if sys.platform == "darwin" else "false"
    lines = [
        "[core]",
        f"repositoryformatversion = {int(repository.sha256)}",
        "bare = false",
        "filemode = true",
        "autocrlf = false",
        "safecrlf = false",
        "untrackedCache = false",
        "protectNTFS = false",
        "protectHFS = false",
        f"ignorecase = {mac}",
        f"precomposeunicode = {mac}",
    ]
    if repository.ignored:
        quoted = repository.ignored.replace("\\", "\\\\").replace('"', '\\"')
        lines.append(f'excludesFile = "{quoted}"')
    if repository.sha256:
        lines += ["[extensions]", "objectFormat = sha256"]
    return "\n".join([*lines, ""])


def _excluded(repository: Repository, ignored: Sequence[Path]) -> bytes:
    """What the repository ignores by itself, and these folders."""
    own = repository.common / "info" / "exclude"
    known = own.read_bytes() if own.is_file() else b""
    inside = [f for f in ignored if f.is_relative_to(repository.root) and f != repository.root]
    more = "".join(f"/{_literal(f.relative_to(repository.root).as_posix())}/\n" for f in inside)
    return known + b"\n" + os.fsencode(more)


def _literal(path: str) -> str:
    return "".join(f"\\{c}" if c in "\\*?[ " else c for c in path)


def _change(fields: str, path: str) -> Change:
    """One line of ``git diff-tree --raw``."""
    mode, new_mode, blob, new_blob, _ = fields.removeprefix(":").split(" ")
    before = None if mode == _NOTHING else Entry(mode, blob)
    after = None if new_mode == _NOTHING else Entry(new_mode, new_blob)
    return Change(path, before, after)


def _is_unreadable(file: Path) -> bool:
    """True for a pipe, socket or device, and for a file without the right to read it."""
    try:
        mode = file.lstat().st_mode
        if stat.S_ISLNK(mode) or stat.S_ISDIR(mode):
            return False
        return not stat.S_ISREG(mode) or not os.access(file, os.R_OK)
    except OSError:  # it is not there, or what it is in cannot be looked into
        return True


def _remove(root: Path, path: str) -> None:
    """Remove a file, and the folders that are empty without it."""
    file = root / path
    try:
        if stat.S_ISDIR(file.lstat().st_mode):  # a file became a folder: what is in it goes by name
            return
        file.unlink()
    except (FileNotFoundError, NotADirectoryError):
        return
    for folder in file.parents:
        if folder == root:
            return
        try:
            folder.rmdir()
        except OSError:
            return
