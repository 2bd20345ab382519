"""What ``claude -p --output-format stream-json --verbose`` prints, read for one turn.

Only a ``result`` ends a turn, and it is a success only if its subtype says so, nothing flags it
and what the assistant said last was no error. An interrupted claude exits with 0 and may print no
result; one whose API failed says ``"subtype": "success", "is_error": true``. Some go on after a
result (work in the background), so the last one counts; but one that was stopped then does not
undo the success before it.

Source: measured with claude 2.1.330; enumerations from its program text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from handrail.agents.claude.errors import (
    Failure,
    hint_of,
    is_unknown_session,
    kind_of,
    retry_at,
    status_of,
)
from handrail.agents.claude.messages import ClaudeMessages
from handrail.agents.claude.result import Before, failure_of, told
from handrail.agents.claude.usage import session_usage, turn_usage
from handrail.agents.claude.windows import is_used_up, limit_of
from handrail.agents.programs.ending import kind_of_end, words_of_end
from handrail.agents.programs.loose_json import (
    NOTHING,
    Object,
    count_in,
    json_value,
    number_in,
    object_in,
    object_of,
    objects_in,
    text_in,
    whole_in,
)
from handrail.agents.programs.turn_parser import Ending
from handrail.errors import AgentError, AgentErrorKind
from handrail.model.events import (
    AgentCompaction,
    AgentRetry,
    AgentSessionStarted,
    AgentUsage,
    Notice,
)
from handrail.model.results import Usage
from handrail.ports.agent import AgentReply, AgentTurn
from handrail.shortening import shortened

_SYNTHETIC = "<synthetic>"
_INTERRUPTED = "[Request interrupted by user"
_REASON_CHARS = 1_000


@dataclass(frozen=True, slots=True)
class _Outcome:
    """A result, and why it is no success, if it is none."""

    result: Object
    failure: Failure | None


class ClaudeTurn:
    """Reads one turn of claude. Mutable."""

    def __init__(self, turn: AgentTurn, *, backend: str = "claude") -> None:
        self._turn = turn
        self._backend = backend
        self._messages = ClaudeMessages(turn.path)
        self._resumed = turn.session is not None
        self._session: str | None = None
        self._told_session: str | None = None
        self._init_model: str | None = None
        self._version: str | None = None
        self._usage: Usage | None = None
        self._total = turn.session_usage
        self._outcome: _Outcome | None = None
        self._is_over = False
        self._complaint: Object = NOTHING  # the last assistant line, if that was an error
        self._window: Object = NOTHING  # of the plan, if it was used up
        self._retry = ""
        self._patience_s = 0.0
        self._compacting: Literal["no", "begun", "done", "told"] = "no"
        self._was_interrupted = False
        self._alive = False

    @property
    def finished(self) -> bool:
        """True once a result has ended the turn and no other has begun."""
        return self._is_over

    @property
    def open_tools(self) -> int:
        """How many tools are at work, those of sub-agents included."""
        return self._messages.open_tools

    @property
    def patience_s(self) -> float:
        """The delay of the retry that was announced last, while nothing has come since."""
        return self._patience_s

    def feed(self, line: bytes, /) -> Iterable[Notice]:
        """What a line means, in order; with ``--output-format json`` one line is all there is."""
        event = object_of(line)
        if event is not None:
            return tuple(self._read(event))
        if not line.lstrip().startswith(b"["):
            return ()
        _, events = json_value(line.decode("utf-8", "replace"))
        return tuple(
            notice for one in objects_in({"all": events}, "all") for notice in self._read(one)
        )

    def feed_stderr(self, _line: bytes, /) -> Iterable[Notice]:
        """Nothing: what claude prints there are warnings, or the reason of a start that failed."""
        return ()

    def conclude(self, ending: Ending, /) -> AgentReply:
        """The answer, if a result said that the turn succeeded.

        Raises:
            AgentError: none did.
        """
        if self._outcome is None:
            raise self._unfinished(ending)
        if self._outcome.failure is not None:
            raise self._failed(self._outcome.failure, ending)
        return self._reply(self._outcome.result)

    # -- events ----------------------------------------------------------------------------------

    def _read(self, event: Object) -> Iterator[Notice]:
        kind = text_in(event, "type")
        read = self._readers.get(kind)
        self._alive = self._alive or bool(kind)
        if kind:
            self._patience_s, self._retry = 0.0, ""
        return iter(()) if read is None else read(self, event)

    def _system(self, event: Object) -> Iterator[Notice]:
        subtype = text_in(event, "subtype")
        read = self._system_readers.get(subtype)
        return iter(()) if read is None else read(self, event)

    def _init(self, event: Object) -> Iterator[Notice]:
        self._is_over = False
        self._init_model = text_in(event, "model") or self._init_model
        self._version = text_in(event, "claude_code_version") or self._version
        return self._named(event)

    def _named(self, event: Object) -> Iterator[Notice]:
        """That the session is known, once for each."""
        session = text_in(event, "session_id")
        if not session:
            return
        self._session = session
        if session != self._told_session:
            self._told_session = session
            yield AgentSessionStarted(self._turn.path, session, self._backend, self._init_model)

    def _assistant(self, event: Object) -> Iterator[Notice]:
        self._is_over = False
        is_main = not text_in(event, "parent_tool_use_id")
        if self._told_session is None:
            yield from self._named(event)
        yield from self._compacted(NOTHING)
        is_error = event.get("is_api_error_message") is True
        is_synthetic = is_error or text_in(object_in(event, "message"), "model") == _SYNTHETIC
        if is_main:
            self._complaint = event if is_error or text_in(event, "error") else NOTHING
            self._was_interrupted = False
        if not is_synthetic:
            yield from self._messages.assistant(event)

    def _user(self, event: Object) -> Iterator[Notice]:
        if event.get("isReplay") is True:
            return
        self._is_over = False
        yield from self._messages.user(event)
        if not text_in(event, "parent_tool_use_id"):
            message = object_in(event, "message")
            said = [text_in(message, "content")]
            said += [text_in(block, "text") for block in objects_in(message, "content")]
            if any(text.startswith(_INTERRUPTED) for text in said):
                self._was_interrupted = True

    def _stream_event(self, event: Object) -> Iterator[Notice]:
        self._is_over = False
        return self._messages.piece(event)

    def _api_retry(self, event: Object) -> Iterator[Notice]:
        delay_ms = number_in(event, "retry_delay_ms")
        delay_s = None if delay_ms is None or delay_ms < 0 else delay_ms / 1000
        status = whole_in(event, "error_status")
        self._patience_s = delay_s or 0.0
        self._retry = text_in(event, "error") + (f" ({status})" if status else "")
        yield AgentRetry(self._turn.path, count_in(event, "attempt"), delay_s, self._retry.strip())

    def _status(self, event: Object) -> Iterator[Notice]:
        if self._told_session is None:  # a session that is made smaller is told before its init
            yield from self._named(event)
        outcome = text_in(event, "compact_result")
        if text_in(event, "status") == "compacting" and self._compacting != "begun":
            self._compacting = "begun"
            yield AgentCompaction(self._turn.path, "started")
        elif outcome == "success":  # to be told with the counts that follow, if they did not come
            self._compacting = "no" if self._compacting == "told" else "done"
        elif outcome:
            self._compacting = "no"
            yield AgentCompaction(self._turn.path, "failed")

    def _compact_boundary(self, event: Object) -> Iterator[Notice]:
        if not text_in(event, "parent_tool_use_id"):
            if self._told_session is None:
                yield from self._named(event)
            self._compacting = "done"
            yield from self._compacted(object_in(event, "compact_metadata"))
            self._compacting = "told"

    def _compacted(self, counts: Object) -> Iterator[Notice]:
        if self._compacting == "done":
            self._compacting = "no"
            before, after = count_in(counts, "pre_tokens"), count_in(counts, "post_tokens")
            yield AgentCompaction(self._turn.path, "completed", before, after)

    def _permission_denied(self, event: Object) -> Iterator[Notice]:
        return self._messages.denied(event)

    def _rate_limit_event(self, event: Object) -> Iterator[Notice]:
        info = object_in(event, "rate_limit_info")
        if is_used_up(info):
            self._window = info
        elif text_in(info, "rateLimitType") == text_in(self._window, "rateLimitType"):
            self._window = NOTHING
        if (limit := limit_of(info, self._turn.path)) is not None:
            yield limit

    def _result(self, event: Object) -> Iterator[Notice]:
        if self._outcome is not None and event == self._outcome.result:
            self._is_over = True  # the same, printed again
            return
        failure = failure_of(event, self._before)
        if failure is None and self._told_session is None:
            yield from self._named(event)
        yield from self._compacted(NOTHING)
        for denial in objects_in(event, "permission_denials"):
            yield from self._messages.denied(denial)
        self._count(event)
        if failure is None:
            yield from self._messages.answer(text_in(event, "result"))
        if self._usage is not None:
            yield AgentUsage(self._turn.path, self._usage)
        self._messages.close()
        self._is_over = not (count_in(event, "queued_turn_count") or 0)
        stopped = failure is not None and kind_of(failure) == "interrupted"
        if not stopped or self._outcome is None or self._outcome.failure is not None:
            self._outcome = _Outcome(event, failure)

    def _count(self, result: Object) -> None:
        resumed = self._resumed or self._outcome is not None
        used = turn_usage(result, self._total, resumed=resumed)
        self._total = session_usage(result, self._total, used, resumed=resumed)
        self._usage = self._usage + used if self._usage and used else self._usage or used

    _readers: ClassVar[dict[str, Callable[[ClaudeTurn, Object], Iterator[Notice]]]] = {
        "system": _system,
        "assistant": _assistant,
        "user": _user,
        "stream_event": _stream_event,
        "rate_limit_event": _rate_limit_event,
        "result": _result,
    }
    _system_readers: ClassVar[dict[str, Callable[[ClaudeTurn, Object], Iterator[Notice]]]] = {
        "init": _init,
        "api_retry": _api_retry,
        "status": _status,
        "compact_boundary": _compact_boundary,
        "permission_denied": _permission_denied,
    }

    # -- conclusions -----------------------------------------------------------------------------

    def _reply(self, result: Object) -> AgentReply:
        value: Any = result.get("structured_output")
        answer = result.get("result")
        return AgentReply(
            answer if isinstance(answer, str) else self._messages.text,
            model=self._model(result),
            session=self._known_session or text_in(result, "session_id") or None,
            usage=self._usage,
            value=value,
            has_value=value is not None,
            session_usage=self._total,
            stop_reason=text_in(result, "stop_reason", "terminal_reason") or None,
            denials=tuple(self._messages.denials),
            files_changed=tuple(self._messages.files_changed),
            version=self._version,
        )

    def _failed(self, failure: Failure, ending: Ending) -> AgentError:
        kind = kind_of(failure)
        is_vague = kind == "crashed" and failure.subtype == "error_during_execution"
        if ending.stopped is not None and (kind == "interrupted" or is_vague):
            return self._error(kind_of_end(ending, alive=True), words_of_end("claude", ending))
        subtype = "" if failure.subtype == "success" else failure.subtype
        why = failure.terminal_reason or subtype or "it did not say why"
        silent = "claude was interrupted" if kind == "interrupted" else f"claude failed: {why}"
        error = self._error(kind, failure.text or silent)
        error.retry_at = retry_at(failure, kind, ending.now)
        error.http_status = status_of(failure)
        if is_unknown_session(failure.text):
            error.session = None
            error.hint = "Begin a new session: claude keeps them for some weeks, on one machine."
        return error

    def _unfinished(self, ending: Ending) -> AgentError:
        """The error of a turn without a result."""
        if self._complaint:
            return self._failed(told(NOTHING, self._before), ending)
        words = words_of_end("claude", ending)
        if ending.stopped is None and self._was_interrupted:
            return self._error("interrupted", "claude was interrupted")
        kind = kind_of_end(ending, alive=self._alive)
        trying = f"; it was trying again: {self._retry}" if self._retry else ""
        error = self._error(kind, words + trying)
        if is_unknown_session(ending.stderr):
            error.kind, error.session = "bad_request", None
        return error

    def _error(self, kind: AgentErrorKind, reason: str) -> AgentError:
        return AgentError(
            self._turn.agent,
            shortened(reason, _REASON_CHARS),
            kind=kind,
            session=self._known_session,
            text=self._messages.text,
            usage=self._usage or self._messages.known_usage,
            model=self._model(NOTHING),
            hint=hint_of(kind),
        )

    @property
    def _before(self) -> Before:
        said = self._messages.text
        return Before(self._complaint, self._window, self._was_interrupted, said)

    @property
    def _known_session(self) -> str | None:
        return self._session or (None if self._turn.fork else self._turn.session)

    def _model(self, result: Object) -> str | None:
        models = list(object_in(result, "modelUsage"))
        only = models[0] if len(models) == 1 else None
        return self._messages.model or self._init_model or only
