from __future__ import annotations

import pytest

from handrail.ports.clock import Clock
from handrail.system.clock import SystemClock
from handrail.testing import JumpClock
from handrail.testing.contracts import ClockContract


class TestSystemClock(ClockContract):
    @pytest.fixture
    def clock(self) -> Clock:
        """The machine's own clock."""
        return SystemClock()


class TestJumpClock(ClockContract):
    @pytest.fixture
    def clock(self) -> Clock:
        """A clock that jumps."""
        return JumpClock()
