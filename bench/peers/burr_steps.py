"""Burr: a state machine of one action that leads to itself; its SQLite persister."""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path
from typing import Any

from burr.core import ApplicationBuilder, State, action, expr
from burr.core.persistence import SQLitePersister
from common import report


@action(reads=["count"], writes=["count"])
def one(state: State) -> State:
    """What each step does."""
    return state.update(count=state["count"] + 1)


@action(reads=["count"], writes=[])
def done(state: State) -> State:
    """Where it ends."""
    return state


def run(count: int, persister: Any = None) -> None:
    """So many actions, one after the other."""
    builder = (
        ApplicationBuilder()
        .with_actions(one=one, done=done)
        .with_transitions(("one", "one", expr(f"count < {count}")), ("one", "done"))
        .with_state(count=0)
        .with_entrypoint("one")
        .with_identifiers(app_id=uuid.uuid4().hex)
    )
    if persister is not None:
        builder = builder.with_state_persister(persister)
    _, _, state = builder.build().run(halt_after=["done"])
    assert state["count"] == count


def durable(count: int) -> None:
    """Each action's state is in the file before the next begins."""
    with tempfile.TemporaryDirectory() as folder:
        persister = SQLitePersister.from_values(str(Path(folder) / "burr.db"))
        persister.initialize()
        run(count, persister)


report("burr", run, durable, of="plain")
