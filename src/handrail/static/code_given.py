"""What code the steps of a function are given to perform, as its source says it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from handrail.static.chain import Chain, StepName, argument
from handrail.static.outline import (
    BranchNode,
    ExitNode,
    HelperNode,
    LoopNode,
    Node,
    StepNode,
    TryNode,
    WithNode,
    outline_of,
)
from handrail.static.source import (
    TOO_DEEP,
    Source,
    SourceUnavailable,
    function_of,
    parse_source,
)
from handrail.static.symbols import symbols_of

_ACTIONS = {"call": "action", "python": "action", "generate": "generator"}
_CHILDREN = frozenset({"subworkflow", "run_workflow"})


@dataclass(frozen=True, slots=True)
class Given:
    """A step that is given code by an expression; ``part`` is what it is to the step.

    ``child``: it is a workflow. ``local``: a function of the body's own has this name.
    """

    step: StepName
    line: int
    part: str
    given: ast.expr
    child: bool = False
    local: bool = False


def code_given(source: Source) -> tuple[Given, ...]:
    """The code that a function's steps, and those of its helpers, are given; also under conditions.

    Raises:
        SourceUnavailable: the text does not parse, or has no such function.
    """
    tree = parse_source(source)
    function = function_of(source, tree)
    try:
        nodes = outline_of(function, symbols_of(tree)).nodes
        own = {
            node.name
            for node in ast.walk(function)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node is not function
        }
        return tuple(_with_local(one, own) for one in _of_nodes(nodes))
    except RecursionError:
        raise SourceUnavailable(source.name or source.filename, f"it is {TOO_DEEP}") from None


def _with_local(one: Given, own: set[str]) -> Given:
    is_local = isinstance(one.given, ast.Name) and one.given.id in own
    return Given(one.step, one.line, one.part, one.given, one.child, is_local)


def _of_nodes(nodes: Iterable[Node]) -> Iterator[Given]:
    for node in nodes:
        if isinstance(node, StepNode) and node.chain is not None:
            yield from _of_chain(node, node.chain)
        yield from _of_nodes(_inside(node))


def _inside(node: Node) -> Iterable[Node]:
    match node:
        case StepNode(parts=parts):
            return [one for part in parts for one in part.nodes]
        case HelperNode(nodes=nodes):
            return nodes or ()
        case LoopNode():
            return (*node.test, *node.nodes, *node.orelse)
        case TryNode():
            handled = [one for arm in node.handlers for one in arm.nodes]
            return [*node.nodes, *handled, *node.orelse, *node.final]
        case WithNode(nodes=nodes):
            return nodes
        case BranchNode(arms=arms):
            return [one for arm in arms for one in arm.nodes]
        case ExitNode():
            return ()


def _of_chain(node: StepNode, chain: Chain) -> Iterator[Given]:
    def given(part: str, expression: ast.expr | None, *, child: bool = False) -> Iterator[Given]:
        if expression is not None:
            yield Given(node.name, node.line, part, expression, child)

    if chain.verb in _CHILDREN:
        yield from given("workflow", argument(chain.call, 0, "workflow"), child=True)
    part = _ACTIONS.get(chain.verb)
    if part is not None:
        yield from given(part, argument(chain.call, 0, part))
    if chain.verb == "call" and chain.call is not None:
        for index, one in enumerate(chain.call.args[1:]):
            yield from given(f"args[{index}]", one if isinstance(one, ast.Lambda) else None)
    yield from given("rollback", argument(chain.modifier("with_rollback"), 0, "action"))
    retry = chain.modifier("retry")
    for keyword in () if retry is None else retry.keywords:
        if keyword.arg == "on":
            yield from given("retry(on=)", keyword.value)
