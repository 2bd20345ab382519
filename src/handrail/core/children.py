"""Verbs with one child at a time: ``branch``, ``subworkflow``, ``scope`` and ``holding``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from handrail.core import commands as cmd
from handrail.core.ending import child_result, compensation_error, hit_limit, undo
from handrail.core.failing import fail, fail_with
from handrail.core.failures import AttemptFailure, failure_from, failure_of, failure_of_body
from handrail.core.generators import call
from handrail.core.items import is_body
from handrail.core.mistakes import no_body
from handrail.core.nodes import MemberNode, Node, Phase
from handrail.core.run_state import (
    BodyStepNode,
    CompositeNode,
    EndBody,
    RunState,
    StepNode,
)
from handrail.core.user_code import call_user
from handrail.errors import InvalidInput, NoArmChosen, WrongUse
from handrail.model import events as ev
from handrail.model.definition import bind_inputs
from handrail.model.described import defined_at
from handrail.model.outcome import INTERRUPTED, RAISED, RETURNED
from handrail.model.paths import join
from handrail.model.results import BranchResult, StepResult, Usage
from handrail.record.outputs import WORKFLOW, arm, declared_output
from handrail.record.results import total_usage, tree_order
from handrail.steps.bodies import Branching, ChildWorkflow, HeldBody, ScopedBody
from handrail.steps.groups import Bodied
from handrail.steps.verbs import Step, alone


class BranchNode(CompositeNode):
    """Asks the predicates one by one, then runs the first true arm's step."""

    __slots__ = ("arm",)
    verb: Branching

    def __init__(
        self, step: Step[Any], path: str, parent: Node | None, inputs: Mapping[str, Any]
    ) -> None:
        super().__init__(step, path, parent, inputs)
        self.arm = 0
        """The index of the arm whose predicate is asked, or whose step runs."""

    def begin(self, run: RunState) -> None:
        """Run the arm that an earlier drive chose, or ask the first predicate."""
        for index, (_, step) in enumerate(self.verb.arms):
            if run.recorded.knows(join(self.base, step.name)):
                self.arm = index
                self._run_arm(run)
                return
        self.arm = 0
        self._ask(run)

    def _ask(self, run: RunState) -> None:
        arms = self.verb.arms
        if self.arm < len(arms):
            predicate = arms[self.arm][0]
            run.ask(self, cmd.AskPredicate(self.path, predicate, run.view(self), self.arm))
            return
        why = f"none of its {len(arms)} predicates was true. Add an arm (lambda ctx: True, step)."
        fail_with(run, self, NoArmChosen(self.path, why))

    def evaluated(self, run: RunState, report: cmd.Evaluated) -> None:
        """Run the arm if its predicate was true, else ask the next one."""
        if report.error is not None:
            fail(run, self, failure_of(report.error))
        elif not isinstance(report.value, bool):
            why = f"predicate {self.arm} must return a bool, got {report.value!r}"
            fail_with(run, self, NoArmChosen(self.path, why))
        elif report.value:
            self._run_arm(run)
        else:
            self.arm += 1
            self._ask(run)

    def _run_arm(self, run: RunState) -> None:
        step = self.verb.arms[self.arm][1]
        path = join(self.base, step.name)
        if run.reserve_path(self, path, "Name the arms apart."):
            run.open_child(self, step, path)

    def child_ended(self, run: RunState, child: Node, result: StepResult[Any]) -> None:
        """End with index, name and output of the arm; if the arm failed, fail with its error."""
        if result.success:
            output = BranchResult(self.arm, result.name, result.output)
            run.succeed(self, output, derived=arm(self.arm, child.path))
        else:
            text = f"its arm {result.name!r} failed: {result.error}"
            fail(run, self, failure_from(result, text))


class WorkflowNode(BodyStepNode):
    """Runs a child workflow's generator below the step's path."""

    __slots__ = ("is_open",)
    verb: ChildWorkflow

    def __init__(
        self, step: Step[Any], path: str, parent: Node | None, inputs: Mapping[str, Any]
    ) -> None:
        super().__init__(step, path, parent, inputs)
        self.is_open = False
        """True if the start of the child is recorded, and its end is not."""

    @property
    def name(self) -> str:
        """The name of the child workflow."""
        return self.verb.workflow.definition.name

    def undoes_itself(self) -> bool:
        """Yes: a child workflow that does not succeed leaves nothing behind."""
        return True

    def begin(self, run: RunState) -> None:
        """Bind the inputs, record the start, and enter the child's generator."""
        verb = self.verb
        definition = verb.workflow.definition
        depth, limit = _depth(self), run.limits.max_depth
        if depth > limit:
            why = (
                f"step {self.path!r} nests workflows {depth} deep. "
                f"Does one call itself without end?"
            )
            hit_limit(run, "max_depth", limit, self.path, why)
            return
        try:
            inputs = bind_inputs(definition, verb.args, verb.kwargs)
        except (TypeError, InvalidInput) as error:
            fail_with(run, self, error, retryable=False)
            return
        unrecordable = run.unrecordable(inputs, f"step {self.path!r}, inputs")
        if unrecordable is not None:
            fail_with(run, self, unrecordable, retryable=False)
            return
        self.body_inputs = inputs
        self.is_open = True
        run.record(ev.SubworkflowStarted(self.path, definition.name, inputs))
        what, given = call_user(run, call, definition, inputs)
        if what == RETURNED:
            run.enter(self, given)
        elif what == RAISED:
            self.body_ended(run, None, given)

    def body_ended(self, run: RunState, value: Any, error: BaseException | None) -> None:
        """End with the child's result; on an error run the rollbacks below, then fail with it."""
        name = self.name
        if error is None:
            where = f"workflow {name!r} at step {self.path!r}"
            error = run.unrecordable(value, where, lambda: declared_for(self))
        if error is None:
            error = compensation_error(run, self)
        if error is None:
            self.is_open = False
            run.record(ev.SubworkflowEnded(self.path, name, "succeeded", value=value))
            run.succeed(self, child_result(run, self, name, value), derived=WORKFLOW)
            return
        failure = failure_of_body(error)
        failure.error = f"workflow {name!r} failed: {failure.error}"
        undo(run, self, lambda: self._fail(run, failure))

    def used_at_end(self, run: RunState, _last: Usage | None) -> Usage | None:
        """The usage of all its steps."""
        return total_usage(tree_order(run.tree, run.results, self.path))

    def _fail(self, run: RunState, failure: AttemptFailure) -> None:
        self.is_open = False
        run.record(ev.SubworkflowEnded(self.path, self.name, "failed", failure.error))
        fail(run, self, failure)

    def stopped(self, run: RunState) -> None:
        """Record that the child was cancelled, if its end is not recorded yet."""
        if self.is_open:
            self.is_open = False
            run.record(ev.SubworkflowEnded(self.path, self.name, "cancelled", self.stop))


class ScopeNode(BodyStepNode):
    """Runs a helper's generator below the step's path."""

    __slots__ = ()
    verb: ScopedBody

    def begin(self, run: RunState) -> None:
        """Enter the generator; fail if an enclosing step has run it already, in any drive."""
        body = self.verb.body
        if _is_repeated(self) or inspect.getgeneratorstate(body) != inspect.GEN_CREATED:
            why = (
                f"step {self.path!r}: a scope's generator runs once, and this is another attempt. "
                f"Make a workflow of the helper, and .subworkflow(...) of the scope."
            )
            fail_with(run, self, WrongUse(why), retryable=False)
            return
        self.body_inputs = self.inputs
        run.enter(self, body)

    def body_ended(self, run: RunState, value: Any, error: BaseException | None) -> None:
        """End with what the helper returned, or fail with what it raised; no rollback runs yet."""
        end_called(run, self, value, error)


class HeldBodyNode(BodyStepNode):
    """Runs the steps of a function below the step's path while the step holds its claims."""

    __slots__ = ()
    verb: HeldBody

    def begin(self, run: RunState) -> None:
        """Call the function, and enter the generator or step that it returns."""
        enter_called(run, self, self.verb.body, self.verb.args)

    def body_ended(self, run: RunState, value: Any, error: BaseException | None) -> None:
        """End with what the body returned, or fail with what it raised; no rollback runs yet."""
        end_called(run, self, value, error)


def enter_called(
    run: RunState, node: BodyStepNode, body: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    """Call a function, and run the generator or step that it returns as the node's body."""
    node.body_inputs = node.inputs
    what, made = call_user(run, body, *args)
    if what == INTERRUPTED:
        return
    if what == RAISED:
        run.push(EndBody(node, None, made))
    elif type(made) is Step:
        run.enter(node, alone(made))  # pyright: ignore[reportUnknownArgumentType]  # of anything
    elif is_body(made):
        run.enter(node, made)
    else:
        place = defined_at(body) or run.where(node)
        run.mistake(no_body(made, place, node.path))


def end_called(run: RunState, node: BodyStepNode, value: Any, error: BaseException | None) -> None:
    """End with what the node's body returned, or fail with what it raised."""
    if error is None:
        where = f"the body of step {node.path!r}"
        error = run.unrecordable(value, where, lambda: declared_for(node))
    if error is None:
        run.succeed(node, value)
    else:
        fail(run, node, failure_of_body(error))


def _is_repeated(node: Node) -> bool:
    """True if a retry or a later round of an enclosing step begins this same step again.

    A step that a body yields or makes for an item is new each time, and so is a fallback.
    """
    above = node.parent
    while isinstance(above, CompositeNode) and not isinstance(above, BodyStepNode):
        if above.phase is Phase.FALLING_BACK:
            return False
        if above.begins_again:
            return True
        above = above.parent
    return False


def _depth(node: Node) -> int:
    """How many workflows are nested at this step, the run's own not counted."""
    depth, here = 0, node
    while here.parent is not None:
        depth += isinstance(here, WorkflowNode)
        here = here.parent
    return depth


def declared_for(node: Node) -> tuple[Any, ...]:
    """The types by which later drives read a node's end, or the value of its child workflow.

    Each must fit: the output of a member's step is read with the member's type once the group has
    ended.
    """
    declared: list[Any] = []
    member: Node | None = node
    if isinstance(node, StepNode):
        declared.append(declared_output(node.step))
        member = node.parent
    by_member = member is node or (member is not None and member.generator is None)
    if by_member and isinstance(member, MemberNode) and isinstance(member.parent, StepNode):
        verb = member.parent.step.verb
        if isinstance(verb, Bodied):
            declared.append(verb.member_type())
    return tuple(declared)
