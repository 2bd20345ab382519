"""One turn of an agent that speaks ACP, the Agent Client Protocol: what is sent, what is meant.

Theory of operation: each step waits for the answer to the one before it: initialize, open a
session (a new one, an old one, or a copy of one), set what the agent lets be chosen, prompt. The
reply to the prompt ends the turn. But some agents reply ``end_turn`` to a turn that failed, with
the error as text: so a turn of which no token was used, and whose last words are known as an error
of that agent, has failed. An old session may be told again from its beginning while it is opened;
what comes before the prompt is no part of the turn.

Source: agentclientprotocol.com, protocol version 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from handrail.agents.acp.agents import manners_of
from handrail.agents.acp.errors import (
    Fault,
    fault_of_error,
    fault_of_reopening,
    fault_of_text,
)
from handrail.agents.acp.session import (
    OPENING,
    SUBJECTS,
    Setting,
    Unoffered,
    current_model,
    greeting,
    how_to_open,
    setting_of,
)
from handrail.agents.acp.updates import (
    CANCELLED,
    SessionUsage,
    Updates,
    may_do,
    model_of,
    outcome,
    what_is_asked,
)
from handrail.agents.codex.items import NETWORK_WAITS
from handrail.agents.transport.loose_json import NOTHING, Object, as_object, object_in, text_in
from handrail.agents.transport.parser import Ending, kind_of_end, words_of_end
from handrail.agents.transport.rpc import (
    Message,
    Notification,
    Peer,
    Reply,
    Request,
    RpcError,
    answer,
    notification,
    refusal,
)
from handrail.errors import AgentErrorKind
from handrail.model.agent_options import AgentOptions
from handrail.model.events import AgentPermission, AgentSessionStarted, AgentUsage, Notice
from handrail.model.launch import AgentError
from handrail.ports.agent import AgentReply, AgentTurn

_STOPS = {
    "max_tokens": Fault("output_limit", "the answer was cut at the model's output limit"),
    "max_turn_requests": Fault("max_turns", "the agent used up its turns"),
    "refusal": Fault("refusal", "the model declined"),
}

Said: TypeAlias = Iterator["Notice | Message"]
"""What follows from a message: notices, and messages (the dicts) to send."""


class AcpDialogue:
    """One turn, from the greeting to the reply. Mutable.

    ``cwd`` and ``folders`` (more working folders) are absolute. ``sets_model``: the model is chosen
    in the session, not by an argument of the program.
    """

    def __init__(
        self,
        turn: AgentTurn,
        options: AgentOptions,
        *,
        cwd: str,
        folders: Sequence[str] = (),
        name: str = "acp",
        sets_model: bool = True,
        client_version: str = "0",
    ) -> None:
        self._turn = turn
        self._options = options
        self._cwd = cwd
        self._folders = tuple(folders)
        self._name = name
        self._sets_model = sets_model
        self._client_version = client_version
        self._peer = Peer()
        self._updates = Updates(turn.path)
        self._updates.manners = manners_of(name)
        self._is_alive = False
        self._is_prompted = False
        self._is_interrupted = False
        self._session: str | None = None
        self._was_not_opened = False
        self._has_no_session = False
        self._version: str | None = None
        self._model = None if sets_model else options.model
        self._to_set = list(SUBJECTS)
        self._offered: Object = NOTHING
        self._setting: Setting | None = None
        earlier = None if turn.fork else turn.session_usage
        self._usage = SessionUsage(fresh=turn.session is None, earlier=earlier)
        self._stop = ""
        self._error: tuple[RpcError, AgentErrorKind | None] | None = None
        self._error_text = ""
        self._denials: list[str] = []

    # -- what the driver asks --------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        """True once the prompt was replied to, or cannot be made, or waits in vain."""
        return bool(self._stop) or self._error is not None or self._is_cut_off

    @property
    def _is_cut_off(self) -> bool:
        return self._updates.network_waits >= NETWORK_WAITS

    @property
    def open_tools(self) -> int:
        """How many tools are at work."""
        return self._updates.tools.open_tools

    @property
    def patience_s(self) -> float:
        """Agents do not say how long they will be silent."""
        return 0.0

    def start(self) -> list[Message]:
        """What is sent first."""
        return [self._peer.request("initialize", greeting(self._client_version))]

    def received(self, message: object) -> tuple[list[Notice], list[Message]]:
        """What a message means, and what is to be sent because of it. Nothing raises."""
        notices: list[Notice] = []
        messages: list[Message] = []
        for one in self._heard(as_object(message)):
            if isinstance(one, dict):
                messages.append(one)
            else:
                notices.append(one)
        return notices, messages

    def interrupt(self) -> list[Message]:
        """What is sent to end the turn early."""
        if self.finished or not self._is_prompted:
            return []
        self._is_interrupted = True
        return [notification("session/cancel", {"sessionId": self._session})]

    def conclude(self, ending: Ending) -> AgentReply:
        """The answer, if the agent ended its turn and did not fail.

        Raises:
            AgentError: it did not, or the turn failed.
        """
        family = self._updates.manners.family
        if self._error is not None:
            fault = self._fault(*self._error, ending.now)
            if fault.kind == "interrupted" and ending.stopped is not None:
                fault = replace(fault, kind=kind_of_end(ending, alive=True))
            raise self._failed(fault)
        if self._error_text:
            raise self._failed(fault_of_text(self._error_text, family, ending.now))
        if self._stop == "end_turn":
            if not self._updates.answer and self._usage.counted_nothing and not self._updates.calls:
                raise self._failed(_STOPS["refusal"])
            return self._reply()
        if self._stop == "cancelled":
            was = replace(ending, stopped=ending.stopped or "interrupted")
            raise self._failed(Fault(kind_of_end(was, alive=True), words_of_end(self._name, was)))
        if self._stop:
            unknown = Fault("crashed", f"the agent ended its turn as {self._stop!r}")
            raise self._failed(_STOPS.get(self._stop, unknown))
        if ending.stopped is None and self._is_cut_off:
            raise self._failed(Fault("transient", f"{self._name} reaches no network"))
        kind = kind_of_end(ending, alive=self._is_alive)
        raise self._failed(Fault(kind, words_of_end(self._name, ending)))

    # -- the end ---------------------------------------------------------------------------------

    def _reply(self) -> AgentReply:
        return AgentReply(
            self._updates.answer,
            model=self._model,
            session=self._known_session,
            usage=self._usage.spent,
            session_usage=self._usage.total,
            stop_reason=self._stop,
            denials=tuple(self._denials),
            files_changed=tuple(self._updates.tools.files_changed),
            version=self._version,
        )

    def _fault(self, error: RpcError, kind: AgentErrorKind | None, now: float) -> Fault:
        family, session = self._updates.manners.family, self._turn.session
        if not self._was_not_opened or session is None:
            fault = fault_of_error(error, family, now)
            return fault if kind is None else replace(fault, kind=kind)
        fault = fault_of_reopening(error, family, now, session)
        self._has_no_session = fault.kind == "bad_request"
        return fault

    def _failed(self, fault: Fault) -> AgentError:
        return AgentError(
            self._turn.agent,
            fault.reason,
            kind=fault.kind,
            retry_at=fault.retry_at,
            http_status=fault.status,
            session=self._known_session,
            text=self._updates.answer,
            usage=self._usage.spent,
            model=self._model,
            hint=fault.hint,
        )

    @property
    def _known_session(self) -> str | None:
        is_other = self._turn.fork or self._has_no_session
        return self._session or (None if is_other else self._turn.session)

    # -- messages --------------------------------------------------------------------------------

    def _heard(self, message: Object) -> Said:
        received = self._peer.received(message)
        self._is_alive = self._is_alive or received is not None
        match received:
            case Reply():
                yield from self._answered(received)
            case Request():
                yield from self._asked(received)
            case Notification(method="session/update"):
                yield from self._updated(received.params)
            case _:
                pass

    def _answered(self, reply: Reply) -> Said:
        method, result = reply.method, reply.result
        if reply.error is not None:
            yield from self._refused(method, reply.error)
        elif method == "initialize":
            yield from self._greeted(result)
        elif method in OPENING:
            yield from self._opened(method, result)
        elif method == "session/prompt":
            yield from self._ended(result)
        else:
            yield from self._was_set(result)

    def _refused(self, method: str, error: RpcError) -> Said:
        setting = self._setting
        if method == "session/prompt":
            yield from self._broken(error)
        elif method not in OPENING and setting is not None:
            yield from self._not_set(setting, error)
        else:
            self._was_not_opened = method in OPENING
            self._error = (error, None)

    def _not_set(self, setting: Setting, error: RpcError) -> Said:
        """What may do anything may also be asked each time; all else must be as it was said."""
        if setting.subject == "permission" and self._options.permission == "full":
            yield from self._next()
            return
        what = f"it refused the {setting.subject} {setting.value!r}: {error.message}"
        kind: AgentErrorKind = "config" if setting.subject == "permission" else "bad_request"
        self._error = (RpcError(what, error.code, error.data), kind)

    def _refuse(self, reason: str) -> None:
        self._error = (RpcError(reason), "config")

    def _asked(self, request: Request) -> Said:
        if request.method != "session/request_permission":
            yield refusal(request, f"{request.method} is not offered by this client")
            return
        call = object_in(request.params, "toolCall")
        if self._is_interrupted:
            yield answer(request, CANCELLED)
            return
        yield from self._updates.break_off()
        yield from self._updates.tools.read(call)
        folders = (self._cwd, *self._folders)
        allowed = may_do(call, self._options.permission, folders)
        result, is_allowed = outcome(request.params, is_allowed=allowed)
        yield answer(request, result)
        tool = self._updates.tools.name_of(call)
        if not is_allowed:
            self._denials.append(tool)
        yield AgentPermission(
            self._turn.path, tool, "allowed" if is_allowed else "denied", what_is_asked(call)
        )

    def _updated(self, params: Object) -> Said:
        update = object_in(params, "update")
        session = text_in(params, "sessionId")
        if session and self._session and session != self._session:
            return
        if text_in(update, "sessionUpdate") == "usage_update":
            self._usage.updated(update, is_turn=self._is_prompted)
        elif self._is_prompted and not self.finished:  # what comes later is of no turn
            yield from self._updates.read(update)

    # -- the steps -------------------------------------------------------------------------------

    def _greeted(self, result: Object) -> Said:
        agent = object_in(result, "agentInfo")
        self._version = text_in(agent, "version") or None
        self._updates.manners = manners_of(self._name, text_in(agent, "name"))
        servers = self._options.mcp_servers or {}
        how = how_to_open(result, self._turn, cwd=self._cwd, folders=self._folders, servers=servers)
        if isinstance(how, str):
            self._refuse(how)
        else:
            yield self._peer.request(*how)

    def _opened(self, method: str, result: Object) -> Said:
        same = self._turn.session if method in ("session/load", "session/resume") else None
        self._session = text_in(result, "sessionId") or same
        if self._session is None:
            self._has_no_session = True
            self._error = (RpcError("it opened a session without an id"), "crashed")
            return
        self._model = self._model or current_model(result)
        yield AgentSessionStarted(self._turn.path, self._session, self._name, self._model)
        self._offered = result
        yield from self._next()

    def _was_set(self, result: Object) -> Said:
        if self._setting is not None and self._setting.subject == "model":
            self._model = self._setting.value
        if "configOptions" in result:
            self._offered = result
        yield from self._next()

    def _next(self) -> Said:
        """The next setting, or the prompt."""
        session = {"sessionId": self._session}
        while self._to_set:
            one = setting_of(
                self._to_set.pop(0), self._offered, self._options, sets_model=self._sets_model
            )
            if isinstance(one, Unoffered):
                self._refuse(f"it does not let the {one.subject} be chosen ({one.value!r})")
                return
            if one is not None:
                self._setting = one
                yield self._peer.request(one.method, {**session, **one.params})
                return
        self._setting = None
        self._is_prompted = True
        prompt = [{"type": "text", "text": self._turn.prompt}]
        yield self._peer.request("session/prompt", {**session, "prompt": prompt})

    def _broken(self, error: RpcError) -> Said:
        """Some agents tell an error as text too, before the reply that is one."""
        _, said = self._updates.last_words
        told = (
            error.data if isinstance(error.data, str) else text_in(as_object(error.data), "message")
        )
        if said.strip() in f"{error.message} {told}":
            self._updates.withdraw(said)
        yield from self._over()
        self._error = (error, None)

    def _ended(self, result: Object) -> Said:
        is_whole = not (self._updates.manners.counts_last_step and self._updates.calls)
        self._usage.replied(result, is_whole=is_whole)
        self._model = model_of(result) or self._model
        stop = text_in(result, "stopReason") or "unknown"
        if stop == "end_turn":
            self._error_text = self._told_error()
            self._updates.withdraw(self._error_text)
        yield from self._over()
        self._stop = stop
        spent = self._usage.spent
        if spent is not None and (spent.tokens or spent.cost_usd):
            yield AgentUsage(self._turn.path, spent)

    def _over(self) -> Said:
        yield from self._updates.flush()
        self._updates.tools.close()

    def _told_error(self) -> str:
        """The last words, if they are an error: known as one, and no token was used; or not the
        model's, of an agent that marks what its model says. Else an empty text.
        """
        manners = self._updates.manners
        words, chunk = self._updates.last_words
        is_unmarked = manners.marks_messages and self._updates.is_unmarked
        if is_unmarked and (self._usage.counted_nothing or self._updates.has_marked):
            return words
        if self._usage.is_unused:
            return next((said for said in (chunk, words) if manners.error.match(said)), "")
        return ""
