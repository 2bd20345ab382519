"""Names that are not there: what is told of the one that was meant."""

from __future__ import annotations

import copy
import pickle  # noqa: TID251  # what users may do to a result
from dataclasses import dataclass
from typing import Any

import pytest

from handrail import AgentResult, CommandResult, step
from tests.engine.support import same


@dataclass(frozen=True)
class Plan:
    """An answer."""

    goal: str


class Shy:
    """An answer whose attributes cannot be asked for."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("retires", "retry"),
        ("time_out", "timeout"),
        ("rollback", "with_rollback"),
        ("on_errors", "on_error"),
        ("check_point", "checkpoint"),
    ],
)
def test_a_misspelt_modifier_is_answered_with_the_near_one(name: str, meant: str) -> None:
    """Nobody forgot a `yield from` there."""
    with pytest.raises(AttributeError, match=rf"has no '{name}'\. Did you mean \.{meant}\(\)\?$"):
        getattr(step("a").call(same, 1), name)


@pytest.mark.parametrize("name", ["output", "stdout", "usage", "value", "goal", "__wrapped__"])
def test_a_step_taken_for_its_output_is_still_told_so(name: str) -> None:
    """What results have, and what is like no modifier, is asked of an output."""
    with pytest.raises(AttributeError, match="Did you forget `yield from`"):
        getattr(step("a").call(same, 1), name)


@pytest.mark.parametrize(
    ("output", "name", "said"),
    [
        (Plan("x"), "goal", r"no attribute 'goal'\. Its output has it: write \.output\.goal\."),
        ({"goal": 1}, "goal", r"Its output has such a key: write \.output\['goal'\]\."),
        (Plan("x"), "gaol", "no attribute 'gaol'$"),
    ],
)
def test_what_the_answer_has_is_not_the_results(output: Any, name: str, said: str) -> None:
    """The error says where it is, if it is there."""
    with pytest.raises(AttributeError, match=said):
        getattr(AgentResult(output), name)


def test_an_answer_that_cannot_be_asked_is_not() -> None:
    """What its class raises does not take the place of the error."""
    name = "goal"
    with pytest.raises(AttributeError, match=r"'AgentResult' object has no attribute 'goal'$"):
        _ = getattr(AgentResult(Shy()), name)


def test_a_result_is_still_copied_and_pickled() -> None:
    """What copies it asks for names before its fields are set."""
    result = AgentResult(Plan("x"), session="s")
    assert pickle.loads(pickle.dumps(result)) == copy.deepcopy(result) == copy.copy(result)
    assert not hasattr(result, "goals")
    assert not hasattr(AgentResult(CommandResult(0, "", "")), "nothing")
