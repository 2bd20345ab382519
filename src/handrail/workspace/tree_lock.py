"""Short-lived locks: on a working tree's state, and on git's list of worktrees.

Claims, not these locks, decide who may write which file (see ``claims``).
"""

from __future__ import annotations

import fcntl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio

from handrail.workspace.git import Repository
from handrail.workspace.places import Places

_POLL_S = 0.02


@asynccontextmanager
async def tree_locked(places: Places) -> AsyncGenerator[None]:
    """Lock a working tree's state, to take it or to put files back, among tasks and processes."""
    places.make()
    async with _locked(places.tree_lock):
        yield


@asynccontextmanager
async def list_locked(repository: Repository) -> AsyncGenerator[None]:
    """Lock a repository's list of worktrees, to add or remove one.

    git's commands for that must not run at the same time.
    """
    folder = repository.common / "handrail"
    _make(folder)
    async with _locked(folder / "worktrees.lock"):
        yield


def _make(folder: Path) -> None:
    folder.mkdir(exist_ok=True)


@asynccontextmanager
async def _locked(file: Path) -> AsyncGenerator[None]:
    """Hold the operating system's lock of a file; it ends with this process."""
    with file.open("a+b") as lock:
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            await anyio.sleep(_POLL_S)
        yield
