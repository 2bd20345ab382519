"""The contract of backends, held by one of each way to talk with a program.

Of a turn ``test_parity.py`` says as much of all of them, and ``test_program_calls.py`` how each is
given its prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from handrail.agents.acp.named import NAMED
from handrail.agents.routes import ACP_NAMES
from handrail.agents.routes import make_backend as named
from handrail.ports.agent import AgentBackend
from handrail.testing.contracts.backend import BackendContract
from handrail.testing.fake_programs import Act, Fails, Hangs, Says, fake_cli
from tests.agents.parity.stages import PROGRAMS

MOST_TURNS = 5
BACKENDS = ["claude", "codex", "copilot", "opencode", *NAMED]
"""Lines both ways, an app-server, lines that are only read, and ACP; agents known by a name."""


class TestPrograms(BackendContract):
    @pytest.fixture(params=BACKENDS)
    def before(
        self, request: pytest.FixtureRequest, tmp_path: Path
    ) -> Iterator[Callable[..., AgentBackend]]:
        """A function of acts: the backend, with a program on PATH that does them in order."""
        with ExitStack() as programs:

            def made(*acts: Act) -> AgentBackend:
                name = request.param
                program = NAMED[name].argv[0] if name in NAMED else PROGRAMS[name]
                programs.enter_context(fake_cli(program, acts, path=tmp_path))
                return named(request.param)

            yield made

    @pytest.fixture
    def make_backend(self, before: Callable[..., AgentBackend]) -> Callable[[str], AgentBackend]:
        """A program that says the same each time."""
        return lambda text: before(*[Says(text)] * MOST_TURNS)

    @pytest.fixture
    def failing_backend(self, before: Callable[..., AgentBackend]) -> AgentBackend:
        """A program that is not logged in."""
        return before(Fails("auth"))

    @pytest.fixture
    def endless_backend(self, before: Callable[..., AgentBackend]) -> AgentBackend:
        """A program that works, has another one in the background, and never ends."""
        return before(Hangs(seconds=1000, leaves_child=True))


def test_the_agents_known_by_a_name_have_a_row() -> None:
    """A name that is taken has its row; its session is found by the name, its program by argv."""
    assert set(ACP_NAMES) == set(NAMED)
    for name, row in NAMED.items():
        backend = named(name)
        assert (backend.name, backend.argv) == (name, tuple(row.argv))  # type: ignore[attr-defined]
        assert row.install
        assert row.login
