"""What runs inside a step: the members of a group, a body, a fix, a fallback."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Protocol

from handrail.dsl.chain import Chain, StepName, argument, shown
from handrail.dsl.nodes import Node, Part, StepNode
from handrail.dsl.symbols import Symbols


class Reads(Protocol):
    """Reads the function in which a step stands."""

    @property
    def symbols(self) -> Symbols:
        """What names mean there."""
        ...

    def built(self, node: ast.expr) -> tuple[Node, ...]:
        """The steps that an expression stands for."""
        ...

    def called(self, node: ast.expr) -> tuple[Node, ...]:
        """What a function that is handed over does when it is called."""
        ...

    def told(self, node: ast.expr) -> str:
        """An expression's source in short."""
        ...


def parts_of(chain: Chain, reading: Reads) -> Iterator[Part]:
    """The parts of a step, in the order in which they are written; its fallback last."""
    match chain.verb:
        case "parallel" | "race" if chain.call:
            for one in chain.call.args:
                yield from _members(one, reading, frozenset())
        case "branch" if chain.call:
            for one in chain.call.args:
                yield _arm(one, reading)
        case "for_each":
            body = argument(chain.call, 1, "body")
            if body is not None:
                yield Part("body", reading.called(body), shown(body))
        case "validate":
            fix = argument(chain.call, 2, "on_failure")
            if fix is not None and (nodes := reading.built(fix)):
                yield Part("fix", nodes)
        case _:
            pass
    handler = argument(chain.modifier("on_error"), 0, "handler")
    if handler is not None:
        yield Part("fallback", reading.called(handler), shown(handler))


def _members(node: ast.expr, reading: Reads, seen: frozenset[ast.expr]) -> Iterator[Part]:
    if isinstance(node, ast.Starred):
        yield from _many(node.value, reading, seen)
    else:
        yield Part("member", reading.built(node))


def _many(node: ast.expr, reading: Reads, seen: frozenset[ast.expr]) -> Iterator[Part]:
    """The members that a starred argument stands for; ``seen`` are the values on the way."""
    match node:
        case ast.ListComp(elt=element) | ast.GeneratorExp(elt=element):
            label = " ".join(ast.unparse(one).strip() for one in node.generators)
            yield Part("member", reading.built(element), label, repeated=True)
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            for one in elements:
                yield from _members(one, reading, seen)
        case ast.Name() if parts := list(_collected(node, reading, seen)):
            yield from parts
        case _:
            yield Part("member", (unknown_step(node),), f"*{shown(node)}", repeated=True)


def _collected(name: ast.Name, reading: Reads, seen: frozenset[ast.expr]) -> Iterator[Part]:
    """The members of a list that a variable holds, those appended to it included."""
    for value in reading.symbols.reaching(name):
        if value not in seen:
            yield from _many(value, reading, seen | {value})
    for value in reading.symbols.appended_to(name):
        match reading.symbols.loop_around(value):
            case None:
                yield Part("member", reading.built(value))
            case ast.While(test=test):
                yield Part("member", reading.built(value), f"while {shown(test)}", repeated=True)
            case loop:
                label = f"for {shown(loop.target)} in {shown(loop.iter)}"
                yield Part("member", reading.built(value), label, repeated=True)


def _arm(node: ast.expr, reading: Reads) -> Part:
    match node:
        case ast.Tuple(elts=[ast.Lambda(body=test) | test, step]):
            return Part("arm", reading.built(step), reading.told(test))
        case _:
            return Part("arm", (unknown_step(node),))


def unknown_step(node: ast.expr, *, typed: bool = True) -> StepNode:
    """A step that the source does not show, named for the expression that gives it."""
    name = StepName(f"{{{shown(node)}}}", ("", ""))
    return StepNode(name, "", node.lineno, node.col_offset, typed=typed)
