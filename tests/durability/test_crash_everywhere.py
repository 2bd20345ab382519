"""Workflows as people write them survive a SIGKILL at every record, on a real file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from handrail import AgentResult, Executor, Limits, Steps, current, step, workflow
from handrail.model import events as ev
from handrail.model.shapes import AgentRequest
from handrail.ports.journal import Journal
from handrail.testing import Crashes, JumpClock, plugin
from tests.durability import flows
from tests.durability.flows import FLOWS

CrashEverywhere = Callable[..., Crashes]
crash_everywhere = (
    plugin.crash_everywhere
)  # where handrail is not installed pytest does not find it

HELP: dict[str, Any] = {
    "answers": {"merge?": "no", "both/sure?": "yes"},
    "signals": {"go": [1, 2]},
}
IN_CI = 3


def jumping(journal: Journal) -> Executor:
    """An executor that waits for nothing in real time."""
    return Executor(journal=journal, clock=JumpClock())


@pytest.mark.parametrize("name", FLOWS)
def test_it_survives_crashes(crash_everywhere: CrashEverywhere, name: str) -> None:
    """Killed at places spread over its record, it ends as it would have."""
    flow, args = FLOWS[name]
    told = crash_everywhere(flow, *args, executor=jumping, limit=IN_CI, **HELP)
    assert told.crashes == IN_CI


def test_a_step_that_must_not_run_twice_does_not(crash_everywhere: CrashEverywhere) -> None:
    """Where the process died in the middle of it, the body is told, and handles it."""
    told = crash_everywhere(flows.buys, executor=jumping, limit=IN_CI)
    assert told.executions["charge"] == 1
    assert told.interrupted > 0


def test_a_limit_that_asks_survives_crashes(crash_everywhere: CrashEverywhere) -> None:
    """What is kept out of a group until somebody allows it is done, whenever the process dies."""
    flow = workflow(many)

    def bounded(journal: Journal) -> Executor:
        limits = Limits(max_steps=3, on_breach="ask")
        return Executor(journal=journal, clock=JumpClock(), limits=limits)

    answers = {f"limits.max_steps~{n}": "allow" for n in (1, 2, 3)}
    told = crash_everywhere(flow, executor=bounded, answers=answers, limit=IN_CI)
    assert told.crashes == IN_CI


def many() -> Steps[Any]:
    """More steps than are allowed, side by side and one after another."""
    done = yield from step("each").for_each(range(5), lambda n: step("x").call(int, n))
    yield from step("last").call(int, 5)
    return done.output


@pytest.mark.soak
@pytest.mark.parametrize("name", FLOWS)
def test_it_survives_every_crash_and_a_second_one(
    crash_everywhere: CrashEverywhere, name: str
) -> None:
    """Killed at every record, and once more while it is resumed, it ends as it would have."""
    flow, args = FLOWS[name]
    told = crash_everywhere(flow, *args, executor=jumping, twice=True, **HELP)
    assert told.left_out == 0
    assert told.crashes >= 2 * len(told.records)


class Told:
    """An agent that waits to be told something, and answers with that."""

    name = "told"

    async def run(self, request: AgentRequest) -> AgentResult[str]:
        """What it was told, once it is."""
        request.emit(ev.AgentSessionStarted(request.path, "s-1", self.name))
        words = (*request.launch.said, *request.launch.guidance)
        if not words:
            await anyio.sleep_forever()
        return AgentResult(" ".join(words))


def people() -> None:
    """All that people do to the run; each of it once, however often this is performed."""
    run_id, journal = current().run_id, current().services["journal"]
    hand = Executor(journal=journal)
    events = [letter.event for letter in journal.letters(run_id, 0)]
    done = {one.action for one in events if isinstance(one, ev.RunSteered)}
    if "guide" not in done:
        hand.guide_sync(run_id, "tabs", path="both/told")
    if "complete" not in done:
        hand.complete_sync(run_id, "given", "4")
    if "skip" not in done:
        hand.skip_sync(run_id, "skipped")


@workflow
def helped() -> Steps[Any]:
    """Told, given and skipped by people, while it is driven."""
    told = step("told").agent(Told(), {}).answer()
    both = yield from step("both").parallel(told, step("people").call(people))
    given = yield from step("given").call(int, "3")
    skipped = yield from step("skipped").call(int, "x").skip_on_error()
    return both, given, bool(skipped)


def test_what_people_do_survives_crashes(crash_everywhere: CrashEverywhere) -> None:
    """It counts once and to the same end, whenever the process dies, also between a message and its
    record, and between that and what follows from it.
    """

    def of_people(journal: Journal) -> Executor:
        return Executor(journal=journal, clock=JumpClock(), services={"journal": journal})

    told = crash_everywhere(helped, executor=of_people, limit=IN_CI)
    assert told.crashes == IN_CI
    assert "AgentGuided of 'both/told'" in told.records
