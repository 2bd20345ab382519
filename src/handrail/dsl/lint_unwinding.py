"""Rules on ``except`` and ``finally``: a failure or cancellation must get through."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from handrail.dsl.lint_scope import Mistake, Place, mistake
from handrail.dsl.symbols import own_nodes

_CANCELLATION = {"BaseException", "RunCancelled", "GeneratorExit"}
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def unwinding_mistakes(place: Place) -> Iterator[Mistake]:
    """Each handler that swallows a cancellation, and each way out of a ``finally``."""
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
            return  # it was caught and raised again, so later handlers never see it
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
                yield _leaving(node, "return")
            case ast.Break() if not in_loop:
                yield _leaving(node, "break")
            case ast.Continue() if not in_loop:
                yield _leaving(node, "continue")
            case _ if isinstance(node, _SCOPES):
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


def _leaving(node: ast.stmt, word: str) -> Mistake:
    message = f"`{word}` in a finally drops the error or cancellation that is on its way"
    return mistake("HR302", node, message, f"Move the `{word}` behind the try statement.")
