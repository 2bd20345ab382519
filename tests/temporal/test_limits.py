"""What a cluster cannot do is said by name: at the start where it shows, else at its step."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import anyio
import pytest
import structlog
from temporalio.client import Client, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.common import RawValue
from temporalio.service import RPCError, RPCStatusCode

from handrail import (
    Budget,
    ClusterUnreachable,
    DefinitionError,
    Executor,
    HandrailError,
    MemoryJournal,
    NotDeterministic,
    NotPortable,
    NoWorker,
    RunNotFound,
    RunTerminated,
    StepFailed,
    TooLarge,
    WrongUse,
    step,
    workflow,
)
from handrail.model import events as ev
from handrail.model.context import WorkflowContext
from handrail.steps.verbs import Steps
from handrail.temporal import TemporalExecutor, TemporalWorker
from handrail.temporal.cluster import failure_of_call
from handrail.temporal.dev import DevServer
from handrail.temporal.wire import BOUNDS, MESSAGE, MOST_BYTES, Bounds, raw
from tests.temporal.flows import (
    FLOWS,
    add,
    counts,
    fans,
    gives,
    holds,
    local_only,
    nap,
    passes_on,
    takes,
    tidies_up,
)
from tests.temporal.plant import TemporalPlant

pytestmark = pytest.mark.temporal
Make = Callable[..., TemporalExecutor]
LARGE = MOST_BYTES + 1
SECRET = "correct horse battery"


# -- at the start ----------------------------------------------------------------------------------


@workflow
def rolls_dice() -> Steps[int]:
    """A body that would decide otherwise when it runs again."""
    import random

    return (yield from step("add").call(add, 1, random.randint(1, 6)))


@workflow
def reads_the_clock() -> Steps[int]:
    """The same by the time of day."""
    import time

    return (yield from step("add").call(add, 1, int(time.time())))


@pytest.mark.parametrize("flow", [rolls_dice, reads_the_clock])
async def test_a_body_that_is_not_deterministic_is_refused(flow: Any, engine: Make) -> None:
    """The error has the line, and what to write instead."""
    with pytest.raises(NotDeterministic, match=r"test_limits\.py:\d+: .*HR20"):
        await engine().run(flow)


async def test_the_check_is_of_the_source_and_needs_no_cluster() -> None:
    """Nothing is connected to before what the source shows has been looked at."""
    with pytest.raises(NotDeterministic):
        await TemporalExecutor("127.0.0.1:1").run(rolls_dice)


async def test_what_cannot_leave_the_process_is_refused(engine: Make) -> None:
    """Unless it is to be performed where the workflow's code runs."""
    with pytest.raises(NotPortable, match=r"flows\.py:\d+: step 'odd'"):
        await engine().run(local_only, 41)
    result = await engine(local=True).run(local_only, 41)
    assert result.value == 42


async def test_what_is_found_only_at_a_step_fails_it(engine: Make) -> None:
    """By the name of the part."""
    result = await engine().run(hidden)
    assert result.error_type == "handrail.errors.NotPortable"
    assert "step 'nap'" in str(result.error)


@pytest.mark.parametrize("below", [False, True])
async def test_what_is_held_on_one_machine_is_refused(engine: Make, *, below: bool) -> None:
    """The next step may run on another."""
    result = await engine().run(holds, below=below)
    assert result.error_type == "handrail.errors.NotPortable"
    assert "step 'held' cannot leave this process, because of its claim" in str(result.error)
    assert str(result.error).endswith("or run it on one machine")


@workflow
def hidden() -> Steps[str]:
    """A function without a name, which the source does not show to be one."""
    return (yield from step("nap").call(_odd()))


def _odd() -> Callable[[], Awaitable[str]]:
    async def inner() -> str:
        return await nap(0)

    return inner


REFUSED: dict[str, Any] = {
    "journal": MemoryJournal(),
    "agents": {},
    "services": {},
    "backend": "claude",
    "around": [],
    "shared_limits": None,
    "durable": True,
    "clock": None,
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_argument_of_an_executor_that_means_nothing_here_is_refused(name: str) -> None:
    """By name, with where it belongs."""
    with pytest.raises(WrongUse, match=f"{name}="):
        TemporalExecutor("127.0.0.1:7233", **{name: REFUSED[name]})


@workflow(name="counts")
def other_counts() -> Steps[None]:
    """Another workflow of a name that one of these tests has."""
    yield from step("add").call(add, 1, 1)


WRONG: dict[str, tuple[Any, type[Exception]]] = {
    "gates": ("nonsense", DefinitionError),
    "on_change": ("nonsense", WrongUse),
    "workflows": ([counts, other_counts], WrongUse),
    "sinks": ([object()], WrongUse),
    "limits": (Budget(launches=1), WrongUse),
    "max_crashes": (-1, DefinitionError),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_argument_of_the_wrong_kind_is_refused_as_by_an_executor(name: str) -> None:
    """By both, with the same words."""
    value, kind = WRONG[name]
    told: list[str] = []
    for make in (Executor, partial(TemporalExecutor, "127.0.0.1:7233")):
        with pytest.raises(kind) as refused:
            make(**{name: value})
        told.append(str(refused.value))
    assert told[0] == told[1]


def test_a_worker_serves_no_two_workflows_of_one_name() -> None:
    """It could not know which is meant."""
    with pytest.raises(WrongUse, match="counts"):
        TemporalWorker("127.0.0.1:7233", [counts, other_counts])


def test_an_unknown_argument_is_a_type_error() -> None:
    """As of any function."""
    with pytest.raises(TypeError, match="nonsense"):
        TemporalExecutor("127.0.0.1:7233", nonsense=1)


@pytest.mark.parametrize("where", ["localhost", "localhost:", "localhost/default", ":x/y"])
async def test_an_address_is_looked_at(where: str) -> None:
    """Before anything is connected to."""
    with pytest.raises(WrongUse, match="ADDRESS"):
        await TemporalExecutor(where).run(counts)


# -- the cluster -----------------------------------------------------------------------------------


async def test_a_cluster_that_is_not_there_is_named() -> None:
    """With the reason, and without its library's types."""
    with pytest.raises(ClusterUnreachable, match=r"127\.0\.0\.1:1/default cannot be reached: Conn"):
        await TemporalExecutor("127.0.0.1:1").run(counts)


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (RPCStatusCode.UNAVAILABLE, "", ClusterUnreachable),
        (RPCStatusCode.UNKNOWN, "transport error", ClusterUnreachable),
        (RPCStatusCode.UNKNOWN, "the workflow is odd", RPCError),
        (RPCStatusCode.NOT_FOUND, "no connection between them", RPCError),
        (RPCStatusCode.CANCELLED, "operation was canceled", ClusterUnreachable),
        (RPCStatusCode.DEADLINE_EXCEEDED, "Timeout expired", ClusterUnreachable),
        (RPCStatusCode.UNAUTHENTICATED, "who are you?", ClusterUnreachable),
        (RPCStatusCode.PERMISSION_DENIED, "not you", ClusterUnreachable),
        (RPCStatusCode.RESOURCE_EXHAUSTED, "too many calls", ClusterUnreachable),
        (RPCStatusCode.INVALID_ARGUMENT, "WorkflowId length exceeds limit.", WrongUse),
    ],
)
def test_a_failed_call_is_said_as_what_it_means(
    status: RPCStatusCode, text: str, kind: type[Exception]
) -> None:
    """With the cluster's words. A connection that breaks during a call has no status of its own."""
    failure = failure_of_call(RPCError(text, status, b""), "here:1/default")
    assert type(failure) is kind
    assert text.rstrip(".") in str(failure)


async def test_a_wait_that_is_broken_off_goes_on(
    engine: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits for a run's end hears of it although a call for it was cancelled on its way."""
    result = WorkflowHandle.result

    async def broken(*_: Any, **__: Any) -> NoReturn:
        monkeypatch.setattr(WorkflowHandle, "result", result)
        raise RPCError("operation was canceled", RPCStatusCode.CANCELLED, b"")

    monkeypatch.setattr(WorkflowHandle, "result", broken)
    assert (await engine(workflows=FLOWS).run(counts, 2)).value == 2
    assert WorkflowHandle.result is result


async def test_a_namespace_that_is_not_there_is_named(client: Client) -> None:
    """As a cluster."""
    address = client.service_client.config.target_host
    with pytest.raises(ClusterUnreachable, match="/nowhere cannot be reached: Namespace nowhere"):
        await TemporalExecutor(f"{address}/nowhere").run(counts)


async def test_a_run_that_was_terminated_is_named_and_goes_on(engine: Make, client: Client) -> None:
    """Somebody ends it by the cluster's own means: there is no end on record, and it is resumed."""
    there = engine(workflows=FLOWS)
    waits = await there.options(run_id="terminated").run(tidies_up, "terminated")
    assert waits.status == "suspended"
    await client.get_workflow_handle("terminated").terminate("by hand")
    with pytest.raises(RunTerminated, match="was terminated on the cluster"):
        await there.result("terminated")
    await there.resume("terminated")
    await there.answer("terminated", "go?", "yes")
    assert (await there.result("terminated")).value == "yes"


# -- workers ---------------------------------------------------------------------------------------


async def test_without_a_worker_that_is_said(
    client: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever looks at the run is told; the run begins when there is one."""
    monkeypatch.setattr("handrail.temporal.cluster.SOON_S", 0.2)
    there = TemporalExecutor(client, task_queue="nobody", workflows=FLOWS)
    await there.start(counts, 2, run_id="waits-for-a-worker")
    with pytest.raises(NoWorker, match="no worker serves it"):
        await there.get("waits-for-a-worker")
    with pytest.raises(NoWorker, match="The message may still reach the run"):
        await there.signal("waits-for-a-worker", "news")
    gc.collect()
    assert "never retrieved" not in caplog.text
    async with TemporalWorker(client, FLOWS, task_queue="nobody"):
        assert (await there.result("waits-for-a-worker")).value == 2


async def test_it_is_said_soon_that_the_only_worker_was_killed(
    server: DevServer, client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever waits for a run is told within seconds, though the cluster still lists the worker."""
    plant = TemporalPlant(tmp_path, "killed", ["tests.temporal.flows"], server=server)
    pid = plant.start_worker()
    there = TemporalExecutor(client, task_queue="killed", workflows=FLOWS)
    with structlog.testing.capture_logs() as logged:
        waits = asyncio.ensure_future(there.options(run_id="killed").run(fans, 1, 600.0))
        try:
            with anyio.fail_after(30):
                while not await _has_begun(there, "killed", "all/0/nap"):  # noqa: ASYNC110
                    await anyio.sleep(0.05)
            plant.kill_worker(pid)
            with anyio.fail_after(8):
                while not logged:  # noqa: ASYNC110
                    await anyio.sleep(0.05)
        finally:
            waits.cancel()
            plant.close()
    assert [line["trouble"] for line in logged] == ["no worker answers for it"]


async def _has_begun(there: TemporalExecutor, run_id: str, path: str) -> bool:
    try:
        return path in [step.path for step in (await there.get(run_id)).steps]
    except (RunNotFound, NoWorker):
        return False


async def test_a_worker_without_the_code_says_so(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is looked for by its name; what is not there is said, and another worker takes the run."""
    monkeypatch.setattr("handrail.temporal.cluster.PATIENCE_S", 1.0)

    @workflow(name="elsewhere")
    def only_here() -> Steps[int]:
        return (yield from step("add").call(add, 1, 2))

    there = TemporalExecutor(client, task_queue="strangers", workflows=[only_here])
    async with TemporalWorker(client, [], task_queue="strangers"):
        await there.start(only_here, run_id="a-stranger")
        cluster = await there._caller.cluster()  # what watches a run asks this
        with anyio.fail_after(20):
            said = ""
            while "cannot continue" not in said:
                said = str(await cluster.troubles("a-stranger"))
        with pytest.raises(NoWorker, match=r"cannot continue: .*only_here"):
            await there.get("a-stranger")
    assert "only_here" in said
    async with TemporalWorker(client, [only_here], task_queue="strangers"):
        assert (await there.result("a-stranger")).value == 3


async def test_a_secret_in_an_input_travels_as_a_reference(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker puts in the value of its own environment; the cluster never has it."""
    monkeypatch.setenv("SHOP_API_KEY", SECRET)
    there, text = TemporalExecutor(client, task_queue="shops"), f"Bearer {SECRET}"
    async with TemporalWorker(client, [takes, asks_and_fails], task_queue="shops"):
        with anyio.fail_after(30):
            result = await there.run(takes, text)
            asked = await there.run(asks_and_fails, text)
            await there.answer(asked.run_id, "which?", text)
            failed = await there.result(asked.run_id)
    assert result.value == len(text)
    assert str(failed.error).endswith(f"not {text}")
    for run_id in (result.run_id, asked.run_id):
        history = await client.get_workflow_handle(run_id).fetch_history()
        assert not any(b"correct horse" in one.SerializeToString() for one in history.events)


REFUSED_MESSAGES: dict[str, ev.Event] = {
    "an answer": ev.GateAnswered("all/many?", SECRET),
    "a signal": ev.SignalReceived("count", SECRET),
    "an output": ev.RunSteered("complete", "all/many?", value=[SECRET]),
    "a path": ev.RunSteered("complete", SECRET, value=1),
}


async def test_a_secret_in_a_refused_message_does_not_come_back(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster passes a refusal on without it, and whoever sent it is told all."""
    monkeypatch.setenv("SHOP_API_KEY", SECRET)
    there = TemporalExecutor(client, task_queue="counts", workflows=[counts_on])
    async with TemporalWorker(client, [counts_on], task_queue="counts"):
        await there.options(run_id="secrets-refused").run(counts_on)
        handle: Any = client.get_workflow_handle("secrets-refused")
        for what, event in REFUSED_MESSAGES.items():
            row = there._caller.row("secrets-refused", event)  # as ``there`` sends it
            with pytest.raises(WorkflowUpdateFailedError) as refused:
                await handle.execute_update(MESSAGE, raw(row), result_type=RawValue)
            failure: Any = refused.value.cause
            assert SECRET not in f"{failure} {failure.details}", what
            with pytest.raises(HandrailError, match=SECRET):
                await there.ask("secrets-refused", event)
        await there.cancel("secrets-refused")


@workflow
def counts_on() -> Steps[Any]:
    """Waits for numbers."""
    asked = step("many?").ask("How many?", type=int)
    return (yield from step("all").parallel(asked, step("count").wait_for("count", int)))


def refuse(text: str) -> None:
    """Fail with what is given."""
    raise ValueError(f"not {text}")


def shows_input(ctx: WorkflowContext) -> bool:
    """Fail with the run's input."""
    raise ValueError(ctx.inputs["text"])


@workflow
def asks_and_fails(text: str) -> Steps[None]:
    """Shows its input in a question, in a predicate's failure and in a step's."""
    answer = yield from step("which?").ask(f"Which of {text}?")
    with contextlib.suppress(StepFailed):
        yield from step("judged").call(refuse, text).when(shows_input)
    yield from step("refuse").call(refuse, answer)


# -- sizes -----------------------------------------------------------------------------------------


async def test_a_result_that_is_too_large_fails_its_step(engine: Make) -> None:
    """With its size, what is allowed, and where larger ones go."""
    result = await engine().run(gives, LARGE)
    assert result.error_type == "handrail.cluster_errors.TooLarge"
    assert "blobs=" in str(result.error)


async def test_inputs_that_are_too_large_are_refused(engine: Make) -> None:
    """At once."""
    with pytest.raises(TooLarge, match="inputs"):
        await engine().run(takes, "x" * LARGE)


async def test_arguments_that_are_too_large_fail_their_step(engine: Make) -> None:
    """Where they come from several steps, each of which was small enough."""
    result = await engine().run(adds_up, MOST_BYTES // 2 - 100_000)
    assert result.error_type == "handrail.cluster_errors.TooLarge"
    assert "arguments of step 'measure'" in str(result.error)


@workflow
def adds_up(size: int) -> Steps[int]:
    """Two values that are together too much."""
    from tests.temporal.flows import large, length

    one = yield from step("one").call(large, size)
    other = yield from step("other").call(large, size)
    return (yield from step("measure").call(length, one + other + one))


@pytest.mark.parametrize("where", ["{folder}", "memory://blobs"])
async def test_with_a_store_large_values_lie_there(
    where: str, client: Client, tmp_path: Path
) -> None:
    """Inputs, arguments, results and the value of the run, each once, under its hash."""
    blobs = where.format(folder=tmp_path / "blobs")
    there = TemporalExecutor(client, task_queue="blobs", workflows=FLOWS, blobs=blobs)
    async with TemporalWorker(client, FLOWS, task_queue="blobs", blobs=blobs):
        assert (await there.run(passes_on, LARGE)).value == LARGE
        assert (await there.run(takes, "x" * LARGE)).value == LARGE
        result = await there.run(gives, LARGE)
        assert len(result.unwrap()) == LARGE
        here = Executor(workflows=FLOWS)
        await there.export(result.run_id, tmp_path / "run.jsonl")
        assert await here.import_run(tmp_path / "run.jsonl") == result.run_id
        without = TemporalExecutor(client, task_queue="blobs", workflows=FLOWS)
        for asked in (without.get, without.result, without.plan):
            with pytest.raises(WrongUse, match="HANDRAIL_BLOBS"):
                await asked(result.run_id)


async def test_a_wide_group_has_so_many_in_flight_and_no_more(
    engine: Make, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server takes 2,000 pending steps of one run: it is given 500, here 100."""
    assert BOUNDS.window == 500
    monkeypatch.setattr("handrail.temporal.wire.BOUNDS", Bounds(window=100))
    there = engine(workflows=FLOWS)
    handle = await there.start(fans, 140, 0.0, run_id="wide")
    assert (await handle.result()).value == 140
    history = await client.get_workflow_handle("wide").fetch_history()
    most = pending = 0
    for event in history.events:
        if event.HasField("activity_task_scheduled_event_attributes"):
            pending += 1
        elif event.HasField("activity_task_completed_event_attributes"):
            pending -= 1
        most = max(most, pending)
    assert 50 < most <= 100
