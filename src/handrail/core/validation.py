"""The verb ``validate``: rounds of stages, with a fix after each round that found something."""

from __future__ import annotations

from typing import Any

from handrail.core import commands as cmd
from handrail.core.failures import failure_from, failure_of
from handrail.core.machine import Machine
from handrail.core.node import Node
from handrail.errors import ValidationFailed
from handrail.model import events as ev
from handrail.model.paths import join
from handrail.model.results import (
    StageResult,
    StepResult,
    ValidationResult,
    ValidationRoundResult,
)
from handrail.steps.verbs import Modifiers, Stage, StageCheck, Step, Validation


class Rounds:
    """How far a validation has come."""

    __slots__ = ("done", "fixing", "rounds", "stages")

    def __init__(self) -> None:
        self.stages: tuple[Stage, ...] = ()
        self.rounds: list[ValidationRoundResult] = []
        self.done: list[StageResult] = []
        self.fixing = False

    @property
    def number(self) -> int:
        """The round at work, from 1."""
        return len(self.rounds) if self.fixing else len(self.rounds) + 1

    def validation_so_far(self) -> ValidationResult:
        """What the fix of this round is shown."""
        passed = bool(self.rounds) and self.rounds[-1].passed
        return ValidationResult(passed, tuple(self.rounds))


class ValidationBehaviour:
    """Runs all stages of a round in order, then a fix, then the next round."""

    def undoes_itself(self, node: Node) -> bool:
        """No: what its fixes registered is the run's to undo."""
        del node
        return False

    def begin(self, machine: Machine, node: Node) -> None:
        """Ask for the stages: those of names are known to the engine alone."""
        node.state = Rounds()
        machine.ask(node, cmd.FindStages(node.path, _verb(node).stages))

    def evaluated(self, machine: Machine, node: Node, report: cmd.Evaluated) -> None:
        """Begin the first round; stages that cannot be found fail the step for good."""
        state: Rounds = node.state
        if report.error is not None:
            machine.fail(node, failure_of(report.error, retryable=False))
            return
        state.stages = report.value
        self._next_stage(machine, node)

    def _next_stage(self, machine: Machine, node: Node) -> None:
        state: Rounds = node.state
        stage = state.stages[len(state.done)]
        step: Step[Any] = Step(stage.name, StageCheck(stage), Modifiers(timeout_s=stage.timeout))
        self._open(machine, node, step)

    def _open(self, machine: Machine, node: Node, step: Step[Any]) -> None:
        path = join(join(node.base, str(node.state.number)), step.name)
        if machine.take_path(node, path, machine.where(node), "Name the stages and the fix apart."):
            machine.open_child(node, step, path)

    def child_ended(
        self, machine: Machine, node: Node, child: Node, result: StepResult[Any]
    ) -> None:
        """Go on after a stage, passed or not, or after the fix of a round."""
        del child
        state: Rounds = node.state
        if state.fixing:
            self._fixed(machine, node, result)
            return
        state.done.append(stage_result(result))
        if len(state.done) < len(state.stages):
            self._next_stage(machine, node)
        else:
            self._round_ended(machine, node)

    def _round_ended(self, machine: Machine, node: Node) -> None:
        state: Rounds = node.state
        number = state.number
        done = ValidationRoundResult(number, tuple(state.done))
        state.rounds.append(done)
        state.done = []
        machine.record(ev.ValidationRound(node.path, number, done.passed, done))
        verb = _verb(node)
        if done.passed:
            machine.succeed(node, ValidationResult(passed=True, rounds=tuple(state.rounds)))
        elif number > verb.retry:
            found = state.validation_so_far()
            failure = failure_of(ValidationFailed(node.path, found))
            failure.output = found
            machine.fail(node, failure)
        elif verb.on_failure is None:
            self._next_stage(machine, node)
        else:
            state.fixing = True
            self._open(machine, node, verb.on_failure)

    def _fixed(self, machine: Machine, node: Node, result: StepResult[Any]) -> None:
        state: Rounds = node.state
        state.fixing = False
        last = state.rounds[-1]
        state.rounds[-1] = ValidationRoundResult(last.number, last.stages, result)
        if result.success:
            self._next_stage(machine, node)
            return
        failure = failure_from(result, f"its fix {result.name!r} failed: {result.error}")
        failure.output = state.validation_so_far()
        machine.fail(node, failure)

    def stopped(self, machine: Machine, node: Node) -> None:
        """A validation has nothing to say when it is stopped."""


def stage_result(result: StepResult[Any]) -> StageResult:
    """What a stage found, from the result of the step that ran it."""
    found = result.output
    output = found.output if isinstance(found, StageResult) else ""
    error = None if result.success else result.error
    return StageResult(result.name, result.success, output, error, result.duration_ms)


def _verb(node: Node) -> Validation:
    assert node.step is not None
    verb = node.step.verb
    assert isinstance(verb, Validation)
    return verb
