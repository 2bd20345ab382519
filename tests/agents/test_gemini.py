"""A turn of gemini: how it is called, and what the lines that it prints mean."""

from __future__ import annotations

import json
from typing import Any

import pytest

from handrail.agents.gemini import GeminiParser, diagnose
from handrail.agents.transport.failures import Diagnosis
from handrail.agents.transport.parser import Ending
from handrail.model.events import (
    AgentMessage,
    AgentRetry,
)
from tests.agents.recorded import (
    NOW,
    Played,
    ending_of,
    of_type,
    play,
    turn_of,
)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("You have exhausted your daily quota on this model.", "usage_cap"),
        (
            '[API Error: {"error":{"code":429,"message":"You exceeded your current quota."}}]',
            "rate_limit",
        ),
        (
            '[API Error: {"error":{"code":429,"message":"Prepayment credits are depleted"}}]',
            "spending_cap",
        ),
        ('[API Error: {"error":{"code":503,"message":"quota, billing"}}]', "transient"),
        ("[API Error: fetch failed]", "transient"),
        ("You have exhausted your capacity on this model.", "usage_cap"),
        (
            '[API Error: {"error":{"code":429,"message":"Check plan and billing. Retry in 3s"}}]',
            "rate_limit",
        ),
        ('[API Error: {"error":{"code":429,"message":"no"}}]\nPlease wait, quota.', "rate_limit"),
        (
            '[API Error: {"error":{"code":403,"message":"This needs billing to be enabled."}}]',
            "spending_cap",
        ),
        ('[API Error: {"error":{"code":400,"message":"API key not found."}}]', "auth"),
        ("[API Error: Requested entity was not found.]", "bad_request"),
        ("", "transient"),
    ],
)
def test_messages_have_kinds(message: str, kind: str) -> None:
    """A daily quota opens again, money does not, and a server's error is one whatever it says."""
    assert diagnose({"type": "unknown", "message": message}, NOW).kind == kind


def test_a_type_counts_before_words() -> None:
    """An error with a type of its own is not read."""
    error = {"type": "FatalTurnLimitedError", "message": "quota"}
    assert diagnose(error, NOW) == Diagnosis("max_turns", "quota")


def said(*events: Any, ending: Ending | None = None) -> Played:
    """What is made of these events."""
    lines = "".join(f"{json.dumps(event)}\n" for event in events)
    return play(GeminiParser(turn_of()), [lines.encode()], ending or Ending(1, now=NOW))


def piece(text: str, **more: Any) -> dict[str, Any]:
    """A piece of what the model says."""
    return {"type": "message", "role": "assistant", "content": text, **more}


DONE = {"type": "result", "status": "success"}


def test_what_is_not_known_does_not_cut_a_text() -> None:
    """Warnings and events of newer versions may come between the pieces of an answer."""
    between = [{"type": "error", "severity": "warning", "message": "x"}, {"type": "new"}]
    assert said(piece("he"), *between, piece("llo"), DONE).reply.text == "hello"


def test_a_whole_message_is_told_once() -> None:
    """A message that comes in pieces and then whole is told in pieces; another one is another."""
    played = said(piece("he"), piece("llo"), piece("hello", delta=False), DONE)
    assert [one.text for one in of_type(played.notices, AgentMessage)] == ["he", "llo"]
    assert played.reply.text == "hello"
    assert said(piece("one", delta=False), piece("two", delta=False), DONE).reply.text == "two"


def test_an_error_inside_an_error_is_the_reason() -> None:
    """The API's words are found in the API's message too, and its delay in the details."""
    inner = {"error": {"code": 429, "message": "Slow.", "details": [{"retryDelay": "34s"}]}}
    outer = {"error": {"code": 429, "message": json.dumps(inner)}}
    error = {"type": "unknown", "message": f"[API Error: {json.dumps(outer)}]"}
    failed = said({"type": "result", "status": "error", "error": error}).error
    assert (failed.kind, failed.reason, failed.retry_at) == ("rate_limit", "Slow.", NOW + 34)


def test_a_cancellation_by_a_watchdog_is_a_timeout() -> None:
    """Gemini's word that it was cancelled is ours if we had asked for it."""
    error = {"type": "FatalCancellationError", "message": "Operation cancelled."}
    over = {"type": "result", "status": "error", "error": error}
    assert said(over).error.kind == "interrupted"
    assert said(over, ending=Ending(130, "idle_timeout", now=NOW)).error.kind == "timeout"


@pytest.mark.parametrize(
    ("status", "complaint", "tokens", "kind"),
    [
        ("success", "", 0, "refusal"),
        ("error", "The model returned an empty response with no text or thoughts.", 0, "refusal"),
        ("error", "The model returned an empty response with no text or thoughts.", 9, "transient"),
        ("error", "The model response was blocked due to safety settings.", 9, "refusal"),
        ("error", "The model response was blocked due to other policy settings.", 9, "refusal"),
        (
            "error",
            "Model response was truncated because it exceeded the token limit.",
            9,
            "output_limit",
        ),
    ],
)
def test_a_turn_without_an_answer_has_its_reason(
    status: str, complaint: str, tokens: int, kind: str
) -> None:
    """What is blocked is refused: to ask again does not help. Source: gemini 0.61's own words."""
    stats = {"input_tokens": 12, "output_tokens": tokens, "total_tokens": 12 + tokens}
    events = [{"type": "error", "severity": "error", "message": complaint}] if complaint else []
    error = said(*events, {"type": "result", "status": status, "stats": stats}).error
    assert error.kind == kind
    assert complaint in error.reason


def test_work_without_words_is_an_answer() -> None:
    """An agent that only used its tools, or whose tokens were counted, was not blocked."""
    use = {"type": "tool_use", "tool_id": "t", "tool_name": "n"}
    assert said(use, {"type": "tool_result", "tool_id": "t"}, DONE).reply.text == ""
    stats = {"input_tokens": 12, "output_tokens": 3, "total_tokens": 15}
    assert said({**DONE, "stats": stats}).reply.text == ""


def test_a_crash_has_the_last_complaint() -> None:
    """What gemini complained of before it went is part of the reason; it decides nothing."""
    error = said({"type": "error", "severity": "error", "message": "daily quota"}).error
    assert error.kind == "crashed"
    assert "daily quota" in error.reason
    assert said({"type": "result", "status": "error", "error": "daily quota"}).error.kind == (
        "usage_cap"
    )


def test_retries_are_read_from_stderr() -> None:
    """While it waits for a retry it may be silent for as long as it said."""
    parser = GeminiParser(turn_of())
    lines = ending_of("gemini", "rate_limit_retryable").stderr.encode().splitlines()
    retries = [notice for line in lines for notice in parser.feed_stderr(line)]
    assert of_type(retries, AgentRetry)[0] == AgentRetry(
        "s", 1, None, "You exceeded your current quota. Please retry in 3.2s"
    )
    assert parser.extra_silence_s > 5
    parser.feed(b'{"type": "message"}')
    assert parser.extra_silence_s == 0
