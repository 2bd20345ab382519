"""Python files below a path, and what can be read in them without importing them."""

from __future__ import annotations

import os
import tokenize
from collections.abc import Iterator
from pathlib import Path

from handrail.cli.exits import Refused

_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist", "venv"})


def python_files(path: Path) -> Iterator[Path]:
    """The file itself, or every Python file below a folder, sorted by path.

    Hidden folders, virtual environments, and what is built or installed are left out.

    Raises:
        Refused: there is no such path.
    """
    if path.is_file():
        yield path
        return
    if not path.is_dir():
        raise Refused(str(path), "there is no such file or folder")
    for folder, below, names in os.walk(path):
        below[:] = sorted(name for name in below if _worth_a_look(Path(folder) / name))
        yield from (Path(folder, name) for name in sorted(names) if name.endswith(".py"))


def read_source(file: Path) -> str:
    """The text of a Python file, in the encoding that it declares.

    Raises:
        SyntaxError, UnicodeDecodeError: it is not in that encoding, or in none there is.
        OSError: it cannot be read.
    """
    with tokenize.open(file) as stream:
        return stream.read()


def _worth_a_look(folder: Path) -> bool:
    return not (
        folder.name.startswith(".") or folder.name in _SKIPPED or (folder / "pyvenv.cfg").is_file()
    )
