"""Examples run as a newcomer runs them: as programs or by the command, in a real repository."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.conftest import cli, folder

__all__ = ["cli", "folder"]
EXAMPLES = Path(__file__).parents[2] / "examples"


@dataclass(frozen=True)
class Outcome:
    """What a process came to."""

    code: int
    out: str
    err: str


def run(*words: str, cwd: Path, text: str = "") -> Outcome:
    """Run Python with these arguments."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        input=text,
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        timeout=60,
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git repository in which the last commit changed four files."""

    def git(*words: str) -> None:
        identity = ["-c", "user.name=A", "-c", "user.email=a@example.invalid"]
        command = ["git", *identity, "-c", "commit.gpgSign=false", *words]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)

    git("init", "--quiet")
    (tmp_path / "clean.py").write_text("x = 1\n", "utf-8")
    (tmp_path / "kept.py").write_text("print(1)\n", "utf-8")
    git("add", "--all")
    git("commit", "--quiet", "--message", "first")
    (tmp_path / "clean.py").write_text("x = 2\n", "utf-8")
    (tmp_path / "naïve").mkdir()
    (tmp_path / "naïve" / "left over.py").write_text("print(x)  # TODO\n", "utf-8")
    (tmp_path / "picture.bin").write_bytes(bytes(range(256)))
    (tmp_path / "gone.py").write_text("pass\n", "utf-8")
    git("add", "--all")
    git("commit", "--quiet", "--message", "second")
    return tmp_path
