"""What git keeps of a working tree beside its files: HEAD, index, hooks, settings.

An agent may change these too: by a commit, by ``git add``, or by hand. They are looked at before a
launch, and what was changed can be put back.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from handrail.system.git import Repository, head_of

_SETTINGS = ("config", "info/exclude", "info/attributes")
_SAMPLE = ".sample"
_LARGEST = 1 << 20


@dataclass(frozen=True, slots=True)
class Kept:
    """A file's bytes, mode and time."""

    data: bytes
    mode: int
    at_ns: int

    def same(self, other: Kept | None) -> bool:
        """True if it is the same file but for its time."""
        return other is not None and (self.data, self.mode) == (other.data, other.mode)


@dataclass(frozen=True, slots=True)
class Inside:
    """HEAD as a commit (None: there is none yet) and as a branch (None: it is on none), the index,
    and the hooks and settings by their names within the git directory.
    """

    head: str | None
    branch: str | None
    index: Kept | None
    files: dict[str, Kept]


async def inside_of(repository: Repository, marker: str) -> Inside:
    """What there is now."""
    git = repository.git(marker)
    _, branch, _ = await git.ends("symbolic-ref", "--quiet", "HEAD")
    files = {name: kept for name in _names(repository) if (kept := _kept(repository.common / name))}
    return Inside(await head_of(git), branch.strip() or None, _index(repository), files)


def _names(repository: Repository) -> list[str]:
    hooks = repository.common / "hooks"
    found = sorted(hooks.iterdir()) if hooks.is_dir() else []
    return [
        *_SETTINGS,
        *(f"hooks/{f.name}" for f in found if f.suffix != _SAMPLE and f.name.isprintable()),
    ]


def _index(repository: Repository) -> Kept | None:
    return _kept(repository.own / "index", largest=None)


def _kept(file: Path, largest: int | None = _LARGEST) -> Kept | None:
    try:
        known = file.stat()
        if not file.is_file() or (largest is not None and known.st_size > largest):
            return None
        return Kept(file.read_bytes(), known.st_mode & 0o777, known.st_mtime_ns)
    except OSError:
        return None


def put_back(repository: Repository, name: str, wanted: Kept | None) -> None:
    """Make a file in the git directory what it was; with None, remove it."""
    _write(repository.common / name, wanted)


def _write(file: Path, wanted: Kept | None) -> None:
    if file.is_symlink() or wanted is None:
        file.unlink(missing_ok=True)
    if wanted is None:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(wanted.data)
    file.chmod(wanted.mode)
    # An index that were younger than it is would take files for unchanged that were changed since.
    os.utime(file, ns=(wanted.at_ns, wanted.at_ns))


async def rewind(repository: Repository, marker: str, before: Inside, after: Inside) -> None:
    """Put HEAD, its branch and the index back to where they were."""
    git = repository.git(marker)
    if before.branch is not None:
        if after.branch != before.branch:
            await git("symbolic-ref", "HEAD", before.branch)
        if before.head is None:
            await git("update-ref", "-d", before.branch)
        else:
            await git("update-ref", before.branch, before.head)
    elif before.head is not None:
        await git("update-ref", "--no-deref", "HEAD", before.head)
    now = _index(repository)
    if before.index is not None and not before.index.same(now):
        _write(repository.own / "index", before.index)
    elif before.index is None and now is not None:
        _write(repository.own / "index", None)
