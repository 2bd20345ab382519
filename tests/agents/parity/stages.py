"""Backends by name, each before a program, a model or a script that does the acts of a test."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from handrail.agents.command import CommandBackend
from handrail.agents.registry import make_backend
from handrail.ports.agent import AgentBackend
from handrail.testing.fake_programs import FakeCli
from tests.agents.parity.fake_script import fake
from tests.agents.parity.gemini_lines import GeminiLines
from tests.agents.parity.opencode_lines import OpencodeLines
from tests.agents.parity.plain_output import PlainOutput
from tests.agents.parity.reel import Act, Words, install

PROGRAMS = {
    "claude": "claude",
    "codex": "codex",
    "codex-exec": "codex",
    "copilot": "copilot",
    "gemini": "gemini",
    "opencode": "opencode",
}
"""The backends for whose programs ``fake_cli`` speaks."""

REELS: Mapping[str, tuple[str, Callable[[], Words]]] = {
    "gemini-cli": ("gemini", GeminiLines),
    "opencode-run": ("opencode", OpencodeLines),
    "command": ("any-program", PlainOutput),
}
"""Those whose programs play reels."""


class Stage:
    """Where a test's backends meet what its script says. It changes PATH, for the test."""

    def __init__(
        self, folder: Path, fake_cli: Callable[..., FakeCli], patch: pytest.MonkeyPatch
    ) -> None:
        self._folder = folder
        self._fake_cli = fake_cli
        self._patch = patch

    def set(self, name: str, *acts: Act) -> AgentBackend:
        """The backend of this name, for which the acts come true, one a prompt."""
        if name in PROGRAMS:
            self._fake_cli(PROGRAMS[name], acts)
            return make_backend(name)
        if name in REELS:
            return self._reels(name, acts)
        if name == "api":
            from tests.agents.parity.api_model import api  # needs an extra

            return api(acts)
        return fake(acts)

    def _reels(self, name: str, acts: Sequence[Act]) -> AgentBackend:
        program, words = REELS[name]
        folder = self._folder / name
        path = install(folder, program, acts, words())
        self._patch.setenv("PATH", str(folder), prepend=os.pathsep)
        return CommandBackend([str(path)]) if name == "command" else make_backend(name)


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
