"""What handrail costs on a Temporal cluster, beside a workflow written by hand that does the same.

    python -m bench.temporal [--rounds 3]

Both run in the same minutes on the same server, each with a worker process of its own. The one by
hand has no record, no steering and no retries of its own: it calls activities.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from temporalio.client import Client

from bench.measure import Row
from handrail import Step, Steps, step, workflow
from handrail.temporal import TemporalExecutor, TemporalWorker
from handrail.temporal.dev import dev_server

STEPS = 200
MEMBERS = 1_000
AT_MOST = 1.3


def add(total: int, number: int) -> int:
    """The work of a step."""
    return total + number


@workflow
def sequence(count: int) -> Steps[int]:
    """One step after another."""
    total = 0
    for number in range(count):
        total = yield from step(f"add-{number}").call(add, total, number)
    return total


def member(number: int) -> Step[int]:
    """A member of the fan-out."""
    return step("add").call(add, number, 1)


@workflow
def fan_out(count: int) -> Steps[int]:
    """As many side by side as are allowed."""
    outputs = yield from step("all").for_each(range(count), member)
    return sum(outputs)


async def serve(address: str) -> None:
    """Be a worker of handrail's, until the process is ended."""
    client = await Client.connect(address)
    async with TemporalWorker(client, [sequence, fan_out]):
        print("up", flush=True)
        await asyncio.Event().wait()


async def timed(call: Callable[[], Awaitable[object]]) -> float:
    """How long a call takes."""
    began = time.perf_counter()
    await call()
    return time.perf_counter() - began


async def measured(address: str, rounds: int) -> list[Row]:
    """The rows: the least of all rounds, which take turns."""
    client = await Client.connect(address)
    executor = TemporalExecutor(client)

    def by_hand(name: str, count: int) -> Callable[[], Awaitable[object]]:
        return lambda: client.execute_workflow(
            name, count, id=f"{name}-{os.urandom(4).hex()}", task_queue="by-hand"
        )

    calls: dict[str, tuple[int, Callable[[], Awaitable[object]]]] = {
        "sequence by hand": (STEPS, by_hand("SequenceByHand", STEPS)),
        "sequence": (STEPS, lambda: executor.run(sequence, STEPS)),
        "fan-out by hand": (MEMBERS, by_hand("FanOutByHand", MEMBERS)),
        "fan-out": (MEMBERS, lambda: executor.run(fan_out, MEMBERS)),
    }
    best = dict.fromkeys(calls, float("inf"))
    for number in range(rounds + 1):
        for name, (count, call) in calls.items():
            took = await timed(call) / count * 1e6
            if number:  # the first round warms up
                best[name] = min(best[name], took)
    return [
        Row(
            f"temporal: {what} of {count}", "by hand", best[f"{what} by hand"], best[what],
            best[what] / best[f"{what} by hand"], AT_MOST,
        )
        for what, count in (("sequence", STEPS), ("fan-out", MEMBERS))
    ]  # fmt: skip


def worker(module: str, *arguments: str) -> subprocess.Popen[str]:
    """A worker in a process of its own, which is up."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


def main() -> int:
    """Measure; 1 if a promise is not kept."""
    parser = argparse.ArgumentParser(prog="bench.temporal", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", default="", help="be a worker at this address")
    parser.add_argument("--plain", action="store_true", help="the one by hand without its sandbox")
    given = parser.parse_args()
    if given.serve:
        asyncio.run(serve(given.serve))
        return 0
    from bench.__main__ import line

    with tempfile.TemporaryDirectory() as folder, dev_server(Path(folder) / "db") as server:
        plain = ["--plain"] if given.plain else []
        workers = [
            worker("bench.temporal_by_hand", server.address, *plain),
            worker("bench.temporal", "--serve", server.address),
        ]
        try:
            rows = asyncio.run(measured(server.address, given.rounds))
        finally:
            for one in workers:
                one.kill()
                one.wait()
    for row in rows:
        print(line(row))
    return 0 if all(row.met for row in rows) else 1


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # the library's threads may crash in a normal exit
