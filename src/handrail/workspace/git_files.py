"""git's own files of a working tree: HEAD, index, hooks, settings.

An agent may change these too: by a commit, by ``git add``, or by hand. This module reads them
before a launch, and can put changes back.

It compares and restores hooks and settings as plain files, before handrail runs git at all: git
acts on its settings, and so would carry out what an agent wrote there, on handrail's behalf.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Collection, Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path

from handrail.model.dataclass import dataclass
from handrail.workspace.git import Repository, head_of

GIT = ".git"
_SETTINGS = ("config", "config.worktree", "commondir", "info/exclude", "info/attributes")
_LOCKS = ("index.lock", "HEAD.lock", "packed-refs.lock", "config.lock")
_SAMPLE = ".sample"
_LARGEST = 16 << 20
"""Of a larger file only size and time are kept: a change is noticed, but cannot be put back."""
_OPEN = 0o700
_RUNS = re.compile(rb"^\s*(x|exec)\s", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class SavedFile:
    """A file's bytes (None: too large or unreadable), mode and time; and a link's target."""

    data: bytes | None
    mode: int
    at_ns: int
    size: int = -1
    link: str = ""

    def is_same(self, other: SavedFile | None) -> bool:
        """True if the files are equal; the time counts only where the bytes were not kept."""
        if other is None or self.link != other.link:
            return False
        if (self.data, self.mode) != (other.data, other.mode):
            return False
        return self.data is not None or (self.size, self.at_ns) == (other.size, other.at_ns)


@dataclass(frozen=True, slots=True)
class Named:
    """The files that settings name: a folder of hooks, and files of more settings."""

    hooks: str = ""
    included: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """All these paths."""
        return (self.hooks, *self.included) if self.hooks else self.included


@dataclass(frozen=True, slots=True)
class GitFiles:
    """The files of git itself before a launch.

    HEAD as a commit (None: there is none yet) and as a branch (None: detached), the index, and the
    hooks and settings by their paths relative to the git directory. These are the files of the
    repository, of this working tree and of submodules, and the files that a setting names, which
    may be in the working tree and ignored.
    """

    head: str | None
    branch: str | None
    index: SavedFile | None
    files: dict[str, SavedFile]
    named: Named = field(default_factory=Named)


async def read_git_files(repository: Repository, marker: str) -> GitFiles:
    """The files of git itself as they are now, before a launch."""
    named = await _names_in_settings(repository, marker)
    head, branch = await head_and_branch(repository, marker)
    return GitFiles(head, branch, index_of(repository), settings_of(repository, named), named)


async def head_and_branch(repository: Repository, marker: str) -> tuple[str | None, str | None]:
    """HEAD as a commit, and as a branch; None each if there is none."""
    git = repository.git(marker)
    _, branch, _ = await git.run_unchecked("symbolic-ref", "--quiet", "HEAD")
    return await head_of(git), branch.strip() or None


async def _names_in_settings(repository: Repository, marker: str) -> Named:
    """The files that settings name, whether they exist or not."""
    # handrail's own git options set core.hooksPath, too: the origin tells them apart.
    sought = r"^(core\.hookspath|include(if\..*)?\.path)$"
    words = ("config", "--show-origin", "--type=path", "-z", "--get-regexp", sought)
    _, said, _ = await repository.git(marker).run_unchecked(*words)
    parts = said.split("\0")[:-1]
    hooks, included = "", list[str]()
    for origin, setting in zip(parts[::2], parts[1::2], strict=False):
        key, _, value = setting.partition("\n")
        if origin.startswith("command line"):
            continue
        if key == "core.hookspath":
            hooks = str(repository.root / value)
            continue
        included.append(str((repository.root / origin.removeprefix("file:")).parent / value))
    included = [path for path in map(_normal, included) if _is_within(repository, path)]
    return Named(hooks, tuple(included))


def _normal(path: str) -> str:
    return os.path.normpath(path)


def _is_within(repository: Repository, path: str) -> bool:
    return any(Path(path).is_relative_to(home) for home in (repository.root, repository.common))


def settings_of(
    repository: Repository, named: Named, before: Mapping[str, SavedFile] | None = None
) -> dict[str, SavedFile]:
    """The hooks and settings that exist, read without git; ``before``: those before a launch."""
    names = _names(repository, named, before)
    return {name: kept for name in names if (kept := _read_file(repository.common / name))}


def _names(
    repository: Repository, named: Named, before: Mapping[str, SavedFile] | None
) -> list[str]:
    """The paths of hooks and settings, relative to the git directory.

    A hooks folder that is a link counts as a file itself. The files behind it count only if the
    link was the same before: a new link leads to files that are none of this repository's.
    """
    common = repository.common
    homes = [common, *_submodules(common)]
    found = [home / name for home in homes for name in _SETTINGS]
    found += [repository.own / "config.worktree", *map(Path, named.included)]
    found += _of_worktrees(common)
    found += [
        todo for todo in (repository.own / "rebase-merge/git-rebase-todo",) if _runs_commands(todo)
    ]
    folders = [home / "hooks" for home in homes]
    folders += [Path(named.hooks)] if named.hooks else []
    for folder in folders:
        if folder.is_symlink():
            found.append(folder)
            known = None if before is None else before.get(os.path.relpath(folder, common))
            if before is not None and (known is None or known.link != _link_of(folder)):
                continue
        there = sorted(folder.iterdir()) if _can_be_read(folder) else []
        found += [f for f in there if f.suffix != _SAMPLE and f.name.isprintable()]
    return list(dict.fromkeys(os.path.relpath(file, common) for file in found))


def _submodules(common: Path) -> list[Path]:
    folders = [head.parent for head in sorted((common / "modules").rglob("HEAD"))]
    return [folder for folder in folders if (folder / "objects").is_dir()]


def _of_worktrees(common: Path) -> Iterator[Path]:
    """The settings of other working trees, and their ``commondir`` files that are not git's own."""
    for folder in sorted((common / "worktrees").glob("*")):
        yield folder / "config.worktree"
        leads = _read_file(folder / "commondir")
        if leads is None or leads.link or (leads.data or b"").strip() != b"../..":
            yield folder / "commondir"


def _runs_commands(todo: Path) -> bool:
    """True if a rebase's todo list has ``exec`` commands."""
    kept = _read_file(todo)
    return kept is not None and _RUNS.search(kept.data or b"") is not None


def index_of(repository: Repository) -> SavedFile | None:
    """The index of the working tree."""
    return _read_file(repository.own / "index", largest=None)


def _read_file(file: Path, largest: int | None = _LARGEST) -> SavedFile | None:
    """The file as it is, without bytes if it is too large or unreadable; None if missing."""
    try:
        link = _link_of(file)
        known = file.lstat() if link and not file.is_file() else file.stat()
        if not file.is_file():
            return SavedFile(b"", 0o777, known.st_mtime_ns, 0, link) if link else None
        large = largest is not None and known.st_size > largest
        data = None if large or not os.access(file, os.R_OK) else file.read_bytes()
        return SavedFile(data, known.st_mode & 0o777, known.st_mtime_ns, known.st_size, link)
    except OSError:
        return None


def _link_of(file: Path) -> str:
    """A link's target, unresolved; "" if the file is no link."""
    try:
        return os.readlink(file)  # noqa: PTH115  # as it is written, not resolved
    except OSError:
        return ""


def _can_be_read(folder: Path) -> bool:
    return folder.is_dir() and os.access(folder, os.R_OK | os.X_OK)


def make_accessible(repository: Repository, named: Named) -> None:
    """Make git's folders readable and writable for us."""
    common = repository.common
    top = (common, repository.own, common / "info", common / "hooks", common / "modules")
    for folder in (*top, *map(Path, named.paths)):
        _open(folder)
    for above, below, _ in os.walk(common / "modules"):
        for name in below:
            _open(Path(above, name))


def _open(folder: Path) -> None:
    try:
        mode = folder.lstat().st_mode
        if stat.S_ISDIR(mode) and mode & _OPEN != _OPEN:
            folder.chmod(stat.S_IMODE(mode) | _OPEN)
    except OSError:
        return


def put_back(file: Path, wanted: SavedFile | None) -> None:
    """Restore a file in the git directory; remove it if ``wanted`` is None."""
    link = "" if wanted is None else wanted.link
    if wanted is not None and wanted.data is None:
        return
    _open(file.parent)
    if wanted is None or link != _link_of(file) or not link:
        if file.is_dir() and not file.is_symlink():
            shutil.rmtree(file)
        # A new file: through a pipe or a hard link the bytes would go elsewhere.
        file.unlink(missing_ok=True)
        if wanted is None:
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        if link:
            file.symlink_to(link)
    assert wanted.data is not None
    if link and not file.is_file():
        return
    file.write_bytes(wanted.data)
    file.chmod(wanted.mode)
    # With a newer time on the index, git would take files for unchanged that have changed since.
    os.utime(file, ns=(wanted.at_ns, wanted.at_ns))


async def rewind(
    repository: Repository,
    marker: str,
    before: GitFiles,
    branch: str | None,
    *,
    index: bool = True,
) -> None:
    """Put HEAD, its branch and the index back as they were; HEAD is on ``branch`` now.

    Without ``index`` the index stays, because others work with it too.
    """
    git = repository.git(marker)
    # A killed git of the agent leaves its lock files, and every later git would fail on them.
    for name in (*_LOCKS, *(f"{one}.lock" for one in (before.branch, branch) if one)):
        for home in (repository.own, repository.common):
            (home / name).unlink(missing_ok=True)
    if before.branch is not None:
        if branch != before.branch:
            await git("symbolic-ref", "HEAD", before.branch)
        if before.head is None:
            await git("update-ref", "-d", before.branch)
        else:
            await git("update-ref", before.branch, before.head)
    elif before.head is not None:
        await git("update-ref", "--no-deref", "HEAD", before.head)
    if not index:
        return
    now = index_of(repository)
    if before.index is None or not before.index.is_same(now):
        put_back(repository.own / "index", before.index)


async def unstage(
    repository: Repository,
    marker: str,
    aside: Path,
    before: SavedFile | None,
    paths: Collection[str],
) -> None:
    """Reset the index entries of these paths to those of the index ``before``; others stay.

    ``aside`` is where a temporary copy of that index goes.
    """
    git = repository.git(marker)
    put_back(aside, before)
    then = replace(git, env={**git.env, "GIT_INDEX_FILE": str(aside)})
    entries = (await then("ls-files", "-z", "--stage")).split("\0")[:-1]
    was = {entry.partition("\t")[2]: entry for entry in entries}
    put_back(aside, None)
    gone = f"0 {'0' * (64 if repository.sha256 else 40)}"
    lines = [was.get(path, f"{gone}\t{path}") for path in sorted(paths)]
    told = "".join(f"{line}\0" for line in lines)
    await git("update-index", "-z", "--index-info", stdin=os.fsencode(told))
