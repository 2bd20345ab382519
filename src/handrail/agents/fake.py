"""A backend that answers from a script."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import anyio

from handrail.agents.programs.outcome import finished_notice
from handrail.agents.script import played, replies_of
from handrail.errors import AgentError
from handrail.model.agent_options import OPTION_NAMES, PERMISSIONS
from handrail.model.events import (
    AgentMessage,
    AgentSessionStarted,
    AgentUsage,
)
from handrail.model.policy import seconds_of
from handrail.ports.agent import AgentReply, AgentTurn, Capabilities
from handrail.typed.jsonsafe import json_safe


class FakeBackend:
    """Scripted replies, one a turn, in the order in which turns are asked for.

    A reply is text; any other value, which stands for the answer in JSON; an exception (instance or
    class), which is raised; an ``AgentReply``, to set model, session and usage too; or a sync or
    async callable of the ``AgentTurn`` that returns one of these. Re-asks are turns as well.

    One list serves every agent that has this backend. A mapping of agent names to lists gives each
    agent its own, for agents that run at the same time. ``delay`` passes before each reply, on the
    executor's clock. ``turns`` lists what the backend was asked. Mutable.
    """

    def __init__(
        self,
        replies: Sequence[Any] | Mapping[str, Sequence[Any]],
        *,
        delay: float | timedelta = 0.0,
        name: str = "fake",
    ) -> None:
        self.name = name
        self.turns: list[AgentTurn] = []
        self._delay_s = seconds_of(delay, "delay of a FakeBackend")
        self._scripts = _scripts(replies)

    capabilities = Capabilities(
        options=frozenset(OPTION_NAMES),
        permissions=frozenset(PERMISSIONS),
        sessions=True,
        fork=True,
        compact=True,
        schema=True,
        profiles=True,
        usage=True,
        cost=True,
        reset_times=True,
    )

    def __repr__(self) -> str:
        return f"<FakeBackend {self.name!r}, {len(self.turns)} turns so far>"

    async def complete(self, turn: AgentTurn, /) -> AgentReply:
        """The next reply.

        Raises:
            AgentError: no reply is left for this agent.
            Exception: whatever the script says.
        """
        self.turns.append(turn)
        try:
            made = await self._made(turn)
        except BaseException as error:
            if isinstance(error, AgentError) and error.session is not None:
                turn.emit(AgentSessionStarted(turn.path, error.session, self.name, error.model))
            turn.emit(finished_notice(turn.path, error))
            raise
        if made.session is not None:
            turn.emit(AgentSessionStarted(turn.path, made.session, self.name, made.model))
        turn.emit(AgentMessage(turn.path, made.text))
        if made.usage is not None:
            turn.emit(AgentUsage(turn.path, made.usage))
        turn.emit(finished_notice(turn.path, made))
        return made

    async def _made(self, turn: AgentTurn) -> AgentReply:
        reply = self._next(turn)
        if self._delay_s:
            await (turn.sleep or anyio.sleep)(self._delay_s)
        return _as_reply(await played(reply, turn))

    def _next(self, turn: AgentTurn) -> Any:
        script = self._scripts.get(turn.agent, self._scripts.get(None))
        if script is None:
            known = ", ".join(repr(name) for name in self._scripts) or "nobody"
            raise AgentError(
                turn.agent, f"FakeBackend has no replies for this agent, only for {known}"
            )
        if not script.left:
            raise AgentError(
                turn.agent,
                f"FakeBackend has no reply left for agent {turn.agent!r} (turn {turn.turn}): "
                f"it was given {script.given} {'reply' if script.given == 1 else 'replies'}",
            )
        return script.left.popleft()


class _Replies:
    """The replies that are left, and how many there were. Mutable."""

    def __init__(self, replies: tuple[Any, ...]) -> None:
        self.left = deque(replies)
        self.given = len(replies)


def _scripts(
    replies: Sequence[Any] | Mapping[str, Sequence[Any]],
) -> dict[str | None, _Replies]:
    """The replies by agent; under None those for any agent."""
    if not isinstance(replies, Mapping):
        return {None: _Replies(replies_of(replies, "FakeBackend"))}
    return {
        agent: _Replies(replies_of(own, f"FakeBackend, for agent {agent!r},"))
        for agent, own in replies.items()
    }


def _as_reply(value: Any) -> AgentReply:
    if isinstance(value, AgentReply):
        return value
    if isinstance(value, str):
        return AgentReply(value)
    text = json.dumps(json_safe(value), ensure_ascii=False)
    return AgentReply(text, value=value, has_value=True)
