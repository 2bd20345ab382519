"""Files that a program reads what it is told from, as long as its turn goes on."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TypeAlias

Put: TypeAlias = Callable[[str, str], str]
"""Writes a text to a private file of this name that lives as long as the turn; its path."""


@contextlib.contextmanager
def private_files(program: str) -> Generator[Put, None, None]:
    """What writes into a folder of the user alone, which is made for the first file."""
    with contextlib.ExitStack() as stack:
        folders: list[Path] = []

        def put(name: str, text: str) -> str:
            if not folders:
                made = tempfile.TemporaryDirectory(prefix=f"handrail-{program}-")
                folders.append(Path(stack.enter_context(made)))
            file = folders[0] / name
            file.write_text(text, encoding="utf-8", errors="replace")
            return str(file)

        yield put
