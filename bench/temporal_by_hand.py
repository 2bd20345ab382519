"""The workflows of ``bench.temporal`` written by hand, and their worker.

    python -m bench.temporal_by_hand ADDRESS [--plain]

By itself a worker of the library's runs workflows in a sandbox; ``--plain`` leaves it out.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

_SOON = timedelta(seconds=60)


@activity.defn(name="add")
async def add_by_hand(total: int, number: int) -> int:
    """The same work, as an activity."""
    return total + number


@workflow.defn
class SequenceByHand:
    """One activity after another."""

    @workflow.run
    async def run(self, count: int) -> int:
        """Do it."""
        total = 0
        for number in range(count):
            total = await workflow.execute_activity(
                add_by_hand, args=[total, number], start_to_close_timeout=_SOON
            )
        return total


@workflow.defn
class FanOutByHand:
    """Activities side by side."""

    @workflow.run
    async def run(self, count: int) -> int:
        """Do it."""
        outputs = await asyncio.gather(*[
            workflow.execute_activity(
                add_by_hand, args=[number, 1], start_to_close_timeout=_SOON
            )
            for number in range(count)
        ])  # fmt: skip
        return sum(outputs)


async def serve(address: str, *, plain: bool) -> None:
    """Be a worker, until the process is ended."""
    runner = {"workflow_runner": UnsandboxedWorkflowRunner()} if plain else {}
    worker = Worker(
        await Client.connect(address),
        task_queue="by-hand",
        workflows=[SequenceByHand, FanOutByHand],
        activities=[add_by_hand],
        **runner,
    )
    async with worker:
        print("up", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], plain="--plain" in sys.argv))
