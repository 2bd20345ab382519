"""How a run begins: its id, its inputs, and what becomes of a run that there is already."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Annotated, Any

import pytest

from handrail import (
    Executor,
    InputsDiffer,
    InvalidInput,
    MemoryJournal,
    RunIdTaken,
    Steps,
    Workflow,
    WrongUse,
    step,
    workflow,
)
from handrail.testing import FakeAgent, ProcessGone, Script, TextJournal
from tests.engine.support import RUN, boom, same

# -- ids -------------------------------------------------------------------------------------------


async def test_an_id_is_drawn_again_where_it_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The id of a run says its workflow and when it began, and is that of no other run."""

    @workflow
    def ship() -> Steps[int]:
        return (yield from step("a").call(same, 1))

    drawn = [b"\1\2\3\4", b"\1\2\3\4", b"\5\6\7\x08"]
    monkeypatch.setattr(os, "urandom", lambda _: drawn.pop(0))
    executor = Executor(journal=MemoryJournal(), clock=Stopped())
    first, second = await executor.run(ship), await executor.run(ship)
    assert first.run_id == "ship-261123-114530-01020304"
    assert second.run_id == "ship-261123-114530-05060708"


class Stopped:
    """A clock that stands."""

    def now(self) -> float:
        """A moment of November 2026."""
        return 1795434330.0

    async def wait(self, event: Any, until: float | None, *, busy: int) -> None:
        """Wait for the event."""
        del until, busy
        await event.wait()

    async def sleep(self, seconds: float) -> None:
        """Pass no time."""


# -- inputs ----------------------------------------------------------------------------------------


@dataclass
class Order:
    id: int


@workflow
def typed(
    order: Order,
    *rest: int,
    where: Annotated[Path, "the folder"] = Path(),
    agent: FakeAgent | None = None,
    **more: float,
) -> Steps[Any]:
    """Gives its inputs as it got them."""
    yield from step("a").call(same)
    return order, rest, where, agent, more


def test_inputs_from_python_are_of_the_annotated_types() -> None:
    """Data is converted as on the command line; what is of the type passes as it is."""
    order, where = Order(1), Path("x")
    made = Executor().run_sync(typed, order, 1, 2, where=where, more=1.5).value
    assert made == (order, (1, 2), where, None, {"more": 1.5})
    assert (made[0] is order, made[2] is where) == (True, True)
    given: Any = {"order": {"id": 3}, "where": "y", "x": 2}
    assert Executor().run_sync(typed, **given).value == (Order(3), (), Path("y"), None, {"x": 2.0})
    loose: Any = typed
    by_hand = Script(loose, {"id": 3})
    by_hand.expect("a").returns(None)
    assert by_hand.finish().value[0] == Order(3)


@pytest.mark.parametrize(
    ("args", "kwargs", "text"),
    [
        (({"id": "x"},), {}, r"'order': got \{'id': 'x'\}, expected Order"),
        ((Order(1), "x"), {}, "'rest': got 'x', expected int"),
        ((Order(1),), {"where": 3}, "'where': got 3, expected Path"),
        ((Order(1),), {"x": object()}, "'x': got <object .*>, expected float"),
    ],
)
def test_a_wrong_input_is_refused_before_anything_runs(args: Any, kwargs: Any, text: str) -> None:
    """The error names the input, its value and the type, for every way to begin."""
    journal = MemoryJournal()
    executor = Executor(journal=journal)
    ways: list[Callable[[], Any]] = [
        lambda: executor.run_sync(typed, *args, **kwargs),
        lambda: executor.stream(typed, *args, **kwargs),
        lambda: Script(typed, *args, **kwargs),
    ]
    for way in ways:
        with pytest.raises(InvalidInput, match=text):
            way()
    assert not journal.runs()


def test_a_test_double_may_stand_for_what_is_no_data() -> None:
    """An object that only acts like the annotated class is taken."""

    class Stub:
        pass

    stub: Any = Stub()
    assert Executor().run_sync(typed, stub, agent=stub).value[:1] == (stub,)


# -- a run that there is already -------------------------------------------------------------------


def counted(acts: list[str], *, fails: bool = False) -> Workflow[..., Any]:
    """A workflow that may break off after its first step."""

    def act(name: str) -> str:
        acts.append(name)
        return name

    @workflow(name="counted")
    def flow(order: int, *, note: str = "") -> Steps[Any]:
        yield from step("first").call(act, f"first {order}{note}")
        yield from step("second").call(boom if fails else act, "second")
        return order

    return flow


async def test_a_run_is_started_or_gone_on_with_by_one_call() -> None:
    """Begun, broken off, gone on with, asked again: each step is performed once."""
    acts: list[str] = []
    journal = TextJournal(stop_at=3)
    with pytest.raises(ProcessGone):
        await once(journal, counted(acts), 7)
    journal = journal.reopened()
    result = await once(journal, counted(acts), 7)
    assert (result.status, result.value, acts.count("first 7")) == ("succeeded", 7, 1)
    again = await once(journal, counted(acts), 7)
    assert (again.status, again.value, again.run_id) == ("succeeded", 7, RUN)
    assert acts.count("second") == 1
    async with (
        Executor(journal=journal)
        .options(run_id=RUN, existing="go_on")
        .stream(counted(acts), 7) as run
    ):
        assert [event async for event in run] == []
    assert run.result.value == 7


async def once(journal: Any, flow: Any, *args: Any, **kwargs: Any) -> Any:
    """Start the run, or go on with it."""
    executor = Executor(journal=journal).options(run_id=RUN, existing="go_on")
    return await executor.run(flow, *args, **kwargs)


async def test_a_run_that_failed_has_ended() -> None:
    """Its recorded result is given; it goes on where it is resumed."""
    acts: list[str] = []
    journal = MemoryJournal()
    for _ in range(2):
        result = await once(journal, counted(acts, fails=True), 7)
        assert (result.status, result.value, acts) == ("failed", None, ["first 7"])
    assert (await Executor(journal=journal).resume(RUN, counted(acts))).success


@pytest.mark.parametrize(
    ("args", "kwargs", "text"),
    [
        ((8,), {}, "started with order=7, not 8"),
        ((7,), {"note": "!"}, "started with note='', not '!'"),
    ],
)
async def test_other_inputs_than_the_recorded_ones_are_refused(
    args: Any, kwargs: Any, text: str
) -> None:
    """One id is one run: another order under it is a mistake; a default that changed is none."""
    journal, acts = MemoryJournal(), list[str]()
    await once(journal, counted(acts), 7)
    with pytest.raises(InputsDiffer, match=re.escape(text)):
        await once(journal, counted(acts), *args, **kwargs)
    assert acts == ["first 7", "second"]


async def test_what_cannot_be_gone_on_with_is_said() -> None:
    """Without the option the id is taken; another workflow, and a wrong option, are mistakes."""
    journal = MemoryJournal()
    await once(journal, counted([]), 7)
    with pytest.raises(RunIdTaken):
        await Executor(journal=journal).options(run_id=RUN).run(counted([]), 7)
    with pytest.raises(WrongUse, match="of workflow 'counted', not of 'typed'"):
        await once(journal, typed, Order(1))
    wrong: Any = "resume"
    with pytest.raises(WrongUse, match='"refuse" or "go_on"'):
        Executor().options(run_id=RUN, existing=wrong)
    with pytest.raises(WrongUse, match="needs a run"):
        Executor().options(existing="go_on")


def test_two_workflows_of_one_name_are_refused() -> None:
    """By its name a run is resumed: the second would resume the first one's runs."""
    with pytest.raises(WrongUse, match=r"two workflows are named 'counted' \(.*test_starting.py:"):
        Executor(workflows=[counted([]), typed, counted([])])
    flow = counted([])
    Executor(workflows=[flow, flow, typed])


async def test_a_workflow_with_the_name_of_another_one_is_refused() -> None:
    """A resume by that name would take the other's code; a later version is the same workflow."""

    @workflow("counted")
    def other() -> Steps[Any]:
        yield from step("a").ask("?", choices=["yes", "no"])

    executor = Executor(workflows=[counted([])]).options(run_id=RUN)
    with pytest.raises(WrongUse, match=r"two workflows are named 'counted' \(.*test_starting.py:"):
        await executor.run(other)
    with pytest.raises(WrongUse, match="two workflows are named"):
        executor.stream(other)
    assert (await executor.run(counted([]), 7)).success
    elsewhere = FunctionType(other.definition.function.__code__.replace(co_filename="b.py"), {})
    elsewhere.__module__ = "b"
    for reach in (executor.resume, executor.plan, executor.cancel):
        with pytest.raises(WrongUse, match=r"test_starting.py:\d+ and b.py:\d+"):
            await reach(RUN, workflow=workflow("counted")(elsewhere))
