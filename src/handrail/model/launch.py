"""One launch of an agent within a step, why it is made, and how it failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from handrail.errors import AgentErrorKind
from handrail.model.policy import DEFAULT_LADDER, Ladder
from handrail.model.results import Usage

if TYPE_CHECKING:
    from handrail.errors import AgentError

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
        before = self.launch.spent
        if self.usage is None or before is None:
            return self.usage or before
        return before + self.usage


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
