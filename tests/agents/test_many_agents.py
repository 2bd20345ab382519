"""Many agents at once: nothing that any of them says is missed."""

from __future__ import annotations

from collections import defaultdict

import anyio.lowlevel

from handrail import Agent, AgentTurn, Executor, FakeBackend, MemorySink, Steps, step, workflow
from handrail.model.events import AgentFinished, AgentMessage
from tests.agents.conftest import BOTH_LOOPS

AGENTS, MESSAGES = 200, 20


async def talk(turn: AgentTurn) -> str:
    """Say many things, and let others have their turn after each."""
    for number in range(MESSAGES):
        turn.emit(AgentMessage(turn.path, str(number)))
        await anyio.lowlevel.checkpoint()
    return "done"


@BOTH_LOOPS
async def test_every_word_of_two_hundred_agents_is_heard_in_order() -> None:
    """By a sink and by who follows the run; and each says once that it is done."""
    talker = Agent("talker", "Talk.", backend=FakeBackend([talk] * AGENTS))

    @workflow
    def flow() -> Steps[object]:
        return (
            yield from step("all").for_each(range(AGENTS), lambda _: step("talk").agent(talker))
        )

    sink = MemorySink()
    followed: dict[str, list[str]] = defaultdict(list)
    async with Executor(sinks=[sink]).stream(flow) as run:
        async for event in run:
            if isinstance(event, AgentMessage):
                followed[event.path].append(event.text)
        assert run.result.success
    heard: dict[str, list[str]] = defaultdict(list)
    for event in sink.events:
        if isinstance(event, AgentMessage):
            heard[event.path].append(event.text)
    assert len(heard) == AGENTS
    assert all(texts == [*map(str, range(MESSAGES)), "done"] for texts in heard.values())
    assert followed == heard
    assert sum(isinstance(event, AgentFinished) for event in sink.events) == AGENTS
