"""Finds in the code the rollbacks of steps whose ends are taken from the record.

A recorded end needs no code. But a rollback is a function, and only the code that describes its
step has it. So that code is retraced along the record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from handrail.core import commands as cmd
from handrail.core.changes import item_changed, step_changed
from handrail.core.nodes import Node, Phase, RollbackEntry
from handrail.core.retracing import Inputs, Place, Retracing, Traversal
from handrail.core.run_state import RunState
from handrail.steps.verbs import Step


def find_compensations(
    run: RunState,
    node: Node,
    traversal: Callable[[CompensationSearch], Traversal],
    then: Callable[[], None],
) -> None:
    """Add the rollbacks that the traversal finds below the node to it, then call ``then``."""
    due = run.recorded.to_undo(node.path)
    if not due:
        then()
        return
    search = CompensationSearch(run, node, due, then)
    node.phase = Phase.SEARCHING
    search.search(traversal(search))


class CompensationSearch(Retracing):
    """Looks for the rollbacks of the ``due`` paths, in the order of their registration. Mutable.

    ``found``: those that are still in the code. The rollback of a step that the changed code no
    longer reaches is not among them.
    """

    def __init__(
        self, run: RunState, node: Node, due: Iterable[str], then: Callable[[], None]
    ) -> None:
        super().__init__(run)
        self.found: list[RollbackEntry] = []
        self._node, self._then = node, then
        self._due = set(due)
        self._leading_to = set(self._due)
        """The paths that are due, and all paths that enclose them."""
        self._bases: set[str] = set()
        """The prefix of each of these paths: a path, or an attempt of one."""
        for path in self._due:
            self._lead_to(path)

    def _lead_to(self, path: str) -> None:
        base = path.rpartition("/")[0]
        while base:
            self._bases.add(base)
            path = self.recorded.parent_of(path)
            if path in self._leading_to:
                return
            self._leading_to.add(path)
            base = path.rpartition("/")[0]

    def search(self, traversal: Traversal) -> None:
        """Run the traversal until it ends or asks a question."""
        self.begin(traversal)
        self._advance(None)

    def answer(self, report: cmd.Evaluated) -> None:
        """Continue the traversal with the answer to its question."""
        self._advance(report)

    def _advance(self, report: cmd.Evaluated | None) -> None:
        run, node = self.run, self._node
        asks = self.next_question(report)
        if run.changes and not run.rehearses:
            self.close()  # the drive ends here: see ``changes.note_change``
            return
        if asks is not None:
            run.searches[asks.path] = self
            run.emit(asks)
            return
        node.phase = Phase.RUNNING
        if self.found:
            node.rollbacks = [*(node.rollbacks or ()), *self.found]
        self._then()

    def enters(self, path: str) -> bool:
        """True if this path, or one below it, is due."""
        return path in self._leading_to

    def enters_attempt(self, place: Place) -> bool:
        """True if a path just below this attempt is due or encloses one that is."""
        return place.base in self._bases

    def on_recorded(self, path: str, step: Step[Any], *, yielded: bool) -> None:
        """Note a yielded step that has changed, if its recorded success counts."""
        end = self.recorded.at(path).end if yielded else None
        if end is not None and end.success:
            step_changed(self.run, path, step)

    def on_recorded_item(self, path: str, item: Any) -> None:
        """Note an item that has changed."""
        item_changed(self.run, path, item)

    def on_retraced(self, path: str, step: Step[Any], inputs: Inputs) -> None:
        """Keep the step's rollback, behind those of the steps below it."""
        rollback = step.modifiers.rollback
        if path in self._due and rollback is not None:
            self.found.append((path, rollback, self.run.view_of(path, inputs)))
