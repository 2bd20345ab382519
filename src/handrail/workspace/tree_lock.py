"""The lock of a working tree: one at a time takes the state of its files, or puts some back.

It is held for moments only. Who writes what is a matter of claims (see ``claims``).
"""

from __future__ import annotations

import fcntl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import anyio

from handrail.workspace.places import Places

_POLL_S = 0.02


@asynccontextmanager
async def tree_locked(places: Places) -> AsyncGenerator[None]:
    """Only one is in here, of all tasks and processes. The lock is the system's own: it ends with
    its process.
    """
    places.make()
    with places.tree_lock.open("a+b") as lock:
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            await anyio.sleep(_POLL_S)
        yield
