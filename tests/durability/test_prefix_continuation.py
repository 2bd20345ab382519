"""From any prefix of its record a run goes on: as its plan says, as anybody would, to its end."""

from __future__ import annotations

from handrail import Executor
from handrail.model import events as ev
from handrail.model.plan import Plan
from tests.durability.support import (
    RUN,
    SOAKING,
    Lives,
    Story,
    backends,
    essence,
    every_crash,
    every_flow,
    hold,
    lives,
)


@backends
@every_flow
def test_prefix_continuation(name: str, backend: str) -> None:
    """It keeps the prefix, and ends as it would; what it performs is planned, and decided by the
    record alone. The soak tries every prefix.
    """
    whole = lives(name, backend).through()
    for writes, returns in every_crash(name)[:: 1 if SOAKING else 3]:
        run = lives(name, backend)
        died = run.live(stop_at=writes, abrupt=not returns)
        if died is not None or run.at_its_end():
            story = run.story(died) if died is not None else run.through()
        elif returns:
            twin = run.twin()
            story = run.through()
            assert recovery(run, story) == recovery(twin, twin.through()), writes
        else:
            plan = plan_of(run)
            story = run.through()
            does_as_planned(story, plan)
        hold(story)
        assert essence(story.result) == essence(whole.result), writes
        performs_again_only_what_was_at_work(story, whole)


def plan_of(run: Lives) -> Plan:
    """The plan of a run that has died; to make it writes nothing."""
    found = run.journal.reopened()
    before = found.records(RUN)
    plan = Executor(journal=found, clock=run.clock).plan_sync(RUN, run.flow)
    assert found.records(RUN) == before
    return plan


def does_as_planned(story: Story, plan: Plan) -> None:
    """What ``plan`` calls recorded is not performed, and what it says will run has no end yet."""
    performed = {did.path for did in story.did if did.life and did.kind == "attempt"}
    assert performed.isdisjoint(one.path for one in plan.steps if one.state == "recorded")
    ended = {one.path for one in story.found[-1] if isinstance(one, ev.StepCompleted)}
    assert ended.isdisjoint(one.path for one in plan.steps if one.state == "will run")


def recovery(run: Lives, story: Story) -> tuple[list[str], list[tuple[str, ...]]]:
    """What the last life did and wrote; which of two threads is the faster one is nobody's to say,
    so the order is left out.
    """
    last = len(story.found) - 1
    did = sorted(f"{one.kind} {one.path} {one.attempt}" for one in story.did if one.life == last)
    rows = run.journal.records(RUN)
    return did, sorted((one.kind, one.path, one.body, one.value or "") for one in rows)


def performs_again_only_what_was_at_work(story: Story, whole: Story) -> None:
    """An effect whose end is recorded has happened once, for good; all others happen, too."""
    begun = {(did.kind, did.path, did.attempt) for did in story.did}
    assert begun == {(did.kind, did.path, did.attempt) for did in whole.did}
    recorded = {
        ("attempt", event.path, attempt)
        for event in story.found[-1]
        if isinstance(event, ev.StepCompleted)
        for attempt in range(1, event.result.attempts + 1)
    }
    again = {(did.kind, did.path, did.attempt) for did in story.did if did.life > 0}
    assert again.isdisjoint(recorded)
    assert len(story.did) - len(begun) <= len(begun - recorded)
