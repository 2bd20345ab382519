"""A folder of files for people that grows no further than it may."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from handrail.sinks.background import BackgroundWriter

LEAST_FREE_BYTES = 256 * 1024 * 1024
"""Of a disk with less than this the oldest files are let go, too."""
_OFTEN = 8
"""So many times, while as much is written as may be there, the folder is looked at."""
_KEPT = 0.75
"""What is left of a folder that had grown too large."""


class BoundedFolder:
    """Has files below a folder written, and its oldest let go when it has grown too large. What is
    appended to comes to its end by that, and begins anew. Mutable.
    """

    def __init__(self, folder: str, writer: BackgroundWriter, most_bytes: int) -> None:
        self._folder = folder
        self._writer = writer
        self._most = most_bytes
        self._since = 0

    def append(self, file: str, data: bytes) -> None:
        """Have this be appended to a file.

        Raises:
            OSError: something before this could not be written.
        """
        self._writer.append(file, data)
        self._note(len(data))

    def do(self, write: Callable[[], None], size_bytes: int) -> None:
        """Have this be called, which writes so much.

        Raises:
            OSError: something before this could not be written.
        """
        self._writer.do(write, size_bytes)
        self._note(size_bytes)

    def _note(self, size: int) -> None:
        self._since += size
        if self._since * _OFTEN >= self._most:
            self._since = 0
            self._writer.do(lambda: let_go(self._folder, self._most), 0)


def let_go(folder: str, most_bytes: int, keep: str = "run.json") -> None:
    """Remove the files that were written to longest ago, until no more than three quarters of what
    may be there is left; of a disk that is nearly full, half of what is there.
    """
    found: list[tuple[float, int, str]] = []
    for parent, _, names in os.walk(folder):
        for name in names:
            if name != keep:
                with contextlib.suppress(OSError):
                    stat = os.stat(f"{parent}/{name}")  # noqa: PTH116  # there may be many
                    found.append((stat.st_mtime, stat.st_size, f"{parent}/{name}"))
    size = sum(one[1] for one in found)
    wanted = int(most_bytes * _KEPT) if size > most_bytes else size
    if found and shutil.disk_usage(folder).free < LEAST_FREE_BYTES:
        wanted = min(wanted, size // 2)
    gone = 0
    for _, bytes_, file in sorted(found):
        if size - gone <= wanted:
            break
        with contextlib.suppress(OSError):
            Path(file).unlink()
            gone += bytes_
