"""What is known of one turn of any program, and the reply or error that follows from it.

The reader of a program's protocol sets the fields. The logic that all programs share is here: each
session, and each tool's start and end, is reported once; which session can be continued; what a
failure carries; what it means if the program ends without a word.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from handrail.agents.transport.failures import Diagnosis
from handrail.agents.transport.loose_json import Object, count_in, objects_of, text_in
from handrail.agents.transport.parser import Ending, describe_end, kind_of_end, stderr_reason
from handrail.agents.transport.programs import Program
from handrail.agents.transport.turn_end import TurnEnd
from handrail.errors import AgentErrorKind
from handrail.model.events import (
    AgentPermission,
    AgentSessionStarted,
    AgentToolCompleted,
    AgentToolStarted,
    AgentUsage,
    Notice,
)
from handrail.model.launch import AgentError
from handrail.model.results import COUNTED, Usage
from handrail.ports.agent import AgentReply, AgentTurn


class TurnState:
    """What is known of one turn so far. Mutable.

    ``backend`` is the name under which the session is reported, by default the program's.
    ``usage`` is the turn's, ``session_usage`` the session's total; ``text`` is the last message.
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
        """The program does not have the session that it was to continue."""
        self.text = ""
        self.complaint = ""
        """The last problem it reported that did not end the turn."""
        self.usage: Usage | None = None
        self.calls = 0
        """How many answers of its model the program told of."""
        self.session_usage: Usage | None = None
        self.denials: list[str] = []
        self.files_changed: dict[str, None] = {}  # in the order of their first change
        self.saw_protocol = False
        """The program has sent a message of its protocol."""
        self.extra_silence_s = 0.0
        self.end: TurnEnd[Any] = TurnEnd()
        """Which of the program's results counts, if they are results of a turn."""
        self._backend = backend or program.name
        self._reported_session: str | None = None
        self._open_tools: dict[str, str] = {}
        self._ended_tools: set[str] = set()

    # -- the session -----------------------------------------------------------------------------

    @property
    def known_session(self) -> str | None:
        """The session to continue: for a fork its own, and never one that the program lacks."""
        is_other = self.turn.fork or self.has_no_session
        return self.session or (None if is_other else self.turn.session)

    @property
    def is_session_reported(self) -> bool:
        """True once the session was reported."""
        return self._reported_session is not None

    def session_named(self, session: str) -> Iterator[Notice]:
        """``AgentSessionStarted`` for a session of this name, once for each."""
        self.session = session or self.session
        if self.session and self.session != self._reported_session:
            self._reported_session = self.session
            yield AgentSessionStarted(self.path, self.session, self._backend, self.model)

    @property
    def summed_usage(self) -> Usage | None:
        """The session's total, for a program that reports only each turn's usage."""
        before = self.turn.session_usage if self.turn.session is not None else Usage()
        return None if before is None or self.usage is None else before + self.usage

    def used(self, usage: Usage | None) -> Iterator[Notice]:
        """``AgentUsage`` of what was used so far, if any of it is known."""
        if usage is not None:
            yield AgentUsage(self.path, usage, self.model, self.calls or None)

    # -- tools -----------------------------------------------------------------------------------

    @property
    def open_tools(self) -> int:
        """How many tools are running, of those reported with an id."""
        return sum(map(bool, self._open_tools))

    def tool_of(self, ref: str) -> str:
        """The name of a running tool, or an empty text."""
        return self._open_tools.get(ref, "")

    def tool_started(self, ref: str, name: str, given: Any) -> Iterator[Notice]:
        """``AgentToolStarted``, once for each tool id."""
        if not ref or (ref not in self._open_tools and ref not in self._ended_tools):
            self._open_tools[ref] = name
            yield AgentToolStarted(self.path, ref, name, given)

    def tool_ended(
        self, ref: str, *, is_ok: bool, output: str, code: int | None = None
    ) -> Iterator[Notice]:
        """``AgentToolCompleted``, once, if the tool was running."""
        if ref in self._open_tools:
            name = self._open_tools.pop(ref)
            self._ended_tools.add(ref)
            yield AgentToolCompleted(self.path, ref, name, is_ok, output, code)

    def close_tools(self) -> None:
        """Forget running tools: the turn is over, and with it tools that reported no end."""
        self._open_tools.clear()

    def denied(self, tool: str, reason: str) -> AgentPermission:
        """The notice that a tool was denied; ``denials`` gets the tool, too."""
        self.denials.append(tool)
        return AgentPermission(self.path, tool, "denied", reason)

    # -- the end ---------------------------------------------------------------------------------

    def reply(self, **more: Any) -> AgentReply:
        """The answer, with all that is known of the turn; ``more`` overrides fields."""
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
        """A failure that the program reported; an interruption may have been handrail's."""
        kind = diagnosis.kind
        if kind == "interrupted" and ending.stopped is not None:
            kind = kind_of_end(ending, saw_protocol=True)
        error = self.error(kind, diagnosis.reason)
        error.retry_at, error.http_status = diagnosis.retry_at, diagnosis.status
        return error

    def stopped(self, ending: Ending) -> AgentError:
        """A turn that the program reported as interrupted: by handrail, or by somebody else."""
        kind = kind_of_end(ending, saw_protocol=True) if ending.stopped else "interrupted"
        words = describe_end(self.program.name, ending)
        return self.error(kind, words if ending.stopped else f"{self.program.name} was interrupted")

    def unfinished(self, ending: Ending, kind: AgentErrorKind | None = None) -> AgentError:
        """A turn that the program ended without a word; ``kind``, if its exit code tells one.

        A missing session is always ``bad_request``, whichever program reports it. The error names
        no session, so that the next launch begins a new one.
        """
        name = self.program.name
        if not self.saw_protocol and self._lost_session(ending):
            said = stderr_reason(ending)
            reason = f"{name} does not have session {self.turn.session!r}: {said}"
            return AgentError(self.turn.agent, reason, kind="bad_request")
        complaint = f"; its last complaint: {self.complaint}" if self.complaint else ""
        words = describe_end(name, ending, saw_protocol=self.saw_protocol)
        return self.error(
            kind or kind_of_end(ending, saw_protocol=self.saw_protocol),
            words + self.end.missing + complaint,
        )

    def _lost_session(self, ending: Ending) -> bool:
        words = self.program.no_session
        if words is None or self.turn.session is None or ending.stopped or not ending.exit_code:
            return False
        return words.search(stderr_reason(ending)) is not None


class EventReader(TurnState, ABC):
    """Reads the lines of a turn that are JSON objects, whose ``key`` says their type. Mutable."""

    key: ClassVar[str] = "type"

    def feed(self, line: bytes, /) -> Iterable[Notice]:
        """The notices of a line, in order."""
        notices: list[Notice] = []
        for event in objects_of(line):
            if name := text_in(event, self.key):
                notices.extend(self.read(name, event))
        return notices

    def feed_stderr(self, _line: bytes, /) -> Iterable[Notice]:
        """Nothing: stderr is read at the end only."""
        return ()

    @abstractmethod
    def read(self, name: str, event: Object) -> Iterator[Notice]:
        """The notices of an event of this type, in order; most have none."""


def usage_in(data: Object, **names: str) -> Usage | None:
    """The tokens that an object counts; ``names`` maps a ``Usage`` field to the object's name."""
    counts: dict[str, Any] = {field: count_in(data, name) for field, name in names.items()}
    usage = Usage(**counts)
    return None if usage == Usage() else usage


def added_since(before: Usage | None, total: Usage) -> Usage | None:
    """What was added to ``before``; None where that is unknown, because a total is no difference.

    ``Usage.since`` takes unknown fields for zero, which is right if all usage was counted.
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
