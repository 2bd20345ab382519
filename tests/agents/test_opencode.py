"""A turn of opencode: how it is called, and what the lines that it prints mean."""

from __future__ import annotations

import json
from typing import Any

import pytest

from handrail.agents.opencode import (
    OpencodeParser,
    diagnose,
    retry_at_of,
)
from handrail.agents.transport.parser import Ending
from handrail.model.events import AgentPermission, AgentToolCompleted
from tests.agents.recorded import NOW, Aside, Played, of_type, play, turn_of


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
    assert diagnose({"name": name, "data": data}, NOW).kind == kind


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


def test_a_tool_that_is_not_allowed_is_a_wrong_setting() -> None:
    """It ends well by its own account, and another launch would end the same."""
    state = {"status": "error", "error": "The user rejected permission to use this tool."}
    use = {"type": "tool_use", "part": {"callID": "c", "tool": "bash", "state": state}}
    step = {"type": "step_finish", "part": {"reason": "tool-calls"}}
    error = said(use, step).error
    assert (error.kind, "rejected permission" in error.reason) == ("config", True)
    assert 'permission="full"' in error.hint
    assert said(use, step, STOPPED).reply.text == ""


WORDS = b"\x1b[93m! \x1b[0mpermission requested: bash (rm -r build); auto-rejecting"


@pytest.mark.parametrize(
    "state",
    [
        {"status": "error", "error": "The user rejected permission to use this tool."},
        {"status": "error", "error": "a rule which prevents you from using this tool"},
        {"status": "rejected"},
        {"status": "error", "error": "it did not work"},
    ],
)
@pytest.mark.parametrize("order", ["first", "last", "never"])
def test_a_rejected_tool_is_told_once(state: dict[str, Any], order: str) -> None:
    """Stderr tells it before or after the tool's own event, or one of the two alone does."""
    is_known = state.get("error") != "it did not work"
    use = {"type": "tool_use", "part": {"callID": "c", "tool": "bash", "state": state}}
    lines = [json.dumps(use).encode() + b"\n", json.dumps(STOPPED).encode() + b"\n"]
    aside = {"first": [Aside(WORDS), *lines], "last": [*lines, Aside(WORDS)], "never": lines}
    played = play(OpencodeParser(turn_of()), aside[order], Ending(0, now=NOW))
    expected = ["denied"] if is_known or order != "never" else []
    assert [one.decision for one in of_type(played.notices, AgentPermission)] == expected
    assert played.reply.denials == ("bash",) * len(expected)
    assert [one.ok for one in of_type(played.notices, AgentToolCompleted)] == [False]


def test_another_session_is_no_part_of_the_turn() -> None:
    """Neither the answer nor the end of an agent that this one started is its own."""
    text = {"type": "text", "part": {"text": "mine"}}
    other = {"sessionID": "p", "type": "text", "part": {"text": "theirs"}}
    assert said(text, {**STOPPED, "sessionID": "p"}).error.kind == "crashed"
    assert said(text, other, STOPPED).reply.text == "mine"
