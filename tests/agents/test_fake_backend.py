"""A scripted backend says what it was told to say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from handrail.agents.agent import Agent
from handrail.agents.fake import FakeBackend
from handrail.errors import AgentError, WrongUse
from handrail.model.shapes import AgentRequest
from handrail.ports.agent import AgentBackend, AgentReply, AgentTurn
from handrail.testing.contracts.backend import BackendContract


def turn(agent: str = "worker", number: int = 1, **more: Any) -> AgentTurn:
    """A prompt for the script."""
    return AgentTurn(agent=agent, prompt="Do it.", run_id="run-1", path="step", turn=number, **more)


class TestFakeBackend(BackendContract):
    @pytest.fixture
    def make_backend(self) -> Callable[[str], AgentBackend]:
        """A script of the same text, ten times."""
        return lambda answer: FakeBackend([answer] * 10)

    @pytest.fixture
    def failing_backend(self) -> AgentBackend:
        """A script without replies."""
        return FakeBackend([])

    @pytest.fixture
    def endless_backend(self) -> AgentBackend:
        """A reply that never comes."""
        return FakeBackend([anyio.sleep_forever])


async def test_replies_come_in_order() -> None:
    """Text, JSON values, replies and callables are given one a turn, as they were written."""

    async def later(asked: AgentTurn) -> str:
        return f"later: {asked.prompt}"

    reply = AgentReply("whole", model="m")
    backend = FakeBackend(["text", {"a": [1]}, reply, lambda: 7, later])
    given = [await backend.complete(turn(number=number)) for number in range(1, 6)]
    assert given == [
        AgentReply("text"),
        AgentReply('{"a": [1]}', value={"a": [1]}, has_value=True),
        reply,
        AgentReply("7", value=7, has_value=True),
        AgentReply("later: Do it."),
    ]
    assert repr(backend) == "<FakeBackend 'fake', 5 turns so far>"
    assert [asked.turn for asked in backend.turns] == [1, 2, 3, 4, 5]


async def test_exceptions_are_raised() -> None:
    """An exception is raised: an instance, a class, or one that a callable returns or raises."""

    def broken() -> str:
        raise KeyError("raised")

    backend = FakeBackend([ValueError("one"), TimeoutError, lambda _: OSError("three"), broken])
    for error, said in (
        (ValueError, "one"),
        (TimeoutError, None),
        (OSError, "three"),
        (KeyError, "raised"),
    ):
        with pytest.raises(error, match=said):
            await backend.complete(turn())


async def test_an_exception_that_is_raised_twice_brings_no_old_frames() -> None:
    """One instance in the script twice has the same traceback both times."""
    error = ValueError("again")
    backend = FakeBackend([error, error])
    depths: list[int] = []
    for _ in range(2):
        with pytest.raises(ValueError, match="again") as caught:
            await backend.complete(turn())
        depths.append(len(caught.traceback))
    assert depths[0] == depths[1]


async def test_running_out_says_for_whom_and_after_how_many() -> None:
    """The error names the agent, its turn, and the number of replies."""
    backend = FakeBackend(["only"])
    await backend.complete(turn())
    with pytest.raises(AgentError) as caught:
        await backend.complete(turn(number=2))
    assert str(caught.value) == (
        "agent 'worker': FakeBackend has no reply left for agent 'worker' (turn 2): "
        "it was given 1 reply"
    )


async def test_each_agent_can_have_replies_of_its_own() -> None:
    """A mapping by agent name keeps their replies apart, in whatever order they ask."""
    backend = FakeBackend({"a": ["a1", "a2"], "b": ["b1"]})
    given = [(await backend.complete(turn(agent))).text for agent in ("a", "b", "a")]
    assert given == ["a1", "b1", "a2"]
    with pytest.raises(AgentError, match="no replies for this agent, only for 'a', 'b'"):
        await backend.complete(turn("c"))


async def test_delays_pass_on_the_clock_of_the_turn(
    make_request: Callable[..., AgentRequest], slept: list[float]
) -> None:
    """Each reply waits on the executor's clock, so that one that jumps needs no time."""
    agent = Agent("worker", "Do it.", backend=FakeBackend(["a", "b"], delay=3600))
    await agent.run(make_request())
    await agent.run(make_request())
    assert slept == [3600.0, 3600.0]


@pytest.mark.parametrize("replies", ["text", b"bytes", 3, {"a": "text"}])
def test_replies_must_be_a_list(replies: Any) -> None:
    """One text is not taken for a list of letters."""
    with pytest.raises(WrongUse, match=r"takes a list of replies, got .* write \[reply\]"):
        FakeBackend(replies)
