"""When a program is ended for its silence, and when it is left alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.agents.transport.turn import Deadline, Patience, Signs, deadline, patience_of
from handrail.model.agent_options import AgentOptions

PATIENCE = Patience(start_s=60, idle_s=300, tool_s=1800, total_s=7200, grace_s=5)
MOMENTS = st.floats(min_value=0, max_value=10_000)


@pytest.mark.parametrize(
    ("signs", "expected"),
    [
        (Signs(started=10), Deadline(70, "start_timeout")),
        (Signs(started=10, heard=20), Deadline(320, "idle_timeout")),
        (Signs(started=10, heard=20, extra_s=40), Deadline(360, "idle_timeout")),
        (Signs(started=10, heard=20, open_tools=2), Deadline(1820, "idle_timeout")),
        (Signs(started=10, heard=7000), Deadline(7210, "timeout")),
        (Signs(started=10, heard=20, finished=20), Deadline(25, None)),
        (Signs(started=10, heard=8000, finished=8000, open_tools=1), Deadline(8005, None)),
    ],
)
def test_the_nearest_limit_ends_a_program(signs: Signs, expected: Deadline) -> None:
    """Start, silence, and total time count, whichever is first; one that is done only has to go."""
    assert deadline(PATIENCE, signs) == expected


@pytest.mark.parametrize(
    ("signs", "bound_s"),
    [
        (Signs(started=10), 60),
        (Signs(started=10, heard=20, extra_s=40), 340),
        (Signs(started=10, heard=20, open_tools=2), 1800),
        (Signs(started=10, heard=7000), 7200),
    ],
)
def test_a_limit_says_how_long_it_was(signs: Signs, bound_s: float) -> None:
    """The time that was allowed, which is what the error tells, not when it was over."""
    assert deadline(PATIENCE, signs).bound_s == bound_s


def test_without_a_total_a_busy_program_may_go_on() -> None:
    """No option, no limit in all: only its silence ends it."""
    signs = Signs(started=0, heard=1_000_000)
    assert deadline(Patience(), signs) == Deadline(1_000_300, "idle_timeout")


@given(heard=MOMENTS, later=MOMENTS, tools=st.integers(0, 3), extra_s=MOMENTS)
def test_a_sign_of_life_never_brings_the_end_nearer(
    heard: float, later: float, tools: int, extra_s: float
) -> None:
    """A program that was heard later, has a tool at work, or asked for time, has no less of it."""
    first, last = sorted((heard, later))
    before = deadline(PATIENCE, Signs(started=0, heard=first))
    after = deadline(PATIENCE, Signs(started=0, heard=last, open_tools=tools, extra_s=extra_s))
    assert before.at <= after.at


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (AgentOptions(), Patience(60, 300, 1800, None, 5)),
        (
            AgentOptions(start_timeout_s=1, idle_timeout_s=2, tool_timeout_s=3, timeout_s=4),
            Patience(1, 2, 3, 4, 5),
        ),
        (AgentOptions(idle_timeout_s=3600), Patience(60, 3600, 3600, None, 5)),
        (AgentOptions(idle_timeout_s=10), Patience(60, 10, 1800, None, 5)),
    ],
)
def test_the_options_say_how_long(options: AgentOptions, expected: Patience) -> None:
    """What is not said is usual, but a tool has never less time than a model that is silent."""
    assert patience_of(options) == expected
