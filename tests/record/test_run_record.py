"""A run's record: one fold of its events."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from handrail import Executor, MemoryJournal
from handrail.record.run_record import Recorded
from handrail.testing.shapes import Body, workflow_of
from handrail.testing.strategies import bodies
from tests.engine.support import Jumping

pytestmark = pytest.mark.usefixtures("outside_git")


def content(recorded: Recorded) -> dict[str, Any]:
    """All that a record holds, as plain data."""
    states = {path: msgspec.structs.asdict(state) for path, state in recorded.items()}
    gaps = {path: msgspec.structs.asdict(state) for path, state in recorded.begun().items()}
    fields = {
        name: value
        for name, value in vars(recorded).items()
        if name not in {"_paths", "_gaps", "accounts"}
    }
    spent = {path: one.spent(alive=False) for path, one in recorded.accounts.items()}
    return {**fields, "paths": states, "begun": gaps, "spent": spent}


@settings(suppress_health_check=list(HealthCheck))
@given(body=bodies(), data=st.data())
def test_a_record_read_in_parts_is_the_one_read_at_once(body: Body, data: Any) -> None:
    """Also of runs that were killed anywhere, and resumed, run again, cancelled or forked."""
    flow, journal = workflow_of(body), MemoryJournal()
    run = Executor(journal=journal, clock=Jumping(), durable=True).run_sync(flow).run_id
    history = list(journal.events(run))
    for _ in range(data.draw(st.integers(1, 2))):
        killed = MemoryJournal()
        killed.append_run(history[: data.draw(st.integers(1, len(history)))])
        executor = Executor(journal=killed, clock=Jumping(), workflows=[flow], durable=True)
        match data.draw(st.sampled_from(["resume", "cancel", "fork"])):
            case "resume":
                executor.resume_sync(run, flow)
            case "cancel":
                executor.cancel_sync(run, workflow=flow)
            case _:
                run = executor.fork_sync(run)
                executor.resume_sync(run, flow)
        history = list(killed.events(run))
    cut = data.draw(st.integers(0, len(history)))
    recorded = Recorded(history[:cut])
    recorded.take(history[cut:])
    assert content(recorded) == content(Recorded(history))
