"""One real program against a stub of its model's API, with a home of its own."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from handrail.errors import AgentError
from handrail.model.agent_options import NO_OPTIONS, AgentOptions
from handrail.ports.agent import AgentBackend, AgentReply, AgentTurn
from tests.live.programs import ALL, Live, nothing_of_theirs
from tests.live.stub_server import Answer, StubServer


@dataclass
class Session:
    """A backend on a real program, and what came of the turns that it was given. Mutable."""

    live: Live
    stub: StubServer
    backend: AgentBackend
    home: Path
    notices: list[Any] = field(default_factory=list)
    marker: str = field(default_factory=lambda: f"run-{uuid.uuid4().hex}")

    def turn(self, prompt: str = "Say hello.", **more: Any) -> AgentTurn:
        """One prompt, as a step would give it."""
        options: AgentOptions = more.pop("options", NO_OPTIONS)
        emit = self.notices.append
        return AgentTurn("tester", prompt, self.marker, "s", emit=emit, options=options, **more)

    async def reply(self, prompt: str = "Say hello.", **more: Any) -> AgentReply:
        """The answer to one prompt."""
        return await self.backend.complete(self.turn(prompt, **more))

    async def failure(self, **more: Any) -> AgentError:
        """Why there is no answer."""
        with pytest.raises(AgentError) as caught:
            await self.reply(**more)
        return caught.value

    def of(self, kind: type[Any]) -> list[Any]:
        """The notices of one kind, in order."""
        return [notice for notice in self.notices if isinstance(notice, kind)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test on every program that is there, or on those of them that its marker names."""
    if "live" in metafunc.fixturenames:
        mark = metafunc.definition.get_closest_marker("live_on")
        named = [one for one in ALL if mark is None or one.name in mark.args]
        chosen = [one for one in named if one.where]
        metafunc.parametrize("live", chosen, ids=[one.name for one in chosen])


def pytest_configure(config: pytest.Config) -> None:
    """Make the markers known that only these tests use."""
    config.addinivalue_line("markers", "live_cli: asks real agent programs, with stubbed models")
    config.addinivalue_line("markers", "live_on(*names): for these programs only")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """One loop: the programs take long enough. What depends on the loop asks for both."""
    return "asyncio"


@pytest.fixture
def open_session(live: Live, tmp_path: Path) -> Iterator[Callable[..., Session]]:
    """A function of the model's answers: a session whose program hears nothing but them."""
    where = live.where
    assert where is not None
    with ExitStack() as stack:
        stack.enter_context(nothing_of_theirs())

        def opened(
            *answers: Answer, env: Mapping[str, str] | None = None, **options: Any
        ) -> Session:
            home = tmp_path / "home"
            (home / "work").mkdir(parents=True, exist_ok=True)
            stub = stack.enter_context(live.stub(answers))
            backend = live.make(where, home, stub.url, env=env or {}, **options)
            return Session(live, stub, backend, home)

        yield opened
