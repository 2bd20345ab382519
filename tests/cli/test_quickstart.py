"""``handrail quickstart``, as a newcomer runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from handrail.cli.quickstart import BUGGY, RIGHT, TOO_SIMPLE, find_example
from tests.cli.conftest import Outcome, spawned

Cli = Callable[..., Outcome]


def git(repo: Path, *words: str) -> str:
    """What git says of a repository."""
    command = ["git", "-C", str(repo), *words]
    return subprocess.run(command, capture_output=True, encoding="utf-8", check=True).stdout


@pytest.fixture
def empty_home(tmp_path: Path) -> Path:
    """A home folder with nothing in it."""
    home = tmp_path / "home"
    home.mkdir()
    return home


def test_it_repairs_a_real_repository(folder: Path, empty_home: Path) -> None:
    """The tests fail before, the first edit is not enough, and the fix is committed."""
    outcome = spawned("quickstart", "demo", HOME=str(empty_home), XDG_CONFIG_HOME="")

    assert outcome.code == 0
    repo = folder / "demo"
    assert git(repo, "log", "--format=%s").splitlines() == [
        "Count the last page when it is not full",
        "Count pages",
    ]
    assert git(repo, "status", "--porcelain") == ""
    for line in ("✗ verify/1/tests", "✓ verify/1/fix", "✓ verify/2/tests", "✓ commit"):
        assert line in outcome.err
    assert "rounds=2" in outcome.out
    assert (
        "-    return items // per_page\n+    return (items + per_page - 1) // per_page"
        in outcome.out
    )
    assert {path.name for path in folder.iterdir()} == {"demo", "home"}
    assert list(empty_home.iterdir()) == []


def test_what_it_says_to_type_next_works(folder: Path) -> None:
    """Every command that it prints ends with 0 when typed in that order, in one shell."""
    told = spawned("quickstart", "demo").out.partition("What to type next")[2]
    typed = [line.strip().partition("  ")[0] for line in told.splitlines() if line.strip()]
    assert len(typed) == 7

    script = "set -e\n" + "\n".join(typed)
    done = subprocess.run(
        ["sh", "-c", script],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "GIT_PAGER": "cat"},
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "OK" in done.stderr
    assert (folder / "demo" / "my_flow.py").exists()


def test_the_task_was_a_real_one(folder: Path) -> None:
    """At the first commit the repository's test fails, and at the second it passes."""
    spawned("quickstart", "demo")
    repo = folder / "demo"
    test = [sys.executable, "-B", "-m", "unittest"]

    assert subprocess.run(test, cwd=repo, capture_output=True, check=False).returncode == 0
    git(repo, "checkout", "--quiet", "HEAD~1")
    assert subprocess.run(test, cwd=repo, capture_output=True, check=False).returncode == 1


def test_no_edit_leaves_the_file_as_long_as_it_was() -> None:
    """So Python cannot take what it compiled of one edit for the next, made in the same second."""
    assert len({len(BUGGY), len(TOO_SIMPLE), len(RIGHT)}) == 3


def test_without_a_folder_it_makes_a_temporary_one(folder: Path) -> None:
    """It is below TMPDIR, and the working folder stays as it was."""
    scratch = folder / "scratch"
    scratch.mkdir()

    outcome = spawned("quickstart", TMPDIR=str(scratch))

    (made,) = scratch.iterdir()
    assert outcome.code == 0
    assert f"cd {made}" in outcome.out
    assert (made / "pages.py").exists()
    assert list(folder.iterdir()) == [scratch]


def test_it_lets_a_folder_alone_that_is_not_empty(cli: Cli, folder: Path) -> None:
    """Exit code 2, and nothing in it is touched."""
    (folder / "mine").mkdir()
    (folder / "mine" / "file").write_text("mine", "utf-8")

    outcome = cli("quickstart", "mine")

    assert outcome.code == 2
    assert outcome.err.startswith("handrail: mine: is not an empty folder.")
    assert [path.name for path in (folder / "mine").iterdir()] == ["file"]


HARSH = """\
[commit]
	gpgSign = true
[user]
	useConfigOnly = true
[core]
	hooksPath = {hooks}
	autocrlf = true
"""


def test_the_users_own_git_does_not_get_in_its_way(folder: Path, empty_home: Path) -> None:
    """Neither signing, hooks and a missing identity, nor a GIT_DIR that points elsewhere."""
    hooks = empty_home / "hooks"
    hooks.mkdir()
    (hooks / "pre-commit").write_text("#!/bin/sh\nexit 1\n")
    (hooks / "pre-commit").chmod(0o755)
    (empty_home / ".gitconfig").write_text(HARSH.format(hooks=hooks))
    other = folder / "other"
    subprocess.run(["git", "init", "--quiet", str(other)], check=True)

    outcome = spawned(
        "quickstart",
        "demo",
        HOME=str(empty_home),
        GIT_DIR=str(other / ".git"),
        GIT_INDEX_FILE=str(other / "index"),
    )

    assert outcome.code == 0, outcome.err
    assert len(git(folder / "demo", "log", "--format=%s").splitlines()) == 2
    assert not (other / "index").exists()


def test_without_git_it_says_so(folder: Path, tmp_path: Path) -> None:
    """Exit code 2, one line, and no folder is made."""
    empty = tmp_path / "bin"
    empty.mkdir()

    outcome = spawned("quickstart", "demo", PATH=str(empty))

    assert outcome.code == 2
    assert outcome.err == "handrail: quickstart: needs git. Install git, then try again.\n"
    assert not (folder / "demo").exists()


def test_the_example_that_it_runs_is_the_one_to_read() -> None:
    """Where there is a source tree, the example in it is the very file that is shipped."""
    tree = Path(__file__).parents[2] / "examples" / "ship.py"

    assert find_example("ship.py").read_text("utf-8") == tree.read_text("utf-8")
