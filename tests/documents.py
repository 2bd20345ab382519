"""Runs the Python code of Markdown pages as tests: a pytest plugin, loaded by `nox -s docs`.

The blocks of a page run in order in one namespace, in an empty folder. A block that should be run
but not shown is written in a comment: `<!-- invisible-code-block: python ... -->`; one that should
be shown but not run has `<!-- skip: next -->` before it.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from pathlib import Path
from typing import Any

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

NAME = "page"


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


pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(), SkipParser()],
    path=str(Path(__file__).parent.parent),
    patterns=["*.md"],
    setup=_open,
    teardown=_close,
).pytest()
