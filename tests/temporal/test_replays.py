"""Temporal's own ``Replayer`` finds every decision again in the histories of runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from temporalio.client import Client
from temporalio.workflow import NondeterminismError

from handrail import step, workflow
from handrail.steps.verbs import Steps
from handrail.temporal import TemporalExecutor, replayer
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
        for case in CASES:
            if case.name in NAMES:
                options = {**(case.options or {}), "workflows": CONFORMANCE}
                there = TemporalExecutor(client, task_queue="tests", **options)
                inputs = {"folder": tmp_path_factory.mktemp("effects")}
                result = await case.act(there, case.flow, inputs)
                await _store(client, result.run_id, folder)
        there = TemporalExecutor(client, task_queue="tests", workflows=[*FLOWS, *CONFORMANCE])
        for flow, args in ((counts, (30,)), (storm, (tmp_path_factory.mktemp("storm"), 12, 2))):
            await _store(client, (await there.run(flow, *args)).run_id, folder)
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
    with pytest.raises(NondeterminismError):
        await replayer([changed]).replay_workflow(history)
