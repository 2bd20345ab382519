"""Rules on what a workflow's body must not do, because it runs again on resume."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from handrail.static.chain import source_text
from handrail.static.lint_steps import Mistake, Place, mistake
from handrail.static.symbols import SCOPES, own_nodes

_CLOCK = (
    "time.time time.time_ns time.monotonic time.monotonic_ns time.perf_counter "
    "time.perf_counter_ns time.process_time time.process_time_ns time.localtime time.gmtime "
    "time.ctime time.asctime datetime.datetime.now datetime.datetime.utcnow "
    "datetime.datetime.today datetime.date.today"
)
_RANDOM = (
    "random. secrets. uuid.uuid1 uuid.uuid4 uuid.uuid6 uuid.uuid7 os.urandom os.getrandom "
    "numpy.random."
)
_ENVIRONMENT = "os.getenv os.getenvb os.environ. os.environb. os.putenv os.unsetenv"
_SLEEP = "time.sleep asyncio.sleep anyio.sleep trio.sleep"
_ASYNC = "asyncio. anyio. trio."
_IO = (
    "open input io.open os. shutil. subprocess. socket. requests. httpx. aiohttp. urllib3. "
    "urllib.request. http.client. ftplib. smtplib. sqlite3. glob. tempfile. fileinput. "
    "pathlib.Path.cwd pathlib.Path.home"
)
_PURE = {
    "os.fspath",
    "os.fsencode",
    "os.fsdecode",
    "os.path.basename",
    "os.path.commonpath",
    "os.path.commonprefix",
    "os.path.dirname",
    "os.path.isabs",
    "os.path.join",
    "os.path.normcase",
    "os.path.normpath",
    "os.path.relpath",
    "os.path.split",
    "os.path.splitext",
    "glob.escape",
}
_PATH_METHODS = frozenset(
    {"read_text", "write_text", "read_bytes", "write_bytes", "unlink", "mkdir", "rmdir", "touch"}
    | {"exists", "is_file", "is_dir", "iterdir", "glob", "rglob", "stat", "open", "resolve"}
)
_ALWAYS_PATH = frozenset({"read_text", "write_text", "read_bytes", "write_bytes"})

_Rule: TypeAlias = tuple[str, tuple[str, ...], str, str]
_IO_RULE: _Rule = (
    "HR203",
    tuple(_IO.split()),
    "is input or output",
    "Put it into a step, with .call().",
)
# The first match counts, so the narrow rules come first.
_RULES: tuple[_Rule, ...] = (
    ("HR205", tuple(_SLEEP.split()), "sleeps", "Write `yield from step(...).sleep(seconds)`."),
    ("HR201", tuple(_CLOCK.split()), "reads the clock", "Read it in a step: .call(time.time)."),
    ("HR202", tuple(_RANDOM.split()), "is random", "Draw it in a step, with .call()."),
    (
        "HR204",
        tuple(_ENVIRONMENT.split()),
        "reads the environment",
        "Make it an input of the workflow, or read it in a step.",
    ),
    ("HR108", tuple(_ASYNC.split()), "is async code", "Put it into an async function, as a step."),
    _IO_RULE,
)


def replay_mistakes(place: Place) -> Iterator[Mistake]:
    """Each call in a function's own body that differs, or acts a second time, on resume."""
    for node in place.nodes():
        if isinstance(node, ast.Call):
            yield from _call(place, node)
        elif isinstance(node, ast.Attribute | ast.Name):
            yield from _environment(place, node)


def _call(place: Place, node: ast.Call) -> Iterator[Mistake]:
    dotted = place.symbols.dotted(node.func) or ""
    if dotted in _PURE or (dotted == "random.Random" and node.args):
        return  # a seeded Random draws the same values on resume
    rule = next((one for one in _RULES if any(_fits(dotted, name) for name in one[1])), None)
    if rule is None and _is_path_method(place, node.func):
        rule = _IO_RULE
    if rule is not None:
        code, _, what, hint = rule
        yield mistake(code, node, f"`{source_text(node.func)}()` {what} in the body", hint)


def _fits(dotted: str, name: str) -> bool:
    return dotted.startswith(name) if name.endswith(".") else dotted == name


def _is_path_method(place: Place, func: ast.expr) -> bool:
    """True for ``Path(...).read_text`` and the like, and for method names that only paths have."""
    if not isinstance(func, ast.Attribute):
        return False
    return func.attr in _ALWAYS_PATH or (func.attr in _PATH_METHODS and _is_path(place, func.value))


def _is_path(place: Place, node: ast.expr) -> bool:
    match node:
        case ast.Call(func=func):
            return place.symbols.dotted(func) in {"pathlib.Path", "Path"}
        case ast.BinOp(left=left, op=ast.Div()):
            return _is_path(place, left)
        case ast.Name():
            values = place.symbols.values_of(node)
            inner = [value for value in values if not isinstance(value, ast.Name)]
            return any(_is_path(place, one) for one in inner if not _mentions(one, node.id))
        case _:
            return False


def _mentions(node: ast.expr, name: str) -> bool:
    return any(isinstance(one, ast.Name) and one.id == name for one in ast.walk(node))


def _environment(place: Place, node: ast.Attribute | ast.Name) -> Iterator[Mistake]:
    parent = place.symbols.parents.get(node)
    called = isinstance(parent, ast.Attribute) and isinstance(
        place.symbols.parents.get(parent), ast.Call
    )
    if not called and place.symbols.dotted(node) in {"os.environ", "os.environb"}:
        hint = "Make it an input of the workflow, or read it in a step."
        yield mistake(
            "HR204", node, f"`{source_text(node)}` reads the environment in the body", hint
        )


_CANCELLATION = {"BaseException", "RunCancelled", "GeneratorExit"}
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


def unwinding_mistakes(place: Place) -> Iterator[Mistake]:
    """Each handler that swallows a cancellation, and each jump out of a ``finally``."""
    for node in place.nodes():
        match node:
            case ast.Try() | ast.TryStar():
                yield from _handlers(node)
                yield from _leaves(node.finalbody, in_loop=False)
            case ast.With(items=items) if _yields(node.body):
                for item in items:
                    yield from _suppressed(place, item.context_expr)
            case _:
                pass


def _handlers(node: ast.Try | ast.TryStar) -> Iterator[Mistake]:
    if not _yields(node.body):
        return
    for handler in node.handlers:
        if not _catches_cancellation(handler.type):
            continue
        if any(isinstance(one, ast.Raise) for one in own_nodes(_body_of(handler))):
            return  # this handler catches and re-raises it, so later handlers never see it
        caught = ast.unparse(handler.type) if handler.type else "everything"
        message = f"this handler catches {caught} and keeps a cancelled run going"
        hint = "Catch StepFailed or Exception, or end the handler with `raise`."
        yield Mistake("HR301", message, handler.lineno, handler.col_offset, hint)


def _catches_cancellation(node: ast.expr | None) -> bool:
    match node:
        case None:
            return True
        case ast.Tuple(elts=parts):
            return any(_catches_cancellation(part) for part in parts)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in _CANCELLATION
        case _:
            return False


def _suppressed(place: Place, node: ast.expr) -> Iterator[Mistake]:
    match node:
        case ast.Call(func=func, args=args) if any(map(_catches_cancellation, args)):
            if place.symbols.dotted(func) in {"contextlib.suppress", "suppress"}:
                message = "suppress() keeps a cancelled run going"
                yield mistake("HR301", node, message, "Suppress StepFailed or Exception instead.")
        case _:
            pass


def _yields(body: Sequence[ast.stmt]) -> bool:
    inside = own_nodes(ast.Module(list(body), []))
    return any(isinstance(one, ast.Yield | ast.YieldFrom) for one in inside)


def _body_of(handler: ast.ExceptHandler) -> ast.Module:
    return ast.Module(handler.body, [])


def _leaves(body: Sequence[ast.stmt], *, in_loop: bool) -> Iterator[Mistake]:
    for node in body:
        match node:
            case ast.Return():
                yield _jump_mistake(node, "return")
            case ast.Break() if not in_loop:
                yield _jump_mistake(node, "break")
            case ast.Continue() if not in_loop:
                yield _jump_mistake(node, "continue")
            case _ if isinstance(node, SCOPES):
                pass
            case _:
                loop = in_loop or isinstance(node, _LOOPS)
                for inner in _blocks(node):
                    yield from _leaves(inner, in_loop=loop)


def _blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The blocks of statements directly inside a statement."""
    for name in ("body", "orelse", "finalbody"):
        yield getattr(node, name, [])
    for one in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield one.body


def _jump_mistake(node: ast.stmt, word: str) -> Mistake:
    message = f"`{word}` in a finally drops the error or cancellation that is on its way"
    return mistake("HR302", node, message, f"Move the `{word}` behind the try statement.")
