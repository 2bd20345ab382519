"""``handrail list``: the workflows in files, which are read and not imported."""

from __future__ import annotations

import ast
import json
import os
import tokenize
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from handrail.cli.channels import tell
from handrail.cli.exits import Exit, Refused
from handrail.cli.options import Json
from handrail.model.dataclass import dataclass
from handrail.static.lint import workflows_in
from handrail.static.source import SourceUnavailable, parse, starts_at

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
        below[:] = sorted(name for name in below if _is_searched(Path(folder) / name))
        yield from (Path(folder, name) for name in sorted(names) if name.endswith(".py"))


def read_source(file: Path) -> str:
    """The text of a Python file, in the encoding that it declares.

    Raises:
        SyntaxError, UnicodeDecodeError: the text is not in that encoding, or there is no such one.
        OSError: the file cannot be read.
    """
    with tokenize.open(file) as stream:
        return stream.read()


def _is_searched(folder: Path) -> bool:
    return not (
        folder.name.startswith(".") or folder.name in _SKIPPED or (folder / "pyvenv.cfg").is_file()
    )


@dataclass(frozen=True, slots=True)
class ListedWorkflow:
    """One workflow in a source: its TARGET, its file and line, and its description."""

    target: str
    file: str
    line: int
    description: str


def list_(path: Path = Path(), /, *, as_json: Json = False) -> int:
    """List the workflows in Python files without importing them.

    Parameters
    ----------
    path
        A file, or a folder to search recursively.
    as_json
        Print a JSON list.
    """
    found = list(scan(path))
    if as_json:
        print(json.dumps([asdict(one) for one in found], ensure_ascii=False, indent=2))
    elif found:
        width = max(len(one.target) for one in found)
        for one in found:
            print(f"{one.target:{width}}  {one.description}".rstrip())
    else:
        tell(f"no workflow found in {path} (a workflow is a generator function with @workflow)")
    return Exit.SUCCEEDED


def scan(path: Path) -> Iterator[ListedWorkflow]:
    """The workflows in the Python files below a path, in order of files and lines."""
    for file in python_files(path):
        try:
            text = read_source(file)
            if "workflow" in text:
                yield from _in_text(text, str(file))
        except (OSError, SyntaxError, UnicodeDecodeError, SourceUnavailable) as error:
            tell(f"{file} left out: {' '.join(str(error).split())}")


def _in_text(text: str, file: str) -> Iterator[ListedWorkflow]:
    names = workflows_in(text, file)
    functions = {
        node.name: node for node in ast.walk(parse(text, file)) if isinstance(node, ast.FunctionDef)
    }
    for name in names:
        node = functions.get(name)
        if node is not None:
            yield ListedWorkflow(f"{file}:{name}", file, starts_at(node), _description(node))


def _description(node: ast.FunctionDef) -> str:
    """The decorator's ``description``, if it is a literal, else the docstring's first line."""
    for decorator in node.decorator_list:
        for keyword in decorator.keywords if isinstance(decorator, ast.Call) else ():
            if keyword.arg == "description" and isinstance(keyword.value, ast.Constant):
                return str(keyword.value.value)
    return (ast.get_docstring(node) or "").partition("\n")[0]
