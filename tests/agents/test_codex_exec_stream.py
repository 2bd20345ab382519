"""What the lines of ``codex exec --json`` mean."""

from __future__ import annotations

import json
from typing import Any

import pytest

from handrail.agents.codex.exec import CodexExecParser
from handrail.agents.transport.parser import Ending
from handrail.model.events import (
    AgentCompaction,
    AgentMessage,
    AgentPermission,
    AgentRetry,
    AgentToolCompleted,
)
from handrail.model.results import Usage
from handrail.ports.agent import AgentTurn
from tests.agents.recorded import (
    NOW,
    Played,
    ending_of,
    of_type,
    play,
    recorded,
    turn_of,
)

ONE_CALL = Usage(1200, 25, cached_tokens=400, cache_write_tokens=0, reasoning_tokens=10)
TWO_CALLS = Usage(2400, 50, cached_tokens=800, cache_write_tokens=0, reasoning_tokens=20)


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


def test_a_resumed_thread_tells_what_was_added() -> None:
    """Codex tells a thread's total: the turn's part is the difference, unknown if the start is."""
    session = "01a1ffdc-d993-7611-b178-6972d692ba67"
    known = read("resume_2", turn_of(session=session, session_usage=ONE_CALL)).reply
    assert (known.usage, known.session_usage) == (ONE_CALL, TWO_CALLS)
    unknown = read("resume_2", turn_of(session=session)).reply
    assert (unknown.usage, unknown.session_usage) == (None, TWO_CALLS)
    half = read("resume_2", turn_of(session=session, session_usage=Usage(1200))).reply
    assert half.usage == Usage(1200)


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


def test_half_characters_are_made_whole() -> None:
    """Half a surrogate pair, which cannot be written down, becomes a replacement."""
    played = say({"type": "item.completed", "item": {"type": "agent_message", "text": "a\ud83d"}})
    [message] = of_type(played.notices, AgentMessage)
    assert message.text.encode() in (b"a?", "a\ufffd".encode())
