"""Stops subtrees: cancels what is in flight, ends what waits, unwinds what has a body."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from handrail.core.failures import failure_of
from handrail.core.node import Node, Phase
from handrail.errors import StepTimeout
from handrail.model import commands as cmd
from handrail.model.results import StepResult, qualified

if TYPE_CHECKING:
    from handrail.core.machine import Machine

_TIMEOUT = qualified(StepTimeout)


class Stopping:
    """See *Stopping* in the text of ``core.machine``."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def stop(self, node: Node, reason: str, *, hard: bool = False) -> None:
        """Stop a subtree; its ends follow, innermost first. Again, hard: close what still unwinds."""
        if node.phase in {Phase.ENDING, Phase.UNDOING}:
            return
        if node.stop is not None and not (hard and not node.hard):
            return
        first = node.stop is None
        node.stop = node.stop or reason
        node.hard = node.hard or hard
        children = list(node.live.values()) if node.live else []
        if node.child is not None:
            children.append(node.child)
        if children:
            for child in reversed(children):
                self.machine.later(self._stop_child, child, reason, hard)
        elif first:
            self._stop_childless(node, reason)

    def _stop_child(self, child: Node, reason: str, hard: bool) -> None:
        self.stop(child, reason, hard=hard)

    def _stop_childless(self, node: Node, reason: str) -> None:
        step = node.step
        if node.generator is not None:
            self.machine.unwind(node)
        elif step is None:
            self.all_stopped(node)
        elif node.phase is Phase.RUNNING and step.verb.leaf:
            self.machine.emit(cmd.Cancel(node.path, reason))
        elif node.phase is Phase.OPENING or self._is_evaluating(node):
            self.machine.emit(cmd.Cancel(node.path, reason))  # the answer then ends the node
        else:
            self.all_stopped(node)

    def _is_evaluating(self, node: Node) -> bool:
        if node.phase is Phase.FALLING_BACK:
            return node.child is None
        return node.phase is Phase.RUNNING and bool(getattr(node.state, "evaluating", False))

    def attempt_stopped(self, report: cmd.Stopped) -> None:
        node = self.machine.nodes.get(report.path)
        if node is None or node.phase is Phase.ENDING:
            return
        self.machine.end_step(
            node, "cancelled", error=node.stop or "cancelled", abandoned=report.abandoned
        )

    def all_stopped(self, node: Node) -> None:
        """A stopped node has nothing running below it any more."""
        if node is self.machine.root:
            self.machine.end.root_ended(None, None)
            return
        if node.step is None:
            self.machine.end_member(node, "cancelled", error=node.stop)
            return
        behaviour = self.machine.behaviours.get(type(node.step.verb))
        if behaviour is not None and node.phase is not Phase.FALLING_BACK:
            behaviour.stopped(self.machine, node)
            if behaviour.undoes_itself:
                self.machine.undo(node, lambda: self._end_stopped(node))
                return
        self._end_stopped(node)

    def _end_stopped(self, node: Node) -> None:
        failure = node.failure
        if failure is None or failure.kind != _TIMEOUT:
            self.machine.end_step(node, "cancelled", error=node.stop)
            return
        node.stop, node.hard, node.unwinding = None, False, False
        node.live, node.child, node.failure = None, None, None
        self.machine.fail(node, failure)

    def deadline_passed(self, node: Node) -> None:
        if node.stop is not None or node.phase is Phase.ENDING:
            return
        assert node.step is not None
        error = StepTimeout(node.path, node.step.modifiers.timeout_s or 0.0)
        node.failure = failure_of(error)
        self.stop(node, str(error))

    def cleanup_overdue(self, node: Node) -> None:
        self.stop(node, node.stop or "cancelled", hard=True)

    def child_ended(self, parent: Node, node: Node, result: StepResult[Any]) -> None:
        note = getattr(parent.state, "note", None)
        if note is not None:
            note(node, result)
        if not parent.live and parent.child is None:
            self.all_stopped(parent)
