"""What ``opencode run --format json`` prints; source: recordings of opencode 1.18.33."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from handrail.model.results import Usage
from handrail.testing.fake_programs import Says, Tool
from handrail.testing.fake_programs.acts import ONE_TURN
from tests.agents.parity.reel import Step, printed, text_of
from tests.agents.recorded import ending_of

_FAILURES: Mapping[str, tuple[str, int | None, str]] = {
    "rate_limit": ("APIError", 429, "This request would exceed your organization's rate limit."),
    "usage_cap": ("APIError", 429, "This request would exceed your account's rate limit."),
    "spending_cap": ("APIError", 400, "Your credit balance is too low to access the API."),
    "context_overflow": ("ContextOverflowError", None, "prompt is too long: 214315 tokens"),
    "auth": ("APIError", 401, "invalid x-api-key"),
    "transient": ("APIError", 500, "Internal server error"),
    "bad_request": ("UnknownError", None, "Unexpected server error. Check server logs."),
}


class OpencodeLines:
    """The words of ``opencode-run``; it tells of a tool when that is done."""

    resumes_by = "-s"

    def __init__(self) -> None:
        ending = ending_of("opencode", "resume_3_bad")
        self.refusal = (ending.stderr, ending.exit_code or 0)

    def started(self) -> list[Step]:
        """A first step."""
        return [_event("step_start")]

    def thought(self, text: str) -> list[Step]:
        """A part of its own."""
        return [_event("reasoning", id="prt_thought", text=text)]

    def tool_started(self, _: Tool) -> list[Step]:
        """Nothing yet."""
        return []

    def tool_completed(self, tool: Tool) -> list[Step]:
        """The tool, the end of the step that called it, and the next step."""
        state = {
            "status": "completed",
            "input": {"command": tool.command},
            "output": tool.output,
            "metadata": {"output": tool.output, "exit": tool.exit_code, "truncated": False},
        }
        return [
            _event("tool_use", tool="bash", callID="toolu_1", state=state),
            _step_finish("tool-calls", ONE_TURN),
            _event("step_start"),
        ]

    def said(self, text: str) -> list[Step]:
        """A part of its own."""
        return [_event("text", id="prt_text", text=text)]

    def retried(self, _: int) -> list[Step]:
        """Nothing."""
        return []

    def answered(self, says: Says) -> list[Step]:
        """The text, and a step of which the model said that it was the last."""
        return [*self.said(text_of(says)), _step_finish("stop", says.usage)]

    def failed(self, kind: str) -> list[Step]:
        """An event of the error."""
        name, status, text = _FAILURES[kind]
        data: dict[str, Any] = {"message": text}
        data |= {} if status is None else {"statusCode": status, "responseHeaders": {}}
        error = {"name": name, "data": data}
        return [
            printed({"type": "error", "sessionID": "@SESSION@", "error": error}),
            ("exits", 1),
        ]


def _event(kind: str, **part: Any) -> Step:
    return printed({"type": kind, "sessionID": "@SESSION@", "part": part})


def _step_finish(reason: str, usage: Usage) -> Step:
    """The end of a step; cached tokens and thoughts are told besides the others."""
    read, written = usage.cached_tokens or 0, usage.cache_write_tokens or 0
    thoughts = usage.reasoning_tokens or 0
    tokens = {
        "input": (usage.input_tokens or 0) - read - written,
        "output": (usage.output_tokens or 0) - thoughts,
        "reasoning": thoughts,
        "cache": {"read": read, "write": written},
    }
    return _event("step_finish", reason=reason, tokens=tokens, cost=0.00522)
