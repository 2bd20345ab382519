"""Recovery determinism: what a recovery does follows from the record alone."""

from __future__ import annotations

from typing import Any

from handrail import Executor
from tests.durability.flows import FLOWS
from tests.durability.support import (
    LEAVES,
    RUN,
    Lives,
    essence,
    every_crash,
    every_flow,
    lives,
)


@every_flow
def test_recovery_determinism(name: str) -> None:
    """Whoever resumes the same record does, and writes, the same."""
    for writes, returns in every_crash(name):
        died = lives(name)
        if died.live(stop_at=writes, abrupt=not returns) is None:
            assert recovery(name, died) == recovery(name, died)


def recovery(name: str, died: Lives) -> Any:
    """What somebody who finds a copy of this record makes of it."""
    twin = lives(name)
    twin.journal = died.journal.copied()
    twin.clock.set(died.clock.now())
    result = twin.live()
    assert result is not None
    written = [(one.kind, one.path, one.body, one.value) for one in twin.journal.records(RUN)]
    return essence(result), twin.did, written


@every_flow
def test_a_plan_says_what_a_recovery_does(name: str) -> None:
    """Nothing of what ``plan`` calls recorded is performed, and all leaves that it says will run
    are; it writes nothing.
    """
    flow, _ = FLOWS[name]
    for writes, returns in every_crash(name):
        run = lives(name)
        if run.live(stop_at=writes, abrupt=not returns) is not None or run.at_its_end():
            continue
        found = run.journal.reopened()
        before = found.records(RUN)
        plan = Executor(journal=found, clock=run.clock).plan_sync(RUN, flow)
        assert found.records(RUN) == before
        story = run.through()
        performed = {did.path for did in story.did if did.life and did.kind == "attempt"}
        states = {one.path: one.state for one in plan.steps}
        assert not {path for path in performed if states.get(path) == "recorded"}
        for one in plan.steps:
            if one.step_type in LEAVES and one.state == "will run":  # itself, or its fallback
                assert any(f"{path}/".startswith(f"{one.path}/") for path in performed), one
