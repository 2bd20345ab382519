"""``examples/overnight.py``, with agents that are scripted and edit files as real ones do."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from examples.overnight import overnight
from handrail import AgentTurn, Executor, FakeBackend, SqliteJournal

TEST = "import unittest\nfrom app import half\n\n\nclass T(unittest.TestCase):\n"
TEST += "    def test_half(self):\n        self.assertEqual(half(3), 1.5)\n"


def git(folder: Path, *words: str) -> str:
    """What git prints."""
    done = subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)
    return done.stdout.decode()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a bug, its test, and two issues."""
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "me")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "me@localhost")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").write_text("def half(n):\n    return n // 2\n")
    (tmp_path / "test_app.py").write_text(TEST)
    (tmp_path / "issues").mkdir()
    (tmp_path / "issues" / "half.md").write_text("half(3) gives 1\n")
    (tmp_path / "issues" / "moon.md").write_text("The moon is too far away\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    return tmp_path


def act(turn: AgentTurn) -> str:
    """Both agents: the first change of the one issue is wrong, and nothing helps with the other."""
    is_first, is_half = turn.prompt.startswith("Fix this issue"), "half(3) gives 1" in turn.prompt
    if is_half:
        # Python knows a file that has changed by its size and its second.
        write(turn, "return n / 3" if is_first else "return n / 2.0")
    if is_first:
        return f'{{"title": "Fix {"half" if is_half else "moon"}", "risk": "low"}}'
    assert "AssertionError" in turn.prompt
    return "Done."


def write(turn: AgentTurn, line: str) -> None:
    """Put the line into the function, in the agent's own folder."""
    (Path(str(turn.options.cwd)) / "app.py").write_text(f"def half(n):\n    {line}\n")


def test_what_can_be_fixed_is_on_its_branch_and_the_rest_is_named(project: Path) -> None:
    """The one fix passes after a repair, and is committed apart; the other fails alone."""
    journal = SqliteJournal(project / ".handrail" / "runs.db")
    executor = Executor(journal=journal, backend=FakeBackend([act] * 9))
    lines = executor.run_sync(overnight).unwrap().splitlines()
    _, title, branch, risk = (cell.strip() for cell in lines[2].strip("|").split("|"))
    assert (title, risk) == ("Fix half", "low")
    assert git(project, "show", f"{branch}:app.py") == "def half(n):\n    return n / 2.0\n"
    assert lines[3].startswith(
        "| moon | not fixed: ValidationFailed: validation did not pass in 3 "
    )
    assert "tests: FAIL: test_half (test_app.T" in lines[3]
    assert git(project, "status", "--porcelain", "--untracked-files=no") == ""
    assert git(project, "log", "--format=%s") == "first\n"


def test_no_issues_make_an_empty_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a folder of issues nothing is launched."""
    monkeypatch.chdir(tmp_path)
    executor = Executor(backend=FakeBackend([]))
    assert executor.run_sync(overnight).unwrap().count("\n") == 1
