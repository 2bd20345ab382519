"""The pytest plugin, found by pytest where handrail is installed.

Fixtures: ``jump_clock``, ``memory_sink``, and ``handrail_executor``, an ``Executor`` with both. A
test that needs more of its executor makes one: ``Executor(clock=jump_clock, agents=[...])``. And
``crash_everywhere``, which keeps its files in the test's own folder.

Nothing of handrail is imported here but its empty packages until a fixture is used.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from handrail import Executor
    from handrail.sinks.memory import MemorySink
    from handrail.testing.clock import JumpClock
    from handrail.testing.crashes import Crashes

# The contracts assert, and a failing one should say what it compared.
if "handrail.testing.contracts" not in sys.modules:  # else it is too late, and pytest would warn
    pytest.register_assert_rewrite("handrail.testing.contracts")


@pytest.fixture
def jump_clock() -> JumpClock:
    """A clock that jumps: no run on it waits in real time."""
    from handrail.testing.clock import JumpClock

    return JumpClock()


@pytest.fixture
def memory_sink() -> MemorySink:
    """A sink that keeps every event, with assertions about them."""
    from handrail.sinks.memory import MemorySink

    return MemorySink()


@pytest.fixture
def handrail_executor(jump_clock: JumpClock, memory_sink: MemorySink) -> Executor:
    """An executor on ``jump_clock`` that shows its events to ``memory_sink``.

    Nobody answers questions: such a run ends suspended, with the open gates in ``result.waiting``.
    """
    from handrail import Executor

    return Executor(clock=jump_clock, sinks=[memory_sink])


@pytest.fixture
def crash_everywhere(tmp_path: Path) -> Callable[..., Crashes]:
    """``handrail.testing.crash_everywhere``, whose files are in ``tmp_path``."""
    from handrail.testing.crashes import crash_everywhere

    return functools.partial(crash_everywhere, folder=tmp_path)
