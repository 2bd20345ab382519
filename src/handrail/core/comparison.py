"""Compares a whole record with today's code, up to the first place where they differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from handrail.codec.unresolved import Unresolved
from handrail.core import commands as cmd
from handrail.core.changes import note_change, note_step_change
from handrail.core.generators import call
from handrail.core.nodes import Node
from handrail.core.retracing import Retracing, Search
from handrail.core.run_state import Action, EndBody, RunState, StepNode
from handrail.core.user_code import call_user
from handrail.core.validation import ValidationNode
from handrail.errors import LimitExceeded, StepChange
from handrail.model import events as ev
from handrail.model.outcome import RAISED, RETURNED
from handrail.model.results import StepResult, StepStatus, qualified
from handrail.record.path_tree import PathState
from handrail.steps.declared import returned_by
from handrail.steps.leaves import StageCheck
from handrail.steps.verbs import Modifiers, Step, take
from handrail.typed.jsonsafe import short_repr


class Comparison(Retracing):
    """Retraces all that is recorded of a run, up to the first difference. Mutable.

    ``end``: the end of the run, if it has one.
    """

    counts_open = 1

    def __init__(
        self,
        run: RunState,
        act: Callable[[RunState, Action], None],
        end: ev.WorkflowCompleted | None,
    ) -> None:
        super().__init__(run, act)
        self._begun = run.recorded.begun()
        """Every path that ever began in the run, also if its record was dropped to run it again."""
        self._of_run = PathState() if end is None else self._record_of_run(end)

    def _record_of_run(self, end: ev.WorkflowCompleted) -> PathState:
        """The end of the run, as that of a step is recorded."""
        value: Any = end.value
        status: StepStatus = "cancelled"
        if isinstance(value, Unresolved) and self.codec is not None:
            value = self.codec.load(value.text, returned_by(self.definition))
        if end.status != "cancelled" and end.error_type != qualified(LimitExceeded):
            status = end.status if end.status == "succeeded" else "failed"
        result: StepResult[Any] = StepResult("", "", "", status, value, end.error)
        return PathState(end=result, unreached_children=end.orphaned)

    def of_run(self) -> Search:
        """Retrace the whole run, up to the first question."""
        root = self.root
        search = Search(self, root, lambda: None)
        self.select(search)
        what, made = call_user(self, call, self.definition, root.inputs)
        if what == RETURNED:
            self.enter(root, made)
        elif what == RAISED:
            self.push(EndBody(root, None, made))
        self.work_off()
        return search

    @property
    def line(self) -> str:
        """The ``file:line`` of the code that is retraced; empty if no body is at work."""
        line = self.where(self._at)
        return "" if line == self.definition.name else line

    # -- what is entered ------------------------------------------------------------------------

    def enters(self, path: str) -> bool:
        """True for all that is recorded."""
        return self.recorded.knows(path)

    def enters_attempt(self, node: StepNode) -> bool:
        """True for all attempts."""
        del node
        return True

    def take_answer(self, search: Search, report: cmd.Evaluated) -> None:
        """Go on with the answer to a question."""
        node = self.nodes[report.path]
        if not isinstance(node, ValidationNode) or not isinstance(search.question, cmd.FindStages):
            super().take_answer(search, report)
            return
        self.select(search)
        self._compare_stages(node, () if report.error is not None else report.value)
        self.next_fix(node)
        self.work_off()

    def begin_rounds(self, node: ValidationNode) -> None:
        """Ask for the stages, in order to compare them."""
        self.search.question = cmd.FindStages(node.path, node.verb.stages)

    def _compare_stages(self, node: ValidationNode, stages: Any) -> None:
        """Compare the recorded stages, except those that only an executor knows by their names."""
        by_name = {stage.name: stage for stage in stages}
        for path in self.known(node):
            stage = by_name.get(path.rpartition("/")[2])
            if stage is not None:
                step: Step[Any] = Step(stage.name, StageCheck(stage), Modifiers())
                take(step)  # nobody forgot it
                note_step_change(self.real, path, step)

    # -- what is compared -----------------------------------------------------------------------

    def compares(self, node: Node) -> bool:
        """True for all."""
        del node
        return True

    def differs(self, node: Node, path: str, was: str, now: str) -> None:
        """Keep the difference, unless the path began, and is to begin again."""
        del node
        if self.recorded.knows(path) or path not in self._begun:
            note_change(self.real, StepChange(path, was, now))

    def text_of(self, value: Any) -> str:
        """The value, shortened."""
        return f"succeeded with {short_repr(value)}"

    def record_of(self, node: Node) -> PathState:
        """What is recorded of a node, or of the run."""
        return self._of_run if node is self.root else super().record_of(node)
