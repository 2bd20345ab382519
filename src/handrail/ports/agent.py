"""The port through which an agent's prompt becomes an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from handrail.model.events import Progress
from handrail.model.results import Usage


@dataclass(frozen=True, slots=True)
class AgentTurn:
    """One prompt for a backend. ``session`` is what an earlier reply named, to go on in it;
    ``turn`` counts from 1 within a step; ``schema`` is the JSON schema the answer must fit, for
    backends that can enforce one; ``context`` is what the prompt was made from.
    """

    agent: str
    prompt: str
    run_id: str
    path: str
    turn: int = 1
    session: str | None = None
    schema: Mapping[str, Any] | None = None
    context: Mapping[str, Any] = field(default_factory=dict[str, Any])
    emit: Callable[[Progress], None] = lambda _: None
    sleep: Callable[[float], Any] | None = None


@dataclass(frozen=True, slots=True)
class AgentReply:
    """A backend's answer as text, with what is known of model, session and usage. ``value`` is a
    structured answer where the backend has one of its own (``has_value``).
    """

    text: str
    model: str | None = None
    session: str | None = None
    usage: Usage | None = None
    value: Any = None
    has_value: bool = False


class AgentBackend(Protocol):
    """What carries an agent out: a program, a model API, a script of replies.

    ``complete`` returns only a whole answer; anything else is an exception. It is cancelled by
    cancelling its task, and leaves nothing running then. Contract suite:
    ``handrail.testing.contracts.BackendContract``.
    """

    @property
    def name(self) -> str: ...

    async def complete(self, turn: AgentTurn, /) -> AgentReply:
        """The reply to one prompt.

        Raises:
            AgentError: there is none, with the reason.
        """
        ...
