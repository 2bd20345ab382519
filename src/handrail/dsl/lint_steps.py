"""Rules on how steps are built and yielded."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator

from handrail.dsl.chain import argument, name_of, read_chain, shown
from handrail.dsl.lint_scope import Mistake, Place, deals_in_steps, handed_over, mistake
from handrail.dsl.source import FunctionNode
from handrail.dsl.symbols import is_generator

_LITERALS = (
    ast.Constant
    | ast.JoinedStr
    | ast.List
    | ast.Tuple
    | ast.Set
    | ast.Dict
    | ast.ListComp
    | ast.SetComp
    | ast.DictComp
)
_CONTAINERS = (
    ast.Starred
    | ast.List
    | ast.Tuple
    | ast.Set
    | ast.Dict
    | ast.ListComp
    | ast.SetComp
    | ast.DictComp
    | ast.GeneratorExp
    | ast.IfExp
    | ast.NamedExpr
    | ast.BoolOp
)


def step_mistakes(place: Place) -> Iterator[Mistake]:
    """Everything wrong with the steps of one function, one by one."""
    for origin, whole in place.steps():
        yield from _name(place, origin)
        yield from _verb_and_fate(place, origin, whole)
        yield from _actions(place, whole)
    for node in place.nodes():
        match node:
            case ast.Yield() | ast.YieldFrom():
                yield from _yielded(place, node)
            case ast.Call():
                yield from _called(place, node)
            case _:
                pass


def _name(place: Place, origin: ast.Call) -> Iterator[Mistake]:
    given = argument(origin, 0, "name")
    name = name_of(given, place.symbols)
    if given is not None and name.literal and (why := _bad_name(name.text)):
        yield mistake("HR105", given, f"{name.text!r} {why}", "Give the step another name.")


def _bad_name(name: str) -> str:
    if not name.strip():
        return "is a blank name"
    if len(name) > 120:
        return f"has {len(name)} characters, and a step's name at most 120"
    if "/" in name:
        return "has a `/` in it, which separates the names of a path"
    if name != name.strip():
        return "begins or ends with a blank"
    if name in {".", ".."} or re.search(r"~\d+$", name):
        return "is a name that paths need for themselves"
    return "" if name.isprintable() else "has characters that cannot be printed"


def _verb_and_fate(place: Place, origin: ast.Call, whole: ast.expr) -> Iterator[Mistake]:
    chain = read_chain(whole, place.symbols)
    name = name_of(argument(origin, 0, "name"), place.symbols).text
    lost = why_lost(place, whole)
    if chain is not None and not chain.verb and not _kept(place, whole):
        hint = "Say what it does: .call(), .command(), .agent(), .validate(), .parallel()."
        yield mistake("HR102", whole, f"step {name!r} has no verb", hint)
    elif lost:
        message = f"step {name!r} is built but never yielded: {lost}"
        yield mistake("HR101", whole, message, "Write `yield from step(...)`.")


def _kept(place: Place, whole: ast.expr) -> bool:
    """True if an expression is assigned to something that is read later."""
    parent = place.symbols.parents.get(whole)
    assigned = isinstance(parent, ast.Assign | ast.AnnAssign | ast.NamedExpr)
    return assigned and not why_lost(place, whole)


def why_lost(place: Place, node: ast.expr) -> str:
    """Why nobody gets to yield what this expression gives; empty if somebody may."""
    parent = place.symbols.parents.get(node)
    match parent:
        case ast.Expr():
            return "nothing is done with it"
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return "" if _is_read(place, name) else f"it is assigned to {name}, which is not used"
        case ast.NamedExpr(target=ast.Name(id=name)) if _is_read(place, name):
            return ""
        case ast.Return() if place.role != "maker":
            return "it is returned"
        case ast.IfExp(test=test) | ast.If(test=test) | ast.While(test=test) if test is node:
            return "it is used as a condition"
        case ast.comprehension() | ast.For() | ast.AsyncFor():
            return "it is iterated over"
        case ast.Compare() | ast.BinOp() | ast.UnaryOp() | ast.Subscript() | ast.Attribute():
            return "it is used as if it were its own result"
        case ast.FormattedValue() | ast.Assert() | ast.Await():
            return "it is used as if it were its own result"
        case ast.expr() if isinstance(parent, _CONTAINERS):
            return why_lost(place, parent)
        case _:
            return ""


def _is_read(place: Place, name: str) -> bool:
    return any(
        isinstance(one, ast.Name) and one.id == name and isinstance(one.ctx, ast.Load)
        for one in ast.walk(place.region)
    )


def _actions(place: Place, whole: ast.expr) -> Iterator[Mistake]:
    chain = read_chain(whole, place.symbols)
    if chain is None or chain.verb not in {"call", "python", "for_each"}:
        return
    is_body = chain.verb == "for_each"
    given = argument(chain.call, 1, "body") if is_body else argument(chain.call, 0, "action")
    what = "body" if is_body else "action"
    hint = "Define it with def at the level of the module."
    for function in handed_over(given, place.symbols):
        if isinstance(function, ast.Lambda):
            message = f"a lambda as {what}: it has no name of its own to be recognised by on resume"
        elif place.symbols.is_local(function):
            message = f"the local function {function.name} as {what}: only its name is recorded"
        else:
            continue
        yield mistake("HR206", given or whole, message, hint)


def _yielded(place: Place, node: ast.Yield | ast.YieldFrom) -> Iterator[Mistake]:
    value = node.value
    if isinstance(node, ast.YieldFrom):
        if isinstance(value, _LITERALS):
            message = f"`yield from {shown(node.value)}` gives no steps"
            yield mistake("HR103", node, message, "Yield steps one by one, or in .parallel().")
        return
    if value is None or isinstance(value, _LITERALS):
        if not (value is None and _is_unreachable(place, node)):
            message = f"`{shown(node)}` yields something that is not a step"
            yield mistake("HR103", node, message, "Write `yield from step(...)` with a verb.")
        return
    helper = place.symbols.function_named(value.func) if isinstance(value, ast.Call) else None
    if helper is not None and is_generator(helper) and not place.symbols.is_workflow(helper):
        message = f"`{shown(node)}` yields a generator, not its steps"
        yield mistake("HR103", node, message, f"Write `yield from {shown(value)}`.")
    else:
        message = "a bare yield, whose result is Any to a type checker"
        yield mistake("HR401", node, message, "Write `yield from` instead.")


def _is_unreachable(place: Place, node: ast.Yield) -> bool:
    """True for the `yield` after a `return` that only makes a function a generator."""
    statement = place.symbols.parents.get(node)
    around = place.symbols.parents.get(statement) if statement is not None else None
    body: list[ast.stmt] = getattr(around, "body", [])
    before = itertools.takewhile(lambda one: one is not statement, body)
    return any(isinstance(one, ast.Return | ast.Raise) for one in before)


def _called(place: Place, node: ast.Call) -> Iterator[Mistake]:
    """Calls of the text's own workflows, helpers and coroutines that go wrong."""
    func = node.func
    whole = func.value if isinstance(func, ast.Attribute) and func.attr == "run" else func
    function = place.symbols.function_named(whole)
    if function is None:
        return
    if place.symbols.is_workflow(function):
        message = f"workflow {function.name!r} is called inside a workflow"
        hint = f"Write `yield from step(...).run_workflow({function.name}, ...)`."
        yield mistake("HR107", node, message, hint)
    elif whole is not func:
        return
    elif isinstance(function, ast.AsyncFunctionDef):
        message = f"{function.name}() is async, and a workflow's body cannot await it"
        hint = f"Write `yield from step(...).call({function.name}, ...)`."
        yield mistake("HR108", node, message, hint)
    elif _is_helper(place, function) and (lost := why_lost(place, node)):
        message = f"the steps of {function.name}() are never yielded: {lost}"
        yield mistake("HR101", node, message, f"Write `yield from {shown(node)}`.")


def _is_helper(place: Place, function: FunctionNode) -> bool:
    return is_generator(function) and deals_in_steps(function, place.symbols)
