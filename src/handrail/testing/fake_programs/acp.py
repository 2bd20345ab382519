"""The Agent Client Protocol, version 1, as gemini, opencode and copilot speak it.

Source: recordings of gemini 0.61.0, opencode 1.18.33 and copilot 1.0.102, which the tests hold it
to.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from handrail.testing.fake_programs.launch import Entry, Launch
from handrail.testing.fake_programs.output import new_id
from handrail.testing.fake_programs.rpc import Message, Peer
from handrail.testing.fake_programs.turn import final_text, perform

DELTA = 12
NOT_OPEN = -32602


class Cancelled(Exception):
    """The client cancelled the prompt."""


def run(launch: Launch) -> int:
    """Serve until the client closes."""
    if reason := launch.used_up:
        launch.out.error(reason + "\n")
        return 1
    return _Server(launch, AGENTS[launch.name]).peer.serve()


class _Server:
    """What the agent knows of its client. Mutable."""

    def __init__(self, launch: Launch, agent: Agent) -> None:
        self.peer = Peer(launch, self._hear, version=True)
        self._launch = launch
        self._agent = agent
        self._modes: dict[str, str] = {}

    def _hear(self, message: Message) -> None:
        params: Message = message.get("params") or {}
        match message.get("method"):
            case "initialize":
                self.peer.answer(message, {"protocolVersion": 1, **self._agent.about})
            case "session/new":
                self._opened(message)
            case "session/load" | "session/resume":
                self._resumed(message, params["sessionId"])
            case "session/fork" if self._agent.forks:
                self._forked(message, params["sessionId"])
            case "session/prompt":
                self._prompted(message, params)
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

    def _opened(self, message: Message, *, copy_of: str | None = None) -> None:
        session = self._agent.new_session(new_id())
        self._launch.open_session(session, copy_of=copy_of)
        self.peer.answer(message, {"sessionId": session, **self._agent.session})
        self._commands(session)

    def _resumed(self, message: Message, session: str) -> None:
        if self._is_known(message, session):
            self.peer.answer(message, dict(self._agent.session))
            self._commands(session)

    def _forked(self, message: Message, session: str) -> None:
        if self._is_known(message, session):
            self._opened(message, copy_of=session)

    def _is_known(self, message: Message, session: str) -> bool:
        """False for a session that there is not, which is said."""
        if self._launch.session(session) is not None:
            return True
        told = self._agent.no_session(session)
        self.peer.refuse(message, told.code or 0, told.text, told.data)
        return False

    def _commands(self, session: str) -> None:
        commands: Message = {"sessionUpdate": "available_commands_update", "availableCommands": []}
        self.peer.tell("session/update", {"sessionId": session, "update": commands})

    def _prompted(self, message: Message, params: Message) -> None:
        session = params.get("sessionId", "")
        if self._launch.session(session) is None:
            self.peer.refuse(message, NOT_OPEN, f"Session not found: {session}")
            return
        entry = self._launch.take()
        if entry is None:
            reason = self._launch.used_up or ""
            self._launch.out.error(reason + "\n")
            self.peer.refuse(message, -32603, reason)
            return
        asks = self._modes.get(session) != "yolo"
        voice = _Voice(self._launch, self.peer, self._agent, entry, message, asks=asks)
        try:
            perform(self._launch, voice, entry)
        except Cancelled:
            voice.stopped()


class _Voice:
    """What the agent says in one turn. Mutable."""

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
        self._launch = launch
        self._peer = peer
        self._agent = agent
        self._entry = entry
        self._asked = asked
        self._asks = asks
        self._session = asked["params"]["sessionId"]
        self._tool: dict[str, Any] = {}

    def started(self) -> None:
        """The session is there already."""

    def noise(self, size: int) -> None:
        self._update("fake_noise", padding="·" * (size // 2))

    def retried(self, attempt: int, _: Entry) -> None:
        if self._agent.name == "gemini":  # nothing on stdout
            self._launch.out.error(f"Attempt {attempt} failed. Retrying with backoff...\n")

    def thought(self, text: str) -> None:
        self._update("agent_thought_chunk", content={"type": "text", "text": text})

    def said(self, text: str) -> None:
        about = {"messageId": f"msg_{new_id()}"} if self._agent.message_ids else {}
        for at in range(0, len(text), DELTA):
            chunk = {"type": "text", "text": text[at : at + DELTA]}
            self._update("agent_message_chunk", **about, content=chunk)

    def tool_started(self, tool: Entry) -> bool:
        title = tool["command"] or tool["name"]
        self._tool = {"toolCallId": f"call_{new_id()[:20]}", "title": title, "kind": "execute"}
        given: Mapping[str, Any] = tool["input"] or {"command": tool["command"]}
        if "content" in tool:
            path = os.path.abspath(tool["path"])
            given = {"path": path}
            self._tool |= {"kind": "edit", "title": path, "locations": [{"path": path}]}
        status = "in_progress" if self._agent.name == "gemini" else "pending"
        raw = {} if self._agent.name == "gemini" else {"rawInput": given}
        self._update("tool_call", **self._tool, status=status, **raw)
        return not (tool["asks"] and self._asks) or self._allowed(given)

    def _allowed(self, given: Mapping[str, Any]) -> bool:
        raw = {} if self._agent.name == "gemini" else {"rawInput": given}
        call = {**self._tool, "status": "pending", **raw}
        options = self._agent.choices
        asked = {"sessionId": self._session, "toolCall": call, "options": options}
        _, reply = self._peer.ask("session/request_permission", asked)
        result: Message = reply.get("result") or {}
        outcome: Message = result.get("outcome") or {}
        return outcome.get("optionId") in [one["optionId"] for one in options[:2]]

    def tool_completed(self, tool: Entry, *, allowed: bool) -> None:
        text = tool["output"] if allowed else "The user rejected the tool call."
        failed = not allowed or (tool["exit_code"] != 0 and self._agent.name == "gemini")
        block = {"type": "content", "content": {"type": "text", "text": text}}
        more = self._agent.raw_output(text, tool["exit_code"]) if allowed else {}
        about = {"toolCallId": self._tool["toolCallId"], "content": [block]}
        self._update(
            "tool_call_update", status="failed" if failed else "completed", **about, **more
        )

    def answered(self) -> None:
        self.said(final_text(self._entry))

    def wait(self, seconds: float) -> None:
        cancelled = self._peer.wait(seconds, lambda message: message.get("method") == CANCEL)
        if cancelled:
            raise Cancelled

    def completed(self) -> int:
        total = self._launch.add_usage(self._session, self._entry["usage"])
        for update in self._agent.usage_updates(self._entry["usage"], total["cost_usd"]):
            self._update("usage_update", **update)
        told = self._agent.reply_usage(self._entry["usage"], self._entry["model"])
        self._peer.answer(self._asked, {"stopReason": "end_turn", **told})
        return 0

    def failed(self, fail: Entry) -> int:
        told: Told = self._agent.failure(fail)
        if told.code is not None:
            self._peer.refuse(self._asked, told.code, told.text, told.data)
            return 1
        if told.text:
            self._update("agent_message_chunk", content={"type": "text", "text": told.text})
        self._peer.answer(self._asked, {"stopReason": told.stop_reason})
        return 1

    def stopped(self) -> None:
        """The client cancelled."""
        self._peer.answer(self._asked, {"stopReason": "cancelled"})

    def interrupted(self, number: int, *, in_tool: bool) -> int:  # noqa: ARG002
        return -number if self._agent.name == "opencode" else 0

    def _update(self, what: str, /, **more: Any) -> None:
        update = {"sessionUpdate": what, **more}
        self._peer.tell("session/update", {"sessionId": self._session, "update": update})


CANCEL = "session/cancel"


WINDOW = 200000
BOTH = {"http": True, "sse": True}
CHOICES: Mapping[str, tuple[str, str, str]] = {
    "gemini": ("proceed_once", "proceed_always", "cancel"),
    "opencode": ("once", "always", "reject"),
    "copilot": ("allow_once", "allow_always", "reject_once"),
}
"""What agents call the answers to a request for permission: once, always, no."""


class Told(NamedTuple):
    """How a failed prompt ends: an error with a ``code``, or an ordinary end with a text."""

    text: str = ""
    code: int | None = None
    data: Mapping[str, Any] | None = None
    stop_reason: str = "end_turn"


class Agent:
    """One agent's ways."""

    def __init__(self, name: str, about: Mapping[str, Any], session: Mapping[str, Any]) -> None:
        self.name = name
        self.about = about
        self.session = session
        self.message_ids = name == "opencode"

    def new_session(self, unique: str) -> str:
        """A session's id as this agent makes them."""
        return f"ses_{unique.replace('-', '')[:26]}" if self.name == "opencode" else unique

    def no_session(self, session: str) -> Told:
        """How it refuses to go on in a session that it does not know."""
        match self.name:
            case "gemini":
                details = "No previous sessions found for this project."
                return Told("Internal error", -32603, {"details": details})
            case "opencode":
                reason = "Internal error: OpenCode service failure"
                return Told(reason, -32603, {"service": "session"})
            case _:
                return Told(f"Session {session} not found", -32602)

    def raw_output(self, text: str, exit_code: int) -> dict[str, Any]:
        """What it says of a tool's output besides the text."""
        match self.name:
            case "opencode":
                metadata = {"output": text, "exit": exit_code, "truncated": False}
                return {"rawOutput": {"output": text, "metadata": metadata}}
            case "copilot":
                return {"rawOutput": {"content": text, "detailedContent": text}}
            case _:
                return {}

    @property
    def forks(self) -> bool:
        """Whether it goes on in a copy of a session."""
        return "fork" in self.about["agentCapabilities"].get("sessionCapabilities", {})

    @property
    def choices(self) -> list[dict[str, str]]:
        """What its requests for permission let be chosen."""
        once, always, reject = CHOICES[self.name]
        return [
            {"optionId": once, "kind": "allow_once", "name": "Allow once"},
            {"optionId": always, "kind": "allow_always", "name": "Always allow"},
            {"optionId": reject, "kind": "reject_once", "name": "Reject"},
        ]

    def usage_updates(self, usage: Mapping[str, Any], cost_usd: float) -> list[dict[str, Any]]:
        """Its usage updates at the end of a turn; ``cost_usd`` is the session's."""
        if self.name == "gemini":
            return []
        used = {"used": usage["input_tokens"] or 0, "size": WINDOW}
        if self.name == "copilot":
            return [used]
        return [{**used, "cost": {"amount": cost_usd, "currency": "USD"}}]

    def reply_usage(self, usage: Mapping[str, Any], model: str | None) -> dict[str, Any]:
        """What its reply to a prompt says of usage."""
        sent, received = usage["input_tokens"] or 0, usage["output_tokens"] or 0
        if self.name == "gemini":
            count = {"input_tokens": sent, "output_tokens": received}
            by_model = [{"model": model or "gemini-2.5-flash", "token_count": count}]
            return {"_meta": {"quota": {"token_count": count, "model_usage": by_model}}}
        cached, written = usage["cached_tokens"] or 0, usage["cache_write_tokens"] or 0
        fresh = sent - cached - written if self.name == "opencode" else sent
        told = {
            "inputTokens": fresh,
            "outputTokens": received,
            "totalTokens": sent + received,
            "cachedReadTokens": cached,
            "cachedWriteTokens": written,
        }
        return {"usage": told, **({"_meta": {}} if self.name == "opencode" else {})}

    def failure(self, fail: Entry) -> Told:
        """How it ends a prompt that failed."""
        kind: str = fail["kind"]
        message: str | None = fail["message"]
        reason = {"max_turns": "max_turn_requests", "output_limit": "max_tokens"}.get(kind)
        if reason or kind == "refusal":
            return Told(message or "", stop_reason=reason or kind)
        match self.name:
            case "gemini":
                return _gemini(kind, message)
            case "opencode":
                return _opencode(kind, message)
            case _:
                return Told(f"Error: {message or _TEXTS[kind]}")


_TEXTS = {
    "rate_limit": "Failed to get response from the AI model; retried 5 times (total retry wait "
    "time: 5.83 seconds) Last error: 429 rate limit exceeded",
    "usage_cap": "You have exceeded your premium request allowance.",
    "spending_cap": "Your credit balance is too low to access the API.",
    "context_overflow": "The provider rejected the prompt as too long, but automatic recovery "
    "could not reduce it.",
    "auth": "Authentication failed with provider at http://127.0.0.1 (HTTP 401).",
    "transient": "Failed to get response from the AI model: transient API error",
    "bad_request": "404 model not found",
}
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
"""Status and name and text of an error of gemini's API; some texts it passes on without a name."""


def _gemini(kind: str, message: str | None) -> Told:
    code, status, text = GEMINI_FAILED[kind]
    text = message or text
    if not status:
        return Told(text, code)
    return Told(json.dumps({"error": {"code": code, "message": text, "status": status}}), code)


def _opencode(kind: str, message: str | None) -> Told:
    capped = "This request would exceed your account's rate limit."
    texts = {**_TEXTS, "auth": "invalid x-api-key", "usage_cap": capped}
    name = "ContextOverflowError" if kind == "context_overflow" else "APIError"
    data = {"service": "session", "errorName": name}
    return Told("Internal error: " + (message or texts[kind]), -32603, data)


AGENTS: Mapping[str, Agent] = {
    "gemini": Agent(
        "gemini",
        {
            "authMethods": [{"id": "gemini-api-key", "name": "Gemini API key"}],
            "agentInfo": {"name": "gemini-cli", "title": "Gemini CLI", "version": "0.61.0"},
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": True, "embeddedContext": True},
                "mcpCapabilities": BOTH,
            },
        },
        {
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
        },
    ),
    "opencode": Agent(
        "opencode",
        {
            "agentCapabilities": {
                "loadSession": True,
                "mcpCapabilities": BOTH,
                "promptCapabilities": {"embeddedContext": True, "image": True},
                "sessionCapabilities": {"close": {}, "fork": {}, "list": {}, "resume": {}},
            },
            "authMethods": [{"id": "opencode-login", "name": "Login with opencode"}],
            "agentInfo": {"name": "OpenCode", "version": "1.18.33"},
        },
        {
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
        },
    ),
    "copilot": Agent(
        "copilot",
        {
            "agentCapabilities": {
                "loadSession": True,
                "mcpCapabilities": BOTH,
                "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
                "sessionCapabilities": {"close": {}, "list": {}},
            },
            "agentInfo": {"name": "Copilot", "title": "Copilot", "version": "1.0.102"},
            "authMethods": [{"id": "copilot-login", "name": "Log in with Copilot CLI"}],
        },
        {"configOptions": []},
    ),
}
