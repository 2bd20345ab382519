"""Finds, in a function's source, the agents and child workflows that its steps are given.

Theory of operation. The search walks the function's outline. It leaves out steps under a condition
(``if``, ``match``, ``except``, ``when``, an arm of a ``branch``, a fallback), because the condition
may guard against the very mistake that a check of the link would report. A step is not ``certain``
after a conditional exit, or in a ``while`` with a condition. A link has only expressions whose
names have a fixed meaning before the function runs: names of the module, or of a function around
it, that nothing changes. A local that is assigned once is replaced by its value.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import field

from handrail.model.dataclass import dataclass
from handrail.static.chain import CHILDREN, Chain, StepName
from handrail.static.outline import (
    BranchNode,
    ExitNode,
    HelperNode,
    LoopNode,
    Node,
    Part,
    StepNode,
    TryNode,
    WithNode,
    child_nodes,
    outline_of,
)
from handrail.static.source import FunctionNode, Source
from handrail.static.symbols import Symbols, read_from

_LINKED_VERBS = frozenset({"agent", "generate"}) | CHILDREN
_SETTINGS = ("backend", "model", "options")
_OUT = frozenset({"return", "raise", "break", "continue"})


@dataclass(frozen=True, slots=True)
class Link:
    """A step, and the ``expression`` of its agent, or of its workflow (``child``).

    ``settings`` are the expressions of ``backend``, ``model`` and ``options``, if the step has
    them. ``certain``: no condition decides whether a successful run reaches the step.
    """

    step: StepName
    line: int
    child: bool
    expression: ast.expr
    settings: dict[str, ast.expr]
    certain: bool


def agent_links(source: Source, free: Iterable[str] = ()) -> tuple[Link, ...]:
    """The links of a function and its helpers in the same text, in the order of the outline.

    ``free`` are the function's free variables, from the functions around it. A step is left out if
    one of these arguments is not known before the run.

    Raises:
        SourceUnavailable: the text does not parse, or has no such function.
    """

    def links(function: FunctionNode, symbols: Symbols) -> tuple[Link, ...]:
        walk = _Walk(_Names(symbols, function, frozenset(free)))
        walk.block(outline_of(function, symbols).nodes, certain=True)
        return tuple(walk.found)

    return read_from(source, links)


# -- what names mean -------------------------------------------------------------------------------


class _Names:
    """The bindings of the names in a function's text. Mutable: it caches."""

    def __init__(self, symbols: Symbols, function: FunctionNode, free: frozenset[str]) -> None:
        self.symbols = symbols
        self.free = free
        self.outside = {*symbols.around(function)}
        self.changed = {
            name
            for node in ast.walk(symbols.tree)
            if isinstance(node, ast.Global | ast.Nonlocal)
            for name in node.names
        }
        self.counted: dict[ast.AST, Counter[str]] = {}

    def resolve(self, node: ast.expr) -> ast.expr | None:
        """The expression, if all its names are known before the run; None if not."""
        settled = node
        if isinstance(node, ast.Name) and self.binding_count(node):
            match self.symbols.values_of(node):
                case (value,) if self.binding_count(node) == 1 and self.executed_scope(value):
                    settled = value
                case _:
                    return None
        names = (one for one in ast.walk(settled) if isinstance(one, ast.Name))
        return settled if all(map(self.is_constant, names)) else None

    def is_constant(self, name: ast.Name) -> bool:
        """True if the name has the same meaning before and during the run."""
        if self.binding_count(name) or name.id in self.changed:
            return False
        around = self.symbols.scopes(name)[:-1]
        enclosed = any(name.id in self.symbols.names[one].bound for one in around)
        return enclosed == (name.id in self.free)

    def binding_count(self, name: ast.Name) -> int:
        """How many places in the code that a run executes bind this name."""
        executed = self.executed_scope(name)
        if executed is None:
            return 0
        if executed not in self.counted:
            self.counted[executed] = Counter(_bound_in(executed))
        return self.counted[executed][name.id]

    def executed_scope(self, node: ast.AST) -> ast.AST | None:
        """The outermost function around a node that a run executes; None outside of any."""
        around = self.symbols.scopes(node)[-2::-1]
        return next((one for one in around if one not in self.outside), None)


def _bound_in(region: ast.AST) -> Iterator[str]:
    """The names that a function binds, once for each place that binds them."""
    for node in ast.walk(region):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name) | ast.alias(asname=str() as name):
                yield name
            case ast.alias(name=name):
                yield name.partition(".")[0]
            case (
                ast.ExceptHandler(name=str() as name)
                | ast.MatchAs(name=str() as name)
                | ast.MatchStar(name=str() as name)
                | ast.MatchMapping(rest=str() as name)
            ):
                yield name
            case _:
                pass


# -- the walk --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Walk:
    names: _Names
    found: list[Link] = field(default_factory=list[Link])

    def block(self, nodes: Iterable[Node], *, certain: bool) -> None:
        for node in nodes:
            self.node(node, certain=certain)
            certain = certain and not _leaves(node, _OUT)

    def node(self, node: Node, *, certain: bool) -> None:
        match node:
            case StepNode():
                self.step(node, certain=certain)
            case HelperNode(nodes=nodes):
                self.block(nodes or (), certain=certain)
            case LoopNode():
                inside = certain and (node.endless or not node.header.startswith("while "))
                if not _filtered(node.header):
                    self.block((*node.test, *node.nodes), certain=inside)
                self.block(node.orelse, certain=certain)
            case TryNode(nodes=nodes, orelse=orelse, final=final):
                self.block((*nodes, *orelse), certain=certain)
                self.block(final, certain=certain)
            case WithNode(nodes=nodes):
                self.block(nodes, certain=certain)
            case BranchNode() | ExitNode():
                pass

    def step(self, node: StepNode, *, certain: bool) -> None:
        chain = node.chain
        if chain is None or chain.modifier("when") is not None:
            return
        link = self.link(node, chain, certain=certain)
        if link is not None:
            self.found.append(link)
        for part in node.parts:
            if _always(part):
                self.block(part.nodes, certain=certain)

    def link(self, node: StepNode, chain: Chain, *, certain: bool) -> Link | None:
        call = chain.call
        if chain.verb not in _LINKED_VERBS or call is None:
            return None
        given = chain.subject
        said = {one.arg: one.value for one in call.keywords if one.arg and one.arg in _SETTINGS}
        child = chain.verb in CHILDREN
        if given is None or (not child and any(one.arg is None for one in call.keywords)):
            return None
        settled = self.names.resolve(given)
        options = {name: self.names.resolve(one) for name, one in said.items()}
        known = {name: one for name, one in options.items() if one is not None}
        if settled is None or (len(known) < len(options) and not child):
            return None
        return Link(node.name, node.line, child, settled, {} if child else known, certain)


def _always(part: Part) -> bool:
    """False for a part that runs under a condition: an arm, a fallback, a filtered member."""
    return part.role in {"member", "body", "fix", "scope", "setup"} and not (
        part.repeated and _filtered(part.label)
    )


def _filtered(loop: str) -> bool:
    """True for the text of a comprehension's loop that has an ``if``."""
    return loop.startswith(("for ", "async for ")) and " if " in loop


def _leaves(node: Node, kinds: frozenset[str]) -> bool:
    """True if control may leave from inside this node by one of these statements."""
    match node:
        case StepNode():
            return False
        case ExitNode(kind=kind):
            return kind in kinds
        case LoopNode():
            kinds = kinds - {"break", "continue"}
        case HelperNode():
            kinds = kinds & {"raise"}
        case _:
            pass
    return any(_leaves(one, kinds) for one in child_nodes(node))
