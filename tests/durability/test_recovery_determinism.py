"""Recovery determinism: what a recovery does follows from the record alone."""

from __future__ import annotations

from typing import Any

from handrail import Executor
from handrail.model import events as ev
from tests.durability.flows import FLOWS
from tests.durability.support import (
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
    for writes, returns in every_crash(name)[1::2]:
        died = lives(name)
        if died.live(stop_at=writes, abrupt=not returns) is None:
            assert recovery(died) == recovery(died)


def recovery(died: Lives) -> Any:
    """What somebody who finds a copy of this record makes of it; which of two threads is the faster
    one is nobody's to say, so the order of what was done and written is left out.
    """
    twin = died.twin()
    result = twin.live()
    assert result is not None
    written = [(one.kind, one.path, one.body, one.value or "") for one in twin.journal.records(RUN)]
    return essence(result), sorted(map(repr, twin.did)), sorted(written)


@every_flow
def test_a_plan_says_what_a_recovery_does(name: str) -> None:
    """What ``plan`` calls recorded is not performed, what it says will run has no end yet, and it
    writes nothing.
    """
    flow, _ = FLOWS[name]
    for writes, returns in every_crash(name)[::2]:
        run = lives(name)
        if run.live(stop_at=writes, abrupt=not returns) is not None or run.at_its_end():
            continue
        found = run.journal.reopened()
        before = found.records(RUN)
        plan = Executor(journal=found, clock=run.clock).plan_sync(RUN, flow)
        assert found.records(RUN) == before
        story = run.through()
        performed = {did.path for did in story.did if did.life and did.kind == "attempt"}
        assert performed.isdisjoint(one.path for one in plan.steps if one.state == "recorded")
        ended = {one.path for one in story.found[-1] if isinstance(one, ev.StepCompleted)}
        assert ended.isdisjoint(one.path for one in plan.steps if one.state == "will run")
