"""The outline of a workflow, read from its source without running it.

Expressions are read in evaluation order. The outline leaves out code that cannot run (after a
``return``) and code that yields nothing (a loop that only adds up). It follows functions of the
same text: helpers under ``yield from``, bodies of groups, and functions that return steps. It
names a recursive call and does not follow it again.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator
from dataclasses import field, fields, is_dataclass, replace
from typing import Any, Literal, TypeAlias, assert_never

from handrail.model.dataclass import dataclass
from handrail.static.chain import (
    BODIES,
    Chain,
    StepName,
    argument,
    name_of,
    read_chain,
    source_text,
)
from handrail.static.facts import Condition, condition_of, names_in
from handrail.static.source import FunctionNode, Source, SourceUnavailable, source_of
from handrail.static.symbols import Region, Symbols, is_generator, read_from
from handrail.static.wording import detail_of, modifiers_of


@dataclass(frozen=True, slots=True)
class Part:
    """A block that runs inside a step: a member of its group, its fix, its fallback.

    ``label`` is an arm's predicate, a function's source, or the loop around a member that is
    written once and runs many times (``repeated``).
    """

    role: Literal["member", "arm", "body", "fix", "fallback", "scope", "setup"]
    nodes: tuple[Node, ...]
    label: str = ""
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class StepNode:
    """A step that is yielded here.

    ``verb`` is empty if the source does not show it. ``detail`` says what the verb acts on,
    ``modifiers`` the rest, both in words. ``typed``: a ``yield from`` yields it. ``chain`` is the
    step's expression, if the source shows it.
    """

    name: StepName
    verb: str
    line: int
    column: int
    detail: str = ""
    modifiers: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    typed: bool = True
    chain: Chain | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class HelperNode:
    """``yield from helper(...)``; ``nodes`` is None if its source is elsewhere, or it recurses."""

    call: str
    nodes: tuple[Node, ...] | None
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Arm:
    """One arm of a branch: its condition's source (``else`` for the last), and its nodes.

    ``asked`` is the condition as facts.
    """

    condition: str
    nodes: tuple[Node, ...]
    asked: Condition = field(default=Condition(), compare=False)


@dataclass(frozen=True, slots=True)
class BranchNode:
    """An ``if`` or a ``match`` of ``subject``; a run takes exactly one arm.

    If no written arm need apply, the last arm is an ``else`` without nodes.
    """

    arms: tuple[Arm, ...]
    line: int
    subject: str = ""


@dataclass(frozen=True, slots=True)
class LoopNode:
    """A ``for`` or ``while``; ``test`` are the nodes that a ``while`` yields in its condition.

    ``asks`` are the names in a ``while``'s condition, ``targets`` the variables of a ``for``.
    """

    header: str
    nodes: tuple[Node, ...]
    line: int
    test: tuple[Node, ...] = ()
    orelse: tuple[Node, ...] = ()
    endless: bool = False
    asks: frozenset[str] = field(default=frozenset(), compare=False)
    targets: frozenset[str] = field(default=frozenset(), compare=False)


@dataclass(frozen=True, slots=True)
class ExceptArm:
    """One ``except``; a bare one has no ``exceptions``."""

    exceptions: tuple[str, ...]
    nodes: tuple[Node, ...]
    line: int


@dataclass(frozen=True, slots=True)
class TryNode:
    """A ``try`` with its handlers, ``else`` and ``finally``."""

    nodes: tuple[Node, ...]
    handlers: tuple[ExceptArm, ...]
    orelse: tuple[Node, ...]
    final: tuple[Node, ...]
    line: int


@dataclass(frozen=True, slots=True)
class WithNode:
    """A ``with`` block."""

    header: str
    nodes: tuple[Node, ...]
    line: int


@dataclass(frozen=True, slots=True)
class ExitNode:
    """A ``return``, ``raise``, ``break`` or ``continue``; ``text`` is its value's source."""

    kind: Literal["return", "raise", "break", "continue"]
    text: str
    line: int


Node: TypeAlias = StepNode | HelperNode | BranchNode | LoopNode | TryNode | WithNode | ExitNode


@dataclass(frozen=True, slots=True)
class Outline:
    """A workflow's name, parameters and body."""

    name: str
    parameters: str
    nodes: tuple[Node, ...]
    line: int


def as_data(shown: Any) -> Any:
    """Nodes, or parts of one, as JSON-safe data; ``is`` says what each is: ``step``, ``loop``."""
    if isinstance(shown, StepName):
        return shown.text
    if shown.__class__ is tuple:
        return [as_data(one) for one in shown]
    if not is_dataclass(shown):
        return shown
    kept = {
        field.name: as_data(getattr(shown, field.name)) for field in fields(shown) if field.compare
    }
    return {"is": type(shown).__name__.removesuffix("Node").lower(), **kept}


def child_nodes(node: Node) -> Iterator[Node]:
    """The nodes directly inside a node, in source order; for a step, those of its parts."""
    blocks: Iterable[tuple[Node, ...]]
    match node:
        case StepNode(parts=parts):
            blocks = (part.nodes for part in parts)
        case HelperNode(nodes=nodes):
            blocks = (nodes or (),)
        case BranchNode(arms=arms):
            blocks = (arm.nodes for arm in arms)
        case LoopNode(test=test, nodes=nodes, orelse=orelse):
            blocks = (test, nodes, orelse)
        case TryNode(nodes=nodes, handlers=handlers, orelse=orelse, final=final):
            blocks = (nodes, *(handler.nodes for handler in handlers), orelse, final)
        case WithNode(nodes=nodes):
            blocks = (nodes,)
        case ExitNode():
            blocks = ()
        case _:
            assert_never(node)
    for block in blocks:
        yield from block


def matters(nodes: Iterable[Node]) -> bool:
    """True if a loop with this body does more than repeat and stop."""
    return any(_does_something(node) for node in nodes)


def _does_something(node: Node) -> bool:
    match node:
        case ExitNode(kind=kind):
            return kind in {"return", "raise"}
        case StepNode() | HelperNode() | LoopNode():
            return True
        case _:
            return matters(child_nodes(node))


def _parts_of(chain: Chain, reading: _Reading) -> Iterator[Part]:
    """The parts of a step, in source order; its fallback last."""
    match chain.verb:
        case "parallel" | "race" if chain.call:
            for one in chain.call.args:
                yield from _members(one, reading, frozenset())
        case "branch" if chain.call:
            for one in chain.call.args:
                yield _arm(one, reading)
        case "for_each" | "work" | "holding" | "worktree":
            setup = argument(chain.call, 99, "setup") if chain.verb == "worktree" else None
            if setup is not None and read_chain(setup, reading.symbols) is not None:
                yield Part("setup", reading.steps_of(setup))
            body = argument(chain.call, BODIES[chain.verb], "body")
            if body is not None:
                yield Part("body", reading.steps_of_function(body), source_text(body))
        case "validate":
            fix = argument(chain.call, 2, "on_failure")
            if fix is not None and (nodes := reading.steps_of(fix)):
                yield Part("fix", nodes)
        case _:
            pass
    handler = argument(chain.modifier("on_error"), 0, "handler")
    if handler is not None:
        yield Part("fallback", reading.steps_of_function(handler), source_text(handler))


def _members(node: ast.expr, reading: _Reading, seen: frozenset[ast.expr]) -> Iterator[Part]:
    if isinstance(node, ast.Starred):
        yield from _many(node.value, reading, seen)
    else:
        yield Part("member", reading.steps_of(node))


def _many(node: ast.expr, reading: _Reading, seen: frozenset[ast.expr]) -> Iterator[Part]:
    """The members that a starred argument expands to; ``seen`` are the values followed so far."""
    match node:
        case ast.ListComp(elt=element) | ast.GeneratorExp(elt=element):
            label = " ".join(ast.unparse(one).strip() for one in node.generators)
            yield Part("member", reading.steps_of(element), label, repeated=True)
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            for one in elements:
                yield from _members(one, reading, seen)
        case ast.Name() if parts := list(_list_members(node, reading, seen)):
            yield from parts
        case _:
            yield Part("member", (_unknown_step(node),), f"*{source_text(node)}", repeated=True)


def _list_members(name: ast.Name, reading: _Reading, seen: frozenset[ast.expr]) -> Iterator[Part]:
    """The members of a variable's list, including those appended to it."""
    for value in reading.symbols.reaching(name):
        if value not in seen:
            yield from _many(value, reading, seen | {value})
    for value in reading.symbols.appended_to(name):
        match reading.symbols.loop_around(value):
            case None:
                yield Part("member", reading.steps_of(value))
            case ast.While(test=test):
                yield Part(
                    "member", reading.steps_of(value), f"while {source_text(test)}", repeated=True
                )
            case loop:
                label = f"for {source_text(loop.target)} in {source_text(loop.iter)}"
                yield Part("member", reading.steps_of(value), label, repeated=True)


def _arm(node: ast.expr, reading: _Reading) -> Part:
    match node:
        case ast.Tuple(elts=[ast.Lambda(body=test) | test, step]):
            return Part("arm", reading.steps_of(step), reading.text_of(test))
        case _:
            return Part("arm", (_unknown_step(node),))


def _unknown_step(node: ast.expr, *, typed: bool = True) -> StepNode:
    """A step that the source does not show, named after its expression."""
    name = StepName(f"{{{source_text(node)}}}", ("", ""))
    return StepNode(name, "", node.lineno, node.col_offset, typed=typed)


__all__ = ["Outline", "Source", "SourceUnavailable", "outline", "outline_of", "source_of"]


def outline(source: Source) -> Outline:
    """The outline of a workflow.

    Raises:
        SourceUnavailable: the text does not parse, or has no such function.
    """
    return read_from(source, outline_of)


def outline_of(function: FunctionNode, symbols: Symbols) -> Outline:
    """The outline of a function, from its parsed syntax."""
    reading = _Reading(symbols, (function,))
    parameters = source_text(function.args, limit=72)
    return Outline(function.name, parameters, reading.block(function.body), function.lineno)


@dataclass(frozen=True, slots=True)
class _Reading:
    """Reads one function; ``stack`` has the functions on the way to it, itself last.

    In a ``maker``, a plain function that returns a step, a step counts where it is returned.
    """

    symbols: Symbols
    stack: tuple[Region, ...]
    maker: bool = False
    seen: frozenset[ast.expr] = frozenset()

    # Statements

    def block(self, statements: Iterable[ast.stmt]) -> tuple[Node, ...]:
        nodes: list[Node] = []
        for statement in statements:
            nodes += self.statement(statement)
            if nodes and isinstance(nodes[-1], ExitNode):
                break
        return tuple(nodes)

    def statement(self, node: ast.stmt) -> tuple[Node, ...]:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return ()
            case ast.If() | ast.Match():
                return self.branch(node)
            case ast.For() | ast.AsyncFor() | ast.While():
                return self.loop(node)
            case ast.Try() | ast.TryStar():
                return self.try_block(node)
            case ast.With() | ast.AsyncWith():
                return self.block_with(node)
            case ast.Return() | ast.Raise() | ast.Break() | ast.Continue():
                return self.exit(node)
            case ast.Assign(targets=targets, value=value):
                return self.expressions([value, *targets])
            case _:
                return self.expressions(ast.iter_child_nodes(node))

    def branch(self, node: ast.If | ast.Match) -> tuple[Node, ...]:
        if isinstance(node, ast.Match):
            first = self.expression(node.subject)
            arms, subject = list(self.cases(node)), self.text_of(node.subject)
        else:
            first = self.expression(node.test)
            arms, subject = list(self.if_arms(node)), ""
        return (*first, *_branch(arms, node.lineno, subject))

    def if_arms(self, node: ast.If) -> Iterator[Arm]:
        yield Arm(
            self.text_of(node.test),
            self.block(node.body),
            condition_of(node.test, node.body, self.symbols),
        )
        match node.orelse:
            case [ast.If() as other] if not self.expression(other.test):
                yield from self.if_arms(other)
            case orelse:
                yield Arm("else", self.block(orelse))

    def cases(self, node: ast.Match) -> Iterator[Arm]:
        certain = False
        for case in node.cases:
            certain = case.guard is None and _takes_all(case.pattern)
            guard = f" if {self.text_of(case.guard)}" if case.guard else ""
            condition = "else" if certain else f"{source_text(case.pattern)}{guard}"
            first = self.expression(case.guard) if case.guard else ()
            yield Arm(condition, (*first, *self.block(case.body)))
        if not certain:
            yield Arm("else", ())

    def loop(self, node: ast.For | ast.AsyncFor | ast.While) -> tuple[Node, ...]:
        body, orelse = self.block(node.body), self.block(node.orelse)
        if isinstance(node, ast.While):
            first: tuple[Node, ...] = ()
            test = self.expression(node.test)
            header = f"while {self.text_of(node.test)}"
            endless = isinstance(node.test, ast.Constant) and bool(node.test.value)
            asks, targets = names_in(node.test), frozenset[str]()
        else:
            asks, targets = frozenset[str](), names_in(node.target)
            first, test, endless = self.expression(node.iter), (), False
            header = f"for {source_text(node.target)} in {self.text_of(node.iter)}"
        if not matters((*test, *body, *orelse)):
            return first
        return (*first, LoopNode(header, body, node.lineno, test, orelse, endless, asks, targets))

    def try_block(self, node: ast.Try | ast.TryStar) -> tuple[Node, ...]:
        handlers = tuple(
            ExceptArm(_caught(handler.type), self.block(handler.body), handler.lineno)
            for handler in node.handlers
        )
        body, orelse = self.block(node.body), self.block(node.orelse)
        final = self.block(node.finalbody)
        if not (body or orelse or final or any(handler.nodes for handler in handlers)):
            return ()
        return (TryNode(body, handlers, orelse, final, node.lineno),)

    def block_with(self, node: ast.With | ast.AsyncWith) -> tuple[Node, ...]:
        first = self.expressions(item.context_expr for item in node.items)
        body = self.block(node.body)
        header = "with " + ", ".join(self.text_of(item.context_expr) for item in node.items)
        return (*first, WithNode(header, body, node.lineno)) if body else first

    def exit(self, node: ast.Return | ast.Raise | ast.Break | ast.Continue) -> tuple[Node, ...]:
        match node:
            case ast.Return(value=value):
                first = self.expression(value) if value else ()
                made = self.steps_of(value) if value and self.maker else ()
                text = self.text_of(value) if value else ""
                return (*first, *made, ExitNode("return", text, node.lineno))
            case ast.Raise(exc=error):
                first = self.expression(error) if error else ()
                text = self.text_of(error) if error else ""
                return (*first, ExitNode("raise", text, node.lineno))
            case ast.Break():
                return (ExitNode("break", "", node.lineno),)
            case ast.Continue():
                return (ExitNode("continue", "", node.lineno),)

    # Expressions

    def expressions(self, nodes: Iterable[ast.AST]) -> tuple[Node, ...]:
        return tuple(found for node in nodes for found in self.expression(node))

    def expression(self, node: ast.AST) -> tuple[Node, ...]:
        match node:
            case ast.Lambda() | ast.Yield(value=None):
                return ()
            case ast.Yield(value=ast.expr() as value):
                return (*self.expression(value), *self.steps_of(value, typed=False))
            case ast.YieldFrom(value=value):
                return (*self.expression(value), *self.steps_of(value, driven=True))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                yes, no = self.expression(body), self.expression(orelse)
                arms = [Arm(self.text_of(test), yes), Arm("else", no)]
                return (*self.expression(test), *_branch(arms, node.lineno))
            case ast.BoolOp(op=op, values=[first, *rest]):
                held = self.text_of(first)
                condition = held if isinstance(op, ast.And) else f"not {held}"
                arms = [Arm(condition, self.expressions(rest)), Arm("else", ())]
                return (*self.expression(first), *_branch(arms, node.lineno))
            case _:
                return self.expressions(ast.iter_child_nodes(node))

    def text_of(self, node: ast.expr) -> str:
        """An expression's source, shortened, with the names of steps in place of their yields."""
        names: dict[int, ast.AST] = {}
        for one in ast.walk(node):
            if isinstance(one, ast.Yield | ast.YieldFrom) and one.value is not None:
                chain = read_chain(one.value, self.symbols)
                text = name_of(chain.name, self.symbols).text if chain else source_text(one.value)
                names[id(one)] = ast.Name(text, ast.Load())
        # deepcopy replaces each part that its memo already has by the memo's entry.
        return source_text(copy.deepcopy(node, {**names}) if names else node)

    # Yielded expressions

    def steps_of(
        self, node: ast.expr, *, typed: bool = True, driven: bool = False
    ) -> tuple[Node, ...]:
        """The steps that an expression stands for; ``driven`` by a ``yield from``."""
        match node:
            case ast.NamedExpr(value=value):
                return self.steps_of(value, typed=typed, driven=driven)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                yes = self.steps_of(body, typed=typed, driven=driven)
                no = self.steps_of(orelse, typed=typed, driven=driven)
                return _branch([Arm(self.text_of(test), yes), Arm("else", no)], node.lineno)
            case ast.Constant() | ast.Yield() | ast.YieldFrom():
                return ()
            case ast.GeneratorExp(elt=element, generators=loops) if driven:
                header = " ".join(ast.unparse(one).strip() for one in loops)
                return (LoopNode(header, self.steps_of(element, typed=False), node.lineno),)
            case ast.Name():
                return self.variable(node, typed=typed, driven=driven)
            case _:
                chain = read_chain(node, self.symbols)
                if chain is not None:
                    return (self.step(chain, node, typed=typed),)
                return self.steps_of_call(node, typed=typed, driven=driven)

    def variable(self, node: ast.Name, *, typed: bool, driven: bool) -> tuple[Node, ...]:
        """The steps that a variable may be where it is yielded."""
        values = [one for one in self.symbols.reaching(node) if one not in self.seen]
        inner = replace(self, seen=self.seen.union(values))
        found = [inner.steps_of(one, typed=typed, driven=driven) for one in values]
        match found:
            case []:
                return (_unknown_step(node, typed=typed),)
            case [(StepNode() as step,)]:
                return (replace(step, line=node.lineno, column=node.col_offset),)
            case [only]:
                return only
            case _:
                arms = [
                    Arm(f"{node.id} of line {value.lineno}", nodes)
                    for value, nodes in zip(values, found, strict=True)
                ]
                return _branch(arms, node.lineno)

    def steps_of_call(self, node: ast.expr, *, typed: bool, driven: bool) -> tuple[Node, ...]:
        """The steps that a call yields or returns."""
        if not isinstance(node, ast.Call):
            return (_unknown_step(node, typed=typed),)
        if self.symbols.is_ours(node.func, "scope") and len(node.args) > 1:
            return (self.scope_step(node, typed=typed),)
        function = self.symbols.function_named(node.func)
        if function is None or self.symbols.is_workflow(function):
            helper = HelperNode(self.text_of(node), None, node.lineno, node.col_offset)
            return (helper,) if driven and function is None else (_unknown_step(node, typed=typed),)
        if is_generator(function) and not driven:
            return (_unknown_step(node, typed=typed),)  # a generator in place of a step
        match self.steps_of_body(function):
            case (StepNode() as step, ExitNode()):
                return (step,)
            case nodes:
                return (HelperNode(self.text_of(node), nodes, node.lineno, node.col_offset),)

    def scope_step(self, node: ast.Call, *, typed: bool) -> StepNode:
        """The step of a ``scope(name, helper(...))``."""
        name, body = node.args[:2]
        nodes = self.steps_of(body, typed=False, driven=True)
        match nodes:
            case (HelperNode(nodes=tuple(inside)),):
                nodes = inside
            case _:
                pass
        return StepNode(
            name_of(name, self.symbols),
            "scope",
            node.lineno,
            node.col_offset,
            parts=(Part("scope", nodes, source_text(body)),),
            typed=typed,
        )

    def steps_of_body(self, function: Region) -> tuple[Node, ...] | None:
        """The nodes of a function of this text; None if the call is recursive."""
        if function in self.stack:
            return None
        stack = (*self.stack, function)
        if isinstance(function, ast.Lambda):
            return _Reading(self.symbols, stack, maker=True).steps_of(function.body)
        maker = not is_generator(function)
        return _Reading(self.symbols, stack, maker=maker).block(function.body)

    def step(self, chain: Chain, node: ast.expr, *, typed: bool) -> StepNode:
        return StepNode(
            name=name_of(chain.name, self.symbols),
            verb=chain.verb,
            line=node.lineno,
            column=node.col_offset,
            detail=detail_of(chain, self.symbols),
            modifiers=modifiers_of(chain),
            parts=tuple(_parts_of(chain, self)),
            typed=typed,
            chain=chain,
        )

    def steps_of_function(self, node: ast.expr) -> tuple[Node, ...]:
        """The nodes of a function that is passed as an argument."""
        match node:
            case ast.Call(func=func, args=[inner, *_]) if ast.unparse(func).endswith("partial"):
                return self.steps_of_function(inner)
            case ast.Lambda():
                function: Region | None = node
            case _:
                function = self.symbols.function_named(node)
        nodes = self.steps_of_body(function) if function is not None else None
        if nodes is None:
            return (HelperNode(source_text(node), None, node.lineno, node.col_offset),)
        match nodes:
            case (StepNode() as step, ExitNode()):
                return (step,)
            case _:
                return nodes


def _branch(arms: list[Arm], line: int, subject: str = "") -> tuple[Node, ...]:
    return (BranchNode(tuple(arms), line, subject),) if any(arm.nodes for arm in arms) else ()


def _takes_all(pattern: ast.pattern) -> bool:
    match pattern:
        case ast.MatchAs(pattern=None):
            return True
        case ast.MatchOr(patterns=patterns):
            return any(_takes_all(one) for one in patterns)
        case _:
            return False


def _caught(node: ast.expr | None) -> tuple[str, ...]:
    match node:
        case None:
            return ()
        case ast.Tuple(elts=parts):
            return tuple(source_text(part) for part in parts)
        case _:
            return (source_text(node),)
