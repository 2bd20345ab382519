"""One turn of an agent that speaks ACP: the messages to send, and the meaning of its messages.

Theory of operation: each step waits for the answer to the step before: initialize; open a session
(new, loaded, resumed or forked); choose the settings that the agent offers; prompt. The reply to
the prompt ends the turn. But some agents reply ``end_turn`` to a failed turn, with the error as
text. So a turn has failed if it used no token and its last words are a known error of that agent.
While an old session is opened, the agent may repeat it from its beginning; messages before the
prompt do not count for the turn.

Source: agentclientprotocol.com, protocol version 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from handrail.agents.acp.agents import profile_of
from handrail.agents.acp.errors import diagnose, diagnose_reopening, diagnose_text
from handrail.agents.acp.session import (
    SESSION_SETUP,
    SUBJECTS,
    Setting,
    Unoffered,
    current_model,
    initialize_params,
    session_request,
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
from handrail.agents.codex.turn import NETWORK_WAITS
from handrail.agents.transport.failures import Diagnosis
from handrail.agents.transport.loose_json import NOTHING, Object, as_object, object_in, text_in
from handrail.agents.transport.parser import Ending
from handrail.agents.transport.programs import CLAUDE, CODEX, COPILOT, Program
from handrail.agents.transport.rpc import (
    Message,
    Outgoing,
    Reply,
    Request,
    RpcError,
    RpcTurn,
    answer,
    notification,
    refusal,
)
from handrail.errors import AgentErrorKind
from handrail.model.agent_options import AgentOptions
from handrail.model.events import AgentPermission
from handrail.ports.agent import AgentReply, AgentTurn

_STOPS = {
    "max_tokens": Diagnosis("output_limit", "the answer was cut at the model's output limit"),
    "max_turn_requests": Diagnosis("max_turns", "the agent used up its turns"),
    "refusal": Diagnosis("refusal", "the model declined"),
}
_HINTS: Mapping[AgentErrorKind, str] = {
    "auth": "Log in to the agent with its own program, or set the API key that it reads.",
    "spending_cap": "Add credits or raise the limit of the account.",
}
_HINTS_OF: Mapping[str, Mapping[AgentErrorKind, str]] = {
    one.name: {kind: one.hints[kind] for kind in _HINTS}  # no advice on the program's options
    for one in (CLAUDE, CODEX, COPILOT)
}


class AcpDialogue(RpcTurn):
    """One turn, from ``initialize`` to the reply. Mutable.

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
        program = Program(name, hints=_HINTS)
        super().__init__(turn, program, model=None if sets_model else options.model)
        self._options = options
        self._cwd = cwd
        self._folders = tuple(folders)
        self._sets_model = sets_model
        self._client_version = client_version
        self._updates = Updates(self)
        self._updates.profile = profile_of(name)
        self._is_prompted = False
        self._is_interrupted = False
        self._was_not_opened = False
        self._to_set = list(SUBJECTS)
        self._offered: Object = NOTHING
        self._setting: Setting | None = None
        earlier = None if turn.fork else turn.session_usage
        self._counts = SessionUsage(fresh=turn.session is None, earlier=earlier)
        self._stop = ""
        self._error: tuple[RpcError, AgentErrorKind | None] | None = None
        self._error_text = ""

    # -- called by the transport -----------------------------------------------------------------

    @property
    def finished(self) -> bool:
        """True once the prompt was answered, cannot be sent, or waits for a network in vain."""
        return bool(self._stop) or self._error is not None or self._is_offline

    @property
    def _is_offline(self) -> bool:
        return self._updates.network_waits >= NETWORK_WAITS

    def start(self) -> list[Message]:
        """The first message to send."""
        return [self.peer.request("initialize", initialize_params(self._client_version))]

    def interrupt(self) -> list[Message]:
        """The message that ends the turn early; none unless the prompt awaits its reply."""
        if self.finished or not self._is_prompted:
            return []
        self._is_interrupted = True
        return [notification("session/cancel", {"sessionId": self.session})]

    def conclude(self, ending: Ending) -> AgentReply:
        """The answer, if the agent ended its turn and did not fail.

        Raises:
            AgentError: it did not, or the turn failed.
        """
        self.text = self._updates.answer
        self.usage, self.session_usage = self._counts.spent, self._counts.total
        family = self._updates.profile.family
        self.program = replace(self.program, hints=_HINTS_OF.get(family, _HINTS))
        if self._error is not None:
            raise self.failed(self._diagnose(*self._error, ending.now), ending)
        if self._error_text:
            raise self.failed(diagnose_text(self._error_text, family, ending.now), ending)
        match self._stop:
            case "end_turn":
                if not self.text and self._counts.reported_zero_tokens and not self._updates.calls:
                    raise self.failed(_STOPS["refusal"], ending)
                return self.reply(stop_reason=self._stop)
            case "cancelled":
                raise self.stopped(ending)
            case "":
                if ending.stopped is None and self._is_offline:
                    raise self.error("transient", f"{self.program.name} reaches no network")
                raise self.unfinished(ending)
            case _:
                unknown = Diagnosis("crashed", f"the agent ended its turn as {self._stop!r}")
                raise self.failed(_STOPS.get(self._stop, unknown), ending)

    def _diagnose(self, error: RpcError, kind: AgentErrorKind | None, now: float) -> Diagnosis:
        family, session = self._updates.profile.family, self.turn.session
        if not self._was_not_opened or session is None:
            diagnosis = diagnose(error, family, now)
            return diagnosis if kind is None else replace(diagnosis, kind=kind)
        diagnosis = diagnose_reopening(error, family, now, session)
        self.has_no_session = self.has_no_session or diagnosis.kind == "bad_request"
        return diagnosis

    # -- messages --------------------------------------------------------------------------------

    def on_reply(self, reply: Reply) -> Outgoing:
        """Notices and messages that follow from the result of our request."""
        method, result = reply.method, reply.result
        if method == "initialize":
            yield from self._on_initialized(result)
        elif method in SESSION_SETUP:
            yield from self._on_session_opened(method, result)
        elif method == "session/prompt":
            yield from self._on_turn_ended(result)
        else:
            yield from self._on_setting_applied(result)

    def on_error(self, method: str, error: RpcError) -> Outgoing:
        """Notices and messages that follow from the error that answered our request."""
        setting = self._setting
        if method == "session/prompt":
            yield from self._on_prompt_error(error)
        elif method not in SESSION_SETUP and setting is not None:
            yield from self._on_setting_refused(setting, error)
        else:
            self._was_not_opened = method in SESSION_SETUP
            self._error = (error, None)

    def _on_setting_refused(self, setting: Setting, error: RpcError) -> Outgoing:
        """Only a refused mode for ``full`` is harmless: handrail grants every request anyway."""
        if setting.subject == "permission" and self._options.permission == "full":
            yield from self._set_next_or_prompt()
            return
        what = f"it refused the {setting.subject} {setting.value!r}: {error.message}"
        kind: AgentErrorKind = "config" if setting.subject == "permission" else "bad_request"
        self._error = (RpcError(what, error.code, error.data), kind)

    def _refuse(self, reason: str) -> None:
        self._error = (RpcError(reason), "config")

    def on_request(self, request: Request) -> Outgoing:
        """The answer to a request of the agent."""
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
        tool, what = self._updates.tools.name_of(call), what_is_asked(call)
        if is_allowed:
            yield AgentPermission(self.path, tool, "allowed", what)
        else:
            yield self.denied(tool, what)

    def on_notification(self, method: str, params: Object) -> Outgoing:
        """Notices and messages that follow from a notification of the agent."""
        if method != "session/update":
            return
        update = object_in(params, "update")
        session = text_in(params, "sessionId")
        if session and self.session and session != self.session:
            return
        if text_in(update, "sessionUpdate") == "usage_update":
            before = self._counts.spent
            self._counts.on_usage_update(update, is_turn=self._is_prompted)
            if self._is_prompted and self._counts.spent != before:
                yield from self._used()
        elif self._is_prompted and not self.finished:  # later messages belong to no turn
            self._counts.on_call(object_in(update, "_meta"))
            yield from self._updates.read(update)

    # -- the steps -------------------------------------------------------------------------------

    def _on_initialized(self, result: Object) -> Outgoing:
        agent = object_in(result, "agentInfo")
        self.version = text_in(agent, "version") or None
        self._updates.profile = profile_of(self.program.name, text_in(agent, "name"))
        servers = self._options.mcp_servers or {}
        how = session_request(
            result, self.turn, cwd=self._cwd, folders=self._folders, servers=servers
        )
        if isinstance(how, str):
            self._refuse(how)
        else:
            yield self.peer.request(*how)

    def _on_session_opened(self, method: str, result: Object) -> Outgoing:
        same = self.turn.session if method in ("session/load", "session/resume") else None
        self.session = text_in(result, "sessionId") or same
        if self.session is None:
            self.has_no_session = True
            self._error = (RpcError("it opened a session without an id"), "crashed")
            return
        self.model = self.model or current_model(result)
        yield from self.session_named(self.session)
        self._offered = result
        yield from self._set_next_or_prompt()

    def _on_setting_applied(self, result: Object) -> Outgoing:
        if self._setting is not None and self._setting.subject == "model":
            self.model = self._setting.value
        if "configOptions" in result:
            self._offered = result
        yield from self._set_next_or_prompt()

    def _set_next_or_prompt(self) -> Outgoing:
        """The request for the next setting, or the prompt."""
        session = {"sessionId": self.session}
        while self._to_set:
            one = setting_of(
                self._to_set.pop(0), self._offered, self._options, sets_model=self._sets_model
            )
            if isinstance(one, Unoffered):
                self._refuse(f"it does not let the {one.subject} be chosen ({one.value!r})")
                return
            if one is not None:
                self._setting = one
                yield self.peer.request(one.method, {**session, **one.params})
                return
        self._setting = None
        self._is_prompted = True
        prompt = [{"type": "text", "text": self.turn.prompt}]
        yield self.peer.request("session/prompt", {**session, "prompt": prompt})

    def _on_prompt_error(self, error: RpcError) -> Outgoing:
        """Some agents report an error as text, too, before the error reply. Some answer a prompt
        that was cancelled with an error.
        """
        if self._is_interrupted:
            yield from self._close()
            self._stop = "cancelled"
            return
        _, said = self._updates.last_words
        details = (
            error.data if isinstance(error.data, str) else text_in(as_object(error.data), "message")
        )
        if said.strip() in f"{error.message} {details}":
            self._updates.withdraw(said)
        yield from self._close()
        self._error = (error, None)

    def _on_turn_ended(self, result: Object) -> Outgoing:
        is_whole = not (self._updates.profile.counts_last_step and self._updates.calls)
        self._counts.on_reply(result, is_whole=is_whole)
        self.model = model_of(result) or self.model
        stop = text_in(result, "stopReason") or "unknown"
        if stop == "end_turn":
            self._error_text = self._error_in_text()
            self._updates.withdraw(self._error_text)
        yield from self._close()
        self._stop = stop
        yield from self._used()

    def _used(self) -> Outgoing:
        spent = self._counts.spent
        return self.used(spent if spent and (spent.tokens or spent.cost_usd) else None)

    def _close(self) -> Outgoing:
        yield from self._updates.flush()
        self.close_tools()

    def _error_in_text(self) -> str:
        """The last words, if they are an error; else an empty text. They are an error if no token
        was used and the agent's profile knows them, or if they lack the mark of the model's words.
        """
        profile = self._updates.profile
        words, chunk = self._updates.last_words
        is_unmarked = profile.marks_messages and self._updates.is_unmarked
        if is_unmarked and (self._counts.reported_zero_tokens or self._updates.has_marked):
            return words
        if self._counts.used_no_known_tokens:
            return next((said for said in (chunk, words) if profile.error.match(said)), "")
        return ""
