"""The protocol of ``copilot --output-format json``: one event a line.

Source: recordings of GitHub Copilot CLI 1.0.102, with which the tests compare it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from handrail.testing.fake_programs.folder import write_json
from handrail.testing.fake_programs.launch import Entry, Launch, Options
from handrail.testing.fake_programs.output import Ended, new_id, stamp
from handrail.testing.fake_programs.turn import TurnWriter, call_of, deltas, perform

VALUED = (
    "--prompt", "--model", "--reasoning-effort", "--effort", "--context", "--agent", "--resume",
    "--name", "--session-id", "--cd", "--log-dir", "--log-level", "--stream", "--output-format",
    "--add-dir", "--attachment", "--disable-mcp-server", "--add-github-mcp-tool",
    "--add-github-mcp-toolset", "--plugin-dir", "--additional-mcp-config", "--mode",
    "--max-autopilot-continues", "--max-ai-credits", "--usage-output-file", "--enable-mcp-server",
)  # fmt: skip
PLAIN = (
    "--trust-folder", "--silent", "--disable-client-telemetry", "--continue", "--allow-all-tools",
    "--allow-all-paths", "--allow-all-urls", "--allow-all", "--yolo", "--disallow-temp-dir",
    "--disable-builtin-mcps", "--enable-all-github-mcp-tools", "--autopilot", "--plan",
    "--experimental", "--no-custom-instructions", "--no-auto-update", "--no-ask-user",
    "--no-color", "--no-remote", "--screen-reader", "--plain-diff",
    "--allow-all-mcp-server-instructions",
)  # fmt: skip
MANY = ("--allow-tool", "--deny-tool", "--available-tools", "--excluded-tools", "--allow-url",
        "--deny-url", "--secret-env-vars")  # fmt: skip
SHORT = {"-p": "--prompt", "-s": "--silent", "-r": "--resume", "-n": "--name", "-C": "--cd"}

FAILED: Mapping[str, tuple[str, int | None, str]] = {
    "rate_limit": (
        "rate_limit",
        429,
        (
            "Failed to get response from the AI model; retried 5 times (total retry wait time: "
            "5.83 seconds) Last error: 429 rate limit exceeded"
        ),
    ),
    "usage_cap": ("quota", 402, "You have exceeded your premium request allowance."),
    "spending_cap": ("query", 400, "Your credit balance is too low to access the API."),
    "context_overflow": (
        "query",
        None,
        (
            "The provider rejected the prompt as too long, but automatic recovery could not "
            "reduce it. Start a new session or shorten the prompt."
        ),
    ),
    "auth": (
        "authentication",
        401,
        (
            "Authentication failed with provider at http://127.0.0.1 (HTTP 401).\n"
            "  Check your COPILOT_PROVIDER_API_KEY."
        ),
    ),
    "transient": ("query", 500, "Failed to get response from the AI model: transient API error"),
    "bad_request": ("query", 404, "404 model not found"),
}


def run(launch: Launch) -> int:
    """Answer one prompt."""
    options = Options(
        launch.argv,
        valued=VALUED,
        plain=PLAIN,
        many=MANY,
        same=SHORT,
        otherwise=lambda word: Ended(1, f"error: unknown option '{word}'"),
    )
    if options.words:
        raise Ended(1, "error: Invalid command format.")
    given = options.get("--prompt")
    prompt = launch.read_stdin() if given is None else given
    if not prompt.strip():
        raise Ended(1, "fake copilot: only prompts are faked, not the interactive program")
    resumed = options.get("--resume")
    unknown = f"Error: No session, task, or name matched '{resumed}'."
    launch.require_session(resumed, Ended(1, unknown))
    return perform(_Copilot(launch, options, launch.next_act(), prompt))


class _Copilot(TurnWriter):
    """Prints one turn of copilot. Mutable."""

    usual_model = "claude-sonnet-4.5"

    def __init__(self, launch: Launch, options: Options, entry: Entry, prompt: str) -> None:
        chosen = options.get("--resume") or options.get("--session-id")
        super().__init__(launch, entry, chosen or entry.get("session") or new_id(), options)
        self.usual_model = os.environ.get("COPILOT_MODEL") or self.usual_model
        self._prompt = prompt
        self._last = new_id()
        self._turn = 0
        self._changed: list[str] = []

    def write_start(self) -> None:
        self.launch.open_session(self.session)
        self._event("session.tools_updated", {"model": self.model}, passing=True)
        data = {"content": self._prompt, "transformedContent": self._prompt, "turnId": "0"}
        self._event("user.message", {**data, "messageId": new_id(), "delivery": "idle"})
        self._begin()

    def write_noise(self, padding: str) -> None:
        self._event("session.fake_noise", {"padding": padding}, passing=True)

    def write_retry(self, attempt: int, fail: Entry) -> None:
        self._call_failed(attempt - 1, fail)
        reason = "rate_limit" if fail["kind"] == "rate_limit" else "api_error"
        self._event("assistant.turn_retry", {**self._where, "reason": reason}, passing=True)
        if fail["kind"] != "rate_limit":
            self._told_again()
        self._event("model.call_start", self._where, passing=True)

    def _told_again(self) -> None:
        again = "Request failed due to a transient API error. Retrying..."
        self._event("session.info", {"infoType": "model_retry", "message": again}, passing=True)

    def write_thought(self, text: str) -> None:
        about = {"reasoningId": new_id()}
        self._event("assistant.reasoning_delta", {**about, "deltaContent": text}, passing=True)
        self._event("assistant.reasoning", {**about, "content": text}, passing=True)

    def write_message(self, text: str) -> None:
        about = {"messageId": new_id()}
        self._event("assistant.message_start", about, passing=True)
        for part in deltas(text):
            self._event("assistant.message_delta", {**about, "deltaContent": part}, passing=True)
        self._call_finished("success")
        self._message({**about, "content": text, "toolRequests": []})
        self._call_result("success")

    def write_tool_start(self, tool: Entry) -> bool:
        name, given = call_of(tool, runs="bash", writes="create", path="path", text="file_text")
        if "content" in tool:
            self._changed.append(os.path.abspath(tool["path"]))
        self.tool = {"toolCallId": f"toolu_{new_id()[:20]}", "toolName": name}
        self._call_finished("success")
        asked = {"toolCallId": self.tool["toolCallId"], "name": name, "arguments": given}
        request = {**asked, "type": "function", "toolTitle": "Running command"}
        self._message({"messageId": new_id(), "content": "", "toolRequests": [request]})
        self._event("tool.execution_start", {**self.tool, "arguments": given, **self._where})
        self._call_result("success")
        return not tool["asks"] or bool({"--allow-all", "--yolo"} & self.options.given.keys())

    def write_tool_result(self, tool: Entry, *, allowed: bool) -> None:
        about = {"toolCallId": self.tool["toolCallId"], **self._where, "success": allowed}
        is_shell = self.tool["toolName"] == "bash"
        content = tool["output"]
        if is_shell and allowed:
            content += f"<shellId: 0 completed with exit code {tool['exit_code']}>"
            about["shellExecution"] = {"exitCode": tool["exit_code"]}
        if allowed:
            about["result"] = {"content": content, "detailedContent": content}
        else:
            about["error"] = {"message": "Permission denied", "code": "denied"}
        self._event("tool.execution_complete", about)
        self._event("assistant.turn_end", {"turnId": str(self._turn)})
        self._turn += 1
        self._begin()

    def write_end(self) -> int:
        self.launch.add_usage(self.session, self.entry["usage"])
        self._ended(0)
        return 0

    def write_failure(self, fail: Entry) -> int:
        kind, status, text = _form(fail)
        self._call_failed(fail["retries"], fail)
        self._call_result(f"http_{status or 400}")
        error: dict[str, Any] = {"errorType": kind, "message": text}
        if status is not None:
            error["statusCode"] = status
        self._event("assistant.turn_end", {"turnId": str(self._turn)})
        self._event("session.error", error)
        self._event("assistant.idle", {}, passing=True)
        self._result(1)
        return 1

    def write_interruption(self, _: int, *, in_tool: bool) -> int:
        if in_tool:
            return 0
        self._event("abort", {"reason": "user_initiated"})
        self._call_finished("cancelled")
        self._event("assistant.turn_end", {"turnId": str(self._turn)})
        self._event("assistant.idle", {"aborted": True}, passing=True)
        self._result(0)
        return 0

    @property
    def _where(self) -> dict[str, Any]:
        return {"turnId": str(self._turn), "model": self.model}

    def _begin(self) -> None:
        self._event("assistant.turn_start", {"turnId": str(self._turn)})
        self._event("model.call_start", self._where, passing=True)

    def _message(self, data: dict[str, Any]) -> None:
        self._event("assistant.message", {**data, **self._where, "apiCallId": new_id()})

    def _call_finished(self, outcome: str) -> None:
        data = {"turnId": str(self._turn), "dispatchDurationMs": 61, "outcome": outcome}
        self._event("model.call_finished", data, passing=True)

    def _call_result(self, result: str) -> None:
        data = {"model": self.model, "isByok": True, "result": result}
        self._event("model.call_final_result", data, passing=True)

    def _call_failed(self, attempt: int, fail: Entry) -> None:
        _, status, text = _form(fail)
        data = {"model": self.model, "statusCode": status or 400, "errorMessage": text}
        call = {"retryAttempt": attempt, "failureKind": "api", "durationMs": 3}
        self._event("model.call_failure", {**data, **call}, passing=True)
        self._call_finished("error")

    def _ended(self, code: int) -> None:
        self._event("assistant.turn_end", {"turnId": str(self._turn)})
        self._event("assistant.idle", {}, passing=True)
        self._result(code)
        if path := self.options.get("--usage-output-file"):
            write_json(path, self._usage())

    def _result(self, code: int) -> None:
        changes = {"linesAdded": 0, "linesRemoved": 0, "filesModified": self._changed}
        usage = {"premiumRequests": 0, "totalApiDurationMs": 61, "codeChanges": changes}
        line = {"type": "result", "timestamp": stamp(), "sessionId": self.session}
        self.launch.out.line({**line, "exitCode": code, "usage": usage})

    def _usage(self) -> dict[str, Any]:
        usage = self.entry["usage"]
        tokens = {
            "inputTokens": usage["input_tokens"] or 0,
            "outputTokens": usage["output_tokens"] or 0,
            "cacheReadTokens": usage["cached_tokens"] or 0,
            "cacheWriteTokens": usage["cache_write_tokens"] or 0,
        }
        requests = {"count": self._turn + 1, "cost": 0}
        metrics = {self.model: {"requests": requests, "usage": tokens, "totalNanoAiu": 0}}
        return {
            "totalPremiumRequestCost": 0,
            "totalUserRequests": 1,
            "totalNanoAiu": 0,
            "aiCreditsStatus": "unavailable",
            "modelMetrics": metrics,
            "currentModel": self.model,
        }

    def _event(self, kind: str, data: Mapping[str, Any], *, passing: bool = False) -> None:
        """Print an event; a ``passing`` event is not kept in the session."""
        event = {"id": new_id(), "timestamp": stamp(), "parentId": self._last}
        if not passing:
            self._last = event["id"]
        more = {"ephemeral": True} if passing else {}
        self.launch.out.line({"type": kind, "data": data, **more, **event})


def _form(fail: Entry) -> tuple[str, int | None, str]:
    kind, status, text = FAILED[fail["kind"]]
    return kind, status, fail["message"] or text
