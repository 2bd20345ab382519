"""Backends by name, each before a program, a model or a script that does the acts of a test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from handrail.agents.command import CommandBackend
from handrail.agents.routes import make_backend
from handrail.ports.agent import AgentBackend
from handrail.testing.fake_programs import FakeCli
from tests.agents.parity.fake_script import fake
from tests.agents.parity.reel import Act, install

PROGRAMS = {
    "claude": "claude",
    "codex": "codex",
    "copilot": "copilot",
    "gemini": "gemini",
    "opencode": "opencode",
}
"""The backends for whose programs ``fake_cli`` speaks."""


class Stage:
    """Where a test's backends meet what its script says. It changes PATH, for the test."""

    def __init__(self, folder: Path, fake_cli: Callable[..., FakeCli]) -> None:
        self._folder = folder
        self._fake_cli = fake_cli

    def set(self, name: str, *acts: Act) -> AgentBackend:
        """The backend of this name, for which the acts come true, one a prompt."""
        if name in PROGRAMS:
            self._fake_cli(PROGRAMS[name], acts)
            return make_backend(name)
        if name == "command":
            return CommandBackend([str(install(self._folder / name, "any-program", acts))])
        if name == "api":
            from tests.agents.parity.api_model import api  # needs an extra

            return api(acts)
        return fake(acts)


def bare(name: str) -> Any:
    """The backend of a name as it is made without a test's script."""
    match name:
        case "command":
            return CommandBackend(["any-program"])
        case "api":
            from handrail.agents.api.backend import ApiBackend

            return ApiBackend("groq:some-model")
        case "fake":
            return fake([])
        case _:
            return make_backend(name)
