"""The outline of a workflow: a frozen tree of what its source says it may do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from handrail.dsl.chain import Chain, StepName


@dataclass(frozen=True, slots=True)
class Part:
    """What runs inside a step: a member of its group, its fix, its fallback.

    ``label`` is an arm's predicate, or the ``for`` of a member that is written once and comes many
    times (``repeated``).
    """

    role: Literal["member", "arm", "body", "fix", "fallback"]
    nodes: tuple[Node, ...]
    label: str = ""
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class StepNode:
    """A step that is yielded here.

    ``verb`` is empty when the source does not show it. ``detail`` is what the verb acts on and
    ``modifiers`` the rest, both in words. ``typed`` says that it is a ``yield from``. ``chain`` is
    the expression itself, where it was read.
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
    """``yield from helper(...)``; no ``nodes`` (None) if its source is elsewhere, or being read."""

    call: str
    nodes: tuple[Node, ...] | None
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of a branch: its condition's source (``else`` for the last), and what it does."""

    condition: str
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class BranchNode:
    """An ``if`` or a ``match``; ``subject`` is what is matched. Exactly one arm is taken.

    Where none of the written ones need hold, the last arm is an ``else`` without nodes.
    """

    arms: tuple[Arm, ...]
    line: int
    subject: str = ""


@dataclass(frozen=True, slots=True)
class LoopNode:
    """A ``for`` or ``while``; ``test`` is what a ``while`` yields to find out whether to go on."""

    header: str
    nodes: tuple[Node, ...]
    line: int
    test: tuple[Node, ...] = ()
    orelse: tuple[Node, ...] = ()
    endless: bool = False


@dataclass(frozen=True, slots=True)
class ExceptArm:
    """One ``except``; no ``exceptions`` for a bare one."""

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


def matters(nodes: Iterable[Node]) -> bool:
    """True if a loop with this body does more than go round and stop."""
    return any(_does_something(node) for node in nodes)


def _does_something(node: Node) -> bool:
    match node:
        case ExitNode(kind=kind):
            return kind in {"return", "raise"}
        case BranchNode(arms=arms):
            return any(matters(arm.nodes) for arm in arms)
        case TryNode(nodes=nodes, handlers=handlers, orelse=orelse, final=final):
            inner = [one for handler in handlers for one in handler.nodes]
            return matters((*nodes, *inner, *orelse, *final))
        case WithNode(nodes=nodes):
            return matters(nodes)
        case StepNode() | HelperNode() | LoopNode():
            return True
