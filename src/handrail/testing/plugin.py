"""The pytest plugin; pytest finds it where handrail is installed.

Fixtures: ``jump_clock``, ``memory_sink``, and ``handrail_executor``, an ``Executor`` with both. A
test that needs more of its executor makes one: ``Executor(clock=jump_clock, agents={...})``.
``crash_everywhere`` and ``fake_cli`` keep their files in folders of their own, not in ``tmp_path``,
because that may be the repository that the test works on. ``cassette`` keeps its recordings beside
the test's file.

Until a test uses a fixture, this module imports only handrail's empty packages.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from handrail import Executor
    from handrail.agents.cassette.cassette import Cassette
    from handrail.sinks.memory import MemorySink
    from handrail.testing.clock import JumpClock
    from handrail.testing.crashes import Crashes
    from handrail.testing.fake_programs import Act, FakeCli, Program

# The contracts assert, and a failing one should say what it compared.
if "handrail.testing.contracts" not in sys.modules:  # else it is too late, and pytest would warn
    pytest.register_assert_rewrite("handrail.testing.contracts")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--handrail-record``."""
    parser.getgroup("handrail").addoption(
        "--handrail-record",
        action="store_true",
        help="launch the agents of tests that have a cassette, and record them",
    )


@pytest.fixture
def cassette(request: pytest.FixtureRequest) -> Cassette:
    """A ``Cassette`` in ``cassettes/<name of the test>/`` beside the test's file.

    It replays; with ``pytest --handrail-record`` it records.
    """
    from handrail.agents.cassette.cassette import Cassette
    from handrail.model.paths import on_disk

    name: str = request.node.nodeid.partition("::")[2].replace("::", ".")
    folder = request.path.parent / "cassettes" / on_disk(name)
    return Cassette(folder, "record" if request.config.getoption("handrail_record") else "replay")


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
def crash_everywhere(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Crashes]:
    """``handrail.testing.crash_everywhere``, whose files are in a folder that pytest keeps."""
    from handrail.testing.crashes import crash_everywhere

    return functools.partial(crash_everywhere, folder=tmp_path_factory.mktemp("crashes"))


@pytest.fixture
def fake_cli(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[Program, Iterable[Act | str]], FakeCli]]:
    """``handrail.testing.fake_cli``, whose programs are on PATH until the test ends.

    Of several by one name PATH finds the latest.
    """
    from handrail.testing.fake_programs import fake_cli

    folder = tmp_path_factory.mktemp("fake-cli")
    with contextlib.ExitStack() as programs:

        def installed(name: Program, script: Iterable[Act | str]) -> FakeCli:
            return programs.enter_context(fake_cli(name, script, path=folder))

        yield installed
