"""Fake programs: held to recordings of the real ones, and what may go wrong with them."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Self

import pytest

from handrail.errors import AgentError, WrongUse
from handrail.model.agent_options import AgentOptions
from handrail.model.events import AgentToolCompleted
from handrail.model.results import Usage
from handrail.ports.agent import AgentReply, AgentTurn
from handrail.testing.fake_programs import (
    Dies,
    Fails,
    Garbage,
    Hangs,
    Replays,
    Says,
    Tool,
    fake_cli,
)
from handrail.testing.plugin import fake_cli as fake_cli_of_plugin  # noqa: F401  # by its name
from tests.testing.recorded_shapes import (
    SAMPLES,
    Event,
    invented,
    lacking,
    order,
    printed,
    recording,
)

CLAUDE = ("-p", "--output-format", "stream-json", "--verbose", "--model", "claude-sonnet-4-5")
BYPASS = ("--permission-mode", "bypassPermissions")
CODEX = ("exec", "--json", "--skip-git-repo-check", "-m", "gpt-5", "-")
COPILOT = ("--output-format", "json", "--no-auto-update", "--no-ask-user", "--allow-all")
GEMINI = ("--output-format", "stream-json", "--skip-trust", "--approval-mode", "yolo")
OPENCODE = ("run", "--format", "json", "--thinking", "--auto")
SCHEMA = '{"type": "object", "properties": {"name": {"type": "string"}}}'
ID = "aaaaaaaa-1111-4222-8333-444444444444"
HELLO = "Hello from the stub: naïve ✓ 🙂 done."
RAN = Tool("echo tool-ok", "tool-ok\n")
TWO_STEPS = Says("The command printed tool-ok.", tools=[RAN])

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
        "thread.started": "thread_id",
        "item.completed:agent_message": "item.id item.text",
        "item.completed:reasoning": "item.id item.text",
        "item.completed:command_execution": "item.command item.aggregated_output item.exit_code "
        "item.status",
        "item.completed:file_change": "item.changes.path item.changes.kind item.status",
        "turn.completed": "usage.input_tokens usage.cached_input_tokens usage.output_tokens "
        "usage.reasoning_output_tokens",
        "turn.failed": "error.message",
        "notice/error": "params.error.message params.error.codexErrorInfo params.willRetry",
        "error": "message",
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
    "gemini": {
        "init": "session_id model",
        "message/user": "content",
        "message/assistant": "content delta",
        "tool_use": "tool_name tool_id parameters",
        "tool_result": "tool_id status output",
        "result": "status stats.input_tokens stats.output_tokens stats.cached stats.models",
    },
    "opencode": {
        "step_start": "sessionID part.id part.messageID",
        "text": "part.id part.text",
        "reasoning": "part.id part.text",
        "tool_use": "part.tool part.callID part.state.status part.state.input",
        "step_finish": "part.reason part.tokens.input part.tokens.cache.read part.cost",
        "error": "sessionID error.name error.data.message",
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


LINES = [
    ("claude", "text", Says(HELLO), CLAUDE),
    ("claude", "thinking", Says("The answer is 4.", reasoning="Let me think."), CLAUDE),
    ("claude", "schema_ok", Says(structured={"name": "Ada"}), (*CLAUDE, "--json-schema", SCHEMA)),
    ("claude", "usage_limit_oauth", Fails("usage_cap", resets_at=1795296912), CLAUDE),
    ("claude", "rate_limit_429_2_retries", Fails("rate_limit", retries=2), CLAUDE),
    ("claude", "context_overflow_400", Fails("overflow"), CLAUDE),
    ("claude", "tool_dontask_denied", Says("failed.", tools=[Tool("x", asks=True)]), CLAUDE),
    ("codex", "text", Says(HELLO), CODEX),
    ("codex", "reasoning", Says("The answer is 4.", reasoning="**Thinking**"), CODEX),
    ("codex", "usage_limit_reached", Fails("usage_cap", resets="9:43 PM"), CODEX),
    ("codex", "rate_limit_sse", Fails("rate_limit", retries=2), CODEX),
    ("codex", "patch_via_shell", Says("Patched.", writes={"new.txt": "x"}), CODEX),
    ("copilot", "text_stdin", Says(HELLO), COPILOT),
    ("copilot", "rate_limit_429", Fails("rate_limit", retries=5), COPILOT),
    ("copilot", "auth_401", Fails("auth", retries=2), COPILOT),
    ("gemini", "text", Says(HELLO, model="stub"), GEMINI),
    ("gemini", "context_overflow", Fails("context_overflow"), GEMINI),
    ("gemini", "model_404", Fails("bad_request"), GEMINI),
    ("opencode", "text", Says(HELLO), OPENCODE),
    ("opencode", "thinking", Says("The answer is 4.", reasoning="Let me think."), OPENCODE),
    ("opencode", "rate_limit_429", Fails("rate_limit"), OPENCODE),
    ("opencode", "model_unknown", Fails("bad_request"), OPENCODE),
]
WITHOUT_OPENING_WORDS = [
    ("claude", "tool", TWO_STEPS, (*CLAUDE, *BYPASS), ("assistant/text",)),
    ("codex", "tool", TWO_STEPS, CODEX, ("item.completed:agent_message",)),
    (
        "copilot",
        "tool",
        TWO_STEPS,
        COPILOT,
        ("assistant.message_start", "assistant.message_delta"),
    ),
    (
        "gemini",
        "tool",
        Says("The command printed tool-ok.", tools=[RAN], model="stub"),
        GEMINI,
        ("message/assistant",),
    ),
    ("opencode", "tool", TWO_STEPS, OPENCODE, ("text",)),
]


@pytest.mark.parametrize(("name", "case", "act", "arguments"), LINES, ids=lambda one: str(one)[:24])
def test_what_a_fake_prints_has_the_order_and_the_fields_of_the_recording(
    name: Any, case: str, act: Any, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    """Events come in the recorded order, with the documented fields and none of its own."""
    real = recording(f"{name}/{case}.jsonl")
    with fake_cli(name, [act], path=tmp_path / "fake"):
        fake = printed(launch(name, *arguments, cwd=tmp_path).stdout.splitlines())
    assert order(fake) == order(real)
    assert invented(fake, real) == []
    assert lacking(fake, NEEDED[name]) == []


@pytest.mark.parametrize(("name", "case", "act", "arguments", "opening"), WITHOUT_OPENING_WORDS)
def test_a_tool_call_looks_like_the_recorded_one(
    name: Any, case: str, act: Any, arguments: tuple[str, ...], opening: tuple[str, ...]
) -> None:
    """It has the recorded order, but for the words that the recorded model said before it."""
    real = recording(f"{name}/{case}.jsonl")
    first = next(at for at, event in enumerate(real) if event.kind == opening[0])
    words = [at for at, event in enumerate(real) if event.kind in opening]
    said = {at for at in words if at < first + 5 and at - first <= len(words) // 2}
    expected = [event for at, event in enumerate(real) if at not in said]
    with fake_cli(name, [act]):
        fake = printed(launch(name, *arguments).stdout.splitlines())
    assert order(fake) == order(expected)
    assert invented(fake, real) == []
    assert lacking(fake, NEEDED[name]) == []


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


CONVERSATIONS = [
    ("text", Says(HELLO), "never"),
    ("reasoning", Says("The answer is 4.", reasoning="**Thinking**"), "never"),
    ("usage_limit", Fails("usage_cap", resets_at=1795297715), "never"),
    ("rate_limit_429", Fails("rate_limit"), "never"),
    ("context_overflow", Fails("context_overflow"), "never"),
    ("tool", Says("It printed.", tools=[RAN]), "never"),
    ("approval", Says("It printed.", tools=[Tool("echo x", asks=True)]), "untrusted"),
]


@pytest.mark.parametrize(("case", "act", "policy"), CONVERSATIONS, ids=lambda one: str(one)[:16])
def test_the_app_server_speaks_as_the_recorded_one(case: str, act: Any, policy: str) -> None:
    """A turn has the recorded notifications in their order, and none of its own fields."""
    real = recording(f"codex/appserver_{case}.rpc.jsonl")
    with fake_cli("codex", [act]), Client("codex", "app-server", "--listen", "stdio://") as client:
        codex_turn(client, codex_thread(client, approvalPolicy=policy, sandbox="read-only"))
        fake = client.events()
    expected = order(real)
    if case in {"tool", "approval"}:  # the recorded model said something before its tool call
        said = expected.index("item/started:agentMessage")
        del expected[said : said + 3]
    assert sorted(order(fake)[:4]) == sorted(expected[:4])  # replies and news may cross
    assert order(fake)[4:] == expected[4:]
    assert invented(fake, real) == []
    assert lacking(fake, NEEDED["codex"]) == []


def test_a_turn_of_the_app_server_can_be_interrupted() -> None:
    """While it hangs it hears ``turn/interrupt``, and ends the turn as interrupted."""
    with fake_cli("codex", [Hangs("start")]), Client("codex", "app-server") as client:
        thread = codex_thread(client)
        client.begin("turn/start", threadId=thread, input=[])
        client.until(method_is("turn/started"))
        client.ask("turn/interrupt", threadId=thread, turnId="t")
        ended = client.until(method_is("turn/completed"))
    assert ended["params"]["turn"]["status"] == "interrupted"


def test_a_thread_can_be_compacted_without_using_an_act() -> None:
    """Compaction is a turn of its own with an item of its own; the script does not go on."""
    with fake_cli("codex", ["never asked for"]) as fake, Client("codex", "app-server") as client:
        thread = codex_thread(client)
        client.ask("thread/compact/start", threadId=thread)
        ended = client.until(method_is("turn/completed"))
        assert fake.left == 1
    assert ended["params"]["turn"]["status"] == "completed"
    assert "item/completed:contextCompaction" in order(client.events())


ENDED = "item/completed"
SANDBOXES = [("read-only", "declined"), ("danger-full-access", "completed")]
ACP = [
    ("gemini", ("--acp",), "text", Says(HELLO)),
    ("gemini", ("--acp",), "thinking", Says("The answer is 4.", reasoning="**Considering**")),
    ("gemini", ("--acp",), "context_overflow", Fails("context_overflow")),
    ("opencode", ("acp",), "text", Says(HELLO)),
    ("opencode", ("acp",), "credit_low", Fails("spending_cap")),
    ("copilot", ("--acp",), "text", Says(HELLO)),
    ("copilot", ("--acp",), "rate_limit", Fails("rate_limit")),
]


def acp_prompt(client: Client) -> dict[str, Any]:
    """The reply to one prompt in a new session."""
    client.ask("initialize", protocolVersion=1, clientCapabilities={})
    session = client.ask("session/new", cwd=str(Path.cwd()), mcpServers=[])["result"]["sessionId"]
    return client.ask("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "Hi"}])


@pytest.mark.parametrize(("name", "arguments", "case", "act"), ACP, ids=lambda one: str(one)[:16])
def test_an_agent_speaks_acp_as_the_recorded_one(
    name: Any, arguments: tuple[str, ...], case: str, act: Any
) -> None:
    """A prompt has the recorded updates in order, ends alike, and has no fields of its own."""
    real = recording(f"acp/{name}_{case}.rpc.jsonl")
    with fake_cli(name, [act]), Client(name, *arguments) as client:
        acp_prompt(client)
        fake = client.events()
    assert order(fake) == order(real)
    assert invented(fake, real) == []
    assert fake[-1].kind == real[-1].kind


@pytest.mark.parametrize("name", ["opencode", "copilot", "gemini"])
def test_an_acp_agent_tells_of_its_tools(name: Any) -> None:
    """A tool call, its permission where it asks, and its end come with the recorded fields."""
    real = recording(f"acp/{name}_tool.rpc.jsonl")
    act = Says("It printed.", tools=[Tool("echo tool-ok", "tool-ok\n", asks=name != "gemini")])
    arguments = ("acp",) if name == "opencode" else ("--acp",)
    with fake_cli(name, [act]), Client(name, *arguments) as client:
        assert acp_prompt(client)["result"]["stopReason"] == "end_turn"
        fake = client.events()
    assert {"update/tool_call", "update/tool_call_update"} <= set(order(fake))
    assert ("session/request_permission" in order(fake)) == (name != "gemini")
    assert invented(fake, real) == []


def test_gemini_does_not_ask_in_the_mode_in_which_all_is_allowed() -> None:
    """In its mode ``yolo`` a tool that would be asked for is used."""
    act = Says("It printed.", tools=[Tool("echo tool-ok", "tool-ok\n", asks=True)])
    with fake_cli("gemini", [act, act]), Client("gemini", "--acp") as client:
        client.ask("initialize", protocolVersion=1)
        session = client.ask("session/new", cwd="/", mcpServers=[])["result"]["sessionId"]
        client.ask("session/prompt", sessionId=session, prompt=[])
        assert [*order(client.events())].count("session/request_permission") == 1
        client.ask("session/set_mode", sessionId=session, modeId="yolo")
        client.ask("session/prompt", sessionId=session, prompt=[])
        assert [*order(client.events())].count("session/request_permission") == 1


@pytest.mark.parametrize(("sandbox", "status"), SANDBOXES)
def test_where_codex_may_not_ask_it_declines_what_it_would_ask_for(
    sandbox: str, status: str
) -> None:
    """With the policy ``never`` nobody is asked, and only without a sandbox all is done."""
    act = Says("Well.", tools=[Tool("rm -r build", asks=True)])
    with fake_cli("codex", [act]), Client("codex", "app-server") as client:
        codex_turn(client, codex_thread(client, approvalPolicy="never", sandbox=sandbox))
    items = [one["params"]["item"] for one in client.heard if one.get("method") == ENDED]
    done = [item["status"] for item in items if item["type"] == "commandExecution"]
    assert done == [status]
    assert [one for one in client.heard if "method" in one and "id" in one] == []


def test_a_prompt_of_acp_can_be_cancelled() -> None:
    """While it hangs it hears ``session/cancel``, and answers the prompt as cancelled."""
    with fake_cli("opencode", [Hangs("start")]), Client("opencode", "acp") as client:
        client.ask("initialize", protocolVersion=1)
        session = client.ask("session/new", cwd="/", mcpServers=[])["result"]["sessionId"]
        number = client.begin("session/prompt", sessionId=session, prompt=[])
        client.tell("session/cancel", sessionId=session)
        reply = client.until(lambda message: message.get("id") == number)
    assert reply["result"] == {"stopReason": "cancelled"}


# ── What handrail's own backends make of them ────────────────────────────────────────────────────


BACKENDS = [
    ("claude", "claude.backend.ClaudeBackend"),
    ("codex", "codex.backend.CodexBackend"),
    ("codex", "codex.exec.CodexExecBackend"),
    ("copilot", "copilot.backend.CopilotBackend"),
    ("gemini", "acp.backend.gemini_acp"),
    ("gemini", "gemini.GeminiBackend"),
    ("opencode", "acp.backend.opencode"),
    ("opencode", "opencode.OpencodeBackend"),
]
FAILED: list[Any] = ["rate_limit", "context_overflow", "auth", "transient"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize(("name", "backend"), BACKENDS)
async def test_the_backend_for_a_program_understands_its_fake(
    name: Any, backend: str, tmp_path: Path
) -> None:
    """An answer with tools is one, a resumed session goes on, and failures have their kinds."""
    module, _, make = backend.rpartition(".")
    heard: list[Any] = []
    answer = Says("naïve ✓", tools=[RAN], reasoning="Hm.", split_utf8=True, noise_bytes=999)
    script = [answer, Says("more", writes={"a.txt": "A"}), *map(Fails, FAILED)]
    fake = fake_cli(name, script, path=tmp_path / "fake")
    program = getattr(import_module(f"handrail.agents.{module}"), make)(str(fake.executable))

    run_id = uuid.uuid4().hex  # what is left of a turn is ended by it

    async def ask(session: str | None = None) -> AgentReply:
        options = AgentOptions(cwd=str(tmp_path), permission="full")
        turn = AgentTurn("a", "Hi.", run_id, "s", session=session, options=options)
        reply: AgentReply = await program.complete(replace(turn, emit=heard.append))
        return reply

    first = await ask()
    assert first.text == "naïve ✓"
    done = [notice for notice in heard if isinstance(notice, AgentToolCompleted)]
    assert [(one.ok, one.output.strip()[:7]) for one in done] == [(True, "tool-ok")]
    second = await ask(first.session)
    assert (second.text, second.session) == ("more", first.session)
    assert (tmp_path / "a.txt").read_text() == "A"
    for kind in FAILED:
        with pytest.raises(AgentError) as caught:
            await ask()
        assert caught.value.kind == kind
    assert fake.left == 0


async def test_a_script_that_is_used_up_is_a_wrong_configuration(anyio_backend: str) -> None:
    """A conversation without a script ends at once, and the backend says what the fake said."""
    fake = fake_cli("codex", [])
    program = import_module("handrail.agents.codex.backend").CodexBackend(str(fake.executable))
    with pytest.raises(AgentError, match="its script of 0 is used up") as caught:
        await program.complete(AgentTurn("a", "Hi.", uuid.uuid4().hex, "s"))
    assert caught.value.kind == "config"


# ── Sessions ─────────────────────────────────────────────────────────────────────────────────────


def last(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The last event that was printed."""
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_claude_counts_cost_by_session_and_tokens_by_turn() -> None:
    """As recorded, a resumed session's cost is the sum, and its usage that of the turn alone."""
    first, second = (recording(f"claude/{one}.jsonl")[-1].data for one in RESUMED)
    with fake_cli("claude", ["one", "two"]):
        begun = last(launch("claude", *CLAUDE, f"--session-id={ID}"))
        resumed = last(launch("claude", *CLAUDE, f"--resume={ID}"))
    for fake, real in ((begun, first), (resumed, second)):
        assert fake["session_id"] == real["session_id"] == ID
        assert fake["total_cost_usd"] == pytest.approx(real["total_cost_usd"])
        assert fake["usage"]["input_tokens"] == real["usage"]["input_tokens"]
        model = real["modelUsage"]["claude-sonnet-4-5"]
        assert fake["modelUsage"]["claude-sonnet-4-5"]["inputTokens"] == model["inputTokens"]


RESUMED = ("resume_1_first", "resume_2_same_cwd")


def test_codex_counts_tokens_by_thread() -> None:
    """As recorded, a resumed thread keeps its id and its usage is the sum."""
    first, second = (recording(f"codex/{one}.jsonl")[-1].data for one in ("resume_1", "resume_2"))
    act = Says("x", usage=Usage(1200, 25, cached_tokens=400, reasoning_tokens=10))
    with fake_cli("codex", [act, act]):
        begun = launch("codex", *CODEX)
        thread = json.loads(begun.stdout.splitlines()[0])["thread_id"]
        resumed = launch("codex", "exec", "-C", ".", "resume", "--json", thread, "-")
    assert json.loads(resumed.stdout.splitlines()[0])["thread_id"] == thread
    assert last(begun) == first
    assert last(resumed) == second


def test_an_unknown_session_is_refused_as_by_the_real_program() -> None:
    """Claude says so in its result, codex on stderr; neither takes an act."""
    with fake_cli("claude", ["x"]) as claude, fake_cli("codex", ["x"]) as codex:
        refused = launch("claude", *CLAUDE, "--resume=11111111-2222-3333-4444-555555555555")
        (real,) = recording("claude/bad_resume.jsonl")
        assert last(refused)["errors"] == real.data["errors"]
        assert last(refused)["subtype"] == real.data["subtype"]
        assert refused.returncode == 1
        gone = launch("codex", "exec", "resume", "--json", "no-such", "-")
        assert (gone.returncode, gone.stdout) == (1, "")
        assert "no rollout found for thread id no-such" in gone.stderr
        assert (claude.left, codex.left) == (1, 1)


@pytest.mark.parametrize(
    ("name", "case", "arguments"),
    [
        ("gemini", "bad_resume", (*GEMINI, "--resume=no-such")),
        ("opencode", "resume_3_bad", (*OPENCODE, "-s", "no-such")),
    ],
)
def test_an_unknown_session_is_refused_in_the_recorded_words(
    name: Any, case: str, arguments: tuple[str, ...]
) -> None:
    """They come on stderr with the recorded exit code, and no act is taken."""
    real = json.loads((SAMPLES / name / "endings.json").read_text())[case]
    with fake_cli(name, ["x"]) as fake:
        done = launch(name, *arguments)
        assert fake.left == 1
    assert (done.returncode, done.stdout, done.stderr) == (real["exit_code"], "", real["stderr"])


def test_a_fork_goes_on_from_the_tokens_of_its_thread() -> None:
    """It has an id of its own; its usage is the sum, and that of the old thread does not grow."""
    act = Says("x", usage=Usage(1200, 25))
    with fake_cli("codex", [act] * 4) as fake:
        old = json.loads(launch("codex", *CODEX).stdout.splitlines()[0])["thread_id"]
        forked = launch("codex", "exec", "fork", "--json", old, "-")
        resumed = launch("codex", "exec", "resume", "--json", old, "-")
        with Client("codex", "app-server") as client:
            client.ask("initialize", clientInfo={"name": "test", "title": "t", "version": "0"})
            thread = client.ask("thread/fork", threadId=old)["result"]["thread"]
            codex_turn(client, thread["id"])
            updates = [one for one in client.heard if one.get("method") == COUNTED]
        assert fake.left == 0
    assert json.loads(forked.stdout.splitlines()[0])["thread_id"] != old
    assert last(forked)["usage"]["input_tokens"] == 2400
    assert last(resumed)["usage"]["input_tokens"] == 2400
    assert (thread["id"] != old, thread["forkedFromId"]) == (True, old)
    usage = updates[-1]["params"]["tokenUsage"]
    assert [usage[one]["inputTokens"] for one in ("total", "last")] == [3600, 1200]


COUNTED = "thread/tokenUsage/updated"


def test_an_acp_agent_forks_if_it_says_that_it_can() -> None:
    """It opens a copy under an id of its own; one that cannot knows no such method."""
    with fake_cli("opencode", ["one"]).knows("ses_old"), Client("opencode", "acp") as client:
        fork = {"cwd": "/", "mcpServers": [], "sessionId": "ses_old"}
        client.ask("initialize", protocolVersion=1)
        session = client.ask("session/fork", **fork)["result"]["sessionId"]
        assert session != "ses_old"
        reply = client.ask("session/prompt", sessionId=session, prompt=[])
        assert reply["result"]["stopReason"] == "end_turn"
        assert "error" in client.ask("session/fork", **{**fork, "sessionId": "ses_none"})
    with fake_cli("gemini", ["one"]).knows("old"), Client("gemini", "--acp") as client:
        assert client.ask("session/fork", sessionId="old")["error"]["code"] == -32601


def test_a_session_of_an_earlier_day_can_be_made_known() -> None:
    """A session that the test says is known can be resumed; its own id is not given twice."""
    with fake_cli("claude", ["on we go"]) as claude:
        claude.knows(ID)
        assert last(launch("claude", *CLAUDE, f"--resume={ID}"))["result"] == "on we go"
        again = launch("claude", *CLAUDE, f"--session-id={ID}")
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr == f"Error: Session ID {ID} is already in use.\n"


def test_claude_compacts_a_session_without_using_an_act() -> None:
    """The prompt ``/compact`` gives the recorded events, and the script does not go on."""
    real = recording("claude/resume_6_compact.jsonl")
    with fake_cli("claude", ["never"]) as claude:
        claude.knows(ID)
        done = launch("claude", *CLAUDE, f"--resume={ID}", stdin="/compact")
        assert claude.left == 1
    fake = printed(done.stdout.splitlines())
    assert order(fake) == order(real)
    assert lacking(fake, NEEDED["claude"]) == []


# ── What the caller is told ──────────────────────────────────────────────────────────────────────


def test_a_script_that_is_used_up_says_so(tmp_path: Path) -> None:
    """One prompt more than the script has fails like a wrong configuration: on stderr alone."""
    with fake_cli("claude", ["only one"], path=tmp_path):
        assert launch("claude", *CLAUDE).returncode == 0
        more = launch("claude", *CLAUDE)
    assert (more.returncode, more.stdout) == (1, "")
    assert "fake claude: its script of 1 is used up" in more.stderr


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("claude", (*CLAUDE, "--no-such-flag"), 1),
        ("codex", ("exec", "--no-such-flag"), 2),
        ("gemini", (*GEMINI, "--no-such-flag"), 1),
        ("opencode", (*OPENCODE, "--no-such-flag"), 1),
    ],
)
def test_an_option_that_the_program_does_not_have_is_refused(
    name: Any, arguments: tuple[str, ...], code: int
) -> None:
    """It is named on stderr, with the program's own exit code, and no act is taken."""
    with fake_cli(name, ["x"]) as fake:
        done = launch(name, *arguments)
        assert fake.left == 1
    assert (done.returncode, done.stdout) == (code, "")
    assert "no-such-flag" in done.stderr


def test_a_call_is_recorded_with_what_it_was_given(tmp_path: Path) -> None:
    """Arguments, prompt, folder, added variables, times and exit code are there; no secrets."""
    with fake_cli("claude", ["x"], path=tmp_path / "fake") as fake:
        env = {**os.environ, "ANTHROPIC_API_KEY": "sk-secret", "CLAUDE_CODE_MAX_RETRIES": "2"}
        launch("claude", *CLAUDE, stdin="What is it?", cwd=tmp_path, env=env)
        assert launch("claude", "--version").stdout == "2.1.330 (Claude Code)\n"
    (call,) = fake.calls
    assert call.argv == ("claude", *CLAUDE)
    assert (call.stdin, call.cwd) == ("What is it?", str(tmp_path))
    assert (call.exit_code, call.acts) == (0, (0,))
    assert call.env["CLAUDE_CODE_MAX_RETRIES"] == "2"
    assert call.env["ANTHROPIC_API_KEY"] == "***"
    assert call.ended is not None
    assert call.started <= call.ended
    (probe,) = fake.probes
    assert probe.argv == ("claude", "--version")


def test_path_is_as_it_was_when_the_fake_is_gone() -> None:
    """PATH finds the fake inside the block and not after it; the fake itself can be run still."""
    before = os.environ["PATH"]
    with fake_cli("claude", ["x"]) as fake:
        assert os.environ["PATH"] == f"{fake.executable.parent}{os.pathsep}{before}"
    assert os.environ["PATH"] == before
    assert launch(str(fake.executable), *CLAUDE).returncode == 0


def test_path_is_as_it_was_whichever_of_two_fakes_goes_first() -> None:
    """The end of a block takes its own program off PATH and no other."""
    before = os.environ["PATH"]
    first, second = fake_cli("claude", ["x"]).__enter__(), fake_cli("codex", ["y"]).__enter__()
    first.__exit__()
    assert os.environ["PATH"] == f"{second.executable.parent}{os.pathsep}{before}"
    second.__exit__()
    assert os.environ["PATH"] == before


def test_fakes_of_one_path_know_nothing_of_one_another(tmp_path: Path) -> None:
    """Two programs, and two of one name: each has its own script and calls, and of the latter PATH
    finds the one that was entered last.
    """
    with (
        fake_cli("claude", ["first"], path=tmp_path) as first,
        fake_cli("codex", ["other"], path=tmp_path) as other,
        fake_cli("claude", ["second", "third"], path=tmp_path) as second,
    ):
        said = [last(launch("claude", *CLAUDE))["result"]]
        assert (first.left, other.left, second.left) == (1, 1, 1)
        assert "other" in launch("codex", *CODEX).stdout
        said.append(last(launch(str(first.executable), *CLAUDE))["result"])
    assert said == ["second", "first"]
    assert [len(fake.calls) for fake in (first, other, second)] == [1, 1, 1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["claude", "claude-2", "codex"]


def test_prompts_at_the_same_time_take_one_act_each() -> None:
    """Ten launches at once say the ten texts of the script, each once."""
    texts = [f"answer {number}" for number in range(10)]
    with fake_cli("claude", texts) as fake, ThreadPoolExecutor(10) as pool:
        said = pool.map(lambda _: last(launch("claude", *CLAUDE))["result"], texts)
        assert sorted(said) == sorted(texts)
        assert sorted(act for call in fake.calls for act in call.acts) == list(range(10))


@pytest.mark.parametrize("script", ["one text", [lambda prompt: prompt], [Says, "x"]])
def test_a_script_is_plain_data(script: Any) -> None:
    """A function, a class or a lone text is refused with what a script may have."""
    with pytest.raises(WrongUse, match=r"Says, Fails, Hangs|takes a list of acts"):
        fake_cli("claude", script)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Fails("tired"),  # type: ignore[arg-type]
        lambda: Hangs("never"),  # type: ignore[arg-type]
        lambda: Says(structured={"at": object()}),
        lambda: Says(tools="echo"),
        lambda: Replays("no/such.jsonl"),
        lambda: fake_cli("cluade", []),  # type: ignore[arg-type]
        lambda: fake_cli("codex", [Fails("max_turns")]),
    ],
)
def test_an_act_that_cannot_be_is_refused_when_it_is_written(make: Any) -> None:
    """The error comes in the test that wrote it, not from another process."""
    with pytest.raises(WrongUse):
        make()


def test_a_failure_that_one_protocol_of_two_has_no_words_for_is_told_when_it_is_reached() -> None:
    """Gemini can refuse by ACP alone; called otherwise it says so, and prints nothing else."""
    with fake_cli("gemini", [Fails("refusal")]):
        done = launch("gemini", *GEMINI)
    assert (done.returncode, done.stdout) == (1, "")
    assert "no words for 'refusal'" in done.stderr


# ── What may go wrong ────────────────────────────────────────────────────────────────────────────


def test_a_line_can_be_written_in_two_parts_inside_a_character() -> None:
    """What is written at once cannot be decoded by itself; together it is the text."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # keeps writes apart
    with ours, fake_cli("codex", [Says("naïve", split_utf8=True)]) as fake:
        with its:
            subprocess.run([fake.executable, *CODEX], input=b"x", stdout=its, check=True)
        parts = list(iter(lambda: ours.recv(65536), b""))
    with pytest.raises(UnicodeDecodeError):
        [part.decode() for part in parts]
    assert "naïve" in b"".join(parts).decode()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("claude", (*CLAUDE, *BYPASS)),
        ("codex", CODEX),
        ("copilot", COPILOT),
        ("gemini", GEMINI),
        ("opencode", OPENCODE),
    ],
)
def test_writes_change_the_folder_and_are_told(
    name: Any, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    """A file of ``writes`` is there afterwards, one with None is not, and the stream names both."""
    (tmp_path / "old.txt").write_text("old")
    act = Says("Done.", writes={"src/new.txt": "naïve", "old.txt": None})
    with fake_cli(name, [act], path=tmp_path / "fake"):
        done = launch(name, *arguments, cwd=tmp_path)
    assert (tmp_path / "src" / "new.txt").read_text() == "naïve"
    assert not (tmp_path / "old.txt").exists()
    assert str(tmp_path / "src" / "new.txt") in done.stdout
    assert str(tmp_path / "old.txt") in done.stdout


@pytest.mark.parametrize(
    ("act", "code"),
    [
        (Dies("start", exit_code=7), 7),
        (Dies("launch", exit_code=3), 3),
        (Dies("tool", signal=signal.SIGKILL), -signal.SIGKILL),
        (Dies("result", exit_code=1), 1),
        (Garbage(exit_code=0), 0),
    ],
    ids=["start", "launch", "tool", "result", "garbage"],
)
def test_a_program_that_dies_ends_where_it_is_told(act: Any, code: int) -> None:
    """It has the exit code or signal that the act says, and no result before the moment for it."""
    with fake_cli("claude", [act]):
        done = subprocess.run(
            ["claude", *CLAUDE], input=b"x", capture_output=True, timeout=30, check=False
        )
    assert done.returncode == code
    is_after_result = isinstance(act, Dies) and act.after == "result"
    assert (b'"type":"result"' in done.stdout) == is_after_result


SIGNALS = [
    ("claude", "start", signal.SIGINT, 0, "user"),
    ("claude", "tool", signal.SIGINT, 0, "result"),
    ("claude", "start", signal.SIGTERM, 143, "system"),
    ("codex", "start", signal.SIGINT, 1, "turn.started"),
    ("codex", "tool", signal.SIGTERM, -signal.SIGTERM, "item.started"),
    ("copilot", "start", signal.SIGTERM, 0, "result"),
    ("gemini", "start", signal.SIGINT, -signal.SIGINT, "message"),
    ("gemini", "tool", signal.SIGTERM, 0, "tool_use"),
    ("opencode", "start", signal.SIGTERM, -signal.SIGTERM, "step_start"),
]
ARGUMENTS = {
    "claude": CLAUDE,
    "codex": CODEX,
    "copilot": COPILOT,
    "gemini": GEMINI,
    "opencode": OPENCODE,
}
LINES_AT_START = {"claude": 1, "codex": 3, "copilot": 4, "gemini": 2, "opencode": 1}


@pytest.mark.parametrize(("name", "after", "number", "code", "final"), SIGNALS)
def test_a_signal_ends_each_program_as_was_measured(
    name: Any, after: Any, number: int, code: int, final: str
) -> None:
    """Exit code and last event are those of the real program."""
    with fake_cli(name, [Hangs(after)]) as fake:
        process = begun(name, *ARGUMENTS[name])
        until_it_hangs(process, LINES_AT_START[name] + (after == "tool"))
        process.send_signal(number)
        rest, _ = process.communicate(timeout=10)
        assert process.returncode == code
        assert fake.calls[0].exit_code == code
    lines = [*process.heard, *rest.splitlines()]
    assert json.loads(lines[-1])["type"] == final


class Begun(subprocess.Popen[str]):
    """A process of which some lines were read."""

    heard: list[str]


def begun(name: str, *arguments: str) -> Begun:
    """The program, with its prompt."""
    process = Begun(
        [name, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    process.heard = []
    assert process.stdin is not None
    process.stdin.write("Say hello.")
    process.stdin.close()
    process.stdin = None
    return process


def until_it_hangs(process: Begun, lines: int) -> None:
    """Read so many lines."""
    assert process.stdout is not None
    process.heard += [process.stdout.readline() for _ in range(lines)]


def test_a_program_can_ignore_both_polite_signals() -> None:
    """Only SIGKILL ends it; nobody wrote how it ended."""
    act = Hangs("start", ignores_sigint=True, ignores_sigterm=True)
    with fake_cli("claude", [act]) as fake:
        process = begun("claude", *CLAUDE)
        until_it_hangs(process, 1)
        process.send_signal(signal.SIGINT)
        process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.1)
        process.kill()
        process.communicate()
        assert (fake.calls[0].ended, fake.calls[0].exit_code) == (None, None)


def lives(pid: int) -> bool:
    """False for a process that is gone, or a zombie that nobody has waited for yet."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return False


def test_a_child_is_left_in_a_session_of_its_own() -> None:
    """It lives on with the program's environment, and ``end_children`` ends it."""
    with fake_cli("claude", [Says("x", leaves_child=True)]) as fake:
        launch("claude", *CLAUDE, env={**os.environ, "HANDRAIL_STEP": "mark"})
        (child,) = fake.calls[0].children
        assert os.getsid(child) == child
        if Path("/proc/self/environ").exists():
            assert b"HANDRAIL_STEP=mark" in Path(f"/proc/{child}/environ").read_bytes()
        fake.end_children()
        until = time.monotonic() + 10
        while lives(child):
            assert time.monotonic() < until


def test_stdout_can_be_held_open_after_the_end() -> None:
    """The program has exited, and its stdout ends only later."""
    with fake_cli("claude", [Says("x", holds_stdout_s=30)]) as fake:
        process = begun("claude", *CLAUDE)
        until_it_hangs(process, 3)
        assert process.wait(10) == 0
        assert process.stdout is not None
        assert select.select((process.stdout,), (), (), 0)[0] == []  # not at its end
        os.kill(fake.calls[0].children[0], 0)  # raises if it is not there
        fake.end_children()
        process.stdout.close()


def test_noise_and_stderr_come_besides_the_answer() -> None:
    """An unknown event as long as it should be, and the text on stderr; the answer is as ever."""
    with fake_cli("claude", [Says("x", noise_bytes=300_000, stderr="quota? network?\n")]):
        done = launch("claude", *CLAUDE)
    assert done.stderr == "quota? network?\n"
    assert max(len(line.encode()) for line in done.stdout.splitlines()) > 300_000
    assert last(done)["result"] == "x"


def test_a_recording_is_printed_again_with_its_exit_code(tmp_path: Path) -> None:
    """Its lines come byte by byte as they were, and the code is that of the file beside it."""
    sample = SAMPLES / "claude" / "usage_limit_oauth.jsonl"
    copy = tmp_path / "cap.jsonl"
    copy.write_bytes(sample.read_bytes())
    (tmp_path / "cap.meta.json").write_text('{"exit_code": 1, "line_times_s": [0.0, 0.01]}')
    (tmp_path / "cap.stderr").write_text("as it was\n")
    with fake_cli("claude", [Replays(copy, speed=10), Replays(sample, exit_code=5)]):
        done = launch("claude", "-p", "--whatever")
        assert launch("claude").returncode == 5
    assert done.stdout == sample.read_text()
    assert (done.returncode, done.stderr) == (1, "as it was\n")


def test_a_recorded_conversation_is_held_again() -> None:
    """Whatever ids the client uses, the recorded replies answer its own requests."""
    with (
        fake_cli("codex", [Replays(SAMPLES / "codex" / "appserver_text.rpc.jsonl")]),
        Client("codex", "app-server") as client,
    ):
        client._number = 40
        turn = codex_turn(client, codex_thread(client))
    assert turn["status"] == "completed"
    assert turn["items"][0]["text"] == HELLO


@pytest.fixture
def path_stays() -> Iterator[None]:
    """PATH is the same after the test, with all that the test asked for gone."""
    before = os.environ["PATH"]
    yield
    assert os.environ["PATH"] == before


@pytest.mark.usefixtures("path_stays")
def test_the_fixture_puts_programs_on_path_until_the_test_ends(request: Any) -> None:
    """``fake_cli`` of the plugin needs no ``with``."""
    installed = request.getfixturevalue("fake_cli_of_plugin")
    claude, codex = installed("claude", ["hi"]), installed("codex", [])
    assert shutil.which("claude") == str(claude.executable)
    assert shutil.which("codex") == str(codex.executable)
    assert launch("claude", "-p").stdout == "hi\n"
    assert len(claude.calls) == 1


def test_it_starts_in_a_few_hundredths_of_a_second() -> None:
    """From its first own line to its end a launch takes less than a quarter of a second."""
    with fake_cli("claude", ["x"] * 5) as fake:
        for _ in range(5):
            launch("claude", *CLAUDE)
        assert min((call.ended or 1e9) - call.started for call in fake.calls) < 0.25
