"""One live element of a run's tree: a step, a member of a group, or the run itself."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from enum import IntEnum
from typing import Any

from handrail.core.commands import View
from handrail.core.failures import Failure
from handrail.core.members import Items
from handrail.model.events import LadderStep
from handrail.model.launch import Launch
from handrail.model.paths import attempt_base
from handrail.model.results import Usage
from handrail.record.outputs import declared_output, member_output
from handrail.steps.verbs import ForEachGroup, Rollback, Step

RollbackEntry = tuple[str, Rollback, View]


class Phase(IntEnum):
    """Where a node is; the table in ``core.machine`` says what may follow."""

    OPENING = 0  # its predicate is being evaluated
    RUNNING = 1  # an attempt is in flight, or its children are
    PAUSED = 2  # it waits before the next attempt
    FALLING_BACK = 3  # its handler, or the step that the handler returned, is at work
    UNDOING = 4  # its rollbacks run
    REGISTERING = 5  # what of its record is to be undone is looked for in the code
    ENDING = 6  # its end is on the way to the journal
    HALTED = 7  # its record is of another step, and the drive ends here


class Node:
    """Mutable, and the core's only mutable record: one is made for each live path.

    What every node needs has a slot; what few need is a default of the class, and takes no room
    until it is set. A member that waits should cost less than a KiB in all.
    """

    __slots__ = (
        "__dict__",
        "attempt",
        "child",
        "index",
        "inputs",
        "parent",
        "path",
        "phase",
        "started_at",
        "step",
        "timer",
        "yields",
    )

    live: dict[str, Node] | None = None
    """The unfinished members of a group, by path."""
    seen: dict[str, None] | None = None
    """Every child path so far, in order."""
    generator: Generator[Any, Any, Any] | None = None
    rollbacks: list[RollbackEntry] | None = None
    failure: Failure | None = None
    state: Any = None
    """What its verb keeps."""
    stop: str | None = None
    """Why it is being stopped, if it is."""
    hard = False
    """Its generator is closed, not asked."""
    unwinding = False
    """RunCancelled was thrown into its generator; children opened now are clean-up."""
    deadline = 0
    """Token of its deadline."""
    overdue = False
    """Its deadline has passed: it is being stopped in order to fail with ``failure``."""
    late = False
    """Its deadline had passed when this drive began."""
    took = 0
    """The number of the signal that its attempt took."""
    interrupted = False
    """Its next attempt follows one that was at work when its process ended."""
    asking = False
    """The engine evaluates something for it, and will answer."""
    body_inputs: Mapping[str, Any] | None = None
    """What its children see as the workflow's inputs, where that differs from its own."""
    ladder: tuple[LadderStep, ...] = ()
    """How its attempt went on after launches that failed."""
    pending: Launch | None = None
    """What is launched when its pause is over."""
    launched = 0
    """The number of its last launch."""
    reasks = 0
    reserved = 0
    """The number of the launch that something is reserved for."""
    launch_spent: Usage | None = None
    """What the launches before that one used."""
    budget_gate = ""
    """Where it is asked whether its launch may be made."""
    spent_s = 0.0
    """How long the launches of its attempt were at work."""
    kept: Items | None = None
    """The items of a group, for all its attempts."""

    def __init__(
        self, step: Step[Any] | None, path: str, parent: Node | None, inputs: Mapping[str, Any]
    ) -> None:
        self.step = step
        self.path = path
        self.parent = parent
        self.inputs = inputs
        self.phase = Phase.OPENING
        self.attempt = 0
        self.index = 0  # among the members of its group
        self.started_at = 0.0
        self.child: Node | None = None  # of a node that has one child at a time
        self.yields = 0  # of its body, in this attempt and drive; or whatever stands in for yields
        self.timer = 0  # token of the pause or wait it is in

    @property
    def base(self) -> str:
        """What its children's paths begin with."""
        return attempt_base(self.path, self.attempt)


def declared_for(node: Node) -> tuple[Any, ...]:
    """The types by which the end of a node, or the value of its child workflow, may be read.

    Each must do: what a member's step gave is read with the member's type once the group has ended.
    """
    declared: list[Any] = [] if node.step is None else [declared_output(node.step)]
    member = node if node.step is None else node.parent
    by_member = member is node or (member is not None and member.generator is None)
    if by_member and member is not None and member.step is None and member.parent is not None:
        group = member.parent.step
        if group is not None and isinstance(group.verb, ForEachGroup):
            declared.append(member_output(group.verb))
    return tuple(declared)
