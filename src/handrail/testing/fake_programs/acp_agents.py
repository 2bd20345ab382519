"""In what the agents that speak ACP differ: what they say of themselves, usage, failures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from handrail.testing.fake_programs.launch import Entry

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
