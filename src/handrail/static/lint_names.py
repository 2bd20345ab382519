"""The rule that a step's path is used once.

Theory of operation. The check walks the outline along every path that control may take, with the
names that may have been yielded by then. A name that it meets again is a duplicate. The arms of a
branch start from the same names; a path that has left (``return``, ``raise``) no longer counts. A
name keeps the conditions under which it was yielded: where the code asks one of them again, the
opposite arm does not have the name. A loop forgets these conditions. The check walks a loop twice,
so that a name yielded in each turn meets itself. The inside of a step (a group, a fix) is a scope
of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from typing import NamedTuple, TypeAlias, assert_never

from handrail.model.dataclass import dataclass
from handrail.static.facts import Condition, Fact
from handrail.static.lint_steps import Mistake
from handrail.static.outline import (
    Arm,
    BranchNode,
    ExitNode,
    HelperNode,
    LoopNode,
    Node,
    Part,
    StepNode,
    TryNode,
    WithNode,
)

Given: TypeAlias = frozenset[Fact]  # conditions, each with its outcome


class First(NamedTuple):
    """Where a name was yielded first, and under which conditions."""

    line: int
    column: int
    given: Given = frozenset()


Seen: TypeAlias = dict[str, First]


def name_mistakes(nodes: Sequence[Node]) -> list[Mistake]:
    """Each literal name that a run may yield twice in one scope."""
    found: dict[tuple[int, int], Mistake] = {}
    _Walk(found).block(nodes, {})
    return list(found.values())


@dataclass(slots=True)
class _Ways:
    """The names seen wherever control leaves a block; ``at_end``: at its end, None if unreachable.

    ``passed`` are all names seen on any way through the block.
    """

    at_end: Seen | None
    returns: list[Seen] = field(default_factory=list[Seen])
    breaks: list[Seen] = field(default_factory=list[Seen])
    continues: list[Seen] = field(default_factory=list[Seen])
    passed: Seen = field(default_factory=dict[str, First])

    def add(self, other: _Ways) -> None:
        self.returns += other.returns
        self.breaks += other.breaks
        self.continues += other.continues
        self.passed = _union([self.passed, other.passed])


@dataclass(frozen=True, slots=True)
class _Walk:
    found: dict[tuple[int, int], Mistake]
    call: HelperNode | None = None
    loop: LoopNode | None = None
    again: bool = False
    given: Given = frozenset()
    asked: frozenset[str] = frozenset()
    """The names in the loop's test, and in the conditions around this place."""
    once: bool = False
    """True if only one turn of the loop reaches this place."""

    def block(self, nodes: Iterable[Node], seen: Seen) -> _Ways:
        ways = _Ways(seen, passed=seen)
        for node in nodes:
            if ways.at_end is None:
                break
            one = self.node(node, ways.at_end)
            ways.add(one)
            ways.at_end = one.at_end
        return ways

    def node(self, node: Node, seen: Seen) -> _Ways:
        match node:
            case StepNode():
                after = self.step(node, seen)
                return _Ways(after, passed=after)
            case HelperNode(nodes=nodes):
                return self.helper(node, nodes or (), seen)
            case BranchNode(arms=arms):
                return _join_branches(list(self.arms(arms, seen)))
            case LoopNode():
                return self.rounds(node, seen)
            case TryNode():
                return self.try_block(node, seen)
            case WithNode(nodes=nodes):
                ways = self.block(nodes, seen)
                if "suppress(" in node.header:
                    ways.at_end = ways.passed
                return ways
            case ExitNode(kind="break"):
                return _Ways(None, breaks=[seen], passed=seen)
            case ExitNode(kind="continue"):
                return _Ways(None, continues=[seen], passed=seen)
            case ExitNode(kind="return"):
                return _Ways(None, returns=[seen], passed=seen)
            case ExitNode():
                return _Ways(None, passed=seen)
            case _:
                assert_never(node)

    def arms(self, arms: Sequence[Arm], seen: Seen) -> Iterator[_Ways]:
        """Walk each arm with the names that may have been yielded if its condition is true."""
        given = self.given
        for arm in arms:
            held = given | arm.asked.facts
            no = {(fact, not value) for fact, value in held}
            asked = self.asked | arm.asked.names
            once = self.once or self.runs_once(arm.asked)
            inside = replace(self, given=held, asked=asked, once=once)
            able = {name: first for name, first in seen.items() if not first.given & no}
            yield inside.block(arm.nodes, able)
            if arm.asked.fact:
                fact, held_true = arm.asked.fact
                given |= {(fact, not held_true)}

    def runs_once(self, arm: Condition) -> bool:
        """True if only one turn runs an arm: it rebinds a name that led there, or picks a turn."""
        targets = frozenset[str]() if self.loop is None else self.loop.targets
        return bool(arm.rebinds & (self.asked | arm.names)) or bool(arm.pinned & targets)

    def helper(self, node: HelperNode, nodes: Sequence[Node], seen: Seen) -> _Ways:
        inside = replace(self, call=self.call or node, given=frozenset())
        ways = inside.block(nodes, seen)
        ends = [*_reached_ends([ways]), *ways.returns]
        return _Ways(_union(ends) if ends else None, passed=ways.passed)

    def rounds(self, node: LoopNode, seen: Seen) -> _Ways:
        first = replace(self, given=frozenset()).turn(node, seen)
        came_round = [*_reached_ends([first]), *first.continues]
        if came_round:
            again = _Walk(self.found, self.call, node, again=True, asked=node.asks)
            again.turn(node, _without_conditions(_union(came_round)))
        ways = _Ways(None, first.returns, passed=first.passed)
        ends = first.breaks
        if not node.endless:
            after = self.block(node.orelse, _union([seen, *came_round]))
            ways.add(after)
            ends = [*ends, *_reached_ends([after])]
        ways.at_end = _without_conditions(_union(ends)) if ends else None
        return ways

    def turn(self, node: LoopNode, seen: Seen) -> _Ways:
        return self.block((*node.test, *node.nodes), seen)

    def try_block(self, node: TryNode, seen: Seen) -> _Ways:
        body = self.block(node.nodes, seen)
        orelse = self.block(node.orelse, body.at_end) if body.at_end is not None else body
        handlers = [self.block(handler.nodes, body.passed) for handler in node.handlers]
        ways = _join_branches([orelse, *handlers])
        if node.orelse:
            ways.add(_Ways(None, body.returns, body.breaks, body.continues, body.passed))
        return self.with_finally(node.final, ways) if node.final else ways

    def with_finally(self, final: Sequence[Node], ways: _Ways) -> _Ways:
        """Every way out of a ``try`` goes through its ``finally``."""
        after = self.block(final, ways.passed)
        done = after.at_end
        if done is None:
            return after
        ways.at_end = done if ways.at_end is not None else None
        ways.returns = [_union([one, done]) for one in ways.returns]
        ways.breaks = [_union([one, done]) for one in ways.breaks]
        ways.continues = [_union([one, done]) for one in ways.continues]
        ways.add(after)
        return ways

    def step(self, node: StepNode, seen: Seen) -> Seen:
        if not self.again:
            self.parts(node.parts)
        if not node.name.literal:
            return seen
        if node.name.text in seen:
            if not (self.again and self.once):
                self.report(node, seen[node.name.text])
            return seen
        return {**seen, node.name.text: First(node.line, node.column, self.given)}

    def parts(self, parts: Sequence[Part]) -> None:
        """Walk the parts of a step. Members share a scope; arms do not, because only one runs."""
        inside = _Walk(self.found)
        members: Seen = {}
        for part in parts:
            if part.role != "member":
                inside.block(part.nodes, {})
                continue
            ways = inside.block(part.nodes, members)
            if part.repeated:
                line = part.nodes[0].line if part.nodes else 0
                _Walk(self.found, None, LoopNode(part.label, part.nodes, line), again=True).block(
                    part.nodes, ways.passed
                )
            members = ways.passed

    def report(self, node: StepNode, first: First) -> None:
        name, where = node.name.text, (node.line, node.column)
        if self.again and self.loop is not None:
            message = (
                f"the literal name {name!r} comes again with each turn of `{self.loop.header}`"
            )
            hint = f'Make it differ with an f-string: step(f"{name}-{{{_turn(self.loop)}}}").'
        elif first[:2] != where:
            message = f"the name {name!r} is used again (first in line {first.line})"
            hint = "Give one of the two another name."
        else:
            where = (self.call.line, self.call.column) if self.call else where
            message = f"the name {name!r} of line {node.line} is used again here"
            hint = "Make it differ with an f-string, or call the helper in a scope(name, ...)."
        self.found.setdefault(where, Mistake("HR104", message, *where, hint))


def _turn(loop: LoopNode) -> str:
    """The loop variable, which differs in each turn, or "turn" if the header has no simple one."""
    target = loop.header.removeprefix("for ").partition(" in ")[0]
    simple = loop.header.startswith("for ") and target.isidentifier()
    return target if simple else "turn"


def _reached_ends(ways: Iterable[_Ways]) -> list[Seen]:
    return [way.at_end for way in ways if way.at_end is not None]


def _without_conditions(seen: Seen) -> Seen:
    """The names without their conditions, which may have other outcomes in another turn."""
    return {name: First(first.line, first.column) for name, first in seen.items()}


def _union(many: Iterable[Seen]) -> Seen:
    joined: Seen = {}
    for one in many:
        for name, first in one.items():
            known = joined.setdefault(name, first)
            if known.given != first.given:  # yielded on two paths: keep the common conditions
                joined[name] = known._replace(given=known.given & first.given)
    return joined


def _join_branches(ways: Sequence[_Ways]) -> _Ways:
    """The result of a branch that takes one of these ways."""
    joined = _Ways(None)
    for one in ways:
        joined.add(one)
    ends = _reached_ends(ways)
    joined.at_end = _union(ends) if ends else None
    return joined
