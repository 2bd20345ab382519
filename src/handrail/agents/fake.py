"""A backend that answers from a script."""

from __future__ import annotations

import inspect
import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeAlias, TypeGuard

import anyio

from handrail.agents.transport.turn import finished_notice
from handrail.errors import WrongUse
from handrail.model.agent_options import OPTION_NAMES, PERMISSIONS
from handrail.model.events import AgentMessage, AgentSessionStarted, AgentUsage
from handrail.model.launch import AgentError
from handrail.model.policy import seconds_of
from handrail.ports.agent import AgentReply, AgentTurn, Capabilities
from handrail.typed.convert import DoesNotFit, conforms, fit
from handrail.typed.jsonsafe import json_safe, short_repr

ScriptedError: TypeAlias = "BaseException | type[BaseException]"


def replies_of(replies: object, whose: str) -> tuple[Any, ...]:
    """The replies as a tuple; refuses a text, because that is one reply and no list."""
    if _is_list(replies):
        return tuple(replies)
    raise WrongUse(
        f"{whose} takes a list of replies, got {short_repr(replies)}. For one reply write [reply]."
    )


async def resolve_reply(reply: Any, argument: Any) -> Any:
    """The value of a reply; a callable reply is called with ``argument`` first.

    Exceptions, instances or classes, are raised, also those that a callable returned.
    """
    if callable(reply) and not _is_error(reply):
        reply = await call_reply(reply, argument)
    if not _is_error(reply):
        return reply
    if isinstance(reply, type):
        raise reply
    raise reply.with_traceback(None)  # without frames of an earlier raise


async def call_reply(function: Callable[..., Any], argument: Any) -> Any:
    """The result of a sync or async function, called with the argument or with nothing."""
    made = function(argument) if _takes(function, argument) else function()
    return await made if inspect.isawaitable(made) else made


def is_like(output: object, type_: Any) -> bool:
    """True if a workflow that expects this type can use the output unchanged."""
    if conforms(output, type_):
        return True
    try:
        return bool(fit(output, type_) == output)  # 3 fits float, and keeps the bounds of its type
    except DoesNotFit:
        return False


def _is_list(replies: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(replies, Sequence) and not isinstance(replies, (str, bytes))


def _is_error(reply: object) -> TypeGuard[ScriptedError]:
    return isinstance(reply, BaseException) or (
        isinstance(reply, type) and issubclass(reply, BaseException)
    )


def _takes(function: Callable[..., Any], argument: Any) -> bool:
    """False only for a function that can be called without an argument but not with one."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    return _binds(signature, argument) or not _binds(signature)


def _binds(signature: inspect.Signature, *arguments: Any) -> bool:
    try:
        signature.bind(*arguments)
    except TypeError:
        return False
    return True


class FakeBackend:
    """Scripted replies, one a turn, in the order in which turns arrive.

    A reply is text; any other value, which becomes the answer as JSON; an exception (instance or
    class), which is raised; an ``AgentReply``, to set model, session and usage too; or a sync or
    async callable of the ``AgentTurn`` that returns one of these. Re-asks count as turns.

    One list serves every agent that has this backend. A mapping of agent names to lists gives each
    agent its own, for agents that run at the same time. ``delay`` passes before each reply, on the
    executor's clock. ``turns`` lists the turns so far. Mutable.
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
            Exception: as scripted.
        """
        self.turns.append(turn)
        try:
            made = await self._answer(turn)
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

    async def _answer(self, turn: AgentTurn) -> AgentReply:
        reply = self._next(turn)
        if self._delay_s:
            await (turn.sleep or anyio.sleep)(self._delay_s)
        return _as_reply(await resolve_reply(reply, turn))

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
    """The replies that are left, and how many there were at first. Mutable."""

    def __init__(self, replies: tuple[Any, ...]) -> None:
        self.left = deque(replies)
        self.given = len(replies)


def _scripts(replies: Sequence[Any] | Mapping[str, Sequence[Any]]) -> dict[str | None, _Replies]:
    """The replies by agent; those under None are for any agent."""
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
