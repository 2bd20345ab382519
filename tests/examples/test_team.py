"""``examples/team.py``: two runs at a time in one folder, of three agents at a time."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from examples.team import team
from handrail import Executor, Task
from handrail.model.events import MemberStarted
from tests.examples.conftest import EXAMPLES, Outcome, run

EXAMPLE = str(EXAMPLES / "team.py")
PARTS = ["api", "storage", "web", "login"]  # the last is found by who builds the web


def git(folder: Path, *words: str) -> str:
    """What git prints."""
    done = subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)
    return done.stdout.decode()


def test_no_line_is_lost_that_two_runs_of_three_agents_write(repository: Path) -> None:
    """Each agent of each run has its line in the one changelog, and its commit."""
    git(repository, "config", "user.name", "A")
    git(repository, "config", "user.email", "a@example.invalid")

    def once(_: int) -> Outcome:
        return run(EXAMPLE, cwd=repository)

    with ThreadPoolExecutor(2) as both:
        outcomes = list(both.map(once, range(2)))

    assert [one.code for one in outcomes] == [0, 0], [one.err for one in outcomes]
    lines = (repository / "CHANGELOG.md").read_text("utf-8").splitlines()
    assert sorted(lines) == sorted([f"- {part}: it has a name" for part in PARTS] * 2)
    for part in PARTS:
        written = (repository / f"src/{part}/main.py").read_text("utf-8")
        assert written == f"NAME = {part!r}\n" * 2
    commits = git(repository, "log", "--format=%s", "HEAD~8..").splitlines()
    assert sorted(commits) == sorted([f"Name the {part}" for part in PARTS] * 2)


async def test_a_card_of_a_person_is_worked_off(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A card that is put on the board by hand is built like those of the team."""
    git(repository, "config", "user.name", "A")
    git(repository, "config", "user.email", "a@example.invalid")
    monkeypatch.chdir(repository)
    executor = Executor().options(run_id="monday")
    async with executor.stream(team, ["api"]) as handle:
        async for event in handle:
            if isinstance(event, MemberStarted) and event.path == "board/api":
                await executor.edit_work("monday", add=[Task("search")])
    lines = sorted(handle.result.unwrap().splitlines())
    assert lines == ["- api: it has a name", "- search: it has a name"]
