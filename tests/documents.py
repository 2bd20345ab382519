"""Runs the Python code of Markdown pages as tests: a pytest plugin, loaded by `nox -s docs`.

The blocks of a page run in order in one namespace, in an empty folder. A block that should be run
but not shown is written in a comment: `<!-- invisible-code-block: python ... -->`; one that should
be shown but not run has `<!-- skip: next -->` before it. What only compares a page with the code is
in `tests/page_checks`, and runs behind the blocks of the page, in their namespace. A block of text
below a line that ends in "It prints:" is what the block of Python before it printed.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sybil import Document, Example, Region, Sybil
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser, SkipParser

NAME = "page"
ROOT = Path(__file__).parent.parent
PRINTED = "_printed"


class _Page:
    """Stands in `sys.modules` for the page that runs, so that annotations find its names."""


def _open(namespace: dict[str, Any]) -> None:
    page = _Page()
    page.__dict__ = namespace
    namespace["__name__"] = NAME
    sys.modules[NAME] = page  # type: ignore[assignment]
    stack = namespace["_stack"] = contextlib.ExitStack()
    stack.enter_context(contextlib.chdir(stack.enter_context(tempfile.TemporaryDirectory())))
    stack.callback(sys.modules.pop, NAME)


def _close(namespace: dict[str, Any]) -> None:
    namespace["_stack"].close()


_run_python = PythonEvaluator()


def _run(example: Example) -> None:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        _run_python(example)
    example.namespace[PRINTED] = out.getvalue()


def _compare(example: Example) -> None:
    if example.document.text[: example.start].rstrip().endswith("It prints:"):
        printed, shown = example.namespace[PRINTED], str(example.parsed)
        assert printed.strip() == shown.strip(), printed


def _check(example: Example) -> None:
    example.namespace["PAGE_FILE"] = Path(example.path)
    exec(compile(example.parsed.read_text("utf-8"), example.parsed, "exec"), example.namespace)


def _checks(document: Document) -> Iterable[Region]:
    """What compares the page with the code, behind its last block."""
    place = Path(document.path).resolve().relative_to(ROOT)
    file = (ROOT / "tests/page_checks" / place.relative_to(place.parts[0])).with_suffix(".py")
    if place.parts[0] == "docs" and file.is_file():
        end = len(document.text)
        yield Region(end, end, file, _check)


pytest_collect_file = Sybil(
    parsers=[
        CodeBlockParser("python", _run),
        CodeBlockParser("text", _compare),
        SkipParser(),
        _checks,
    ],
    path=str(ROOT),
    patterns=["*.md"],
    setup=_open,
    teardown=_close,
).pytest()
