"""What is said to codex's app-server, and what its messages mean."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest

from handrail.agents.codex.dialogue import CodexDialogue
from handrail.agents.codex.turn import NETWORK_WAITS
from handrail.agents.transport.parser import Ending
from handrail.model.agent_options import AgentOptions
from handrail.model.events import (
    AgentCompaction,
    AgentMessage,
    AgentPermission,
    AgentReasoning,
    AgentRetry,
    AgentSessionStarted,
    AgentToolCompleted,
    AgentToolStarted,
)
from handrail.model.results import Usage
from tests.agents.recorded import of_type, turn_of
from tests.agents.rpc_recorded import EXITED, Held, hold, received, sent, tell

HELLO = "Hello from the stub: naïve ✓ 🙂 done."
ONE_CALL = Usage(
    input_tokens=1200,
    output_tokens=25,
    cached_tokens=400,
    cache_write_tokens=0,
    reasoning_tokens=10,
)


def dialogue(options: AgentOptions | None = None, **turn: Any) -> CodexDialogue:
    """A dialogue for a turn with these options."""
    return CodexDialogue(
        turn_of(**turn), options or AgentOptions(), cwd="/srv/demo", client_version="1"
    )


def said(case: str) -> list[Any]:
    """What codex said in a recorded conversation."""
    return received("codex_rpc", f"appserver_{case}")


def held(case: str, options: AgentOptions | None = None, ending: Ending = EXITED) -> Held:
    """What becomes of a recorded conversation."""
    return hold(dialogue(options), said(case), ending)


def thread_of(messages: list[Any]) -> str:
    """The id of the thread of a conversation."""
    return next(m["params"]["threadId"] for m in messages if "threadId" in m.get("params", {}))


# -- recorded conversations -----------------------------------------------------------------------


def test_the_answer_to_a_schema_is_a_value() -> None:
    """A schema goes to codex with the prompt, and what comes back is read."""
    schema = {"type": "object"}
    asked = CodexDialogue(turn_of(), AgentOptions(), cwd="/srv/demo", schema=schema)
    got = hold(asked, said("schema"))
    assert got.sent[-1]["params"]["outputSchema"] == schema
    assert (got.reply.has_value, got.reply.value) == (True, {"name": "Ada", "age": 36})
    assert held("schema").reply.has_value is False


def test_a_limit_without_a_used_up_window_is_one_of_money() -> None:
    """The same failure with room in every window needs a person."""
    messages = deepcopy(said("usage_limit"))
    for message in messages:
        if message.get("method") == "account/rateLimits/updated":
            message["params"]["rateLimits"]["primary"]["usedPercent"] = 10
        for error in (message.get("params", {}).get("turn", {}).get("error"),):
            if error:
                error["message"] = "Quota exceeded. Check your plan and billing details."
    got = hold(dialogue(), messages)
    assert (got.error.kind, got.error.retry_at) == ("spending_cap", None)
    assert got.error.hint


def test_a_retry_is_told_and_waited_for() -> None:
    """Codex's own retry has its number and delay; so long may it be silent."""
    talk = dialogue()
    got: list[Any] = []
    waits: list[float] = []
    talk.start()
    for message in said("rate_limit_sse_retry"):
        notices, _ = tell(talk, message)
        waits += [talk.extra_silence_s for _ in of_type(notices, AgentRetry)]
        got += of_type(notices, AgentRetry)
    assert [(retry.attempt, retry.delay_s) for retry in got] == [(1, 1.5)]
    assert waits == [1.5]
    assert talk.extra_silence_s == 0.0


# -- what it may do -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("level", "decision"),
    [(None, "decline"), ("read_only", "decline"), ("workspace", "decline"), ("full", "accept")],
)
def test_what_codex_asks_for_is_answered_by_the_level(level: Any, decision: str) -> None:
    """Only at the level ``full`` is a request for approval accepted; either is told."""
    got = held("approval", AgentOptions(permission=level))
    answers = [message for message in got.sent if "result" in message]
    assert answers == [{"jsonrpc": "2.0", "id": 0, "result": {"decision": decision}}]
    is_full = decision == "accept"
    assert of_type(got.notices, AgentPermission) == [
        AgentPermission(
            "s", "shell", "allowed" if is_full else "denied", "/bin/bash -lc 'echo tool-ok'"
        )
    ]
    assert got.reply.denials == (() if is_full else ("shell",))


@pytest.mark.parametrize(
    ("method", "params", "denied", "allowed"),
    [
        ("item/fileChange/requestApproval", {}, {"decision": "decline"}, {"decision": "accept"}),
        (
            "item/permissions/requestApproval",
            {"permissions": {"network": {"enabled": True}}},
            {"permissions": {}, "scope": "turn"},
            {"permissions": {"network": {"enabled": True}}, "scope": "turn"},
        ),
        (
            "mcpServer/elicitation/request",
            {"mode": "form", "message": "Sure?", "requestedSchema": {"properties": {}}},
            {"action": "decline", "content": None, "_meta": None},
            {"action": "accept", "content": {}, "_meta": None},
        ),
        ("item/tool/requestUserInput", {"questions": []}, {"answers": {}}, {"answers": {}}),
    ],
)
def test_every_question_has_an_answer(method: str, params: Any, denied: Any, allowed: Any) -> None:
    """What codex may ask is answered in the form of that question, and told."""
    for level, result in ((None, denied), ("full", allowed)):
        talk = dialogue(AgentOptions(permission=level))
        notices, messages = tell(talk, {"id": "q", "method": method, "params": params})
        assert messages == [{"jsonrpc": "2.0", "id": "q", "result": result}]
        assert len(of_type(notices, AgentPermission)) == 1


def test_an_unknown_question_is_refused() -> None:
    """What is not known to be asked is refused, so that codex does not wait for it."""
    notices, messages = tell(dialogue(), {"id": 9, "method": "new/question", "params": {}})
    assert notices == []
    assert messages[0]["id"] == 9
    assert messages[0]["error"]["code"] == -32601


def test_options_are_settings() -> None:
    """Each option that codex honours is a setting of the thread or the turn."""
    options = AgentOptions(
        model="fast@gpt-6",
        effort="high",
        system_prompt="Be.",
        append_system_prompt="More.",
        permission="workspace",
        add_dirs=("/more",),
        mcp_servers={"z": {"url": "http://z", "headers": {"A": "b"}, "type": "http"}},
    )
    profile = {"model_reasoning_summary": "none", "tools": {"web_search": False}}
    talk = CodexDialogue(turn_of(), options, cwd="/srv/demo", profile=profile)
    got = hold(talk, said("text"))
    assert got.sent[2]["params"] == {
        "cwd": "/srv/demo",
        "model": "gpt-6",
        "approvalPolicy": "never",
        "sandbox": "workspace-write",
        "baseInstructions": "Be.",
        "developerInstructions": "More.",
        "config": {
            "model_reasoning_summary": "none",
            "tools.web_search": False,
            "sandbox_workspace_write.writable_roots": ["/more"],
            "mcp_servers.z": {"url": "http://z", "http_headers": {"A": "b"}},
        },
    }
    assert got.sent[3]["params"] == {
        "threadId": thread_of(said("text")),
        "input": [{"type": "text", "text": "Say hello."}],
        "effort": "high",
    }


# -- sessions -------------------------------------------------------------------------------------


def test_a_thread_is_gone_on_in() -> None:
    """An old thread is resumed; its usage is what was added to what it had before."""
    messages = said("text")
    thread = thread_of(messages)
    got = hold(dialogue(session=thread, session_usage=Usage(input_tokens=1000)), messages)
    assert got.methods[2] == "thread/resume"
    assert got.sent[2]["params"] == {"threadId": thread, "cwd": "/srv/demo"}
    assert got.reply.usage == Usage(input_tokens=200)


def test_a_thread_tells_what_it_had_used_before() -> None:
    """A count under an older turn's id is what the thread began with, whatever the caller knew."""
    messages = deepcopy(said("text"))
    counts = [m for m in messages if m.get("method") == "thread/tokenUsage/updated"]
    earlier = deepcopy(counts[0])
    earlier["params"]["turnId"] = "an older one"
    earlier["params"]["tokenUsage"]["total"]["inputTokens"] = 1100
    at = next(i for i, m in enumerate(messages) if m.get("method") == "thread/started")
    thread = thread_of(messages)
    got = hold(dialogue(session=thread), [*messages[: at + 1], earlier, *messages[at + 1 :]])
    assert got.reply.usage is not None
    assert got.reply.usage.input_tokens == 100
    assert got.reply.session_usage == ONE_CALL


def test_a_thread_whose_past_is_unknown_counts_from_its_first_call() -> None:
    """Without an earlier count the first total less its last call is what was there before."""
    messages = deepcopy(said("tool"))
    for message in messages:
        if message.get("method") == "thread/tokenUsage/updated":
            message["params"]["tokenUsage"]["total"]["inputTokens"] += 5000
    got = hold(dialogue(session=thread_of(messages)), messages)
    assert got.reply.usage is not None
    assert got.reply.usage.input_tokens == 2400
    assert got.reply.session_usage is not None
    assert got.reply.session_usage.input_tokens == 7400


def test_a_copy_of_a_thread_is_another_one() -> None:
    """A fork has an id of its own, and until it is known the session is not the old one."""
    talk = dialogue(session="old", fork=True)
    assert hold(talk, said("text")).methods[2] == "thread/fork"
    assert hold(dialogue(session="old", fork=True), []).error.session is None


def test_a_thread_that_is_not_there_cannot_be_gone_on_in() -> None:
    """Codex refuses to open a thread that it does not have: another turn must not try it again."""
    messages = [
        *said("text")[:1],
        {"id": 2, "error": {"code": -32600, "message": "no rollout found for thread id gone"}},
    ]
    got = hold(dialogue(session="gone"), messages)
    assert got.finished
    assert (got.error.kind, got.error.session) == ("bad_request", None)


def test_refused_settings_are_an_error_of_config() -> None:
    """A refusal in unknown words is one of the settings, before a turn begins."""
    refused = {"id": 2, "error": {"code": -32600, "message": "bad setting: x"}}
    got = hold(dialogue(), [*said("text")[:1], refused])
    assert (got.error.kind, got.error.reason) == ("config", "bad setting: x")


def compacted(*, fail: bool = False) -> list[Any]:
    """A conversation in which a thread is made smaller and then prompted."""
    messages = deepcopy(said("compact"))
    first = next(i for i, m in enumerate(messages) if m.get("id") == 3)
    ready = next(i for i, m in enumerate(messages) if m.get("id") == 4)
    opening, prompted, compaction = messages[:first], messages[first:ready], messages[ready:]
    compaction[0]["id"], prompted[0]["id"] = 3, 4
    if fail:
        error = {"message": "no room", "codexErrorInfo": "contextWindowExceeded"}
        compaction[-1]["params"]["turn"].update(status="failed", error=error)
    return [*opening, *compaction, *prompted]


def test_a_thread_is_made_smaller_first() -> None:
    """The prompt waits for the end of the compaction, which is told, and is part of the usage."""
    messages = compacted()
    got = hold(dialogue(session=thread_of(messages), compact=True), messages)
    assert got.methods[2:] == ["thread/resume", "thread/compact/start", "turn/start"]
    assert [notice.phase for notice in of_type(got.notices, AgentCompaction)] == [
        "started",
        "completed",
    ]
    assert of_type(got.notices, AgentCompaction)[1].after_tokens == 6062
    assert got.reply.text == HELLO


def test_a_compaction_that_fails_is_the_end() -> None:
    """A thread that cannot be made smaller is not prompted."""
    messages = compacted(fail=True)
    got = hold(dialogue(session=thread_of(messages), compact=True), messages)
    assert got.methods[-1] == "thread/compact/start"
    assert got.error.kind == "context_overflow"


def test_a_refused_compaction_does_not_keep_the_prompt_back() -> None:
    """A codex that knows no compaction is prompted all the same."""
    messages = compacted()
    at = next(i for i, m in enumerate(messages) if m.get("id") == 3)
    messages[at] = {"id": 3, "error": {"code": -32601, "message": "unknown method"}}
    got = hold(dialogue(session=thread_of(messages), compact=True), messages[: at + 1])
    assert got.methods[-1] == "turn/start"
    assert [notice.phase for notice in of_type(got.notices, AgentCompaction)] == ["failed"]


# -- the end --------------------------------------------------------------------------------------


def test_a_turn_is_interrupted_by_its_id() -> None:
    """The interruption names thread and turn; without a turn at work there is none."""
    talk = dialogue()
    talk.start()
    assert talk.interrupt() == []
    for message in said("interrupt"):
        if message.get("method") == "turn/completed":
            break
        tell(talk, message)
    (asked,) = talk.interrupt()
    (then,) = (
        m for m in sent("codex_rpc", "appserver_interrupt") if m["method"] == "turn/interrupt"
    )
    assert (asked["method"], asked["params"]) == (then["method"], then["params"])
    tell(talk, message)
    assert talk.interrupt() == []


def test_a_network_that_never_comes_is_waited_for_in_vain() -> None:
    """Codex says forever that it waits for a network; at some point that is the end."""
    waiting = {
        "method": "error",
        "params": {
            "error": {"message": "Reconnecting... waiting for network (error sending request)"},
            "willRetry": True,
        },
    }
    opening = [m for m in said("text") if m.get("method") != "turn/completed"]
    got = hold(dialogue(), [*opening, *[waiting] * (NETWORK_WAITS - 1)])
    assert not got.finished
    got = hold(dialogue(), [*opening, *[waiting] * NETWORK_WAITS])
    assert got.finished
    assert got.error.kind == "transient"


def test_pieces_of_a_broken_off_message_are_told() -> None:
    """What was being said when the turn ended is told once, and is the error's text."""
    messages = deepcopy(said("text"))
    kept = [
        m for m in messages if "agentMessage" not in json.dumps(m.get("params", {}).get("item"))
    ]
    kept[-1]["params"]["turn"].update(status="interrupted", items=[])
    got = hold(dialogue(), kept)
    assert of_type(got.notices, AgentMessage) == [AgentMessage("s", HELLO)]
    assert got.error.text == HELLO


def told(method: str, **params: Any) -> dict[str, Any]:
    """A notification of the turn ``u`` of the thread ``t``."""
    return {"method": method, "params": {"threadId": "t", "turnId": "u", **params}}


def over(status: str = "completed", **turn: Any) -> dict[str, Any]:
    """The end of that turn."""
    return told("turn/completed", turn={"id": "u", "status": status, **turn})


def item(kind: str, /, **more: Any) -> dict[str, Any]:
    """The end of an item."""
    return told("item/completed", item={"type": kind, **more})


def after_opening(*messages: dict[str, Any], **thread: Any) -> Held:
    """What becomes of these messages in the thread ``t``; one with ``turns`` is gone on in."""
    opened = {"id": 2, "result": {"thread": {"id": "t", **thread}}}
    talk = dialogue(session="t" if thread else None)
    return hold(talk, [{"id": 1, "result": {}}, opened, *messages])


@pytest.mark.parametrize(
    ("info", "error", "kind"),
    [
        ("contextWindowExceeded", None, "context_overflow"),
        ("unauthorized", {"message": "no"}, "auth"),
        ("unauthorized", {"message": "another one"}, "transient"),
        ("unauthorized", {"message": "no", "codexErrorInfo": "serverOverloaded"}, "transient"),
    ],
)
def test_an_end_without_its_reason_has_that_which_was_told(
    info: str, error: Any, kind: str
) -> None:
    """What the failed turn leaves out is known from the error before it, if that is the same."""
    before = told("error", error={"message": "no", "codexErrorInfo": info}, willRetry=False)
    assert after_opening(before, over("failed", error=error)).error.kind == kind


def test_a_text_that_was_told_is_not_told_under_another_id() -> None:
    """The turn's own list of its items, and pieces without an id, say nothing twice."""
    again = [
        {"type": "agentMessage", "text": "a"},
        {"type": "agentMessage", "id": "9", "text": "a"},
    ]
    piece = told("item/agentMessage/delta", delta="a")
    got = after_opening(piece, item("agentMessage", id="1", text="a"), over(items=again))
    assert of_type(got.notices, AgentMessage) == [AgentMessage("s", "a")]


def test_items_need_no_ids() -> None:
    """What has no id is told when it ends."""
    ran = item("commandExecution", command="ls", status="completed", exitCode=0)
    got = after_opening(item("agentMessage", text="a"), ran, item("agentMessage", text="b"), over())
    assert [one.ok for one in of_type(got.notices, AgentToolCompleted)] == [True]
    assert got.reply.text == "b"


ONE = item("agentMessage", id="1", text="x")
DECLINED = item("commandExecution", id="1", command="rm -rf /", status="declined")
SMALLER = {"type": "contextCompaction", "id": "1"}


@pytest.mark.parametrize(
    ("messages", "notices"),
    [
        ([ONE, ONE], [AgentMessage("s", "x")]),
        (
            [DECLINED],
            [
                AgentToolStarted("s", "1", "shell", {"command": "rm -rf /"}),
                AgentPermission("s", "shell", "denied", "rm -rf /"),
                AgentToolCompleted("s", "1", "shell", ok=False),
            ],
        ),
        (
            [told("item/started", item=SMALLER), told("item/completed", item=SMALLER)],
            [AgentCompaction("s", "started"), AgentCompaction("s", "completed")],
        ),
    ],
    ids=["twice", "declined", "compaction"],
)
def test_what_an_item_is_told_as(messages: Any, notices: Any) -> None:
    """Once, however often it comes; a refused command as a denial."""
    got = after_opening(*messages, over())
    assert [one for one in got.notices if not isinstance(one, AgentSessionStarted)] == notices
    assert got.reply.denials == (("shell",) if DECLINED in messages else ())


@pytest.mark.parametrize(
    ("words", "attempt", "delay_s"),
    [
        ("Reconnecting... 1/5", 1, None),
        ("Reconnecting\u2026 2/5 (try again in 1.5s)", 2, 1.5),
        ("Reconnecting... 12 / 15 try again in 250ms", 12, 0.25),
        ("Reconnecting... no route", None, None),
    ],
)
def test_each_version_tells_a_retry_in_its_words(
    words: str, attempt: int | None, delay_s: float | None
) -> None:
    """The number and the delay are read from them, as far as they are there."""
    got = after_opening(told("error", error={"message": words}, willRetry=True), over())
    (retry,) = of_type(got.notices, AgentRetry)
    assert (retry.attempt, retry.delay_s) == (attempt, delay_s)


def test_what_was_complained_of_before_is_no_failure_of_a_turn_that_completed() -> None:
    """The last word counts: the turn's end."""
    error = told("error", error={"message": "Quota exceeded."}, willRetry=False)
    got = after_opening(item("agentMessage", text="quota"), error, over())
    assert (got.reply.text, got.reply.usage) == ("quota", None)


def test_what_comes_meanwhile_ends_the_wait_for_a_network() -> None:
    """Only complaints in a row count."""
    error = {"message": "Reconnecting... waiting for network (no route)"}
    waiting = told("error", error=error, willRetry=True)
    got = after_opening(*[waiting] * (NETWORK_WAITS - 1), ONE, waiting)
    assert not got.finished


def test_thoughts_that_came_only_in_pieces_are_told() -> None:
    """A summary that is empty in the end is what its pieces were."""
    pieces = [told("item/reasoning/summaryTextDelta", itemId="r", delta=one) for one in "ab"]
    got = after_opening(*pieces, item("reasoning", id="r", summary=[]), over())
    assert of_type(got.notices, AgentReasoning) == [AgentReasoning("s", "ab")]


def test_older_turns_of_a_thread_are_no_part_of_the_turn() -> None:
    """What belongs to a turn that the thread had before is not told again, nor is its end ours."""
    old = [item("agentMessage", id="1", text="old"), over()]
    for message in old:
        message["params"]["turnId"] = "older"
    old[1]["params"]["turn"]["id"] = "older"
    got = after_opening(
        *old, item("agentMessage", id="2", text="new"), over(), turns=[{"id": "older"}]
    )
    assert [one.text for one in of_type(got.notices, AgentMessage)] == ["new"]


def test_all_that_a_new_thread_counts_is_of_its_only_turn() -> None:
    """Tokens of a new thread count although the id of its turn is not known yet."""
    count = {"total": {"inputTokens": 5}, "last": {"inputTokens": 5}}
    assert after_opening(
        told("thread/tokenUsage/updated", tokenUsage=count), over()
    ).reply.usage == (Usage(input_tokens=5))


# -- leniency -------------------------------------------------------------------------------------


def test_another_thread_is_no_part_of_the_turn() -> None:
    """What agents that codex started say on the same line changes nothing."""
    ours, theirs = said("text"), deepcopy(said("tool"))
    theirs = [m for m in theirs if "threadId" in m.get("params", {})]
    at = next(i for i, m in enumerate(ours) if m.get("method") == "turn/started")
    got = hold(dialogue(), [*ours[: at + 1], *theirs, *ours[at + 1 :]])
    assert got.summary == held("text").summary
