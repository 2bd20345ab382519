"""Runs the Python code of Markdown pages as tests: a pytest plugin, loaded by `nox -s docs`.

The blocks of a page run in order in one namespace, in an empty folder. A block that should be run
but not shown is written in a comment: `<!-- invisible-code-block: python ... -->`; one that should
be shown but not run has `<!-- skip: next -->` before it. A block of text below a line that ends in
"It prints:" is what the block of Python before it printed.

What only compares a page with the code is in `tests/page_checks`, in parts that `# ---` divides. A
part runs where the page calls `check()`, in the namespace of its blocks; those left run behind its
last block.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sybil import Document, Example, Region, Sybil
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser, SkipParser

NAME = "page"
ROOT = Path(__file__).parent.parent
PRINTED = "_printed"
CHECKS = "_checks"
DIVIDES = "\n# ---\n"


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


def _load_checks(example: Example) -> None:
    """Give the page `check()`, which runs the next part of its checks."""
    file, names = example.parsed, example.namespace
    names["PAGE_FILE"] = Path(example.path)
    text, line, parts = file.read_text("utf-8"), 0, []
    for part in text.split(DIVIDES):
        parts.append(compile("\n" * line + part, file, "exec"))
        line += part.count("\n") + DIVIDES.count("\n")
    names[CHECKS] = deque(parts)
    names["check"] = lambda: exec(names[CHECKS].popleft(), names)


def _check_the_rest(example: Example) -> None:
    while example.namespace[CHECKS]:
        example.namespace["check"]()


def _checks(document: Document) -> Iterable[Region]:
    """What compares the page with the code, around its blocks."""
    place = Path(document.path).resolve().relative_to(ROOT)
    file = (ROOT / "tests/page_checks" / place.relative_to(place.parts[0])).with_suffix(".py")
    if place.parts[0] == "docs" and file.is_file():
        end = len(document.text)
        yield Region(0, 0, file, _load_checks)
        yield Region(end, end, file, _check_the_rest)


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
