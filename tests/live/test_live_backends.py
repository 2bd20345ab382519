"""Real programs, with stubs in the place of their models: the backends understand them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import anyio
import pytest

from handrail.errors import AgentError
from handrail.model.events import (
    AgentFinished,
    AgentLimit,
    AgentMessage,
    AgentReasoning,
    AgentSessionStarted,
    AgentToolCompleted,
    AgentToolStarted,
    AgentUsage,
)
from handrail.ports.agent import capabilities_of
from tests.leftovers import carriers_of, lasting_carriers_of
from tests.live.conftest import Session
from tests.live.stub_server import Silent, Text, ToolCall

pytestmark = pytest.mark.live_cli

both_loops = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"], scope="session")
by_its_events = pytest.mark.live_on("claude", "codex", "copilot")

Open = Callable[..., Session]
HELLO = "Hello from the stub: naïve ✓ 🙂 done."
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
WAITS = "python3 -c 'import time; time.sleep(300)' & sleep 300"
INPUT_TOKENS = {"claude": 1900, "codex": 1200, "copilot": 1900, "gemini": 1200,
                "opencode": 1900, "qwen": 1200, "claude-acp": 1900, "codex-acp": 1200}  # fmt: skip


async def test_a_text_is_the_answer(open_session: Open) -> None:
    """Text, session and tokens are the model's; the notices begin and end as they should."""
    session = open_session(Text(HELLO))
    reply = await session.reply()
    assert reply.text == HELLO
    assert reply.session
    assert "".join(notice.text for notice in session.of(AgentMessage)) == HELLO
    (started,) = session.of(AgentSessionStarted)
    assert started.session == reply.session
    assert reply.usage is not None
    assert reply.usage.input_tokens == INPUT_TOKENS[session.live.name]
    assert reply.usage.output_tokens == 25
    assert reply.usage.cached_tokens in {400, None}
    assert session.of(AgentUsage) != []
    assert [notice.status for notice in session.of(AgentFinished)] == ["completed"]
    assert session.notices[-1] == session.of(AgentFinished)[0]
    assert lasting_carriers_of(session.marker) == []


async def test_a_prompt_reaches_the_model_as_it_is(open_session: Open) -> None:
    """Dashes, quotes, line ends and other alphabets come through."""
    prompt = '--help "is" $no option\n\nénd 日本'
    session = open_session(Text("ok"))
    await session.reply(prompt)
    assert json.dumps(prompt)[1:-1] in json.dumps(session.stub.requests[0].body)


@pytest.mark.live_on("claude", "codex")
async def test_a_thought_is_told(open_session: Open) -> None:
    """It is a notice of its own, and no part of the answer."""
    session = open_session(Text("The answer is 4.", thought="Let me think about it."))
    assert (await session.reply()).text == "The answer is 4."
    thoughts = "".join(notice.text for notice in session.of(AgentReasoning))
    assert "Let me think about it." in thoughts


async def test_a_tool_is_told_when_it_begins_and_when_it_ends(
    open_session: Open, live: Any
) -> None:
    """The command that the model chose was run, and its output is in the notice."""
    session = open_session(live.tool("echo tool-ok"), Text("It printed."), permission="full")
    reply = await session.reply()
    assert reply.text == "It printed."
    (begun,), (done,) = session.of(AgentToolStarted), session.of(AgentToolCompleted)
    assert begun.id == done.id
    assert done.ok
    if live.name != "gemini":  # it tells no output of a command that went well
        assert "tool-ok" in done.output
    assert session.notices.index(begun) < session.notices.index(done)


async def test_a_session_goes_on_and_its_usage_is_that_of_the_turn(open_session: Open) -> None:
    """The second turn has the same id, knows the first, and costs no more than the first."""
    session = open_session(Text("one"), Text("two"))
    first = await session.reply("The word is heron.")
    if first.version == "0.15.10":
        pytest.skip("this qwen, for node 20, says that it resumes sessions, and refuses to")
    second = await session.reply(
        "Which word?", session=first.session, session_usage=first.session_usage
    )
    assert second.text == "two"
    assert second.session == first.session
    assert "heron" in json.dumps(session.stub.requests[-1].body)
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.input_tokens == first.usage.input_tokens
    if session.live.name != "claude-acp":  # those for node 20 tell dollars of their process
        assert second.usage.cost_usd == pytest.approx(first.usage.cost_usd)


async def test_a_fork_knows_the_session_and_costs_what_its_turn_does(open_session: Open) -> None:
    """It has an id of its own, and its usage is not the difference to what it began from."""
    session = open_session(Text("one"), Text("two"))
    if not capabilities_of(session.backend).fork:
        pytest.skip("it forks no session")
    first = await session.reply("The word is heron.")
    second = await session.reply(
        "Which word?", session=first.session, session_usage=first.session_usage, fork=True
    )
    assert second.text == "two"
    assert second.session not in (None, first.session)
    assert "heron" in json.dumps(session.stub.requests[-1].body)
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.input_tokens == first.usage.input_tokens
    assert second.usage.output_tokens == first.usage.output_tokens


REFUSALS = [
    ("RATE_LIMITED", "rate_limit"),
    ("TOO_LONG", "context_overflow"),
    ("BAD_KEY", "auth"),
    ("NO_CREDIT", "spending_cap"),
    ("BROKEN", "transient"),
]


@by_its_events
@pytest.mark.parametrize(("refusal", "kind"), REFUSALS)
async def test_a_refusal_of_the_api_is_known_for_what_it_is(
    open_session: Open, refusal: str, kind: str, live: Any
) -> None:
    """Whatever the program makes of it, the error has the kind that decides what is done next."""
    session = open_session(getattr(live.api, refusal))
    error = await session.failure()
    assert error.kind == kind
    (finished,) = session.of(AgentFinished)
    assert (finished.status, finished.kind) == ("failed", kind)


@pytest.mark.live_on("opencode", "gemini")
@pytest.mark.parametrize("level", ["read_only", "workspace"])
async def test_a_level_below_full_runs_no_command(
    open_session: Open, live: Any, level: str
) -> None:
    """Also of a program that would run it without a question."""
    session = open_session(live.tool("touch ran"), Text("I did not."), permission=level)
    await session.reply()
    assert [one.ok for one in session.of(AgentToolCompleted)] == [False]
    assert not list(session.home.rglob("ran"))


@pytest.mark.live_on("claude", "codex")
async def test_a_used_up_plan_says_when_it_opens_again(open_session: Open, live: Any) -> None:
    """The cap is known as one, with the time that the API gave, as exactly as it is told."""
    resets = time.time() + 3600
    login = {"CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-dummy", "ANTHROPIC_API_KEY": ""}
    session = open_session(live.api.capped(), env=login if live.name == "claude" else {})
    error = await session.failure()
    assert error.kind == "usage_cap"
    assert error.retry_at == pytest.approx(resets, abs=90)  # texts tell the minute
    reached = [limit for limit in session.of(AgentLimit) if limit.status == "reached"]
    assert reached[-1].reset_at == pytest.approx(resets, abs=10)


@pytest.mark.live_on("claude", "codex")
async def test_an_answer_fits_its_schema(open_session: Open, live: Any) -> None:
    """The value is the model's, through the program's own means for that."""
    value = {"name": "Ada", "age": 36}
    native = ToolCall("StructuredOutput", value) if live.name == "claude" else None
    session = open_session(native or Text(json.dumps(value)))
    reply = await session.reply(schema=SCHEMA)
    assert (reply.value if reply.has_value else json.loads(reply.text)) == value
    assert '"age"' in json.dumps(session.stub.requests[0].body)


@both_loops
async def test_a_silent_model_is_given_up(open_session: Open) -> None:
    """After the idle time the turn ends as a timeout, and nothing of the program is left."""
    session = open_session(Silent(), idle_timeout_s=2.0)
    began = time.monotonic()
    error = await session.failure()
    assert error.kind == "timeout"
    assert time.monotonic() - began < 30
    assert lasting_carriers_of(session.marker) == []


@both_loops
async def test_a_tool_that_hangs_is_ended_with_all_that_it_started(
    open_session: Open, live: Any
) -> None:
    """Its shell is in a session of its own and has a child in the background: both go."""
    session = open_session(
        live.tool(WAITS), Text("never"), permission="full", idle_timeout_s=20.0, tool_timeout_s=2.0
    )
    error = await session.failure()
    assert error.kind == "timeout"
    assert lasting_carriers_of(session.marker) == []


@both_loops
async def test_a_cancelled_turn_leaves_nothing(open_session: Open, live: Any) -> None:
    """Cancelled while a tool is at work, the turn says that it was interrupted, and all is gone."""
    session = open_session(live.tool(WAITS), Text("never"), permission="full")
    at_work = anyio.Event()

    def heard(notice: Any) -> None:
        session.notices.append(notice)
        if isinstance(notice, AgentToolStarted):
            at_work.set()

    turn = replace(session.turn(), emit=heard)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.backend.complete, turn)
            await at_work.wait()
            assert carriers_of(session.marker) != []
            tasks.cancel_scope.cancel()
    assert session.notices[-1] == session.of(AgentFinished)[-1]
    assert session.of(AgentFinished)[-1].status == "interrupted"
    assert lasting_carriers_of(session.marker) == []


@pytest.mark.live_on("claude", "codex", "copilot", "gemini", "opencode", "qwen")
async def test_the_program_is_found_and_asked_no_model(open_session: Open) -> None:
    """A probe says which version it is, and makes no call."""
    session = open_session(Text("never"))
    probe = await session.backend.probe()  # type: ignore[attr-defined]
    assert probe.found
    assert probe.version
    assert session.stub.requests == []


async def test_an_unknown_session_is_no_answer(open_session: Open) -> None:
    """A session that the program does not have is an error, and no call of the model."""
    session = open_session(Text("never"))
    error = await session.failure(session="11111111-2222-4333-8444-555555555555")
    assert error.kind not in {"rate_limit", "usage_cap", "auth", "context_overflow"}
    assert session.stub.requests == []


BEHIND = {"command": "sleep 7; echo behind", "description": "x", "run_in_background": True}
"""A command that claude leaves in the background, for longer than it may take to exit."""
ENDS = [(Text("All done."), None), ("BROKEN", "transient"), ("RATE_LIMITED", "rate_limit"),
        (Silent(), "timeout")]  # fmt: skip


@pytest.mark.live_on("claude")
@pytest.mark.parametrize(("end", "kind"), ENDS)
async def test_a_turn_ends_with_its_work_in_the_background(
    open_session: Open, live: Any, end: Any, kind: str | None
) -> None:
    """The words before its end are no answer, whatever becomes of the turn that follows it. A
    claude that breaks such work off itself has given none.
    """
    last = getattr(live.api, end) if isinstance(end, str) else end
    answers = (ToolCall("Bash", BEHIND, "I begin."), Text("I wait for it."), last)
    session = open_session(*answers, permission="full", idle_timeout_s=3.0)
    try:
        said = (await session.reply()).text
    except AgentError as error:
        said = error.kind or ""
    went_on = len(session.stub.requests) > 2
    assert said == ((kind or "All done.") if went_on else "crashed")


@pytest.mark.live_on("claude")
@pytest.mark.parametrize(("end", "kind"), [*ENDS[:2], ENDS[3]])
async def test_word_of_work_that_died_is_no_answer_of_a_resumed_session(
    open_session: Open, live: Any, end: Any, kind: str | None
) -> None:
    """Claude tells of it before it turns to the prompt, as a result without a turn."""
    last = getattr(live.api, end) if isinstance(end, str) else end
    server = ToolCall("Bash", {**BEHIND, "command": "sleep 300"}, "I begin.")
    session = open_session(
        server, Text("It runs."), last, permission="full", tool_timeout_s=2.0, idle_timeout_s=3.0
    )
    first = await session.failure()  # a server never ends by itself
    assert first.session is not None
    try:
        said = (await session.reply(session=first.session)).text
    except AgentError as error:
        said = error.kind or ""
    assert said == (kind or "All done.")
