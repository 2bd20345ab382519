"""The executor's edges: sync twins, mistakes at the top, resume without a journal on disk."""

from __future__ import annotations

import contextlib
import pickle  # noqa: TID251  # that results survive it is what is tested
from functools import partial
from typing import Any

import anyio
import pytest

from handrail import (
    AgentResult,
    BranchResult,
    CommandResult,
    Executor,
    GateClosed,
    InsideEventLoop,
    MemorySink,
    RunNotFound,
    Steps,
    TooEarly,
    step,
    workflow,
)
from handrail.model import events as ev
from tests.engine.support import forever, give, just, names, paths, run_seen, same, statuses


@workflow
def asks() -> Steps[Any]:
    """Ask and wait."""
    first = yield from step("q").ask("Merge?", choices=["yes", "no"])
    return first, (yield from step("w").wait_for("go", int))


# -- sync twins ------------------------------------------------------------------------------------


def test_every_method_has_a_sync_twin_that_works() -> None:
    """run_sync, answer_sync, signal_sync, resume_sync and cancel_sync work without a loop."""
    executor = Executor(workflows=[asks])
    named = executor.options(run_id="r")
    assert named.run_sync(asks).status == "suspended"
    assert executor.answer_sync("r", "q", "yes", by="ann") == "yes"
    with pytest.raises(GateClosed, match="by ann with 'yes'"):
        executor.answer_sync("r", "q", "no")
    executor.signal_sync("r", "go", 3)
    assert executor.resume_sync("r").value == ("yes", 3)
    other = executor.options(run_id="s")
    assert other.run_sync(asks).status == "suspended"
    cancelled = executor.cancel_sync("s", "not wanted")
    assert cancelled is not None
    assert cancelled.status == "cancelled"


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("run_sync", (asks,)),
        ("resume_sync", ("r", asks)),
        ("answer_sync", ("r", "q", "yes")),
        ("signal_sync", ("r", "go", 1)),
        ("cancel_sync", ("r",)),
    ],
)
async def test_a_sync_twin_inside_a_loop_names_the_async_one(
    name: str, args: tuple[Any, ...]
) -> None:
    """Inside a running loop a twin is refused, and the error names what to write."""
    executor = Executor()
    with pytest.raises(InsideEventLoop, match=f"await executor.{name.removesuffix('_sync')}"):
        getattr(executor, name)(*args)


@workflow
def flow_of_one() -> Steps[int]:
    """One step."""
    return (yield from step("a").call(give, 1))


# -- mistakes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [same, None, 3, "ship"])
async def test_only_workflows_are_run(given: Any) -> None:
    """Something else is a TypeError that says to decorate it."""
    with pytest.raises(TypeError, match="@workflow"):
        await Executor().run(given)
    with pytest.raises(TypeError, match="@workflow"):
        Executor().stream(given)


async def test_wrong_arguments_are_an_error_of_the_call() -> None:
    """A missing argument is a TypeError that names the workflow, and no event is emitted."""

    @workflow
    def flow(task: str) -> Steps[Any]:
        yield from step("a").call(give, task)

    sink = MemorySink()
    executor = Executor(sinks=[sink])
    wrong: Any = flow
    with pytest.raises(TypeError, match=r"'flow'.*task"):
        await executor.run(wrong)
    with pytest.raises(TypeError, match=r"'flow'.*task"):
        executor.stream(wrong)
    assert sink.events == []


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (None, "None"),
        ("text", "'text'"),
        (3, "3"),
        (step("x"), "verb"),
        ((n for n in [1]), "yield from"),
        (flow_of_one, "subworkflow"),
        ([step("a").call(give)], "yield steps"),
    ],
)
async def test_a_bad_yield_ends_the_run_naming_line_and_remedy(made: Any, says: str) -> None:
    """Yielding something else fails the run; the error names the user's line and what to write."""

    @workflow
    def flow() -> Steps[Any]:
        yield from step("first").call(give)
        yield made

    result, seen = await run_seen(flow)
    assert result.status == "failed"
    assert "test_executor.py:" in (result.error or "")
    assert says in (result.error or "")
    assert names(seen)[-1] == "WorkflowCompleted"


@pytest.mark.parametrize("mistake", ["bad yield", "duplicate"])
async def test_a_mistake_closes_the_generator_and_does_not_ask_it(mistake: str) -> None:
    """After a mistake `except` sees nothing, `finally` runs, and steps yielded there do not."""
    told: list[str] = []

    @workflow
    def flow() -> Steps[Any]:
        try:
            yield from step("a").call(give).with_rollback(lambda _: told.append("rollback"))
            try:
                if mistake == "bad yield":
                    yield None  # type: ignore[misc]
                yield from step("a").call(give)
            except Exception:  # noqa: BLE001  # it must see nothing
                told.append("except")
        finally:
            told.append("finally")
            with contextlib.suppress(RuntimeError):
                yield from step("clean").call(told.append, "clean")

    result = await Executor().run(flow)
    assert (result.status, told) == ("failed", ["finally", "rollback"])
    assert paths(result) == ["a"]


async def test_a_mistake_names_a_helpers_own_line() -> None:
    """The line is where the step was yielded, in a helper as well."""

    def helper() -> Steps[Any]:
        yield from step("a").call(give)

    @workflow
    def flow() -> Steps[Any]:
        yield from helper()
        yield from helper()

    result, _ = await run_seen(flow)
    line = helper.__code__.co_firstlineno + 1
    assert f"test_executor.py:{line}" in (result.error or "")


@pytest.mark.parametrize("name", ["", " ", " a", "a\n", "..", "x~2", "y" * 121, 3, None])
def test_a_step_name_is_checked(name: Any) -> None:
    """A blank name, one with control characters or a number after ~ is refused."""
    with pytest.raises((TypeError, ValueError), match="name"):
        step(name)


# -- the stream's result ---------------------------------------------------------------------------


async def test_a_streams_result_is_there_after_its_loop() -> None:
    """Before the end `run.result` is an error, after the loop it is the result; before the start
    the run cannot be steered.
    """
    async with Executor().stream(flow_of_one) as run:
        with pytest.raises(TooEarly, match=f"run {run.run_id} has no result yet"):
            _ = run.result
        for steer in (
            run.pause,
            partial(run.retry, "one"),
            partial(run.answer, "one?", "yes"),
            partial(run.signal, "go"),
        ):
            with pytest.raises(TooEarly, match=f"run {run.run_id} has not begun yet"):
                steer()
        kinds = [type(event).__name__ async for event in run]
        assert run.result.value == 1
    assert kinds == ["WorkflowStarted", "StepStarted", "StepCompleted", "WorkflowCompleted"]
    assert run.result.run_id == run.run_id


async def test_a_cancellation_before_the_start_cancels_the_run() -> None:
    """`run.cancel()` counts from the moment that there is a run."""
    for entered in (False, True):
        stream = Executor().stream(flow_of_one)
        if not entered:
            stream.cancel("not now")
        async with stream as run:
            if entered:
                run.cancel("not now")
            async for _ in run:
                pass
        assert (run.result.status, run.result.error) == ("cancelled", "not now")


# -- resume without a journal on disk --------------------------------------------------------------


async def test_resume_of_an_unknown_run_is_refused() -> None:
    """resume, answer and signal name the run that is not there."""
    executor = Executor()
    for call in (
        executor.resume("nope"),
        executor.answer("nope", "q", 1),
        executor.signal("nope", "go"),
        executor.cancel("nope"),
    ):
        with pytest.raises(RunNotFound, match="nope"):
            await call


async def test_signals_to_concurrent_waits_are_taken_in_order_and_once() -> None:
    """Two waits for one name take a signal each; on resume the taken one is not given again."""
    executor = Executor()

    @workflow
    def flow() -> Steps[Any]:
        pair = yield from step("g").parallel(
            step("a").wait_for("go", int), step("b").wait_for("go", int)
        )
        return pair, (yield from step("c").wait_for("go", int))

    first = await executor.options(run_id="r").run(flow)
    assert first.status == "suspended"
    await executor.signal("r", "go", 1)
    second = await executor.resume("r", flow)
    assert (second.status, statuses(second).get("g/a")) == ("suspended", "succeeded")
    await executor.signal("r", "go", 2)
    await executor.signal("r", "go", 3)
    last = await executor.resume("r", flow)
    assert last.value == ((1, 2), 3)


WAIT = step("a").wait_for("go", int)


@pytest.mark.parametrize(
    "made",
    [WAIT.when(lambda _: False), step("r").race(WAIT, step("b").call(give, "b"))],
    ids=["skipped", "lost"],
)
async def test_a_wait_that_came_to_nothing_takes_no_signal_on_resume(made: Any) -> None:
    """One that its predicate skipped, or that lost a race, leaves the signals to others."""
    executor = Executor()
    flow = just(made, step("q").ask("?"), step("c").wait_for("go", int))

    await executor.options(run_id="r").run(flow)
    await executor.signal("r", "go", 5)
    await executor.answer("r", "q", "x")
    assert (await executor.resume("r", flow)).value == 5


# -- an action that does not stop ------------------------------------------------------------------


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("place", ["alone", "in a group"])
async def test_an_async_action_that_ignores_cancellation_for_good_is_abandoned(
    place: str, monkeypatch: pytest.MonkeyPatch, anyio_backend: str
) -> None:
    """The run ends, and the step is recorded cancelled and abandoned, after a grace."""
    import asyncio

    from handrail.engine import driver, tasks

    monkeypatch.setattr(driver, "ABANDON_AFTER_S", 0.02)
    monkeypatch.setattr(tasks, "LEAVE_AFTER_S", 0.02)
    release = asyncio.Event()
    # So that the test fails, and does not hang, where nobody abandons the action.
    asyncio.get_running_loop().call_later(10, release.set)

    async def deaf() -> str:
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()
        return "late"

    @workflow
    def flow() -> Steps[Any]:
        if place == "alone":
            yield from step("a").call(deaf)
        else:
            yield from step("a").parallel(step("b").call(deaf), step("c").call(forever))

    path = "a" if place == "alone" else "a/b"
    async with Executor().stream(flow) as run:
        async for event in run:
            if isinstance(event, ev.StepStarted) and event.path == path:
                await anyio.wait_all_tasks_blocked()
                run.cancel("stop")
    abandoned_in_time = not release.is_set()
    release.set()
    one = run.result.step(path)
    assert (run.result.status, one.status, one.abandoned) == ("cancelled", "cancelled", True)
    assert abandoned_in_time


# -- results ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "args"),
    [
        (AgentResult, ("x",)),
        (CommandResult, (0, "", "")),
        (BranchResult, (0, "x", 1)),
    ],
)
def test_a_result_may_be_made_with_its_type(kind: Any, args: tuple[Any, ...]) -> None:
    """`AgentResult[str]("x")`, as people write in their agents, is the same as without the type."""
    assert kind[str](*args) == kind(*args)


def test_a_result_survives_pickle() -> None:
    """A run's result can be sent to another process."""
    result = flow_of_one()
    assert pickle.loads(pickle.dumps(result)) == result
