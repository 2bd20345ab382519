"""Finds in the code the rollbacks of steps whose ends are taken from the record.

A recorded end needs no code. But a rollback is a function, and only the code that describes its
step has it. So that code is retraced along the record.

On the way it compares: what is below a recorded success must be what the code makes of it now.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from handrail.core.changes import note_change
from handrail.core.groups import GroupNode, begin_body
from handrail.core.nodes import MemberNode, Node, Phase
from handrail.core.retracing import Retracing, Search
from handrail.core.run_state import Action, Attempt, Retrace, RunState, StepNode
from handrail.errors import StepChange
from handrail.model.paths import is_within
from handrail.steps.fingerprint import item_digest
from handrail.steps.table import verb_of


def retrace(run: RunState, action: Retrace, act: Callable[[RunState, Action], None]) -> None:
    """Go through the code below a node, if a rollback is due there, or if it is compared."""
    node = action.node
    due, whole = run.recorded.to_undo(node.path), _is_compared(run, node.path)
    if not due and not whole:
        node.phase = Phase.RUNNING
        action.then()
        return
    retracing = run.retracing
    if retracing is None:
        retracing = run.retracing = Compensation(run, act)
    retracing.begin_below(node, due, action, whole=whole)


def _is_compared(run: RunState, path: str) -> bool:
    """True if what is below a path is compared; not if the path itself has changed, or must not."""
    recorded = run.recorded
    if run.codec is None or recorded.unwinds or "" in recorded.undoing:
        return False
    return path not in run.changed and not recorded.is_reused(path)


class Compensation(Retracing):
    """Finds the rollbacks that are due, in the order of their registration. Mutable.

    The rollback of a step that the changed code no longer reaches is not found. A search that is
    ``whole`` also looks for changes in what is not due.
    """

    def __init__(self, run: RunState, act: Callable[[RunState, Action], None]) -> None:
        super().__init__(run, act)
        self._due = set[str]()
        self._leading_to = set[str]()
        """The paths that are due, and all paths that enclose them."""

    def begin_below(
        self, node: Node, due: Collection[str], action: Retrace, *, whole: bool
    ) -> None:
        """Begin a search below a node of the real run."""
        self._due.update(due)
        for path in due:
            while path and path not in self._leading_to:
                self._leading_to.add(path)
                path = self.recorded.parent_of(path)  # noqa: PLW2901  # upward
        root: Node
        if isinstance(node, StepNode):
            of_verb = self.node_types[type(node.step.verb)]
            root = of_verb(node.step, node.path, node.parent or node, node.inputs)
            if isinstance(root, GroupNode):
                root.items = action.items
        else:
            root = MemberNode(node.path, node.parent, node.inputs)
        then = partial(self._continue, node, root, action.then)
        self.select(Search(self, root, then, whole))
        if isinstance(root, StepNode):
            self.push(Attempt(root))
        elif isinstance(root, MemberNode) and action.body is not None:
            begin_body(self, root, *action.body)
        self.work_off()

    def _continue(self, node: Node, root: Node, then: Callable[[], None]) -> None:
        """Give the real node the rollbacks that are due, and continue it."""
        if self.real.changes and not self.real.rehearses:
            self.close()  # the drive ends here: see ``changes.note_change``
            return
        node.phase = Phase.RUNNING
        if root.rollbacks:
            node.rollbacks = [*(node.rollbacks or ()), *root.rollbacks]
        then()

    def enters(self, path: str) -> bool:
        """True if this path, or one below it, is due, or is compared."""
        if path in self._leading_to:
            return True
        record = self.recorded.get(path) if self.search.whole else None
        if record is None or (verb_of(record.kind).leaf and record.failure is None):
            return False  # nothing is below it
        return _is_compared(self.real, path)

    def enters_attempt(self, node: StepNode) -> bool:
        """True if a path just below this attempt is due or encloses one that is, or it counts."""
        counts = self.search.whole and self.outcome(node) == "succeeded"
        return counts or not self._leading_to.isdisjoint(self.known(node))

    def compares(self, node: Node) -> bool:
        """True for what succeeded by itself, and would have begun all that its code has."""
        if not self.search.whole or self.outcome(node) != "succeeded":
            return False
        end = self.recorded.at(node.path).end
        return end is not None and end.status == "succeeded" and end.given_by is None

    def differs(self, node: Node, path: str, was: str, now: str) -> None:
        """Note that what has ended would be another; it is entered again, and keeps what it can."""
        if path != node.path:
            name = path.rpartition("/")[2]
            was, now = f"{name!r}: {was}", f"{name!r}: {now}"
        if not any(is_within(change.path, node.path) for change in self.real.changes):
            note_change(self.real, StepChange(node.path, was, now, enters=True))

    def text_of(self, value: Any) -> str:
        """The digest of a value."""
        assert self.codec is not None
        return f"returned {item_digest(value, self.codec, self.setting.secrets)}"

    def keep_rollback(self, node: StepNode) -> None:
        """Keep the step's rollback, behind those of the steps below it."""
        path, rollback = node.path, node.step.modifiers.rollback
        if path in self._due and rollback is not None:
            view = self.real.view_of(path, node.inputs)
            node.rollbacks = [*(node.rollbacks or ()), (path, rollback, view)]
