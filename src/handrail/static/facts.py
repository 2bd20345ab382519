"""Conditions as facts, to tell which ask the same question, and which can be true only once."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import TypeAlias

from handrail.model.dataclass import dataclass
from handrail.static.symbols import Symbols, own_nodes

Fact: TypeAlias = tuple[str, bool]  # a question, and its answer

_NEGATED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.NotEq: ast.Eq,
    ast.IsNot: ast.Is,
    ast.NotIn: ast.In,
}
_PURE = frozenset({"startswith", "endswith", "get", "lower", "upper", "strip", "isdigit", "split"})
_PURE_FUNCTIONS = frozenset({"len", "isinstance", "bool", "str", "int"})


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition: the ``facts`` when it is true, and the ``fact`` that is false when it is not.

    ``names`` are the names in it, ``pinned`` those that it requires to equal a constant, and
    ``rebinds`` those that the guarded block always binds.
    """

    facts: frozenset[Fact] = frozenset()
    fact: Fact | None = None
    names: frozenset[str] = frozenset()
    pinned: frozenset[str] = frozenset()
    rebinds: frozenset[str] = frozenset()


def condition_of(test: ast.expr, body: Sequence[ast.stmt], symbols: Symbols) -> Condition:
    """The condition of an ``if``, as facts and names."""
    fact = _fact(test, symbols)
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else []
    known = [fact, *(_fact(part, symbols) for part in parts)]
    each = parts or [test]
    return Condition(
        frozenset(one for one in known if one is not None),
        fact,
        names_in(test),
        frozenset(name for part in each for name in _compared(part)),
        bound_in(body),
    )


def names_in(node: ast.expr) -> frozenset[str]:
    """The names in an expression."""
    return frozenset(one.id for one in ast.walk(node) if isinstance(one, ast.Name))


def bound_in(block: Iterable[ast.stmt]) -> frozenset[str]:
    """The names that a block's own assignments bind, without those of nested blocks."""
    found: set[str] = set()
    for one in block:
        match one:
            case ast.Assign(targets=targets):
                found.update(target.id for target in targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
                found.add(name)
            case _:
                pass
    return frozenset(found)


def _compared(test: ast.expr) -> Iterator[str]:
    match test:
        case ast.Compare(left=ast.Name(id=name), ops=[ast.Eq()], comparators=[ast.Constant()]):
            yield name
        case _:
            pass


def _fact(test: ast.expr, symbols: Symbols) -> Fact | None:
    """The condition as a question and the answer that makes it true.

    The question is its source, without negation, with the place where its names were last bound.
    None if the same question may get another answer elsewhere.
    """
    holds = True
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, holds = test.operand, not holds
    if any(_is_unsure(one) for one in ast.walk(test)):
        return None
    place = test
    match test:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _NEGATED:
            asked = ast.Compare(left, [_NEGATED[type(op)]()], [right])
            test, holds = ast.copy_location(asked, test), not holds
        case _:
            pass
    bound = max(_bindings(names_in(test), symbols.scopes(place)[0], before=place), default=(0, 0))
    return f"{ast.unparse(test)} {bound}", holds


def _is_unsure(node: ast.AST) -> bool:
    """True for an expression that may have another value when it is evaluated again."""
    match node:
        case ast.Call(func=ast.Attribute(attr=name)) if name in _PURE:
            return False
        case ast.Call(func=ast.Name(id=name)) if name in _PURE_FUNCTIONS:
            return False
        case _:
            return isinstance(node, ast.Call | ast.NamedExpr | ast.Yield | ast.YieldFrom)


def _bindings(
    names: Container[str], region: ast.AST, before: ast.expr
) -> Iterator[tuple[int, int]]:
    """The places before ``before`` where a function binds one of these names."""
    for node in own_nodes(region):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in names:
            place = node.lineno, node.col_offset
            if place < (before.lineno, before.col_offset):
                yield place
