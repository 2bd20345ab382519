"""A turn of opencode: how it is called, and what the lines that it prints mean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail.agents.opencode import (
    OpencodeBackend,
    OpencodeParser,
    kind_of_error,
    retry_at_of,
)
from handrail.agents.transport.parser import Ending
from handrail.errors import AgentError
from handrail.model.agent_options import AgentOptions
from handrail.model.events import (
    AgentCompaction,
    AgentMessage,
    AgentReasoning,
    AgentSessionStarted,
    AgentToolCompleted,
    AgentToolStarted,
    AgentUsage,
)
from handrail.model.results import Usage
from handrail.ports.agent import AgentReply, AgentTurn
from tests.agents.fake_program import install, path_with
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
from tests.leftovers import nothing_left

ONE_STEP = Usage(1900, 25, 0.00522, None, 400, 300, 0, "reply")


def read(case: str, turn: AgentTurn | None = None, stopped: Any = None) -> Played:
    """What is made of a recorded run."""
    ending = ending_of("opencode", case, stopped)
    return play(OpencodeParser(turn or turn_of()), [recorded("opencode", case)], ending)


def test_a_last_step_is_an_answer() -> None:
    """The last text is the answer, with tokens and cost of all steps."""
    played = read("tool")
    assert played.reply.text == "The command printed tool-ok."
    assert played.reply.usage == ONE_STEP + ONE_STEP
    assert [one.usage for one in of_type(played.notices, AgentUsage)] == [
        ONE_STEP,
        ONE_STEP + ONE_STEP,
    ]
    ref = "toolu_500945b301c54d20b26d"
    given = {"command": "echo tool-ok", "description": "Print tool-ok"}
    assert played.notices[:4] == (
        AgentSessionStarted("s", "ses_e001e6f69ffeVFBmehWT4XBZjc", "opencode-run"),
        AgentMessage("s", "I will run a command."),
        AgentToolStarted("s", ref, "bash", given),
        AgentToolCompleted("s", ref, "bash", True, "tool-ok\n", 0),
    )


def test_thoughts_are_told() -> None:
    """Reasoning is no part of the answer."""
    played = read("thinking")
    assert played.reply.text == "The answer is 4."
    assert len(of_type(played.notices, AgentReasoning)) == 1


@pytest.mark.parametrize(
    ("case", "kind", "retry_at"),
    [
        ("auth_401", "auth", None),
        ("context_overflow_400", "context_overflow", None),
        ("model_unknown", "bad_request", None),
        ("rate_limit_429", "rate_limit", NOW + 1),
        ("bad_flag", "config", None),
        ("hang_sigint", "crashed", None),
        ("hang_tool_sigkill", "crashed", None),
    ],
)
def test_a_failed_turn_has_a_kind(case: str, kind: str, retry_at: float | None) -> None:
    """Name and status of the error say the kind, the headers when to try again."""
    error = read(case).error
    assert (error.kind, error.retry_at) == (kind, retry_at)


def test_an_overflow_is_the_end() -> None:
    """Opencode would compact for ever: after the first overflow nothing more is waited for."""
    played = read("context_overflow_400")
    assert played.finished
    assert AgentCompaction("s", "completed") in played.notices
    assert not read("text").finished


def test_an_answer_before_a_hang_counts() -> None:
    """A step that was the last one is an answer, though the program had to be stopped."""
    assert read("text", stopped="idle_timeout").reply.text.startswith("Hello")
    assert read("hang_tool_sigkill", stopped="idle_timeout").error.kind == "timeout"


@pytest.mark.parametrize(
    ("reason", "kind"),
    [("length", "output_limit"), ("content-filter", "refusal"), ("tool-calls", "crashed")],
)
def test_a_step_that_did_not_stop_is_no_answer(reason: str, kind: str) -> None:
    """Only the model's own ``stop`` ends a turn well."""
    step = {"type": "step_finish", "sessionID": "s", "part": {"reason": reason}}
    played = play(OpencodeParser(turn_of()), [json.dumps(step).encode()], Ending(0, now=NOW))
    assert played.error.kind == kind


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        (
            "APIError",
            {"statusCode": 400, "message": "Your credit balance is too low"},
            "spending_cap",
        ),
        ("APIError", {"statusCode": 400, "message": "prompt is too long: 1"}, "context_overflow"),
        ("APIError", {"statusCode": 400, "message": "no"}, "bad_request"),
        ("APIError", {"statusCode": 529, "message": "credits"}, "transient"),
        ("APIError", {"message": "socket closed"}, "transient"),
        (
            "APIError",
            {"statusCode": 429, "message": "The usage limit has been reached"},
            "usage_cap",
        ),
        ("APIError", {"statusCode": 429, "message": "Check billing. Retry in 3s"}, "rate_limit"),
        ("APIError", {"statusCode": 401, "message": "Insufficient balance"}, "spending_cap"),
        ("UnknownError", {"message": "Your credit balance is too low"}, "spending_cap"),
        ("UnknownError", {"message": "Unable to connect."}, "transient"),
        ("UnknownError", {"message": "Unexpected server error."}, "bad_request"),
        ("ProviderModelNotFoundError", {}, "bad_request"),
        ("ProviderInitError", {}, "config"),
        ("ProviderAuthError", {}, "auth"),
        ("MessageOutputLengthError", {}, "output_limit"),
        ("MessageAbortedError", {}, "interrupted"),
        ("", {}, "transient"),
    ],
)
def test_errors_have_kinds(name: str, data: dict[str, Any], kind: str) -> None:
    """The name counts before the status, the words only of a request that was refused."""
    assert kind_of_error({"name": name, "data": data}) == kind


@pytest.mark.parametrize(
    ("headers", "retry_at"),
    [
        ({"Retry-After": "7"}, NOW + 7),
        ({"retry-after-ms": "1500", "retry-after": "2"}, NOW + 1.5),
        ({"retry-after": "Sat, 21 Nov 2026 21:00:00 GMT"}, 1_795_294_800.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": None}, None),
    ],
)
def test_headers_tell_when_to_try_again(headers: dict[str, Any], retry_at: float | None) -> None:
    """Seconds, milliseconds and dates are understood."""
    assert retry_at_of({"responseHeaders": headers}, NOW) == retry_at


def said(*events: Any, ending: Ending | None = None) -> Played:
    """What is made of these events of the session ``o``."""
    lines = "".join(f"{json.dumps({'sessionID': 'o', **event})}\n" for event in events)
    return play(OpencodeParser(turn_of()), [lines.encode()], ending or Ending(0, now=NOW))


STOPPED = {"type": "step_finish", "part": {"reason": "stop"}}


def test_an_error_may_be_words_alone() -> None:
    """Its words are found where they are, and say the kind."""
    for error in ("prompt is too long", {"message": "prompt is too long"}):
        failed = said({"type": "error", "error": error}).error
        assert (failed.kind, failed.reason) == ("context_overflow", "prompt is too long")


def test_only_what_may_pass_is_waited_for() -> None:
    """Money does not come back after the delay that a header tells."""
    data = {
        "statusCode": 429,
        "message": "insufficient_quota",
        "responseHeaders": {"retry-after": "9"},
    }
    failed = said({"type": "error", "error": {"name": "APIError", "data": data}}).error
    assert (failed.kind, failed.retry_at) == ("spending_cap", None)


def test_an_abortion_by_a_watchdog_is_a_timeout() -> None:
    """Opencode's word that it was aborted is ours if we had asked for it."""
    over = {"type": "error", "error": {"name": "MessageAbortedError", "data": {}}}
    assert said(over).error.kind == "interrupted"
    assert said(over, ending=Ending(-2, "idle_timeout", now=NOW)).error.kind == "timeout"


def test_a_tool_that_is_told_twice_ran_once() -> None:
    """A call has one end, however often it is told."""
    use = {
        "type": "tool_use",
        "part": {"callID": "c", "tool": "t", "state": {"status": "completed"}},
    }
    assert len(of_type(said(use, use).notices, AgentToolCompleted)) == 1


def test_a_tool_that_is_not_allowed_is_a_wrong_setting() -> None:
    """It ends well by its own account, and another launch would end the same."""
    state = {"status": "error", "error": "The user rejected permission to use this tool."}
    use = {"type": "tool_use", "part": {"callID": "c", "tool": "bash", "state": state}}
    step = {"type": "step_finish", "part": {"reason": "tool-calls"}}
    error = said(use, step).error
    assert (error.kind, "rejected permission" in error.reason) == ("config", True)
    assert 'permission="full"' in error.hint
    assert said(use, step, STOPPED).reply.text == ""


def test_another_session_is_no_part_of_the_turn() -> None:
    """Neither the answer nor the end of an agent that this one started is its own."""
    text = {"type": "text", "part": {"text": "mine"}}
    other = {"sessionID": "p", "type": "text", "part": {"text": "theirs"}}
    assert said(text, {**STOPPED, "sessionID": "p"}).error.kind == "crashed"
    assert said(text, other, STOPPED).reply.text == "mine"


@settings(max_examples=40, deadline=None)
@given(case=st.sampled_from(case_names("opencode")), data=st.data())
def test_a_stream_may_be_cut_anywhere(case: str, data: st.DataObject) -> None:
    """Where the bytes are cut into pieces, and what is on stderr in between, changes nothing."""
    stream = recorded("opencode", case)
    pieces = data.draw(in_pieces(stream))
    ending = ending_of("opencode", case)
    whole = play(OpencodeParser(turn_of()), [stream], ending)
    assert play(OpencodeParser(turn_of()), pieces, ending).summary == whole.summary


@pytest.mark.parametrize("case", case_names("opencode"))
def test_a_broken_stream_is_never_an_answer(case: str) -> None:
    """A stream that ends before the last step does gives no answer, wherever it ends."""
    lines = recorded("opencode", case).splitlines(keepends=True)
    for kept in range(len(lines)):
        played = play(OpencodeParser(turn_of()), lines[:kept], Ending(0, now=NOW))
        assert isinstance(played.outcome, AgentError)


KEYS = ["type", "part", "error", "data", "name", "text", "id", "state", "tokens", "cache", "reason"]
TYPES = ["step_start", "step_finish", "text", "tool_use", "error", "reasoning", "stop", "APIError"]
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(TYPES),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5)
    ),
    max_leaves=8,
)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(KEYS), values), max_size=5), st.binary())
def test_nothing_that_is_printed_breaks_the_reader(said: list[Any], noise: bytes) -> None:
    """Any JSON and any bytes are read, and end in an answer or an error of a known kind."""
    stream = b"\n".join([*(json.dumps(one).encode() for one in said), noise])
    played = play(OpencodeParser(turn_of()), [stream], Ending(1, stderr="x", now=NOW))
    assert isinstance(played.outcome, AgentReply) or played.error.kind


@pytest.mark.anyio
async def test_options_are_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_id: str
) -> None:
    """The prompt goes to stdin, options and session into arguments."""
    monkeypatch.setenv("PATH", path_with(tmp_path))
    opencode = install(tmp_path, "opencode", recorded("opencode", "text"))
    options = AgentOptions(model="p/m", effort="high", permission="full", cwd=str(tmp_path))
    turn = turn_of(run_id=run_id, session="ses_1", fork=True, session_usage=ONE_STEP)
    with nothing_left(run_id):
        reply = await OpencodeBackend(options=options).complete(turn)
    assert (reply.usage, reply.session_usage) == (ONE_STEP, ONE_STEP + ONE_STEP)
    assert opencode.argv == [
        *("run", "--format", "json", "--thinking", "-m", "p/m", "--variant", "high", "--auto"),
        *("-s", "ses_1", "--fork"),
    ]
    assert opencode.call["stdin"] == "Say hello."


@pytest.mark.anyio
async def test_probing_finds_program_version_and_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a model being asked: is opencode there, which one, is a login stored."""
    monkeypatch.setenv("PATH", path_with(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    install(tmp_path, "opencode", version="1.18.33")
    out = await OpencodeBackend().probe()
    assert (out.version, out.logged_in) == ("1.18.33", None)
    folder = tmp_path / ".local" / "share" / "opencode"
    folder.mkdir(parents=True)
    (folder / "auth.json").write_text('{"anthropic": {"type": "api"}}', "utf-8")
    assert (await OpencodeBackend().probe()).logged_in is True
