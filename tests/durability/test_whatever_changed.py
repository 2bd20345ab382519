"""One argument of a workflow is edited, at any depth: no stale value is in a result."""

from __future__ import annotations

import functools
import itertools
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from handrail import (
    BranchResult,
    Executor,
    Found,
    ReplayMismatch,
    SqliteJournal,
    Step,
    StepResult,
    Steps,
    Task,
    Work,
    WorkflowResult,
    scope,
    step,
    workflow,
)

Shape: TypeAlias = tuple[str, tuple[Any, ...]]
"""A kind of step, and the shapes of those in it."""
Args: TypeAlias = Mapping[str, int]
"""The argument of each place of a workflow."""

KINDS = (
    *("each", "closure", "bound", "returns", "mapping", "record", "index", "collects", "work"),
    *("child", "scope", "parallel", "race", "branch", "retried", "fallback"),
)


@dataclass(frozen=True)
class Item:
    """An item with a field."""

    name: str
    number: int


def shapes() -> st.SearchStrategy[Shape]:
    """Workflows of a few steps, up to four deep."""
    leaf: st.SearchStrategy[Shape] = st.just(("leaf", ()))
    return st.recursive(
        leaf,
        lambda inner: st.tuples(
            st.sampled_from(KINDS), st.lists(inner, min_size=1, max_size=2).map(tuple)
        ),
        max_leaves=5,
    )


def places(shape: Shape, at: str = "r") -> Iterator[str]:
    """The places of all its arguments."""
    kind, inner = shape
    yield at
    if kind != "leaf":
        for index, one in enumerate(inner):
            yield from places(one, f"{at}.{index}")


class World:
    """What the steps of a workflow did."""

    def __init__(self) -> None:
        self.did: list[str] = []

    def act(self, at: str, *given: Any) -> str:
        """An action, whose output has all its arguments."""
        self.did.append(at)
        return f"{at}{list(given)}"

    def fails(self, *_: Any) -> str:
        """An action that fails."""
        raise ValueError

    def perhaps(self, key: str) -> str:
        """Fail the first time."""
        if key not in self.did:
            self.did.append(key)
            raise ValueError(key)
        return "well"

    def found(self, at: str, number: Any) -> Found[str]:
        """What a task finds."""
        return Found(self.act(at, number))

    def step(  # noqa: C901, PLR0911, PLR0912  # one case a kind
        self, shape: Shape, at: str, args: Args, salt: Any = 0
    ) -> Step[Any]:
        """The step of a shape."""
        kind, inner = shape
        number, act = args[at], self.act
        if kind == "leaf":
            return step("leaf").call(act, at, number, salt)
        name = step(kind)
        within = [(one, f"{at}.{index}") for index, one in enumerate(inner)]

        def body(salt: Any) -> Steps[list[Any]]:
            values = []
            for index, (one, place) in enumerate(within):
                values.append((yield from scope(f"s{index}", self.one(one, place, args, salt))))
            return values

        def member(item: Any) -> Steps[Any]:
            given = item.number if isinstance(item, Item) else item
            return (yield from body(given))

        def returns(item: Any) -> Steps[Any]:
            return [(yield from body(item)), number]

        def closure(item: Any) -> Steps[Any]:
            for one in range(number % 3):
                yield from step(f"c{one}").call(act, at, one)
            return (yield from body(item)), number % 3

        def task(one: Task) -> Steps[Any]:
            yield from body(one.payload)
            return (yield from step("find").call(self.found, at, one.payload))

        def collects(item: Any) -> Steps[Any]:
            if item == 1:
                yield from step("fails").call(self.fails, item)
            return (yield from body(item))

        @workflow
        def child(given: int) -> Steps[Any]:
            return (yield from body(given))

        many = list(range(number % 3 + 1))
        steps = [
            step(f"p{index}").run_workflow(child_of(self, one, place, args), salt)
            for index, (one, place) in enumerate(within)
        ]
        match kind:
            case "each":
                return name.for_each(many, member, key=str)
            case "closure":
                return name.for_each([7], closure)
            case "bound":
                return name.for_each([7], functools.partial(bound_member, body, number))
            case "returns":
                return name.for_each([7], returns)
            case "mapping":
                return name.for_each({"k": number, "l": 7}, member)
            case "record":
                return name.for_each(
                    [Item("a", number), Item("b", 7)], member, key=lambda i: i.name
                )
            case "index":
                return name.for_each([number, 7], member)
            case "collects":
                return name.for_each([1, *many], collects, on_error="continue", min_success=0)
            case "work":
                return name.work([Task(f"t{one}", number) for one in many], task)
            case "child":
                return name.run_workflow(child, number)
            case "scope":
                return scope("scope", body(number))
            case "race":
                return name.race(steps[0])
            case "branch":
                return name.branch((lambda _: True, steps[0]))
            case "parallel":
                return name.parallel(*steps, step("n").call(act, at, number))
            case "retried":
                return name.for_each(many, self.once_broken(at, member), key=str).retry(2)
            case _:
                handler = lambda *_: step("instead").for_each(many, member, key=str)  # noqa: E731
                return name.call(self.fails, number).on_error(handler)

    def one(self, shape: Shape, at: str, args: Args, salt: Any) -> Steps[Any]:
        """A helper of one step."""
        return plain((yield from self.step(shape, at, args, salt)))

    def once_broken(self, at: str, member: Any) -> Any:
        """A body that breaks the first time."""
        key = f"broke {at}"

        def first(item: Any) -> Steps[Any]:
            yield from step("perhaps").call(self.perhaps, key)
            return (yield from member(item))

        return first


def bound_member(body: Any, number: int, item: Any) -> Steps[Any]:
    """A body to which a value is bound."""
    return [(yield from body(item)), number]


def child_of(world: World, shape: Shape, at: str, args: Args) -> Any:
    """A child workflow of one step."""

    @workflow("inner")
    def inner(salt: Any) -> Steps[Any]:
        return (yield from world.one(shape, at, args, salt))

    return inner


def plain(value: Any) -> Any:
    """A value without times and the like."""
    if isinstance(value, WorkflowResult):
        return plain(value.value)
    if isinstance(value, StepResult):
        return plain(value.output) if value.success else value.status
    if isinstance(value, Work):
        return [plain(one.value) for one in value.done]
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return plain(value.output) if isinstance(value, BranchResult) else value


class Life:
    """A run of a workflow whose arguments are edited after it has come to its gate."""

    def __init__(self, shape: Shape, *, late: bool) -> None:
        self.world = World()
        self.args: Args = {place: index for index, place in enumerate(places(shape))}

        def source() -> Args:
            return self.args

        @workflow("flow")
        def flow() -> Steps[Any]:
            given = yield from step("source").call(source)
            args = given if late else self.args
            value = yield from self.world.step(shape, "r", args)
            yield from step("gate").ask("Go on?", choices=["yes"])
            return plain(value)

        self.flow = flow

    def fresh(self) -> Any:
        """What it comes to when it begins now."""
        executor = Executor(journal=None, workflows=[self.flow])
        run_id = executor.run_sync(self.flow).run_id
        executor.answer_sync(run_id, "gate", "yes")
        return executor.resume_sync(run_id).value


@contextmanager
def executors(place: str) -> Iterator[Any]:
    """Makes executors of one journal, each with its own on_change."""
    if place == "memory":
        first = Executor(durable=True)
        yield lambda on_change: Executor(journal=first.journal, durable=True, on_change=on_change)
        return
    with tempfile.TemporaryDirectory() as folder:
        journal = SqliteJournal(Path(folder) / "runs.db")
        yield lambda on_change: Executor(journal=journal, on_change=on_change)
        journal.close()


def resumed(executor: Executor, run_id: str, life: Life, rerun: Sequence[str]) -> Any:
    """The value of a run, of which every change that it is stopped by is run again."""
    for _ in itertools.repeat(None, 30):
        try:
            result = executor.resume_sync(run_id, life.flow, rerun=rerun)
        except ReplayMismatch as mismatch:
            changed, late = [one.path for one in mismatch.changes], mismatch.late
        else:
            if result.status == "suspended":  # the gate of a fork, which is asked again
                executor.answer_sync(run_id, "gate", "yes")
                rerun = []
                continue
            assert result.status == "succeeded", result.error
            return result.value
        if not late:
            planned = executor.plan_sync(run_id, life.flow, rerun=rerun).changes
            assert sorted(one.path for one in planned) == sorted(changed)
        rerun = [*([] if late else rerun), *changed]
    raise AssertionError(rerun)


PHASES = [Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink]
HOW = ("refuse", "rerun", "reuse", "fork")


def edit(shape: Shape, at: int, by: int, how: Any, place: str, *, late: bool) -> None:
    """Edit one argument, and look at what the run comes to."""
    life = Life(shape, late=late)
    with executors(place) as made:
        executor = made("refuse" if how == "fork" else how)
        run_id = executor.run_sync(life.flow).run_id
        before = life.fresh()
        life.world.did.clear()
        same = executor.fork_sync(run_id)
        executor.answer_sync(same, "gate", "yes")
        assert made("refuse").resume_sync(same, life.flow).value == before
        assert life.world.did == []
        edited = list(life.args)[at % len(life.args)]
        life.args = {**life.args, edited: life.args[edited] + by}
        after = life.fresh()
        rerun = ["source"] if late else []
        if how == "fork":
            run_id, rerun = executor.fork_sync(run_id, rerun=rerun), []
        executor.answer_sync(run_id, "gate", "yes")
        value = resumed(executor, run_id, life, rerun)
        assert how == "reuse" or value == after


LEAF: Shape = ("leaf", ())


@pytest.mark.parametrize("late", [False, True], ids=["early", "late"])
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_argument_of_each_composite_counts(kind: str, how: str, late: bool) -> None:
    """In itself, in what is in it, and in a group in it, it is never passed over."""
    for shape in ((kind, (LEAF,)), (kind, (("index", (LEAF,)),))):
        for at in range(len(list(places(shape)))):
            edit(shape, at, 1, how, "memory", late=late)


@pytest.mark.parametrize("late", [False, True], ids=["early", "late"])
@pytest.mark.parametrize("place", ["memory", "sqlite"])
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), phases=PHASES)
@given(shape=shapes(), at=st.integers(0, 30), by=st.integers(1, 3), how=st.sampled_from(HOW))
def test_whatever_depends_on_a_changed_argument_runs_again_or_stops_the_run(  # noqa: PLR0917
    shape: Shape, at: int, by: int, how: Any, place: str, late: bool
) -> None:
    """No value of a run that succeeds is stale, unless somebody said that it counts."""
    edit(shape, at, by, how, place, late=late)
