"""Stops subtrees: cancels what is in flight, ends what waits, unwinds what has a body."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from handrail.core import commands as cmd
from handrail.core.failures import failure_of
from handrail.core.node import Node, Phase
from handrail.errors import StepTimeout
from handrail.model.results import StepResult

if TYPE_CHECKING:
    from handrail.core.machine import Machine


class Stopping:
    """See *Stopping* in the text of ``core.machine``."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def stop(self, node: Node, reason: str, *, hard: bool = False) -> None:
        """Stop a subtree; its ends follow, innermost first. Hard: close what still unwinds."""
        if node.phase in {Phase.ENDING, Phase.HALTED}:
            return
        if node.phase is Phase.REGISTERING:
            node.stop, node.hard = node.stop or reason, node.hard or hard  # it goes on by itself
            return
        if node.phase is Phase.UNDOING:
            if node is not self.machine.root:
                node.stop = node.stop or reason  # its rollbacks run on, then it ends as cancelled
            return
        first = node.stop is None
        again = reason == node.stop  # its clean-up takes too long: that is still its own failure
        if not first and node.overdue and not again:
            node.overdue, node.stop = False, reason  # from above: it is no failure of its own now
        if not first and not (hard and not node.hard):
            return
        node.stop = node.stop or reason
        node.hard = node.hard or hard
        children = list(node.live.values()) if node.live else []
        if node.child is not None:
            children.append(node.child)
        if children:
            for child in reversed(children):
                stop = functools.partial(self.stop, hard=hard)
                self.machine.later(stop, child, reason)
        elif first or node.generator is not None:
            self._stop_childless(node, reason)

    def _stop_childless(self, node: Node, reason: str) -> None:
        step = node.step
        if node.generator is not None:
            self.machine.unwind(node)
        elif node.asking:
            self.machine.emit(cmd.Cancel(node.path, reason))  # the answer then ends the node
        elif step is not None and step.verb.leaf and node.phase is Phase.RUNNING:
            self.machine.emit(cmd.Cancel(node.path, reason))
        else:
            self.all_stopped(node)

    def was_stopped(self, node: Node, reason: str | None) -> None:
        """Note what the record of its only child tells: an earlier drive was stopping the node."""
        node.stop = reason or "cancelled"
        node.hard = self.machine.end.was_hard(node)
        timeout_s = None if node.step is None else node.step.modifiers.timeout_s
        if timeout_s is not None and _is_timeout_of(node.path, node.stop):
            node.failure, node.overdue = failure_of(StepTimeout(node.path, timeout_s)), True

    def attempt_stopped(self, report: cmd.Stopped) -> None:
        """End a leaf whose attempt was stopped."""
        node = self.machine.nodes.get(report.path)
        if node is None or node.phase is Phase.ENDING:
            return
        self.machine.end_step(
            node, "cancelled", error=node.stop or "cancelled", abandoned=report.abandoned
        )

    def all_stopped(self, node: Node) -> None:
        """A stopped node has nothing running below it any more."""
        self.machine.launches.parked.pop(node.path, None)
        if node.budget_gate:
            self.machine.spending.stopped(node)
        if node is self.machine.root:
            self.machine.end.root_ended(None, None)
            return
        if node.step is None:
            self.machine.end_member(node, "cancelled", error=node.stop)
            return
        behaviour = self.machine.behaviours.get(type(node.step.verb))
        if behaviour is not None and node.phase is Phase.RUNNING:
            behaviour.stopped(self.machine, node)
            if behaviour.undoes_itself(node):
                self.machine.undo(node, lambda: self._end_stopped(node))
                return
        self._end_stopped(node)

    def _end_stopped(self, node: Node) -> None:
        failure = node.failure
        if failure is None or not node.overdue:
            self.machine.end_step(node, "cancelled", error=node.stop)
            return
        node.stop, node.hard, node.unwinding, node.overdue = None, False, False, False
        node.live, node.child, node.failure = None, None, None
        self.machine.fail(node, failure)

    def deadline_passed(self, node: Node) -> None:
        """Stop a composite or waiting step in order to fail it."""
        if node.stop is not None or node.phase in {Phase.ENDING, Phase.UNDOING}:
            return
        assert node.step is not None
        error = StepTimeout(node.path, node.step.modifiers.timeout_s or 0.0)
        node.failure = failure_of(error)
        node.overdue = True
        self.stop(node, str(error))

    def cleanup_overdue(self, node: Node) -> None:
        """Close a body that unwinds for too long."""
        self.stop(node, node.stop or "cancelled", hard=True)

    def child_ended(self, parent: Node, node: Node, result: StepResult[Any]) -> None:
        """Note the end of a child of a stopped node; the last one ends the node."""
        note = getattr(parent.state, "note", None)
        if note is not None:
            note(node, result)
        if not parent.live and parent.child is None:
            self.all_stopped(parent)


def _is_timeout_of(path: str, reason: str) -> bool:
    """True if this says that the step's own time was over, whatever it was then."""
    said = str(StepTimeout(path, 0.0))
    return reason.startswith(said.rpartition(" of ")[0])
