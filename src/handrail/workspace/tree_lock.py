"""The lock of a working tree: one at a time writes into it, of all tasks, runs and processes.

A check of what an agent wrote compares the whole tree with what it was before the launch. So what
anybody else wrote meanwhile would count as the agent's, and be undone.
"""

from __future__ import annotations

import fcntl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

import anyio

from handrail.workspace.places import Places

_POLL_S = 0.02


Teller: TypeAlias = Callable[[str | None], None]


@asynccontextmanager
async def tree_locked(places: Places, waits_for: Teller) -> AsyncGenerator[None, None]:
    """Only one is in here; ``waits_for`` is told which step is, if another one is, and then None.

    The lock is the system's own: it ends with its process.
    """
    places.make()
    with places.tree_lock.open("a+b") as lock:
        told = False
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if not told:
                lock.seek(0)
                waits_for(lock.read(1_000).decode("utf-8", "replace"))
                told = True
            await anyio.sleep(_POLL_S)
        lock.truncate(0)
        lock.write(f"step {places.path!r} of run {places.run_id}".encode())
        lock.flush()
        if told:
            waits_for(None)
        yield
