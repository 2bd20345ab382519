"""Temporal's own ``Replayer`` finds every decision again in the histories of runs."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from handrail import step, workflow
from handrail.model.context import WorkflowContext
from handrail.steps.verbs import Steps
from handrail.temporal import TemporalExecutor, TemporalWorker, replayer
from handrail.temporal.execution import Execution
from handrail.temporal.host import Tasks
from handrail.temporal.wire import Bounds
from handrail.testing.conformance import CASES, storm
from handrail.testing.conformance import FLOWS as CONFORMANCE
from tests.temporal import flows
from tests.temporal.flows import FLOWS, counts
from tests.temporal.replaying import replayed, stored

pytestmark = pytest.mark.temporal
NAMES = frozenset(
    {"order", "handled failures", "groups", "sub-workflows", "validation", "agents", "rollbacks"}
    | {"questions and signals", "cancel", "pause", "retry"}
)


@pytest.fixture(scope="module")
async def histories(client: Client, worker: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of histories: one of each case, a storm, and executions that went on in others."""
    del worker
    folder = tmp_path_factory.mktemp("histories")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("handrail.temporal.wire.BOUNDS", Bounds(soft_events=60))
        there = TemporalExecutor(client, task_queue="tests", workflows=[*FLOWS, *CONFORMANCE])
        results = await asyncio.gather(
            there.run(counts, 30),
            there.run(storm, tmp_path_factory.mktemp("storm"), 12, 2),
            *(
                case.act(there, case.flow, {"folder": tmp_path_factory.mktemp("effects")})
                for case in CASES
                if case.name in NAMES
            ),
        )
    for result in results:
        await _store(client, result.run_id, folder)
    return folder


async def _store(client: Client, run_id: str, folder: Path) -> None:
    async for one in client.list_workflows(f"WorkflowId = '{run_id}'"):
        handle = client.get_workflow_handle(run_id, run_id=one.run_id)
        history = await handle.fetch_history()
        (folder / f"{run_id}@{one.run_id}.json").write_text(history.to_json(), "utf-8")


async def test_every_history_is_replayed(histories: Path) -> None:
    """In this process, which made them."""
    assert await replayed(stored(histories)) > len(NAMES) + 2


@pytest.mark.parametrize("seed", ["1", "4242"])
async def test_another_process_replays_them(histories: Path, seed: str) -> None:
    """In which sets and hashes have another order."""
    done = await anyio.run_process(
        [sys.executable, "-m", "tests.temporal.replaying", str(histories)],
        env={"PYTHONHASHSEED": seed, "PATH": "", "HOME": str(histories)},
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) == len(list(stored(histories)))


async def test_code_that_decides_otherwise_is_found(
    engine: Callable[..., TemporalExecutor], client: Client
) -> None:
    """The test above could fail: a changed workflow does not replay."""
    result = await engine(workflows=FLOWS).run(counts, 2)

    @workflow(name="counts")
    def changed(n: int = 3) -> Steps[int]:
        return (yield from step("another").call(flows.add, n, 1))

    history = await client.get_workflow_handle(result.run_id).fetch_history()
    with pytest.raises(Exception, match="another"):
        await replayer([changed]).replay_workflow(history)


@pytest.mark.parametrize(
    ("came", "begun"),
    [
        ([(3, 10), (9, 20), (15, 30)], [True, True, True]),  # each with its task
        ([(3, 10), (15, 10)], [True, False]),  # before its task, for a query
        ([(3, 10), (3, 14), (9, 14), (15, 30)], [True, True, True, True]),  # a local end's clock
        ([(3, 10), (3, 14), (9, 20), (15, 20)], [True, True, True, False]),
    ],
)
def test_events_that_come_before_their_task_are_told_by_what_stands_still(
    came: list[tuple[int, int]], begun: list[bool]
) -> None:
    """The history's size, or the clock unless a local activity's end had put that forward."""
    tasks = Tasks()
    assert [tasks.has_begun(*one) for one in came] == begun


_judged = threading.Event()


async def _judges(_: WorkflowContext) -> bool:
    _judged.set()
    return True


@workflow
def judged() -> Steps[None]:
    """A step on a condition, once there are news, and some steps after it."""
    yield from step("news").wait_for("news")
    yield from step("on condition").call(flows.add, 1, 1).when(_judges)
    for number in range(3):
        yield from step(f"after-{number}").call(flows.add, number, 1)


async def test_a_verdict_that_comes_a_task_late_continues_no_execution(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question about the run is answered while a predicate ends: Temporal's library tells of that
    end one task later than in a replay, and by then the history is longer, here than its limit.
    """
    monkeypatch.setattr("handrail.temporal.wire.BOUNDS", Bounds(soft_events=14))
    begun, sent = threading.Event(), threading.Event()
    signalled, state = Execution.signalled, Execution.state

    def hold(self: Execution, name: str, args: Any) -> None:
        if name == "hold":  # the question and the news come while this task lasts
            begun.set()
            sent.wait(1)
        signalled(self, name, args)

    def outlast(self: Execution) -> Any:
        if sent.is_set():
            _judged.wait(1)
            time.sleep(0.1)  # noqa: TID251  # its end is on its way to the library
        return state(self)

    monkeypatch.setattr(Execution, "signalled", hold)
    monkeypatch.setattr(Execution, "state", outlast)
    _judged.clear()
    async with TemporalWorker(client, [judged], task_queue="judged"):
        there = TemporalExecutor(client, task_queue="judged", workflows=[judged])
        handle = await there.start(judged, run_id="judged")
        run = client.get_workflow_handle("judged")
        await run.signal("hold")
        await anyio.to_thread.run_sync(begun.wait, 5)
        question = asyncio.ensure_future((await there._caller.cluster()).state("judged"))
        await asyncio.sleep(0)
        await run.signal("news")
        sent.set()
        await question
        assert (await handle.result()).success
    pairs: set[tuple[int, int]] = set()
    async for one in client.list_workflows("WorkflowId = 'judged'"):
        history = await client.get_workflow_handle(one.id, run_id=one.run_id).fetch_history()
        pairs |= set(pairwise(event.event_type for event in history.events))
        await replayer([judged]).replay_workflow(history)
    verdict, next_task = (
        EventType.EVENT_TYPE_MARKER_RECORDED,
        EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED,
    )
    assert (verdict, next_task) in pairs  # nothing followed from the verdict in its own task
