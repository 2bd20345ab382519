"""What is known of one turn so far, of whichever program, and the reply or error that it makes.

What reads a program's protocol sets what it hears here; what is alike in all of them is here only:
that a session, a tool's start and its end are each told once, which session can be gone on in, what
a failure carries, and what an end means of which the program itself said nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

from handrail.agents.transport.failures import Diagnosis
from handrail.agents.transport.loose_json import Object, count_in, object_of, text_in
from handrail.agents.transport.parser import Ending, describe_end, kind_of_end, stderr_reason
from handrail.agents.transport.programs import Program
from handrail.errors import AgentErrorKind
from handrail.model.events import (
    AgentPermission,
    AgentSessionStarted,
    AgentToolCompleted,
    AgentToolStarted,
    Notice,
)
from handrail.model.launch import AgentError
from handrail.model.results import COUNTED, Usage
from handrail.ports.agent import AgentReply, AgentTurn


class TurnState:
    """What is known of one turn so far. Mutable.

    ``backend`` is the name under which its session is told, the program's unless given. ``usage``
    is the turn's, ``session_usage`` the session's total; ``text`` is what was said last.
    """

    def __init__(
        self, turn: AgentTurn, program: Program, *, backend: str = "", model: str | None = None
    ) -> None:
        self.turn = turn
        self.program = program
        self.path = turn.path
        self.model = model
        self.version: str | None = None
        self.session: str | None = None
        self.has_no_session = False
        """It does not have the session that it was to go on in."""
        self.text = ""
        self.complaint = ""
        """The last thing that it said was wrong without ending the turn."""
        self.usage: Usage | None = None
        self.session_usage: Usage | None = None
        self.denials: list[str] = []
        self.files_changed: dict[str, None] = {}  # in the order of their first change
        self.is_alive = False
        """It has got as far as its protocol."""
        self.patience_s = 0.0
        self._backend = backend or program.name
        self._told_session: str | None = None
        self._open_tools: dict[str, str] = {}
        self._ended_tools: set[str] = set()

    # -- the session -----------------------------------------------------------------------------

    @property
    def known_session(self) -> str | None:
        """The session to go on in: a fork's own, and none that the program does not have."""
        is_other = self.turn.fork or self.has_no_session
        return self.session or (None if is_other else self.turn.session)

    @property
    def is_session_told(self) -> bool:
        """True once the session was told of."""
        return self._told_session is not None

    def session_named(self, session: str) -> Iterator[Notice]:
        """``AgentSessionStarted`` for a session of this name, once for each."""
        self.session = session or self.session
        if self.session and self.session != self._told_session:
            self._told_session = self.session
            yield AgentSessionStarted(self.path, self.session, self._backend, self.model)

    @property
    def summed_usage(self) -> Usage | None:
        """The session's total, where a program tells no more than what the turn used."""
        before = self.turn.session_usage if self.turn.session is not None else Usage()
        return None if before is None or self.usage is None else before + self.usage

    # -- tools -----------------------------------------------------------------------------------

    @property
    def open_tools(self) -> int:
        """How many tools are at work, as far as it was told which."""
        return sum(map(bool, self._open_tools))

    def tool_of(self, ref: str) -> str:
        """The name of a tool that is at work, or an empty text."""
        return self._open_tools.get(ref, "")

    def tool_started(self, ref: str, name: str, given: Any) -> Iterator[Notice]:
        """That a tool is at work, told once."""
        if not ref or (ref not in self._open_tools and ref not in self._ended_tools):
            self._open_tools[ref] = name
            yield AgentToolStarted(self.path, ref, name, given)

    def tool_ended(
        self, ref: str, *, is_ok: bool, output: str, code: int | None = None
    ) -> Iterator[Notice]:
        """That a tool has ended which was at work, told once."""
        if ref in self._open_tools:
            name = self._open_tools.pop(ref)
            self._ended_tools.add(ref)
            yield AgentToolCompleted(self.path, ref, name, is_ok, output, code)

    def close_tools(self) -> None:
        """The turn is over, and so is whatever did not say so."""
        self._open_tools.clear()

    def denied(self, tool: str, reason: str) -> AgentPermission:
        """That a tool was not allowed."""
        self.denials.append(tool)
        return AgentPermission(self.path, tool, "denied", reason)

    # -- the end ---------------------------------------------------------------------------------

    def reply(self, **more: Any) -> AgentReply:
        """The answer, with what is known and what else is said of it."""
        known: dict[str, Any] = {
            "text": self.text,
            "model": self.model,
            "session": self.known_session,
            "usage": self.usage,
            "session_usage": self.session_usage,
            "denials": tuple(self.denials),
            "files_changed": tuple(self.files_changed),
            "version": self.version,
        }
        return AgentReply(**known | more)

    def error(self, kind: AgentErrorKind | None, reason: str) -> AgentError:
        """A failure, with what is known of the turn, and what a person can do."""
        return AgentError(
            self.turn.agent,
            reason,
            kind=kind,
            session=self.known_session,
            text=self.text,
            usage=self.usage,
            model=self.model,
            hint=self.program.hints.get(kind, "") if kind else "",
        )

    def failed(self, diagnosis: Diagnosis, ending: Ending) -> AgentError:
        """A failure that the program told; an interruption may have been ours."""
        kind = diagnosis.kind
        if kind == "interrupted" and ending.stopped is not None:
            kind = kind_of_end(ending, alive=True)
        error = self.error(kind, diagnosis.reason)
        error.retry_at, error.http_status = diagnosis.retry_at, diagnosis.status
        return error

    def stopped(self, ending: Ending) -> AgentError:
        """A turn of which the program said that it was interrupted: by us, or by somebody."""
        kind = kind_of_end(ending, alive=True) if ending.stopped else "interrupted"
        words = describe_end(self.program.name, ending)
        return self.error(kind, words if ending.stopped else f"{self.program.name} was interrupted")

    def unfinished(self, ending: Ending, kind: AgentErrorKind | None = None) -> AgentError:
        """A turn of which the program said nothing at its end; ``kind``, if its exit tells that.

        That its session is not there is one kind, whichever program says so, and no session is
        named, so that what follows begins a new one.
        """
        name = self.program.name
        if not self.is_alive and self._lost_session(ending):
            said = stderr_reason(ending)
            reason = f"{name} does not have session {self.turn.session!r}: {said}"
            return AgentError(self.turn.agent, reason, kind="bad_request")
        complaint = f"; its last complaint: {self.complaint}" if self.complaint else ""
        words = describe_end(name, ending, alive=self.is_alive)
        return self.error(kind or kind_of_end(ending, alive=self.is_alive), words + complaint)

    def _lost_session(self, ending: Ending) -> bool:
        words = self.program.no_session
        if words is None or self.turn.session is None or ending.stopped or not ending.exit_code:
            return False
        return words.search(stderr_reason(ending)) is not None


class EventReader(TurnState, ABC):
    """Reads the lines of a turn that are JSON objects with a ``type``. Mutable."""

    def feed(self, line: bytes, /) -> Iterable[Notice]:
        """What a line means, in order."""
        event = object_of(line)
        if event is None or not (name := text_in(event, "type")):
            return ()
        return tuple(self.read(name, event))

    def feed_stderr(self, _line: bytes, /) -> Iterable[Notice]:
        """Nothing: what matters there is looked at in the end."""
        return ()

    @abstractmethod
    def read(self, name: str, event: Object) -> Iterator[Notice]:
        """What an event of this type means, in order; most mean nothing."""


def usage_in(data: Object, **names: str) -> Usage | None:
    """The tokens that an object counts, by its names for the fields of a ``Usage``."""
    counts: dict[str, Any] = {field: count_in(data, name) for field, name in names.items()}
    usage = Usage(**counts)
    return None if usage == Usage() else usage


def added_since(before: Usage | None, total: Usage) -> Usage | None:
    """What was added to ``before``; unknown where that is, for a total is no difference.

    ``Usage.since`` takes what is unknown for nothing, as is right where all of it was counted.
    """
    if before is None:
        return None
    added = total.since(before)
    known = {
        name: getattr(added, name)
        for name in (*COUNTED, "cost_source")
        if getattr(before, name) is not None
    }
    return Usage(**known) if known else None
