"""The verb ``worktree``: a body whose steps work in a git worktree of their own.

Its git operations are steps below it like any others, so that each is recorded and none is done
twice: ``(worktree)`` makes it, ``(merge)`` merges it, ``(remove)`` removes it. After a body that
failed, ``(leave)`` removes it only if nothing was done in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from handrail.core.children import declared_for, enter_called
from handrail.core.failing import fail
from handrail.core.failures import AttemptFailure, failure_from, failure_of_body
from handrail.core.nodes import Node
from handrail.core.run_state import BodyStepNode, RunState
from handrail.model.paths import join
from handrail.model.results import StepResult
from handrail.model.shapes import OwnTree
from handrail.steps.bodies import LEAVE, MAKE, MERGE, REMOVE, TreeBody
from handrail.steps.leaves import TreeWork
from handrail.steps.verbs import Step, TreeAction

_ACTIONS: Mapping[str, TreeAction] = {
    MAKE: "make",
    MERGE: "merge",
    REMOVE: "remove",
    LEAVE: "leave",
}


class WorktreeNode(BodyStepNode):
    """Makes a worktree, runs a set-up step and a body in it, then merges and removes it."""

    __slots__ = ("ended", "tree")
    verb: TreeBody

    def __init__(
        self, step: Step[Any], path: str, parent: Node | None, inputs: Mapping[str, Any]
    ) -> None:
        super().__init__(step, path, parent, inputs)
        self.tree: OwnTree | None = None
        self.ended: tuple[Any, AttemptFailure | None] = None, None
        """What the body returned, or why the attempt fails."""

    def begin(self, run: RunState) -> None:
        """Make the worktree."""
        self.tree, self.ended = None, (None, None)
        self._git(run, MAKE)

    def child_ended(self, run: RunState, child: Node, result: StepResult[Any]) -> None:
        """Continue with the set-up, the body, the next git operation, or the end."""
        del child
        name = result.name
        if name == REMOVE:
            run.succeed(self, self.ended[0])  # a worktree that could not be removed is listed
        elif name == LEAVE:
            assert self.ended[1] is not None
            fail(run, self, self.ended[1])
        elif not result.success:
            self._child_failed(run, result)
        elif name == MERGE:
            self._git(run, REMOVE)
        elif name == MAKE:
            self._tree_created(run, cast("OwnTree", result.output))
        else:
            self._enter(run)

    def body_ended(self, run: RunState, value: Any, error: BaseException | None) -> None:
        """Merge the worktree, unless the step keeps it; after an error leave it."""
        if error is None:
            where = f"the body of step {self.path!r}"
            error = run.unrecordable(value, where, lambda: declared_for(self))
        if error is not None:
            self.ended = None, failure_of_body(error)
            self._git(run, LEAVE)
            return
        self.ended = value, None
        if self.verb.merge == "keep":
            run.succeed(self, value)
        else:
            self._git(run, MERGE)

    def _tree_created(self, run: RunState, tree: OwnTree) -> None:
        outer = None if self.parent is None else run.tree_of(self.parent)
        self.tree = tree
        # steps name paths of the process's folder, also in a worktree that is made from another one
        run.trees[self.path] = tree if outer is None else replace(tree, root=outer.root)
        run.update_begins_at_once()
        setup = self.verb.setup
        if setup is None:
            self._enter(run)
        elif run.reserve_path(self, join(self.base, setup.name), ""):
            run.open_child(self, setup, join(self.base, setup.name))

    def _enter(self, run: RunState) -> None:
        before = self.yields
        enter_called(run, self, self.verb.body, self.verb.args)
        self.yields = before  # the body's steps are indexed behind those before it

    def _child_failed(self, run: RunState, result: StepResult[Any]) -> None:
        what = {MAKE: "its worktree was not made: ", MERGE: "its worktree was not merged: "}
        text = f"{what.get(result.name, '')}step {result.name!r} failed: {result.error}"
        failure = failure_from(result, text)
        failure.output = result.output
        if result.name == MERGE or self.tree is None:
            fail(run, self, failure)
            return
        self.ended = None, failure
        self._git(run, LEAVE)

    def _git(self, run: RunState, name: str) -> None:
        verb, path = self.verb, join(self.base, name)
        work = TreeWork(_ACTIONS[name], self.base, verb.base, verb.merge, self.tree)
        if run.reserve_path(self, path, "Name the steps of the body otherwise."):
            run.open_child(self, Step(name, work), path)
