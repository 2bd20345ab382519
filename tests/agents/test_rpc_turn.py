"""A turn that is a conversation: it is over when its dialogue says so, and stays so."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from handrail.agents.transport.loose_json import as_object
from handrail.agents.transport.parser import Ending
from handrail.agents.transport.programs import Program
from handrail.agents.transport.rpc import Message, Messages, notification
from handrail.agents.transport.turn import run_turn
from handrail.model.events import AgentTranscript, Notice
from handrail.ports.agent import AgentReply, AgentTurn
from tests.agents.conftest import BOTH_LOOPS
from tests.leftovers import nothing_left

pytestmark = pytest.mark.anyio

FOREVER = "trap 'exit 130' INT; while :; do sleep 0.05; done"


class Methods:
    """Knows two notifications, ``done`` and ``working``, and answers to neither. Mutable."""

    def __init__(self) -> None:
        self.finished = False
        self.open_tools = 0
        self.extra_silence_s = 0.0
        self.heard: list[str] = []
        self.stopped: str | None = None

    def start(self) -> list[Message]:
        """A greeting."""
        return [notification("hello")]

    def on_message(self, message: object, /) -> list[Notice | Message]:
        """Takes the last message for what holds."""
        self.heard.append(as_object(message).get("method", ""))
        self.finished = self.heard[-1] == "done"
        return []

    def interrupt(self) -> list[Message]:
        """There is nothing to say."""
        return []

    def conclude(self, ending: Ending, /) -> AgentReply:
        """All that was heard."""
        self.stopped = ending.stopped
        return AgentReply(" ".join(self.heard))


@pytest.fixture
def turn(emitted: list[Any]) -> Iterator[AgentTurn]:
    """A prompt of a run of its own; afterwards none of its processes lives."""
    run_id = f"run-{uuid.uuid4().hex}"
    with nothing_left(run_id):
        yield AgentTurn("worker", "Do it.", run_id, "step", emit=emitted.append)


async def ask(turn: AgentTurn, script: str, dialogue: Methods) -> AgentReply:
    """A shell script's part in the conversation."""
    with anyio.fail_after(20):
        return await run_turn(
            turn,
            ["/bin/sh", "-c", script],
            Messages(dialogue),
            Program("agent"),
            env=None,
            grace_s=0.2,
        )


@BOTH_LOOPS
async def test_a_dialogue_that_was_over_is_over(turn: AgentTurn) -> None:
    """Its stdin has been closed, so a program that speaks on is not waited for as one at work."""
    dialogue = Methods()
    script = (
        f"""read greeting; echo '{{"method": "done"}}'; echo '{{"method": "working"}}'; {FOREVER}"""
    )
    assert (await ask(turn, script, dialogue)).text == "done working"
    assert dialogue.stopped is None


@BOTH_LOOPS
async def test_what_is_sent_is_told_as_it_is_sent(turn: AgentTurn, emitted: list[Any]) -> None:
    """The transcript has both directions, and stdin ends with the dialogue."""
    await ask(turn, """read -r line; echo '{"method": "done"}'; cat""", Methods())
    assert emitted[:2] == [
        AgentTranscript("step", '{"jsonrpc":"2.0","method":"hello"}', "sent"),
        AgentTranscript("step", '{"method": "done"}'),
    ]
