"""What ``gemini --output-format stream-json`` prints; source: recordings of gemini 0.61.0."""

from __future__ import annotations

import json
from collections.abc import Mapping

from handrail.testing.fake_programs import Says, Tool
from tests.agents.parity.reel import Step, printed, text_of
from tests.agents.recorded import ending_of

_FAILURES: Mapping[str, tuple[int, str, str]] = {
    "rate_limit": (429, "RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota)."),
    "usage_cap": (429, "", "You have exhausted your daily quota on this model."),
    "spending_cap": (429, "RESOURCE_EXHAUSTED", "Your prepayment credits are depleted."),
    "context_overflow": (
        400,
        "INVALID_ARGUMENT",
        "The input token count (1248576) exceeds the maximum number of tokens allowed (1048576).",
    ),
    "auth": (400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."),
    "transient": (503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
    "bad_request": (404, "", "models/nope is not found for API version v1beta"),
}
_TOOL_ID = "run_shell_command__run_shell_command_1795294210558_0"


class GeminiLines:
    """The words of ``gemini-cli``; it does not tell what the model thinks."""

    resumes_by = "--resume="

    def __init__(self) -> None:
        ending = ending_of("gemini", "bad_resume")
        self.refusal = (ending.stderr, ending.exit_code or 0)

    def started(self) -> list[Step]:
        """The session, and the prompt again."""
        return [
            printed({"type": "init", "session_id": "@SESSION@", "model": "gemini-2.5-flash"}),
            printed({"type": "message", "role": "user", "content": "Do it."}),
        ]

    def thought(self, _: str) -> list[Step]:
        """Nothing."""
        return []

    def tool_started(self, tool: Tool) -> list[Step]:
        """The call."""
        call = {"tool_name": "run_shell_command", "tool_id": _TOOL_ID}
        return [printed({"type": "tool_use", **call, "parameters": {"command": tool.command}})]

    def tool_completed(self, tool: Tool) -> list[Step]:
        """What came of it."""
        status = "error" if tool.exit_code else "success"
        done = {"tool_id": _TOOL_ID, "status": status, "output": tool.output}
        return [printed({"type": "tool_result", **done})]

    def said(self, text: str) -> list[Step]:
        """A piece of a message."""
        said = {"type": "message", "role": "assistant", "content": text, "delta": True}
        return [printed(said)]

    def retried(self, attempt: int) -> list[Step]:
        """A line on stderr, and no more."""
        why = "The model is overloaded. Retrying after 5801ms..."
        return [("complains", f"Attempt {attempt} failed: {why}\n")]

    def answered(self, says: Says) -> list[Step]:
        """The message in two pieces, and the result."""
        text = text_of(says)
        half = len(text) // 2
        used = {
            "input_tokens": says.usage.input_tokens,
            "output_tokens": says.usage.output_tokens,
            "cached": says.usage.cached_tokens,
        }
        return [
            *self.said(text[:half]),
            *self.said(text[half:]),
            printed({"type": "result", "status": "success", "stats": used}),
        ]

    def failed(self, kind: str) -> list[Step]:
        """The result, with the API's error within the message; the exit code is its status."""
        code, status, text = _FAILURES[kind]
        api = {"error": {"code": code, "message": text, "status": status}}
        said = json.dumps(api) if status else text
        error = {"type": "unknown", "message": f"[API Error: {said}]"}
        return [
            printed({"type": "result", "status": "error", "error": error}),
            ("exits", code % 256),
        ]
