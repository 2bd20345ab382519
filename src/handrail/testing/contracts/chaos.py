"""What an engine of many processes must survive: the kill of any process, at any time."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import anyio
import pytest

from handrail.executor import Executor
from handrail.testing.conformance import storm
from handrail.testing.contracts.host import assert_alike

MakeExecutor: TypeAlias = Callable[..., Any]
BRANCHES, STEPS = 12, 7


class Plant(Protocol):
    """The processes of an engine. Workers know ``handrail.testing.conformance``."""

    def start_worker(self) -> int:
        """Start a worker; its process id, once it serves."""
        ...

    def kill_worker(self, pid: int) -> None:
        """Kill a worker, as ``kill -9`` does."""
        ...

    def workers(self) -> Sequence[int]:
        """The process ids of the live workers."""
        ...

    def kill_server(self) -> None:
        """Kill the server, which keeps the runs, as ``kill -9`` does."""
        ...

    def start_server(self) -> None:
        """Start the server again, with the runs that it had kept."""
        ...

    def cut(self) -> None:
        """Cut the network between workers and server."""
        ...

    def join(self) -> None:
        """Restore the network between workers and server."""
        ...


class ChaosContract:
    """The tests of an engine whose runs outlive its processes.

    Subclass it, and override the fixtures ``engine`` (see ``HostContract``) and ``plant``. The
    storm has 12 branches of 7 steps; a step notes each effect by its idempotency key.
    """

    @pytest.fixture
    def engine(self) -> MakeExecutor:
        """Makes executors of the engine."""
        raise NotImplementedError("override the fixture engine in your subclass")

    @pytest.fixture
    def plant(self) -> Plant:
        """The processes of the engine, with three workers at work."""
        raise NotImplementedError("override the fixture plant in your subclass")

    async def test_a_worker_is_killed_in_a_group(
        self, engine: MakeExecutor, plant: Plant, tmp_path: Path
    ) -> None:
        """Its steps in flight run once more, under the same key; steps that had ended do not."""
        async with _storm(engine, tmp_path, seconds=0.3) as folder:
            killed = await _busy(plant, folder)
            plant.kill_worker(killed)
        doubles = _twice(folder)
        assert 0 < len(doubles) <= BRANCHES
        assert {first["pid"] for first, _ in doubles} <= {killed}
        assert all(second["again"] for _, second in doubles)

    async def test_all_workers_are_killed(
        self, engine: MakeExecutor, plant: Plant, tmp_path: Path
    ) -> None:
        """The run continues when other workers have started."""
        async with _storm(engine, tmp_path) as folder:
            await _begun(folder, BRANCHES)
            killed = list(plant.workers())
            for pid in killed:
                plant.kill_worker(pid)
            for _ in killed:
                plant.start_worker()
        doubles = _twice(folder)
        assert len(doubles) <= BRANCHES
        assert {first["pid"] for first, _ in doubles} <= {*killed}

    async def test_the_server_is_killed(
        self, engine: MakeExecutor, plant: Plant, tmp_path: Path
    ) -> None:
        """The run continues when the server is back, with all that the server had kept."""
        async with _storm(engine, tmp_path) as folder:
            await _begun(folder, BRANCHES)
            plant.kill_server()
            await anyio.sleep(1)
            plant.start_server()
        assert len(_twice(folder)) <= 2 * BRANCHES

    async def test_the_network_is_cut(
        self, engine: MakeExecutor, plant: Plant, tmp_path: Path
    ) -> None:
        """A worker that cannot report a step's end reports it later, or another runs the step."""
        async with _storm(engine, tmp_path) as folder:
            await _begun(folder, BRANCHES)
            plant.cut()
            await anyio.sleep(1)
            plant.join()
        assert len(_twice(folder)) <= 2 * BRANCHES

    async def test_a_storm_of_kills(
        self, engine: MakeExecutor, plant: Plant, tmp_path: Path, kills: int
    ) -> None:
        """Whatever is killed, and whenever, the run ends, and its result is right."""
        async with _storm(engine, tmp_path, seconds=0.4):
            chance = random.Random(kills)  # noqa: S311  # no secret
            for number in range(kills):
                await anyio.sleep(chance.uniform(0.05, 0.6))
                if number % 4 == 3:
                    plant.kill_server()
                    plant.start_server()
                else:
                    plant.kill_worker(chance.choice(plant.workers()))
                    plant.start_worker()

    @pytest.fixture
    def kills(self) -> int:
        """How many processes are killed in the storm; override it with more of them."""
        return 6


@asynccontextmanager
async def _storm(
    engine: MakeExecutor, scratch: Path, seconds: float = 0.05
) -> AsyncGenerator[Path]:
    """Run the storm during the block; after the block it must end, with the right result."""
    here = Executor(workflows=[storm], portable=True)
    there = engine(workflows=[storm], max_crashes=1_000)
    inputs: dict[str, Any] = {
        "folder": scratch / "effects",
        "branches": BRANCHES,
        "steps": STEPS,
        "seconds": seconds,
    }
    task = asyncio.ensure_future(there.run(storm, **inputs))
    try:
        yield inputs["folder"]
    except BaseException:
        task.cancel()
        raise
    result, expected = await asyncio.gather(asyncio.wait_for(task, 120), here.run(storm, **inputs))
    await assert_alike([(here, expected), (there, result)], scratch / "history")


async def _busy(plant: Plant, folder: Path) -> int:
    """The live worker that has begun the most steps so far."""
    await _begun(folder, BRANCHES)
    while True:
        by_worker: dict[int, int] = defaultdict(int)
        for lines in _performed_by_key(folder).values():
            by_worker[lines[-1]["pid"]] += 1
        alive = [pid for pid in by_worker if pid in plant.workers()]
        if alive:
            return max(alive, key=lambda pid: by_worker[pid])
        await anyio.sleep(0.01)


async def _begun(folder: Path, count: int) -> None:
    """Wait until so many steps have begun."""
    while not folder.exists() or len(list(folder.iterdir())) < count:  # noqa: ASYNC110, ASYNC240  # other processes write it
        await anyio.sleep(0.01)


def _performed_by_key(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The notes of actions that the engine performed, in order, by idempotency key.

    Those of this process are left out.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for file in folder.iterdir():
        said = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        theirs = [one for one in said if one["pid"] != os.getpid()]
        if theirs:
            found[file.name] = theirs
    return found


def _twice(folder: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The first two notes of each action that was performed more than once."""
    said = _performed_by_key(folder)
    assert len(said) == BRANCHES * STEPS
    return [(lines[0], lines[1]) for lines in said.values() if len(lines) > 1]
