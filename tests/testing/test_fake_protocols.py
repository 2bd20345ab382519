"""Fake programs speak as the recordings of the real ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from handrail.testing.fake_programs import (
    Fails,
    Hangs,
    Says,
    Tool,
    fake_cli,
)
from tests.testing.fake_launches import (
    BYPASS,
    CLAUDE,
    COPILOT,
    HELLO,
    NEEDED,
    RAN,
    Client,
    acp_prompt,
    codex_thread,
    codex_turn,
    launch,
    method_is,
)
from tests.testing.recorded_shapes import (
    invented,
    lacking,
    order,
    printed,
    recording,
)

SCHEMA = '{"type": "object", "properties": {"name": {"type": "string"}}}'


TWO_STEPS = Says("The command printed tool-ok.", tools=[RAN])


LINES = [
    ("claude", "text", Says(HELLO), CLAUDE),
    ("claude", "thinking", Says("The answer is 4.", reasoning="Let me think."), CLAUDE),
    ("claude", "schema_ok", Says(structured={"name": "Ada"}), (*CLAUDE, "--json-schema", SCHEMA)),
    ("claude", "usage_limit_oauth", Fails("usage_cap", resets_at=1795296912), CLAUDE),
    ("claude", "rate_limit_429_2_retries", Fails("rate_limit", retries=2), CLAUDE),
    ("claude", "context_overflow_400", Fails("overflow"), CLAUDE),
    ("claude", "tool_dontask_denied", Says("failed.", tools=[Tool("x", asks=True)]), CLAUDE),
    ("copilot", "text_stdin", Says(HELLO), COPILOT),
    ("copilot", "rate_limit_429", Fails("rate_limit", retries=5), COPILOT),
    ("copilot", "auth_401", Fails("auth", retries=2), COPILOT),
]


WITHOUT_OPENING_WORDS = [
    ("claude", "tool", TWO_STEPS, (*CLAUDE, *BYPASS), ("assistant/text",)),
    (
        "copilot",
        "tool",
        TWO_STEPS,
        COPILOT,
        ("assistant.message_start", "assistant.message_delta"),
    ),
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
