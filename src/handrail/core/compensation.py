"""Finds in the code what can be undone of steps whose ends are taken from the record.

A recorded end needs no code. A rollback is a function, and only what yielded its step knows it; so
what holds such steps is retraced.
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
    """Give the node the rollbacks that the traversal finds below it, then go on."""
    due = run.recorded.to_undo(node.path)
    if not due:
        then()
        return
    search = CompensationSearch(run, node, due, then)
    node.phase = Phase.SEARCHING
    search.search(traversal(search))


class CompensationSearch(Retracing):
    """Looks for the rollbacks of these paths, in the order in which they were registered. Mutable.

    ``found``: those that are still in the code. Where it has changed so that it does not lead to a
    step any more, that step's is not among them.
    """

    def __init__(
        self, run: RunState, node: Node, due: Iterable[str], then: Callable[[], None]
    ) -> None:
        super().__init__(run)
        self.found: list[RollbackEntry] = []
        self._node, self._then = node, then
        self._due = set(due)
        self._leading_to = set(self._due)
        """The paths that are due, and all that they stand in."""
        self._bases: set[str] = set()
        """What these stand just below: paths, or attempts of one."""
        for path in self._due:
            self._lead_to(path)

    def _lead_to(self, path: str) -> None:
        base = path.rpartition("/")[0]
        while base:
            self._bases.add(base)
            path = self.recorded.home_of(path)
            if path in self._leading_to:
                return
            self._leading_to.add(path)
            base = path.rpartition("/")[0]

    def search(self, traversal: Traversal) -> None:
        """Take the traversal as far as nobody needs to be asked."""
        self.begin(traversal)
        self._advance(None)

    def answer(self, report: cmd.Evaluated) -> None:
        """Take it further, with the answer to what it asked."""
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
        """True if something below it, or itself, is due."""
        return path in self._leading_to

    def enters_attempt(self, place: Place) -> bool:
        """True if something just below it leads to what is due."""
        return place.base in self._bases

    def met(self, path: str, step: Step[Any], *, yielded: bool) -> None:
        """Note a step that is another now, and whose success counts."""
        end = self.recorded.at(path).end if yielded else None
        if end is not None and end.success:
            step_changed(self.run, path, step)

    def met_item(self, path: str, item: Any) -> None:
        """Note an item that is another now."""
        item_changed(self.run, path, item)

    def passed(self, path: str, step: Step[Any], inputs: Inputs) -> None:
        """Keep its rollback, behind those of what stands below it."""
        rollback = step.modifiers.rollback
        if path in self._due and rollback is not None:
            self.found.append((path, rollback, self.run.view_of(path, inputs)))
