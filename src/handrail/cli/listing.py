"""``handrail list``: the workflows in Python files, found without importing them."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from handrail.cli.channels import tell
from handrail.cli.exits import Exit
from handrail.cli.files import python_files, read_source
from handrail.static.lint import workflows_in
from handrail.static.source import SourceUnavailable, parse, starts_at


@dataclass(frozen=True, slots=True)
class Listed:
    """One workflow: the TARGET that names it, where it stands, and what its source says of it."""

    target: str
    file: str
    line: int
    description: str


def list_workflows(path: Path, *, as_json: bool) -> int:
    """Print what is found; the exit code."""
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


def scan(path: Path) -> Iterator[Listed]:
    """The workflows in the Python files below a path, in order of files and lines."""
    for file in python_files(path):
        try:
            text = read_source(file)
            if "workflow" in text:
                yield from _in_text(text, str(file))
        except (OSError, SyntaxError, UnicodeDecodeError, SourceUnavailable) as error:
            tell(f"{file} left out: {' '.join(str(error).split())}")


def _in_text(text: str, file: str) -> Iterator[Listed]:
    names = workflows_in(text, file)
    functions = {
        node.name: node for node in ast.walk(parse(text, file)) if isinstance(node, ast.FunctionDef)
    }
    for name in names:
        node = functions.get(name)
        if node is not None:
            yield Listed(f"{file}:{name}", file, starts_at(node), _description(node))


def _description(node: ast.FunctionDef) -> str:
    """What the decorator says, if it says it literally, else the docstring's first line."""
    for decorator in node.decorator_list:
        for keyword in decorator.keywords if isinstance(decorator, ast.Call) else ():
            if keyword.arg == "description" and isinstance(keyword.value, ast.Constant):
                return str(keyword.value.value)
    return (ast.get_docstring(node) or "").partition("\n")[0]
