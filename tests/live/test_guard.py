"""The guard in the settings of the real Claude Code, whose model is a stub."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from handrail.ports.claims import Claim
from handrail.workspace.claims.local import LocalClaims
from tests.agents.repositories import contents, repository
from tests.live.programs import ALL, QUIET, nothing_of_theirs
from tests.live.stub_anthropic import AnthropicStub
from tests.live.stub_server import Answer, Request, Text, ToolCall

(CLAUDE,) = [one for one in ALL if one.name == "claude"]
pytestmark = [
    pytest.mark.live_cli,
    pytest.mark.skipif(CLAUDE.where is None, reason="there is no claude"),
]


class LookingStub(AnthropicStub):
    """A model that looks at what is claimed whenever it is asked. Mutable."""

    def __init__(self, answers: list[Answer], folder: Path) -> None:
        super().__init__(answers)
        self._folder = folder
        self.seen: list[list[dict[str, Any]]] = []
        """What was held at each call."""

    def next_answer(self, request: Request) -> Answer:
        """Look, then answer."""
        self.seen.append(json.loads(handrail(self._folder, "claims", "--json"))["held"])
        return super().next_answer(request)


def handrail(folder: Path, *words: str, env: Mapping[str, str] | None = None) -> str:
    """What the command prints."""
    command = [sys.executable, "-m", "handrail", *words]
    around = {**os.environ, **(env or {})}
    done = subprocess.run(command, cwd=folder, env=around, check=True, capture_output=True)
    return done.stdout.decode()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository with the guard in the settings of its project."""
    made = repository(tmp_path / "home/work")
    handrail(made, "guard", "--install", "claude")
    return made


def write(repo: Path, name: str) -> ToolCall:
    """The model's wish to write a file."""
    return ToolCall("Write", {"file_path": str(repo / name), "content": "by the session\n"})


def ask(repo: Path, stub: AnthropicStub) -> None:
    """Have an interactive session's program do what the model says, without asking anybody."""
    where = CLAUDE.where
    assert where is not None
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    around = {**QUIET, "HOME": str(repo.parent), **CLAUDE.around(repo.parent, stub.url)}
    words = [where, "-p", "Do it.", "--model", CLAUDE.model]
    with nothing_of_theirs():
        subprocess.run(
            [*words, "--permission-mode", "acceptEdits"],
            cwd=repo,
            env={**os.environ, **around, "PATH": path},
            check=True,
            capture_output=True,
            timeout=120,
        )


async def held(repo: Path) -> list[Claim]:
    """What is held in the repository."""
    return list((await LocalClaims(str(repo / ".git")).listed()).held)


async def test_a_session_edits_what_nobody_else_has_and_gives_it_back(repo: Path) -> None:
    """The file is claimed while its turn lasts, and free when that is over."""
    with LookingStub([write(repo, "src/new.py"), Text("Done.")], repo) as stub:
        ask(repo, stub)
    assert contents(repo)["src/new.py"][1] == b"by the session\n"
    before, *_, after = stub.seen
    assert before == []
    (claim,) = after
    assert (claim["kind"], claim["patterns"]) == ("session", ["src/new.py"])
    assert await held(repo) == []


async def test_a_session_does_not_edit_what_a_person_has(repo: Path) -> None:
    """The edit is refused, and the model is told who has the file."""
    handrail(repo, "claim", "docs/**")
    with LookingStub([write(repo, "docs/new.md"), Text("I did something else.")], repo) as stub:
        ask(repo, stub)
    assert "docs/new.md" not in contents(repo)
    told = json.dumps(stub.requests[-1].body["messages"])
    assert "docs/new.md is claimed by" in told
    assert "Do something else first" in told
    (claim,) = await held(repo)
    assert claim.claimant.kind == "person"
