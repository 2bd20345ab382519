"""One turn of ``codex app-server``: what is sent to it, and what its messages mean.

Theory of operation: each step of the conversation waits for the answer to the one before it:
initialize, open a thread (a new one, an old one, or a copy of one), make it smaller if that was
asked for, start the turn. From then on codex tells what it does, and sometimes asks. The
``turn/completed`` of our turn ends it; nothing else does. Threads of agents that codex starts
itself speak on the same line: what is not of our thread is no part of this turn.

Source: the types that ``codex app-server generate-ts`` writes, and what codex 0.169 did.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from handrail.agents.codex.errors import (
    fault_of_info,
    fault_of_message,
    hint_of,
    reason_of,
    status_of_info,
    status_of_message,
)
from handrail.agents.codex.items import News, answered
from handrail.agents.codex.settings import thread_settings, turn_settings
from handrail.agents.transport.loose_json import (
    NOTHING,
    Object,
    as_object,
    json_value,
    object_in,
    objects_in,
    text_in,
)
from handrail.agents.transport.parser import Ending, kind_of_end, words_of_end
from handrail.agents.transport.rpc import (
    REFUSED,
    Message,
    Notification,
    Peer,
    Reply,
    Request,
    RpcError,
    notification,
)
from handrail.errors import AgentErrorKind
from handrail.model.agent_options import AgentOptions
from handrail.model.events import AgentCompaction, AgentPermission, AgentSessionStarted, Notice
from handrail.model.launch import AgentError
from handrail.ports.agent import AgentReply, AgentTurn

PROGRAM = "codex"

Said: TypeAlias = Iterator["Notice | Message"]
"""What follows from a message: notices, and messages (the dicts) to send."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why there will be no answer. ``otherwise`` is the kind of a refusal in unknown words."""

    reason: str
    info: object = None
    code: int | None = None
    otherwise: AgentErrorKind = "transient"


class CodexDialogue:
    """One turn, from the greeting to its end. Mutable.

    ``schema`` is what the answer must fit, as codex takes it; then the answer's JSON is its value.
    ``profile`` are the settings of a profile.

    Raises:
        AgentError: an option cannot be said to codex.
    """

    def __init__(
        self,
        turn: AgentTurn,
        options: AgentOptions,
        *,
        cwd: str,
        schema: Mapping[str, Any] | None = None,
        profile: Mapping[str, Any] | None = None,
        backend: str = PROGRAM,
        client_version: str = "0",
    ) -> None:
        self._turn = turn
        self._options = options
        self._schema = schema
        self._settings = thread_settings(turn.agent, options, cwd=cwd, profile=profile or {})
        self._backend = backend
        self._client_version = client_version
        self._peer = Peer()
        self._news = News(turn.path, fresh=turn.session is None, earlier=turn.session_usage)
        self._stage: Literal["opening", "compacting", "working"] = "opening"
        self._is_alive = False
        self._thread: str | None = None
        self._has_no_thread = False
        self._turn_id = ""
        self._compaction_id = ""
        self._older_ids: frozenset[str] = frozenset()
        self._model = options.profile_and_model[1]
        self._version: str | None = None
        self._status: str | None = None
        self._failure: _Failure | None = None
        self._asked_about: set[str] = set()
        self._denials: list[str] = []

    # -- what the driver asks --------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        """True once the turn was said to be over, or cannot begin, or waits in vain."""
        return self._status is not None or self._failure is not None or self._news.is_cut_off

    @property
    def open_tools(self) -> int:
        """How many tools are at work."""
        return self._news.items.open_tools

    @property
    def patience_s(self) -> float:
        """How long codex said that it will wait before it tries again."""
        return self._news.patience_s

    def start(self) -> list[Message]:
        """What is sent first."""
        client = {"name": "handrail", "title": "handrail", "version": self._client_version}
        capabilities = {"experimentalApi": True}
        return [
            self._peer.request("initialize", {"clientInfo": client, "capabilities": capabilities})
        ]

    def received(self, message: object) -> tuple[list[Notice], list[Message]]:
        """What a message means, and what is to be sent because of it. Nothing raises."""
        notices: list[Notice] = []
        messages: list[Message] = []
        self._news.patience_s = 0.0
        for one in self._heard(as_object(message)):
            if isinstance(one, dict):
                messages.append(one)
            else:
                notices.append(one)
        return notices, messages

    def interrupt(self) -> list[Message]:
        """What is sent to end the turn early."""
        turn_id = self._compaction_id if self._stage == "compacting" else self._turn_id
        if self.finished or not turn_id:
            return []
        return [self._peer.request("turn/interrupt", {"threadId": self._thread, "turnId": turn_id})]

    def conclude(self, ending: Ending) -> AgentReply:
        """The answer, if codex said that the turn is completed.

        Raises:
            AgentError: it did not, or the turn failed.
        """
        if self._failure is not None:
            raise self._failed(self._failure, ending)
        if self._status == "completed":
            return self._reply()
        if self._status == "interrupted":
            was = replace(ending, stopped=ending.stopped or "interrupted")
            raise self._error(kind_of_end(was, alive=True), words_of_end(PROGRAM, was))
        if self._status is not None:
            raise self._error("crashed", f"codex ended the turn as {self._status!r}")
        if ending.stopped is None and self._news.is_cut_off:
            raise self._error("transient", f"codex reaches no network: {self._news.complaint}")
        said = f"; its last complaint: {self._news.complaint}" if self._news.complaint else ""
        kind = kind_of_end(ending, alive=self._is_alive)
        raise self._error(kind, words_of_end(PROGRAM, ending) + said)

    # -- the end ---------------------------------------------------------------------------------

    def _reply(self) -> AgentReply:
        answer = self._news.items.answer
        has_value, value = json_value(answer) if self._schema is not None else (False, None)
        return AgentReply(
            answer,
            model=self._news.model or self._model,
            session=self._session,
            usage=self._news.usage.spent,
            value=value,
            has_value=has_value,
            session_usage=self._news.usage.total,
            stop_reason=self._status,
            denials=tuple(self._denials),
            files_changed=tuple(self._news.items.files_changed),
            version=self._version,
        )

    def _failed(self, failure: _Failure, ending: Ending) -> AgentError:
        reason, now = failure.reason, ending.now
        if failure.info is None:
            kind, retry_at = fault_of_message(reason, now)
        else:
            kind, retry_at = fault_of_info(failure.info, reason, now, self._news.limits.snapshot)
        if kind == "transient" and failure.code in REFUSED:
            kind, retry_at = failure.otherwise, None
        error = self._error(kind, reason_of(reason))
        error.retry_at = retry_at
        error.http_status = status_of_info(failure.info) or status_of_message(reason)
        return error

    def _error(self, kind: AgentErrorKind, reason: str) -> AgentError:
        return AgentError(
            self._turn.agent,
            reason,
            kind=kind,
            session=self._session,
            text=self._news.items.answer,
            usage=self._news.usage.spent,
            model=self._news.model or self._model,
            hint=hint_of(kind),
        )

    @property
    def _session(self) -> str | None:
        """The thread that can be gone on in: not one that codex would not open."""
        is_other = self._turn.fork or self._has_no_thread
        return self._thread or (None if is_other else self._turn.session)

    # -- messages --------------------------------------------------------------------------------

    def _heard(self, message: Object) -> Said:
        received = self._peer.received(message)
        self._is_alive = self._is_alive or received is not None
        match received:
            case Reply():
                yield from self._answered(received)
            case Request():
                yield from self._asked(received)
            case Notification():
                yield from self._told(received.method, received.params)
            case None:
                pass

    def _answered(self, reply: Reply) -> Said:
        result = reply.result
        if reply.error is not None:
            yield from self._refused(reply.method, reply.error)
            return
        match reply.method:
            case "initialize":
                yield notification("initialized")
                yield self._open()
            case "thread/start" | "thread/resume" | "thread/fork":
                yield from self._opened(object_in(result, "thread"), text_in(result, "model"))
            case "turn/start":
                self._begin(object_in(result, "turn"))
            case _:
                pass

    def _refused(self, method: str, error: RpcError) -> Said:
        match method:
            case "turn/interrupt":
                pass
            case "thread/compact/start":
                # The turn itself will tell whether the thread is still too large.
                yield AgentCompaction(self._turn.path, "failed")
                yield self._prompt()
            case _:
                self._has_no_thread = self._thread is None
                info = as_object(error.data).get("codexErrorInfo")
                self._failure = _Failure(
                    error.message,
                    info,
                    error.code,
                    otherwise="bad_request" if method == "turn/start" else "config",
                )

    def _asked(self, request: Request) -> Said:
        item = text_in(request.params, "itemId", "callId")
        is_full = self._options.permission == "full" and self._is_ours(request.params)
        tool = self._news.items.tool_of(item)
        message, permission = answered(request, path=self._turn.path, is_full=is_full, tool=tool)
        yield message
        if permission is not None:
            self._asked_about.add(item)
            yield from self._decided(permission)

    def _decided(self, permission: AgentPermission) -> Said:
        if permission.decision == "denied":
            self._denials.append(permission.tool)
        yield permission

    def _is_ours(self, params: Object) -> bool:
        """False for what another thread on this line does."""
        thread = text_in(params, "threadId")
        return not thread or self._thread is None or thread == self._thread

    # -- the steps -------------------------------------------------------------------------------

    def _open(self) -> Message:
        turn = self._turn
        if turn.session is None:
            return self._peer.request("thread/start", self._settings)
        method = "thread/fork" if turn.fork else "thread/resume"
        return self._peer.request(method, {"threadId": turn.session, **self._settings})

    def _opened(self, thread: Object, model: str) -> Said:
        self._thread = text_in(thread, "id") or self._session
        if self._thread is None:
            self._failure = _Failure("codex opened a thread without an id")
            return
        self._model = model or text_in(thread, "model") or self._model
        self._version = text_in(thread, "cliVersion") or None
        self._older_ids = frozenset(text_in(one, "id") for one in objects_in(thread, "turns"))
        yield AgentSessionStarted(self._turn.path, self._thread, self._backend, self._model)
        if self._turn.compact and self._turn.session is not None:
            self._stage = "compacting"
            yield self._peer.request("thread/compact/start", {"threadId": self._thread})
        else:
            yield self._prompt()

    def _prompt(self) -> Message:
        self._stage = "working"
        told = [{"type": "text", "text": self._turn.prompt}]
        settings = turn_settings(self._options, self._schema)
        return self._peer.request(
            "turn/start", {"threadId": self._thread, "input": told, **settings}
        )

    def _begin(self, turn: Object) -> None:
        """Know our turn by its id, or that of the compaction before it."""
        turn_id = text_in(turn, "id")
        if turn_id in self._older_ids:
            return
        if self._stage == "compacting":
            self._compaction_id = self._compaction_id or turn_id
        elif self._stage == "working" and turn_id != self._compaction_id:
            self._turn_id = self._turn_id or turn_id

    # -- what codex tells ------------------------------------------------------------------------

    def _told(self, method: str, params: Object) -> Said:
        if not self._is_ours(params):
            return
        match method:
            case "account/rateLimits/updated":
                yield from self._news.limited(params)
            case "error":
                yield from self._news.complained(params)
            case "thread/tokenUsage/updated":
                yield from self._counted(params)
            case _ if self._stage == "opening":
                pass
            case "turn/started":
                self._begin(object_in(params, "turn"))
            case "turn/completed":
                yield from self._turn_completed(object_in(params, "turn"))
            case _ if self._is_of_turn(text_in(params, "turnId")):
                yield from self._news.read(method, params)
                if method == "item/completed":
                    yield from self._declined(object_in(params, "item"))
            case _:
                pass

    def _is_of_turn(self, turn_id: str) -> bool:
        """False for what an older turn of our thread still tells."""
        ours = self._compaction_id if self._stage == "compacting" else self._turn_id
        if not turn_id or turn_id == ours:
            return True
        return not ours and turn_id != self._compaction_id and turn_id not in self._older_ids

    def _counted(self, params: Object) -> Said:
        """A thread that is gone on in first tells its count again, under the id of an old turn."""
        turn_id = text_in(params, "turnId")
        known = {one for one in (self._turn_id, self._compaction_id) if one}
        is_new = self._turn.session is None  # so that it has no older turns
        is_ours = turn_id in known or is_new if turn_id else self._stage != "opening"
        is_call = self._stage != "compacting"
        yield from self._news.counted(params, is_ours=is_ours, is_call=is_call)

    def _declined(self, item: Object) -> Said:
        """What codex denied by itself, without having asked."""
        item_id = text_in(item, "id")
        if text_in(item, "status") == "declined" and item_id not in self._asked_about:
            self._asked_about.add(item_id)
            tool = self._news.items.tool_of(item_id)
            reason = text_in(item, "command")
            yield from self._decided(AgentPermission(self._turn.path, tool, "denied", reason))

    def _turn_completed(self, turn: Object) -> Said:
        if not self._is_of_turn(text_in(turn, "id")):
            return
        status, error = text_in(turn, "status"), object_in(turn, "error")
        if self._stage == "compacting" and status == "completed":
            yield self._prompt()
            return
        yield from self._news.items.ended(objects_in(turn, "items"))
        message = text_in(error, "message") or text_in(turn, "error")
        if status == "failed" or message:
            info = error.get("codexErrorInfo")
            known = self._fault(message) if info is None else error
            said = message or self._news.complaint
            self._failure = _Failure(said, known.get("codexErrorInfo"))
        else:
            self._status = status or "unknown"

    def _fault(self, message: str) -> Object:
        """The error of which codex told before the end, if that does not speak of another one."""
        fault = self._news.fault
        return fault if message in ("", text_in(fault, "message")) else NOTHING
