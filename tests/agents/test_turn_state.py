"""What every reader of a program's protocol has of the turn that it reads."""

from __future__ import annotations

from typing import Any

import pytest

from handrail.agents.transport.failures import Diagnosis
from handrail.agents.transport.parser import Ending
from handrail.agents.transport.programs import CODEX, COPILOT, Program
from handrail.agents.transport.turn_state import TurnState, added_since, usage_in
from handrail.model.events import AgentPermission, AgentToolCompleted, AgentToolStarted
from handrail.model.results import Usage
from tests.agents.recorded import turn_of


def state(program: Program = CODEX, **turn: Any) -> TurnState:
    """The state of a turn in which nothing was heard yet."""
    return TurnState(turn_of(**turn), program, model="m")


def test_a_session_is_told_once_for_each_name() -> None:
    """A program may name it in each of its lines, or find another name in the end."""
    one = state()
    told = [notice for name in ("", "a", "a", "", "b") for notice in one.session_named(name)]
    assert [(each.session, each.backend, each.model) for each in told] == [  # type: ignore[union-attr]
        ("a", "codex", "m"),
        ("b", "codex", "m"),
    ]
    assert one.known_session == "b"


@pytest.mark.parametrize(
    ("turn", "known"),
    [({}, None), ({"session": "old"}, "old"), ({"session": "old", "fork": True}, None)],
)
def test_a_launch_that_said_nothing_has_the_session_that_it_was_to_go_on_in(
    turn: Any, known: str | None
) -> None:
    """What was to be gone on in can still be; a copy that was not made is not known."""
    assert state(**turn).error("crashed", "x").session == known
    assert state(**turn).unfinished(Ending(1)).session == known


def test_a_tool_begins_and_ends_once() -> None:
    """However often a call is told, also after its end; one without a name cannot be counted."""
    one = state()
    told = [*one.tool_started("1", "ls", {}), *one.tool_started("1", "ls", {})]
    assert (told, one.open_tools) == ([AgentToolStarted("s", "1", "ls", {})], 1)
    ends = [end for _ in range(2) for end in one.tool_ended("1", is_ok=True, output="x")]
    assert ends == [AgentToolCompleted("s", "1", "ls", True, "x")]
    assert [*one.tool_started("1", "ls", {}), *one.tool_ended("2", is_ok=True, output="")] == []
    assert len([*one.tool_started("", "a", None), *one.tool_started("", "a", None)]) == 2
    assert one.open_tools == 0
    assert len(list(one.tool_ended("", is_ok=True, output=""))) == 1


def test_what_was_denied_is_the_replys() -> None:
    """A denial is told, and named in the answer."""
    one = state()
    assert one.denied("shell", "no") == AgentPermission("s", "shell", "denied", "no")
    assert one.reply(text="done").denials == ("shell",)


@pytest.mark.parametrize(
    ("program", "ending"),
    [
        (CODEX, Ending(1, stderr="Error: no rollout found for thread id old")),
        (COPILOT, Ending(1, stderr="Error: No session, task, or name matched 'old'.")),
        (COPILOT, Ending(1, stderr="Error: Session not found: old")),
        (COPILOT, Ending(1, stderr="Error: No session found")),
    ],
)
def test_a_session_that_is_not_there_is_a_bad_request(program: Program, ending: Ending) -> None:
    """Whatever the program's words on stderr, if it did not get further and was to go on in one."""
    error = state(program, session="old").unfinished(ending)
    assert (error.kind, error.session, "'old'" in error.reason) == ("bad_request", None, True)
    assert state(program).unfinished(ending).kind == "config"
    begun = state(program, session="old")
    begun.saw_protocol = True
    assert begun.unfinished(ending).kind == "crashed"


def test_what_we_have_stopped_is_ours() -> None:
    """An interruption of which the program tells was ours if we had asked for it."""
    told = Diagnosis("interrupted", "aborted")
    idle = Ending(0, "idle_timeout", after_s=9)
    assert state().failed(told, Ending(0)).kind == "interrupted"
    assert state().failed(told, idle).kind == "timeout"
    assert state().stopped(Ending(0)).reason == "codex was interrupted"
    assert (state().stopped(idle).kind, state().stopped(Ending(0)).kind) == (
        "timeout",
        "interrupted",
    )


def test_a_session_has_used_what_it_had_and_the_turn() -> None:
    """Where a program tells the turn's counts, unknown if what went before is."""
    for turn, total in (
        ({}, Usage(3, 1)),
        ({"session": "x", "session_usage": Usage(2, 2)}, Usage(5, 3)),
        ({"session": "x"}, None),
    ):
        one = state(**turn)
        one.usage = Usage(3, 1)
        assert one.summed_usage == total


def test_counts_are_read_by_their_names() -> None:
    """What is no count is unknown; none at all is nothing."""
    told = {"in": 5, "out": -1, "cached": True}
    names = {"input_tokens": "in", "output_tokens": "out", "cached_tokens": "cached"}
    assert usage_in(told, **names) == Usage(5)
    assert usage_in({"other": 1}, **names) is None


@pytest.mark.parametrize(
    ("before", "total", "added"),
    [
        (Usage(10, 2, 0.5), Usage(15, 3, 0.75), Usage(5, 1, 0.25)),
        (None, Usage(15, 3), None),
        (Usage(), Usage(15, 3), None),
        (Usage(10), Usage(15, 3), Usage(5)),
        (Usage(10, 2), Usage(4, 3), Usage(4, 1)),
    ],
)
def test_a_turn_used_what_was_added(
    before: Usage | None, total: Usage, added: Usage | None
) -> None:
    """The difference of two totals, field by field: unknown where the first is, never below 0."""
    assert added_since(before, total) == added
