"""Stops subtrees: cancels attempts in flight, ends waits, unwinds bodies."""

from __future__ import annotations

from handrail.core import commands as cmd
from handrail.core.bodies import unwind
from handrail.core.budget import close_budget_gate, settle_total
from handrail.core.ending import compensation_error, root_ended, undo, was_hard
from handrail.core.failing import fail
from handrail.core.failures import failure_of
from handrail.core.launches import launch_over, replace_launch
from handrail.core.limits import stop_asking
from handrail.core.nodes import Node, Phase, RunNode
from handrail.core.run_state import AgentNode, BodyStepNode, CompositeNode, RunState, StepNode, Stop
from handrail.errors import StepTimeout
from handrail.model.results import StepResult


def stop(run: RunState, node: Node, reason: str, *, hard: bool = False) -> None:
    """Stop a subtree; nodes end innermost first. ``hard`` closes bodies, even those that unwind."""
    if node.phase in {Phase.ENDING, Phase.HALTED}:
        return
    if node.phase is Phase.SEARCHING:
        node.stop, node.hard = node.stop or reason, node.hard or hard  # the search ends by itself
        return
    if node.phase is Phase.UNDOING:
        if node is not run.root:
            node.stop = node.stop or reason  # its rollbacks run on, then it ends as cancelled
        return
    first = node.stop is None
    again = reason == node.stop  # its clean-up is overdue: still its own failure
    if not first and isinstance(node, CompositeNode) and node.overdue and not again:
        node.overdue, node.stop = False, reason  # from above: no longer its own failure
    if not first and not (hard and not node.hard):
        return
    node.stop, node.hard = node.stop or reason, hard
    children = node.children()
    for child in reversed(children):
        run.push(Stop(child, reason, hard))
    if not children and (first or node.generator is not None):
        _stop_childless(run, node, reason)


def _stop_childless(run: RunState, node: Node, reason: str) -> None:
    if node.generator is not None:
        unwind(run, node)
    elif isinstance(node, StepNode) and (
        node.asking or (node.is_leaf and node.phase is Phase.RUNNING)
    ):
        run.emit(cmd.Cancel(node.path, reason))  # the answer, or the attempt's end, ends the node
    else:
        end_stopped(run, node)


def end_rehearsal(run: RunState) -> None:
    """Continue beyond the record, and carry out the stops that the rehearsal deferred."""
    run.rehearses = False
    error = None if run.recorded.cancel is not None else compensation_error(run, run.root)
    if error is not None and run.ending is None and run.root.stop is None:
        run.decide_mistake(error)
        stop(run, run.root, str(error), hard=True)
    for action in reversed(run.after_rehearsal):
        run.push(action)
    run.after_rehearsal.clear()


def note_stopped_before(run: RunState, node: Node, child: str, reason: str | None) -> None:
    """Mark a node as stopped: its recorded child shows that an earlier drive was stopping it.

    If its own timeout was why, it fails by that, whatever the words of the reason are.
    """
    node.stop = reason or "cancelled"
    node.hard = was_hard(run, node)
    overdue = run.overdue.get(child, "")
    if overdue != node.path:
        run.overdue[node.path] = overdue
    elif isinstance(node, CompositeNode) and node.step.modifiers.timeout_s is not None:
        error = StepTimeout(node.path, node.step.modifiers.timeout_s)
        node.failure, node.overdue = failure_of(error), True


def attempt_stopped(run: RunState, report: cmd.Stopped) -> None:
    """End a leaf whose attempt was stopped, or replace a launch that guidance broke off."""
    node = run.step_at(report.path)
    if node is None:
        return
    used = report.launch.total
    if isinstance(node, AgentNode):
        if node.guided and node.stop is None:
            replace_launch(run, node, report)
            return
        launch_over(run, node)
        request = run.requested(node)
        if request is not None and request.action == "retry" and node.reserved:
            settle_total(run, node, used)
    run.end_cancelled(node, usage=used, abandoned=report.abandoned)


def end_stopped(run: RunState, node: Node) -> None:
    """End a stopped node that has nothing running below it any more."""
    run.parked.pop(node.path, None)
    if isinstance(node, AgentNode) and node.budget_gate:
        close_budget_gate(run, node)
    if run.over_limit:
        stop_asking(run, node.path)
    if isinstance(node, RunNode):
        root_ended(run, None, None)
    elif not isinstance(node, StepNode):
        run.end_member(node, "cancelled", error=node.stop)
    elif node.is_leaf or node.phase is not Phase.RUNNING:
        _end_step(run, node)
    else:
        node.stopped(run)
        end_childless(run, node)


def end_childless(run: RunState, node: StepNode) -> None:
    """End a stopped composite with nothing live below it, after its own rollbacks if it has any."""
    if node.undoes_itself():
        undo(run, node, lambda: _end_step(run, node))
    else:
        _end_step(run, node)


def _end_step(run: RunState, node: StepNode) -> None:
    failure = node.failure
    if failure is None or not isinstance(node, CompositeNode) or not node.overdue:
        run.end_cancelled(node)
        return
    node.stop, node.hard, node.overdue = None, False, False
    node.child = node.failure = None
    if isinstance(node, BodyStepNode):
        node.unwinding = False
    fail(run, node, failure)


def deadline_passed(run: RunState, node: CompositeNode) -> None:
    """Stop a composite or wait whose deadline passed; it fails once all below it has ended."""
    if node.stop is not None or node.phase in {Phase.ENDING, Phase.UNDOING}:
        return
    error = StepTimeout(node.path, node.step.modifiers.timeout_s or 0.0)
    node.failure = failure_of(error)
    node.overdue = True
    stop(run, node, str(error))


def cleanup_overdue(run: RunState, node: Node) -> None:
    """Close a body that unwinds for too long."""
    stop(run, node, node.stop or "cancelled", hard=True)


def stopped_child_ended(
    run: RunState, parent: Node, node: Node, result: StepResult[object]
) -> None:
    """Note the end of a child of a stopped node; the last one ends the node."""
    parent.note_child(node, result)
    if not parent.live and parent.child is None:
        end_stopped(run, parent)
