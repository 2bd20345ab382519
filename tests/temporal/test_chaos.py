"""Runs on a cluster live through the death of any of its processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from handrail.temporal import TemporalExecutor
from handrail.testing.contracts import ChaosContract
from tests.temporal.conftest import WORKERS
from tests.temporal.plant import TemporalPlant

pytestmark = pytest.mark.temporal


class TestChaos(ChaosContract):
    """The contract, with a cluster of Temporal and worker processes of ``handrail worker``."""

    @pytest.fixture
    def plant(self, whole_plant: TemporalPlant) -> TemporalPlant:
        """The cluster, with all its workers."""
        missing = WORKERS - len(whole_plant.workers())
        if missing:
            whole_plant.start_workers(missing)
        return whole_plant

    @pytest.fixture
    def engine(self, plant: TemporalPlant) -> Callable[..., TemporalExecutor]:
        """Executors of it; a worker that is silent for 3 s counts as gone."""

        def make(**options: Any) -> TemporalExecutor:
            return TemporalExecutor(
                plant.server.address, task_queue="chaos", heartbeat_s=3, **options
            )

        return make
