"""What a recorded value is compared with: the arguments and items of today, and what it was."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from handrail import (
    Executor,
    MemoryJournal,
    ReplayMismatch,
    Step,
    Steps,
    Unresolvable,
    Unresolved,
    step,
    workflow,
)
from handrail.model import events as ev
from handrail.testing import TextJournal
from tests.engine.support import RUN, Boom, boom, same


def in_order(order: str) -> dict[str, int]:
    """A dict that is filled in this order, as one that is made from a set is."""
    return {name: ord(name) for name in order}


async def test_arguments_and_items_in_another_order_are_the_same() -> None:
    """A dict that was filled in another order is no change of a step, or of an item; another value
    in it is.
    """
    drives: list[str] = []

    @workflow
    def flow(*, order: str = "ab", fails: bool = True) -> Steps[Any]:
        def member(item: dict[str, int]) -> Step[Any]:
            return step("m").call(same if item or not fails else boom)

        yield from step("args").call(same, {1: in_order(order), "x": {"y"}})
        yield from step("kwargs").call(same, value=[in_order(order)])
        drives.append(order)
        yield from step("items").for_each([in_order(order), {}], member, max_concurrency=1)

    journal = TextJournal()
    await Executor(journal=journal).options(run_id=RUN).run(flow)
    with pytest.raises(ReplayMismatch) as refused:
        await Executor(journal=journal).resume(RUN, other(flow, order="ac"))
    assert [change.path for change in refused.value.changes] == ["args", "kwargs", "items/0"]
    result = await Executor(journal=journal).resume(RUN, other(flow, order="ba", fails=False))
    assert (result.status, drives) == ("succeeded", ["ab", "ac", "ba"])


def other(flow: Any, **values: Any) -> Any:
    """The workflow as if its code had these defaults."""

    @workflow(name=flow.definition.name)
    def changed() -> Steps[Any]:
        return (yield from flow.definition.function(**values))

    return changed


# -- outputs that are changed in place ------------------------------------------------------------


@dataclass
class Board:
    """A mutable value."""

    notes: list[str]
    by: dict[str, list[int]]


def board() -> Board:
    """A value with parts that can change."""
    return Board(["a"], {"x": [1]})


def grow(value: Any, *_: Any) -> None:
    """Add an item in place."""
    value.append("b")


async def agrow(value: Any) -> None:
    """The same, on the loop."""
    value.append("b")


def grow_and_fail(value: Any) -> None:
    """Add an item, and fail."""
    value.append("b")
    raise Boom


class Holder:
    """A thing of the user's, whose method is an action."""

    def __init__(self, board: Board) -> None:
        self.board = board

    def grow(self) -> None:
        """Add an item in place."""
        grow(self.board.notes)


def twice(held: dict[str, Board]) -> Callable[[], None]:
    """A function in which another one holds the value, in a dict."""

    def inner() -> None:
        grow(held["it"].notes)

    def outer() -> None:
        inner()

    return outer


CHANGES: dict[str, tuple[Callable[[Board], Step[Any]], str]] = {
    "argument": (lambda b: step("x").call(grow, b.notes), ".notes[1]"),
    "on the loop": (lambda b: step("x").call(agrow, b.notes), ".notes[1]"),
    "inline": (lambda b: step("x").call(grow, b.notes).inline(), ".notes[1]"),
    "whole": (lambda b: step("x").call(lambda one: one.by.clear(), b), ".by['x']"),
    "keyword": (lambda b: step("x").python(grow, kwargs={"value": b.by["x"]}), ".by['x'][1]"),
    "wrapped": (lambda b: step("x").call(lambda one: grow(one[0]), (b.notes,)), ".notes[1]"),
    "enclosed": (lambda b: step("x").call(lambda: grow(b.notes)), ".notes[1]"),
    "bound": (lambda b: step("x").call(Holder(b).grow), ".notes[1]"),
    "its own method": (lambda b: step("x").call(b.notes.append, "b"), ".notes[1]"),
    "partial": (lambda b: step("x").call(partial(grow, b.notes)), ".notes[1]"),
    "enclosed twice": (lambda b: step("x").call(twice({"it": b})), ".notes[1]"),
    "default": (lambda b: step("x").call(lambda one=b.notes: grow(one)), ".notes[1]"),
    "retried": (lambda b: step("x").call(grow_and_fail, b.notes).retry(3), ".notes[1]"),
    "handled": (lambda b: step("x").call(grow, b.notes).default(None), ".notes[1]"),
}


@pytest.mark.parametrize("journal", [TextJournal, MemoryJournal])
@pytest.mark.parametrize("how", CHANGES)
async def test_an_action_that_changes_an_output_in_place_fails(how: str, journal: Any) -> None:
    """The error names both steps and the place; a resume goes on with what is recorded."""
    changing, place = CHANGES[how]

    @workflow
    def flow() -> Steps[Any]:
        made = yield from step("make").call(board)
        yield from changing(made)

    result = await Executor(journal=journal(), durable=True).run(flow)
    told = next(one for one in result.step_results if one.path == "x")
    if how == "handled":
        assert result.success
        return
    assert (result.failed_step, told.attempts) == ("x", 1)
    assert told.error_type == "handrail.errors.OutputChanged"
    assert f"what step 'make' returned: its output{place}." in (told.error or "")


async def test_what_a_function_holds_may_refuse_to_be_looked_at() -> None:
    """As a proxy does outside of its request: the action runs, unwatched."""

    class Proxy:
        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError(name)

    proxy = Proxy()

    @workflow
    def flow() -> Steps[Any]:
        yield from step("make").call(board)
        return (yield from step("x").call(lambda: type(proxy).__name__))

    assert (await Executor(journal=TextJournal()).run(flow)).value == "Proxy"


async def test_what_no_record_has_may_be_changed() -> None:
    """A list of the body's own, a copy, and outputs that are only passed on."""

    @workflow
    def flow() -> Steps[Any]:
        made = yield from step("make").call(board)
        own: list[Any] = [made]
        yield from step("own").call(grow, own)
        yield from step("copy").call(grow, list(made.notes))
        yield from step("pass").call(same, made)
        yield from step("enclosed").call(lambda: len(made.notes))
        yield from step("new").call(lambda: grow(own))
        return len(own)

    for journal in (TextJournal(), MemoryJournal()):
        result = await Executor(journal=journal, durable=True).run(flow)
        assert (result.status, result.value) == ("succeeded", 3), result.error
    assert (await Executor().run(in_memory)).success


@workflow
def in_memory() -> Steps[Any]:
    """Changes an output where nothing is to be durable."""
    made = yield from step("make").call(board)
    yield from step("x").call(grow, made.notes)


@workflow
def takes(plan: Any) -> Steps[Any]:
    """Give the input."""
    return (yield from step("same").call(same, plan))


@pytest.mark.parametrize(
    ("tag", "said"),
    [
        (
            "flows:Plan",
            "Import its module before the run is resumed, or declare it as the type of ",
        ),
        (f"{__name__}:Misfit", "Change the class so that what was recorded fits it again "),
    ],
)
async def test_an_input_that_cannot_be_read_is_named_with_what_helps(tag: str, said: str) -> None:
    """No step is to be run again for it."""
    journal = TextJournal()
    recorded = {"plan": Unresolved(f'{{"$":"{tag}","title":"t"}}', tag)}
    journal.append_run([ev.stamp(ev.WorkflowStarted("takes", recorded), "r", 1, 1.0)])
    with pytest.raises(Unresolvable) as caught:
        await Executor(journal=journal).resume("r", takes)
    text = str(caught.value)
    assert text.startswith(f"input 'plan': a recorded value of {tag} cannot be read: ")
    assert said in text
    assert "step" not in text
    assert str(copy.copy(caught.value)) == text


@dataclass
class Misfit:
    """A class that requires more than was recorded."""

    added: int
    title: str
