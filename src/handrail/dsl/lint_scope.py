"""The functions that make up a workflow's body, and what a rule says about a place in them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from handrail.dsl.chain import argument, read_chain
from handrail.dsl.source import FunctionNode
from handrail.dsl.symbols import Region, Symbols, is_generator, own_nodes


@dataclass(frozen=True, slots=True)
class Mistake:
    """A rule's verdict on a place in the text (``line`` from 1, ``column`` in bytes from 0)."""

    code: str
    message: str
    line: int
    column: int
    hint: str


def mistake(code: str, node: ast.stmt | ast.expr, message: str, hint: str) -> Mistake:
    """A verdict on a node of the tree."""
    return Mistake(code, message, node.lineno, node.col_offset, hint)


@dataclass(frozen=True, slots=True)
class Place:
    """One function to judge: the workflow, a generator it drives, or a maker of steps."""

    region: Region
    symbols: Symbols
    role: Literal["workflow", "generator", "maker"]

    def nodes(self) -> Iterator[ast.AST]:
        """What runs as part of this function itself."""
        return own_nodes(self.region)

    def steps(self) -> Iterator[tuple[ast.Call, ast.expr]]:
        """Each ``step(...)`` with the whole expression that goes on from it."""
        for node in self.nodes():
            if isinstance(node, ast.Call) and self.symbols.is_step(node.func):
                yield node, self._whole(node)

    def _whole(self, node: ast.expr) -> ast.expr:
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
    for place in places:  # grows while it is gone through
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
        if chain is not None and chain.verb == "for_each" and chain.call is node:
            yield from handed_over(argument(node, 1, "body"), place.symbols)


def _runs_here(called: FunctionNode, call: ast.Call, symbols: Symbols) -> bool:
    """True if the function of this call is part of the body that makes the call."""
    if symbols.is_workflow(called) or isinstance(called, ast.AsyncFunctionDef):
        return False
    driven = isinstance(symbols.parents.get(call), ast.YieldFrom)
    return driven or deals_in_steps(called, symbols)


def deals_in_steps(
    function: FunctionNode, symbols: Symbols, seen: tuple[FunctionNode, ...] = ()
) -> bool:
    """True for a function that builds steps, or drives one of this text that does."""
    for node in own_nodes(function):
        if isinstance(node, ast.Call) and symbols.is_step(node.func):
            return True
        if isinstance(node, ast.YieldFrom) and isinstance(node.value, ast.Call):
            inner = symbols.function_named(node.value.func)
            path = (*seen, function)
            if inner is not None and inner not in path and deals_in_steps(inner, symbols, path):
                return True
    return False


def handed_over(node: ast.expr | None, symbols: Symbols) -> Iterator[Region]:
    """The functions of the text that an argument may be: named, bound by partial, or a lambda."""
    match node:
        case ast.Lambda():
            yield node
        case ast.Call(func=func, args=[inner, *_]) if symbols.dotted(func) in _PARTIAL:
            yield from handed_over(inner, symbols)
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
