"""What ``opencode run --format json`` prints, read for one turn.

There is no last event: a turn is over when a step ended with ``stop`` and the program has gone. A
conversation that does not fit the model is compacted for ever, so the first such error is the end.
Tools are told when they are done.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from handrail.agents.opencode.errors import (
    HINTS,
    MAY_PASS,
    NO_SESSION,
    kind_of_error,
    message_of,
    retry_at_of,
)
from handrail.agents.transport.loose_json import (
    Object,
    count_in,
    number_in,
    object_in,
    object_of,
    text_in,
    whole_in,
)
from handrail.agents.transport.parser import Ending, kind_of_end, lost_session, words_of_end
from handrail.errors import AgentErrorKind
from handrail.model.events import (
    AgentCompaction,
    AgentMessage,
    AgentReasoning,
    AgentSessionStarted,
    AgentToolCompleted,
    AgentToolStarted,
    AgentUsage,
    Notice,
)
from handrail.model.launch import AgentError
from handrail.model.results import Usage
from handrail.ports.agent import AgentReply, AgentTurn

_ENDS: dict[str, AgentErrorKind] = {"length": "output_limit", "content-filter": "refusal"}
_DENIED = re.compile(r"rejected permission|user rejected|rule which prevents", re.IGNORECASE)


class OpencodeParser:
    """Reads one turn of opencode. Mutable."""

    open_tools = 0
    patience_s = 0.0

    def __init__(self, turn: AgentTurn, *, model: str | None = None) -> None:
        self._turn = turn
        self._model = model
        self._session: str | None = None
        self._text = ""
        self._told: set[str] = set()
        self._usage: Usage | None = None
        self._end = ""
        self._denied = ""
        self._error: Object | None = None
        self._overflow: Object | None = None

    @property
    def finished(self) -> bool:
        """True once the conversation was too long; else only its exit tells that it is done."""
        return self._overflow is not None

    def feed(self, line: bytes, /) -> Iterable[Notice]:
        """What a line means, in order."""
        event = object_of(line)
        if event is None or not text_in(event, "type") or self._is_of_other(event):
            return ()
        return tuple(self._read(text_in(event, "type"), event, object_in(event, "part")))

    def feed_stderr(self, _line: bytes, /) -> Iterable[Notice]:
        """Nothing: what matters there is looked at in the end."""
        return ()

    def conclude(self, ending: Ending, /) -> AgentReply:
        """The answer, if the last step ended by itself.

        Raises:
            AgentError: it did not.
        """
        error = self._overflow or self._error
        if error is not None:
            raise self._failed(error, ending)
        if self._end == "stop":
            return self._reply()
        if self._end in _ENDS:
            raise self._made(_ENDS[self._end], f"the model ended its answer with {self._end!r}")
        alive = self._session is not None
        lost = None if alive else lost_session(self._turn, ending, "opencode", NO_SESSION)
        if lost is not None:
            raise lost
        if self._denied and not ending.exit_code and ending.stopped is None:
            refused = self._made("config", f"opencode did not allow it to go on: {self._denied}")
            refused.hint = 'Allow it with permission="full", or in opencode\'s own configuration.'
            raise refused
        kind = kind_of_end(ending, alive=alive)
        raise self._made(kind, words_of_end("opencode", ending, alive=alive))

    def _reply(self) -> AgentReply:
        before = self._turn.session_usage if self._turn.session is not None else Usage()
        usage = self._usage
        return AgentReply(
            self._text,
            model=self._model,
            session=self._session,
            usage=usage,
            session_usage=None if before is None or usage is None else before + usage,
            stop_reason=self._end,
        )

    def _failed(self, error: Object, ending: Ending) -> AgentError:
        data, kind = object_in(error, "data"), kind_of_error(error)
        if kind == "interrupted" and ending.stopped is not None:
            kind = kind_of_end(ending, alive=True)
        made = self._made(kind, message_of(error) or text_in(error, "name") or "no reason")
        made.http_status = whole_in(data, "statusCode")
        made.retry_at = retry_at_of(data, ending.now) if kind in MAY_PASS else None
        return made

    def _made(self, kind: AgentErrorKind, reason: str) -> AgentError:
        return AgentError(
            self._turn.agent,
            reason,
            kind=kind,
            session=self._session or (None if self._turn.fork else self._turn.session),
            text=self._text,
            usage=self._usage,
            model=self._model,
            hint=HINTS.get(kind, ""),
        )

    def _read(self, name: str, event: Object, part: Object) -> Iterator[Notice]:
        path = self._turn.path
        yield from self._session_known(event)
        match name:
            case "step_start":
                self._end, self._error = "", None  # it goes on
            case "text":
                yield from self._said(part)
            case "reasoning":
                if thought := text_in(part, "text"):
                    yield AgentReasoning(path, thought)
            case "tool_use":
                yield from self._tool(part)
            case "step_finish":
                yield from self._step_done(part)
            case "error":
                said = {"message": text_in(event, "error")}
                self._error = object_in(event, "error") or said
                if text_in(self._error, "name") == "ContextOverflowError":
                    self._overflow = self._overflow or self._error
            case _:
                pass

    def _is_of_other(self, event: Object) -> bool:
        """True for what another session says, such as that of an agent which this one started."""
        session = text_in(event, "sessionID")
        return bool(session) and self._session is not None and session != self._session

    def _session_known(self, event: Object) -> Iterator[Notice]:
        session = text_in(event, "sessionID")
        if session and self._session is None:
            self._session = session
            yield AgentSessionStarted(self._turn.path, session, "opencode-run", self._model)

    def _said(self, part: Object) -> Iterator[Notice]:
        text, ref = text_in(part, "text"), text_in(part, "id")
        if part.get("synthetic") is True:
            if object_in(part, "metadata").get("compaction_continue"):
                yield AgentCompaction(self._turn.path, "completed")
        elif text and ref not in self._told:
            self._told.update({ref} if ref else ())
            self._text = text
            yield AgentMessage(self._turn.path, text)

    def _tool(self, part: Object) -> Iterator[Notice]:
        state = object_in(part, "state")
        ref, name = text_in(part, "callID"), text_in(part, "tool")
        status, code = text_in(state, "status"), whole_in(object_in(state, "metadata"), "exit")
        if status in ("pending", "running") or ref in self._told:
            return
        self._told.update({ref} if ref else ())
        is_ok = status != "error" and code in (None, 0)
        output = text_in(state, "output", "error")
        self._denied = output if not is_ok and _DENIED.search(output) else ""
        yield AgentToolStarted(self._turn.path, ref, name, state.get("input"))
        yield AgentToolCompleted(self._turn.path, ref, name, is_ok, output, code)

    def _step_done(self, part: Object) -> Iterator[Notice]:
        self._end = text_in(part, "reason")
        step = _usage(part)
        if step != Usage():
            self._usage = step if self._usage is None else self._usage + step
            yield AgentUsage(self._turn.path, self._usage)


def _usage(part: Object) -> Usage:
    """What a step used; opencode tells cached tokens and thoughts besides the others."""
    tokens = object_in(part, "tokens")
    cache, cost = object_in(tokens, "cache"), number_in(part, "cost")
    read, written = count_in(cache, "read"), count_in(cache, "write")
    thoughts = count_in(tokens, "reasoning")
    return Usage(
        input_tokens=_sum(count_in(tokens, "input"), read, written),
        output_tokens=_sum(count_in(tokens, "output"), thoughts),
        cost_usd=cost,
        cached_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=thoughts,
        cost_source=None if cost is None else "reply",
    )


def _sum(count: int | None, *more: int | None) -> int | None:
    return None if count is None else count + sum(one or 0 for one in more)
