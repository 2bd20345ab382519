"""One launch of an agent within a step, why it is made, and how it failed."""

from __future__ import annotations

from typing import Literal, TypeAlias

from handrail.errors import AgentErrorKind, HandrailError
from handrail.model.dataclass import dataclass
from handrail.model.policy import DEFAULT_LADDER, Ladder
from handrail.model.results import Usage, add_usage

Rung: TypeAlias = Literal[
    "start",  # the first prompt
    "resume",  # the same session again, after a crash of this process
    "retry",  # the same again, after a failure that may pass
    "wait",  # the same again, when a cap was to be over
    "reask",  # the same session, told why its answer does not fit
    "compact",  # the same session, made smaller first
    "summarise",  # a new session, told what the full one had done
    "reframe",  # a new session, told how earlier answers did not fit
    "fallback",  # the next backend or model of the agent's chain
    "guide",  # the same session, told what a person said
]


@dataclass(frozen=True, slots=True)
class Launch:
    """Which launch of a step's agent this is, and what it follows from.

    ``number`` counts from 1 over all attempts and drives, ``turn`` within the attempt. ``session``
    is the one to go on in; ``route`` the place in the agent's chain of backends (0: its own). After
    an answer that did not fit, or a session that was full, ``answer`` is what the agent said last
    (shortened) and ``reason`` what was wrong. ``reasks`` counts the re-asks of the step so far.
    ``spent`` is what the launches before it used, ``session_usage`` what the session had used so
    far, as its backend counts it. ``form`` is the rung whose words it is put in, where that is not
    its own: the one before, if that did not get through. ``fresh``: it goes on from a session that
    was left, so the step's given session is not gone back to. ``backend`` is whose the session is.
    ``guidance`` is what people said that this launch gives to the agent, ``said`` what they had
    said to it before.
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
    """How a launch failed, and what could be done instead of giving up.

    ``session`` can be gone on in if ``can_resume``; ``routes`` is the length of the agent's chain.
    The other fields are those of ``AgentError``.
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

    @property
    def spent(self) -> Usage | None:
        """What this launch and those before it used."""
        return add_usage(self.launch.spent, self.usage)


class AgentError(HandrailError):
    """An agent's backend ended without an answer that can be used.

    ``kind`` says why in words that all backends share; without one nothing is known but the
    ``reason``, and the step is not tried again by itself. ``retry_at`` is the time (unix seconds)
    from which it may work again, ``session`` one that can be gone on in, ``text`` what the agent
    said last, ``usage`` what was spent, ``hint`` what a person can do.
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


def fault_of(error: AgentError, launch: Launch) -> Fault | None:
    """What is known of a failure by its error alone; None if its kind is not known."""
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
