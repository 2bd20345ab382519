"""``.answer()``, a default for an agent's answer, and names with a slash in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from handrail import (
    Agent,
    AgentError,
    AgentReply,
    AgentResult,
    Executor,
    ReplayMismatch,
    Steps,
    Usage,
    WrongUse,
    step,
    workflow,
)
from handrail.testing import FakeAgent, FakeBackend, Script, TextJournal
from tests.engine.support import RUN, boom, just, same


@dataclass
class Plan:
    """What an agent answers."""

    parts: list[str]


def planner(*replies: Any) -> Agent[Plan]:
    """An agent of plans."""
    return Agent("planner", "Plan.", output=Plan, backend=FakeBackend(list(replies)))


async def test_the_answer_itself_can_be_the_output() -> None:
    """Live, replayed from text, in a script and by a fake; its usage still counts for the run."""
    used = Usage(input_tokens=3, output_tokens=4)
    journal, agent = TextJournal(), planner(AgentReply('{"parts": ["a"]}', usage=used))

    @workflow(name="flow")
    def flow(*, fails: bool = True) -> Steps[Any]:
        plan = yield from step("plan").agent(agent, {}).answer().retry(2)
        yield from step("later").call(boom if fails else same)
        return plan.parts

    await Executor(journal=journal).options(run_id=RUN).run(flow)

    @workflow(name="flow")
    def mended() -> Steps[Any]:
        return (yield from flow.definition.function(fails=False))

    result = await Executor(journal=journal).resume(RUN, mended)
    assert (result.value, len(agent.backend.turns)) == (["a"], 1)  # type: ignore[union-attr]
    assert result.step("plan").output == Plan(["a"])
    assert result.step("plan").usage == used
    by_hand = Script(flow, fails=False)
    by_hand.expect("plan").returns(Plan(["b"]))
    by_hand.expect("later").returns(None)
    assert by_hand.finish().value == ["b"]
    fake = FakeAgent("planner", [Plan(["c"])])
    replaced = await Executor(agents={"planner": fake}).run(flow, fails=False)
    assert replaced.value == ["c"]


async def test_whether_the_answer_is_wanted_is_part_of_the_step() -> None:
    """A record of the one is no output of the other."""
    agent = planner('{"parts": []}')
    journal = TextJournal()
    first = just(step("plan").agent(agent, {}), step("x").call(boom))
    await Executor(journal=journal).options(run_id=RUN).run(first)
    with pytest.raises(ReplayMismatch):
        await Executor(journal=journal).resume(RUN, just(step("plan").agent(agent, {}).answer()))


async def test_a_default_stands_for_the_answer() -> None:
    """In the result, or as the output; a default of the step is another thing."""
    gone = AgentError("planner", "gone", kind="bad_request")
    whole = await Executor().run(just(step("x").agent(planner(gone), {}, default=None)))
    assert (whole.value, whole.step("x").status) == (AgentResult(None), "defaulted")
    bare = await Executor().run(just(step("x").agent(planner(gone), {}, default=3).answer()))
    assert (bare.value, bare.degraded) == (3, True)


def test_what_is_no_agent_is_said() -> None:
    """A class, and a step that has no answer."""
    with pytest.raises(WrongUse, match=r"got the class FakeAgent.*FakeAgent\(\.\.\.\)"):
        step("x").agent(FakeAgent, {})  # type: ignore[call-overload]
    no_agent: Any = step("x").call(int)
    with pytest.raises(WrongUse, match=r"\.answer\(\) is for \.agent\(\), this is a python step"):
        no_agent.answer()


async def test_a_name_may_have_a_slash_in_it() -> None:
    """It is part of no path: it is encoded as a key of ``for_each`` is."""
    names = ["src/app.py", "docs/how-to/a%b.md"]

    @workflow
    def flow() -> Steps[Any]:
        for name in names:
            yield from step(f"review {name}").call(same, name)
        yield from step("each").for_each(names, lambda name: step("x").call(same, name), key=str)

    result = await Executor(journal=TextJournal()).run(flow)
    paths = [one.path for one in result.step_results]
    assert paths[:2] == ["review src%2Fapp.py", "review docs%2Fhow-to%2Fa%25b.md"]
    assert "each/src%2Fapp.py/x" in paths
