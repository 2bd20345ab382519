"""What ``copilot --output-format json`` prints, read for one turn.

The last line is a ``result``. It says exit code 0 also of a turn that was broken off, so success is
a ``result`` of 0 with no ``abort``, and no ``session.error`` that the main agent did not get over.
Messages come in pieces and then whole: the whole ones count, the pieces only if no whole one came.
Events with an ``agentId`` are a sub-agent's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from handrail.agents.copilot.errors import HINTS, NO_SESSION, Fault, status_said
from handrail.agents.copilot.notices import compaction_begun, compaction_ended, limits
from handrail.agents.copilot.said import Said
from handrail.agents.copilot.tools import Tools
from handrail.agents.copilot.usage import CallUsage, reported_usage
from handrail.agents.programs.ending import kind_of_end, words_of_end
from handrail.agents.programs.loose_json import (
    Object,
    list_in,
    number_in,
    object_in,
    object_of,
    text_in,
    whole_in,
)
from handrail.agents.programs.lost_session import lost_session
from handrail.agents.programs.turn_parser import Ending
from handrail.errors import AgentError, AgentErrorKind
from handrail.model.events import (
    AgentLimit,
    AgentRetry,
    AgentSessionStarted,
    AgentUsage,
    Notice,
)
from handrail.model.results import Usage
from handrail.ports.agent import AgentReply, AgentTurn


def _no_report() -> Object:
    return {}


class CopilotParser:
    """Reads one turn of copilot. Mutable.

    ``session`` is the id that the session was given; ``report`` reads what copilot wrote about its
    usage, once it has ended.
    """

    def __init__(
        self,
        turn: AgentTurn,
        *,
        session: str | None = None,
        model: str | None = None,
        report: Callable[[], Object] = _no_report,
    ) -> None:
        self._turn = turn
        self._session = session
        self._told_session: str | None = None
        self._model = model
        self._report = report
        self._said = Said(turn.path)
        self._tools = Tools(turn.path)
        self._calls = CallUsage()
        self._retries = 0
        self._request: Object = {}
        self._retry_after_s: float | None = None
        self._used_up: dict[str, float | None] = {}  # quotas, and when each begins anew
        self._error: Object | None = None
        self._aborted = ""
        self._result: Object | None = None
        self._version: str | None = None
        self._alive = False

    @property
    def finished(self) -> bool:
        """True once the ``result`` was seen."""
        return self._result is not None

    @property
    def open_tools(self) -> int:
        """How many tools are at work."""
        return self._tools.open_tools

    @property
    def patience_s(self) -> float:
        """How long it said that it waits for a limit to be over."""
        return self._retry_after_s or 0.0

    def feed(self, line: bytes, /) -> Iterable[Notice]:
        """What a line means, in order."""
        event = object_of(line)
        if event is None or not text_in(event, "type"):
            return ()
        if self._result is not None:
            return ()  # it is done: an abort is of a program that was told to go
        self._alive = True
        return tuple(self._read(text_in(event, "type"), event, object_in(event, "data")))

    def feed_stderr(self, _line: bytes, /) -> Iterable[Notice]:
        """Nothing: what matters there is looked at in the end."""
        return ()

    def conclude(self, ending: Ending, /) -> AgentReply:
        """The answer, if the turn ended well by copilot's own account.

        Raises:
            AgentError: it did not.
        """
        usage = self._usage()
        if self._error is not None:
            raise self._failed(self._error, ending, usage)
        if self._aborted:
            raise self._broken_off(ending, usage)
        if self._result is not None and whole_in(self._result, "exitCode") == 0:
            if self._said.text or ending.stopped is None:
                return self._reply(usage)
        elif self._result is not None and self._request:
            raise self._failed({}, ending, usage)
        lost = None if self._alive else lost_session(self._turn, ending, "copilot", NO_SESSION)
        if lost is not None:
            raise lost
        kind = kind_of_end(ending, alive=self._alive)
        words = words_of_end("copilot", ending, alive=self._alive)
        raise self._made(kind, words, usage)

    # -- conclusions -----------------------------------------------------------------------------

    def _reply(self, usage: Usage | None) -> AgentReply:
        changes = object_in(object_in(self._result or {}, "usage"), "codeChanges")
        files = [name for name in list_in(changes, "filesModified") if isinstance(name, str)]
        before = self._turn.session_usage if self._turn.session is not None else Usage()
        return AgentReply(
            self._said.text,
            model=self._model,
            session=self._session,
            usage=usage,
            session_usage=None if before is None or usage is None else before + usage,
            denials=tuple(self._tools.denials),
            files_changed=tuple(files),
            version=self._version,
        )

    def _broken_off(self, ending: Ending, usage: Usage | None) -> AgentError:
        if self._aborted == "autopilot_credit_limit":
            return self._made("spending_cap", "copilot used up the credits it may use", usage)
        if ending.stopped is None:
            return self._made("interrupted", f"copilot was interrupted ({self._aborted})", usage)
        kind = kind_of_end(ending, alive=True)
        return self._made(kind, words_of_end("copilot", ending), usage)

    def _failed(self, error: Object, ending: Ending, usage: Usage | None) -> AgentError:
        status = whole_in(error, "statusCode")
        status = whole_in(self._request, "statusCode") if status is None else status
        fault = Fault(
            type=text_in(error, "errorType"),
            code=text_in(error, "errorCode") or text_in(self._request, "errorCode"),
            message=text_in(error, "message"),
            status=status_said(text_in(error, "message")) if status is None else status,
            request=text_in(self._request, "errorMessage"),
            retry_after_s=self._retry_after_s,
            resets_at=max((at for at in self._used_up.values() if at is not None), default=None),
        )
        reason = fault.message or fault.request or "copilot failed and did not say why"
        made = self._made(fault.kind, " ".join(reason.split()), usage)
        made.retry_at, made.http_status = fault.retry_at(ending.now), fault.status
        return made

    def _made(self, kind: AgentErrorKind, reason: str, usage: Usage | None) -> AgentError:
        return AgentError(
            self._turn.agent,
            reason,
            kind=kind,
            session=self._session if self._alive else self._turn.session,
            text=self._said.text,
            usage=usage,
            model=self._model,
            hint=HINTS.get(kind, ""),
        )

    def _usage(self) -> Usage | None:
        """This turn's, told once more if only the report knew it."""
        if self._calls.total is not None:
            return self._calls.total
        turn = self._turn
        usage = reported_usage(
            self._report(), resumed=turn.session is not None, before=turn.session_usage
        )
        if usage is not None:
            turn.emit(AgentUsage(turn.path, usage))
        return usage

    # -- events ----------------------------------------------------------------------------------

    def _read(self, name: str, event: Object, data: Object) -> Iterator[Notice]:
        if text_in(event, "agentId") or text_in(data, "parentToolCallId"):
            yield from self._done(name, data)
            return
        self._model = self._model_in(name, data)
        if name == "result":
            yield from self._over(event)
            return
        yield from self._session_known(name, data)
        self._went(name, data)
        yield from self._spoken(name, data)
        yield from self._done(name, data)

    def _went(self, name: str, data: Object) -> None:
        """How the turn goes."""
        match name:
            case "assistant.turn_start":
                self._error, self._retry_after_s = None, None  # it got over what there was
            case "assistant.message":
                self._request = {}
            case "model.call_failure":
                self._request = data
            case "auto_mode_switch.requested":
                wait_s = number_in(data, "retryAfterSeconds")
                self._retry_after_s = wait_s if wait_s is None or wait_s >= 0 else None
            case "session.error" if not self._aborted:
                self._error = data
            case "abort":
                self._aborted = text_in(data, "reason") or "aborted"
            case "agent.interrupted":
                self._aborted = self._aborted or "interrupted"
            case "assistant.idle" | "session.idle" if data.get("aborted") is True:
                self._aborted = self._aborted or "aborted"
            case _:
                pass

    def _spoken(self, name: str, data: Object) -> Iterator[Notice]:
        """What the main agent says."""
        match name:
            case "assistant.turn_start":
                self._said.begin()
            case "assistant.message":
                yield from self._said.message(data)
            case "assistant.message_delta":
                self._said.piece(data)
            case "assistant.reasoning":
                yield from self._said.thought(data)
            case "assistant.reasoning_delta":
                self._said.thought_piece(data)
            case "assistant.turn_end" | "session.error" | "abort":
                yield from self._said.rest()
            case "assistant.turn_retry":
                yield self._retry(data)
            case _:
                pass

    def _done(self, name: str, data: Object) -> Iterator[Notice]:
        """What means the same whoever does it, the main agent or one that it started."""
        path = self._turn.path
        match name:
            case "tool.execution_start":
                yield from self._tools.started(data)
            case "tool.execution_complete":
                yield from self._tools.completed(data)
            case "permission.requested":
                self._tools.asked(data)
            case "permission.completed":
                yield from self._tools.answered(data)
            case "session.compaction_start":
                yield compaction_begun(path, data)
            case "session.compaction_complete":
                yield compaction_ended(path, data)
            case "assistant.usage":
                if (usage := self._calls.add(data)) is not None:
                    yield AgentUsage(path, usage)
                for limit in limits(path, object_in(data, "quotaSnapshots")):
                    self._note(limit)
                    yield limit
            case _:
                pass

    def _note(self, limit: AgentLimit) -> None:
        if limit.status == "reached":
            self._used_up[limit.window] = limit.reset_at
        else:
            self._used_up.pop(limit.window, None)

    def _model_in(self, name: str, data: Object) -> str | None:
        if name.startswith(("session.tools_updated", "assistant.", "model.", "session.model")):
            return text_in(data, "model", "newModel") or self._model
        if name in ("session.start", "session.resume"):
            return text_in(data, "selectedModel") or self._model
        return self._model

    def _session_known(self, name: str, data: Object) -> Iterator[Notice]:
        """The session, told when the program turns to the prompt: its model is known by then."""
        if name in ("session.start", "session.resume"):
            self._version = text_in(data, "copilotVersion") or self._version
            self._session = text_in(data, "sessionId") or self._session
        elif not name.startswith(("user.", "assistant.", "session.error")):
            return
        yield from self._tell_session()

    def _tell_session(self) -> Iterator[Notice]:
        if self._session and self._session != self._told_session:
            self._told_session = self._session
            yield AgentSessionStarted(self._turn.path, self._session, "copilot", self._model)

    def _over(self, event: Object) -> Iterator[Notice]:
        self._result = {**object_in(event, "data"), **event}
        self._tools.close()
        self._session = text_in(self._result, "sessionId") or self._session
        yield from self._tell_session()
        yield from self._said.rest()

    def _retry(self, data: Object) -> Notice:
        self._retries += 1
        attempt = whole_in(self._request, "retryAttempt")
        said = (text_in(data, "reason"), text_in(self._request, "errorMessage"))
        return AgentRetry(
            self._turn.path,
            self._retries if attempt is None else attempt + 1,
            self._retry_after_s,
            ": ".join(one for one in said if one),
        )
