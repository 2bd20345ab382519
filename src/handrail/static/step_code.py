"""Finds, in a function's source, the code that its steps are given to run."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from handrail.model.dataclass import dataclass
from handrail.static.chain import CHILDREN, Chain, StepName, argument
from handrail.static.outline import Node, StepNode, child_nodes, outline_of
from handrail.static.source import FunctionNode, Source
from handrail.static.symbols import Symbols, read_from

_ACTIONS = {"call": "action", "python": "action", "generate": "generator"}


@dataclass(frozen=True, slots=True)
class StepCode:
    """Code that an expression gives to a step; ``part`` is its role there, such as ``rollback``.

    ``child``: the code is a workflow. ``local``: it is a function defined inside the body.
    """

    step: StepName
    line: int
    part: str
    expression: ast.expr
    child: bool = False
    local: bool = False


def step_code(source: Source) -> tuple[StepCode, ...]:
    """The code given to the steps of a function and its helpers, also those under conditions.

    Raises:
        SourceUnavailable: the text does not parse, or has no such function.
    """
    return read_from(source, _code_of_function)


def _code_of_function(function: FunctionNode, symbols: Symbols) -> tuple[StepCode, ...]:
    own = {
        node.name
        for node in ast.walk(function)
        if isinstance(node, FunctionNode) and node is not function
    }
    return tuple(_with_local(one, own) for one in _of_nodes(outline_of(function, symbols).nodes))


def _with_local(one: StepCode, own: set[str]) -> StepCode:
    is_local = isinstance(one.expression, ast.Name) and one.expression.id in own
    return StepCode(one.step, one.line, one.part, one.expression, one.child, is_local)


def _of_nodes(nodes: Iterable[Node]) -> Iterator[StepCode]:
    for node in nodes:
        if isinstance(node, StepNode) and node.chain is not None:
            yield from _of_chain(node, node.chain)
        yield from _of_nodes(child_nodes(node))


def _of_chain(node: StepNode, chain: Chain) -> Iterator[StepCode]:
    def code_of(
        part: str, expression: ast.expr | None, *, child: bool = False
    ) -> Iterator[StepCode]:
        if expression is not None:
            yield StepCode(node.name, node.line, part, expression, child)

    if chain.verb in CHILDREN:
        yield from code_of("workflow", chain.subject, child=True)
    elif chain.verb in _ACTIONS:
        yield from code_of(_ACTIONS[chain.verb], chain.subject)
    if chain.verb == "call" and chain.call is not None:
        for index, one in enumerate(chain.call.args[1:]):
            yield from code_of(f"args[{index}]", one if isinstance(one, ast.Lambda) else None)
    yield from code_of("rollback", argument(chain.modifier("with_rollback"), 0, "action"))
    retry = chain.modifier("retry")
    for keyword in () if retry is None else retry.keywords:
        if keyword.arg == "on":
            yield from code_of("retry(on=)", keyword.value)
