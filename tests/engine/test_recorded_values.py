"""What a recorded value is compared with: the arguments and items of today, and what it was."""

from __future__ import annotations

from typing import Any

import pytest

from handrail import (
    Executor,
    ReplayMismatch,
    Step,
    Steps,
    step,
    workflow,
)
from handrail.testing import TextJournal
from tests.engine.support import RUN, boom, same


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
