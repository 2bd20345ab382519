"""What an action knows of its step, where it runs, and what it cannot leak."""

from __future__ import annotations

import threading
from contextvars import ContextVar
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from handrail import Current, Executor, MemorySink, OutsideStep, Steps, current, step, workflow
from handrail.model import events as ev
from tests.engine.support import give, just, same

COLOUR: ContextVar[str] = ContextVar("colour", default="none")


def look() -> Current:
    """The running attempt."""
    return current()


async def alook() -> Current:
    """The running attempt."""
    await anyio.lowlevel.checkpoint()
    return current()


# -- current() -------------------------------------------------------------------------------------


def test_outside_of_a_step_current_is_an_error() -> None:
    """`current()` where no step runs raises OutsideStep, a LookupError."""
    with pytest.raises(OutsideStep, match="actions"):
        current()


async def test_current_says_run_path_and_attempt() -> None:
    """Async, sync and inline actions learn their run id, path and attempt."""

    @workflow
    def flow() -> Steps[Any]:
        a = yield from step("a").call(alook)
        b = yield from step("b").call(look)
        c = yield from step("c").call(look).inline()
        d = yield from step("g").parallel(step("d").call(look), step("e").call(alook))
        return [(one.run_id, one.path, one.attempt) for one in (a, b, c, *d)]

    result = await Executor().options(run_id="r").run(flow)
    assert result.value == [("r", path, 1) for path in ("a", "b", "c", "g/d", "g/e")]


async def test_the_idempotency_key_is_the_same_for_all_attempts() -> None:
    """One key for every attempt at a step, another for another step or another run."""
    keys: list[str] = []

    def note() -> None:
        keys.append(current().idempotency_key)
        if len(keys) % 4 in {1, 2}:
            raise ValueError("again")

    flow = just(step("a").call(note).retry(3, backoff=0), step("b").call(note))
    executor = Executor()
    await executor.options(run_id="one").run(flow)
    await executor.options(run_id="two").run(flow)
    first, second = keys[:4], keys[4:]
    assert first[0] == first[1] == first[2] != first[3]
    assert second[0] == second[1] == second[2] != second[3]
    assert set(first).isdisjoint(second)


async def test_a_thread_sees_that_it_is_cancelled() -> None:
    """`current().cancelled` turns true in a sync action, which can stop itself."""
    begun, seen = threading.Event(), []

    def work() -> None:
        me = current()
        begun.set()
        for _ in range(500):
            if me.cancelled:
                seen.append(True)
                return
            threading.Event().wait(0.005)

    with anyio.fail_after(5):
        async with Executor().stream(just(step("a").call(work))) as run:
            async for event in run:
                if isinstance(event, ev.StepStarted):
                    while not begun.is_set():  # noqa: ASYNC110  # an event of a thread
                        await anyio.sleep(0.002)
                    run.cancel("stop")
    one = run.result.step("a")
    assert (run.result.status, one.status, one.abandoned, seen) == (
        "cancelled",
        "cancelled",
        False,
        [True],
    )


async def test_the_log_is_bound_to_the_step() -> None:
    """`current().log` has run id, path and attempt on every line."""

    def work() -> None:
        current().log.info("hello", extra=1)

    with capture_logs() as logs:
        await Executor().options(run_id="r").run(just(step("a").call(work)))
    (line,) = [one for one in logs if one["event"] == "hello"]
    assert (line["run_id"], line["path"], line["attempt"], line["extra"]) == ("r", "a", 1, 1)


async def test_a_body_has_no_current_step() -> None:
    """In a workflow's own body `current()` is OutsideStep, even between steps."""

    @workflow
    def flow() -> Steps[Any]:
        yield from step("a").call(alook)
        return current()

    result = await Executor().run(flow)
    assert result.status == "failed"
    assert "handrail.current()" in (result.error or "")


# -- contextvars -----------------------------------------------------------------------------------


async def test_context_variables_reach_every_kind_of_action() -> None:
    """What the caller set is seen by async, sync and inline actions, alone and in groups."""

    async def aget() -> str:
        await anyio.lowlevel.checkpoint()
        return COLOUR.get()

    @workflow
    def flow() -> Steps[Any]:
        a = yield from step("a").call(aget)
        b = yield from step("b").call(COLOUR.get)
        c = yield from step("c").call(COLOUR.get).inline()
        d = yield from step("g").parallel(step("d").call(aget), step("e").call(COLOUR.get))
        return a, b, c, *d

    token = COLOUR.set("red")
    try:
        result = await Executor().run(flow)
    finally:
        COLOUR.reset(token)
    assert result.value == ("red",) * 5


@pytest.mark.parametrize("kind", ["async", "at once", "sync", "inline"])
async def test_what_an_action_sets_reaches_no_other_step(kind: str) -> None:
    """A context variable set by an action is seen by no other step, nor by body or caller."""

    async def aset() -> None:
        COLOUR.set("blue")
        await anyio.lowlevel.checkpoint()
        COLOUR.set("green")

    async def at_once() -> None:
        COLOUR.set("blue")

    def sset() -> None:
        COLOUR.set("blue")

    @workflow
    def flow() -> Steps[Any]:
        if kind == "async":
            yield from step("set").call(aset)
        elif kind == "at once":
            yield from step("set").call(at_once)
        elif kind == "sync":
            yield from step("set").call(sset)
        else:
            yield from step("set").call(sset).inline()
        body = COLOUR.get()
        a = yield from step("a").call(COLOUR.get)
        b = yield from step("b").call(COLOUR.get).inline()
        yield from step("g").parallel(step("x").call(aset), step("y").call(sset))
        c = yield from step("c").call(COLOUR.get)
        return body, a, b, c

    result = await Executor().run(flow)
    assert result.value == ("none",) * 4
    assert COLOUR.get() == "none"


async def test_retries_start_from_a_clean_context() -> None:
    """What attempt 1 set is not seen by attempt 2."""
    seen: list[str] = []

    async def work() -> None:
        seen.append(COLOUR.get())
        COLOUR.set("blue")
        if len(seen) == 1:
            raise ValueError("again")

    await Executor().run(just(step("a").call(work).retry(2, backoff=0)))
    assert seen == ["none", "none"]


# -- where code runs -------------------------------------------------------------------------------


async def test_small_functions_run_on_the_loop_and_sync_actions_in_threads() -> None:
    """Body, predicates, builders, handlers, `key` and `body` run in the loop's thread."""
    here = threading.get_ident()
    told: dict[str, bool] = {}

    def note(name: str, value: Any = None) -> Any:
        told[name] = threading.get_ident() == here
        return value

    def action() -> None:
        note("action")

    async def aaction() -> None:
        note("async action")

    def fail() -> None:
        raise ValueError("no")

    def member(n: int) -> Any:
        return note("member", step("x").call(same, n))

    def generate(context: Any) -> str:
        return str(context["v"])

    @workflow
    def flow() -> Steps[Any]:
        note("body")
        yield from step("a").call(action)
        yield from step("b").call(aaction)
        yield from step("c").call(lambda: note("inline")).inline()
        yield from step("d").call(same).when(lambda _: note("predicate", True))
        yield from (
            step("e").call(fail).on_error(lambda _, __: note("handler", step("f").call(same)))
        )
        yield from step("h").for_each([1], member, key=lambda n: note("key", f"k{n}"))
        yield from step("i").generate(generate, lambda _: note("builder", {"v": 1}))

    result = await Executor().run(flow)
    assert result.status == "succeeded"
    off = {name for name, on_loop in told.items() if not on_loop}
    assert off == {"action"}
    assert len(told) == 9


async def test_sync_actions_do_not_block_the_loop() -> None:
    """While a sync action runs, the loop goes on."""
    release = threading.Event()
    turned = False

    async def other() -> None:
        nonlocal turned
        await anyio.sleep(0.01)
        turned = True
        release.set()

    async with anyio.create_task_group() as group:
        group.start_soon(other)
        result = await Executor().run(just(step("a").call(release.wait, 5)))
    assert (result.value, turned) == (True, True)


# -- several executors -----------------------------------------------------------------------------


async def test_two_executors_in_one_loop_do_not_meet() -> None:
    """Runs of two executors at once keep their sinks, services, agents and ids apart."""

    @workflow
    def flow(n: int) -> Steps[Any]:
        yield from step("s").sleep(0.01)
        got = yield from step("a").generate(str, lambda ctx: {"v": ctx.services["who"]})
        yield from step("q").ask("?", choices=["x", "y"])
        return got, n, (yield from step("c").call(look)).run_id

    sinks = [MemorySink(), MemorySink()]
    executors = [
        Executor(sinks=[sink], services={"who": f"e{n}"}, gates="approve")
        for n, sink in enumerate(sinks)
    ]
    values: dict[int, Any] = {}

    async def one(n: int) -> None:
        values[n] = (await executors[n].options(run_id=f"r{n}").run(flow, n)).value

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(one, 0)
            group.start_soon(one, 1)
    for n, sink in enumerate(sinks):
        assert values[n] == (f"{{'v': 'e{n}'}}", n, f"r{n}")
        assert {event.run_id for event in sink.events} == {f"r{n}"}


async def test_options_are_of_the_copy_alone() -> None:
    """`options(run_id=, labels=)` leaves the executor as it was; labels are in the first event."""
    sink = MemorySink()
    executor = Executor(sinks=[sink])
    flow = just(step("a").call(give))
    named = executor.options(run_id="mine", labels={"team": "x"})
    assert (await named.run(flow)).run_id == "mine"
    assert (await executor.run(flow)).run_id != "mine"
    first, second = sink.of(ev.WorkflowStarted)
    assert (dict(first.labels), dict(second.labels)) == ({"team": "x"}, {})
