"""Cancellation, interruption, and what unwinds."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from handrail import Executor, MemorySink, RunCancelled, Step, StepFailed, Steps, step, workflow
from handrail.model import events as ev
from handrail.testing import JumpClock, TextJournal
from tests.engine.support import (
    Jumping,
    cancelled_when,
    check_drive,
    forever,
    just,
    paths_begun,
    same,
    statuses,
)


async def cancelled_at(flow: Any, path: str, **options: Any) -> tuple[Any, MemorySink]:
    """The result of a run that is cancelled when the step at ``path`` starts."""
    sink = MemorySink()
    with anyio.fail_after(8):
        async with Executor(sinks=[sink], **options).stream(flow) as run:
            async for event in run:
                if isinstance(event, ev.StepStarted) and event.path == path:
                    await anyio.wait_all_tasks_blocked()
                    run.cancel("not wanted")
    check_drive(sink)
    return run.result, sink


async def test_cancel_unwinds_and_rolls_back() -> None:
    """The running step is cancelled, finally and rollbacks run, and the status is cancelled."""
    order: list[str] = []

    @workflow
    def flow() -> Steps[Any]:
        yield from step("a").call(same).with_rollback(lambda _: order.append("rollback"))
        try:
            yield from step("b").call(forever)
        except RunCancelled as cancelled:
            order.append(f"cancelled: {cancelled.reason}")
            raise
        finally:
            yield from step("c").call(order.append, "finally")

    result, sink = await cancelled_at(flow, "b")
    assert order == ["cancelled: not wanted", "finally", "rollback"]
    assert (result.status, result.success, result.value) == ("cancelled", False, None)
    assert "not wanted" in (result.error or "")
    assert statuses(result) == {"a": "succeeded", "b": "cancelled", "c": "succeeded"}
    assert [e.reason for e in sink.of(ev.CancelRequested)] == ["not wanted"]


@pytest.mark.parametrize("caught", [Exception, RunCancelled])
async def test_a_workflow_that_would_swallow_a_cancellation_is_cancelled(
    caught: type[BaseException],
) -> None:
    """`except Exception` lets it pass; who catches it and returns makes the run no success."""

    @workflow
    def flow() -> Steps[Any]:
        try:
            yield from step("b").call(forever)
        except caught:
            return "swallowed"

    result, _ = await cancelled_at(flow, "b")
    assert (result.status, result.value) == ("cancelled", None)


async def test_cancel_unwinds_innermost_first() -> None:
    """Members and children unwind before the generators around them."""
    order: list[str] = []

    def body(n: int) -> Steps[Any]:
        try:
            yield from step("x").call(forever)
        finally:
            yield from step("clean").call(order.append, f"member {n}")

    @workflow
    def child() -> Steps[Any]:
        try:
            yield from step("f").for_each([0, 1], body)
        finally:
            yield from step("clean").call(order.append, "child")

    @workflow
    def flow() -> Steps[Any]:
        try:
            yield from step("sub").subworkflow(child)
        finally:
            yield from step("clean").call(order.append, "parent")

    result, _ = await cancelled_at(flow, "sub/f/1/x")
    assert result.status == "cancelled"
    assert sorted(order[:2]) == ["member 0", "member 1"]
    assert order[2:] == ["child", "parent"]


async def test_clean_up_has_its_own_timeout() -> None:
    """Steps yielded while unwinding are stopped after cleanup_timeout_s, and the run ends."""
    clock = Jumping()

    @workflow
    def flow() -> Steps[Any]:
        try:
            yield from step("b").call(forever)
        finally:
            yield from step("clean").call(forever)
            yield from step("more").call(same)

    result, _ = await cancelled_at(flow, "b", clock=clock, cleanup_timeout_s=12)
    assert result.status == "cancelled"
    assert statuses(result)["clean"] == "cancelled"
    assert "more" not in statuses(result)
    assert clock.time - 1_000_000.0 == 12


async def test_a_failing_clean_up_step_does_not_keep_the_run_from_ending() -> None:
    """A clean-up step that fails throws in the finally; the run is still cancelled."""
    seen: list[str] = []

    def broken() -> None:
        raise OSError("cannot clean")

    @workflow
    def flow() -> Steps[Any]:
        try:
            yield from step("b").call(forever)
        finally:
            try:
                yield from step("clean").call(broken)
            except StepFailed as failed:
                seen.append(str(failed))

    result, _ = await cancelled_at(flow, "b")
    assert result.status == "cancelled"
    assert "cannot clean" in seen[0]


@pytest.mark.parametrize(
    "made", [step("w").sleep(9999), step("w").wait_for("s"), step("w").ask("?")]
)
async def test_waiting_verbs_are_cancelled(made: Any) -> None:
    """A run that waits for time, a signal or a person can be cancelled."""
    result, _ = await cancelled_at(just(made), "w", linger_s=60)
    assert (result.status, statuses(result)) == ("cancelled", {"w": "cancelled"})


async def test_a_run_that_pauses_before_a_retry_is_cancelled() -> None:
    """Cancelling during a backoff ends the step as cancelled at once."""

    async def fail() -> None:
        raise OSError

    result, _ = await cancelled_at(just(step("a").call(fail).retry(3, backoff=60)), "a")
    assert (result.status, statuses(result)) == ("cancelled", {"a": "cancelled"})


class Odd(BaseException):
    """Of no kind that anybody expects."""


@pytest.fixture(params=[RuntimeError, Odd, None])
def will_not_stop(request: pytest.FixtureRequest) -> Callable[[], Awaitable[str]]:
    """An action that waits for ever; what it does when it is stopped: raise this, or return."""

    async def action() -> str:
        try:
            await anyio.sleep_forever()
        except BaseException:  # noqa: BLE001  # cancellations of any loop
            if request.param is not None:
                raise request.param("clean-up failed") from None
        return "half"

    return action


@pytest.mark.parametrize("alone", [True, False])
async def test_whatever_an_action_says_to_its_stop_it_is_stopped(
    will_not_stop: Callable[[], Awaitable[str]], *, alone: bool
) -> None:
    """The run is cancelled; neither an end of its own nor another step comes of it."""
    one = step("a").call(will_not_stop).skip_on_error()
    first = one if alone else step("group").parallel(one, step("b").call(forever))
    path = "a" if alone else "group/a"
    result, sink = await cancelled_at(just(first, step("next").call(same)), path)
    assert (result.status, statuses(result)[path]) == ("cancelled", "cancelled")
    assert not sink.of(ev.AttemptFailed)
    assert "next" not in statuses(result)


@pytest.mark.parametrize("begun", ["in the block", "in a scope"])
async def test_whatever_an_action_says_to_it_the_drive_is_interrupted(
    will_not_stop: Callable[[], Awaitable[str]], begun: str
) -> None:
    """At the end of the executor's block, or of the host's scope; a resume runs the step again."""
    flow = just(step("a").call(will_not_stop).skip_on_error(), step("next").call(same))
    journal = TextJournal()
    async with Executor(journal=journal) as executor:
        if begun == "in the block":
            await executor.start(flow, run_id="r")
            await anyio.wait_all_tasks_blocked()
        else:
            with anyio.move_on_after(0.1):
                await executor.options(run_id="r").run(flow)
    kept = list(journal.events("r"))
    assert [type(one) for one in kept[2:]] == [ev.StepInterrupted, ev.RunSuspended]


async def test_a_predicate_that_is_stopped_decides_nothing() -> None:
    """Whatever it answers: the next drive asks it again, and no step begins before."""

    async def waits(_: Any) -> bool:
        with contextlib.suppress(anyio.get_cancelled_exc_class()):
            await anyio.sleep_forever()
        return True

    flow, journal = just(step("a").call(same).when(waits)), TextJournal()
    async with Executor(journal=journal) as executor:
        await executor.start(flow, run_id="r")
        await anyio.wait_all_tasks_blocked()
    assert [type(one) for one in journal.events("r")] == [ev.WorkflowStarted, ev.RunSuspended]


async def test_no_step_begins_while_a_drive_ends() -> None:
    """A sleep that is over then lets none begin that nothing would stop."""
    executor = Executor(journal=TextJournal(), clock=JumpClock())

    async def stop() -> None:
        await executor.stop("r")
        await anyio.sleep_forever()

    def after(seconds: float, action: Callable[[], Awaitable[None]]) -> Step[Any]:
        both = just(step("sleep").sleep(seconds), step("next").call(action))
        return step(f"after {seconds}").subworkflow(both)

    flow = just(step("both").parallel(after(9.99, stop), after(10, forever)))
    with anyio.fail_after(8):
        result = await executor.options(run_id="r").run(flow)
    assert result.status == "suspended"


async def test_a_step_that_would_begin_while_a_drive_ends_was_not_interrupted() -> None:
    """After an answer that comes then: the next drive runs it, also if it may run only once."""
    journal, done = TextJournal(), list[str]()

    async def lingers() -> None:
        if done:
            return
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await executor.answer("r", "both/asks/go?", "yes")
                await anyio.sleep(0.1)
                done.append("lingers")

    asks = just(step("go?").ask("Go?"), step("next").call(done.append, "next").once())
    flow = just(step("both").parallel(step("slow").call(lingers), step("asks").subworkflow(asks)))
    async with Executor(journal=journal) as executor:
        await executor.start(flow, run_id="r")
        await anyio.wait_all_tasks_blocked()
    interrupted = [one for one in journal.events("r") if isinstance(one, ev.StepInterrupted)]
    assert [one.path for one in interrupted] == ["both/slow"]
    result = await Executor(journal=journal).resume("r", flow)
    assert (result.status, done) == ("succeeded", ["lingers", "next"])


async def test_a_command_is_cancelled_with_its_children() -> None:
    """Cancelling ends a command's whole process group promptly."""
    result, _ = await cancelled_at(just(step("c").command("sleep 60 & sleep 60")), "c")
    assert statuses(result) == {"c": "cancelled"}


async def test_a_thread_that_ignores_its_cancellation_is_abandoned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sync action that does not look is left behind after a grace, and said so."""
    import threading

    from handrail.engine import calls

    monkeypatch.setattr(calls, "ABANDON_AFTER_S", 0.05)
    release = threading.Event()
    try:
        result, _ = await cancelled_at(just(step("a").call(release.wait, 5)), "a")
    finally:
        release.set()
    one = result.step("a")
    assert (result.status, one.status, one.abandoned, one.output) == (
        "cancelled",
        "cancelled",
        True,
        None,
    )


async def test_cancel_before_the_first_step_ends_the_run() -> None:
    """A run cancelled before it was entered runs nothing."""
    called: list[int] = []
    run = Executor().stream(just(step("a").call(called.append, 1)))
    run.cancel("early")
    with anyio.fail_after(5):
        async with run:
            async for _ in run:
                pass
    assert run.result.status == "cancelled"
    assert called == []


async def test_cancelling_the_host_task_ends_the_run_before_it_passes_on() -> None:
    """Without a durable journal the run unwinds and rolls back, and the cancellation passes on."""
    order: list[str] = []
    sink = MemorySink()

    @workflow
    def flow() -> Steps[Any]:
        yield from step("a").call(same).with_rollback(lambda _: order.append("rollback"))
        try:
            yield from step("b").call(forever)
        finally:
            yield from step("c").call(order.append, "finally")

    async with cancelled_when(lambda: "b" in paths_begun(sink)) as scope:
        await Executor(sinks=[sink]).run(flow)
    assert scope.cancelled_caught
    assert order == ["finally", "rollback"]
    sink.assert_run_ended("cancelled")
    check_drive(sink)


async def test_cancelling_the_host_task_while_a_group_runs() -> None:
    """The same with members in flight: every one of them is ended and recorded."""
    sink = MemorySink()
    flow = just(step("g").parallel(*(step(f"m{n}").call(forever) for n in range(5))))
    with anyio.fail_after(5):
        async with cancelled_when(lambda: "g/m4" in paths_begun(sink)) as scope:
            await Executor(sinks=[sink]).run(flow)
    assert scope.cancelled_caught
    sink.assert_run_ended("cancelled")
    assert {result.status for result in sink.results().values()} == {"cancelled"}
    check_drive(sink)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("way", ["thread", "inline", "async", "group"])
def test_a_keyboard_interrupt_of_an_action_propagates(error: type[BaseException], way: str) -> None:
    """KeyboardInterrupt and SystemExit of an action end the run as cancelled, then come out."""
    order: list[str] = []
    sink = MemorySink()

    def sync() -> None:
        raise error

    async def act() -> None:
        raise error

    made: Any = {
        "thread": step("b").call(sync),
        "inline": step("b").call(sync).inline(),
        "async": step("b").call(act),
        "group": step("b").parallel(step("x").call(act), step("y").call(forever)),
    }[way]

    @workflow
    def flow() -> Steps[Any]:
        yield from step("a").call(same).with_rollback(lambda _: order.append("rollback"))
        try:
            yield from made
        finally:
            order.append("finally")

    with pytest.raises(error):
        Executor(sinks=[sink]).run_sync(flow)
    assert order == ["finally", "rollback"]
    sink.assert_run_ended("cancelled")
    check_drive(sink)


def test_a_keyboard_interrupt_of_the_body_propagates() -> None:
    """A KeyboardInterrupt that hits the workflow's own code is not swallowed; of the engine's own
    frames a script that is left by Ctrl-C shows two.
    """
    sink = MemorySink()

    @workflow
    def flow() -> Steps[Any]:
        yield from step("a").call(same)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        Executor(sinks=[sink]).run_sync(flow)
    sink.assert_run_ended("cancelled")
    assert (len(caught.traceback), caught.value.__suppress_context__) == (3, True)


@pytest.mark.parametrize("journal", [None, TextJournal()])
def test_a_keyboard_interrupt_of_a_predicate_ends_the_drive_at_once(journal: Any) -> None:
    """The drive does not wait for the predicate's answer, as for work that ignores its end."""
    clock, sink = Jumping(), MemorySink()
    began = clock.now()

    def interrupted(_: Any) -> bool:
        raise KeyboardInterrupt

    flow = just(step("p").parallel(step("a").call(forever), step("b").call(int).when(interrupted)))
    with pytest.raises(KeyboardInterrupt):
        Executor(journal=journal, sinks=[sink], clock=clock).run_sync(flow)
    sink.assert_run_ended("cancelled" if journal is None else "suspended")
    check_drive(sink)
    assert clock.now() == began


async def test_a_run_in_memory_that_is_stopped_is_cancelled() -> None:
    """Nothing could resume it: what it did is rolled back."""
    executor, order = Executor(), list[str]()

    async def stop() -> None:
        await anyio.lowlevel.checkpoint()
        await executor.stop("r", by="ada")
        await anyio.sleep_forever()

    first = step("a").call(same).with_rollback(lambda _: order.append("undone"))
    with anyio.fail_after(8):
        result = await executor.options(run_id="r").run(just(first, step("b").call(stop)))
    assert (result.status, result.error, order) == ("cancelled", "stopped by ada", ["undone"])


@pytest.mark.parametrize("how", ["handle", "cancel", "stop"])
async def test_an_action_stops_its_own_run(how: str) -> None:
    """Also before it has awaited anything, when nothing else is at work."""
    executor = Executor(journal=TextJournal())
    handles: list[Any] = []

    async def own() -> None:
        if how == "handle":
            handles[0].cancel("enough")
        else:
            await getattr(executor, how)("r")
        await anyio.sleep_forever()

    with anyio.fail_after(8):
        async with executor.options(run_id="r").stream(just(step("a").call(own))) as run:
            handles.append(run)
            async for _ in run:
                pass
    assert run.result.status == ("suspended" if how == "stop" else "cancelled")


@pytest.mark.parametrize("where", ["body", "member", "child"])
def test_a_keyboard_interrupt_of_a_body_suspends_a_durable_run(where: str) -> None:
    """Ctrl-C may hit the code between two steps: nothing is rolled back, and a resume goes on."""
    order: list[str] = []

    def body() -> Steps[str]:
        yield from step("a").call(order.append, "a").with_rollback(lambda _: order.append("undo"))
        if order == ["a"]:
            order.append("^C")
            raise KeyboardInterrupt
        yield from step("b").call(order.append, "b")
        return "done"

    child = workflow(name="child")(body)

    @workflow
    def flow() -> Steps[Any]:
        if where == "member":
            return (yield from step("m").for_each({"x": 1}, lambda _: body()))
        if where == "child":
            return (yield from step("c").run_workflow(child)).value
        return (yield from body())

    executor = Executor(journal=TextJournal(), workflows=[flow]).options(run_id="r")
    with pytest.raises(KeyboardInterrupt):
        executor.run_sync(flow)
    last = executor.journal.events("r")[-1]
    assert isinstance(last, ev.RunSuspended)
    assert last.reason == "keyboard interrupt"
    assert executor.resume_sync("r").success
    assert order == ["a", "^C", "b"]


async def test_leaving_a_stream_early_cancels_and_waits() -> None:
    """Leaving the block cancels the run; when it is left, finally has run."""
    order: list[str] = []

    @workflow
    def flow() -> Steps[Any]:
        try:
            yield from step("a").call(forever)
        finally:
            yield from step("c").call(order.append, "finally")

    with anyio.fail_after(5):
        async with Executor().stream(flow) as run:
            async for event in run:
                if isinstance(event, ev.StepStarted):
                    break
    assert order == ["finally"]
    assert run.result.status == "cancelled"


async def test_an_error_in_a_stream_block_cancels_the_run_and_comes_out_as_it_is() -> None:
    """The caller's own exception inside the block is raised, not wrapped in a group."""
    run = Executor().stream(just(step("a").call(forever)))

    async def fail_in_the_block() -> None:
        async with run:
            async for _ in run:
                raise LookupError("mine")

    with anyio.fail_after(5), pytest.raises(LookupError, match=r"mine"):
        await fail_in_the_block()
    assert run.result.status == "cancelled"


async def test_executor_cancel_reaches_a_live_run() -> None:
    """executor.cancel(run_id) asks the run that is live here to unwind."""
    executor = Executor(linger_s=60)
    async with executor.options(run_id="r").stream(just(step("a").call(forever))) as run:
        async for event in run:
            if isinstance(event, ev.StepStarted):
                await executor.cancel("r", "from afar")
    assert run.result.status == "cancelled"
    assert "from afar" in (run.result.error or "")
