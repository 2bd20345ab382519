"""What a step with an agent costs between its verb and its backend."""

from __future__ import annotations

import sys
from collections import Counter
from types import CodeType, FrameType
from typing import Any

import pytest

import handrail
from handrail import Agent, AgentOptions, Executor, FakeBackend, Steps, step, workflow
from handrail.agents.routes import routes_of
from handrail.model.agent_options import nearest
from handrail.ports.agent import AgentTurn

_HOUSE = handrail.__file__.removesuffix("__init__.py")
_MOST_CALLS = 250
"""Calls of our own functions in such a step; 234 when this was written, 339 before."""
_STEPS = 20


def calls_of(steps: int, turns: list[AgentTurn]) -> Counter[CodeType]:
    """How often each function of the package was called in a run of so many agent steps."""

    def answer(turn: AgentTurn) -> str:
        turns.append(turn)
        return "done"

    options = AgentOptions(model="m", env={"A": "1"})
    agent = Agent("a", "Do {{ it }}.", backend=FakeBackend([answer] * steps), options=options)

    @workflow
    def flow() -> Steps[None]:
        for number in range(steps):
            yield from step(f"s{number}").agent(agent, {"it": number})

    found: Counter[CodeType] = Counter()

    def count(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_HOUSE):
            found[frame.f_code] += 1

    executor = Executor(agent_options=AgentOptions(env={"B": "2"}, idle_timeout_s=60))
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        assert executor.run_sync(flow).success
    finally:
        sys.setprofile(before)
    return found


@pytest.fixture(scope="module")
def calls() -> Counter[CodeType]:
    """What one step more costs, times ``_STEPS``."""
    calls_of(1, [])
    return calls_of(2 * _STEPS, []) - calls_of(_STEPS, [])


def test_options_are_resolved_once_a_step(calls: Counter[CodeType]) -> None:
    """No step chooses its chain of backends twice, and none checks its options anew."""
    init: Any = AgentOptions.__init__
    assert calls[routes_of.__code__] == _STEPS
    assert calls[nearest.__code__] == _STEPS
    assert calls[init.__code__] == 0


def test_a_turn_has_the_options_of_all_levels() -> None:
    """What the backend gets is complete, whichever level set it."""
    turns: list[AgentTurn] = []
    calls_of(1, turns)
    assert turns[0].options == AgentOptions(model="m", env={"A": "1", "B": "2"}, idle_timeout_s=60)


def test_a_step_of_an_agent_costs_no_more_calls_than_it_did(calls: Counter[CodeType]) -> None:
    """The way of a step to its backend and back stays as short as it is."""
    assert calls.total() / _STEPS <= _MOST_CALLS
