"""Finds in the code the rollbacks of steps whose ends are taken from the record.

A recorded end needs no code. But a rollback is a function, and only the code that describes its
step has it. So that code is retraced along the record.

On the way it compares: what is below a recorded success must be what the code makes of it now.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Any

from handrail.codec.unresolved import Unresolved
from handrail.core import commands as cmd
from handrail.core.changes import note_change, note_item_change, note_step_change
from handrail.core.nodes import Node, Phase, RollbackEntry
from handrail.core.retracing import Inputs, Place, Retracing, Traversal
from handrail.core.run_state import RunState
from handrail.errors import StepChange
from handrail.model.outcome import RETURNED
from handrail.model.paths import is_within
from handrail.record.comparing import equal
from handrail.steps.fingerprint import item_digest
from handrail.steps.groups import WorkGroup
from handrail.steps.table import verb_of
from handrail.steps.verbs import Step

_MOST = 5
"""How many members a change of a group lists."""


def find_compensations(
    run: RunState,
    node: Node,
    traversal: Callable[[CompensationSearch], Traversal],
    then: Callable[[], None],
) -> None:
    """Add the rollbacks that the traversal finds below the node to it, then call ``then``."""
    recorded = run.recorded
    due = recorded.to_undo(node.path)
    whole = _is_compared(run, node.path)
    if not due and not whole:
        then()
        return
    search = CompensationSearch(run, node, due, then, whole=whole)
    node.phase = Phase.SEARCHING
    search.search(traversal(search))


def _is_compared(run: RunState, path: str) -> bool:
    """True if what is below a path is compared; not if the path itself has changed, or must not."""
    recorded = run.recorded
    if run.codec is None or recorded.unwinds or "" in recorded.undoing:
        return False
    return path not in run.changed and not recorded.is_reused(path)


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
        self._otherwise: dict[str, list[str]] = {}
        """How the members of a group differ from the recorded ones, by its base."""
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
        """True if this path, or one below it, is due, or is compared."""
        if path in self._leading_to:
            return True
        record = self.recorded.get(path) if self._whole else None
        if record is None or (verb_of(record.kind).leaf and record.failure is None):
            return False  # nothing is below it
        return _is_compared(self.run, path)

    def enters_attempt(self, place: Place) -> bool:
        """True if a path just below this attempt is due or encloses one that is, or it counts."""
        return place.base in self._bases or (self._whole and place.outcome == "succeeded")

    def goes_on(self, place: Place, *, left: bool, beyond: bool) -> bool:
        """True up to the last item of a group that is compared; the first new one tells enough."""
        if self._compares(place):
            return not (beyond and place.base in self._otherwise)
        return super().goes_on(place, left=left, beyond=beyond)

    def on_recorded(self, path: str, step: Step[Any], *, yielded: bool) -> None:
        """Note a yielded step that has changed, if its recorded success counts."""
        end = self.recorded.at(path).end if yielded or self._whole else None
        if end is not None and end.success:
            note_step_change(self.run, path, step)

    def on_recorded_item(self, place: Place, path: str, item: Any, index: int) -> None:
        """Note an item that has changed, or that has moved in the output of its group."""
        note_item_change(self.run, path, item)
        if index != self.recorded.at(path).index and self._compares(place):
            self._otherwise.setdefault(place.base, []).append(f"{_key(path)!r} moved")
        elif path in self.recorded.at(place.path).unreached_children and self._compares(place):
            self._otherwise.setdefault(place.base, []).append(f"{_key(path)!r} new")

    def on_unrecorded(
        self, place: Place, path: str, step: Step[Any] | None, *, stopped: bool
    ) -> None:
        """Note a step, or a member, that the recorded run would have begun."""
        if not self._compares(place) or stopped:
            return
        if step is None:
            self._otherwise.setdefault(place.base, []).append(f"{_key(path)!r} new")
        else:
            self._note(place, f"without {_key(path)!r}", f"with {self.run.fingerprint(step)}")

    def body_ended(self, place: Place, what: int, given: Any, *, stopped: bool) -> None:
        """Note that a body yields less, or ends otherwise, than recorded."""
        if stopped or not self._compares(place):
            return
        self.group_ended(place)
        codec, value = self.run.codec, place.value
        assert codec is not None
        if what != RETURNED:
            self._note(place, "succeeded", f"failed: {given!r}")
        elif type(value) is not Unresolved and not equal(given, value, codec.identity):
            now = f"returned {item_digest(given, codec, self.run.setting.secrets)}"
            was = f"returned {item_digest(value, codec, self.run.setting.secrets)}"
            self._note(place, was, now)

    def group_ended(self, place: Place) -> None:
        """Note what a group has more, fewer or elsewhere than recorded."""
        noted = self._otherwise.get(place.base, [])
        known = self.in_place(place)
        if self._compares(place):
            gone = place.seen.union(self.recorded.at(place.path).unreached_children)
            noted += (f"{_key(path)!r} gone" for path in known if self._is_missed(path, gone))
        if noted:
            self._note(place, f"of {len(known)} parts", f"with {_short(noted)}")

    def _is_missed(self, path: str, known: Container[str]) -> bool:
        """True for what came to something, and is none of the known paths."""
        has_come = self.recorded.at(path).ended() or self.recorded.children(path)
        return bool(has_come) and path not in known

    def _note(self, place: Place, was: str, now: str) -> None:
        """Note that what has ended would be another; it is entered again, and keeps what it can."""
        known = self.run.changes
        if not any(is_within(one.path, place.path) for one in known):
            note_change(self.run, StepChange(place.path, was, now, enters=True))

    def _compares(self, place: Place) -> bool:
        """True for what succeeded by itself, and would have begun all that its code has."""
        if not self._whole or place.outcome != "succeeded" or place.base in self._partial:
            return False
        record = self.recorded.at(place.path)
        end = record.end
        return end is not None and end.status == "succeeded" and end.given_by is None

    def on_tasks(self, place: Place, verb: WorkGroup) -> None:
        """Compare the initial tasks."""
        known = [task.id for task in self.recorded.tasks.get(place.path, ())]
        now = [task.id for task in verb.tasks]
        if self._compares(place) and known != now:
            self._note(place, f"work from {_short(known)}", f"work from {_short(now)}")
        self._partial.add(place.base)  # tasks are added, dropped and stopped

    def on_retraced(self, path: str, step: Step[Any], inputs: Inputs) -> None:
        """Keep the step's rollback, behind those of the steps below it."""
        rollback = step.modifiers.rollback
        if path in self._due and rollback is not None:
            self.found.append((path, rollback, self.run.view_of(path, inputs)))


def _key(path: str) -> str:
    return path.rpartition("/")[2]


def _short(listed: list[str]) -> str:
    more = f" and {len(listed) - _MOST} more" if len(listed) > _MOST else ""
    return f"{', '.join(listed[:_MOST])}{more}"
