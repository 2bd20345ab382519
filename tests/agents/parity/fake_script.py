"""The acts as replies of a ``FakeBackend``: what a test's author can write down in its script."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anyio

from handrail.agents.fake import FakeBackend
from handrail.errors import AgentError
from handrail.model.events import AgentMessage
from handrail.ports.agent import AgentReply, AgentTurn
from handrail.testing.fake_programs import Dies, Fails, Garbage, Hangs, Says
from tests.agents.parity.reel import Act, text_of

SESSION = "fake-session"


def fake(acts: Sequence[Act]) -> FakeBackend:
    """A backend whose script has one reply an act."""
    return FakeBackend([_reply(act) for act in acts])


def _reply(act: Act) -> Any:
    match act:
        case Says():
            return _answering(act)
        case Hangs():
            return _silent
        case Fails():
            return _error(act.kind, f"it failed: {act.kind}", act.says.text)
        case Dies() | Garbage():
            return _error("crashed", "it ended without a word")


def _error(kind: Any, reason: str, text: str = "") -> AgentError:
    return AgentError("worker", reason, kind=kind, session=SESSION, text=text)


def _answering(says: Says) -> Callable[[AgentTurn], AgentReply]:
    def reply(turn: AgentTurn) -> AgentReply:
        before = turn.session_usage
        total = says.usage if before is None else before + says.usage
        return AgentReply(
            text_of(says),
            session=turn.session or SESSION,
            usage=says.usage,
            value=says.structured,
            has_value=says.structured is not None,
            session_usage=total,
        )

    return reply


async def _silent(turn: AgentTurn) -> None:
    turn.emit(AgentMessage(turn.path, "It begins."))
    await anyio.sleep_forever()
