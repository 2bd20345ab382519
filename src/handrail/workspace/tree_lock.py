"""Locks that are held for moments: of a working tree's state, and of git's list of worktrees.

Who writes what is a matter of claims (see ``claims``).
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
    """Only one is in here, of all tasks and processes, that takes the state of a working tree, or
    puts some of its files back.
    """
    places.make()
    async with _locked(places.tree_lock):
        yield


@asynccontextmanager
async def list_locked(repository: Repository) -> AsyncGenerator[None]:
    """Only one is in here that adds a worktree to those of a repository, or removes one: git's own
    commands for that are not made to be run at the same time.
    """
    folder = repository.common / "handrail"
    _make(folder)
    async with _locked(folder / "worktrees.lock"):
        yield


def _make(folder: Path) -> None:
    folder.mkdir(exist_ok=True)


@asynccontextmanager
async def _locked(file: Path) -> AsyncGenerator[None]:
    """The lock is the system's own: it ends with its process."""
    with file.open("a+b") as lock:
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            await anyio.sleep(_POLL_S)
        yield
