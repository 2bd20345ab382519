"""Finds in the code the rollbacks of steps whose ends are taken from the record.

A recorded end needs no code. But a rollback is a function, and only the code that describes its
step has it. So that code is retraced along the record.

In a fork all of it is retraced: what other inputs, or changed code, make different below a recorded
end runs again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from handrail.core import commands as cmd
from handrail.core.changes import item_changed, note_change, step_changed
from handrail.core.items import Items
from handrail.core.nodes import Node, Phase, RollbackEntry
from handrail.core.retracing import Inputs, Place, Retracing, Traversal
from handrail.core.run_state import RunState
from handrail.errors import StepChange
from handrail.steps.verbs import ForEachGroup, Step, WorkGroup


def find_compensations(
    run: RunState,
    node: Node,
    traversal: Callable[[CompensationSearch], Traversal],
    then: Callable[[], None],
) -> None:
    """Add the rollbacks that the traversal finds below the node to it, then call ``then``."""
    recorded = run.recorded
    due = recorded.to_undo(node.path)
    whole = recorded.is_fork and run.codec is not None and not recorded.unwinds
    if not due and not whole:
        then()
        return
    search = CompensationSearch(run, node, due, then, whole=whole)
    node.phase = Phase.SEARCHING
    search.search(traversal(search))


class CompensationSearch(Retracing):
    """Looks for the rollbacks of the ``due`` paths, in the order of their registration. Mutable.

    ``found``: those that are still in the code. The rollback of a step that the changed code no
    longer reaches is not among them. ``whole``: also looks for changes in what is not due.
    """

    def __init__(
        self,
        run: RunState,
        node: Node,
        due: Iterable[str],
        then: Callable[[], None],
        *,
        whole: bool,
    ) -> None:
        super().__init__(run)
        self._whole = whole
        self._partial: set[str] = set()
        """The bases of groups that may succeed without some of their members."""
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
        return path in self._leading_to or (self._whole and self.recorded.knows(path))

    def enters_attempt(self, place: Place) -> bool:
        """True if a path just below this attempt is due or encloses one that is."""
        return self._whole or place.base in self._bases

    def goes_on(self, place: Place, *, left: bool, beyond: bool) -> bool:
        """True up to the last item of a group that is compared as a whole."""
        return self._compares(place) or super().goes_on(place, left=left, beyond=beyond)

    def on_recorded(self, path: str, step: Step[Any], *, yielded: bool) -> None:
        """Note a yielded step that has changed, if its recorded success counts."""
        end = self.recorded.at(path).end if yielded or self._whole else None
        if end is not None and end.success:
            step_changed(self.run, path, step)

    def on_recorded_item(self, path: str, item: Any) -> None:
        """Note an item that has changed."""
        item_changed(self.run, path, item)

    def on_unrecorded(
        self, place: Place, path: str, step: Step[Any] | None, *, stopped: bool
    ) -> None:
        """Note a step, or a member, that the recorded run would have begun."""
        if self._compares(place) and not stopped:
            now = "a member" if step is None else self.run.fingerprint(step)
            note_change(self.run, StepChange(path, "not there", now))

    def body_ended(self, place: Place, what: int, given: Any, *, stopped: bool) -> None:
        """Note steps that the body no longer yields."""
        del what, given
        if not stopped:
            self.group_ended(place)

    def group_ended(self, place: Place) -> None:
        """Note recorded steps, or members, that the code no longer has."""
        if not self._compares(place):
            return
        gone = self.recorded.at(place.path).unreached_children
        for path in self.in_place(place):
            if path not in place.seen and path not in gone:
                was = self.recorded.fingerprint_of(path) or "a member"
                note_change(self.run, StepChange(path, was, "not there"))

    def _compares(self, place: Place) -> bool:
        """True for what succeeded, and would have begun all that its code has."""
        return self._whole and place.outcome == "succeeded" and place.base not in self._partial

    def _members(self, place: Place, verb: ForEachGroup, inputs: Inputs, items: Items) -> Traversal:
        if verb.min_success is not None:
            self._partial.add(place.base)
        return super()._members(place, verb, inputs, items)

    def _tasks(self, place: Place, verb: WorkGroup, inputs: Inputs) -> Traversal:
        known = {task.id for task in self.recorded.tasks.get(place.path, ())}
        if self._compares(place) and known != {task.id for task in verb.tasks}:
            was, now = f"work from {sorted(known)}", f"from {sorted(t.id for t in verb.tasks)}"
            note_change(self.run, StepChange(place.path, was, f"work {now}"))
        self._partial.add(place.base)  # tasks are added, dropped and stopped
        return super()._tasks(place, verb, inputs)

    def on_retraced(self, path: str, step: Step[Any], inputs: Inputs) -> None:
        """Keep the step's rollback, behind those of the steps below it."""
        rollback = step.modifiers.rollback
        if path in self._due and rollback is not None:
            self.found.append((path, rollback, self.run.view_of(path, inputs)))
