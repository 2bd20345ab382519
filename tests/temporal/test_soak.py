"""What takes minutes: many storms, and a cluster that is away for long."""

from __future__ import annotations

import asyncio
from pathlib import Path

import anyio
import pytest

from handrail.temporal import TemporalExecutor
from tests.temporal.flows import FLOWS, notes_late
from tests.temporal.plant import TemporalPlant
from tests.temporal.test_chaos import TestChaos as Chaos

pytestmark = [pytest.mark.temporal, pytest.mark.soak]
AWAY_S = 90


class TestStorms(Chaos):
    """As the contract has it, with other deaths at other times."""

    @pytest.fixture(params=range(7, 19))
    def kills(self, request: pytest.FixtureRequest) -> int:
        """How many die; also the seed of who, and when."""
        count: int = request.param
        return count


async def test_a_run_outlives_a_cluster_that_is_away(tmp_path: Path) -> None:
    """A step that ends meanwhile is made at most once more, under the same key."""
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
        await anyio.sleep(AWAY_S)
        plant.start_server()
        result = await asyncio.wait_for(run, 120)
        assert result.value == "late"
        (effect,) = folder.iterdir()  # a file
        assert len(effect.read_text("utf-8").splitlines()) <= 2
    finally:
        plant.close()
