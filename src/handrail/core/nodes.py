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
    """Where a node is; the table in ``core.machine`` says what may follow."""

    STARTING = auto()  # its predicate is being evaluated
    RUNNING = auto()  # an attempt is in flight, or its children are
    PAUSED = auto()  # it waits before the next attempt
    FALLING_BACK = auto()  # its handler, or the step that the handler returned, is at work
    UNDOING = auto()  # its rollbacks run
    SEARCHING = auto()  # what of its record is to be undone is looked for in the code
    ENDING = auto()  # its end is on the way to the journal
    HALTED = auto()  # its record is of another step, and the drive ends here


class Node:
    """What every live element has; one is made for each live path. Mutable.

    A member that waits should cost less than a KiB in all. So what only some nodes can have is a
    default of the class here, and a slot of those that can.
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
    failure: AttemptFailure | None = None
    generator: Generator[Any, Any, Any] | None = None
    late: bool = False
    """Its deadline had passed when this drive began."""
    live: dict[str, Node] | None = None
    """Its unfinished members by path, where it is a group."""
    unwinding: bool = False
    """RunCancelled was thrown into its generator; children opened now are clean-up."""

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
        self.seen: dict[str, None] | None = None
        """Every child path so far, in order."""
        self.yields = 0
        """How many steps its body yielded in this attempt and drive."""
        self.timer = 0
        """Token of the pause or wait it is in."""
        self.rollbacks: list[RollbackEntry] | None = None
        self.stop: str | None = None
        """Why it is being stopped, if it is."""
        self.hard = False
        """Its generator is closed, not asked."""

    @property
    def base(self) -> str:
        """What its children's paths begin with."""
        return attempt_base(self.path, self.attempt)

    def children(self) -> list[Node]:
        """Its unfinished children, in order."""
        live = list(self.live.values()) if self.live else []
        return live if self.child is None else [*live, self.child]

    def note_child(self, child: Node, result: Any) -> None:
        """Count a child that ended while this node is being stopped; only groups count."""


class RunNode(Node):
    """The root: the run itself."""

    __slots__ = ("generator", "unwinding")

    def __init__(self, path: str, parent: Node | None, inputs: Mapping[str, Any]) -> None:
        super().__init__(path, parent, inputs)
        self.generator = None
        self.unwinding = False


class MemberNode(Node):
    """A member of ``for_each``: it has a body, or one step."""

    __slots__ = ("generator", "unwinding")

    def __init__(self, path: str, parent: Node | None, inputs: Mapping[str, Any]) -> None:
        super().__init__(path, parent, inputs)
        self.generator = None
        self.unwinding = False


def is_late(node: Node | None) -> bool:
    """True if the time of a node, or of one above it, was over when this drive began; not of what
    a body does to clean up.
    """
    while node is not None and not node.unwinding:
        if node.late:
            return True
        node = node.parent
    return False


def cleans_up(node: Node | None) -> bool:
    """True if this is, or stands in, what a body does while it is cancelled."""
    while node is not None and not node.unwinding:
        node = node.parent
    return node is not None
