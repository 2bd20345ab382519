"""The repository that ``handrail quickstart`` makes: real code, a real bug, a test that fails."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from handrail.cli.exits import Refused

TASK = "page_count forgets the last page when it is not full"
CODE_FILE = "pages.py"
TEST_FILE = "test_pages.py"

SIGNATURE = "def page_count(items: int, per_page: int) -> int:"
BUGGY = "return items // per_page"
CODE = f'''\
"""How a list is cut into pages."""


{SIGNATURE}
    """How many pages it takes to show all items."""
    {BUGGY}
'''

TESTS = """\
import unittest

from pages import page_count


class PageCount(unittest.TestCase):
    def test_full_pages(self) -> None:
        self.assertEqual(3, page_count(9, 3))

    def test_a_last_page_that_is_not_full(self) -> None:
        self.assertEqual(4, page_count(10, 3))

    def test_no_items_need_no_page(self) -> None:
        self.assertEqual(0, page_count(0, 3))


if __name__ == "__main__":
    unittest.main()
"""

_SETTINGS = {
    "user.name": "handrail quickstart",
    "user.email": "quickstart@handrail.invalid",
    # What a user's own configuration may ask of commits would ask for a key, or run their hooks.
    "commit.gpgSign": "false",
    "core.hooksPath": ".git/no-hooks",
    "core.autocrlf": "false",
}


def create(home: Path, example: Path) -> None:
    """Fill an empty folder: code, its failing test, the workflow, and a first commit.

    Raises:
        Refused: git does not do as it is told; the text is git's.
    """
    (home / CODE_FILE).write_text(CODE, "utf-8")
    (home / TEST_FILE).write_text(TESTS, "utf-8")
    (home / ".gitignore").write_text("__pycache__/\n", "utf-8")
    shutil.copyfile(example, home / example.name)
    git("-c", "init.defaultBranch=main", "init", "--quiet", "--template=")
    for name, value in _SETTINGS.items():
        git("config", name, value)
    git("add", "--all")
    git("commit", "--quiet", "-m", "Count pages")


def git(*words: str) -> str:
    """What git printed, in the current folder.

    Raises:
        Refused: it failed.
    """
    done = subprocess.run(  # noqa: S603  # the words are our own
        ["git", "--no-pager", *words],  # noqa: S607  # the git on PATH is the user's own
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode != 0:
        raise Refused(f"git {words[0]}", (done.stderr or done.stdout).strip() or "failed")
    return done.stdout


@contextmanager
def clean_git_environment() -> Generator[None]:
    """Without the variables by which a git hook, or a shell, points git at another repository."""
    kept = {name: os.environ.pop(name) for name in list(os.environ) if _misleads(name)}
    before = os.environ.get("GIT_TERMINAL_PROMPT")
    os.environ["GIT_TERMINAL_PROMPT"] = "0"
    try:
        yield
    finally:
        os.environ.update(kept)
        if before is None:
            del os.environ["GIT_TERMINAL_PROMPT"]
        else:
            os.environ["GIT_TERMINAL_PROMPT"] = before


_MISLEADING = frozenset(
    {
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_COMMON_DIR",
        "GIT_DIR",
        "GIT_INDEX_FILE",
        "GIT_NAMESPACE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_PREFIX",
        "GIT_WORK_TREE",
    }
)


def _misleads(name: str) -> bool:
    return name in _MISLEADING or name.startswith("GIT_CONFIG")
