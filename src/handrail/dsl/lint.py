"""Static checks of workflows: what would go wrong in a run, found without running it.

``CODES`` says what each code means. A comment ``# handrail: ignore[HR104]`` on a statement lets a
finding pass; without a code in brackets it lets all of them pass.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping

from handrail.dsl.findings import CODES, Finding, Rule
from handrail.dsl.lint_names import name_mistakes
from handrail.dsl.lint_replay import replay_mistakes
from handrail.dsl.lint_scope import Mistake, mistake, places_of
from handrail.dsl.lint_steps import step_mistakes
from handrail.dsl.lint_unwinding import unwinding_mistakes
from handrail.dsl.outline import outline_of
from handrail.dsl.source import TOO_DEEP, FunctionNode, Source, function_of, parse, parse_source
from handrail.dsl.symbols import Symbols, is_generator, symbols_of

__all__ = ["CODES", "Finding", "Rule", "check", "check_module", "workflows_in"]

_IGNORE = re.compile(r"#\s*handrail:\s*ignore(?:\[([^\]]*)\])?")


def check(source: Source) -> tuple[Finding, ...]:
    """What is wrong with one workflow and the functions of its file that it is made of, by line.

    A file that does not parse is a finding of its own.

    Raises:
        SourceUnavailable: the text has no such function.
    """

    def one(tree: ast.Module, symbols: Symbols) -> Iterator[Mistake]:
        yield from _mistakes(function_of(source, tree), symbols)

    return _checked(source.text, source.filename, one)


def check_module(
    text: str, filename: str, more: Callable[[Symbols], Iterable[Mistake]] | None = None
) -> tuple[Finding, ...]:
    """What is wrong with the workflows of a module, those inside functions included, by line.

    ``more`` finds what else there is, in what the names of the module stand for.
    """

    def each(_: ast.Module, symbols: Symbols) -> Iterator[Mistake]:
        if more is not None:
            yield from more(symbols)
        for _name, function in symbols.functions:
            if symbols.is_workflow(function):
                yield from _mistakes(function, symbols)

    return _checked(text, filename, each)


def workflows_in(text: str, filename: str) -> tuple[str, ...]:
    """The names of the functions that a module decorates with ``@workflow``, in its order.

    Those inside functions and classes are left out: nobody can name them from outside.

    Raises:
        SourceUnavailable: the text does not parse.
    """
    symbols = symbols_of(parse_source(Source(text, filename)))
    names = [name for name, node in symbols.functions if symbols.is_workflow(node)]
    return tuple(dict.fromkeys(name for name in names if "." not in name))


def _checked(
    text: str, filename: str, rules: Callable[[ast.Module, Symbols], Iterator[Mistake]]
) -> tuple[Finding, ...]:
    try:
        tree = parse(text, filename)
        return _findings(rules(tree, symbols_of(tree)), text, filename, tree)
    except SyntaxError as problem:
        line, column, why = problem.lineno or 1, problem.offset or 1, problem.msg
    except RecursionError:
        line, column, why = 1, 1, TOO_DEEP
    return (Finding("HR100", f"the file does not parse: {why}", filename, line, column),)


def _mistakes(function: FunctionNode, symbols: Symbols) -> Iterator[Mistake]:
    yield from _definition(function, symbols)
    for place in places_of(function, symbols):
        yield from step_mistakes(place)
        yield from replay_mistakes(place)
        yield from unwinding_mistakes(place)
    yield from name_mistakes(outline_of(function, symbols).nodes)


def _definition(function: FunctionNode, symbols: Symbols) -> Iterator[Mistake]:
    why = ""
    if isinstance(function, ast.AsyncFunctionDef):
        why = "is an async function"
    elif not is_generator(function):
        why = "never yields"
    elif isinstance(symbols.parents.get(function), ast.ClassDef):
        why = "is a method"
    if why:
        hint = "Write a plain `def` with `yield from step(...)`, outside any class."
        yield mistake("HR106", function, f"workflow {function.name!r} {why}", hint)
    elif function.returns is None:
        message = f"workflow {function.name!r} has no return annotation"
        hint = "Write `-> Steps[R]`, with R for what it returns."
        yield mistake("HR402", function, message, hint)


def _findings(
    mistakes: Iterable[Mistake], text: str, filename: str, tree: ast.Module
) -> tuple[Finding, ...]:
    ignored = _ignored(text)
    lines = re.split(r"\r\n|\r|\n", text)
    spans = _spans(tree) if ignored else {}
    kept = {
        Finding(one.code, one.message, filename, one.line, _column(lines, one), one.hint)
        for one in mistakes
        if not _is_ignored(one, ignored, spans)
    }
    return tuple(sorted(kept, key=lambda one: (one.line, one.column, one.code, one.message)))


def _column(lines: list[str], one: Mistake) -> int:
    """The column in characters from 1, from the one in UTF-8 bytes that the syntax tree has."""
    line = lines[one.line - 1] if one.line <= len(lines) else ""
    return len(line.encode()[: one.column].decode(errors="ignore")) + 1


def _ignored(text: str) -> dict[int, frozenset[str]]:
    """The codes that comments let pass, by line; all of them is an empty set."""
    found: dict[int, frozenset[str]] = {}
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            match = _IGNORE.search(token.string) if token.type == tokenize.COMMENT else None
            if match:
                codes = (match.group(1) or "").replace(",", " ").split()
                found[token.start[0]] = frozenset(codes)
    except (tokenize.TokenError, SyntaxError):
        pass  # an indented fragment: comments up to here count
    return found


def _spans(tree: ast.Module) -> dict[int, range]:
    """The lines of the statement (of a compound one, its head) that each line belongs to."""
    spans: dict[int, range] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            span = _head(node)
            spans.update(dict.fromkeys(span, span))
    return spans


def _head(node: ast.stmt | ast.ExceptHandler | ast.match_case) -> range:
    body: list[ast.stmt] = getattr(node, "body", [])
    first = getattr(node, "lineno", None) or body[0].lineno
    last = getattr(node, "end_lineno", None) or first
    return range(first, max(first + 1, body[0].lineno if body else last + 1))


def _is_ignored(
    one: Mistake, ignored: Mapping[int, frozenset[str]], spans: Mapping[int, range]
) -> bool:
    for line in spans.get(one.line, range(one.line, one.line + 1)):
        codes = ignored.get(line)
        if codes is not None and (not codes or one.code in codes):
            return True
    return False
