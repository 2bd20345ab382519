"""Workflows that must end alike on every engine, and a comparison of two ends.

A case is a workflow, its inputs, and what people do meanwhile. All code is at the top level of this
module, so that another process finds it by its name. An action notes its effects outside of the run
in a folder, in one file for each idempotency key: see ``effects``.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, TypeAlias, cast

import anyio

from handrail.agents.agent import Agent
from handrail.decorator import workflow
from handrail.engine.current import current
from handrail.errors import CannotSteer, WorkflowError
from handrail.model import events as ev
from handrail.model.context import WorkflowContext
from handrail.model.policy import Budget, Limits
from handrail.model.results import (
    StageResult,
    StepFailed,
    Usage,
    WorkflowResult,
)
from handrail.model.work import Found, Task
from handrail.ports.agent import AgentReply, AgentTurn
from handrail.record.diff import without
from handrail.steps.scope import scope
from handrail.steps.step import step
from handrail.steps.verbs import Stage, Step, Steps
from handrail.testing.shapes import Body, workflow_of
from handrail.typed.field_words import TIMES

# -- effects ---------------------------------------------------------------------------------------


def note(folder: Path) -> int:
    """Note an effect of the calling attempt; returns how many its idempotency key has by now."""
    here = current()
    folder.mkdir(parents=True, exist_ok=True)
    said = {"path": here.path, "attempt": here.attempt, "again": here.interrupted}
    file = folder / here.idempotency_key
    with file.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps({**said, "pid": os.getpid()}) + "\n")
    return len(file.read_text("utf-8").splitlines())


def effects(folder: Path) -> Counter[tuple[str, int]]:
    """How many effects each attempt had, by path and number of the attempt."""
    found: Counter[tuple[str, int]] = Counter()
    for file in folder.iterdir() if folder.exists() else ():
        for line in file.read_text("utf-8").splitlines():
            said = json.loads(line)
            found[said["path"], said["attempt"]] += 1
    return found


# -- actions ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Item:
    """A value that steps pass on."""

    name: str
    size: int = 1
    since: date = date(2026, 1, 2)


class Unlucky(Exception):
    """The error that actions raise."""


def make(folder: Path, name: str, size: int = 1) -> Item:
    """An item."""
    note(folder)
    return Item(name, size)


async def grow(folder: Path, item: Item, by: int = 1) -> Item:
    """A larger item."""
    note(folder)
    return Item(item.name, item.size + by, item.since)


def fails_first(folder: Path, times: int, name: str) -> Item:
    """Fail in the first ``times`` attempts, then return an item."""
    note(folder)
    if current().attempt <= times:
        raise Unlucky(f"attempt {current().attempt} of {name}")
    return Item(name)


async def slow(folder: Path, seconds: float, name: str = "slow") -> Item:
    """Take a while."""
    note(folder)
    await anyio.sleep(seconds)
    return Item(name)


def blocks(folder: Path, seconds: float) -> str:
    """Take a while in a thread, but end early if the attempt is cancelled."""
    note(folder)
    until = time.monotonic() + seconds
    while time.monotonic() < until and not current().cancelled:
        time.sleep(0.01)  # noqa: TID251  # that a thread is busy is the point
    return "stopped" if current().cancelled else "done"


def undo(ctx: WorkflowContext) -> None:
    """Undo an item, and note which."""
    folder: Path = ctx.inputs["folder"]
    name = ctx.output(ctx.path.rpartition("/")[2]).name
    with (folder / "undone").open("a", encoding="utf-8") as stream:
        stream.write(f"{name}\n")


def undo_badly(ctx: WorkflowContext) -> None:
    """A rollback that fails."""
    raise Unlucky(f"cannot undo {ctx.path}")


def big_enough(ctx: WorkflowContext) -> StageResult:
    """A check that looks at the run."""
    rounds = sum(1 for path in ctx.results if "fix" in path.rpartition("/")[2])
    return StageResult("big", passed=rounds >= 2, error=None if rounds >= 2 else "too small")


class Parrot:
    """A backend whose answer depends on its prompt alone."""

    name = "parrot"

    async def complete(self, turn: AgentTurn, /) -> AgentReply:
        """The prompt in capital letters, with a fixed usage."""
        turn.emit(ev.AgentSessionStarted(turn.path, f"session-{turn.path}", self.name))
        return AgentReply(
            turn.prompt.upper(),
            usage=Usage(input_tokens=10, output_tokens=5, cost_usd=0.25),
            session=f"session-{turn.path}",
        )


parrot = Agent("parrot", "say {{ what }}", backend=Parrot())
attentive = Agent("attentive", "{{ ctx.output('item').name }} of {{ what }}", backend=Parrot())


# -- workflows -------------------------------------------------------------------------------------


@workflow
def in_order(folder: Path) -> Steps[tuple[Item, int]]:
    """One step after another, with retries."""
    item = yield from step("make").call(make, folder, "a")
    for number in range(3):
        item = yield from step(f"grow-{number}").call(grow, folder, item, number)
    lucky = yield from step("lucky").call(fails_first, folder, 2, "b").retry(3, backoff=0)
    said = yield from step("say").command(["echo", lucky.name])
    return item, len(said.stdout)


@workflow
def handled(folder: Path) -> Steps[list[str]]:
    """Failures that the body, a fallback or a default gets over."""
    seen: list[str] = []
    try:
        yield from step("broken").call(fails_first, folder, 9, "x").retry(2, backoff=0)
    except StepFailed as failed:
        seen.append(str(failed.result.error_type))
    instead = (
        yield from step("instead")
        .call(fails_first, folder, 9, "y")
        .on_error(lambda _ctx, failed: step("other").call(make, folder, failed.name))
    )
    seen.append(instead.name)
    usual = yield from step("usual").call(fails_first, folder, 9, "z").default(Item("usual"))
    skipped = yield from step("skipped").call(fails_first, folder, 9, "z").skip_on_error()
    never = yield from step("never").call(make, folder, "n").when(lambda ctx: not ctx.inputs)
    always = yield from step("always").call(make, folder, "a").when(_has_inputs)
    odd = step("odd").call(make, folder, "o").when(_raises)
    try:
        yield from odd
    except StepFailed as failed:
        seen.append(str(failed.result.error))
    shown = [usual.name, type(skipped).__name__, type(never).__name__, type(always).__name__]
    return [*seen, *shown]


async def _has_inputs(ctx: WorkflowContext) -> bool:
    return bool(ctx.inputs)


def _raises(ctx: WorkflowContext) -> bool:
    raise Unlucky(f"no verdict at {ctx.path}")


def _each(number: int) -> Step[int]:
    return step("double").call(_double, number).retry(2, backoff=0)


def _double(number: int) -> int:
    if number == 3:  # one of them fails
        raise Unlucky("three")
    return number * 2


def _body(number: int) -> Steps[int]:
    first = yield from step("one").call(_add, number, 1)
    second: int = yield from step("two").call(_add, first, 1)
    return second


def _add(one: int, other: int) -> int:
    return one + other


@workflow
def groups(folder: Path) -> Steps[Any]:
    """Groups of every kind, and every way in which their members' failures count."""
    together = yield from step("together").parallel(
        step("a").call(make, folder, "a"), step("b").call(_add, 1, 2)
    )
    going_on = yield from step("going on").for_each([1, 2, 3], _each, on_error="continue")
    each = yield from step("each").for_each({"x": 1, "y": 2}, _body, max_concurrency=1)
    chosen = yield from step("chosen").branch(
        (lambda ctx: "each" not in ctx.results, step("no").call(_add, 0, 0)),
        (lambda _: True, step("yes").call(_add, 20, 3)),
    )
    first = yield from step("first").race(
        step("quick").call(_add, 1, 1), step("late").call(slow, folder, 30)
    )
    failures: list[str] = []
    fast = step("fast").parallel(
        step("bad").call(_double, 3), step("slow").call(slow, folder, 30, "left")
    )
    whole = step("whole").parallel(
        step("good").call(make, folder, "g").with_rollback(undo),
        step("bad").call(_double, 3),
        on_error="all_or_nothing",
    )
    for group in (fast, whole):
        try:
            yield from group
        except StepFailed as failed:
            failures.append(f"{failed.result.name}: {failed.result.error_type}")
    counted = [one.status for one in going_on]
    return together, counted, each, (chosen.name, chosen.output), first, failures


def _grows(task: Task) -> Step[Found[int]]:
    return step("measure").call(_measured, task).retry(2, backoff=0)


def _measured(task: Task) -> Found[int]:
    if task.id == "b":
        raise Unlucky("b")
    deeper = [Task(f"{task.id}{n}", task.payload + n, -n) for n in (1, 2)]
    return Found(task.payload, deeper if task.payload < 3 else ())


@workflow
def growing(folder: Path) -> Steps[Any]:
    """Work that brings more of itself, up to its bound."""
    tasks = [Task("a", 1), Task("b", 1), Task("a", 9)]
    work = yield from step("work").work(tasks, _grows, max_concurrency=1, at_most=5)
    return work, (yield from step("after").call(make, folder, "after"))


@workflow
def child(folder: Path, name: str) -> Steps[Item]:
    """A workflow that others run."""
    item = yield from step("make").call(make, folder, name)
    if name == "bad":
        raise WorkflowError("the child has had enough")
    return (yield from step("grow").call(grow, folder, item))


@workflow
def nested(folder: Path) -> Steps[list[str]]:
    """Sub-workflows, scopes, and bodies within bodies."""
    good = yield from step("good").run_workflow(child, folder, "c")
    seen = [good.unwrap().name, str(good.unwrap().size)]
    try:
        yield from step("bad").run_workflow(child, folder, "bad")
    except StepFailed as failed:
        seen.append(str(failed.result.error))
    for number in range(2):
        total: int = yield from scope(f"round-{number}", _body(number))
        seen.append(str(total))
    return seen


@workflow
def checked(folder: Path) -> Steps[tuple[bool, int]]:
    """A validation whose fix makes it pass in the third round."""
    yield from step("item").call(make, folder, "i")
    checks = yield from step("checks").validate(
        [Stage("big", big_enough), Stage("true", "true")],
        retry=3,
        on_failure=step("fix").call(make, folder, "fixed"),
    )
    try:
        yield from step("in vain").validate([Stage("false", "false")], retry=0)
    except StepFailed as failed:
        return failed.result.success, len(checks.rounds)
    return True, 0


@workflow
def with_agents(folder: Path) -> Steps[list[Any]]:
    """Agents, what they are given, and what they cost."""
    yield from step("item").call(make, folder, "tea")
    one = yield from step("one").agent(parrot, {"what": "hello"})
    two = yield from step("two").agent(attentive, lambda ctx: {"what": ctx.inputs["folder"].name})
    said = yield from step("three").agent(parrot, {"what": "bye"}).answer()
    text = yield from step("text").generate(parrot, {"what": "text"})
    return [one.output, one.session, bool(two.output), said, text]


@workflow
def costly(folder: Path) -> Steps[list[str]]:
    """Agents beyond their budget."""
    del folder
    seen: list[str] = []
    for number in range(4):
        try:
            yield from step(f"say-{number}").agent(parrot, {"what": str(number)})
        except StepFailed as failed:
            seen.append(str(failed.result.error_type))
    return seen


@workflow
def undone(folder: Path) -> Steps[None]:
    """A run that fails when much is done."""
    yield from step("first").call(make, folder, "first").with_rollback(undo)
    yield from step("second").call(make, folder, "second").with_rollback(undo_badly)
    yield from step("third").call(make, folder, "third").with_rollback(undo)
    yield from step("break").call(fails_first, folder, 9, "break")


@workflow
def waiting(folder: Path) -> Steps[list[Any]]:
    """Questions, signals, and times."""
    go = yield from step("go?").ask("Go on?", choices=["yes", "no"])
    size = yield from step("size?").ask("How big?", type=int)
    item = yield from step("item").wait_for("item", Item)
    early = yield from step("early").wait_for("early")
    yield from step("nap").sleep(0.05)
    late = yield from step("late?").ask("Too late?", default="so be it", timeout=0.05)
    yield from step("end").call(make, folder, "end")
    return [go, size, item, early, late]


@workflow
def limited(folder: Path) -> Steps[list[Item]]:
    """Members that use one tag of which there is one, within few at once."""
    return (
        yield from step("all").for_each(
            [f"{number}" for number in range(6)],
            lambda name: step("make").call(make, folder, name).uses("one"),
        )
    )


@workflow
def endless(folder: Path) -> Steps[None]:
    """More steps than a run may have."""
    for number in range(100):
        yield from step(f"step-{number}").call(make, folder, str(number))


@workflow
def overdue(folder: Path) -> Steps[list[str]]:
    """Attempts and groups that take longer than they may."""
    seen: list[str] = []
    for made in (
        step("async").call(slow, folder, 30).timeout(0.3),
        step("thread").call(blocks, folder, 30).timeout(0.3),
        step("group").parallel(step("in it").call(slow, folder, 30)).timeout(0.3),
        step("program").command(["sleep", "30"]).timeout(0.3),
    ):
        try:
            yield from made
        except StepFailed as failed:
            seen.append(str(failed.result.error_type))
    return seen


@workflow
def long_step(folder: Path) -> Steps[str]:
    """A step that somebody stops, gives, or begins again; and what cleans up."""
    try:
        item = yield from step("long").call(slow, folder, 60).default(Item("default"))
        last = yield from step("last").call(make, folder, item.name)
    finally:
        yield from step("clean up").call(make, folder, "clean")
    return last.name


@workflow
def mistaken(folder: Path) -> Steps[None]:
    """Two steps of one name."""
    yield from step("same").call(make, folder, "a")
    yield from step("same").call(make, folder, "b")


@workflow
def raising(folder: Path) -> Steps[None]:
    """A body that raises what nobody catches."""
    yield from step("one").call(make, folder, "a").with_rollback(undo)
    raise ZeroDivisionError(f"not by {len(folder.parts) * 0}")


@workflow
def unrecordable(folder: Path) -> Steps[str]:
    """An output that is no data."""
    try:
        yield from step("lock").call(_lock)
    except StepFailed as failed:
        return str(failed.result.error_type)
    yield from step("never").call(make, folder, "n")
    return "recorded"


def _lock() -> Any:
    import threading

    return threading.Lock()


@workflow
def once_only(folder: Path) -> Steps[Item]:
    """Steps that are made at most once, and that are on disk before the run goes on."""
    yield from step("once").call(make, folder, "once").once()
    return (yield from step("safe").call(make, folder, "safe").checkpoint())


@workflow
def drawn(body: Body) -> Steps[Any]:
    """A workflow that is data."""
    function: Callable[[], Steps[Any]] = cast("Any", workflow_of(body)).definition.function
    return (yield from function())


@workflow
def storm(
    folder: Path, branches: int = 12, steps: int = 7, seconds: float = 0.05
) -> Steps[list[int]]:
    """Branches side by side, each a row of steps that leave a trace."""
    return (
        yield from step("storm").for_each(
            [(folder, branch, steps, seconds) for branch in range(branches)],
            storm_branch,
            key=_branch_key,
        )
    )


def _branch_key(given: tuple[Path, int, int, float]) -> str:
    return f"b{given[1]}"


def storm_branch(given: tuple[Path, int, int, float]) -> Steps[int]:
    """One branch of the storm."""
    folder, branch, steps, seconds = given
    total = branch
    for number in range(steps):
        total = yield from step(f"s{number}").call(strike, folder, total, number, seconds)
    return total


async def strike(folder: Path, total: int, number: int, seconds: float) -> int:
    """The action of the storm's steps; it takes long enough for a kill to hit it."""
    note(folder)
    await anyio.sleep(seconds)
    return total + number


# -- what people do --------------------------------------------------------------------------------

Act: TypeAlias = Callable[[Any, Any, Mapping[str, Any]], Awaitable[WorkflowResult[Any]]]
"""Runs a workflow with its inputs on an executor, as people would; returns the run's result."""


async def just_run(executor: Any, flow: Any, inputs: Mapping[str, Any]) -> WorkflowResult[Any]:
    """Run the workflow, and do nothing else."""
    result: WorkflowResult[Any] = await executor.run(flow, **inputs)
    return result


async def _answer_all(executor: Any, flow: Any, inputs: Mapping[str, Any]) -> WorkflowResult[Any]:
    run_id = f"waiting-{os.urandom(4).hex()}"
    result = await executor.options(run_id=run_id).run(flow, **inputs)
    assert [one.path for one in result.waiting] == ["go?"], result
    await executor.signal(run_id, "early", {"is": "kept"})
    await executor.answer(run_id, "go?", "yes", by="somebody")
    result = await executor.resume(run_id)
    await executor.answer(run_id, "size?", "12")
    result = await executor.resume(run_id)
    assert result.status == "suspended", result
    await executor.signal(run_id, "item", Item("sent", 3))
    result = await executor.resume(run_id)
    while result.status == "suspended":  # until the last question times out
        await anyio.sleep(0.05)
        result = await executor.resume(run_id)
    ended: WorkflowResult[Any] = result
    return ended


async def _at_work(executor: Any, run_id: str, path: str) -> None:
    """Wait until the step at this path is at work."""
    async for event in executor.follow(run_id):
        if isinstance(event, ev.StepStarted) and event.path == path:
            break
    await anyio.sleep(0.3)


def _while_long(act: Callable[[Any, str], Awaitable[Any]]) -> Act:
    async def do(executor: Any, flow: Any, inputs: Mapping[str, Any]) -> WorkflowResult[Any]:
        async with executor:
            run_id = f"long-{os.urandom(4).hex()}"
            handle = executor.start(flow, run_id=run_id, **inputs)
            await handle
            await _at_work(executor, run_id, "long")
            await act(executor, run_id)
            result: WorkflowResult[Any] = await handle.result()
            return result

    return do


async def _cancel(executor: Any, run_id: str) -> None:
    await executor.cancel(run_id, "enough")


async def _complete(executor: Any, run_id: str) -> None:
    await executor.complete(run_id, "long", Item("given"), by="somebody")


async def _skip(executor: Any, run_id: str) -> None:
    await executor.skip(run_id, "long", by="somebody")


async def _pause(executor: Any, run_id: str) -> None:
    await executor.pause(run_id, by="somebody")
    await executor.complete(run_id, "long", Item("given"))
    await anyio.sleep(0.5)
    state = await executor.get(run_id)
    assert "last" not in {one.path for one in state.steps}, state
    await executor.unpause(run_id)


async def _retry(executor: Any, run_id: str) -> None:
    await executor.retry(run_id, "long", by="somebody")
    with anyio.fail_after(60):
        while True:
            await anyio.sleep(1.0)
            with contextlib.suppress(CannotSteer):  # the first attempt is being stopped
                await executor.complete(run_id, "long", Item("second"))
                return


@dataclass(frozen=True)
class Case:
    """A workflow that must end alike on every engine; ``options`` are the executor's."""

    name: str
    flow: Any
    act: Act = just_run
    options: Mapping[str, Any] | None = None


CASES: tuple[Case, ...] = (
    Case("order", in_order),
    Case("handled failures", handled),
    Case("groups", groups),
    Case("work that grows", growing),
    Case("sub-workflows", nested),
    Case("validation", checked),
    Case("agents", with_agents),
    Case("budget", costly, options={"limits": Limits(budget=Budget(launches=2))}),
    Case("rollbacks", undone),
    Case("questions and signals", waiting, _answer_all),
    Case("tags", limited, options={"limits": Limits(tags={"one": 1}, max_concurrency=2)}),
    Case("rates", limited, options={"limits": Limits(rates={"one": 600})}),
    Case("too many steps", endless, options={"limits": Limits(max_steps=5)}),
    Case("timeouts", overdue),
    Case("cancel", long_step, _while_long(_cancel)),
    Case("complete", long_step, _while_long(_complete)),
    Case("skip", long_step, _while_long(_skip)),
    Case("pause", long_step, _while_long(_pause)),
    Case("retry", long_step, _while_long(_retry)),
    Case("a mistake", mistaken),
    Case("a body that raises", raising),
    Case("what cannot be recorded", unrecordable),
    Case("once", once_only),
)

FLOWS: tuple[Any, ...] = (
    *{case.flow.definition.name: case.flow for case in CASES}.values(),
    drawn,
    storm,
)
"""The workflows of this module that are run by themselves, not as a child."""


# -- comparing -------------------------------------------------------------------------------------


_OF_ITS_ENGINE = TIMES | {
    *("run_id", "seq", "letter", "took", "traceback", "session_usage", "replayed"),
}
_OF_A_DRIVE = (ev.RunSuspended, ev.RunResumed, ev.StepMoved, ev.StepInterrupted)


def essence(value: Any) -> Any:
    """What two engines must agree on: no times, no ids, no frames of a traceback."""
    return without(_OF_ITS_ENGINE, value, _leaf)


def by_path(events: Sequence[ev.Event]) -> dict[str, list[Any]]:
    """The events at each path, in order, without those that belong to a drive.

    An event that a later drive repeats counts once.
    """
    found: dict[str, list[Any]] = {}
    for event in events:
        if isinstance(event, _OF_A_DRIVE):
            continue
        said = essence(event)
        if said.get("composed"):  # a journal may leave out an output that it can compose
            said.get("result", said).pop("output", None)
        there = found.setdefault(getattr(event, "path", ""), [])
        if said not in there:
            there.append(said)
    return found


def _leaf(value: Any) -> Any:
    """A value as text; of an error that lists members, in order of their ends, the sorted words."""
    if not isinstance(value, str):
        return repr(value)
    return sorted(value.replace(";", "").split()) if "; " in value else value


def history_differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Where two runs differ, path by path, for people."""
    return [
        f"{path or 'the run'}:\n  {one.get(path)}\n  {other.get(path)}"
        for path in sorted({*one, *other})
        if one.get(path) != other.get(path)
    ]
