"""The repositories within a worktree: which are work of somebody, and which can be had again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

import anyio.to_thread

from handrail.errors import CommandFailed
from handrail.model.dataclass import dataclass
from handrail.workspace.git import Repository, repository_of
from handrail.workspace.shadow import shadow_for_a_time

_GIT = ".git"


@dataclass(frozen=True, slots=True)
class Nested:
    """Repositories in a worktree, by their paths in it.

    ``carried`` are folders of their own, which can be moved as they are. ``stuck`` have work that
    is nowhere else, and git directories elsewhere: submodules, worktrees of others.
    """

    carried: tuple[str, ...] = ()
    stuck: tuple[str, ...] = ()


async def nested_in(
    here: Repository, ignored: Collection[str], tracked: Collection[str], marker: str
) -> Nested:
    """The repositories in a worktree that have work of somebody.

    ``ignored`` are folders that git ignores; a repository there counts only if its work is nowhere
    else. ``tracked`` are the worktree's files and submodules.
    """
    found = await anyio.to_thread.run_sync(lambda: list(_find(here.root)))
    carried: list[str] = []
    stuck: list[str] = []
    for path in found:
        is_ignored = any(f"{path}/".startswith(f"{folder}/") for folder in ignored)
        own = here.root / path / _GIT
        movable = own.is_dir() and not own.is_symlink()
        outer = any(one == path or one.startswith(f"{path}/") for one in tracked)
        if movable and not outer and not is_ignored:
            carried.append(path)
        elif await _has_work(here, path, marker):
            (carried if movable and not outer else stuck).append(path)
    return Nested(tuple(carried), tuple(stuck))


def _find(root: Path) -> Iterator[str]:
    waiting = [""]
    while waiting:
        above = waiting.pop()
        try:
            with os.scandir(root / above) as entries:
                inside = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            continue
        if above and any(entry.name.lower() == _GIT for entry in inside):
            yield above
            continue
        waiting += [
            f"{above}/{entry.name}" if above else entry.name
            for entry in inside
            if entry.is_dir(follow_symlinks=False) and entry.name.lower() != _GIT
        ]


async def _has_work(here: Repository, path: str, marker: str) -> bool:
    """True unless all that the repository has is in another one, too."""
    folder = here.root / path
    try:
        inner = await repository_of(folder, marker)
        if inner is None or inner.root != folder.resolve():
            return True
        git = inner.git(marker)
        shared = inner.common == here.common
        kept = ("--branches", "--tags", "--remotes") if shared else ("--remotes",)
        more = () if shared else ("--branches", "--tags", "--glob=refs/stash")
        if await git("rev-list", "-1", "HEAD", *more, "--not", *kept):
            return True
        with shadow_for_a_time(inner.root, inner, marker) as shadow:
            head = await git.commit("HEAD")
            return (await shadow.state(head)).tree != await git.tree(head)
    except CommandFailed:
        return True


def move(source: Path, target: Path) -> None:
    """Move a folder, also to another disk."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_dir() and not target.is_symlink():
        target.rmdir()  # empty: see ``blocked``
    shutil.move(source, target)


def blocked(target: Path) -> bool:
    """True if something is where a repository is to be moved to."""
    above = [parent for parent in target.parents if os.path.lexists(parent)]
    if above and (above[0].is_symlink() or not above[0].is_dir()):
        return True
    if target.is_dir() and not target.is_symlink():
        return any(target.iterdir())
    return os.path.lexists(target)
