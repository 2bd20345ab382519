"""One turn of ``codex app-server``: the messages to send, and the meaning of its messages.

Theory of operation: each step of the conversation waits for the answer to the step before:
initialize; open a thread (new, resumed or forked); compact it if requested; start the turn. From
then on codex reports what it does, and sometimes asks. Only the ``turn/completed`` of our turn ends
it. Codex also reports threads of agents that it starts itself on the same line; messages of other
threads do not count for this turn.

Source: the types that ``codex app-server generate-ts`` writes, and the behaviour of codex 0.169.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from handrail.agents.codex.approvals import permission_answer
from handrail.agents.codex.errors import diagnose
from handrail.agents.codex.settings import SANDBOXES, thread_settings, turn_settings
from handrail.agents.codex.turn import RETRY, CodexTurn
from handrail.agents.codex.usage import PlanLimits, ThreadUsage
from handrail.agents.transport.loose_json import (
    NOTHING,
    Object,
    as_object,
    json_value,
    object_in,
    objects_in,
    text_in,
)
from handrail.agents.transport.parser import Ending
from handrail.agents.transport.rpc import (
    REFUSED,
    Message,
    Outgoing,
    Reply,
    Request,
    RpcError,
    RpcTurn,
    notification,
)
from handrail.errors import AgentErrorKind
from handrail.model.agent_options import AgentOptions
from handrail.model.dataclass import dataclass
from handrail.model.events import AgentCompaction
from handrail.model.launch import AgentError
from handrail.ports.agent import AgentReply, AgentTurn


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why there will be no answer; ``otherwise`` is the kind of a refusal that no words explain."""

    reason: str
    info: object = None
    code: int | None = None
    otherwise: AgentErrorKind = "transient"


class CodexDialogue(CodexTurn, RpcTurn):
    """One turn, from ``initialize`` to its end. Mutable.

    ``schema`` is the strict schema of the answer; with it, the answer's JSON is its value.
    ``profile`` are the settings of a profile.

    Raises:
        AgentError: codex has no equivalent of an option.
    """

    def __init__(
        self,
        turn: AgentTurn,
        options: AgentOptions,
        *,
        cwd: str,
        schema: Mapping[str, Any] | None = None,
        profile: Mapping[str, Any] | None = None,
        client_version: str = "0",
    ) -> None:
        super().__init__(turn, model=options.profile_and_model[1])
        self._options = options
        self._schema = schema
        self._settings = thread_settings(turn.agent, options, cwd=cwd, profile=profile or {})
        if turn.boundary is not None:  # its own sandbox cannot be made in another
            self._settings["sandbox"] = SANDBOXES["full"]
        self._client_version = client_version
        self._limits = PlanLimits()
        self._counts = ThreadUsage(fresh=turn.session is None, earlier=turn.session_usage)
        self._stage: Literal["opening", "compacting", "working"] = "opening"
        self._turn_id = ""
        self._compaction_id = ""
        self._older_ids: frozenset[str] = frozenset()
        self._status: str | None = None
        self._failure: _Failure | None = None
        self._fault: Object = NOTHING
        """The last error after which codex did not announce a retry."""

    # -- called by the transport -----------------------------------------------------------------

    @property
    def finished(self) -> bool:
        """True once the turn is over, cannot begin, or waits for a network in vain."""
        return self._status is not None or self._failure is not None or self.is_offline

    def start(self) -> list[Message]:
        """The first message to send."""
        client = {"name": "handrail", "title": "handrail", "version": self._client_version}
        capabilities = {"experimentalApi": True}
        return [
            self.peer.request("initialize", {"clientInfo": client, "capabilities": capabilities})
        ]

    def interrupt(self) -> list[Message]:
        """The message that ends the turn early; none if no turn of known id is running."""
        turn_id = self._compaction_id if self._stage == "compacting" else self._turn_id
        if self.finished or not turn_id:
            return []
        return [self.peer.request("turn/interrupt", {"threadId": self.session, "turnId": turn_id})]

    def conclude(self, ending: Ending) -> AgentReply:
        """The answer, if codex declared the turn completed.

        Raises:
            AgentError: codex did not, or the turn failed.
        """
        if self._failure is not None:
            raise self._failed(self._failure, ending)
        match self._status:
            case "completed":
                has_value, value = json_value(self.text) if self._schema else (False, None)
                return self.reply(value=value, has_value=has_value, stop_reason=self._status)
            case "interrupted":
                raise self.stopped(ending)
            case None:
                raise self.unfinished(ending)
            case _:
                raise self.error("crashed", f"codex ended the turn as {self._status!r}")

    def _failed(self, failure: _Failure, ending: Ending) -> AgentError:
        diagnosis = diagnose(failure.reason, ending.now, failure.info, self._limits.snapshot)
        if diagnosis.kind == "transient" and failure.code in REFUSED:
            diagnosis = replace(diagnosis, kind=failure.otherwise, retry_at=None)
        return self.failed(diagnosis, ending)

    # -- messages --------------------------------------------------------------------------------

    def on_message(self, message: object, /) -> Outgoing:
        """The notices of a message, and the messages to send because of it. Never raises."""
        self.extra_silence_s = 0.0
        return super().on_message(message)

    def on_reply(self, reply: Reply) -> Outgoing:
        """Notices and messages that follow from the result of our request."""
        result = reply.result
        match reply.method:
            case "initialize":
                yield notification("initialized")
                yield self._open()
            case "thread/start" | "thread/resume" | "thread/fork":
                yield from self._on_session_opened(
                    object_in(result, "thread"), text_in(result, "model")
                )
            case "turn/start":
                self._begin(object_in(result, "turn"))
            case _:
                pass

    def on_error(self, method: str, error: RpcError) -> Outgoing:
        """Notices and messages that follow from the error that answered our request."""
        match method:
            case "turn/interrupt":
                pass
            case "thread/compact/start":
                # The turn itself will show whether the thread is still too large.
                yield AgentCompaction(self.path, "failed")
                yield self._prompt()
            case _:
                self.has_no_session = self.session is None
                info = as_object(error.data).get("codexErrorInfo")
                otherwise: AgentErrorKind = "bad_request" if method == "turn/start" else "config"
                self._failure = _Failure(error.message, info, error.code, otherwise)

    def on_request(self, request: Request) -> Outgoing:
        """The answer to a request of codex, and the notice of what was allowed or denied."""
        item = text_in(request.params, "itemId", "callId")
        is_full = self._options.permission == "full" and self._is_ours(request.params)
        tool = self.tool_of(item)
        message, permission = permission_answer(request, path=self.path, is_full=is_full, tool=tool)
        yield message
        if permission is not None:
            self.asked_about.add(item)
            self.denials += [permission.tool] if permission.decision == "denied" else []
            yield permission

    def _is_ours(self, params: Object) -> bool:
        """False for messages of another thread on this line."""
        thread = text_in(params, "threadId")
        return not thread or self.session is None or thread == self.session

    # -- the steps -------------------------------------------------------------------------------

    def _open(self) -> Message:
        turn = self.turn
        if turn.session is None:
            return self.peer.request("thread/start", self._settings)
        method = "thread/fork" if turn.fork else "thread/resume"
        return self.peer.request(method, {"threadId": turn.session, **self._settings})

    def _on_session_opened(self, thread: Object, model: str) -> Outgoing:
        self.session = text_in(thread, "id") or self.known_session
        if self.session is None:
            self._failure = _Failure("codex opened a thread without an id")
            return
        self.model = model or text_in(thread, "model") or self.model
        self.version = text_in(thread, "cliVersion") or None
        self._older_ids = frozenset(text_in(one, "id") for one in objects_in(thread, "turns"))
        yield from self.session_named(self.session)
        if self.turn.compact and self.turn.session is not None:
            self._stage = "compacting"
            yield self.peer.request("thread/compact/start", {"threadId": self.session})
        else:
            yield self._prompt()

    def _prompt(self) -> Message:
        self._stage = "working"
        prompt = [{"type": "text", "text": self.turn.prompt}]
        settings = turn_settings(self._options, self._schema)
        return self.peer.request(
            "turn/start", {"threadId": self.session, "input": prompt, **settings}
        )

    def _begin(self, turn: Object) -> None:
        """Take the id for that of our turn, or of the compaction before it."""
        turn_id = text_in(turn, "id")
        if turn_id in self._older_ids:
            return
        if self._stage == "compacting":
            self._compaction_id = self._compaction_id or turn_id
        elif self._stage == "working" and turn_id != self._compaction_id:
            self._turn_id = self._turn_id or turn_id

    # -- notifications ---------------------------------------------------------------------------

    def on_notification(self, method: str, params: Object) -> Outgoing:
        """Notices and messages that follow from a notification of codex."""
        if not self._is_ours(params):
            return
        match method:
            case "account/rateLimits/updated":
                yield from self._limits.update(self.path, object_in(params, "rateLimits"))
            case "error":
                yield from self._on_error(params)
            case "thread/tokenUsage/updated":
                yield from self._on_usage(params)
            case _ if self._stage == "opening":
                pass
            case "turn/started":
                self._begin(object_in(params, "turn"))
            case "turn/completed":
                yield from self._turn_completed(object_in(params, "turn"))
            case _ if self._is_of_turn(text_in(params, "turnId")):
                yield from self._on_turn_event(method, params)
            case _:
                pass

    def _on_turn_event(self, method: str, params: Object) -> Outgoing:
        """Notices of events in our turn; most have none."""
        match method:
            case "item/started":
                yield from self.item_started(object_in(params, "item"))
            case "item/completed":
                yield from self.item_completed(object_in(params, "item"))
            case "item/agentMessage/delta":
                self.piece(text_in(params, "itemId"), text_in(params, "delta"))
            case "item/reasoning/summaryTextDelta":
                self.thought(text_in(params, "itemId"), text_in(params, "delta"))
            case "thread/compacted":
                yield from self.thread_compacted()
            case "model/rerouted":
                self.model = text_in(params, "toModel") or self.model
            case _:
                pass

    def _is_of_turn(self, turn_id: str) -> bool:
        """False for late messages of an older turn of our thread."""
        ours = self._compaction_id if self._stage == "compacting" else self._turn_id
        if not turn_id or turn_id == ours:
            return True
        return not ours and turn_id != self._compaction_id and turn_id not in self._older_ids

    def _on_error(self, params: Object) -> Outgoing:
        """An error that does not end the turn: codex retries, or the turn's end will report it."""
        error = object_in(params, "error")
        message, details = text_in(error, "message"), text_in(error, "additionalDetails")
        self.complaint = details or message or self.complaint
        if params.get("willRetry") is True:
            attempt = RETRY.match(message)
            yield self.retried(message, details or message, attempt and attempt["number"])
        else:
            self._fault = error

    def _on_usage(self, params: Object) -> Outgoing:
        """A resumed thread first repeats its old count, under the id of an older turn."""
        turn_id = text_in(params, "turnId")
        known = {one for one in (self._turn_id, self._compaction_id) if one}
        is_new = self.turn.session is None  # a new thread has no older turns
        is_ours = turn_id in known or is_new if turn_id else self._stage != "opening"
        counts, before = self._counts, self.usage
        is_call = self._stage != "compacting"
        counts.update(object_in(params, "tokenUsage"), is_ours=is_ours, is_call=is_call)
        self.usage, self.session_usage = counts.spent, counts.total
        self.context_tokens = counts.context_tokens
        if is_ours and self.usage != before:
            self.calls += is_call
            yield from self.used(self.usage)

    def _turn_completed(self, turn: Object) -> Outgoing:
        if not self._is_of_turn(text_in(turn, "id")):
            return
        status, error = text_in(turn, "status"), object_in(turn, "error")
        if self._stage == "compacting" and status == "completed":
            yield self._prompt()
            return
        yield from self.items_ended(objects_in(turn, "items"))
        message = text_in(error, "message") or text_in(turn, "error")
        if status == "failed" or message:
            info = error.get("codexErrorInfo")
            is_same = message in ("", text_in(self._fault, "message"))
            if info is None and is_same:  # codex reported it before the end
                info = self._fault.get("codexErrorInfo")
            self._failure = _Failure(message or self.complaint, info)
        else:
            self._status = status or "unknown"
