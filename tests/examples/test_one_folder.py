"""``examples/one_folder.py``: two runs at a time in one folder, of three agents at a time."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.examples.conftest import EXAMPLES, Outcome, run

EXAMPLE = str(EXAMPLES / "one_folder.py")
PARTS = ["api", "storage", "web"]


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
    commits = git(repository, "log", "--format=%s", "HEAD~6..").splitlines()
    assert sorted(commits) == sorted([f"Name the {part}" for part in PARTS] * 2)
