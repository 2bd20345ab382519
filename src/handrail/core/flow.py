"""Verbs with one child at a time: ``branch`` and ``subworkflow``."""

from __future__ import annotations

from typing import Any

from handrail.core import commands as cmd
from handrail.core.failures import Failure, failure_from, failure_of, failure_of_body
from handrail.core.machine import Machine
from handrail.core.node import Node, declared_for
from handrail.errors import NoArmChosen
from handrail.model import events as ev
from handrail.model.paths import join
from handrail.model.results import BranchResult, StepResult
from handrail.record.outputs import WORKFLOW, arm
from handrail.steps.verbs import Branching, ChildWorkflow


class _Choosing:
    """How far a branch has come."""

    __slots__ = ("index",)

    def __init__(self) -> None:
        self.index = 0


class BranchBehaviour:
    """Asks the predicates one by one, then runs the first true arm's step."""

    def undoes_itself(self, node: Node) -> bool:
        """No: a branch registers nothing itself."""
        del node
        return False

    def begin(self, machine: Machine, node: Node) -> None:
        """Run the arm that an earlier drive chose, or ask the first predicate."""
        node.state = state = _Choosing()
        recorded = machine.setting.recorded
        for index, (_, step) in enumerate(_branch(node).arms):
            if recorded is not None and recorded.knows(join(node.base, step.name)):
                state.index = index  # the arm that an earlier drive chose
                self._run_arm(machine, node)
                return
        self._ask(machine, node)

    def _ask(self, machine: Machine, node: Node) -> None:
        verb = _branch(node)
        index: int = node.state.index
        if index < len(verb.arms):
            predicate = verb.arms[index][0]
            machine.ask(node, cmd.AskPredicate(node.path, predicate, machine.view(node), index))
            return
        why = (
            f"none of its {len(verb.arms)} predicates was true. "
            f"Add an arm (lambda ctx: True, step)."
        )
        machine.fail_with(node, NoArmChosen(node.path, why))

    def evaluated(self, machine: Machine, node: Node, report: cmd.Evaluated) -> None:
        """Run the arm if its predicate was true, else ask the next one."""
        state = node.state
        if report.error is not None:
            machine.fail(node, failure_of(report.error))
        elif not isinstance(report.value, bool):
            why = f"predicate {state.index} must return a bool, got {report.value!r}"
            machine.fail_with(node, NoArmChosen(node.path, why))
        elif report.value:
            self._run_arm(machine, node)
        else:
            state.index += 1
            self._ask(machine, node)

    def _run_arm(self, machine: Machine, node: Node) -> None:
        index: int = node.state.index
        step = _branch(node).arms[index][1]
        path = join(node.base, step.name)
        if machine.take_path(node, path, machine.where(node), "Name the arms apart."):
            machine.open_child(node, step, path)

    def child_ended(
        self, machine: Machine, node: Node, child: Node, result: StepResult[Any]
    ) -> None:
        """Give index, name and output of the arm; a failure of the arm is the branch's own."""
        if result.success:
            index = node.state.index
            output = BranchResult(index, result.name, result.output)
            machine.succeed(node, output, composed=arm(index, child.path))
        else:
            text = f"its arm {result.name!r} failed: {result.error}"
            machine.fail(node, failure_from(result, text))

    def stopped(self, machine: Machine, node: Node) -> None:
        """A branch has nothing to say when it is stopped."""


class ChildBehaviour:
    """Runs a child workflow's generator below the step's path."""

    def undoes_itself(self, node: Node) -> bool:
        """Yes: a child workflow that does not succeed leaves nothing behind."""
        del node
        return True

    def begin(self, machine: Machine, node: Node) -> None:
        """Bind the inputs, note the start, and enter the child's generator."""
        verb = _child(node)
        definition = verb.workflow.definition
        depth, limit = _depth(node), machine.limits.max_depth
        if depth > limit:
            why = (
                f"step {node.path!r} nests workflows {depth} deep. "
                f"Does one call itself without end?"
            )
            machine.hit_limit("max_depth", limit, node.path, why)
            return
        try:
            inputs = definition.bind(verb.args, verb.kwargs)
        except TypeError as error:
            machine.fail_with(node, error, retryable=False)
            return
        unrecordable = machine.unrecordable(inputs, f"step {node.path!r}, inputs")
        if unrecordable is not None:
            machine.fail_with(node, unrecordable, retryable=False)
            return
        node.body_inputs = inputs
        node.state = True  # its start is recorded, its end is not
        machine.record(ev.SubworkflowStarted(node.path, definition.name, inputs))
        try:
            generator = machine.call(definition, inputs)
        except Exception as error:  # noqa: BLE001  # the child's own code
            self.body_ended(machine, node, None, error)
            return
        machine.enter(node, generator)

    def body_ended(
        self, machine: Machine, node: Node, value: Any, error: BaseException | None
    ) -> None:
        """Give the child's result; on an error undo what is below, then fail with it."""
        name = _child(node).workflow.definition.name
        if error is None:
            where = f"workflow {name!r} at step {node.path!r}"
            error = machine.unrecordable(value, where, lambda: declared_for(node))
        if error is None:
            error = machine.end.half_undone(node)
        if error is None:
            node.state = None
            machine.record(ev.SubworkflowEnded(node.path, name, "succeeded", value=value))
            result = machine.child_result(node, name, value)
            machine.succeed(node, result, composed=WORKFLOW)
            return
        failure = failure_of_body(error)
        failure.error = f"workflow {name!r} failed: {failure.error}"
        machine.undo(node, lambda: self._fail(machine, node, failure))

    def _fail(self, machine: Machine, node: Node, failure: Failure) -> None:
        name = _child(node).workflow.definition.name
        node.state = None
        machine.record(ev.SubworkflowEnded(node.path, name, "failed", failure.error))
        machine.fail(node, failure)

    def stopped(self, machine: Machine, node: Node) -> None:
        """Note that the child was cancelled, if its end is not recorded yet."""
        if node.state is None:
            return
        node.state = None
        name = _child(node).workflow.definition.name
        machine.record(ev.SubworkflowEnded(node.path, name, "cancelled", node.stop))

    def child_ended(
        self, machine: Machine, node: Node, child: Node, result: StepResult[Any]
    ) -> None:
        """Children of a generator are heard of by the generator."""

    def evaluated(self, machine: Machine, node: Node, report: cmd.Evaluated) -> None:
        """A child workflow asks for no evaluation."""


def _branch(node: Node) -> Branching:
    assert node.step is not None
    verb = node.step.verb
    assert isinstance(verb, Branching)
    return verb


def _child(node: Node) -> ChildWorkflow:
    assert node.step is not None
    verb = node.step.verb
    assert isinstance(verb, ChildWorkflow)
    return verb


def _depth(node: Node) -> int:
    """How many workflows are nested at this step, the run's own not counted."""
    depth, here = 0, node
    while here.parent is not None:
        if here.step is not None and isinstance(here.step.verb, ChildWorkflow):
            depth += 1
        here = here.parent
    return depth
