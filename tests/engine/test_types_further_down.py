"""Inputs whose type is defined further down in the module, or only for type checkers."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from handrail import Executor, InvalidInput, SqliteJournal, Steps, step, workflow

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForCheckers


@workflow
def bare(order: Later) -> Steps[str]:
    """A class that is not there yet."""
    yield from step("a").call(int)
    return type(order).__name__


@workflow
def inside(order: list[Later]) -> Steps[str]:
    """In a list."""
    yield from step("a").call(int)
    return type(order[0]).__name__


@workflow
def maybe(order: Annotated[Later | None, "an order"] = None) -> Steps[str]:
    """In a union, with a description."""
    yield from step("a").call(int)
    return type(order).__name__


@workflow
def rest(*order: Later) -> Steps[str]:
    """Any number of them."""
    yield from step("a").call(int)
    return type(order[0]).__name__


@workflow
def parent(order: Any) -> Steps[Any]:
    """As the input of a child."""
    return (yield from step("child").subworkflow(bare, {"order": order})).value


@workflow
def unknown(amount: OnlyForCheckers, count: int) -> Steps[Any]:
    """A type that is not there when the program runs."""
    yield from step("a").call(int)
    return amount


EARLY = {flow.definition.name: flow.definition for flow in (bare, inside, maybe, rest)}


@dataclass
class Later:
    size: int


FLOWS: dict[str, tuple[Any, Any, Any]] = {
    "bare": (bare, {"size": 3}, {"size": "no"}),
    "in a list": (inside, [{"size": 3}], [{"size": "no"}]),
    "in a union": (maybe, {"size": 3}, {"size": "no"}),
    "any number": (rest, {"size": 3}, {"size": "no"}),
    "of a child": (parent, {"size": 3}, {"size": "no"}),
}


@pytest.mark.parametrize("stored", ["memory", "SQLite"])
@pytest.mark.parametrize("case", FLOWS)
async def test_a_class_further_down_is_found_at_the_first_call(
    case: str, stored: str, tmp_path: Path
) -> None:
    """The input is converted to it, and what does not fit is refused."""
    flow, fits, does_not = FLOWS[case]
    journal = SqliteJournal(tmp_path / "runs.db") if stored == "SQLite" else None
    async with Executor(journal=journal) as executor:
        assert (await executor.run(flow, fits)).value == "Later"
        if case == "of a child":
            assert "size" in ((await executor.run(flow, does_not)).error or "")
            return
        with pytest.raises(InvalidInput, match="size"):
            await executor.run(flow, does_not)


def test_a_description_names_the_class_too() -> None:
    """What is asked before a run is what the run will check."""
    assert EARLY["bare"].parameters[0].annotation is Any
    assert bare.definition.parameters[0].annotation is Later
    assert maybe.definition.parameters[0].description == "an order"
    assert "size" in str(bare.describe()["parameters"][0]["annotation"])


async def test_a_type_that_is_never_found_is_told_once() -> None:
    """The warning names the input and what is written there; the other inputs are checked."""
    flow: Any = unknown
    with pytest.warns(UserWarning, match=r"amount: 'OnlyForCheckers' cannot be found") as told:
        assert (await Executor().run(flow, "3", 1)).value == "3"
    assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(InvalidInput, match="count"):
            await Executor().run(flow, "3", "many")
