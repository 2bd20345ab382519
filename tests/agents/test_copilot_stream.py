"""What the lines of ``copilot --output-format json`` mean."""

from __future__ import annotations

import json
from typing import Any

import pytest

from handrail.agents.copilot.errors import Fault
from handrail.agents.copilot.stream import CopilotParser
from handrail.agents.transport.parser import Ending
from handrail.model.events import (
    AgentCompaction,
    AgentLimit,
    AgentMessage,
    AgentPermission,
    AgentReasoning,
    AgentSessionStarted,
    AgentToolCompleted,
    AgentToolStarted,
    AgentUsage,
)
from handrail.model.results import Usage
from handrail.ports.agent import AgentTurn
from tests.agents.recorded import (
    NOW,
    SAMPLES,
    Played,
    ending_of,
    of_type,
    play,
    recorded,
    turn_of,
)

MODEL = "claude-sonnet-4.5"
REPORT = json.loads((SAMPLES / "copilot" / "usage_file.usage.json").read_text("utf-8"))
TWO_CALLS = Usage(3800, 50, cached_tokens=800, cache_write_tokens=600)


def read(case: str, turn: AgentTurn | None = None, **given: Any) -> Played:
    """What is made of a recorded run."""
    stopped = given.pop("stopped", None)
    parser = CopilotParser(turn or turn_of(), **given)
    return play(parser, [recorded("copilot", case)], ending_of("copilot", case, stopped))


def event(name: str, **data: Any) -> dict[str, Any]:
    """An event of copilot."""
    return {"type": name, "data": data, "id": "e", "parentId": None}


def done(code: Any = 0) -> dict[str, Any]:
    """The last line."""
    return {"type": "result", "sessionId": "s-1", "exitCode": code}


def say(*events: Any, turn: AgentTurn | None = None, **given: Any) -> Played:
    """What is made of these events, after which copilot exits with 1."""
    ending = given.pop("ending", Ending(1, now=NOW))
    stream = "".join(f"{json.dumps(one)}\n" for one in events)
    return play(CopilotParser(turn or turn_of(), **given), [stream.encode()], ending)


BLOCKED = "The model returned no content because the response was blocked by content filtering."


@pytest.mark.parametrize(
    "told",
    [
        event("assistant.message", content=BLOCKED),
        event("assistant.usage", contentFilterTriggered=True, finishReason="stop"),
        event("assistant.usage", finishReason="content_filter"),
        event("session.error", errorType="query", message=BLOCKED),
    ],
)
def test_an_answer_that_a_filter_blocked_is_a_refusal(told: dict[str, Any]) -> None:
    """Though copilot exits with 0, and says something in the model's place; unless it goes on."""
    begun = event("assistant.turn_start", turnId="0")
    half = event("assistant.message", content="Half of it")
    error = say(begun, half, told, done()).error
    assert error.kind == "refusal"
    assert "block" in error.reason
    goes_on = [event("assistant.turn_start", turnId="1"), event("assistant.message", content="ok")]
    assert say(begun, half, told, *goes_on, done()).reply.text == "ok"


@pytest.mark.parametrize("case", ["auth_none", "bad_flag"])
def test_a_start_that_copilot_refuses_is_a_wrong_setting(case: str) -> None:
    """What it says on stderr before its first event is the reason; no session was begun."""
    error = read(case, session="chosen").error
    assert (error.kind, error.session) == ("config", None)
    assert error.reason.startswith("copilot exited with 1: ")


def test_the_session_is_told_with_its_model() -> None:
    """The chosen id is told once, as soon as copilot turns to the prompt."""
    first = read("text", session="e59af6b0-516f-4306-b1dd-766a610849c3").notices[0]
    session = "e59af6b0-516f-4306-b1dd-766a610849c3"
    assert first == AgentSessionStarted("s", session, "copilot", MODEL)
    assert len(of_type(read("text", session=session).notices, AgentSessionStarted)) == 1


def test_another_session_than_chosen_is_told_too() -> None:
    """If copilot names another session in the end, that is the one to go on in."""
    played = say(event("user.message"), done(), session="chosen")
    told = [one.session for one in of_type(played.notices, AgentSessionStarted)]
    assert told == ["chosen", "s-1"]


def test_pieces_count_where_no_whole_came() -> None:
    """A message that came in pieces alone is told at the end of the model's turn."""
    played = say(
        event("assistant.message_delta", messageId="m", deltaContent="Hel"),
        event("assistant.message_delta", messageId="m", deltaContent="lo"),
        event("assistant.reasoning_delta", reasoningId="r", deltaContent="hm"),
        event("assistant.turn_end"),
        done(),
    )
    assert played.notices[:2] == (AgentReasoning("s", "hm"), AgentMessage("s", "Hello"))
    assert played.reply.text == "Hello"


def test_a_message_in_chunks_is_one_answer() -> None:
    """A reply that was split at its thoughts is put together."""
    parts = [
        event("assistant.message", messageId=str(n), apiCallId="c", chunkIndex=n, content=word)
        for n, word in enumerate(["one ", "two"])
    ]
    assert say(*parts, done()).reply.text == "one two"


def test_what_comes_again_is_not_told_again() -> None:
    """Neither a message under the same name, nor pieces under another, nor a thought trimmed."""
    hi = event("assistant.message", messageId="m", content="Hi", reasoningText="hm")
    played = say(
        event("assistant.turn_start"),
        event("assistant.reasoning_delta", reasoningId="r", deltaContent="hm\n"),
        event("assistant.message_delta", deltaContent="Hi"),
        hi,
        hi,
        event("assistant.turn_end"),
        event("assistant.reasoning", reasoningId="q", content="hm"),
        event("assistant.turn_start"),
        event("assistant.message", messageId="n", content="Hi"),
        done(),
    )
    assert of_type(played.notices, AgentReasoning) == [AgentReasoning("s", "hm")]
    assert of_type(played.notices, AgentMessage) == [AgentMessage("s", "Hi")] * 2


def test_a_result_may_be_wrapped_as_other_events_are() -> None:
    """The exit code and session are found in the line or in its data."""
    end = {"type": "result", "data": {"sessionId": "s-7", "exitCode": 0}}
    assert say(event("assistant.message", content="x"), end).reply.session == "s-7"


@pytest.mark.parametrize("end", ["<exited with exit code 3>", "<id: 0 completed with exit code 3>"])
def test_the_exit_code_of_older_programs_is_in_the_output(end: str) -> None:
    """Where no field says how a command exited, the end of its output does."""
    start = event("tool.execution_start", toolCallId="1", toolName="bash")
    text = {"content": f"oops\n{end}"}
    over = event("tool.execution_complete", toolCallId="1", success=True, result=text)
    told = of_type(say(start, over, done()).notices, AgentToolCompleted)
    assert [(one.ok, one.exit_code) for one in told] == [(False, 3)]


def test_compactions_are_told() -> None:
    """A compaction has a start and an end, which may be a failure."""
    played = say(
        event("session.compaction_start", currentTokens=9000),
        event(
            "session.compaction_complete",
            success=True,
            preCompactionTokens=9000,
            postCompactionTokens=1000,
        ),
        event("session.compaction_complete", success=False),
    )
    assert played.notices == (
        AgentCompaction("s", "started", 9000),
        AgentCompaction("s", "completed", 9000, 1000),
        AgentCompaction("s", "failed"),
    )


def test_permissions_are_told() -> None:
    """What was asked for is told with the answer, and denials are the reply's."""
    asked = [
        event("permission.requested", requestId="1", permissionRequest={"kind": "shell"}),
        event("permission.completed", requestId="1", result={"kind": "denied-by-rules"}),
        event(
            "permission.requested",
            requestId="2",
            permissionRequest={"kind": "mcp", "toolName": "ping"},
        ),
        event("permission.completed", requestId="2", result={"kind": "approved-for-session"}),
    ]
    played = say(*asked, event("assistant.message", content="x"), done())
    assert of_type(played.notices, AgentPermission) == [
        AgentPermission("s", "shell", "denied", "denied-by-rules"),
        AgentPermission("s", "ping", "allowed", "approved-for-session"),
    ]
    assert played.reply.denials == ("shell",)


def test_a_tool_that_was_refused_is_denied_once() -> None:
    """Whether a permission event says so, or the end of the tool alone."""
    start = event("tool.execution_start", toolCallId="1", toolName="bash")
    no = {"message": "Permission denied", "code": "denied"}
    end = event("tool.execution_complete", toolCallId="1", success=False, error=no)
    request = {"kind": "shell", "toolCallId": "1"}
    asked = event("permission.requested", requestId="p", permissionRequest=request)
    kind = {"kind": "denied-by-rules"}
    told = event("permission.completed", requestId="p", result=kind)
    last = event("assistant.message", content="x")
    assert say(start, end, last, done()).reply.denials == ("bash",)
    assert say(start, asked, told, end, last, done()).reply.denials == ("shell",)
    del request["toolCallId"]
    assert say(start, asked, told, end, last, done()).reply.denials == ("shell",)


def test_usage_of_calls_is_summed() -> None:
    """Where copilot tells the usage of each call, their sum is the turn's; quotas are limits."""
    quota = {
        "premium": {"remainingPercentage": 25, "resetDate": "2026-12-01T00:00:00Z"},
        "gone": {"remainingPercentage": 0},
        "free": {"remainingPercentage": 100, "isUnlimitedEntitlement": True},
        "odd": 7,
    }
    call = event("assistant.usage", inputTokens=10, outputTokens=2, quotaSnapshots=quota)
    played = say(call, call, event("assistant.message", content="x"), done(), report=lambda: REPORT)
    assert played.reply.usage == Usage(20, 4)
    assert [one.usage for one in of_type(played.notices, AgentUsage)] == [
        Usage(10, 2),
        Usage(20, 4),
    ]
    assert of_type(played.notices, AgentLimit)[:2] == [
        AgentLimit("s", "allowed", "premium", 0.75, 1_796_083_200.0),
        AgentLimit("s", "reached", "gone", 1.0),
    ]


def test_usage_is_in_the_report() -> None:
    """Else the report that copilot writes at its end has it; it is told then, also of a failure."""
    emitted: list[Any] = []
    played = read("tool", turn_of(emitted=emitted), report=lambda: REPORT)
    assert (played.reply.usage, played.reply.session_usage) == (TWO_CALLS, TWO_CALLS)
    assert emitted == [AgentUsage("s", TWO_CALLS, "claude-sonnet-4.5", 2)]
    assert read("rate_limit_429", report=lambda: REPORT).error.usage == TWO_CALLS


def test_a_report_on_a_session_is_no_report_on_a_turn() -> None:
    """A report that covers earlier prompts is a total; what it grew by is this turn's."""
    total = REPORT | {"totalUserRequests": 2}
    before = Usage(1800, 25, cached_tokens=400, cache_write_tokens=300)
    known = read("tool", turn_of(session="s", session_usage=before), report=lambda: total).reply
    assert known.usage == Usage(2000, 25, cached_tokens=400, cache_write_tokens=300)
    assert known.session_usage == TWO_CALLS
    del total["totalUserRequests"]  # then it may be a total
    for report in (total, REPORT | {"totalUserRequests": 2}):
        unknown = read("tool", turn_of(session="s"), report=lambda report=report: report).reply
        assert (unknown.usage, unknown.session_usage) == (None, None)


def test_what_a_helper_of_the_agent_says_is_no_answer() -> None:
    """Messages and errors of sub-agents do not count; their tools are told."""
    helper = {"agentId": "a1"}
    played = say(
        event("assistant.message", content="mine"),
        event("assistant.message", content="theirs") | helper,
        event("session.error", errorType="quota", message="q") | helper,
        event("tool.execution_start", toolCallId="1", toolName="grep") | helper,
        done(),
    )
    assert played.reply.text == "mine"
    assert len(of_type(played.notices, AgentToolStarted)) == 1


def test_an_error_that_was_got_over_is_none() -> None:
    """If the model goes on after an error, the result counts."""
    error = event("session.error", errorType="rate_limit", message="m")
    more = [event("assistant.turn_start"), event("assistant.message", content="done")]
    assert say(error, *more, done()).reply.text == "done"
    assert say(*more, error, done()).error.kind == "rate_limit"


@pytest.mark.parametrize("code", [1, None, "0", True, False])
def test_only_an_exit_code_of_zero_is_success(code: Any) -> None:
    """A result with another code, or none that is a number, is no answer."""
    assert say(event("assistant.message", content="x"), done(code)).error.kind == "crashed"


def test_a_result_without_an_answer_after_a_stop_is_none() -> None:
    """If we stopped it and it said nothing, its result is not that of its work."""
    assert say(done(), ending=Ending(0, "idle_timeout", now=NOW)).error.kind == "timeout"


def test_used_up_credits_are_a_spending_cap() -> None:
    """A turn that copilot broke off at its credit limit needs a person."""
    abort = event("abort", reason="autopilot_credit_limit")
    assert say(abort, done()).error.kind == "spending_cap"


def test_the_wait_that_copilot_tells_is_a_reset_time() -> None:
    """Where it says how long a limit lasts, that is waited for, by the watchdog too."""
    parser = CopilotParser(turn_of())
    wait = event("auto_mode_switch.requested", retryAfterSeconds=90)
    list(parser.feed(json.dumps(wait).encode()))
    assert parser.extra_silence_s == 90
    error = event("session.error", errorType="rate_limit", message="m")
    assert say(wait, error, done(1)).error.retry_at == NOW + 90
    senseless = event("auto_mode_switch.requested", retryAfterSeconds=-5)
    assert say(senseless, error, done(1)).error.retry_at is None


def test_a_quota_that_is_used_up_says_when_it_begins_anew() -> None:
    """The reset date of the last call's quota counts, unless more may be bought or there is any."""
    gone = {"remainingPercentage": 0, "resetDate": "2026-12-01T00:00:00.000Z"}
    bought = gone | {"overageAllowedWithExhaustedQuota": True}
    error = event("session.error", errorType="quota", message="None left.", statusCode=402)
    for quota, status, reset_at in ((gone, "reached", 1_796_083_200), (bought, "warning", None)):
        used = event("assistant.usage", inputTokens=1, quotaSnapshots={"premium": quota})
        played = say(used, error, done(1))
        assert [one.status for one in of_type(played.notices, AgentLimit)] == [status]
        assert (played.error.kind, played.error.retry_at) == ("usage_cap", reset_at)


def test_a_status_may_stand_in_the_message_alone() -> None:
    """Older programs say it nowhere else; other numbers are none."""
    for said, kind, status in (
        ("retried 5 times. Last error: CAPIError: 429 429 Too Many Requests", "rate_limit", 429),
        ("Execution failed: Error: 401 Unauthorized", "auth", 401),
        ("stream closed after 500 tokens", "transient", None),
    ):
        error = say(event("session.error", errorType="query", message=said), done(1)).error
        assert (error.kind, error.http_status) == (kind, status)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault("rate_limit", "user_weekly_rate_limited"), "usage_cap"),
        (Fault("rate_limit", "user_model_rate_limited"), "rate_limit"),
        (Fault("quota", "quota_exceeded", status=402), "usage_cap"),
        (Fault("quota", "session_quota_exceeded"), "spending_cap"),
        (Fault("authorization"), "auth"),
        (Fault("quota_exceeded"), "usage_cap"),
        (Fault("rate_limited"), "rate_limit"),
        (Fault("query", "model_max_prompt_tokens_exceeded", status=400), "context_overflow"),
        (
            Fault("query", message="prompt token count of 9 exceeds the limit of 8", status=400),
            "context_overflow",
        ),
        (Fault("context_limit"), "context_overflow"),
        (Fault("query", message="400 Your credit balance is too low", status=400), "spending_cap"),
        (Fault("query", message="Prompt is too long", status=400), "context_overflow"),
        (Fault("query", message="no", status=402), "spending_cap"),
        (Fault("query", message="stream closed"), "transient"),
        (Fault("query", message="quota and credits", status=500), "transient"),
        (Fault("query", message="blocked by Responsible AI"), "refusal"),
        (Fault(), "transient"),
    ],
)
def test_faults_have_kinds(fault: Fault, kind: str) -> None:
    """Code before type, type before status; words only of requests that were refused."""
    assert fault.kind == kind


def test_time_that_was_waited_is_no_reset_time() -> None:
    """How long copilot waited between its retries does not say when to try again."""
    fault = Fault("rate_limit", message="retried 5 times (total retry wait time: 5.50 seconds)")
    assert fault.diagnose(NOW).retry_at is None
