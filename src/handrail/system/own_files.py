"""Handrail's own files: their folder, and which of them this process has open."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import IO, Any

FOLDER = ".handrail"
"""The folder of a project in which handrail keeps its files."""
_BESIDE = ("", "-wal", "-shm", "-journal")


def make_ignored(folder: Path) -> None:
    """Create a folder, unless it exists, with a file by which git ignores all that is in it."""
    if not folder.exists():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (folder / ".gitignore").write_text("*\n", "utf-8")


def open_private(file: str | os.PathLike[str], mode: str, **more: Any) -> IO[Any]:
    """The file, opened; if it is made for that, nobody else can read it."""
    return open(file, mode, opener=_private, **more)  # no opener there


def _private(file: str, flags: int) -> int:
    return os.open(file, flags, 0o600)


def own_files(root: Path) -> frozenset[str]:
    """The files below a folder that this process has open, and the files SQLite keeps beside them.

    Paths are relative to the folder. Empty on systems without ``/proc`` other than macOS.
    """
    found: set[str] = set()
    base = root.resolve()
    for opened in map(Path, _open_paths()):
        if opened.is_relative_to(base) and str(opened).isprintable():
            name = opened.relative_to(base).as_posix()
            found.update(
                f"{name.removesuffix('-wal').removesuffix('-shm')}{end}" for end in _BESIDE
            )
    return frozenset(found)


def _open_paths() -> list[str]:
    with contextlib.suppress(OSError):
        return [path for fd in os.listdir("/proc/self/fd") if (path := _link_target(fd))]
    if sys.platform != "darwin":
        return []
    import fcntl

    paths: list[str] = []
    for fd in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):
            raw_path = fcntl.fcntl(int(fd), fcntl.F_GETPATH, bytes(1024))
            paths.append(os.fsdecode(raw_path.rstrip(b"\0")))
    return paths


def _link_target(fd: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:  # the descriptor that listed the folder, closed by now
        return ""
