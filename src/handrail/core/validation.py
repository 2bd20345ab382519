"""The verb ``validate``: rounds of stages, with a fix after each round that failed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from handrail.core import commands as cmd
from handrail.core.failing import fail
from handrail.core.failures import failure_from, failure_of
from handrail.core.nodes import Node
from handrail.core.run_state import CompositeNode, RunState
from handrail.model import events as ev
from handrail.model.launch import NotReady
from handrail.model.paths import join
from handrail.model.results import (
    StageResult,
    StepResult,
    ValidationFailed,
    ValidationResult,
    ValidationRoundResult,
)
from handrail.steps.bodies import Validation
from handrail.steps.leaves import StageCheck
from handrail.steps.verbs import Modifiers, Stage, Step


class ValidationNode(CompositeNode):
    """Runs all stages of a round in order, then a fix, then the next round."""

    __slots__ = ("_done", "_fixing", "_rounds", "_stages")
    verb: Validation

    def __init__(
        self, step: Step[Any], path: str, parent: Node | None, inputs: Mapping[str, Any]
    ) -> None:
        super().__init__(step, path, parent, inputs)
        self._reset()

    def _reset(self) -> None:
        self._stages: tuple[Stage, ...] = ()
        self._rounds: list[ValidationRoundResult] = []
        self._done: list[StageResult] = []
        """The results of the stages of this round that have ended."""
        self._fixing = False

    def validation_so_far(self) -> ValidationResult:
        """The rounds so far, as the fix of this round sees them."""
        passed = bool(self._rounds) and self._rounds[-1].passed
        return ValidationResult(passed, tuple(self._rounds))

    @property
    def begins_again(self) -> bool:
        """True in another attempt, and for the fix of another round."""
        return super().begins_again or len(self._rounds) > 1

    def begin(self, run: RunState) -> None:
        """Ask the engine for the stages: only it knows those that are named."""
        self._reset()
        run.ask(self, cmd.FindStages(self.path, self.verb.stages))

    def evaluated(self, run: RunState, report: cmd.Evaluated) -> None:
        """Begin the first round; stages that cannot be found fail the step for good."""
        if report.error is not None:
            fail(run, self, failure_of(report.error, retryable=False))
            return
        self._stages = report.value
        self._next_stage(run)

    def _next_stage(self, run: RunState) -> None:
        stage = self._stages[len(self._done)]
        step: Step[Any] = Step(stage.name, StageCheck(stage), Modifiers(timeout_s=stage.timeout))
        self._open(run, step)

    def _open(self, run: RunState, step: Step[Any]) -> None:
        number = len(self._rounds) if self._fixing else len(self._rounds) + 1
        path = join(join(self.base, str(number)), step.name)
        if run.reserve_path(self, path, "Name the stages and the fix apart."):
            run.open_child(self, step, path)

    def child_ended(self, run: RunState, child: Node, result: StepResult[Any]) -> None:
        """Continue after a stage, whether it passed or not, or after the fix of a round."""
        del child
        if self._fixing:
            self._fix_ended(run, result)
            return
        if result.is_a(NotReady):  # no fix helps against a judge that cannot begin
            why = f"its stage {result.name!r} could not run: {result.error}"
            fail(run, self, failure_from(result, why))
            return
        self._done.append(stage_result(result))
        if len(self._done) < len(self._stages):
            self._next_stage(run)
        else:
            self._round_ended(run)

    def _round_ended(self, run: RunState) -> None:
        number = len(self._rounds) + 1
        done = ValidationRoundResult(number, tuple(self._done))
        self._rounds.append(done)
        self._done = []
        run.record(ev.ValidationRound(self.path, number, done.passed, done))
        verb = self.verb
        if done.passed:
            run.succeed(self, self.validation_so_far())
        elif number > verb.retry:
            validation = self.validation_so_far()
            failure = failure_of(ValidationFailed(self.path, validation))
            failure.output = validation
            fail(run, self, failure)
        elif verb.on_failure is None:
            self._next_stage(run)
        else:
            self._fixing = True
            self._open(run, verb.on_failure)

    def _fix_ended(self, run: RunState, result: StepResult[Any]) -> None:
        self._fixing = False
        last = self._rounds[-1]
        self._rounds[-1] = ValidationRoundResult(last.number, last.stages, result)
        if result.success:
            self._next_stage(run)
            return
        failure = failure_from(result, f"its fix {result.name!r} failed: {result.error}")
        failure.output = self.validation_so_far()
        fail(run, self, failure)


def stage_result(result: StepResult[Any]) -> StageResult:
    """The result of a stage, from the result of the step that ran it."""
    stages = result.output
    output = stages.output if isinstance(stages, StageResult) else ""
    error = None if result.success else result.error
    return StageResult(result.name, result.success, output, error, result.duration_ms)
