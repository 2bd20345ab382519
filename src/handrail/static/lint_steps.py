"""Rules on how steps are built and yielded."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from typing import Literal

from handrail.errors import did_you_mean
from handrail.model.dataclass import dataclass
from handrail.static.chain import (
    BODIES,
    CHILDREN,
    VERBS,
    Chain,
    argument,
    name_of,
    read_chain,
    source_text,
)
from handrail.static.source import FunctionNode
from handrail.static.symbols import Region, Symbols, is_generator, own_nodes
from handrail.steps.verbs import MODIFIERS


@dataclass(frozen=True, slots=True)
class Mistake:
    """A rule's finding at a place in the text (``line`` from 1, ``column`` in bytes from 0)."""

    code: str
    message: str
    line: int
    column: int
    hint: str


def mistake(code: str, node: ast.stmt | ast.expr, message: str, hint: str) -> Mistake:
    """A finding at a node of the tree."""
    return Mistake(code, message, node.lineno, node.col_offset, hint)


@dataclass(frozen=True, slots=True)
class Place:
    """One function to check: the workflow, a generator it drives, or a maker of steps."""

    region: Region
    symbols: Symbols
    role: Literal["workflow", "generator", "maker"]

    def nodes(self) -> Iterator[ast.AST]:
        """The syntax nodes of this function's own body."""
        return own_nodes(self.region)

    def steps(self) -> Iterator[tuple[ast.Call, ast.expr]]:
        """Each ``step(...)`` with the whole chain of calls that starts with it."""
        for node in self.nodes():
            if isinstance(node, ast.Call) and self.symbols.is_step(node.func):
                yield node, self._whole_chain(node)

    def _whole_chain(self, node: ast.expr) -> ast.expr:
        parents = self.symbols.parents
        while True:
            attribute = parents.get(node)
            call = parents.get(attribute) if isinstance(attribute, ast.Attribute) else None
            if not isinstance(call, ast.Call) or call.func is not attribute:
                return node
            node = call


def places_of(function: FunctionNode, symbols: Symbols) -> list[Place]:
    """The workflow's function, and each function of the text that runs as part of its body."""
    places = [Place(function, symbols, "workflow")]
    for place in places:  # the loop appends to this list
        for region in _run_by(place):
            if all(region is not one.region for one in places):
                generator = isinstance(region, FunctionNode) and is_generator(region)
                places.append(Place(region, symbols, "generator" if generator else "maker"))
    return places


def _run_by(place: Place) -> Iterator[Region]:
    for node in place.nodes():
        if not isinstance(node, ast.Call):
            continue
        called = place.symbols.function_named(node.func)
        if called is not None and _runs_here(called, node, place.symbols):
            yield called
        chain = read_chain(node, place.symbols)
        if chain is not None and chain.verb in BODIES and chain.call is node:
            yield from functions_passed(argument(node, BODIES[chain.verb], "body"), place.symbols)


def _runs_here(called: FunctionNode, call: ast.Call, symbols: Symbols) -> bool:
    """True if the function of this call is part of the body that makes the call."""
    if symbols.is_workflow(called) or isinstance(called, ast.AsyncFunctionDef):
        return False
    driven = isinstance(symbols.parents.get(call), ast.YieldFrom)
    return driven or builds_steps(called, symbols)


def builds_steps(
    function: FunctionNode, symbols: Symbols, seen: tuple[FunctionNode, ...] = ()
) -> bool:
    """True for a function that builds steps, or drives a function of this text that does."""
    for node in own_nodes(function):
        if isinstance(node, ast.Call) and symbols.is_step(node.func):
            return True
        if isinstance(node, ast.YieldFrom) and isinstance(node.value, ast.Call):
            inner = symbols.function_named(node.value.func)
            path = (*seen, function)
            if inner is not None and inner not in path and builds_steps(inner, symbols, path):
                return True
    return False


def functions_passed(node: ast.expr | None, symbols: Symbols) -> Iterator[Region]:
    """The functions of the text that an argument may be: a name, a partial, or a lambda."""
    match node:
        case ast.Lambda():
            yield node
        case ast.Call(func=func, args=[inner, *_]) if symbols.dotted(func) in _PARTIAL:
            yield from functions_passed(inner, symbols)
        case ast.Name():
            function = symbols.function_named(node)
            if function is not None:
                yield function
            for value in symbols.values_of(node):
                if isinstance(value, ast.Lambda):
                    yield value
        case _:
            pass


_PARTIAL = {"functools.partial", "partial"}

_DISPLAYS = ast.List | ast.Tuple | ast.Set | ast.Dict | ast.ListComp | ast.SetComp | ast.DictComp
_LITERALS = ast.Constant | ast.JoinedStr | _DISPLAYS
_CONTAINERS = _DISPLAYS | ast.Starred | ast.GeneratorExp | ast.IfExp | ast.NamedExpr | ast.BoolOp


def step_mistakes(place: Place) -> Iterator[Mistake]:
    """Every mistake in the steps, yields and calls of one function."""
    for origin, whole in place.steps():
        yield from _step_name_mistakes(place, origin)
        yield from _unfinished_step_mistakes(place, origin, whole)
        yield from _action_mistakes(place, whole)
    for node in place.nodes():
        if isinstance(node, ast.Yield | ast.YieldFrom):
            yield from _yield_mistakes(place, node)
        elif isinstance(node, ast.Call):
            yield from _call_mistakes(place, node)


def _step_name_mistakes(place: Place, origin: ast.Call) -> Iterator[Mistake]:
    given = argument(origin, 0, "name")
    name = name_of(given, place.symbols)
    if given is not None and name.literal and (why := _bad_name(name.text)):
        yield mistake("HR105", given, f"{name.text!r} {why}", "Give the step another name.")


def _bad_name(name: str) -> str:
    if not name.strip():
        return "is a blank name"
    if len(name) > 120:
        return f"has {len(name)} characters, and a step's name at most 120"
    if name != name.strip():
        return "begins or ends with a blank"
    if name in {".", ".."} or re.search(r"~\d+$", name):
        return "is a name that paths need for themselves"
    return "" if name.isprintable() else "has characters that cannot be printed"


def _unfinished_step_mistakes(place: Place, origin: ast.Call, whole: ast.expr) -> Iterator[Mistake]:
    """A step without a verb, or one that is built and never yielded."""
    chain = read_chain(whole, place.symbols)
    name = name_of(argument(origin, 0, "name"), place.symbols).text
    lost = why_lost(place, whole)
    if chain is not None and not chain.verb and not _is_read_later(place, whole):
        hint = "Say what it does: .call(), .command(), .agent(), .validate(), .parallel()."
        yield mistake("HR102", whole, f"step {name!r} has no verb", hint)
    elif chain is not None and (word := _unknown_word(chain)):
        known = sorted(MODIFIERS) if chain.verb in VERBS else list(VERBS)
        what = "modifier" if chain.verb in VERBS else "verb"
        near = did_you_mean([word], known).strip() or f"Known: {', '.join(known)}."
        yield mistake("HR102", whole, f"step {name!r} has no {what} {word!r}", near)
    elif lost:
        message = f"step {name!r} is built but never yielded: {lost}"
        yield mistake("HR101", whole, message, "Write `yield from step(...)`.")


def _unknown_word(chain: Chain) -> str:
    """The verb, or a modifier, that no step has; "" if all are known."""
    words = [chain.verb, *(name for name, _ in chain.modifiers)]
    known = {"", *VERBS, *MODIFIERS}
    return next((word for word in words if word not in known), "")


def _is_read_later(place: Place, whole: ast.expr) -> bool:
    """True if an expression is assigned to a name that the function reads."""
    parent = place.symbols.parents.get(whole)
    assigned = isinstance(parent, ast.Assign | ast.AnnAssign | ast.NamedExpr)
    return assigned and not why_lost(place, whole)


def why_lost(place: Place, node: ast.expr | ast.keyword) -> str:
    """Why the step that this expression builds cannot be yielded; "" if it may be."""
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
        case ast.Call() if verb := _verb_of_values(place, parent):
            return f"it is an argument of .{verb}()"
        case ast.keyword():
            return why_lost(place, parent)
        case ast.expr() if isinstance(parent, _CONTAINERS):
            return why_lost(place, parent)
        case _:
            return ""


def _verb_of_values(place: Place, call: ast.Call) -> str:
    """The verb, if this is the call of one that takes values and no steps; else ""."""
    chain = read_chain(call, place.symbols)
    if chain is None or chain.call is not call or chain.verb not in _OF_VALUES:
        return ""
    return chain.verb


_OF_VALUES = CHILDREN | {"call", "python", "command", "agent", "generate", "ask", "sleep"}


def _why_misused(place: Place, node: ast.expr) -> str:
    """Why a generator that is assigned to a name is never driven; "" if a use of it may drive it,
    by ``yield from``, ``send`` or in another function.
    """
    match place.symbols.parents.get(node):
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            is_lost = all(_is_lost(place, use) for use in _reads(place, name))
            return f"it is assigned to {name}, which is used as a result" if is_lost else ""
        case _:
            return ""


def _is_lost(place: Place, use: ast.Name) -> bool:
    parent = place.symbols.parents.get(use)
    drives = isinstance(parent, ast.Attribute) and parent.attr in {"send", "throw", "close"}
    is_assigned = isinstance(parent, ast.Assign | ast.AnnAssign | ast.NamedExpr)
    return not drives and not is_assigned and bool(why_lost(place, use))


def _is_read(place: Place, name: str) -> bool:
    return any(_reads(place, name))


def _reads(place: Place, name: str) -> Iterator[ast.Name]:
    for node in ast.walk(place.region):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
            yield node


def _action_mistakes(place: Place, whole: ast.expr) -> Iterator[Mistake]:
    chain = read_chain(whole, place.symbols)
    if chain is None or chain.verb not in {"call", "python", *BODIES}:
        return
    is_body = chain.verb in BODIES
    where = (BODIES[chain.verb], "body") if is_body else (0, "action")
    given = argument(chain.call, *where)
    what = "body" if is_body else "action"
    hint = "Define it with def at the level of the module."
    second = "A body gets a second value by functools.partial(body, second), or by tuples as items."
    more = second if is_body else "Its values go into .call(action, value, ...)."
    for function in functions_passed(given, place.symbols):
        if isinstance(function, ast.Lambda):
            message = f"a lambda as {what}: it has no name of its own to be recognised by on resume"
        elif place.symbols.is_local(function):
            message = f"the local function {function.name} as {what}: only its name is recorded"
        else:
            continue
        yield mistake("HR206", given or whole, message, f"{hint} {more}".rstrip())


def _yield_mistakes(place: Place, node: ast.Yield | ast.YieldFrom) -> Iterator[Mistake]:
    value = node.value
    if isinstance(node, ast.YieldFrom):
        if isinstance(value, _LITERALS):
            message = f"`yield from {source_text(node.value)}` gives no steps"
            yield mistake("HR103", node, message, "Yield steps one by one, or in .parallel().")
        return
    if value is None or isinstance(value, _LITERALS):
        if not (value is None and _is_unreachable(place, node)):
            message = f"`{source_text(node)}` yields something that is not a step"
            yield mistake("HR103", node, message, "Write `yield from step(...)` with a verb.")
        return
    helper = place.symbols.function_named(value.func) if isinstance(value, ast.Call) else None
    if helper is not None and is_generator(helper) and not place.symbols.is_workflow(helper):
        message = f"`{source_text(node)}` yields a generator, not its steps"
        yield mistake("HR103", node, message, f"Write `yield from {source_text(value)}`.")
    else:
        message = "a bare yield, whose result is Any to a type checker"
        yield mistake("HR401", node, message, "Write `yield from` instead.")


def _is_unreachable(place: Place, node: ast.Yield) -> bool:
    """True for a `yield` after a `return`, which only makes the function a generator."""
    statement = place.symbols.parents.get(node)
    around = place.symbols.parents.get(statement) if statement is not None else None
    body: list[ast.stmt] = getattr(around, "body", [])
    before = itertools.takewhile(lambda one: one is not statement, body)
    return any(isinstance(one, ast.Return | ast.Raise) for one in before)


def _call_mistakes(place: Place, node: ast.Call) -> Iterator[Mistake]:
    """Mistaken calls of the text's own workflows, helpers and coroutines."""
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
    elif (
        is_generator(function)
        and builds_steps(function, place.symbols)
        and (lost := why_lost(place, node) or _why_misused(place, node))
    ):
        message = f"the steps of {function.name}() are never yielded: {lost}"
        yield mistake("HR101", node, message, f"Write `yield from {source_text(node)}`.")
