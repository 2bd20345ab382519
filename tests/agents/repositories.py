"""Real git repositories for tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

_WHO = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.org")


def git(folder: Path, *words: str) -> str:
    """What git prints."""
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        ["git", *_WHO, *words], cwd=folder, env=env, check=True, capture_output=True
    )
    return done.stdout.decode()


def repository(folder: Path, files: dict[str, str | bytes] | None = None) -> Path:
    """A repository at a folder with one commit of these files (by default two)."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    write(folder, files or {"src/a.py": "a = 1\n", "docs/guide.md": "# Guide\n"})
    git(folder, "add", "--all", "--force")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", "first")
    return folder


def write(folder: Path, files: dict[str, str | bytes]) -> None:
    """Write files below a folder."""
    for name, content in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())


def found(folder: Path, pattern: str) -> list[Path]:
    """The files below a folder whose paths in it match."""
    return sorted(folder.glob(pattern))


def contents(folder: Path) -> dict[str, tuple[str, bytes]]:
    """Kind and content of every file below a folder, but for those of git and handrail."""
    found: dict[str, tuple[str, bytes]] = {}
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder).as_posix()
        if name.split("/")[0] in {".git", ".handrail"}:
            continue
        if file.is_symlink():
            found[name] = ("link", os.fsencode(file.readlink()))
        elif file.is_file():
            kind = "program" if file.stat().st_mode & 0o100 else "file"
            found[name] = (kind, file.read_bytes())
    return found
