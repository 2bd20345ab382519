"""What takes minutes: many storms, and a cluster that is away for long."""

from __future__ import annotations

import asyncio
from pathlib import Path

import anyio
import pytest

from handrail import Limits
from handrail.temporal import TemporalExecutor
from tests.temporal.flows import FLOWS, notes_late, rounds
from tests.temporal.plant import TemporalPlant
from tests.temporal.test_chaos import TestChaos as Chaos

pytestmark = [pytest.mark.temporal, pytest.mark.soak]
HOUR_S = 3600


class TestStorms(Chaos):
    """As the contract has it, with other deaths at other times."""

    @pytest.fixture(params=range(7, 19))
    def kills(self, request: pytest.FixtureRequest) -> int:
        """How many die; also the seed of who, and when."""
        count: int = request.param
        return count


@pytest.mark.parametrize("away_s", [90, HOUR_S])
async def test_a_run_outlives_a_cluster_that_is_away(tmp_path: Path, away_s: int) -> None:
    """A step that ends meanwhile is not made once more while its worker lives."""
    (tmp_path / "plant").mkdir()
    plant = TemporalPlant(tmp_path / "plant", "away", ["tests.temporal.flows"])
    try:
        plant.start_worker()
        there = TemporalExecutor(plant.server.address, task_queue="away", workflows=FLOWS)
        folder = tmp_path / "effects"
        run = asyncio.ensure_future(there.options(run_id="late").run(notes_late, folder, 5.0))
        while not folder.exists():  # noqa: ASYNC110  # another process makes it
            await anyio.sleep(0.05)
        plant.kill_server()
        await anyio.sleep(away_s)
        plant.start_server()
        result = await asyncio.wait_for(run, 120)
        assert result.value == "late"
        (effect,) = folder.iterdir()  # a file
        assert len(effect.read_text("utf-8").splitlines()) == 1
    finally:
        plant.close()


async def test_a_run_of_a_hundred_thousand_steps_ends(tmp_path: Path) -> None:
    """It goes on from execution to execution, each of which goes through all of the record."""
    (tmp_path / "plant").mkdir()
    store = tmp_path / "blobs"
    plant = TemporalPlant(
        tmp_path / "plant", "long", ["tests.temporal.flows"], "--blobs", str(store)
    )
    try:
        plant.start_worker()
        there = TemporalExecutor(
            plant.server.address, task_queue="long", workflows=FLOWS, blobs=store,
            limits=Limits(max_steps=1_000_000),
        )  # fmt: skip
        result = await there.run(rounds, 1_000, 100)
        assert result.value == 100_000
    finally:
        plant.close()
