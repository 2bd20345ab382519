"""Where a folder's repository is, found without git: a launch must not wait for a process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from handrail.model.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Checkout:
    """A working tree: its folder, its own part of the git directory, and the part of them all."""

    root: Path
    own: Path
    common: Path

    @property
    def main(self) -> Path:
        """The main working tree, or this one."""
        return self.common.parent if self.common.name == ".git" else self.root

    def others(self) -> Iterator[Path]:
        """The other working trees of the repository that git knows."""
        for file in sorted(self.common.glob("worktrees/*/gitdir")):
            tree = Path(_text_of(file)).parent
            if tree.is_absolute() and file.parent != self.own and tree != self.main:
                yield tree


@dataclass(frozen=True, slots=True)
class OwnBranch:
    """A worktree of a step's own, where it may commit: on this branch alone.

    What git writes there lies in ``quarantine`` until the host takes it in.
    """

    checkout: Checkout
    branch: str
    quarantine: Path


def checkout_at(folder: Path) -> Checkout | None:
    """The working tree that a folder is in, if git would take it for one; else None."""
    for above in (folder, *folder.parents):
        found = above / ".git"
        if found.is_dir():
            return Checkout(above, found, found) if (found / "HEAD").is_file() else None
        if found.is_file():
            return _linked(above, found)
    return None


def _linked(root: Path, file: Path) -> Checkout | None:
    """A worktree or submodule, if its part of the git directory leads back to it."""
    said = _text_of(file)
    if not said.startswith("gitdir: "):
        return None
    own = Path(os.path.normpath(root / said.removeprefix("gitdir: ")))
    if not (own / "HEAD").is_file():
        return None
    shared = _text_of(own / "commondir")
    if not shared:
        return Checkout(root, own, own)
    leads_back = Path(_text_of(own / "gitdir")) in (file, file.resolve())
    common = Path(os.path.normpath(own / shared))
    return Checkout(root, own, common) if leads_back else None


def _text_of(file: Path) -> str:
    try:
        return os.fsdecode(file.read_bytes()).strip() if file.is_file() else ""
    except OSError:
        return ""
