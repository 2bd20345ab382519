"""Answers that are judged: by a function or an agent, on an agent's step and in ``validate``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from handrail import (
    Agent,
    AgentError,
    Budget,
    Executor,
    FakeBackend,
    Limits,
    Steps,
    step,
    workflow,
)
from handrail.errors import WrongUse
from handrail.model.results import Usage
from handrail.ports.agent import AgentReply
from handrail.steps.verbs import Stage
from handrail.testing import JumpClock
from tests.agents.conftest import BOTH_LOOPS


@dataclass
class Verdict:
    """What a judge says."""

    passed: bool
    reason: str = ""


def refuses(answer: str) -> str | None:
    """A check that takes one answer only."""
    return None if answer == "good" else f"{answer} is not good"


async def says_no(answer: str) -> bool:
    """A check without a reason, which is awaited."""
    return answer == "good"


def judge(*verdicts: str, prompt: str = "Is {{ answer }} good?") -> Agent[Any]:
    """An agent that says these verdicts in turn."""
    used = Usage(input_tokens=7, output_tokens=1)
    backend = FakeBackend([AgentReply(one, usage=used) for one in verdicts])
    return Agent("judge", prompt, output=Verdict, backend=backend)


OK, NO = '{"passed": true}', '{"passed": false, "reason": "bad is not good"}'


@BOTH_LOOPS
@pytest.mark.parametrize(
    ("check", "reason"),
    [
        (lambda: refuses, "bad is not good"),
        (lambda: says_no, "it gave no reason"),
        (lambda: judge(NO, OK), "bad is not good"),
    ],
)
async def test_a_refused_answer_is_asked_for_once_more(check: Any, reason: str) -> None:
    """With the reason; what is accepted then is the answer."""
    backend = FakeBackend(["bad", "good"])
    agent = Agent("writer", "Write.", backend=backend)

    @workflow
    def flow() -> Steps[str]:
        answer = yield from step("write").agent(agent, check=check())
        return answer.output

    result = await Executor().run(flow)
    assert (result.success, result.value) == (True, "good"), result.error
    assert reason in backend.turns[1].prompt


@pytest.mark.parametrize("check", [lambda: refuses, lambda: says_no, lambda: judge(NO, NO)])
async def test_an_answer_that_is_refused_twice_fails_the_step(check: Any) -> None:
    """The step's error says what the check said, and that the check said it."""
    backend = FakeBackend(["bad", "bad", "good"])

    @workflow
    def flow() -> Steps[Any]:
        return (yield from step("write").agent(Agent("w", "W.", backend=backend), check=check()))

    result = await Executor().run(flow)
    assert not result.success
    assert "its check refused the answer" in (result.error or "")
    assert len(backend.turns) == 2


async def test_what_a_judge_uses_is_counted() -> None:
    """With what the agent used, accepted or not."""
    used = Usage(input_tokens=100, output_tokens=10)
    writer = FakeBackend([AgentReply(one, usage=used) for one in ("bad", "good")])

    @workflow
    def flow() -> Steps[Any]:
        agent = Agent("w", "W.", backend=writer)
        return (yield from step("write").agent(agent, check=judge(NO, OK)))

    result = await Executor().run(flow)
    assert result.success, result.error
    assert result.usage.input_tokens == 214


async def test_a_judge_that_gives_no_verdict_fails_the_step() -> None:
    """It is not the agent's answer that failed, so the agent is not asked again."""
    writer, silent = FakeBackend(["bad"]), FakeBackend(["no json"])

    @workflow
    def flow() -> Steps[Any]:
        check = Agent("judge", "{{ answer }}?", output=Verdict, backend=silent)
        return (yield from step("write").agent(Agent("w", "W.", backend=writer), check=check))

    result = await Executor().run(flow)
    assert "its check gave no verdict" in (result.error or "")
    assert len(writer.turns) == 1


@BOTH_LOOPS
@pytest.mark.parametrize("is_named", [False, True])
async def test_an_agent_is_a_stage_of_a_validation(is_named: bool) -> None:
    """It fails as a check does, with its reason, and is asked again after the fix."""
    fixed: list[str] = []
    agent = judge(NO, OK, prompt="Is it good?")
    stage = Stage("judge", agent) if is_named else agent

    @workflow
    def flow() -> Steps[Any]:
        fix = step("fix").call(fixed.append, "x")
        return (yield from step("check").validate([stage], on_failure=fix))

    result = await Executor().run(flow)
    assert result.success, result.error
    assert [one.stages[0].error for one in result.value.rounds] == ["bad is not good", None]
    assert fixed == ["x"]
    assert result.usage.input_tokens == 14


async def test_a_name_may_stand_for_a_set_of_stages() -> None:
    """Each of its stages runs once; where all are asked for, a set is none of them."""
    ran: list[str] = []
    stages = {name: lambda name=name: ran.append(name) for name in ("a", "b", "c")}
    executor = Executor(stages={**stages, "quick": {"stages": ["a", "b"]}})

    @workflow
    def flow(which: list[str] | None) -> Steps[Any]:
        return (yield from step("check").validate(which))

    assert (await executor.run(flow, ["quick", "b"])).success
    assert ran == ["a", "b"]
    assert (await executor.run(flow, None)).success
    assert ran[2:] == ["a", "b", "c"]


@pytest.mark.parametrize("check", [Agent("judge", "x"), Agent, "no", 5])
def test_what_gives_no_verdict_is_refused_where_it_is_written(check: Any) -> None:
    """An agent that answers with text, and what is no check at all."""
    with pytest.raises(WrongUse, match="step 'write'"):
        step("write").agent(Agent("w", "W."), check=check)


CHECKED, STAGED = "check=", "validate"


@pytest.mark.parametrize(
    ("where", "budget", "asked"),
    [
        (CHECKED, Budget(launches=1), 0),
        (CHECKED, Budget(launches=2), 2),
        (CHECKED, Budget(launches=4), 4),
        (CHECKED, Budget(tokens=199, reserve_tokens=100), 0),
        (CHECKED, Budget(tokens=400, reserve_tokens=100), 4),
        (STAGED, Budget(launches=1), 1),
        (STAGED, Budget(launches=2), 2),
        (STAGED, Budget(usd=0.15, reserve_usd=0.1), 1),
    ],
)
async def test_a_judge_is_a_launch_of_the_budget(where: str, budget: Budget, asked: int) -> None:
    """It is reserved before it is asked, with the answer that it judges, and counts when it was."""
    used = Usage(input_tokens=100, cost_usd=0.1)
    writer = FakeBackend([AgentReply(one, usage=used) for one in ("bad", "good")])
    verdicts = FakeBackend([AgentReply(one, usage=used) for one in (NO, OK)])
    critic = Agent("judge", "Is it good?", output=Verdict, backend=verdicts)

    @workflow
    def flow() -> Steps[Any]:
        if where == STAGED:
            return (yield from step("check").validate([critic], retry=1))
        return (yield from step("write").agent(Agent("w", "W.", backend=writer), check=critic))

    result = await Executor(limits=Limits(budget=budget)).run(flow)
    assert len(writer.turns) + len(verdicts.turns) == asked
    assert result.success == (asked == (4 if where == CHECKED else 2))


async def test_a_launch_without_an_answer_to_judge_counts_alone() -> None:
    """The place that was kept for the judge is given back."""
    down = AgentError("w", "down", kind="transient")
    writer = FakeBackend([down, "good"])

    @workflow
    def flow() -> Steps[Any]:
        agent = Agent("w", "W.", backend=writer)
        return (yield from step("write").agent(agent, check=judge(OK)))

    executor = Executor(limits=Limits(budget=Budget(launches=3)), clock=JumpClock())
    result = await executor.run(flow)
    assert result.success, result.error


async def test_a_judge_of_a_stage_has_the_ladder_of_an_agent() -> None:
    """A backend that was down for a moment is asked again, and the stage is not failed by it."""
    backend = FakeBackend([AgentError("judge", "down", kind="transient"), OK])
    critic = Agent("judge", "Is it good?", output=Verdict, backend=backend)

    @workflow
    def flow() -> Steps[Any]:
        return (yield from step("check").validate([critic], retry=0))

    result = await Executor(clock=JumpClock()).run(flow)
    assert (result.success, len(backend.turns)) == (True, 2), result.error
