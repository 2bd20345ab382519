"""How a run ends: its verdict, its rollbacks, its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs

from handrail.core import commands as cmd
from handrail.core.bodies import close
from handrail.core.failures import body_error_text
from handrail.core.node import Node, Phase
from handrail.errors import (
    HandrailError,
    LimitExceeded,
    RunCancelled,
    StepFailed,
    WorkflowError,
)
from handrail.model import events as ev
from handrail.model.described import text_of, traceback_of
from handrail.model.results import (
    OpenGate,
    RollbackError,
    RunStatus,
    WorkflowResult,
    qualified,
)
from handrail.record.outputs import Results, Tree, returned_by, whole, with_recorded
from handrail.record.results import children_of, tree_order, workflow_result
from handrail.record.run_record import Recorded
from handrail.steps.verbs import Step

if TYPE_CHECKING:
    from handrail.core.machine import Machine


_SOFT = frozenset({"timeout_s"})
"""The limits after which bodies may still clean up."""


_COMMITTED = (
    "{what} had failed before, and its rollbacks had begun when its process ended: now all of "
    "them have run. Resume {it} again to try what is left"
)


_LOST = "it was not undone: the code has no rollback for it any more, or does not come to it"


@attrs.frozen
class Ending:
    """How the run is to end, once its tree has unwound."""

    status: RunStatus
    error: str | None = None
    error_type: str | None = None
    traceback: str | None = None
    failed_step: str | None = None


class RunEnd:
    """Decides once how the run ends, has rollbacks run, and makes the result. Mutable."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._ending: Ending | None = None
        self._value: Any = None
        self._undoing: dict[str, tuple[Node, Callable[[], None]]] = {}
        self._rollback_errors: list[RollbackError] = []
        self._undone = set[str]()

    def undo(self, node: Node, then: Callable[[], None]) -> None:
        """Run the rollbacks registered below the node, last first, then go on.

        Those that an earlier drive completed are not run again.
        """
        recorded = self.machine.setting.recorded
        while node.rollbacks and recorded is not None:
            done = recorded.at(node.rollbacks[-1][0]).undone
            if done is None:
                break
            node.rollbacks.pop()
            self._note(done)
            if recorded.cancel is not None and node is not self.machine.root:
                node.stop = node.stop or recorded.cancel  # it came in the midst of this
        if not node.rollbacks:
            then()
            return
        node.phase = Phase.UNDOING
        path, rollback, view = node.rollbacks.pop()
        self._undoing[path] = (node, then)
        self._undone.add(path)
        self.machine.record(ev.RollbackStarted(path))
        self.machine.emit(cmd.Undo(path, rollback, view))

    def rollback_completed(self, event: ev.RollbackCompleted) -> None:
        """Note what it raised, and go on with the rollback before it: one that fails stops none."""
        node, then = self._undoing.pop(event.path)
        self._note(event)
        self.undo(node, then)

    def _note(self, event: ev.RollbackCompleted) -> None:
        if event.error is not None:
            error = RollbackError(event.path, event.error, event.error_type or "builtins.Exception")
            self._rollback_errors.append(error)

    def note_recorded(self, path: str, but_below: str | None = None) -> None:
        """Keep the errors of rollbacks that ran below a path before this drive, in their order."""
        recorded = self.machine.setting.recorded
        assert recorded is not None
        done = [
            recorded.at(known).undone
            for known in recorded.paths_below(path)
            if but_below is None or not known.startswith(f"{but_below}/")
        ]
        for event in sorted((one for one in done if one is not None), key=lambda one: one.seq):
            self._note(event)

    def cancel_requested(self, event: ev.CancelRequested) -> None:
        """Unwind the run as cancelled, unless its end is decided already."""
        self.machine.still = False
        if self._ending is None and self.machine.root.phase is not Phase.UNDOING:
            self._ending = Ending("cancelled", event.reason)
            self.machine.stop(self.machine.root, event.reason)

    def mistake(self, error: HandrailError) -> None:
        """End the run as failed: generators are closed, not asked."""
        if self._ending is None or self._ending.status == "cancelled":
            self._ending = Ending("failed", str(error), qualified(type(error)), None, None)
        self._stop_root(str(error), hard=True)

    def carry_on_failing(self) -> None:
        """End the run as failed, unless it ends by itself: some of it is undone already."""
        error = self.half_undone(self.machine.root)
        if error is not None and self._ending is None and self.machine.root.stop is None:
            self.mistake(error)

    def half_undone(self, node: Node) -> WorkflowError | None:
        """What the run, or an attempt of a sub-workflow or group, fails with that would succeed by
        the code of now, though an earlier drive had begun to undo it.
        """
        recorded = self.machine.setting.recorded
        if recorded is None or node.path not in recorded.undoing:
            return None
        if node is self.machine.root:
            return WorkflowError(_COMMITTED.format(what="the run", it="it"))
        if node.attempt > recorded.at(node.path).attempts + 1:
            return None  # the attempt that was being undone is over
        return WorkflowError(_COMMITTED.format(what=f"step {node.path!r}", it="the run"))

    def _was_cancelled(self) -> Ending | None:
        """The end of a run whose rollbacks had begun because it was being cancelled."""
        recorded = self.machine.setting.recorded
        reason = None if recorded is None else recorded.undoing.get("")
        return None if reason is None else Ending("cancelled", reason)

    def _stop_root(self, reason: str, *, hard: bool) -> None:
        """Stop the run, but not before all that is on record has been gone through: what can be
        undone must be known.
        """
        machine = self.machine
        if machine.rehearses:
            machine.replaying.at_the_end(lambda: machine.stop(machine.root, reason, hard=hard))
        else:
            machine.stop(machine.root, reason, hard=hard)

    @property
    def decided(self) -> bool:
        """True if it is known how the run will end."""
        return self._ending is not None

    def hit_limit(
        self, name: str, value: float, path: str, why: str = "", *, hard: bool = True
    ) -> None:
        """End the run as failed, naming the limit."""
        error = LimitExceeded(name, value, why or (f"at step {path!r}" if path else ""))
        self._ending = self._ending or self._was_cancelled()
        if self._ending is not None:  # in clean-up: the verdict stays, the clean-up ends
            self._stop_root(str(error), hard=hard)
            return
        self.machine.record(ev.LimitReached(name, value, path))
        self._ending = Ending("failed", str(error), qualified(LimitExceeded), None, path or None)
        self._stop_root(str(error), hard=hard)

    def was_hard(self, node: Node) -> bool:
        """True if an earlier drive, which stopped this node, was to close it and not to ask it."""
        recorded = self.machine.setting.recorded
        if recorded is None:
            return False
        if recorded.limit is not None:
            return recorded.limit.name not in _SOFT
        return node is self.machine.root and recorded.cancel is None  # it was a mistake

    def note_unwinding(self, node: Node, error: BaseException) -> None:
        """Keep what a body raised while it unwound; the cancellation itself is no news."""
        if isinstance(error, (RunCancelled, GeneratorExit)):
            return
        said = (node.stop or "cancelled").rstrip(".")
        node.stop = f"{said}; while it unwound: {body_error_text(error)}"
        if node is self.machine.root and self._ending is not None:
            self._ending = attrs.evolve(self._ending, error=node.stop)

    def root_ended(self, value: Any, error: BaseException | None) -> None:
        """Decide the run's end if nothing did before; undo what was done unless it succeeded."""
        if isinstance(value, Step):
            error = WorkflowError(
                f"the workflow returned {value!r}, a step that never ran. "
                f"Write `return (yield from step(...)...)`."
            )
        recorded, stop = self.machine.setting.recorded, self.machine.root.stop
        half_undone = self.half_undone(self.machine.root)
        if error is None:
            error = half_undone
        if self._ending is None and recorded is not None:
            if stop is not None:
                self._ending = _recorded_ending(recorded, stop)
            else:
                self._ending = self._was_cancelled()
        if self._ending is None:
            if error is None:
                where = f"workflow {self.machine.definition.name!r}"
                definition = self.machine.definition
                error = self.machine.unrecordable(value, where, lambda: (returned_by(definition),))
            self._ending = _ending_of(error)
            self._value = value if error is None else None
        self.machine.drop_timer(self.machine.run_deadline)
        root = self.machine.root
        if self._ending.status == "succeeded":
            self._complete()
        else:
            self.undo(root, self._all_undone)

    def _all_undone(self) -> None:
        """Tell what is on record as done, and could not be undone for want of its rollback."""
        recorded = self.machine.setting.recorded
        known = () if recorded is None else recorded.to_undo("")
        error_type = qualified(WorkflowError)
        self._rollback_errors += [
            RollbackError(path, _LOST, error_type)
            for path in sorted(known)
            if path not in self._undone
        ]
        self._complete()

    def _complete(self) -> None:
        ending = self._ending
        assert ending is not None
        self.machine.root.phase = Phase.ENDING
        self.machine.record(
            ev.WorkflowCompleted(
                ending.status,
                self._value,
                ending.error,
                ending.error_type,
                ending.traceback,
                ending.failed_step,
                tuple(self._rollback_errors),
                max(0.0, (self.machine.now - self.machine.started_at) * 1000),
                self._orphaned(),
            )
        )

    def workflow_completed(self, event: ev.WorkflowCompleted) -> None:
        """Make the result, now that the run's end is in the journal."""
        self._finish(
            event.status,
            max(0.0, (event.at - self.machine.started_at) * 1000),
            event=event,
        )

    def close_run(self, report: cmd.CloseRun) -> None:
        """Suspend: generators are closed without rollbacks; what they yield then is dropped."""
        machine = self.machine
        notes = self.close_bodies()
        gates, signals = tuple(machine.gates.values()), tuple(sorted(machine.listeners))
        reason = "; ".join(dict.fromkeys(machine.launches.parked.values())) or report.reason
        machine.record(ev.RunSuspended(gates, signals, reason, tuple(notes)))

    def close_bodies(self) -> list[str]:
        """Close all generators, innermost first; what they raised or yielded, as text."""
        machine = self.machine
        notes: list[str] = []
        for node in (*reversed(list(machine.nodes.values())), machine.root):
            error = close(node.generator) if node.generator is not None else None
            if error is not None:
                notes.append(f"{node.path or machine.definition.name}: {text_of(error)}")
        machine.replaying.registering.close()
        return notes

    def run_suspended(self, event: ev.RunSuspended) -> None:
        """Make the result of a run that waits; it says for which gates."""
        self._finish(
            "suspended",
            max(0.0, (event.at - self.machine.started_at) * 1000),
            waiting=event.waiting,
            signals=event.signals,
            error=event.reason if self.machine.launches.parked else None,
        )

    def _finish(
        self,
        status: RunStatus,
        duration_ms: float,
        *,
        event: ev.WorkflowCompleted | None = None,
        waiting: tuple[OpenGate, ...] = (),
        signals: tuple[str, ...] = (),
        error: str | None = None,
    ) -> None:
        machine = self.machine
        machine.finished = True
        orphaned = () if event is None else event.orphaned
        tree: Tree = machine.tree
        results: Results = machine.results
        recorded, run_id = machine.setting.recorded, machine.setting.run_id
        if recorded is not None and orphaned and status in {"failed", "cancelled"}:
            tree = whole(recorded, tree, results)
            results = with_recorded(recorded, tree, results, run_id)
        result: WorkflowResult[Any] = workflow_result(
            machine.definition.name,
            run_id,
            status,
            ordered=tree_order(tree, results),
            top=children_of(tree, ""),
            duration_ms=duration_ms,
            completed=event,
            waiting=waiting,
            signals=signals,
            error=error,
            orphaned=orphaned,
            incidents=tuple(machine.launches.incidents),
        )
        machine.emit(cmd.Finish(result))

    def _orphaned(self) -> tuple[str, ...]:
        recorded, results = self.machine.setting.recorded, self.machine.results
        if recorded is None:
            return ()
        return tuple(path for path in recorded.ended_paths() if path not in results)

    def child_result(self, node: Node, name: str, value: Any) -> WorkflowResult[Any]:
        """The result of a child workflow that succeeded; it shares the run's id."""
        machine = self.machine
        return workflow_result(
            name,
            machine.setting.run_id,
            "succeeded",
            ordered=tree_order(machine.tree, machine.results, node.path),
            top=children_of(machine.tree, node.path),
            duration_ms=max(0.0, (machine.now - node.started_at) * 1000),
            completed=ev.WorkflowCompleted("succeeded", value),
        )


def _recorded_ending(recorded: Recorded, stop: str) -> Ending:
    """How a run ends whose body was unwound to its end in an earlier drive: by what is on record,
    or else by a mistake, of which no more is known than what was said.
    """
    limit = recorded.limit
    if limit is not None:
        return Ending("failed", stop, qualified(LimitExceeded), None, limit.path or None)
    if recorded.cancel is not None:
        return Ending("cancelled", stop)
    return Ending("failed", stop, qualified(HandrailError))


def _ending_of(error: BaseException | None) -> Ending:
    if error is None:
        return Ending("succeeded")
    if isinstance(error, RunCancelled):
        return Ending("cancelled", str(error))
    if isinstance(error, StepFailed):
        result = error.result
        return Ending("failed", str(error), result.error_type, result.traceback, result.path)
    return Ending(
        "failed", body_error_text(error), qualified(type(error)), traceback_of(error), None
    )
