"""What ``gemini --output-format stream-json`` prints, read for one turn.

The last line is a ``result`` with a status. Messages come in pieces alone. While a request is tried
again nothing comes but a line on stderr.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from handrail.agents.gemini.errors import (
    EXITS,
    HINTS,
    NO_SESSION,
    api_error_of,
    kind_of_failure,
)
from handrail.agents.transport.loose_json import Object, count_in, object_in, object_of, text_in
from handrail.agents.transport.parser import Ending, kind_of_end, lost_session, words_of_end
from handrail.agents.transport.reset_times import reset_time
from handrail.errors import AgentErrorKind
from handrail.model.events import (
    AgentMessage,
    AgentRetry,
    AgentSessionStarted,
    AgentToolCompleted,
    AgentToolStarted,
    AgentUsage,
    Notice,
)
from handrail.model.launch import AgentError
from handrail.model.results import Usage
from handrail.ports.agent import AgentReply, AgentTurn

_ATTEMPT = re.compile(rb"Attempt (\d{1,6}) failed(.{0,400})")
_DELAY = re.compile(rb"Retrying after (\d{1,9})\s?ms")
_EMPTY = re.compile(r"returned an empty response with no text")
_BETWEEN = frozenset({"message", "tool_use", "tool_result"})
"""What ends a text if it comes in between; what is not known here does not."""


class GeminiParser:
    """Reads one turn of gemini. Mutable."""

    def __init__(self, turn: AgentTurn, *, model: str | None = None) -> None:
        self._turn = turn
        self._model = model
        self._session: str | None = None
        self._text = ""
        self._is_speaking = False
        self._complaint = ""
        self._has_worked = False
        self._tools: dict[str, str] = {}
        self._result: Object | None = None
        self._usage: Usage | None = None
        self._alive = False
        self.patience_s = 0.0

    @property
    def finished(self) -> bool:
        """True once the result was seen."""
        return self._result is not None

    @property
    def open_tools(self) -> int:
        """How many tools are at work."""
        return len(self._tools)

    def feed(self, line: bytes, /) -> Iterable[Notice]:
        """What a line means, in order."""
        event = object_of(line)
        name = text_in(event, "type") if event is not None else ""
        if event is None or not name:
            return ()
        self._alive, self.patience_s = True, 0.0
        is_piece = name == "message" and text_in(event, "role") == "assistant"
        notices = tuple(self._read(name, event))
        if name in _BETWEEN:
            self._is_speaking = is_piece
        return notices

    def feed_stderr(self, line: bytes, /) -> Iterable[Notice]:
        """A request that is tried again, and how long that is waited for."""
        if delay := _DELAY.search(line):
            self.patience_s = int(delay[1]) / 1000
        attempt = _ATTEMPT.search(line)
        if attempt is None:
            return ()
        reason = attempt[2].decode("utf-8", "replace").strip(" :.")
        return (AgentRetry(self._turn.path, int(attempt[1]), None, reason),)

    def conclude(self, ending: Ending, /) -> AgentReply:
        """The answer, if the result says so.

        Raises:
            AgentError: it does not, or there is none.
        """
        if self._result is None:
            raise self._unsaid(ending)
        succeeded = text_in(self._result, "status") == "success"
        if self._is_empty and (succeeded or _EMPTY.search(self._complaint)):
            raise self._error("refusal", f"gemini gave no answer{self._complained}")
        if succeeded:
            return self._reply()
        error = object_in(self._result, "error") or {
            "message": text_in(self._result, "error") or self._complaint
        }
        kind, status = kind_of_failure(error)
        if kind == "interrupted" and ending.stopped is not None:
            kind = kind_of_end(ending, alive=True)
        said = text_in(error, "message") or self._complaint
        api = api_error_of(said)
        reason = text_in(api, "message") or said or "gemini does not say why"
        failed = self._error(kind, reason)
        failed.http_status = status
        if kind in ("rate_limit", "usage_cap", "transient"):
            details = str(api.get("details"))[:2000]
            failed.retry_at = reset_time(reason, ending.now) or reset_time(details, ending.now)
        raise failed

    @property
    def _is_empty(self) -> bool:
        """True if the model was asked and said nothing at all, as of a prompt that is blocked."""
        counted = self._usage is not None and self._usage.output_tokens
        return not (self._text or self._has_worked or counted)

    @property
    def _complained(self) -> str:
        return f"; its last complaint: {self._complaint}" if self._complaint else ""

    def _reply(self) -> AgentReply:
        before = self._turn.session_usage if self._turn.session is not None else Usage()
        usage = self._usage
        return AgentReply(
            self._text,
            model=self._model,
            session=self._session,
            usage=usage,
            session_usage=None if before is None or usage is None else before + usage,
        )

    def _unsaid(self, ending: Ending) -> AgentError:
        lost = None if self._alive else lost_session(self._turn, ending, "gemini", NO_SESSION)
        if lost is not None:
            return lost
        known = EXITS.get(ending.exit_code or 0) if ending.stopped is None else None
        kind = known or kind_of_end(ending, alive=self._alive)
        words = words_of_end("gemini", ending, alive=self._alive)
        return self._error(kind, words + self._complained)

    def _error(self, kind: AgentErrorKind, reason: str) -> AgentError:
        return AgentError(
            self._turn.agent,
            reason,
            kind=kind,
            session=self._session or self._turn.session,
            text=self._text,
            usage=self._usage,
            model=self._model,
            hint=HINTS.get(kind, ""),
        )

    def _read(self, name: str, event: Object) -> Iterator[Notice]:
        path = self._turn.path
        match name:
            case "init":
                self._model = text_in(event, "model") or self._model
                session = text_in(event, "session_id")
                if session and self._session is None:
                    self._session = session
                    yield AgentSessionStarted(path, session, "gemini", self._model)
            case "message" if text_in(event, "role") == "assistant":
                yield from self._said(
                    text_in(event, "content"), is_whole=event.get("delta") is False
                )
            case "tool_use":
                if (ref := text_in(event, "tool_id")) not in self._tools or not ref:
                    yield self._tool(event)
            case "error":
                self._complaint = text_in(event, "message") or self._complaint
            case "tool_result":
                yield from self._tool_done(event)
            case "result":
                yield from self._over(event)
            case _:
                pass

    def _said(self, piece: str, *, is_whole: bool) -> Iterator[Notice]:
        if is_whole and self._is_speaking and piece == self._text:
            return  # its pieces were told
        if piece:
            goes_on = self._is_speaking and not is_whole
            self._text = self._text + piece if goes_on else piece
            yield AgentMessage(self._turn.path, piece)

    def _tool(self, event: Object) -> Notice:
        ref, name = text_in(event, "tool_id"), text_in(event, "tool_name")
        self._tools[ref] = name
        self._has_worked = True
        return AgentToolStarted(self._turn.path, ref, name, event.get("parameters"))

    def _tool_done(self, event: Object) -> Iterator[Notice]:
        ref = text_in(event, "tool_id")
        if ref not in self._tools:
            yield self._tool(event)
        name = self._tools.pop(ref, "")
        is_ok = text_in(event, "status") not in ("error", "failed", "cancelled")
        error = text_in(object_in(event, "error"), "message")
        yield AgentToolCompleted(
            self._turn.path, ref, name, is_ok, text_in(event, "output") or error
        )

    def _over(self, event: Object) -> Iterator[Notice]:
        self._result = event
        self._tools.clear()
        stats = object_in(event, "stats")
        told_in, told_out = count_in(stats, "input_tokens"), count_in(stats, "output_tokens")
        thoughts = (count_in(stats, "total_tokens") or 0) - (told_in or 0) - (told_out or 0)
        usage = Usage(  # thoughts are in the total alone
            input_tokens=told_in,
            output_tokens=None if told_out is None else told_out + max(thoughts, 0),
            cached_tokens=count_in(stats, "cached"),
            reasoning_tokens=thoughts if thoughts > 0 else None,
        )
        if usage != Usage():
            self._usage = usage
            yield AgentUsage(self._turn.path, usage)
