"""Workflows that Hypothesis draws, run for real: the engine does what the core says."""

from __future__ import annotations

from typing import Any, get_args

import anyio
import pytest
from hypothesis import Phase, given, settings

from handrail import Executor, MemorySink, WorkflowResult
from handrail.model import events as ev
from handrail.model.events import Event
from handrail.testing import JumpClock, strategies
from handrail.testing.shapes import (
    Act,
    Ask,
    Body,
    Child,
    Choice,
    Each,
    Held,
    Listen,
    Nap,
    Race,
    Raise,
    Rounds,
    Shape,
    Together,
    Try,
    What,
    tree_key,
    workflow_of,
)
from tests.testing import laws
from tests.testing.by_hand import drive, essence

pytestmark = pytest.mark.usefixtures("outside_git")

ASYNCIO_AND_TRIO = pytest.mark.parametrize(
    "backend", ["asyncio", pytest.param("trio", marks=pytest.mark.extra("trio"))]
)
some = settings(max_examples=settings().max_examples * 3 // 10)  # of what the profile says


def run(body: Body, backend: str) -> tuple[WorkflowResult[Any], list[Event]]:
    """Run a shape on an executor, answering its questions and sending its signals."""
    sink = MemorySink()
    executor = Executor(clock=JumpClock(), sinks=[sink], gates=lambda gate: "yes", linger_s=60)

    async def whole() -> WorkflowResult[Any]:
        async with executor.stream(workflow_of(body)) as running:
            async for event in running:
                if isinstance(event, ev.StepStarted) and event.step_type == "wait_for":
                    running.signal("go", "signal")
        return running.result

    result = anyio.run(whole, backend=backend)
    return result, [event for event in sink.events if isinstance(event, Event)]


@ASYNCIO_AND_TRIO
@some
@given(body=strategies.bodies(timeless=True))
def test_an_executor_gives_what_the_core_gives(body: Body, backend: str) -> None:
    """A workflow ends as it does when it is driven by hand, and the laws of events hold."""
    result, events = run(body, backend)
    assert essence(result) == essence(drive(body).result)
    laws.numbered_without_a_hole(events)
    laws.one_end_and_nothing_after_it(events)
    laws.results_in_tree_order(events, result)


@ASYNCIO_AND_TRIO
@some
@given(body=strategies.bodies())
def test_the_laws_hold_for_an_executor(body: Body, backend: str) -> None:
    """With races, timeouts and groups that stop early, every law of events holds."""
    result, events = run(body, backend)
    laws.numbered_without_a_hole(events)
    laws.one_start_and_one_end(events)
    laws.children_inside_their_parents(events)
    laws.one_end_and_nothing_after_it(events)
    laws.results_in_tree_order(events, result)
    laws.groups_count_their_members(events)
    undoable = {one.path for one in events if isinstance(one, ev.StepStarted) and one.rollback}
    laws.rolled_back_in_reverse(events, result, undoable)


EVERYTHING = Body(
    (
        Shape(Act(1), attempts=2, rollback="succeeds"),
        Shape(Together((Shape(Act()), Shape(Nap(1))), window=1)),
        Shape(Each((Shape(Act()), Body((Shape(Act()), Shape(Listen())))))),
        Shape(Race((Shape(Act()), Shape(Ask())))),
        Shape(Rounds((0, 1), 1, Shape(Act()))),
        Shape(Choice(((False, Shape(Act())), (True, Shape(Act()))))),
        Shape(Child(Body((Try((Raise(),), (Shape(Act()),), "everything", (Shape(Act()),)),)))),
        Shape(Act(9), fallback=Shape(Act())),
        Shape(Act(9), settle="default", timeout_s=5.0),
        Shape(Act(), when=False),
        Shape(Held("name", Body((Shape(Act(1), attempts=2, holds="name"),))), holds="other"),
    )
)


@ASYNCIO_AND_TRIO
def test_a_shape_is_the_workflow_that_it_describes(backend: str) -> None:
    """Each kind of statement, verb and modifier does what it says, at its place."""
    result, _ = run(EVERYTHING, backend)
    statuses = {one.path: one.status for one in result.step_results}
    racers = {statuses.pop("3/0"), statuses.pop("3/1")}
    assert racers == {"succeeded", "cancelled"}  # who is faster is the loop's affair
    assert statuses == {
        "0": "succeeded",
        "1": "succeeded",
        "1/0": "succeeded",
        "1/1": "succeeded",
        "2": "succeeded",
        "2/0/0": "succeeded",
        "2/1/0": "succeeded",
        "2/1/1": "succeeded",
        "3": "succeeded",
        "4": "succeeded",
        "4/1/c0": "succeeded",
        "4/1/c1": "failed",
        "4/1/fix": "succeeded",
        "4/2/c0": "succeeded",
        "4/2/c1": "succeeded",
        "5": "succeeded",
        "5/1": "succeeded",
        "6": "succeeded",
        "6/0e0": "succeeded",
        "6/0f0": "succeeded",
        "7": "succeeded",
        "7/o": "succeeded",
        "8": "defaulted",
        "9": "skipped",
        "10": "succeeded",
        "10/0": "succeeded",
    }
    assert list(statuses) == sorted(statuses, key=tree_key)
    assert result.value[0] == "0#2"


def test_every_verb_is_drawn() -> None:
    """Each kind of step is among the shapes that are drawn."""
    seen = set[type[Any]]()

    @settings(phases=[Phase.generate], max_examples=300)
    @given(strategies.shapes(agents=True))
    def look(shape: Shape) -> None:
        seen.add(type(shape.what))

    look()
    assert seen == set(get_args(What))


def test_what_is_timeless_has_no_race() -> None:
    """Shapes whose result must not depend on time hold nothing that time decides."""

    @given(strategies.bodies(timeless=True))
    def holds(body: Body) -> None:
        said = repr(body)
        assert "Race(" not in said
        assert "'fail_fast'" not in said or "members=()" in said
        assert "timeout_s=1" not in said

    holds()


def test_what_does_not_wait_asks_nobody() -> None:
    """Shapes that are drawn without waits have no question, signal or sleep."""

    @given(strategies.bodies(waits=False))
    def holds(body: Body) -> None:
        said = repr(body)
        assert not any(wait in said for wait in ("Ask(", "Nap(", "Listen("))

    holds()
