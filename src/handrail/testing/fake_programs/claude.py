"""The protocol of ``claude -p``: one JSON object a line.

Source: recordings of Claude Code 2.1.330, with which the tests compare it.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from typing import Any

from handrail.testing.fake_programs.launch import VERSIONS, Entry, Launch, Options
from handrail.testing.fake_programs.output import Ended, clock_text, new_id, pause, stamp
from handrail.testing.fake_programs.turn import TurnWriter, call_of, perform

SCHEMA_TOOL = "StructuredOutput"
TOO_LONG_S = 3.0
"""How long the program waits for an open stdin if it has a prompt already."""

VALUED = (
    "--add-dir", "--agent", "--agents", "--append-system-prompt", "--append-system-prompt-file",
    "--debug-file", "--effort", "--fallback-model", "--input-format", "--json-schema",
    "--max-budget-usd", "--max-turns", "--model", "--name", "--output-format",
    "--permission-mode", "--permission-prompt-tool", "--permission-prompts", "--plugin-dir",
    "--resume", "--session-id", "--setting-sources", "--settings", "--system-prompt",
    "--system-prompt-file",
)  # fmt: skip
PLAIN = (
    "--allow-dangerously-skip-permissions", "--bare", "--continue",
    "--dangerously-skip-permissions", "--debug", "--disable-slash-commands", "--fork-session",
    "--include-hook-events", "--include-partial-messages", "--no-chrome",
    "--no-session-persistence", "--print", "--replay-user-messages", "--safe-mode",
    "--strict-mcp-config", "--verbose",
)  # fmt: skip
MANY = ("--allowedTools", "--allowed-tools", "--betas", "--disallowedTools", "--disallowed-tools",
        "--mcp-config", "--tools")  # fmt: skip
SHORT = {"-p": "--print", "-r": "--resume", "-c": "--continue", "-d": "--debug", "-n": "--name"}


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
    words = " ".join(options.words)
    stdin = launch.read_stdin(TOO_LONG_S if words else math.inf)
    prompt = "\n".join(filter(None, (words, stdin)))
    if reason := _unusable(options, prompt):
        raise Ended(1, reason)
    voice = _Claude(launch, options)
    resumed = options.get("--resume")
    if resumed is not None and launch.session(resumed) is None:
        return voice.no_conversation(resumed)
    if prompt.strip().startswith("/compact"):
        return voice.compacted()
    voice.entry = launch.next_act()
    return perform(voice)


def _unusable(options: Options, prompt: str) -> str | None:
    if "--print" not in options:
        return "fake claude: only `claude -p` is faked, not the interactive program"
    if options.get("--input-format") == "stream-json":
        return "fake claude: --input-format stream-json is not faked"
    if options.get("--output-format") == "stream-json" and "--verbose" not in options:
        return "Error: When using --print, --output-format=stream-json requires --verbose"
    try:
        json.loads(options.get("--json-schema") or "{}")
    except ValueError as error:
        return f"Error: --json-schema is not valid JSON: {error}"
    if not prompt.strip():
        return (
            "Error: Input must be provided either through stdin or as a prompt argument "
            "when using --print"
        )
    return None


def _session_of(launch: Launch, options: Options) -> str:
    """The id of the session to continue, or the one chosen for a new session; else ""."""
    resumed, chosen = options.get("--resume"), options.get("--session-id")
    if resumed is not None and "--fork-session" not in options:
        return resumed
    if chosen is not None and launch.session(chosen) is not None:
        raise Ended(1, f"Error: Session ID {chosen} is already in use.")
    return chosen or ""


class _Claude(TurnWriter):
    """Prints one turn of claude. Mutable."""

    usual_model = "claude-sonnet-4-5"

    def __init__(self, launch: Launch, options: Options) -> None:
        super().__init__(launch, {}, _session_of(launch, options), options)
        self._stream = options.get("--output-format") == "stream-json"
        self._said = ""
        self._model_calls = 1
        self._tool_id = ""
        self._denials: list[dict[str, Any]] = []

    def no_conversation(self, session: str) -> int:
        """Report that there is no session of this id."""
        reason = f"No conversation found with session ID: {session}"
        self.session = session
        self.launch.out.error(reason + "\n")
        self._result("error_during_execution", errors=[reason], num_turns=0, stop_reason=None)
        return 1

    def compacted(self) -> int:
        """Report that the session was made smaller, without a prompt to the model."""
        self._system("status", status="compacting")
        self._system("status", status=None, compact_result="success")
        self._init()
        meta = {"trigger": "manual", "pre_tokens": 1925, "post_tokens": 683, "duration_ms": 118}
        self._system("compact_boundary", compact_metadata=meta)
        self._result("success", result="", num_turns=0, stop_reason=None)
        return 0

    def write_start(self) -> None:
        self.session = self.session or self.entry["session"] or new_id()
        self.launch.open_session(self.session)
        self._init()

    def write_noise(self, padding: str) -> None:
        self._system("informational", content=padding)

    def write_retry(self, attempt: int, fail: Entry) -> None:
        form = FAILED[fail["kind"]]
        self._system(
            "api_retry",
            attempt=attempt,
            max_retries=fail["retries"],
            retry_delay_ms=20,
            error_status=form["status"],
            error=form["error"],
        )
        pause(0.02)

    def write_thought(self, text: str) -> None:
        self._assistant({"type": "thinking", "thinking": text, "signature": "c2ln"})

    def write_message(self, text: str) -> None:
        self._said = text
        self._assistant({"type": "text", "text": text})

    def write_tool_start(self, tool: Entry) -> bool:
        name, given = call_of(tool, runs="Bash", writes="Write", path="file_path")
        self._tool_id = f"toolu_{new_id()[:20]}"
        self._model_calls += 1
        self._assistant({"type": "tool_use", "id": self._tool_id, "name": name, "input": given})
        if not tool["asks"] or self._may_do_anything:
            return True
        self._denials.append({"tool_name": name, "tool_use_id": self._tool_id, "tool_input": given})
        self._system(
            "permission_denied",
            tool_name=name,
            tool_use_id=self._tool_id,
            decision_reason_type="mode",
            message=f"Permission to use {name} has been denied.",
        )
        return False

    def write_tool_result(self, tool: Entry, *, allowed: bool) -> None:
        failed = not allowed or tool["exit_code"] != 0
        content = tool["output"] if allowed else "Permission has been denied."
        if allowed and failed:
            content = f"Exit code {tool['exit_code']}\n{content}"
        told: Any = f"Error: {content}"
        if not failed:
            told = {"stdout": content, "stderr": "", "interrupted": False, "isImage": False}
        self._tool_result(content, told, is_error=failed)

    def write_answer(self) -> None:
        value = self.entry["structured"]
        if value is None:
            return self.write_message(self.entry["text"])
        if "--json-schema" not in self.options:
            return self.write_message(json.dumps(value))
        if self.entry["text"] and self.entry["text"] != "done.":
            self.write_message(self.entry["text"])
        self._tool_id = f"toolu_{new_id()[:20]}"
        call = {"type": "tool_use", "id": self._tool_id, "name": SCHEMA_TOOL, "input": value}
        self._assistant(call)
        provided = "Structured output provided successfully"
        self._tool_result(provided, provided)
        self._said = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        return None

    def write_end(self) -> int:
        value = self.entry["structured"]
        more: dict[str, Any] = {"result": self._said}
        if value is not None and "--json-schema" in self.options:
            more["structured_output"] = value
        self._result("success", usage=self.entry["usage"], num_turns=self._model_calls, **more)
        return 0

    def write_failure(self, fail: Entry) -> int:
        form = FAILED[fail["kind"]]
        if "subtype" in form:
            reason = fail["message"] or form["text"]
            self._result(
                form["subtype"],
                errors=[reason],
                usage=self.entry["usage"],
                num_turns=self._model_calls,
                terminal_reason=form["terminal_reason"],
                stop_reason="tool_use",
            )
            return 1
        text = fail["message"] or form["text"]
        details = {name: form[name] for name in ("api_error", "api_error_params") if name in form}
        if fail["kind"] == "usage_cap":
            text = fail["message"] or self._capped(fail)
        status = form["status"]
        typed = {"api_error_type": form["type"]} if form["type"] else {}
        self._assistant(
            {"type": "text", "text": text},
            error=form["error"],
            is_api_error_message=True,
            **({"api_error_status": status} if status else {}),
            **details,
            **typed,
        )
        details.pop("api_error_params", None)
        self._result(
            "success",
            result=text,
            is_error=True,
            stop_reason=form.get("stop_reason", "stop_sequence"),
            terminal_reason=form["terminal_reason"],
            api_error_status=status,
            **details,
            **typed,
        )
        return 1

    def _capped(self, fail: Entry) -> str:
        """Print the state of the plan's window; the text of the failure."""
        at = fail["resets_at"]
        info: dict[str, Any] = {"status": "rejected", "rateLimitType": "five_hour"}
        if at is not None:
            info["resetsAt"] = int(at)
        self._print(
            {"type": "rate_limit_event", "rate_limit_info": {**info, "isUsingOverage": False}}
        )
        resets = fail["resets"] or (None if at is None else f"{clock_text(at)} (UTC)")
        return "You've hit your 5-hour limit" + (f" · resets {resets}" if resets else "")

    def write_interruption(self, number: int, *, in_tool: bool) -> int:
        if number != 2:  # SIGTERM
            return 143
        why = "[Request interrupted by user for tool use]"
        if not in_tool:
            why = "[Request interrupted by user]"
        else:
            self._tool_result("The tool use was rejected", "User rejected tool use", is_error=True)
        self._user([{"type": "text", "text": why}])
        if in_tool:
            self._result(
                "error_during_execution",
                errors=["[ede_diagnostic] result_type=user"],
                usage=self.entry["usage"],
                num_turns=self._model_calls,
                stop_reason="tool_use",
                terminal_reason="aborted_tools",
            )
        return 0

    @property
    def _may_do_anything(self) -> bool:
        mode = self.options.get("--permission-mode")
        return mode == "bypassPermissions" or "--dangerously-skip-permissions" in self.options

    def _init(self) -> None:
        self._system(
            "init",
            cwd=os.getcwd(),
            tools=["Task", "Bash", "Edit", "Read", "Write"],
            mcp_servers=[],
            model=self.model,
            permissionMode=self.options.get("--permission-mode") or "default",
            slash_commands=["compact", "context"],
            apiKeySource="ANTHROPIC_API_KEY" if os.environ.get("ANTHROPIC_API_KEY") else "none",
            claude_code_version=VERSIONS["claude"].partition(" ")[0],
            output_style="default",
            agents=["general-purpose"],
            capabilities=list(CAPABILITIES),
        )

    def _system(self, subtype: str, **more: Any) -> None:
        self._print({"type": "system", "subtype": subtype, **more})

    def _assistant(self, block: Mapping[str, Any], **more: Any) -> None:
        failed = "error" in more
        message = {
            "id": f"msg_{new_id()[:20]}",
            "type": "message",
            "role": "assistant",
            "model": "<synthetic>" if failed else self.model,
            "content": [block],
            "stop_reason": "stop_sequence" if failed else None,
            "stop_sequence": "" if failed else None,
            "usage": NO_TOKENS
            if failed
            else {**tokens_of(self.entry["usage"]), "output_tokens": 1},
            "context_management": None,
        }
        event = {"type": "assistant", "message": message, "parent_tool_use_id": None}
        self._print({**event, "timestamp": stamp(), **more})

    def _user(self, content: list[dict[str, Any]], **more: Any) -> None:
        message = {"role": "user", "content": content}
        event = {"type": "user", "message": message, "parent_tool_use_id": None}
        self._print({**event, "timestamp": stamp(), **more})

    def _tool_result(self, content: str, told: object, *, is_error: bool | None = None) -> None:
        block = {"tool_use_id": self._tool_id, "type": "tool_result", "content": content}
        error = {} if is_error is None else {"is_error": is_error}
        self._user([{**block, **error}], tool_use_result=told)

    def _result(self, subtype: str, *, usage: Mapping[str, Any] | None = None, **more: Any) -> None:
        """The last line. Cost and ``modelUsage`` are the session's, ``usage`` the turn's."""
        cost = price(usage)
        total = self.launch.session(self.session) or {"usage": {}}
        spent: Mapping[str, Any] = total["usage"]
        if usage is not None:
            spent = self.launch.add_usage(self.session, {**usage, "cost_usd": cost})
        models = {self.model: model_usage(spent)} if spent.get("output_tokens") else {}
        event = {
            "duration_api_ms": 69,
            "stop_reason": "end_turn",
            "total_cost_usd": spent.get("cost_usd", 0),
            "usage": {**SPARE, **tokens_of(usage)},
            "modelUsage": models,
            "permission_denials": self._denials,
            "terminal_reason": "completed",
            "is_error": subtype != "success",
            "num_turns": 1,
            "subtype": subtype,
            "api_error_status": None,
            **more,
            "type": "result",  # not the first key: no reader may rely on its place
            "duration_ms": 345,
            "result_index": 0,
        }
        if self.options.get("--output-format") in {None, "text"}:
            text = more.get("result") or "\n".join(more.get("errors", ()))
            self.launch.out.text(f"{text}\n")
        else:
            self._print(event, last=True)

    def _print(self, event: dict[str, Any], *, last: bool = False) -> None:
        if self._stream or last:
            self.launch.out.line({**event, "session_id": self.session, "uuid": new_id()})


CAPABILITIES = ("interrupt_receipt_v1", "msg_lifecycle_v1")
NO_TOKENS: Mapping[str, Any] = {
    "input_tokens": 0,
    "output_tokens": 0,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
}
SPARE: Mapping[str, Any] = {
    "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0},
    "service_tier": "standard",
}
DOLLARS = {"input": 3e-6, "written": 3.75e-6, "read": 0.3e-6, "output": 15e-6}
"""Prices of a token of claude-sonnet-4-5, as in November 2026."""


def tokens_of(usage: Mapping[str, Any] | None) -> dict[str, int]:
    """The tokens as claude counts them: cached tokens are no part of the input."""
    if usage is None:
        return dict(NO_TOKENS)
    read, written = usage.get("cached_tokens") or 0, usage.get("cache_write_tokens") or 0
    return {
        "input_tokens": max(0, (usage.get("input_tokens") or 0) - read - written),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
        "output_tokens": usage.get("output_tokens") or 0,
    }


def price(usage: Mapping[str, Any] | None) -> float:
    """The cost of a usage: its own figure, or by the price of the tokens."""
    if usage is None:
        return 0.0
    if usage.get("cost_usd") is not None:
        return float(usage["cost_usd"])
    tokens = tokens_of(usage)
    return (
        tokens["input_tokens"] * DOLLARS["input"]
        + tokens["cache_creation_input_tokens"] * DOLLARS["written"]
        + tokens["cache_read_input_tokens"] * DOLLARS["read"]
        + tokens["output_tokens"] * DOLLARS["output"]
    )


def model_usage(spent: Mapping[str, Any]) -> dict[str, Any]:
    """One model's entry of ``modelUsage``."""
    tokens = tokens_of(spent)
    return {
        "inputTokens": tokens["input_tokens"],
        "outputTokens": tokens["output_tokens"],
        "cacheReadInputTokens": tokens["cache_read_input_tokens"],
        "cacheCreationInputTokens": tokens["cache_creation_input_tokens"],
        "webSearchRequests": 0,
        "costUSD": spent.get("cost_usd", 0),
        "contextWindow": 200000,
        "maxOutputTokens": 32000,
    }


def _api(
    error: str, status: int | None, kind: str | None, text: str, **more: Any
) -> dict[str, Any]:
    form = {"error": error, "status": status, "type": kind, "text": text}
    return {**form, "terminal_reason": "api_error", **more}


def _ended(subtype: str, terminal_reason: str, text: str) -> dict[str, Any]:
    form = {"error": "unknown", "status": None, "type": None, "text": text}
    return {**form, "subtype": subtype, "terminal_reason": terminal_reason}


FAILED: Mapping[str, dict[str, Any]] = {
    "rate_limit": _api(
        "rate_limit",
        429,
        "rate_limit_error",
        "API Error: Request rejected (429) · This request would exceed your organization's rate "
        "limit of 40,000 input tokens per minute.",
    ),
    "usage_cap": _api("rate_limit", 429, "rate_limit_error", "", api_error="usage_limit_reached"),
    "spending_cap": _api(
        "billing_error", 400, "invalid_request_error", "Credit balance is too low"
    ),
    "context_overflow": _api(
        "invalid_request",
        400,
        "invalid_request_error",
        "Prompt is too long · the request is ~214315 tokens (limit 200000)",
        terminal_reason="prompt_too_long",
    ),
    "auth": _api(
        "authentication_failed",
        401,
        "authentication_error",
        "Invalid API key · Fix external API key",
    ),
    "transient": _api("server_error", 500, "api_error", "API Error: 500 Internal server error."),
    "bad_request": _api(
        "model_not_found",
        404,
        "not_found_error",
        "There's an issue with the selected model. It may not exist or you may not have access "
        "to it.",
    ),
    "output_limit": _api(
        "max_output_tokens",
        None,
        None,
        "API Error: Claude's response exceeded the 32000 output token maximum.",
        api_error="max_output_tokens",
        api_error_params={"cut": "output_limit"},
    ),
    "refusal": _api(
        "invalid_request",
        None,
        None,
        "API Error: Claude Code is unable to respond to this request.",
        stop_reason="refusal",
    ),
    "invalid_output": _ended(
        "error_max_structured_output_retries",
        "structured_output_retry_exhausted",
        "Failed to provide valid structured output after 5 attempts",
    ),
    "max_turns": _ended("error_max_turns", "max_turns", "Reached maximum number of turns (2)"),
}
