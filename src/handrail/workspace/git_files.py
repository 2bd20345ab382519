"""git's own files of a working tree: HEAD, index, hooks, settings.

An agent may change these too: by a commit, by ``git add``, or by hand. This module reads them
before a launch, and can put changes back: all that git or a hook reads in the git directory, the
refs, and the entries of the index.

It compares and restores hooks and settings as plain files, before handrail runs git at all: git
acts on its settings, and so would carry out what an agent wrote there, on handrail's behalf.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path

from handrail.model.dataclass import dataclass
from handrail.workspace.git import Git, Repository, head_of, index_entries, path_of, path_text

GIT = ".git"
_SETTINGS = ("config", "config.worktree", "commondir", "objects/info/alternates")
_BELOW = ("info", "branches", "remotes")
_TRACES_IN_INFO = frozenset({"refs"})
_HOOKS = "hooks"
_TRACES = frozenset({
    "index", "HEAD", "ORIG_HEAD", "FETCH_HEAD", "COMMIT_EDITMSG", "packed-refs", "gitdir",
    "AUTO_MERGE", "REBASE_HEAD", "gc.log", "gc.pid", "index.handrail", "objects", "logs", "refs",
    "handrail", "lfs", "annex", "worktrees", "modules", "fsmonitor--daemon", "info/refs", _HOOKS,
})  # fmt: skip
"""What git writes when it commits, packs or fetches, and what is compared in another way."""
_LOCKS = ("index.lock", "HEAD.lock", "packed-refs.lock", "config.lock")
_STATES = ("rebase-merge", "rebase-apply", "sequencer")
_SAMPLE = ".sample"
_STEPS = "refs/heads/handrail/"
_LARGEST = 16 << 20
"""Of a larger file only size and time are kept: a change is noticed, but cannot be put back."""
_OPEN = 0o700


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

    HEAD as a commit (None: there is none yet) and as a branch (None: detached), the index, and all
    other files that git or a hook reads. These are the files of the repository, of this working
    tree and of submodules, and the files that a setting names, which may be in the working tree
    and ignored.
    """

    head: str | None
    branch: str | None
    index: SavedFile | None
    files: dict[str, SavedFile]
    named: Named = field(default_factory=Named)
    refs: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """Each ref's object, and the ref that it stands for, if any."""
    listed: dict[str, list[tuple[str, str, str, str]]] = field(
        default_factory=dict[str, list[tuple[str, str, str, str]]]
    )
    """The entries of the index, by path: flag, mode, object and stage."""


async def read_git_files(repository: Repository, marker: str) -> GitFiles:
    """The files of git itself as they are now, before a launch."""
    named = await _names_in_settings(repository, marker)
    head, branch = await head_and_branch(repository, marker)
    files = settings_of(repository, named)
    git = repository.git(marker)
    return GitFiles(
        head, branch, index_of(repository), files, named, await refs_of(git), await listed_in(git)
    )


async def refs_of(git: Git) -> dict[str, tuple[str, str]]:
    """All refs but those of steps' worktrees; names as ``path_text`` writes them."""
    told = await git("for-each-ref", "--format=%(refname)%00%(objectname)%00%(symref)")
    found = (path_text(line).split("\0") for line in told.splitlines())
    return {ref: (blob, to) for ref, blob, to in found if not ref.startswith(_STEPS)}


async def listed_in(git: Git) -> dict[str, list[tuple[str, str, str, str]]]:
    """The entries of the index, by path as ``path_text`` writes it."""
    found: dict[str, list[tuple[str, str, str, str]]] = {}
    for one in await index_entries(git):
        entry = (one.flag, one.mode, one.blob, one.stage)
        found.setdefault(path_text(one.path), []).append(entry)
    return found


def checked_out(repository: Repository) -> set[str]:
    """The branches that any working tree has checked out."""
    heads = [repository.common / "HEAD", *(repository.common / "worktrees").glob("*/HEAD")]
    kept = (_read_file(head) for head in heads)
    told = ((one.data or b"").decode("latin-1").strip() for one in kept if one is not None)
    return {text.removeprefix("ref: ") for text in told if text.startswith("ref: ")}


async def put_refs_back(
    repository: Repository, marker: str, refs: Mapping[str, tuple[str, str] | None]
) -> None:
    """Have these refs be what they were; None: not there."""
    git = repository.git(marker)
    for ref in refs:
        (repository.common / f"{path_of(ref)}.lock").unlink(missing_ok=True)
    gone = [f"delete {ref}\0\0" for ref, was in refs.items() if was is None]
    back = [f"update {ref}\0{was[0]}\0\0" for ref, was in refs.items() if was and not was[1]]
    for lines in (gone, back):
        if lines:
            told = "".join(lines).encode("latin-1")
            await git("update-ref", "--no-deref", "--stdin", "-z", stdin=told)
    for ref, was in refs.items():
        if was and was[1]:
            await git("symbolic-ref", path_of(ref), path_of(was[1]))


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
    git = replace(repository.git(marker), own_settings=False)
    _, said, _ = await git.run_unchecked(*words)
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
    """All that git or a hook reads, read without git; ``before``: the files before a launch.

    Their names are paths relative to the git directory, as ``path_text`` writes them.
    """
    common = repository.common
    names = dict.fromkeys(os.path.relpath(f, common) for f in _files(repository, named, before))
    return {path_text(name): kept for name in names if (kept := _read_file(common / name))}


def _files(
    repository: Repository, named: Named, before: Mapping[str, SavedFile] | None
) -> Iterator[Path]:
    """The files that git or a hook reads, but for objects, refs and index.

    A hooks folder that is a link counts as a file itself. The files behind it count only if the
    link was the same before: a new link leads to files that are none of this repository's.
    """
    common, own = repository.common, repository.own
    homes = [common, *_submodules(common)]
    for home in homes:
        yield from (home / name for name in _SETTINGS)
        for name in _BELOW:
            yield from _below(home / name, _TRACES_IN_INFO)
    yield from _of_worktrees(common)
    yield from map(Path, named.included)
    # What a merge or rebase leaves for the next command; of other working trees it is not ours.
    yield from (
        file
        for file in _below(own, _TRACES)
        if file.suffix != ".lock" and not file.name.startswith("sharedindex.")
    )
    for folder in [*(home / _HOOKS for home in homes), *([Path(named.hooks)] * bool(named.hooks))]:
        if folder.is_symlink():
            yield folder
            known = None
            if before is not None:
                known = before.get(path_text(os.path.relpath(folder, common)))
            if before is not None and (known is None or known.link != _link_of(folder)):
                continue
        yield from (file for file in _below(folder) if file.suffix != _SAMPLE)


def _below(folder: Path, traces: Collection[str] = ()) -> Iterator[Path]:
    """The files and links below a folder, but for these."""
    for above, below, names in os.walk(folder):
        inside = os.path.relpath(above, folder)
        passed = {
            name for name in [*below, *names] if os.path.normpath(f"{inside}/{name}") in traces
        }
        links = {name for name in below if Path(above, name).is_symlink()}
        below[:] = [name for name in below if name not in links | passed]
        yield from (Path(above, name) for name in sorted({*names, *links} - passed))


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


def remove_empty_states(own: Path) -> None:
    """Remove the empty folders that would say that a rebase or cherry-pick is unfinished."""
    for name in _STATES:
        for folder, _, _ in os.walk(own / name, topdown=False):
            with suppress(OSError):
                Path(folder).rmdir()


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
    repository: Repository, marker: str, before: GitFiles, branch: str | None, *, index: bool = True
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
    repository: Repository, marker: str, before: GitFiles, paths: Collection[str]
) -> None:
    """Reset the index entries of these paths to those of the index ``before``; others stay."""
    lines: list[str] = []
    for path in sorted(paths):
        lines.append(f"0 {'0' * (64 if repository.sha256 else 40)}\t{path}")
        was = before.listed.get(path_text(path), [])
        lines += [f"{mode} {blob} {stage}\t{path}" for _, mode, blob, stage in was]
    told = os.fsencode("".join(f"{line}\0" for line in lines))
    await repository.git(marker)("update-index", "-z", "--index-info", stdin=told)
