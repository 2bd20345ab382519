"""What the lines of ``codex exec --json`` mean."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail.agents.codex.exec import CodexExecParser
from handrail.agents.transport.parser import Ending
from handrail.errors import AgentError
from handrail.model.events import (
    AgentCompaction,
    AgentMessage,
    AgentPermission,
    AgentReasoning,
    AgentRetry,
    AgentSessionStarted,
    AgentToolCompleted,
    AgentToolStarted,
    AgentUsage,
)
from handrail.model.results import Usage
from handrail.ports.agent import AgentReply, AgentTurn
from tests.agents.recorded import (
    NOW,
    Played,
    case_names,
    ending_of,
    in_pieces,
    of_type,
    play,
    recorded,
    turn_of,
)

ONE_CALL = Usage(1200, 25, cached_tokens=400, cache_write_tokens=0, reasoning_tokens=10)
TWO_CALLS = Usage(2400, 50, cached_tokens=800, cache_write_tokens=0, reasoning_tokens=20)
HELLO = "Hello from the stub: naïve ✓ 🙂 done."


def read(case: str, turn: AgentTurn | None = None, **given: Any) -> Played:
    """What is made of a recorded run."""
    stopped = given.pop("stopped", None)
    parser = CodexExecParser(turn or turn_of(), model="gpt-5", **given)
    return play(parser, [recorded("codex", case)], ending_of("codex", case, stopped))


def say(*events: Any, turn: AgentTurn | None = None, **given: Any) -> Played:
    """What is made of these events, after which codex exits with 1."""
    lines = "".join(f"{json.dumps(event)}\n" for event in events)
    ending = given.pop("ending", Ending(1, now=NOW))
    return play(CodexExecParser(turn or turn_of(), **given), [lines.encode()], ending)


@pytest.mark.parametrize(
    ("case", "text", "usage"),
    [
        ("text", HELLO, ONE_CALL),
        ("resume_1", HELLO, ONE_CALL),
        ("reasoning", "The answer is 4.", ONE_CALL),
        ("tool", "The command printed tool-ok.", TWO_CALLS),
        ("mcp_tool", "pong ok", TWO_CALLS),
        ("patch", "Patched.", TWO_CALLS),
        ("patch_via_shell", "Patched.", TWO_CALLS),
        ("rate_limit_sse_then_ok", HELLO, ONE_CALL),
        ("schema_bad", "not json at all", ONE_CALL),
    ],
)
def test_a_completed_turn_is_an_answer(case: str, text: str, usage: Usage) -> None:
    """The answer is the last message, with the thread as its session and what was used."""
    played = read(case)
    assert (played.reply.text, played.reply.usage) == (text, usage)
    assert played.reply.session == of_type(played.notices, AgentSessionStarted)[0].session
    assert (played.reply.model, played.reply.has_value) == ("gpt-5", False)
    assert played.finished
    assert of_type(played.notices, AgentUsage) == [AgentUsage("s", usage)]


@pytest.mark.parametrize(
    ("case", "kind", "status"),
    [
        ("auth_401", "auth", 401),
        ("auth_missing_env_key", "auth", None),
        ("bad_request_400", "bad_request", None),
        ("context_overflow_400", "context_overflow", None),
        ("idle_timeout", "transient", None),
        ("model_404", "bad_request", None),
        ("overloaded_503", "transient", None),
        ("quota_429", "spending_cap", None),
        ("rate_limit_429", "rate_limit", 429),
        ("rate_limit_429_default_retries", "rate_limit", 429),
        ("rate_limit_sse", "rate_limit", None),
        ("server_500", "transient", None),
        ("usage_limit_reached", "usage_cap", None),
    ],
)
def test_a_failed_turn_has_a_kind(case: str, kind: str, status: int | None) -> None:
    """The message of ``turn.failed`` is the reason and says the kind; the thread can be resumed."""
    played = read(case)
    assert (played.error.kind, played.error.http_status) == (kind, status)
    assert played.error.session == of_type(played.notices, AgentSessionStarted)[0].session
    assert played.error.reason in recorded("codex", case).decode().replace('\\"', '"')
    assert played.finished


@pytest.mark.parametrize(
    "case",
    [
        "hang_sigint",
        "hang_midstream_sigint",
        "hang_tool_sigint",
        "hang_tool_sigterm",
        "conn_refused",
    ],
)
@pytest.mark.parametrize(
    ("stopped", "kind"),
    [
        ("interrupted", "interrupted"),
        ("idle_timeout", "timeout"),
        ("timeout", "timeout"),
        (None, "crashed"),
    ],
)
def test_a_turn_without_an_end_is_no_answer(case: str, stopped: Any, kind: str) -> None:
    """Without a word about its end a turn was stopped by us, or crashed; its session is known."""
    played = read(case, stopped=stopped)
    assert (played.error.kind, played.finished) == (kind, False)
    assert played.error.session is not None


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("bad_flag", "unexpected argument '--no-such-flag'"),
        ("empty_prompt", "No prompt provided via stdin."),
        ("schema_missing_file", "Failed to read output schema file"),
    ],
)
def test_a_start_that_codex_refuses_is_a_wrong_setting(case: str, said: str) -> None:
    """What codex says on stderr before its first event is the reason, without its warnings."""
    error = read(case).error
    assert error.kind == "config"
    assert said in error.reason
    assert "PATH aliases" not in error.reason


def test_people_are_shown_the_words_of_a_refusal() -> None:
    """What a model's API answers as JSON is not shown as JSON."""
    reason = "Invalid schema for response_format 'codex_output_schema'."
    assert read("bad_request_400").error.reason == reason


def test_a_tool_at_work_is_open() -> None:
    """A command that was begun counts as open until it ends or the turn does."""
    assert read("hang_tool_sigint").open_tools == 1
    assert read("tool").open_tools == 0


def test_commands_are_told() -> None:
    """A command starts with its line and ends with output and exit code."""
    command = "/bin/bash -lc 'echo tool-ok'"
    assert read("tool").notices[1:4] == (
        AgentMessage("s", "I will run a command."),
        AgentToolStarted("s", "item_2", "shell", {"command": command}),
        AgentToolCompleted("s", "item_2", "shell", True, "tool-ok\n", 0),
    )


def test_calls_of_servers_are_told() -> None:
    """A call of an MCP tool has the name of server and tool, and the text it gave back."""
    assert read("mcp_tool").notices[1:3] == (
        AgentToolStarted("s", "item_1", "z.ping", {}),
        AgentToolCompleted("s", "item_1", "z.ping", True, "pong"),
    )


def test_changed_files_are_told() -> None:
    """A patch is a tool, and its files are those of the answer."""
    played = read("patch_via_shell")
    [completed] = of_type(played.notices, AgentToolCompleted)
    assert (completed.name, completed.ok) == ("apply_patch", True)
    assert played.reply.files_changed == ("/srv/demo/codex_patch_via_shell/new_file.txt",)


def test_thoughts_are_told() -> None:
    """Reasoning is no part of the answer."""
    assert of_type(read("reasoning").notices, AgentReasoning) == [
        AgentReasoning("s", "**Thinking about it**\n\nThe answer is four.")
    ]


def test_inner_retries_are_told() -> None:
    """What codex tries again by itself is told with its number, and decides nothing."""
    retries = of_type(read("rate_limit_429_default_retries").notices, AgentRetry)
    reason = "exceeded retry limit, last status: 429 Too Many Requests"
    assert retries == [AgentRetry("s", number, None, reason) for number in range(1, 6)]


@pytest.mark.parametrize(
    ("message", "attempt"),
    [
        ("Reconnecting\u2026 3/5", 3),
        ("stream error: stream disconnected before completion; retrying 1/5 in 208ms", 1),
        ("Reconnecting... (no number)", None),
    ],
)
def test_retries_are_told_by_each_version_in_its_words(message: str, attempt: int | None) -> None:
    """A retry is known by its words, of whichever version of codex they are."""
    [retry] = of_type(say({"type": "error", "message": message}).notices, AgentRetry)
    assert retry.attempt == attempt


def test_waiting_for_a_network_ends_some_time() -> None:
    """Codex waits for a network for ever; after a dozen complaints in a row the turn is over."""
    waiting = {"type": "error", "message": "Reconnecting... waiting for network (no route)"}
    start = {"type": "thread.started", "thread_id": "t1"}
    played = say(start, *[waiting] * 12, ending=Ending(-15, now=NOW))
    assert (played.finished, played.error.kind, played.error.session) == (True, "transient", "t1")
    assert "no route" in played.error.reason
    other = {"type": "item.completed", "item": {"type": "agent_message", "text": "on"}}
    assert not say(start, *[waiting] * 11, other, waiting).finished


def test_a_late_completion_counts() -> None:
    """Errors before ``turn.completed`` do not make an answer a failure."""
    done = {"type": "turn.completed"}
    message = {
        "type": "item.completed",
        "item": {"id": "1", "type": "agent_message", "text": "quota"},
    }
    error = {"type": "error", "message": "Quota exceeded."}
    played = say(message, error, {"type": "turn.failed", "error": {"message": "no"}}, done)
    assert (played.reply.text, played.reply.usage) == ("quota", None)


def test_an_answer_before_the_stop_counts() -> None:
    """A completed turn is an answer although the program had to be ended."""
    played = read("text", stopped="interrupted")
    assert played.reply.text == HELLO


def test_a_resumed_thread_tells_what_was_added() -> None:
    """Codex tells a thread's total: the turn's part is the difference, unknown if the start is."""
    session = "01a1ffdc-d993-7611-b178-6972d692ba67"
    known = read("resume_2", turn_of(session=session, session_usage=ONE_CALL)).reply
    assert (known.usage, known.session_usage) == (ONE_CALL, TWO_CALLS)
    unknown = read("resume_2", turn_of(session=session)).reply
    assert (unknown.usage, unknown.session_usage) == (None, TWO_CALLS)
    half = read("resume_2", turn_of(session=session, session_usage=Usage(1200))).reply
    assert half.usage == Usage(1200)


def test_json_is_the_value_where_a_schema_was_given() -> None:
    """The last message is the value if it is JSON, and only if that was asked for."""
    played = read("schema_ok", has_schema=True)
    assert (played.reply.has_value, played.reply.value) == (True, {"name": "Ada", "age": 36})
    assert not read("schema_bad", has_schema=True).reply.has_value
    assert not read("schema_ok").reply.has_value


def test_a_declined_command_is_a_denial() -> None:
    """A command that codex may not run failed, and is among the denials."""
    item = {"id": "1", "type": "command_execution", "command": "rm -rf /", "status": "declined"}
    played = say({"type": "item.completed", "item": item}, {"type": "turn.completed"})
    assert of_type(played.notices, AgentPermission) == [
        AgentPermission("s", "shell", "denied", "rm -rf /")
    ]
    assert [done.ok for done in of_type(played.notices, AgentToolCompleted)] == [False]
    assert played.reply.denials == ("shell",)


def test_a_compaction_is_told() -> None:
    """An item that makes the thread smaller has a start and an end."""
    item = {"id": "1", "type": "context_compaction"}
    played = say({"type": "item.started", "item": item}, {"type": "item.completed", "item": item})
    assert [one.phase for one in of_type(played.notices, AgentCompaction)] == [
        "started",
        "completed",
    ]


def test_a_message_that_comes_twice_is_told_once() -> None:
    """An item has one end, however often it is told."""
    event = {"type": "item.completed", "item": {"id": "1", "type": "agent_message", "text": "x"}}
    assert say(event, event).notices == (AgentMessage("s", "x"),)


def test_a_fork_has_a_session_of_its_own() -> None:
    """The session of a fork that did not start is not the one that was to be forked."""
    assert say(turn=turn_of(session="old", fork=True)).error.session is None
    assert say(turn=turn_of(session="old")).error.session == "old"


# -- laws ----------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(case=st.sampled_from(case_names("codex")), data=st.data())
def test_a_stream_may_be_cut_anywhere(case: str, data: st.DataObject) -> None:
    """Where the bytes are cut into pieces, and what is on stderr in between, changes nothing."""
    stream = recorded("codex", case)
    pieces = data.draw(in_pieces(stream))
    ending = ending_of("codex", case)
    whole = play(CodexExecParser(turn_of()), [stream], ending)
    assert play(CodexExecParser(turn_of()), pieces, ending).summary == whole.summary


@pytest.mark.parametrize("case", case_names("codex"))
def test_a_broken_stream_is_never_an_answer(case: str) -> None:
    """A stream that ends before ``turn.completed`` gives no answer, wherever it ends."""
    lines = recorded("codex", case).splitlines(keepends=True)
    for kept in range(len(lines)):
        if b'"turn.completed"' not in b"".join(lines[:kept]):
            played = play(CodexExecParser(turn_of()), lines[:kept], Ending(0, now=NOW))
            assert isinstance(played.outcome, AgentError)


@pytest.mark.parametrize("case", case_names("codex"))
def test_unknown_events_and_fields_change_nothing(case: str) -> None:
    """Events, fields and lines that nobody knows are passed over."""
    lines = [json.loads(line) for line in recorded("codex", case).splitlines()]
    more: list[Any] = []
    for line in lines:
        item = line.get("item")
        extended = (
            line | {"new": [1], "error_code": None} | ({"item": item | {"new": {}}} if item else {})
        )
        more += [{"type": "new.event", "item": {"type": "turn.completed"}}, extended, 5, None, []]
    stream = "\n\r\n".join(["not json", *map(json.dumps, more), '{"type": "turn.comp'])
    ending = ending_of("codex", case)
    noisy = play(CodexExecParser(turn_of()), [stream.encode()], ending)
    plain = play(CodexExecParser(turn_of()), [recorded("codex", case)], ending)
    assert noisy.summary == plain.summary


KEYS: list[str] = [
    "type",
    "item",
    "id",
    "text",
    "message",
    "error",
    "usage",
    "thread_id",
    "status",
    "changes",
]
WORDS = [
    "thread.started",
    "turn.completed",
    "turn.failed",
    "item.started",
    "item.completed",
    "error",
    "command_execution",
    "agent_message",
    "file_change",
    "mcp_tool_call",
    "reasoning",
    "Reconnecting... 9/",
]
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(WORDS)
    | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5)
    ),
    max_leaves=10,
)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.dictionaries(st.sampled_from(KEYS), values, max_size=6), max_size=5), st.binary()
)
def test_nothing_that_is_printed_breaks_the_reader(events: list[Any], noise: bytes) -> None:
    """Any JSON and any bytes are read, and end in an answer or an error of a known kind."""
    stream = b"\n".join([*(json.dumps(event).encode() for event in events), noise])
    played = play(CodexExecParser(turn_of()), [stream], Ending(1, stderr="x", now=NOW))
    assert isinstance(played.outcome, AgentReply) or played.error.kind


def test_half_characters_are_made_whole() -> None:
    """Half a surrogate pair, which cannot be written down, becomes a replacement."""
    played = say({"type": "item.completed", "item": {"type": "agent_message", "text": "a\ud83d"}})
    [message] = of_type(played.notices, AgentMessage)
    assert message.text.encode() in (b"a?", "a\ufffd".encode())
