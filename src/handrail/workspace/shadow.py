"""Keeps states of a folder, byte for byte, in a separate git directory outside of it.

Theory of operation. A *shadow* is a small git directory that borrows the objects of the user's
repository and has an index of its own; its working tree is the user's folder. So git can take,
compare and restore states without the user's index, objects, hooks or settings. No attributes
apply (no line endings, no filters): a shadow takes and restores the exact bytes of files. Its
states leave out files that git ignores.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from handrail.model.dataclass import dataclass
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
        """True for a repository within the repository, whose files no state contains."""
        return self.mode == _REPOSITORY


@dataclass(frozen=True, slots=True)
class Change:
    """The difference at one path between two states; None: the path is not in that state."""

    path: str
    before: Entry | None
    after: Entry | None

    @property
    def what(self) -> str:
        """The kind of change: added, deleted, changed, or mode changed."""
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
        """The path as printable text: bytes that are not UTF-8 become escapes."""
        return os.fsencode(self.path).decode("utf-8", "backslashreplace")

    def __str__(self) -> str:
        return f"{self.display_path} ({self.what})"


@dataclass(frozen=True, slots=True)
class State:
    """A state of a folder: a git tree, and repositories in the folder without a commit."""

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
        """This shadow for another working tree of the repository, with an index of its own."""
        return replace(self, root=root, index=index)

    def make(self, repository: Repository, ignored: Sequence[Path] = ()) -> None:
        """Create the shadow's folder, empty; ``ignored`` are folders that states leave out."""
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
        """The folder for a copy of the repository."""
        return self.folder / "git"

    def borrow(self, repository: Path) -> None:
        """Borrow the objects of this repository, too."""
        with (self.folder / "objects/info/alternates").open("ab") as file:
            file.write(b"\n" + os.fsencode(repository / "objects") + b"\n")

    async def ignored(self) -> list[str]:
        """The folders that git ignores as a whole, whether or not their names are UTF-8."""
        words = ("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
        listed = (await self._git()(*words)).split("\0")
        return [name[:-1] for name in listed if name.endswith("/")]

    async def hidden(self, paths: Sequence[str]) -> set[str]:
        """The paths, of these, that git ignores now."""
        if not paths:
            return set()
        told = b"".join(os.fsencode(path) + b"\0" for path in paths)
        words = ("check-ignore", "-z", "--stdin")
        said = await self._git()(*words, stdin=told, ok=(0, 1))
        return set(said.split("\0"))

    async def has(self, paths: Sequence[str]) -> set[str]:
        """The paths, of these, that are files in the last state taken."""
        if not paths:
            return set()
        return {*(await self._git()("ls-files", "-z")).split("\0")}.intersection(paths)

    async def state(self, head: str | None = None) -> State:
        """The folder's state now. ``head``: a commit whose files count even if ignored."""
        git = self._git()
        if head is not None:
            await git("read-tree", head)
        code, _, _ = await git.run_unchecked("add", "--all", "--ignore-errors", "--", ".")
        bare = await self._bare() if code else ()
        if code:
            await self._drop_unreadable()
        return State((await git("write-tree")).strip(), bare)

    async def _bare(self) -> tuple[str, ...]:
        """Repositories without a commit, which git cannot add to a tree."""
        listed = await self._git()("ls-files", "-z", "--others", "--exclude-standard")
        return tuple(name[:-1] for name in listed.split("\0") if name.endswith("/"))

    async def _drop_unreadable(self) -> None:
        """Remove unreadable and vanished files from the index: git leaves their old entries."""
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
        """The differences between two states, sorted by path."""
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
        """The state with other entries at some paths; None removes a path."""
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
        """The state after a patch; writes nothing into the folder.

        Raises:
            CommandFailed: the patch does not apply, or, three-way, there are conflicts.
        """
        git = self._git("patched")
        await git("read-tree", state.tree)
        words = ("apply", "--cached", "--whitespace=nowarn", *["--3way"] * three_way, "-")
        await git(*words, stdin=patch)
        return State((await git("write-tree")).strip(), state.bare)

    async def write(self, now: State, wanted: State) -> None:
        """Bring the folder, whose state is ``now``, to the wanted state."""
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
        """A file's content as text, with U+FFFD for bytes that are not UTF-8."""
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
    """The exclude file: the repository's own exclude patterns, and these folders."""
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
    except OSError:  # the file is gone, or its folder cannot be read
        return True


def _remove(root: Path, path: str) -> None:
    """Remove a file, and the folders that are empty without it."""
    file = root / path
    try:
        if stat.S_ISDIR(file.lstat().st_mode):  # now a folder: its files are changes of their own
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
