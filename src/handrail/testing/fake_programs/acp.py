"""The Agent Client Protocol, version 1, as gemini, opencode and copilot speak it.

Source: recordings of gemini 0.61.0, opencode 1.18.33 and copilot 1.0.102, with which the tests
compare it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from handrail.testing.fake_programs.copilot import FAILED as COPILOT_FAILED
from handrail.testing.fake_programs.launch import UNRECORDED, VERSIONS, Entry, Launch
from handrail.testing.fake_programs.output import new_id
from handrail.testing.fake_programs.rpc import Message, Peer, Stopped
from handrail.testing.fake_programs.turn import TurnWriter, deltas, perform

NOT_OPEN = -32602
CANCEL = "session/cancel"
WINDOW = 200000


def run(launch: Launch) -> int:
    """Serve until the client closes."""
    return _Server(launch, AGENTS[launch.name]).peer.serve()


class _Server:
    """The agent's end of a connection: answers one client's requests. Mutable."""

    def __init__(self, launch: Launch, agent: Agent) -> None:
        self.peer = Peer(launch, self._on_message, version=True)
        self._launch = launch
        self._agent = agent
        self._modes: dict[str, str] = {}

    def _on_message(self, message: Message) -> None:
        params: Message = message.get("params") or {}
        match message.get("method"):
            case "initialize":
                self.peer.answer(message, {"protocolVersion": 1, **self._agent.introduction()})
            case "session/new":
                self._new_session(message)
            case "session/load" | "session/resume":
                self._resume_session(message, params["sessionId"])
            case "session/fork" if "fork" in self._agent.sessions:
                self._fork_session(message, params["sessionId"])
            case "session/prompt":
                self._prompt(message, params)
            case "session/set_mode":
                self._modes[params["sessionId"]] = params["modeId"]
                self.peer.answer(message, {})
            case (
                "session/set_model" | "session/set_config_option" | "session/close" | "authenticate"
            ):
                self.peer.answer(message, {})
            case str() as method if "id" in message:
                self.peer.refuse(message, -32601, f'"Method not found": {method}')
            case _:
                pass

    def _new_session(self, message: Message, *, copy_of: str | None = None) -> None:
        session = self._agent.new_session(new_id())
        self._launch.open_session(session, copy_of=copy_of)
        self.peer.answer(message, {"sessionId": session, **self._agent.modes})
        self._commands(session)

    def _resume_session(self, message: Message, session: str) -> None:
        if self._is_known(message, session):
            self.peer.answer(message, dict(self._agent.modes))
            self._commands(session)

    def _fork_session(self, message: Message, session: str) -> None:
        if self._is_known(message, session):
            self._new_session(message, copy_of=session)

    def _is_known(self, message: Message, session: str) -> bool:
        """True for a known session; for any other, refuse the request."""
        if self._launch.session(session) is not None:
            return True
        told = self._agent.no_session(session)
        self.peer.refuse(message, told.code or 0, told.text, told.data)
        return False

    def _commands(self, session: str) -> None:
        commands: Message = {"sessionUpdate": "available_commands_update", "availableCommands": []}
        self.peer.tell("session/update", {"sessionId": session, "update": commands})

    def _prompt(self, message: Message, params: Message) -> None:
        session = params.get("sessionId", "")
        if self._launch.session(session) is None:
            self.peer.refuse(message, NOT_OPEN, f"Session not found: {session}")
            return
        entry = self.peer.next_act(message, -32603)
        if entry is None:
            return
        asks = self._modes.get(session) != "yolo"
        turn = _Turn(self._launch, self.peer, self._agent, entry, message, asks=asks)
        try:
            perform(turn)
        except Stopped:
            self.peer.answer(message, {"stopReason": "cancelled"})


class _Turn(TurnWriter):
    """Prints one turn of the agent. Mutable."""

    def __init__(
        self,
        launch: Launch,
        peer: Peer,
        agent: Agent,
        entry: Entry,
        asked: Message,
        *,
        asks: bool,
    ) -> None:
        super().__init__(launch, entry, asked["params"]["sessionId"])
        self._peer = peer
        self._agent = agent
        self._asked = asked
        self._asks = asks

    def write_noise(self, padding: str) -> None:
        self._update("fake_noise", padding=padding)

    def write_retry(self, attempt: int, _: Entry) -> None:
        if again := self._agent.again:  # nothing on stdout
            self.launch.out.error(again.format(attempt))

    def write_thought(self, text: str) -> None:
        self._update("agent_thought_chunk", content={"type": "text", "text": text})

    def write_message(self, text: str) -> None:
        about = {"messageId": f"msg_{new_id()}"} if self._agent.message_ids else {}
        for part in deltas(text):
            self._update("agent_message_chunk", **about, content={"type": "text", "text": part})

    def write_tool_start(self, tool: Entry) -> bool:
        title = tool["command"] or tool["name"]
        self.tool = {"toolCallId": f"call_{new_id()[:20]}", "title": title, "kind": "execute"}
        given: Mapping[str, Any] = tool["input"] or {"command": tool["command"]}
        if "content" in tool:
            path = os.path.abspath(tool["path"])
            given = {"path": path}
            self.tool |= {"kind": "edit", "title": path, "locations": [{"path": path}]}
        raw = {"rawInput": given} if self._agent.tells_raw else {}
        status = "pending" if self._agent.tells_raw else "in_progress"
        self._update("tool_call", **self.tool, status=status, **raw)
        return not (tool["asks"] and self._asks) or self._allowed(given)

    def _allowed(self, given: Mapping[str, Any]) -> bool:
        raw = {"rawInput": given} if self._agent.tells_raw else {}
        call = {**self.tool, "status": "pending", **raw}
        options = self._agent.choices
        asked = {"sessionId": self.session, "toolCall": call, "options": options}
        _, reply = self._peer.ask("session/request_permission", asked)
        result: Message = reply.get("result") or {}
        outcome: Message = result.get("outcome") or {}
        return outcome.get("optionId") in [one["optionId"] for one in options[:2]]

    def write_tool_result(self, tool: Entry, *, allowed: bool) -> None:
        text = tool["output"] if allowed else "The user rejected the tool call."
        failed = not allowed or (tool["exit_code"] != 0 and not self._agent.tells_raw)
        block = {"type": "content", "content": {"type": "text", "text": text}}
        more = self._agent.raw_output(text, tool["exit_code"]) if allowed else {}
        about = {"toolCallId": self.tool["toolCallId"], "content": [block]}
        self._update(
            "tool_call_update", status="failed" if failed else "completed", **about, **more
        )

    def wait(self, seconds: float) -> None:
        if self._peer.wait(seconds, lambda message: message.get("method") == CANCEL):
            raise Stopped

    def write_end(self) -> int:
        total = self.launch.add_usage(self.session, self.entry["usage"])
        for update in self._agent.usage_updates(self.entry["usage"], total["cost_usd"]):
            self._update("usage_update", **update)
        told = self._agent.reply_usage(self.entry["usage"], self.entry["model"])
        self._peer.answer(self._asked, {"stopReason": "end_turn", **told})
        return 0

    def write_failure(self, fail: Entry) -> int:
        told = self._agent.failure(fail)
        if told.code is not None:
            self._peer.refuse(self._asked, told.code, told.text, told.data)
            return 1
        if told.text:
            self._update("agent_message_chunk", content={"type": "text", "text": told.text})
        self._peer.answer(self._asked, {"stopReason": told.stop_reason})
        return 1

    def write_interruption(self, number: int, *, in_tool: bool) -> int:  # noqa: ARG002
        return -number if self._agent.dies_of_signals else 0

    def _update(self, what: str, /, **more: Any) -> None:
        update = {"sessionUpdate": what, **more}
        self._peer.tell("session/update", {"sessionId": self.session, "update": update})


class Told(NamedTuple):
    """How a failed prompt ends: an error with a ``code``, or an ordinary end with a text."""

    text: str = ""
    code: int | None = None
    data: Mapping[str, Any] | None = None
    stop_reason: str = "end_turn"


REASONS = {"max_turns": "max_turn_requests", "output_limit": "max_tokens", "refusal": "refusal"}
"""Failures that every agent reports as the reason why a turn stopped."""


class Agent:
    """The ways in which one agent differs from others; the defaults are the common ones."""

    again = ""
    """The line on stderr when the agent retries by itself."""
    tells_raw = True
    """True if a tool call shows the tool's input, and begins as pending."""
    message_ids = False
    dies_of_signals = False
    modes: Mapping[str, Any] = {"configOptions": []}
    """The settings that a session offers."""
    auth = ("", "")
    about: Mapping[str, Any] = {}
    """The agent's name and version."""
    sessions: Mapping[str, Any] = {}
    """The agent's capabilities with sessions, if it declares any."""
    prompts: Mapping[str, Any] = {}
    """The contents that a prompt may have."""
    answers = ("allow_once", "allow_always", "reject_once")
    """The agent's names for the answers to a request for permission: once, always, no."""

    def introduction(self) -> dict[str, Any]:
        """The agent's description of itself, in its reply to ``initialize``."""
        auth, name = self.auth
        sessions = {"sessionCapabilities": self.sessions} if self.sessions else {}
        return {
            "authMethods": [{"id": auth, "name": name}],
            "agentInfo": self.about,
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": self.prompts,
                "mcpCapabilities": {"http": True, "sse": True},
                **sessions,
            },
        }

    def new_session(self, unique: str) -> str:
        """A new session's id, in the form of this agent."""
        return unique

    def no_session(self, session: str) -> Told:
        """The refusal of a session that the agent does not know."""
        return Told(f"Session {session} not found", -32602)

    @property
    def choices(self) -> list[dict[str, str]]:
        """The options of a request for permission."""
        once, always, reject = self.answers
        return [
            {"optionId": once, "kind": "allow_once", "name": "Allow once"},
            {"optionId": always, "kind": "allow_always", "name": "Always allow"},
            {"optionId": reject, "kind": "reject_once", "name": "Reject"},
        ]

    def raw_output(self, text: str, exit_code: int) -> dict[str, Any]:
        """What the agent reports of a tool's output besides the text."""
        del exit_code
        return {"rawOutput": {"content": text, "detailedContent": text}}

    def usage_updates(self, usage: Mapping[str, Any], cost_usd: float) -> list[dict[str, Any]]:
        """The usage updates at the end of a turn; ``cost_usd`` is the session's."""
        del cost_usd
        return [{"used": usage["input_tokens"] or 0, "size": WINDOW}]

    def reply_usage(self, usage: Mapping[str, Any], model: str | None) -> dict[str, Any]:
        """The usage in the reply to a prompt."""
        del model
        sent, received = usage["input_tokens"] or 0, usage["output_tokens"] or 0
        told = {
            "inputTokens": sent,
            "outputTokens": received,
            "totalTokens": sent + received,
            "cachedReadTokens": usage["cached_tokens"] or 0,
            "cachedWriteTokens": usage["cache_write_tokens"] or 0,
        }
        return {"usage": told}

    def failure(self, fail: Entry) -> Told:
        """The end of a prompt that failed."""
        kind: str = fail["kind"]
        if reason := REASONS.get(kind):
            return Told(fail["message"] or "", stop_reason=reason)
        return self.refused(kind, fail["message"])

    def refused(self, kind: str, message: str | None) -> Told:
        """The end of a prompt with a failure that is not reported as a reason to stop."""
        raise NotImplementedError


class _Copilot(Agent):
    """Copilot: the text of an answer says what failed."""

    auth = ("copilot-login", "Log in with Copilot CLI")
    about: Mapping[str, Any] = {"name": "Copilot", "title": "Copilot", "version": "1.0.102"}
    sessions: Mapping[str, Any] = {"close": {}, "list": {}}
    prompts: Mapping[str, Any] = {"image": True, "audio": False, "embeddedContext": True}

    def refused(self, kind: str, message: str | None) -> Told:
        return Told(f"Error: {message or COPILOT_FAILED[kind][2]}")


_OPENCODE_FAILED: Mapping[str, tuple[str, int | None, str]] = {
    "rate_limit": ("APIError", 429, "This request would exceed your organization's rate limit."),
    "usage_cap": ("APIError", 429, "This request would exceed your account's rate limit."),
    "spending_cap": ("APIError", 400, "Your credit balance is too low to access the API."),
    "context_overflow": (
        "ContextOverflowError",
        None,
        "prompt is too long: 214315 tokens > 200000 maximum",
    ),
    "auth": ("APIError", 401, "invalid x-api-key"),
    "transient": ("APIError", 500, "Internal server error"),
    "bad_request": (
        "UnknownError",
        None,
        "Unexpected server error. Check server logs for details.",
    ),
}
OPENCODE_SAYS = {**_OPENCODE_FAILED, "bad_request": ("APIError", 404, "404 model not found")}
"""The line protocol has fewer details of a wrong request than this one."""


class _Opencode(Agent):
    """opencode: it forks sessions, and counts cached tokens apart."""

    message_ids = True
    dies_of_signals = True
    auth = ("opencode-login", "Login with opencode")
    about: Mapping[str, Any] = {"name": "OpenCode", "version": VERSIONS["opencode"]}
    sessions: Mapping[str, Any] = {"close": {}, "fork": {}, "list": {}, "resume": {}}
    prompts: Mapping[str, Any] = {"embeddedContext": True, "image": True}
    answers = ("once", "always", "reject")
    modes: Mapping[str, Any] = {
        "configOptions": [
            {
                "id": "model",
                "name": "Model",
                "category": "model",
                "type": "select",
                "currentValue": "stub/m",
                "options": [{"value": "stub/m", "name": "Stub/M"}],
            }
        ]
    }

    def new_session(self, unique: str) -> str:
        return f"ses_{unique.replace('-', '')[:26]}"

    def no_session(self, session: str) -> Told:
        del session
        reason = "Internal error: OpenCode service failure"
        return Told(reason, -32603, {"service": "session"})

    def raw_output(self, text: str, exit_code: int) -> dict[str, Any]:
        metadata = {"output": text, "exit": exit_code, "truncated": False}
        return {"rawOutput": {"output": text, "metadata": metadata}}

    def usage_updates(self, usage: Mapping[str, Any], cost_usd: float) -> list[dict[str, Any]]:
        (told,) = super().usage_updates(usage, cost_usd)
        return [{**told, "cost": {"amount": cost_usd, "currency": "USD"}}]

    def reply_usage(self, usage: Mapping[str, Any], model: str | None) -> dict[str, Any]:
        told = super().reply_usage(usage, model)["usage"]
        told["inputTokens"] -= told["cachedReadTokens"] + told["cachedWriteTokens"]
        return {"usage": told, "_meta": {}}

    def refused(self, kind: str, message: str | None) -> Told:
        name, _, text = OPENCODE_SAYS[kind]
        data = {"service": "session", "errorName": name}
        return Told("Internal error: " + (message or text), -32603, data)


GEMINI_FAILED: Mapping[str, tuple[int, str, str]] = {
    "rate_limit": (429, "RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota)."),
    "usage_cap": (429, "", "You have exhausted your daily quota on this model."),
    "spending_cap": (
        429,
        "RESOURCE_EXHAUSTED",
        (
            "Your prepayment credits are depleted. Please go to AI Studio at "
            "https://ai.studio/projects to manage your project and billing."
        ),
    ),
    "context_overflow": (
        400,
        "INVALID_ARGUMENT",
        "The input token count (1248576) exceeds the maximum number of tokens allowed (1048576).",
    ),
    "auth": (400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."),
    "transient": (503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
    "bad_request": (404, "", "models/none is not found for API version v1beta"),
}
"""Status, name and text of an error of gemini's API; gemini reports some texts without a name."""


class _Gemini(Agent):
    """gemini: an error of the API is an error of the protocol, and sessions have modes."""

    again = "Attempt {} failed. Retrying with backoff...\n"
    tells_raw = False
    auth = ("gemini-api-key", "Gemini API key")
    about: Mapping[str, Any] = {
        "name": "gemini-cli",
        "title": "Gemini CLI",
        "version": VERSIONS["gemini"],
    }
    prompts: Mapping[str, Any] = {"image": True, "audio": True, "embeddedContext": True}
    answers = ("proceed_once", "proceed_always", "cancel")
    modes: Mapping[str, Any] = {
        "modes": {
            "availableModes": [
                {"id": "default", "name": "Default", "description": "Prompts for approval"},
                {"id": "yolo", "name": "YOLO", "description": "Auto-approves all tools"},
            ],
            "currentModeId": "default",
        },
        "models": {
            "availableModels": [{"modelId": "gemini-2.5-pro", "name": "gemini-2.5-pro"}],
            "currentModelId": "gemini-2.5-flash",
        },
    }

    def no_session(self, session: str) -> Told:
        del session
        details = "No previous sessions found for this project."
        return Told("Internal error", -32603, {"details": details})

    def raw_output(self, text: str, exit_code: int) -> dict[str, Any]:
        del text, exit_code
        return {}

    def usage_updates(self, usage: Mapping[str, Any], cost_usd: float) -> list[dict[str, Any]]:
        del usage, cost_usd
        return []

    def reply_usage(self, usage: Mapping[str, Any], model: str | None) -> dict[str, Any]:
        sent, received = usage["input_tokens"] or 0, usage["output_tokens"] or 0
        count = {"input_tokens": sent, "output_tokens": received}
        by_model = [{"model": model or "gemini-2.5-flash", "token_count": count}]
        return {"_meta": {"quota": {"token_count": count, "model_usage": by_model}}}

    def refused(self, kind: str, message: str | None) -> Told:
        code, status, text = GEMINI_FAILED[kind]
        text = message or text
        if not status:
            return Told(text, code)
        return Told(json.dumps({"error": {"code": code, "message": text, "status": status}}), code)


class _Plain(Agent):
    """An agent of which no more is known than the protocol: its failures are error replies."""

    auth = ("login", "Log in")
    sessions: Mapping[str, Any] = {"list": {}, "resume": {}}
    prompts: Mapping[str, Any] = {"image": True, "embeddedContext": True}

    def __init__(self, name: str) -> None:
        self.about: Mapping[str, Any] = {"name": name, "version": VERSIONS[name]}

    def refused(self, kind: str, message: str | None) -> Told:
        if kind == "auth":
            return Told(message or "Authentication required", -32000)
        return Told("Internal error", -32603, {"details": message or GEMINI_FAILED[kind][2]})


AGENTS: Mapping[str, Agent] = {
    "copilot": _Copilot(),
    "gemini": _Gemini(),
    "opencode": _Opencode(),
    **{name: _Plain(name) for name in (*UNRECORDED, "qwen")},
}
