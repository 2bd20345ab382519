"""Burr with async actions: one that leads to itself; its async SQLite persister."""

from __future__ import annotations

import asyncio
import tempfile
import uuid

from burr.core import ApplicationBuilder, State, action, expr
from burr.integrations.persisters.b_aiosqlite import AsyncSQLitePersister
from common import report


@action(reads=["count"], writes=["count"])
async def one(state: State) -> State:
    """What each step does, and where it ends."""
    return state.update(count=state["count"] + 1)


async def steps(count: int, folder: str = "") -> None:
    """So many actions, one after the other; each state is in a file before the next begins."""
    builder = ApplicationBuilder().with_actions(one=one, done=one.bind())
    ends = ("one", "done", expr(f"count >= {count}"))
    builder = builder.with_transitions(ends, ("one", "one")).with_state(count=0)
    builder = builder.with_entrypoint("one").with_identifiers(app_id=uuid.uuid4().hex)
    file = f"{folder}/burr.db" if folder else ":memory:"
    async with AsyncSQLitePersister.from_values(file) as kept:
        if folder:
            await kept.initialize()
            builder = builder.with_state_persister(kept)
        _, _, state = await (await builder.abuild()).arun(halt_before=["done"])
    assert state["count"] == count


def durable(count: int) -> None:
    """The same in a file."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(steps(count, folder))


report("burr", lambda count: asyncio.run(steps(count)), durable, of="async")
