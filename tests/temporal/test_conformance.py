"""Runs on a cluster come to the same ends as runs in one process."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import settings

from handrail.testing.contracts import HostContract
from handrail.testing.shapes import Body
from handrail.testing.strategies import bodies as drawn_bodies

pytestmark = pytest.mark.temporal


class TestOnACluster(HostContract):
    """The cases of the contract, and workflows that Hypothesis draws."""

    @pytest.fixture
    def engine(self, engine: Callable[..., Any]) -> Callable[..., Any]:
        """Executors of the cluster."""
        return engine

    @pytest.fixture
    def bodies(self) -> Sequence[Body]:
        """As many as the profile says, of what needs no real time. Without work that grows: which
        of its tasks comes first is a matter of time, and is in their events.
        """
        drawn = drawn_bodies(timeless=True, waits=False, holds=False)
        strategy = drawn.filter(lambda body: "Grow(" not in repr(body))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return [strategy.example() for _ in range(settings().max_examples // 4)]
