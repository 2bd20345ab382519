"""What is said to agents that speak ACP, and what their messages mean."""

from __future__ import annotations

from typing import Any

import pytest

from handrail.agents.acp.dialogue import AcpDialogue
from handrail.agents.codex.turn import NETWORK_WAITS
from handrail.agents.transport.parser import Ending
from handrail.errors import AgentError
from handrail.model.agent_options import AgentOptions
from handrail.model.events import (
    AgentCompaction,
    AgentMessage,
    AgentPermission,
    AgentRetry,
    AgentToolCompleted,
    AgentToolStarted,
)
from handrail.model.results import Usage
from tests.agents.readings import conversations
from tests.agents.recorded import NOW, of_type, turn_of
from tests.agents.rpc_recorded import Held, hold, received, tell

INIT = {"id": 1, "result": {"protocolVersion": 1, "agentCapabilities": {}}}


def dialogue(options: AgentOptions | None = None, **turn: Any) -> AcpDialogue:
    """A dialogue for a turn with these options, with an agent whose name is not known before."""
    return AcpDialogue(turn_of(**turn), options or AgentOptions(), cwd="/srv/demo")


def greeted(**capabilities: Any) -> dict[str, Any]:
    """The reply to the greeting of an agent that can do this."""
    return {"id": 1, "result": {"protocolVersion": 1, "agentCapabilities": capabilities}}


def opened(**more: Any) -> dict[str, Any]:
    """The reply to what opens a session."""
    return {"id": 2, "result": {"sessionId": "s1", **more}}


def update(name: str, /, **more: Any) -> dict[str, Any]:
    """A notification of a session."""
    told = {"sessionUpdate": name, **more}
    return {"method": "session/update", "params": {"sessionId": "s1", "update": told}}


def chunk(text: str, **more: Any) -> dict[str, Any]:
    """A piece of what the agent says."""
    return update("agent_message_chunk", content={"type": "text", "text": text}, **more)


def ended(stop: str = "end_turn", **more: Any) -> dict[str, Any]:
    """The reply to the prompt of a session in which nothing was set."""
    return {"id": 3, "result": {"stopReason": stop, **more}}


USED = {"usage": {"inputTokens": 5, "outputTokens": 1, "totalTokens": 6}}


def talk(name: str, *messages: dict[str, Any], **turn: Any) -> Held:
    """What becomes of a turn of an agent of this name, of which this comes after the opening."""
    asked = AcpDialogue(turn_of(**turn), AgentOptions(), cwd="/srv/demo", name=name)
    return hold(asked, [INIT, opened(), *messages])


# -- what it may do --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "allow", "reject"),
    [("copilot_tool", "allow_once", "reject_once"), ("opencode_tool", "once", "reject")],
)
@pytest.mark.parametrize("level", [None, "read_only", "workspace", "full"])
def test_what_an_agent_asks_for_is_answered_by_the_level(
    case: str, allow: str, reject: str, level: Any
) -> None:
    """A command is allowed at the level ``full`` alone, and once; either is told."""
    messages = [{**m, "id": 4} if m.get("id") == 3 else m for m in received("acp", case)]
    options = AgentOptions(permission=level)
    setting = {"id": 3, "result": {}}
    is_set = "session/set" in str(hold(dialogue(options), messages).methods)
    got = hold(dialogue(options), [*messages[:2], setting, *messages[2:]] if is_set else messages)
    chosen = allow if level == "full" else reject
    outcomes = [message["result"]["outcome"] for message in got.sent if "result" in message]
    assert outcomes == [{"outcome": "selected", "optionId": chosen}]
    decision = "allowed" if level == "full" else "denied"
    assert of_type(got.notices, AgentPermission) == [
        AgentPermission("s", "execute", decision, "echo tool-ok")
    ]


@pytest.mark.parametrize(
    ("level", "kind", "path", "is_allowed"),
    [
        ("workspace", "edit", "/srv/demo/a.py", True),
        ("workspace", "edit", "/more/a.py", True),
        ("workspace", "edit", "/srv/demo/../secret", False),
        ("workspace", "edit", "/srv/demonic", False),
        ("workspace", "execute", "/srv/demo/a.py", False),
        ("read_only", "read", "/srv/demo/a.py", True),
        ("read_only", "edit", "/srv/demo/a.py", False),
        (None, "read", "/srv/demo/a.py", False),
        ("full", "execute", "/etc/passwd", True),
    ],
)
def test_a_level_allows_what_it_says(level: Any, kind: str, path: str, is_allowed: bool) -> None:
    """``workspace`` allows changes within the working folders, ``read_only`` to read there."""
    options = AgentOptions(permission=level)
    asked = AcpDialogue(turn_of(), options, cwd="/srv/demo", folders=["/more"])
    call = {"toolCallId": "c", "kind": kind, "title": "x", "locations": [{"path": path}]}
    offered = [{"optionId": "y", "kind": "allow_once"}, {"optionId": "n", "kind": "reject_once"}]
    params = {"sessionId": "s1", "toolCall": call, "options": offered}
    notices, messages = tell(
        asked, {"id": 0, "method": "session/request_permission", "params": params}
    )
    assert messages[0]["result"]["outcome"]["optionId"] == ("y" if is_allowed else "n")
    assert of_type(notices, AgentPermission)[0].decision == ("allowed" if is_allowed else "denied")


@pytest.mark.parametrize("method", ["fs/read_text_file", "terminal/create", "new/question"])
def test_what_was_not_offered_is_refused(method: str) -> None:
    """Files and terminals are not offered to agents, and unknown questions get an answer too."""
    notices, messages = tell(dialogue(), {"id": 8, "method": method, "params": {}})
    assert notices == []
    assert (messages[0]["id"], messages[0]["error"]["code"]) == (8, -32601)


@pytest.mark.parametrize(
    ("case", "level", "params"),
    [
        ("claude_text", "full", {"configId": "mode", "value": "bypassPermissions"}),
        ("claude_text", "workspace", {"configId": "mode", "value": "acceptEdits"}),
        ("claude_text", "read_only", None),
        ("codex_text", "full", {"configId": "mode", "value": "agent-full-access"}),
        ("codex_text", "read_only", {"configId": "mode", "value": "read-only"}),
        ("copilot_text", "full", {"configId": "allow_all", "value": "on"}),
        ("copilot_text", "workspace", None),
        ("gemini_text", "full", {"modeId": "yolo"}),
        ("gemini_text", "workspace", {"modeId": "autoEdit"}),
        ("opencode_text", "read_only", {"configId": "mode", "value": "plan"}),
        ("opencode_text", "full", None),
    ],
)
def test_a_level_is_a_mode_where_the_agent_has_one(case: str, level: Any, params: Any) -> None:
    """The mode of the level is set before the prompt, unless it holds already."""
    got = hold(dialogue(AgentOptions(permission=level)), received("acp", case)[:3])
    last = got.sent[-1]
    if params is None:
        assert last["method"] == "session/prompt"
    else:
        assert last["method"] in ("session/set_mode", "session/set_config_option")
        assert {**last["params"], "sessionId": ""} == {**params, "sessionId": ""}


def test_model_and_effort_are_set_in_turn() -> None:
    """Which efforts there are depends on the model, so they are looked for when that is set."""

    def option(name: str, category: str, *values: str) -> dict[str, Any]:
        return {
            "id": name,
            "category": category,
            "currentValue": values[0],
            "options": [{"group": "g", "options": [{"value": v, "name": v} for v in values]}],
        }

    model, effort = option("m", "model", "a", "b"), option("e", "thought_level", "low", "high")
    messages = [
        greeted(),
        opened(configOptions=[model]),
        {"id": 3, "result": {"configOptions": [model, effort]}},
        {"id": 4, "result": {}},
    ]
    got = hold(dialogue(AgentOptions(model="b", effort="high")), messages)
    assert [m["params"] for m in got.sent[2:4]] == [
        {"sessionId": "s1", "configId": "m", "value": "b"},
        {"sessionId": "s1", "configId": "e", "value": "high"},
    ]
    assert got.methods[-1] == "session/prompt"
    assert got.error.model == "b"


@pytest.mark.parametrize("options", [{"model": "x"}, {"effort": "high"}])
def test_what_cannot_be_chosen_is_refused(options: Any) -> None:
    """An agent that offers no choice of it is not asked with another model or effort instead."""
    got = hold(dialogue(AgentOptions(**options)), [greeted(), opened()])
    assert got.error.kind == "config"
    assert "be chosen" in got.error.reason
    assert "session/prompt" not in got.methods


def test_a_model_that_is_refused_is_a_bad_request() -> None:
    """An unknown model is told with the agent's words."""
    refused = {"id": 3, "error": {"code": -32602, "message": "no such model"}}
    messages = [*received("acp", "gemini_text")[:2], refused]
    got = hold(dialogue(AgentOptions(model="nope")), messages)
    assert got.methods[-1] == "session/set_model"
    assert got.error.kind == "bad_request"
    assert got.error.reason == "it refused the model 'nope': no such model"


# -- sessions --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("able", "turn", "method"),
    [
        ({"loadSession": True}, {}, "session/load"),
        ({"loadSession": True, "sessionCapabilities": {"resume": {}}}, {}, "session/resume"),
        ({"sessionCapabilities": {"fork": {}}}, {"fork": True}, "session/fork"),
    ],
)
def test_an_earlier_session_is_opened_as_the_agent_can(able: Any, turn: Any, method: str) -> None:
    """A session is resumed, else loaded; a fork has the id that the agent gives it."""
    got = hold(dialogue(session="old", **turn), [greeted(**able), {"id": 2, "result": None}])
    assert got.methods[1] == method
    assert got.sent[1]["params"] == {"sessionId": "old", "cwd": "/srv/demo", "mcpServers": []}
    assert ("session/prompt" in got.methods) == (not turn)
    assert got.error.session == (None if turn else "old")


@pytest.mark.parametrize("turn", [{"session": "old"}, {"session": "old", "fork": True}])
def test_a_session_that_cannot_be_opened_is_an_error(turn: Any) -> None:
    """An agent that cannot go on in a session is not asked in another one instead."""
    got = hold(dialogue(**turn), [greeted()])
    assert got.error.kind == "config"
    assert "it cannot go on in" in got.error.reason


def test_a_session_that_is_not_there_cannot_be_gone_on_in() -> None:
    """A refusal to open it says so."""
    gone = {"id": 2, "error": {"code": -32002, "message": "Resource not found"}}
    got = hold(dialogue(session="old"), [greeted(loadSession=True), gone])
    assert (got.error.kind, got.error.session) == ("bad_request", None)


@pytest.mark.parametrize(
    ("error", "kind", "session"),
    [
        (
            {
                "code": -32603,
                "message": "Internal error",
                "data": {"details": "No previous sessions found for this project."},
            },
            "bad_request",
            None,
        ),
        (
            {
                "code": -32603,
                "message": "Internal error: OpenCode service failure",
                "data": {"service": "session"},
            },
            "bad_request",
            None,
        ),
        ({"code": -32000, "message": "Authentication required"}, "auth", "old"),
        ({"code": 429, "message": "Too many requests"}, "rate_limit", "old"),
        ({"code": 503, "message": "down"}, "transient", "old"),
        (
            {"code": -32603, "message": "x", "data": {"codexErrorInfo": "serverOverloaded"}},
            "transient",
            "old",
        ),
    ],
)
def test_a_session_that_an_agent_does_not_open_is_not_there_unless_it_says_what_else(
    error: Any, kind: str, session: str | None
) -> None:
    """Agents have no common word for it; what is of logins, limits and servers is known as such."""
    refused = {"id": 2, "error": error}
    got = hold(dialogue(session="old"), [greeted(loadSession=True), refused])
    assert (got.error.kind, got.error.session) == (kind, session)


def test_a_new_session_that_fails_is_a_failure_of_its_own() -> None:
    """Nothing is said of an earlier session, for there is none."""
    refused = {"id": 2, "error": {"code": -32603, "message": "Internal error"}}
    assert hold(dialogue(), [greeted(), refused]).error.kind == "transient"


def test_an_old_session_is_not_told_again() -> None:
    """What a loaded session had said before the prompt is no part of the turn, nor its cost."""
    cost = {"amount": 0.5, "currency": "USD"}
    before = [chunk("old words"), update("tool_call", toolCallId="t", status="completed")]
    messages = [
        greeted(loadSession=True),
        *before,
        update("usage_update", cost=cost),
        opened(),
        chunk("new words"),
        update("usage_update", cost={**cost, "amount": 0.75}),
        ended(**USED),
    ]
    got = hold(dialogue(session="s1"), messages)
    assert of_type(got.notices, AgentMessage) == [AgentMessage("s", "new words")]
    assert of_type(got.notices, AgentToolStarted) == []
    assert got.reply.usage == Usage(5, 1, cost_usd=0.25, cost_source="reply")
    assert got.reply.session_usage == Usage(cost_usd=0.75, cost_source="reply")


@pytest.mark.parametrize(("earlier", "spent"), [(None, None), (Usage(cost_usd=0.5), 0.25)])
def test_costs_of_a_session_are_a_difference(earlier: Usage | None, spent: float | None) -> None:
    """A session's cost is told in all: this turn's is unknown if what went before is."""
    told = update("usage_update", cost={"amount": 0.75, "currency": "USD"})
    messages = [greeted(loadSession=True), opened(), told, chunk("x"), ended(**USED)]
    got = hold(dialogue(session="s1", session_usage=earlier), messages)
    assert got.reply.usage is not None
    assert got.reply.usage.cost_usd == spent


def test_folders_and_servers_are_named_when_a_session_is_opened() -> None:
    """Further folders go to agents that take them, MCP servers in the words of ACP."""
    servers = {
        "a": {"command": "srv", "args": ["-x"], "env": {"K": "v"}},
        "b": {"url": "http://b", "headers": {"H": "1"}},
    }
    options = AgentOptions(mcp_servers=servers)
    asked = AcpDialogue(turn_of(), options, cwd="/srv/demo", folders=["/more"])
    got = hold(asked, [greeted(sessionCapabilities={"additionalDirectories": {}})])
    assert got.sent[1]["params"] == {
        "cwd": "/srv/demo",
        "additionalDirectories": ["/more"],
        "mcpServers": [
            {"name": "a", "command": "srv", "args": ["-x"], "env": [{"name": "K", "value": "v"}]},
            {
                "type": "http",
                "name": "b",
                "url": "http://b",
                "headers": [{"name": "H", "value": "1"}],
            },
        ],
    }
    unable = AcpDialogue(turn_of(), options, cwd="/srv/demo", folders=["/more"])
    assert "add_dirs" in hold(unable, [greeted()]).error.reason


def test_another_version_is_refused() -> None:
    """Version 2 ends turns in another way: better no turn than a misunderstood one."""
    got = hold(dialogue(), [{"id": 1, "result": {"protocolVersion": 2}}])
    assert (got.error.kind, got.finished) == ("config", True)


# -- failures as text ------------------------------------------------------------------------------


def test_an_answer_that_speaks_of_errors_is_an_answer() -> None:
    """Words alone do not make a failure where tokens were used, or of an agent not known for it."""
    assert talk("copilot", chunk("Error: quota exceeded"), ended(**USED)).reply.text
    assert talk("goose", chunk("Error: quota exceeded"), ended()).reply.text
    assert talk("copilot", chunk("No Error: here"), ended()).reply.text


def test_what_codex_says_itself_has_no_message() -> None:
    """After marked messages an unmarked last word is a failure, though tokens were used."""
    said = [chunk("Let me see.", messageId="m1"), chunk("exceeded retry limit, last status: 429\n")]
    got = talk("codex", *said, ended(**USED))
    assert got.error.kind == "rate_limit"
    assert got.error.text == "Let me see."
    assert talk("codex", said[1], ended()).error.kind == "rate_limit"
    assert talk("codex", chunk("anything"), ended(usage={"inputTokens": 0})).error


def test_an_error_in_pieces_is_one() -> None:
    """An error may come in chunks, or after words of the model."""
    pieces = [chunk("Err"), chunk("or: 429 rate"), chunk(" limit")]
    got = talk("copilot", *pieces, ended())
    assert (got.error.kind, got.error.text) == ("rate_limit", "")
    got = talk("copilot", chunk("Error: You have exceeded your request allowance."), ended())
    assert got.error.kind == "usage_cap"
    got = talk("copilot", chunk("I will look."), chunk("Error: 429 rate limit"), ended())
    assert (got.error.reason, got.error.text) == ("Error: 429 rate limit", "I will look.")


def test_warnings_are_no_part_of_the_answer() -> None:
    """What codex warns of comes as text without a message; marked text is the model's."""
    warned = [chunk("Warning: low disk\n\n"), chunk("Warning: yes", messageId="m")]
    assert talk("codex", *warned, ended(**USED)).reply.text == "Warning: yes"


def test_a_compaction_is_told() -> None:
    """Claude's compaction comes as text, and is told as what it is."""
    said = [chunk("Compacting..."), chunk("\n\nCompacting completed."), chunk("Done.")]
    got = talk("claude", *said, ended(**USED))
    assert [one.phase for one in of_type(got.notices, AgentCompaction)] == ["started", "completed"]
    assert got.reply.text == "Done."


def test_blocks_are_joined_by_their_message() -> None:
    """Chunks of one message are one text; without ids a tool or a thought is between two."""
    thought = update("agent_thought_chunk", content={"type": "text", "text": "hm"}, messageId="m")
    got = talk("x", chunk("a", messageId="m"), thought, chunk("b", messageId="m"), ended(**USED))
    assert got.reply.text == "ab"
    assert [one.text for one in of_type(got.notices, AgentMessage)] == ["a", "b"]
    got = talk("x", chunk("a"), chunk("b"), thought, chunk("c"), ended(**USED))
    assert got.reply.text == "c"


def test_what_was_said_before_a_tool_that_was_denied_is_no_part_of_the_answer() -> None:
    """Also where the agent goes on in the same message, or asked before it told of the call."""
    call = {"toolCallId": "c", "kind": "execute", "title": "rm"}
    asks = {
        "id": 9,
        "method": "session/request_permission",
        "params": {"sessionId": "s1", "toolCall": call, "options": []},
    }
    denied = update("tool_call_update", toolCallId="c", status="failed")
    for message in ({"messageId": "m"}, {}):
        before, after = chunk("I run.", **message), chunk("done", **message)
        assert talk("x", before, asks, after, ended(**USED)).reply.text == "done"
        assert talk("x", before, asks, denied, after, ended(**USED)).reply.text == "done"
        assert talk("x", before, asks, denied, ended(**USED)).reply.text == "I run."


def test_a_turn_of_no_word_and_no_token_was_refused() -> None:
    """As gemini ends one whose prompt was blocked. A tool alone is a turn."""
    nothing = {"usage": {"inputTokens": 0, "outputTokens": 0, "totalTokens": 0}}
    assert talk("x", ended(**nothing)).error.kind == "refusal"
    call = update("tool_call", toolCallId="c", status="completed")
    assert talk("x", call, ended(**nothing)).reply.text == ""
    assert talk("x", ended(**USED)).reply.text == ""


@pytest.mark.parametrize(
    ("stop", "kind"),
    [
        ("max_tokens", "output_limit"),
        ("max_turn_requests", "max_turns"),
        ("refusal", "refusal"),
        ("cancelled", "interrupted"),
        ("something_new", "crashed"),
    ],
)
def test_only_the_end_of_the_turn_is_an_answer(stop: str, kind: str) -> None:
    """Any other reason to stop is an error, with what was said until then."""
    got = talk("x", chunk("half"), ended(stop, **USED))
    assert (got.error.kind, got.error.text) == (kind, "half")
    assert got.error.usage == Usage(5, 1)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": 429, "message": "slow down"}, "rate_limit"),
        ({"code": 429, "message": "You have exhausted your daily quota."}, "usage_cap"),
        ({"code": -32603, "message": "x", "data": {"errorName": "ContextOverflowError"}},
         "context_overflow"),
        ({"code": -32603, "message": "x", "data": {"errorName": "ProviderAuthError"}}, "auth"),
        ({"code": -32603, "message": "x", "data": {"statusCode": 529}}, "transient"),
        ({"code": -32603, "message": "x", "data": {"errorKind": "overloaded"}}, "transient"),
        ({"code": -32603, "message": "x", "data": {"errorKind": "billing_error"}}, "spending_cap"),
        ({"code": -32603, "message": "x", "data": {"codexErrorInfo": "serverOverloaded"}},
         "transient"),
        ({"code": -32602, "message": "Invalid params"}, "bad_request"),
        ({"code": 403, "message": "no"}, "auth"),
        ({"code": 403, "message": "This needs billing to be enabled."}, "spending_cap"),
        ({"code": -32603, "message": "You exceeded your request allowance."}, "usage_cap"),
        ({"code": -32603, "message": "Internal error"}, "transient"),
    ],
)  # fmt: skip
def test_an_error_is_of_the_kind_that_it_tells(error: Any, kind: str) -> None:
    """Words in ``data`` go before codes, and codes before texts."""
    assert talk("x", {"id": 3, "error": error}).error.kind == kind


@pytest.mark.parametrize(
    ("error", "kind", "reason", "after_s"),
    [
        (
            {"code": -32603, "message": "Internal error", "data": "Rate limit: retry in 30s"},
            "rate_limit",
            "Rate limit: retry in 30s",
            30,
        ),
        (
            {"code": -32602, "message": "Invalid params", "data": "no `cwd`"},
            "bad_request",
            "Invalid params: no `cwd`",
            None,
        ),
        (
            {
                "code": -32603,
                "message": "Internal error",
                "data": {"error": {"message": "prompt is too long"}},
            },
            "context_overflow",
            "prompt is too long",
            None,
        ),
        (
            {"code": 429, "message": "Too many requests", "data": {"retryAfter": 30}},
            "rate_limit",
            "Too many requests",
            30,
        ),
        (
            {
                "code": 429,
                "message": '{"error": {"code": 429, "message": "Check billing. Retry in 34s."}}',
            },
            "rate_limit",
            "Check billing. Retry in 34s.",
            34,
        ),
    ],
)
def test_an_error_is_told_where_the_agent_has_it(
    error: Any, kind: str, reason: str, after_s: float | None
) -> None:
    """Reason and time may stand in ``data``, also if that is a text."""
    failed = talk("x", {"id": 3, "error": error}).error
    assert (failed.kind, failed.reason) == (kind, reason)
    assert failed.retry_at == (None if after_s is None else NOW + after_s)


def test_an_abortion_by_a_watchdog_is_a_timeout() -> None:
    """The agent's error that it was aborted is ours if we had asked for it."""
    error = {"code": -32603, "message": "Aborted", "data": {"errorName": "MessageAbortedError"}}
    messages = [INIT, opened(), {"id": 3, "error": error}]
    assert hold(dialogue(), messages).error.kind == "interrupted"
    ending = Ending(0, "idle_timeout", now=NOW)
    assert hold(dialogue(), messages, ending).error.kind == "timeout"


@pytest.mark.parametrize(("stopped", "kind"), [(None, "interrupted"), ("idle_timeout", "timeout")])
def test_an_error_that_answers_a_cancellation_is_no_failure(stopped: Any, kind: str) -> None:
    """It has the kind of what stopped the turn, whatever its words are."""
    asked = dialogue()
    asked.start()
    for message in (INIT, opened()):
        tell(asked, message)
    assert asked.interrupt() != []
    tell(asked, {"id": 3, "error": {"code": -32603, "message": "x", "data": {"details": "Gone."}}})
    with pytest.raises(AgentError) as caught:
        asked.conclude(Ending(0, stopped, now=NOW))
    assert caught.value.kind == kind


def test_tokens_told_call_by_call_are_added_unless_the_reply_has_them() -> None:
    """Beside the last words of each, as qwen has them."""
    used = {
        "usage": {"inputTokens": 8, "outputTokens": 2, "cachedReadTokens": 4, "totalTokens": 10}
    }
    calls = [chunk("So.", _meta=used), chunk("", _meta=used)]
    got = talk("qwen", *calls, ended())
    assert got.reply.usage == Usage(16, 4, cached_tokens=8)
    assert talk("qwen", *calls, ended(**USED)).reply.usage == Usage(5, 1)


def test_what_was_being_said_is_the_text_of_a_failure() -> None:
    """Words that broke off are known, though no end of theirs was told."""
    said = [chunk("one", messageId="a"), chunk("ha", messageId="b"), chunk("lf", messageId="b")]
    assert talk("x", *said).error.text == "half"


def test_what_is_said_after_the_end_is_of_no_turn() -> None:
    """The reply to the prompt ends the turn."""
    late = update("tool_call", toolCallId="t", kind="execute", status="in_progress")
    got = talk("x", chunk("a"), ended(**USED), chunk("b"), late)
    assert (got.reply.text, of_type(got.notices, AgentToolStarted)) == ("a", [])


def test_a_network_that_never_comes_is_waited_for_in_vain() -> None:
    """What codex says forever through ACP is an end at some point."""
    meta = {
        "codex": {"error": {"message": "Reconnecting... waiting for network", "willRetry": True}}
    }
    waiting = [update("session_info_update", _meta=meta)] * NETWORK_WAITS
    assert not talk("codex", *waiting[1:]).finished
    got = talk("codex", *waiting)
    assert (got.finished, got.error.kind) == (True, "transient")
    assert len(of_type(got.notices, AgentRetry)) == NETWORK_WAITS


def test_what_was_changed_is_told() -> None:
    """Files of completed changes are named, those of failed ones are not."""
    calls = [
        update("tool_call", toolCallId=n, kind="edit", title="e", rawInput={"a": 1},
               locations=[{"path": f"/srv/demo/{n}"}])
        for n in ("a", "b")
    ]  # fmt: skip
    ends = [
        update("tool_call_update", toolCallId="a", status="completed"),
        update("tool_call_update", toolCallId="b", status="failed"),
    ]
    got = talk("x", *calls, *ends, chunk("Done."), ended(**USED))
    assert got.reply.files_changed == ("/srv/demo/a",)
    assert [one.ok for one in of_type(got.notices, AgentToolCompleted)] == [True, False]


# -- the end ---------------------------------------------------------------------------------------


def test_a_turn_is_cancelled_in_its_session() -> None:
    """A cancellation names the session; questions that come after it are cancelled too."""
    asked = dialogue()
    asked.start()
    tell(asked, INIT)
    assert asked.interrupt() == []
    tell(asked, opened())
    (told,) = asked.interrupt()
    assert told == {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "s1"}}
    _, messages = tell(asked, {"id": 5, "method": "session/request_permission", "params": {}})
    assert messages[0]["result"] == {"outcome": {"outcome": "cancelled"}}
    tell(asked, ended("cancelled"))
    assert asked.interrupt() == []


# -- leniency --------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", conversations("acp"))
def test_another_session_is_no_part_of_the_turn(case: str) -> None:
    """What is told of another session changes nothing."""
    messages = received("acp", case)
    at = next(i for i, m in enumerate(messages) if m.get("id") == 2) + 1
    got = hold(dialogue(), [*messages[:at], chunk("x"), *messages[at:]])
    assert got.summary == hold(dialogue(), messages).summary
