"""Waits cost nothing: a month goes by on a cluster whose clock jumps."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.testing import WorkflowEnvironment

from handrail import Executor
from handrail.temporal import TemporalExecutor, TemporalWorker
from handrail.testing import JumpClock
from handrail.testing.conformance import by_path, essence, history_differences
from handrail.testing.contracts.host import history_of
from tests.temporal.flows import FLOWS, patient, sleeps

pytestmark = pytest.mark.temporal


@pytest.fixture
async def skipping() -> AsyncIterator[WorkflowEnvironment]:
    """A server whose time passes at once, as soon as somebody wants it to."""
    program = str(Path(sys.executable).with_name("temporal-test-server"))
    environment = await WorkflowEnvironment.start_time_skipping(test_server_existing_path=program)
    yield environment
    await environment.shutdown()


async def test_a_month_goes_by(skipping: WorkflowEnvironment, tmp_path: Path) -> None:
    """In a sleep, and in the pauses of retries; the record has their times, and is as embedded."""
    there = TemporalExecutor(skipping.client, task_queue="later", workflows=FLOWS)
    here = Executor(workflows=FLOWS, clock=JumpClock(), portable=True)
    began = time.monotonic()
    async with TemporalWorker(skipping.client, FLOWS, task_queue="later"):
        for flow, inputs in ((sleeps, (30,)), (patient, (tmp_path, 3, 7_200))):
            handle = await there.start(flow, *inputs)
            await skipping.sleep(timedelta(days=31))
            other = await handle.result()
            one = await here.run(flow, *inputs)
            assert essence(one) == essence(other)
            histories = [
                await history_of(executor, result.run_id, tmp_path / f"{which}.jsonl")
                for which, executor, result in (("here", here, one), ("there", there, other))
            ]
            assert history_differences(*map(by_path, histories)) == []
            took = [round(one[-1].at - one[0].at, -1) for one in histories]
            assert took[0] == took[1] > 7_000
    assert time.monotonic() - began < 20
