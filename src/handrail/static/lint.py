"""Static checks of workflows: mistakes that would fail a run, found without running it.

``CODES`` explains each code. A comment ``# handrail: ignore[HR104]`` on a statement suppresses that
finding; without a code in brackets it suppresses all of them.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping

from handrail.model.dataclass import dataclass
from handrail.static.lint_bodies import replay_mistakes, unwinding_mistakes
from handrail.static.lint_names import name_mistakes
from handrail.static.lint_reads import read_mistakes
from handrail.static.lint_steps import Mistake, mistake, places_of, step_mistakes
from handrail.static.outline import outline_of
from handrail.static.source import TOO_DEEP, FunctionNode, Source, function_of, parse, parse_source
from handrail.static.symbols import Symbols, is_generator, symbols_of


@dataclass(frozen=True, slots=True)
class Finding:
    """One mistake, at a line and column (both from 1) of a file."""

    code: str
    message: str
    filename: str
    line: int
    column: int
    hint: str = ""

    def __str__(self) -> str:
        hint = f" {self.hint}" if self.hint else ""
        return f"{self.filename}:{self.line}:{self.column}: {self.code} {self.message}.{hint}"


@dataclass(frozen=True, slots=True)
class Rule:
    """The meaning of a code: a title, and why it matters."""

    title: str
    explanation: str


CODES: dict[str, Rule] = {
    "HR100": Rule(
        "the file does not parse",
        "Python cannot read the file, so nothing else could be checked.",
    ),
    "HR101": Rule(
        "a step that is never yielded",
        "A step does nothing until it is yielded. One that is built and dropped, compared, "
        "returned, or kept in a variable that nobody reads never runs; so do the steps of a "
        "helper that is called without `yield from`, whatever is done with its generator.",
    ),
    "HR102": Rule(
        "a step without a verb",
        'step("name") says only a name. A verb says what to do: .call(), .agent(), .validate(). '
        "A word that is neither a verb nor a modifier fails the run when it is reached.",
    ),
    "HR103": Rule(
        "yields something that is not a step",
        "A workflow yields steps and nothing else; a run ends as failed at any other value. A "
        "helper is a generator: it is driven by `yield from`.",
    ),
    "HR104": Rule(
        "a step name that is used twice",
        "A step's path is its identity in a run and is used once. Two arms of an `if` may share a "
        "name, because one of them runs; a literal name in a loop may not.",
    ),
    "HR105": Rule(
        "a name that no step can have",
        "A name has 1 to 120 printable characters, no blank at its ends, is not `.` or "
        "`..`, and does not end in `~` and digits.",
    ),
    "HR106": Rule(
        "not a workflow function",
        "@workflow takes a plain generator function at the level of a module or inside a function: "
        "`def` with at least one `yield from step(...)`.",
    ),
    "HR107": Rule(
        "a workflow that is called in a workflow",
        "Calling a workflow starts a run of its own, outside this one's journal, limits and "
        "cancellation. .subworkflow() and .run_workflow() make it a step.",
    ),
    "HR108": Rule(
        "async code in the body",
        "A workflow's body is plain Python that cannot await. Async functions belong in steps: "
        ".call() runs them.",
    ),
    "HR109": Rule(
        "an agent that is refused",
        "There is no backend of this name, or it cannot honour an option that the agent or its "
        "step names. The launch would be refused.",
    ),
    "HR110": Rule(
        "reads a name that nothing has",
        "A function of the context asks for the output of a step or for an input, a `validate` for "
        "a stage, a prompt for a variable, by a name that there is not. It would get nothing, or "
        "fail. A fix finds what failed in `ctx.validation.failed`, not in a step's output.",
    ),
    "HR201": Rule(
        "reads the clock in the body",
        "The body runs again on resume and must decide the same way; the time is another then. "
        "Read it in a step.",
    ),
    "HR202": Rule(
        "random values in the body",
        "The body runs again on resume and must decide the same way. Draw in a step.",
    ),
    "HR203": Rule(
        "input or output in the body",
        "The body runs again on resume, on the event loop: what it reads may have changed, what "
        "it writes is written twice, and it blocks. Files, network and programs belong in steps. "
        "`print` is let pass: all it does is to print again.",
    ),
    "HR204": Rule(
        "reads the environment in the body",
        "A resume may run in another environment and decide otherwise. Take it as an input of the "
        "workflow, or read it in a step.",
    ),
    "HR205": Rule(
        "sleeps in the body",
        "It blocks the event loop, or never sleeps at all, and starts over on resume. .sleep() is "
        "a step.",
    ),
    "HR206": Rule(
        "a lambda or local function as action or body",
        "A record knows a callable by its module and qualified name. A lambda or a local function "
        "has no name of its own, so a change of it may go unnoticed on resume. A body gets a "
        "second value by `functools.partial(body, second)`, or by tuples as items.",
    ),
    "HR301": Rule(
        "swallows cancellation",
        "A cancelled run throws RunCancelled into the workflow at its yield. A handler that "
        "catches it (`except:`, `except BaseException`) and does not raise it again lets the body "
        "continue, for up to `cleanup_timeout_s`; the run is cancelled all the same.",
    ),
    "HR302": Rule(
        "leaves a finally block",
        "`return`, `break` or `continue` in a `finally` drops the exception that is on its way, a "
        "failure or cancellation among them.",
    ),
    "HR401": Rule(
        "a bare yield",
        "`yield step(...)` works, and its result is Any to a type checker. `yield from step(...)` "
        "has the step's type.",
    ),
    "HR402": Rule(
        "no return annotation",
        "Without `-> Steps[R]` a type checker takes all of the workflow for Any.",
    ),
}

__all__ = ["CODES", "Finding", "Rule", "check", "check_module", "workflows_in"]

_IGNORE = re.compile(r"#\s*handrail:\s*ignore(?:\[([^\]]*)\])?")


def check(source: Source) -> tuple[Finding, ...]:
    """The findings in one workflow, and in the functions of its file that it consists of, by line.

    A file that does not parse is a finding of its own.

    Raises:
        SourceUnavailable: the text has no such function.
    """

    def rules(tree: ast.Module, symbols: Symbols) -> Iterator[Mistake]:
        yield from _mistakes(function_of(source, tree), symbols)

    return _apply_rules(source.text, source.filename, rules)


def check_module(
    text: str,
    filename: str,
    more: Callable[[Symbols], Iterable[Mistake]] | None = None,
    stages: Iterable[str] = (),
) -> tuple[Finding, ...]:
    """The findings in a module's workflows, those inside functions included, by line.

    ``more`` adds mistakes that it finds with the module's symbols. ``stages`` are those of the
    project.
    """
    known = tuple(stages)

    def rules(_: ast.Module, symbols: Symbols) -> Iterator[Mistake]:
        if more is not None:
            yield from more(symbols)
        for _name, function in symbols.functions:
            if symbols.is_workflow(function):
                yield from _mistakes(function, symbols, known)

    return _apply_rules(text, filename, rules)


def workflows_in(text: str, filename: str) -> tuple[str, ...]:
    """The names of the functions that a module decorates with ``@workflow``, in its order.

    Functions inside functions and classes are left out: they cannot be named from outside.

    Raises:
        SourceUnavailable: the text does not parse.
    """
    symbols = symbols_of(parse_source(Source(text, filename)))
    names = [name for name, node in symbols.functions if symbols.is_workflow(node)]
    return tuple(dict.fromkeys(name for name in names if "." not in name))


def _apply_rules(
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


def _mistakes(
    function: FunctionNode, symbols: Symbols, stages: Iterable[str] = ()
) -> Iterator[Mistake]:
    yield from _definition(function, symbols)
    places = places_of(function, symbols)
    yield from read_mistakes(places, symbols, stages)
    for place in places:
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
        Finding(
            mistake.code,
            mistake.message,
            filename,
            mistake.line,
            _column(lines, mistake),
            mistake.hint,
        )
        for mistake in mistakes
        if not _is_ignored(mistake, ignored, spans)
    }
    return tuple(sorted(kept, key=lambda one: (one.line, one.column, one.code, one.message)))


def _column(lines: list[str], one: Mistake) -> int:
    """The column in characters, from 1; the syntax tree's is in UTF-8 bytes, from 0."""
    line = lines[one.line - 1] if one.line <= len(lines) else ""
    return len(line.encode()[: one.column].decode(errors="ignore")) + 1


def _ignored(text: str) -> dict[int, frozenset[str]]:
    """The codes that comments suppress, by line; an empty set suppresses all codes."""
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
    """For each line, the lines of its statement; of a compound statement, those of its head."""
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
