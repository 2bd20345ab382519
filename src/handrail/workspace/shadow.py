"""Keeps states of a folder, byte for byte, in a separate git directory outside of it.

Theory of operation. A *shadow* is a small git directory that borrows the objects of the user's
repository and has an index of its own; its working tree is the user's folder. So git can take,
compare and restore states without the user's index, hooks or settings. No attributes apply (no line
endings, no filters, no merge drivers): a shadow takes and restores the exact bytes of files. Its
states leave out files that git ignores.

A repository within the folder is an entry with its commit. git is never let near it while it takes
a state: it would run there what its settings say.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import anyio.to_thread

from handrail.errors import CommandFailed
from handrail.model.dataclass import dataclass
from handrail.workspace.git import Git, Listed, Repository, index_entries, printable

_NOTHING = "000000"
_REPOSITORY = "160000"
_USAGE = 129
_POINTER = re.compile(rb"version https://git-lfs.*?\noid sha256:([0-9a-f]{64})\n", re.DOTALL)
_LONGEST_POINTER = 1024
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
        return printable(self.path)

    def __str__(self) -> str:
        return f"{self.display_path} ({self.what})"


@dataclass(frozen=True, slots=True)
class State:
    """A state of a folder: a git tree, and repositories in the folder without a commit."""

    tree: str
    bare: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Shadow:
    """States of ``root``, kept in ``folder``; see the module's theory of operation.

    ``objects``: where new objects go, instead of into ``folder``.
    """

    folder: Path
    root: Path
    marker: str
    index: str = "index"
    objects: Path | None = None

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

    @property
    def is_whole(self) -> bool:
        """True unless somebody removed what ``make`` has made."""
        names = ("HEAD", "config", "objects/info/alternates", "info/attributes", "info/exclude")
        return (self.folder / "refs").is_dir() and all((self.folder / n).is_file() for n in names)

    def borrow(self, repository: Path) -> None:
        """Borrow the objects of this copy of the repository, before those of the repository."""
        file = self.folder / "objects/info/alternates"
        file.write_bytes(os.fsencode(repository / "objects") + b"\n" + file.read_bytes())

    async def ignored(self) -> list[str]:
        """The folders that git ignores as a whole, whether or not their names are UTF-8."""
        words = ("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
        listed = (await self.git()(*words)).split("\0")
        return [name[:-1] for name in listed if name.endswith("/")]

    async def hidden(self, paths: Sequence[str]) -> set[str]:
        """The paths, of these, that git ignores now."""
        if not paths:
            return set()
        told = b"".join(os.fsencode(path) + b"\0" for path in paths)
        words = ("check-ignore", "-z", "--stdin")
        said = await self.git()(*words, stdin=told, ok=(0, 1))
        return set(said.split("\0"))

    async def has(self, paths: Sequence[str]) -> set[str]:
        """The paths, of these, that are files in the last state taken."""
        if not paths:
            return set()
        return {*(await self.git()("ls-files", "-z")).split("\0")}.intersection(paths)

    async def state(
        self, start: str | None = None, listed: Iterable[Listed] = (), *, again: bool = False
    ) -> State:
        """The folder's state now.

        The files of ``start``, a commit or tree, and those ``listed`` count even if ignored. Each
        file is read, for its times may be set; ``again``: only those that changed by their times.
        """
        git = self.git()
        if not again:
            await git("read-tree", start or "--empty")
        listed = [one for one in listed if one.stage == "0" and one.mode != _REPOSITORY]
        known = await index_entries(git)
        have = {one.path for one in known}
        more = [f"{one.mode} {one.blob}\t{one.path}" for one in listed if one.path not in have]
        inner = [one for one in known if one.mode == _REPOSITORY]
        gone = [f"{_NOTHING} {'0' * len(one.blob)}\t{one.path}" for one in inner]
        await self._update(git, [*gone, *more])
        # One pack for all new content: a file for each takes several times as long.
        pack = () if self.objects is not None else ("-c", "core.bigFileThreshold=1")
        words = ("add", "--all", "--ignore-errors", "--", ".")
        code, _, _ = await git.run_unchecked(*pack, *words)
        bare = await self._bare() if code else ()
        if code:
            await self._drop_unreadable()
        empty = [one for one in inner if _is_empty(self.root / one.path)]
        await self._update(git, [f"{one.mode} {one.blob}\t{one.path}" for one in empty])
        return State((await git("write-tree")).strip(), bare)

    async def _update(self, git: Git, lines: Sequence[str]) -> None:
        if lines:
            told = "".join(f"{line}\0" for line in lines)
            words = ("update-index", "-z", "--add", "--replace", "--index-info")
            await git(*words, stdin=os.fsencode(told))

    async def _bare(self) -> tuple[str, ...]:
        """Repositories without a commit, which git cannot add to a tree."""
        listed = await self.git()("ls-files", "-z", "--others", "--exclude-standard")
        return tuple(name[:-1] for name in listed.split("\0") if name.endswith("/"))

    async def _drop_unreadable(self) -> None:
        """Remove unreadable and vanished files from the index: git leaves their old entries."""
        git = self.git()
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
        await self.git()(*words, before.tree, after.tree)
        parts = iter(os.fsdecode(found.read_bytes()).split("\0")[:-1])
        changes = [_change(fields, path) for fields, path in zip(parts, parts, strict=True)]
        unborn = Entry(_REPOSITORY, "")
        changes += [Change(n, None, unborn) for n in after.bare if n not in before.bare]
        changes += [Change(n, unborn, None) for n in before.bare if n not in after.bare]
        return tuple(sorted(changes, key=lambda change: change.path))

    async def with_entries(self, state: State, put: Iterable[tuple[str, Entry | None]]) -> State:
        """The state with other entries at some paths; None removes a path."""
        git = self.git("mixed")
        lines = sorted(
            (entry is not None, path, entry or Entry(_NOTHING, "0" * len(state.tree)))
            for path, entry in put
            if entry is None or entry.blob
        )
        await git("read-tree", state.tree)
        await self._update(git, [f"{entry.mode} {entry.blob}\t{path}" for _, path, entry in lines])
        return State((await git("write-tree")).strip(), state.bare)

    async def patch(self, before: State, after: State) -> bytes:
        """The change as a patch for ``git apply``, binary files too."""
        found = self.folder / "patch"
        words = ("diff-tree", "-r", "-p", "-U3", "--binary", "--full-index", "--no-renames")
        plain = ("--no-ext-diff", "--no-textconv", "--src-prefix=a/", "--dst-prefix=b/")
        await self.git()(*words, *plain, f"--output={found}", before.tree, after.tree)
        return found.read_bytes()

    async def apply_patch(self, state: State, patch: bytes, *, three_way: bool = False) -> State:
        """The state after a patch; writes nothing into the folder.

        Raises:
            CommandFailed: the patch does not apply, or, three-way, there are conflicts.
        """
        git = self.git("patched")
        await git("read-tree", state.tree)
        words = ("apply", "--cached", "--whitespace=nowarn", *["--3way"] * three_way, "-")
        await git(*words, stdin=patch)
        return State((await git("write-tree")).strip(), state.bare)

    async def write(self, now: State, wanted: State) -> None:
        """Bring the folder, whose state is ``now``, to the wanted state."""
        changes = [c for c in await self.changes(now, wanted) if not c.is_repository]
        # What is replaced by another file, git removes itself.
        gone = [one.path for one in changes if one.before is not None and one.after is None]
        await anyio.to_thread.run_sync(_remove, self.root, gone)
        paths = "".join(f"{change.path}\0" for change in changes if change.after is not None)
        if paths:
            git = self.git("wanted")
            await git("read-tree", wanted.tree)
            await git("checkout-index", "--force", "-z", "--stdin", stdin=os.fsencode(paths))

    async def text(self, entry: Entry) -> str:
        """A file's content as text, with U+FFFD for bytes that are not UTF-8."""
        return (await self.content(entry)).decode("utf-8", "replace")

    async def content(self, entry: Entry) -> bytes:
        """A file's content."""
        return os.fsencode(await self.git()("cat-file", "blob", entry.blob))

    async def is_smudged(self, change: Change) -> bool:
        """True if ``before`` is a pointer of git-lfs, and the file is what it stands for."""
        if change.before is None or change.after is None or change.is_repository:
            return False
        found = _POINTER.match((await self.content(change.before))[:_LONGEST_POINTER])
        return found is not None and _sha256(self.root / change.path) == found[1].decode()

    async def entry(self, mode: str, content: bytes) -> Entry:
        """An entry with this content."""
        words = ("hash-object", "-w", "--stdin", "--no-filters")
        return Entry(mode, (await self.git()(*words, stdin=content)).strip())

    async def merge(self, base: str, ours: str, theirs: str) -> tuple[str, list[str], str]:
        """The tree of a three-way merge of trees; the files in conflict, if any, and git's words.

        Nothing is written into the folder.
        """
        git = self.git()
        first = (await git("commit-tree", base, "-m", "base")).strip()
        sides = [
            (await git("commit-tree", tree, "-p", first, "-m", "side")).strip()
            for tree in (ours, theirs)
        ]
        words = ("merge-tree", "--write-tree", "-z", "--name-only", "--messages")
        code, told, error = await git.run_unchecked(*words, *sides)
        if code == _USAGE:  # git before 2.38
            return await self._apply_three_way(base, ours, theirs)
        if code not in {0, 1}:
            raise CommandFailed("'git merge-tree'", code, printable(told), error)
        tree, *rest = told.split("\0")
        end = rest.index("") if "" in rest else len(rest)
        files = list(dict.fromkeys(rest[:end])) if code else []
        # A message, which ends with a line end, comes after its kind, which does not.
        words_of = [part for part in rest[end:] if part.startswith("CONFLICT")]
        reason = "".join(part for part in words_of if part.endswith("\n"))
        return tree, files, printable(reason).strip()

    async def _apply_three_way(
        self, base: str, ours: str, theirs: str
    ) -> tuple[str, list[str], str]:
        patch = await self.patch(State(base), State(theirs))
        if not patch:
            return ours, [], ""
        try:
            return (await self.apply_patch(State(ours), patch, three_way=True)).tree, [], ""
        except CommandFailed as error:
            told = f"{error.stdout}\n{error.stderr}"
            files = re.findall(r"^(?:U |error: )(.+?)(?:: .*)?$", told, re.MULTILINE)
            return ours, files, (error.stderr or error.stdout).strip()

    def git(self, index: str | os.PathLike[str] | None = None) -> Git:
        """Git with this shadow's settings and one of its indexes."""
        places = {
            "GIT_DIR": str(self.folder),
            "GIT_WORK_TREE": str(self.root),
            "GIT_INDEX_FILE": str(self.folder / (index or self.index)),
        }
        if self.objects is not None:
            places["GIT_OBJECT_DIRECTORY"] = str(self.objects)
        return Git(self.root, self.marker, places)


@contextmanager
def shadow_for_a_time(
    root: Path,
    repository: Repository,
    marker: str,
    ignored: Sequence[Path] = (),
    objects: Path | None = None,
) -> Generator[Shadow]:
    """A shadow of a folder, in a temporary folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="handrail-"))
    try:
        shadow = Shadow(folder / "git", root, marker, objects=objects)
        shadow.make(repository, ignored)
        yield shadow
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def skipped(root: Path, entries: Iterable[Listed]) -> list[tuple[str, Entry]]:
    """The entries of files that are not there, and of which git is told so (skip-worktree)."""
    return [
        (entry.path, Entry(entry.mode, entry.blob))
        for entry in entries
        if entry.flag.upper() == "S" and not os.path.lexists(root / entry.path)
    ]


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
        "splitIndex = false",
        "looseCompression = 1",
        "protectNTFS = false",
        "protectHFS = false",
        f"ignorecase = {mac}",
        f"precomposeunicode = {mac}",
    ]
    if repository.sha256:
        lines += ["[extensions]", "objectFormat = sha256"]
    return "\n".join([*lines, ""])


def _excluded(repository: Repository, ignored: Sequence[Path]) -> bytes:
    """The exclude file: the repository's own ignore patterns as they are now, and these folders."""
    lists = [repository.common / "info" / "exclude"]
    if repository.ignored:
        lists.insert(0, Path(repository.ignored))
    known = b"\n".join(one.read_bytes() for one in lists if one.is_file())
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


def _sha256(file: Path) -> str:
    with suppress(OSError), file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
    return ""


def _is_empty(folder: Path) -> bool:
    """True for a folder without files: a submodule that nobody has filled."""
    try:
        return folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir())
    except OSError:
        return True


def _remove(root: Path, paths: Sequence[str]) -> None:
    """Remove files, and the folders that are empty without them."""
    top = os.fspath(root)
    folders: set[str] = set()
    for path in paths:
        file = f"{top}/{path}"
        with suppress(FileNotFoundError, NotADirectoryError):
            if not stat.S_ISDIR(os.lstat(file).st_mode):  # now a folder: its files are changes, too
                os.unlink(file)  # noqa: PTH108  # many files
                folders.add(os.path.dirname(path))  # noqa: PTH120
    while folders:
        above = set[str]()
        for path in folders - {""}:
            with suppress(OSError):
                os.rmdir(f"{top}/{path}")  # noqa: PTH106
                above.add(os.path.dirname(path))  # noqa: PTH120
        folders = above
