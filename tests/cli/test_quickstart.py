"""``handrail quickstart``, as a newcomer runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from handrail.cli.quickstart import BUGGY, RIGHT, TOO_SIMPLE, find_example
from tests.cli.conftest import Cli, spawned


def git(repo: Path, *words: str) -> str:
    """What git says of a repository."""
    command = ["git", "-C", str(repo), *words]
    return subprocess.run(command, capture_output=True, encoding="utf-8", check=True).stdout


HARSH = """\
[commit]
	gpgSign = true
[user]
	useConfigOnly = true
[core]
	hooksPath = {hooks}
	autocrlf = true
"""


def test_it_repairs_a_real_repository(folder: Path) -> None:
    """The tests fail before, the first edit is not enough, and the fix is committed.

    The user's own git is not in its way: neither signing, hooks and a missing identity, nor a
    GIT_DIR that points elsewhere.
    """
    home, other = folder / "home", folder / "other"
    hooks = home / "hooks"
    hooks.mkdir(parents=True)
    (hooks / "pre-commit").write_text("#!/bin/sh\nexit 1\n")
    (hooks / "pre-commit").chmod(0o755)
    (home / ".gitconfig").write_text(HARSH.format(hooks=hooks))
    subprocess.run(["git", "init", "--quiet", str(other)], check=True)

    outcome = spawned(
        *("quickstart", "demo"),
        HOME=str(home),
        XDG_CONFIG_HOME="",
        GIT_DIR=str(other / ".git"),
        GIT_INDEX_FILE=str(other / "index"),
    )

    assert outcome.code == 0, outcome.err
    for line in ("✗ verify/1/tests", "✓ verify/1/fix", "✓ verify/2/tests", "✓ commit"):
        assert line in outcome.err
    assert "rounds=2" in outcome.out
    assert (
        "-    return items // per_page\n+    return (items + per_page - 1) // per_page"
        in outcome.out
    )
    assert {path.name for path in folder.iterdir()} == {"demo", "home", "other"}
    assert {path.name for path in home.iterdir()} == {"hooks", ".gitconfig"}
    assert not (other / "index").exists()

    repo = folder / "demo"
    assert git(repo, "log", "--format=%s").splitlines() == [
        "Count the last page when it is not full",
        "Count pages",
    ]
    assert git(repo, "status", "--porcelain") == ""
    test = [sys.executable, "-B", "-m", "unittest"]
    assert subprocess.run(test, cwd=repo, capture_output=True, check=False).returncode == 0
    git(repo, "checkout", "--quiet", "HEAD~1")
    assert subprocess.run(test, cwd=repo, capture_output=True, check=False).returncode == 1


def test_what_it_says_to_type_next_works(folder: Path) -> None:
    """Every command that it prints ends with 0 when typed in that order, in one shell.

    Without a folder it made one below TMPDIR, and the working folder stays as it was.
    """
    scratch = folder / "scratch"
    scratch.mkdir()
    outcome = spawned("quickstart", TMPDIR=str(scratch))
    (made,) = scratch.iterdir()
    assert list(folder.iterdir()) == [scratch]
    typed = [
        line.strip().partition("  ")[0]
        for line in outcome.out.partition("What to type next")[2].splitlines()
        if line.strip()
    ]
    assert len(typed) == 7
    assert f"cd {made}" in typed

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
    assert (made / "my_flow.py").exists()


def test_no_edit_leaves_the_file_as_long_as_it_was() -> None:
    """So Python cannot take what it compiled of one edit for the next, made in the same second."""
    assert len({len(BUGGY), len(TOO_SIMPLE), len(RIGHT)}) == 3


def test_it_lets_a_folder_alone_that_is_not_empty(cli: Cli, folder: Path) -> None:
    """Exit code 2, and nothing in it is touched."""
    (folder / "mine").mkdir()
    (folder / "mine" / "file").write_text("mine", "utf-8")

    outcome = cli("quickstart", "mine")

    assert outcome.code == 2
    assert outcome.err.startswith("handrail: mine: is not an empty folder.")
    assert [path.name for path in (folder / "mine").iterdir()] == ["file"]


def test_without_git_it_says_so(cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 2, one line, and no folder is made."""
    monkeypatch.setenv("PATH", str(folder))

    outcome = cli("quickstart", "demo")

    assert outcome.code == 2
    assert outcome.err == "handrail: quickstart: needs git. Install git, then try again.\n"
    assert not (folder / "demo").exists()


def test_the_example_that_it_runs_is_the_one_to_read() -> None:
    """Where there is a source tree, the example in it is the very file that is shipped."""
    tree = Path(__file__).parents[2] / "examples" / "ship.py"

    assert find_example("ship.py").read_text("utf-8") == tree.read_text("utf-8")
