"""Finds and parses a workflow's source text, without running it."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable
from typing import TypeAlias

from handrail.errors import HandrailError
from handrail.model.dataclass import dataclass

TOO_DEEP = "nested too deeply to be read"
FunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


class SourceUnavailable(HandrailError):
    """A function's source text is missing or cannot be parsed."""

    def __init__(self, name: str, why: str, hint: str = "") -> None:
        super().__init__(name, why, hint)
        self.name = name
        self.why = why
        self.hint = hint

    def __str__(self) -> str:
        hint = f" {self.hint}" if self.hint else ""
        return f"the source of {self.name!r} cannot be read: {self.why}.{hint}"


@dataclass(frozen=True, slots=True)
class Source:
    """A module's text, and which of its functions to read.

    ``first_line`` is the line of the function's first decorator (or of its ``def``); with 0 the
    qualified ``name`` decides. Without a name either, the text must contain exactly one function.
    """

    text: str
    filename: str
    first_line: int = 0
    name: str = ""


def source_of(function: Callable[..., object]) -> Source:
    """The source of a function: the whole text of its file, and where in it the function is.

    Raises:
        SourceUnavailable: it is no Python function, or its text is not kept (``exec``, some REPLs).
    """
    target = _plain(function)
    name = str(getattr(target, "__qualname__", None) or repr(target))
    code = getattr(target, "__code__", None)
    if not inspect.isfunction(target) or not inspect.iscode(code):
        raise SourceUnavailable(name, f"it is a {type(target).__name__}, not a Python function")
    if target.__name__ == "<lambda>":
        raise SourceUnavailable(name, "it is a lambda", "Write it as a def.")
    try:
        lines, _ = inspect.findsource(target)
    except (OSError, TypeError, IndexError, SyntaxError):
        hint = "Define it in a file, so that it can be read without running it."
        why = f"its code comes from {code.co_filename}, which has no text"
        raise SourceUnavailable(name, why, hint) from None
    return Source("".join(lines), code.co_filename, code.co_firstlineno, target.__qualname__)


def _plain(function: Callable[..., object]) -> Callable[..., object]:
    """The function below partials, and below decorators that set ``__wrapped__``."""
    target: Callable[..., object] = inspect.unwrap(function)
    while isinstance(target, functools.partial):
        target = inspect.unwrap(target.func)
    return target


@functools.lru_cache(maxsize=4)  # each plan, and each edit of work, reads the same files again
def parse(text: str, filename: str) -> ast.Module:
    """The module's syntax tree; an indented fragment is accepted too.

    Raises:
        SyntaxError: the text does not parse; with the line in the file.
    """
    text = text.removeprefix("\ufeff")
    try:
        return ast.parse(text, filename)
    except IndentationError:
        flat = textwrap.dedent(text)
        if flat == text:
            raise
        return ast.parse(flat, filename)
    except ValueError as problem:  # null bytes, before 3.12
        raise SyntaxError(str(problem), (filename, 1, 1, "")) from None
    except (RecursionError, MemoryError):  # CPython's parser raises MemoryError
        raise SyntaxError(TOO_DEEP, (filename, 1, 1, "")) from None


def parse_source(source: Source) -> ast.Module:
    """The tree of a source's text; raises ``SourceUnavailable`` with the line of a syntax error."""
    try:
        return parse(source.text, source.filename)
    except SyntaxError as problem:
        why = f"{source.filename}:{problem.lineno or 1}: {problem.msg}"
        raise SourceUnavailable(source.name or source.filename, why, "Correct the file.") from None


def functions_in(tree: ast.AST, prefix: str = "") -> list[tuple[str, FunctionNode]]:
    """Every function of a tree with its qualified name, in source order."""
    found: list[tuple[str, FunctionNode]] = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, FunctionNode):
            found.append((prefix + node.name, node))
            found += functions_in(node, f"{prefix}{node.name}.<locals>.")
        elif isinstance(node, ast.ClassDef):
            found += functions_in(node, f"{prefix}{node.name}.")
        elif not isinstance(node, ast.expr):  # an expression contains no named functions
            found += functions_in(node, prefix)
    return found


def starts_at(function: FunctionNode) -> int:
    """The line of a function's first decorator, or of its ``def``."""
    return min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])


def function_of(source: Source, tree: ast.Module) -> FunctionNode:
    """The function that a source refers to.

    If the file was edited after its import, the function is found by name. Of several functions
    with one name the last counts, as in Python.
    """
    known = functions_in(tree)
    named = [(name, node) for name, node in known if not source.name or name == source.name]
    if not named:
        named = [(name, node) for name, node in known if node.name == source.name]
    at_line = [node for _, node in named if source.first_line in (starts_at(node), node.lineno)]
    if at_line:
        return at_line[-1]
    if named and (source.name or len(named) == 1):
        return named[-1][1]
    listed = ", ".join(name for name, _ in known) or "none"
    wanted = source.name or f"line {source.first_line}"
    why = f"{source.filename} has no such function (functions there: {listed})"
    raise SourceUnavailable(wanted, why)
