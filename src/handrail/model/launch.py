"""One launch of an agent within a step: its reason, and how it failed."""

from __future__ import annotations

from typing import Literal, TypeAlias

from handrail.errors import AgentErrorKind, HandrailError
from handrail.model.dataclass import dataclass
from handrail.model.policy import DEFAULT_LADDER, Ladder
from handrail.model.results import Usage, add_usage, qualified

Rung: TypeAlias = Literal[
    "start",  # the first prompt
    "resume",  # the same session, after the process that drove the run crashed
    "retry",  # the failed launch again, after a failure that may pass
    "wait",  # the failed launch again, at a time when the cap should be over
    "reask",  # the same session, with the reason why the answer does not fit
    "compact",  # the same session, which the backend makes smaller first
    "summarise",  # a new session, with the end of what the full one said and did
    "reframe",  # a new session, with what was wrong with the earlier answers
    "fallback",  # the next backend or model of the agent's chain, in a new session
    "guide",  # the same session, with what a person said
]


@dataclass(frozen=True, slots=True)
class Launch:
    """Which launch of a step's agent this is, and what the launches before it left to it.

    - ``number`` counts from 1 over all attempts and drives, ``turn`` within the attempt.
    - ``session``: the session to continue; ``backend``: the backend that keeps it;
      ``session_usage``: what it has used so far, as that backend counts it. ``fresh``: an earlier
      launch left the step's given session for a new one, so no launch returns to the given one.
    - ``route``: the place in the agent's chain of backends (0: its own backend).
    - ``reason``: why the launch before failed; ``answer``: what the agent said last (shortened).
    - ``reasks`` counts the re-asks of the step so far. ``spent``: what earlier launches used.
    - ``form``: which rung's prompt template to use; set when the previous prompt never reached the
      agent and must be repeated. None: that of ``rung``.
    - ``guidance``: what people said, for this launch to pass on; ``said``: for earlier launches.
    """

    number: int = 1
    turn: int = 1
    rung: Rung = "start"
    session: str | None = None
    route: int = 0
    reason: str = ""
    answer: str = ""
    reasks: int = 0
    spent: Usage | None = None
    session_usage: Usage | None = None
    form: Rung | None = None
    fresh: bool = False
    backend: str = ""
    guidance: tuple[str, ...] = ()
    said: tuple[str, ...] = ()


FIRST = Launch()


@dataclass(frozen=True, slots=True)
class Fault:
    """How a launch failed, and what the ladder could do instead of giving up.

    ``can_resume``: the backend can continue ``session``. ``routes`` is the length of the agent's
    chain. ``judged``: an agent judged the answer, too. The fields that ``AgentError`` has too mean
    the same here.
    """

    launch: Launch
    kind: AgentErrorKind
    reason: str
    retry_at: float | None = None
    session: str | None = None
    text: str = ""
    hint: str = ""
    usage: Usage | None = None
    session_usage: Usage | None = None
    backend: str = ""
    ladder: Ladder = DEFAULT_LADDER
    max_reasks: int = 0
    routes: int = 1
    can_resume: bool = False
    can_compact: bool = False
    judged: bool = False

    @property
    def spent(self) -> Usage | None:
        """What this launch and the launches before it used."""
        return add_usage(self.launch.spent, self.usage)


NOT_READY: frozenset[AgentErrorKind | None] = frozenset({"config", "not_installed"})
"""Kinds of failure by which a launch could not begin: it counts nowhere, and is not retried."""


class NotReady(HandrailError):
    """What a step needs to run at all is not there; no other attempt would change that.

    It has no backend, its program is not installed, or does not accept its settings. Nobody raises
    it: a failed step ``is_a(NotReady)`` in addition to its own error. Nothing stands in for such a
    failure, no ``.on_error()``, ``.default()`` or ``.skip_on_error()``: it would hide that nothing
    ever ran.
    """

    __module__ = "handrail.errors"


class AgentError(HandrailError):
    """An agent's backend ended without a usable answer.

    ``kind`` says why, in words that all backends share. Without a kind only ``reason`` is known,
    and the ladder makes no further launch. ``retry_at`` is the time (unix seconds) from which a
    launch may work again, ``session`` a session that can be continued, ``text`` what the agent
    said last, ``usage`` what it used, ``hint`` what a person can do.
    """

    __module__ = "handrail.errors"

    def __init__(
        self,
        agent: str,
        reason: str,
        *,
        kind: AgentErrorKind | None = None,
        retry_at: float | None = None,
        http_status: int | None = None,
        session: str | None = None,
        text: str = "",
        usage: Usage | None = None,
        model: str | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(agent, reason)
        self.agent = agent
        self.reason = reason
        self.kind: AgentErrorKind | None = kind
        self.retry_at = retry_at
        self.http_status = http_status
        self.session = session
        self.text = text
        self.usage = usage
        self.model = model
        self.hint = hint
        self.fault: Fault | None = None
        """What the ladder needs to know; set by the agent that was launched."""

    @property
    def not_ready(self) -> bool:
        """True if the backend could not begin at all, and cannot until a person changes that."""
        return self.kind in NOT_READY

    def __str__(self) -> str:
        kind = f" ({self.kind.replace('_', ' ')})" if self.kind else ""
        reason = self.reason
        if self.hint:
            stop = "" if reason.endswith((".", "!", "?", ":", ";")) else "."
            reason = f"{reason}{stop} {self.hint}"
        return f"agent {self.agent!r}{kind}: {reason}"


class AnswerRejected(AgentError):
    """An agent's answer did not fit its output type after every re-ask."""

    __module__ = "handrail.errors"

    def __str__(self) -> str:
        return f"agent {self.agent!r}: {self.reason}"


class PromptError(AgentError):
    """An agent's prompt could not be rendered from its context."""

    __module__ = "handrail.errors"


def asked_nobody(error_type: str, bases: tuple[str, ...]) -> bool:
    """True if an attempt failed before its agent's program or API was asked: it is no launch."""
    return not {qualified(NotReady), qualified(PromptError)}.isdisjoint((error_type, *bases))


def fault_of(error: AgentError, launch: Launch) -> Fault | None:
    """The fault as far as its error alone tells; None for an error without a kind."""
    if error.kind is None:
        return None
    return Fault(
        launch,
        error.kind,
        error.reason,
        error.retry_at,
        error.session,
        error.text,
        error.hint,
        error.usage,
    )
