"""Names in ``Executor(agents=)`` that are no agent's are told of at the end of a run."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from handrail import Agent, Executor, FakeBackend, Steps, step, workflow
from handrail.engine.perform import Replacements
from handrail.testing import FakeAgent
from tests.engine.support import boom, just

PLANNER = Agent("planner", "Plan.", backend=FakeBackend(["real"] * 20))
REVIEWER = Agent("reviewer", "Review.", backend=FakeBackend(["real"] * 20))


@workflow
def planned(review: bool = False) -> Steps[str]:
    """Plan, and review if asked."""
    plan = yield from step("plan").agent(PLANNER)
    if review:
        yield from step("review").agent(REVIEWER)
    return plan.output


def fakes(*names: str) -> dict[str, Any]:
    """An agent for each name."""
    return {name: FakeAgent(name, ["fake"] * 5) for name in names}


async def told(names: list[str], *, review: bool = False) -> list[str]:
    """What the log says of a run with agents of these names."""
    with capture_logs() as logs:
        result = await Executor(agents=fakes(*names)).run(planned, review)
    assert result.success
    assert all(
        (one["event"], one["log_level"]) == ("agents not replaced", "warning") for one in logs
    )
    return [one["notice"] for one in logs]


async def test_a_misspelt_name_is_told_of_with_the_one_that_was_meant() -> None:
    """The run has launched the agent itself; the warning names both."""
    (notice,) = await told(["plannr"])
    assert "no step of this run used: 'plannr' (did you mean 'planner'?)" in notice
    assert "Launched as they are: 'planner'." in notice


async def test_a_name_that_is_like_no_other_is_told_of_too() -> None:
    """Without a guess, beside those that were launched."""
    (notice,) = await told(["planner", "designer_of_things"], review=True)
    assert "used: 'designer_of_things'. Launched as they are: 'reviewer'." in notice


@pytest.mark.parametrize("names", [[], ["planner"], ["planner", "reviewer"]])
async def test_a_run_whose_agents_were_all_replaced_is_not_told_of(names: list[str]) -> None:
    """A step that a run did not come to leaves its fake unused, and nothing was launched by it."""
    assert await told(names) == []


async def test_a_run_that_failed_is_told_of_too() -> None:
    """Then of all times it matters why."""
    flow = just(step("plan").agent(PLANNER), step("fail").call(boom))
    with capture_logs() as logs:
        assert (await Executor(agents=fakes("plannr")).run(flow)).status == "failed"
    assert [one["event"] for one in logs] == ["agents not replaced"]


def test_who_shares_an_executor_is_looked_at_alone() -> None:
    """Two drives with the same agents do not know of one another."""
    agents = fakes("planner")
    used, other = Replacements(agents), Replacements(agents)
    assert used.replacement_for(PLANNER) is agents["planner"]
    assert other.replacement_for(REVIEWER) is REVIEWER
    assert used.warning_text() == ""
    assert "'planner'" in other.warning_text()
