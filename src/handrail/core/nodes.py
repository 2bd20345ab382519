"""The live elements of a run as data: its root, members of groups, and what all nodes have."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from enum import IntEnum, auto
from typing import Any, TypeAlias

from handrail.core.commands import View
from handrail.core.failures import AttemptFailure
from handrail.model.paths import attempt_base
from handrail.steps.verbs import Rollback

RollbackEntry: TypeAlias = tuple[str, Rollback, View]


class Phase(IntEnum):
    """The phase of a node; the table in ``core.machine`` says which phases may follow."""

    STARTING = auto()  # its predicate is being evaluated
    RUNNING = auto()  # an attempt is in flight, or its children are
    PAUSED = auto()  # it waits before the next attempt
    FALLING_BACK = auto()  # its handler, or the step that the handler returned, is at work
    UNDOING = auto()  # its rollbacks run
    SEARCHING = auto()  # the rollbacks of its recorded steps are looked up in the code
    ENDING = auto()  # its end is on the way to the journal
    HALTED = auto()  # its record is of another step: the drive ends here


class Node:
    """The state of a live element; there is one node for each live path. Mutable.

    A waiting member should cost less than a KiB in all. So an attribute that only some nodes need
    is a class default here, and a slot of the classes that need it.
    """

    __slots__ = (
        "child",
        "hard",
        "index",
        "inputs",
        "parent",
        "path",
        "phase",
        "rollbacks",
        "seen",
        "started_at",
        "stop",
        "timer",
        "yields",
    )

    attempt: int = 0
    body_inputs: Mapping[str, Any] | None = None
    """What its children see as the workflow's inputs, where that differs from its own."""
    deadline: int = 0
    """The timer token of its deadline; 0 for none."""
    failure: AttemptFailure | None = None
    generator: Generator[Any, Any, Any] | None = None
    live: dict[str, Node] | None = None
    """Its unfinished members by path, where it is a group."""
    unwinding: bool = False
    """True once RunCancelled was thrown into its generator; children opened now are clean-up."""
    overdue: bool = False
    """True while its own timeout stops it."""

    def __init__(self, path: str, parent: Node | None, inputs: Mapping[str, Any]) -> None:
        self.path = path
        self.parent = parent
        self.inputs = inputs
        """The workflow's inputs, as its functions see them."""
        self.phase = Phase.STARTING
        self.index = 0
        """Its place among the members of its group, or the steps of its body."""
        self.started_at = 0.0
        self.child: Node | None = None
        """Its unfinished child, where it has one at a time."""
        self.seen: dict[str, Any] | None = None
        """Every child path so far, in order; of a body's step, where in the body it is yielded."""
        self.yields = 0
        """How many steps its body has yielded in this attempt and drive."""
        self.timer = 0
        """The token of its pause or wait; 0 for none."""
        self.rollbacks: list[RollbackEntry] | None = None
        self.stop: str | None = None
        """Why it is being stopped, if it is."""
        self.hard = False
        """True if its generator is closed instead of unwound."""

    def overdue_above(self) -> str:
        """The path of the node around this one whose timeout stops it; "" if none does."""
        above = self.parent
        while above is not None and not above.overdue:
            above = above.parent
        return "" if above is None else above.path

    @property
    def base(self) -> str:
        """The prefix of its children's paths in this attempt."""
        return attempt_base(self.path, self.attempt)

    def children(self) -> list[Node]:
        """Its unfinished children, in order."""
        live = list(self.live.values()) if self.live else []
        return live if self.child is None else [*live, self.child]

    def note_child(self, child: Node, result: Any) -> None:
        """Count a child that ended while this node is being stopped; only groups count."""


class _WithGenerator(Node):
    __slots__ = ("generator", "unwinding")

    def __init__(self, path: str, parent: Node | None, inputs: Mapping[str, Any]) -> None:
        super().__init__(path, parent, inputs)
        self.generator = None
        self.unwinding = False


class RunNode(_WithGenerator):
    """The root: the run itself."""

    __slots__ = ()


class MemberNode(_WithGenerator):
    """A member of ``for_each``: it has a body, or one step."""

    __slots__ = ()


def nearest_deadline(node: Node | None, timers: Mapping[int, tuple[Node, float]]) -> float | None:
    """The nearest deadline (unix seconds) of a node, or of one above it; None if none has one.

    A node that unwinds does not count, nor do those above it: its clean-up still runs.
    """
    nearest: float | None = None
    while node is not None and not node.unwinding:
        if node.deadline:
            _, due = timers[node.deadline]
            nearest = due if nearest is None else min(nearest, due)
        node = node.parent
    return nearest


def is_late(node: Node | None, timers: Mapping[int, tuple[Node, float]], at: float) -> bool:
    """True if what happens at this time is too late for a node: its nearest deadline has passed."""
    deadline = nearest_deadline(node, timers)
    return deadline is not None and deadline <= at


def cleans_up(node: Node | None) -> bool:
    """True if a node unwinds, or is below one that does: its steps are clean-up."""
    while node is not None and not node.unwinding:
        node = node.parent
    return node is not None
