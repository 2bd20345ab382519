"""Launches of fake programs: what each is called with, and conversations with some."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from handrail.testing.fake_programs import (
    Tool,
)
from tests.testing.recorded_shapes import (
    Event,
    printed,
)

CLAUDE = ("-p", "--output-format", "stream-json", "--verbose", "--model", "claude-sonnet-4-5")
BYPASS = ("--permission-mode", "bypassPermissions")
COPILOT = ("--output-format", "json", "--no-auto-update", "--no-ask-user", "--allow-all")
ARGUMENTS = {
    "claude": CLAUDE,
    "copilot": COPILOT,
}
HELLO = "Hello from the stub: naïve ✓ 🙂 done."
RAN = Tool("echo tool-ok", "tool-ok\n")


NEEDED: Mapping[str, Mapping[str, str]] = {
    "claude": {
        "system/init": "session_id model cwd tools mcp_servers permissionMode apiKeySource "
        "claude_code_version capabilities",
        "assistant/text": "message.id message.content.text message.usage parent_tool_use_id",
        "assistant/thinking": "message.content.thinking message.content.signature",
        "assistant/tool_use": "message.content.id message.content.name message.content.input",
        "user/tool_result": "message.content.tool_use_id message.content.content tool_use_result",
        "system/api_retry": "attempt max_retries retry_delay_ms error_status error",
        "rate_limit_event": "rate_limit_info.status rate_limit_info.rateLimitType",
        "system/permission_denied": "tool_name tool_use_id message",
        "system/compact_boundary": "compact_metadata.trigger compact_metadata.pre_tokens",
        "result": "subtype is_error session_id num_turns total_cost_usd usage.input_tokens "
        "usage.cache_read_input_tokens usage.output_tokens modelUsage permission_denials "
        "stop_reason terminal_reason api_error_status",
    },
    "codex": {
        "notice/error": "params.error.message params.error.codexErrorInfo params.willRetry",
        "thread/started": "params.thread.id params.thread.model",
        "turn/completed": "params.turn.id params.turn.status params.turn.error",
        "item/completed:agentMessage": "params.item.id params.item.text params.threadId",
        "item/completed:commandExecution": "params.item.command params.item.exitCode "
        "params.item.status params.item.aggregatedOutput",
        "item/agentMessage/delta": "params.itemId params.delta",
    },
    "copilot": {
        "assistant.message": "data.content data.toolRequests data.model id timestamp parentId",
        "tool.execution_start": "data.toolCallId data.toolName data.arguments",
        "tool.execution_complete": "data.toolCallId data.success data.result.content "
        "data.shellExecution.exitCode",
        "session.error": "data.errorType data.message",
        "result": "sessionId exitCode usage.premiumRequests usage.codeChanges",
    },
}


def launch(
    name: str, *arguments: str, stdin: str = "Say hello.", **more: Any
) -> subprocess.CompletedProcess[str]:
    """The program of that name on PATH, run to its end."""
    return subprocess.run(
        [name, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        **more,
    )


class Client:
    """A client of a program that speaks JSON-RPC lines."""

    def __init__(self, *argv: str) -> None:
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.heard: list[dict[str, Any]] = []
        self._number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(10)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def tell(self, method: str, **params: Any) -> None:
        """Send a notification."""
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    def begin(self, method: str, **params: Any) -> int:
        """Send a request; its id."""
        self._number += 1
        self._send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        return self._number

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The reply to a request."""
        number = self.begin(method, **params)
        return self.until(lambda message: message.get("id") == number and "method" not in message)

    def until(self, found: Any) -> dict[str, Any]:
        """The first message that is looked for; what is asked on the way is allowed."""
        for message in self._messages():
            if "id" in message and "method" in message:
                accept = {"decision": "accept"}
                if message["method"].startswith("session/"):
                    accept = {"outcome": {"outcome": "selected", "optionId": "once"}}  # type: ignore[dict-item]
                self._send({"jsonrpc": "2.0", "id": message["id"], "result": accept})
            if found(message):
                return message
        raise AssertionError(f"it ended: {self.heard}")

    def events(self) -> list[Event]:
        """All that was heard."""
        return printed(map(json.dumps, self.heard))

    def _messages(self) -> Iterator[dict[str, Any]]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.heard.append(json.loads(line))
            yield self.heard[-1]

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()


def method_is(method: str) -> Any:
    """Whether a message is one of these."""
    return lambda message: message.get("method") == method


def codex_thread(client: Client, **params: Any) -> str:
    """The id of a new thread."""
    client.ask("initialize", clientInfo={"name": "test", "title": "t", "version": "0"})
    client.tell("initialized")
    reply = client.ask("thread/start", cwd=str(Path.cwd()), model="gpt-5", **params)
    return str(reply["result"]["thread"]["id"])


def codex_turn(client: Client, thread: str) -> dict[str, Any]:
    """One turn, as its end tells it."""
    client.begin("turn/start", threadId=thread, input=[{"type": "text", "text": "Say hello."}])
    turn: dict[str, Any] = client.until(method_is("turn/completed"))["params"]["turn"]
    return turn


def acp_prompt(client: Client) -> dict[str, Any]:
    """The reply to one prompt in a new session."""
    client.ask("initialize", protocolVersion=1, clientCapabilities={})
    session = client.ask("session/new", cwd=str(Path.cwd()), mcpServers=[])["result"]["sessionId"]
    return client.ask("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "Hi"}])
