"""Drives shapes by hand, in any order of ends: what the law tests share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from handrail.core import commands as cmd
from handrail.core.attempt_ends import failure_event, rollback_event, success_event
from handrail.core.machine import Machine
from handrail.core.setting import Setting
from handrail.engine.callbacks import Evaluator
from handrail.engine.current import Contexts
from handrail.errors import StageFailed
from handrail.model import events as ev
from handrail.model.results import (
    BranchResult,
    Skipped,
    StageResult,
    StepResult,
    ValidationResult,
    WorkflowResult,
)
from handrail.model.shapes import WorkflowLike
from handrail.model.work import Found, Work
from handrail.record.run_record import Recorded
from handrail.testing.script_drive import Drive
from handrail.testing.shapes import Action, Body, Broken, Undoing, workflow_of

MAX_MOVES = 3_000


class Stuck(AssertionError):
    """The run has not ended, and nothing can happen any more."""


class Watched(Machine):
    """A machine whose every batch of commands is given to a function."""

    def __init__(self, *parts: Any, watch: Callable[[Any, list[cmd.Command]], None]) -> None:
        super().__init__(*parts)
        self._watch = watch
        self._batch: list[cmd.Command] = []
        self._cause: ev.Event | cmd.Report | None = None

    def receive(self, event: ev.Event | cmd.Report) -> Sequence[cmd.Command]:
        """What the machine asks for at once."""
        self._cause, self._batch = event, list(super().receive(event))
        commands = list(self._batch)
        self._watch_whole()
        return commands

    def go_on(self, most: float = math.inf) -> Sequence[cmd.Command]:
        """What it asks for then."""
        commands = super().go_on(most)
        self._batch += commands
        self._watch_whole()
        return commands

    def _watch_whole(self) -> None:
        if self._cause is not None and not self.has_actions:
            self._watch(self._cause, self._batch)
            self._cause = None


class Hand(Drive):
    """A drive of a shape that makes one move at a time, and keeps every batch of commands."""

    def __init__(
        self,
        workflow: WorkflowLike[[], Any],
        *,
        history: Sequence[ev.Event] = (),
        dropped: Sequence[str] = (),
    ) -> None:
        self.workflow = workflow
        definition = workflow.definition
        recorded = Recorded(history)
        recorded.close(dropped)
        machine = Watched(definition, {}, Setting("run", recorded=recorded), watch=self._watch)
        contexts = Contexts("run", {}, {})
        evaluator = Evaluator(contexts, dict, None)
        self.batches: list[tuple[Any, list[cmd.Command]]] = []
        self.performed: list[tuple[str, int]] = []
        self.attempts: list[tuple[int, str]] = []  # after which event, where
        now = history[-1].at if history else 1_000.0
        super().__init__(machine, evaluator.begin, contexts, now=now, seq=len(history))
        if history:
            self.begin(ev.RunResumed(tuple(dropped)))
        else:
            self.begin(ev.WorkflowStarted(definition.name))

    def _watch(self, happened: ev.Event | cmd.Report, commands: list[cmd.Command]) -> None:
        self.batches.append((happened, commands))
        at = self._conductor._loop.seq
        self.attempts += [(at, one.path) for one in commands if isinstance(one, cmd.Perform)]

    # -- moves ----------------------------------------------------------------------------------

    def moves(self, *, time: bool) -> list[Callable[[], None]]:
        """All that can happen next; ``time``: time may pass although something else can happen."""
        found: list[Callable[[], None]] = [
            lambda path=path: self.end(path) for path in sorted(self.open_attempts)
        ]
        found += [
            lambda path=path: self.record(ev.GateAnswered(path, "yes"))
            for path in sorted(self.machine.run.gates)
        ]
        found += [
            lambda name=name: self.record(ev.SignalReceived(name, "signal"))
            for name in sorted(self.machine.run.listeners)
        ]
        due = self.next_due()
        if due is not None and (time or not found):
            found.append(lambda: self.advance_to(due))
        return found

    def end(self, path: str) -> None:
        """End what is in flight at this path as its shape says."""
        command = self.open_attempts[path].command
        if isinstance(command, cmd.Undo):
            action = command.rollback.action
            assert isinstance(action, Undoing)
            self.end_attempt(
                path, rollback_event(path, Broken("rollback") if action.fails else None)
            )
            return
        self.performed.append((path, command.attempt))
        verb: Any = command.step.verb
        stage = getattr(verb, "stage", None)
        action = verb.action if stage is None else stage.check
        assert isinstance(action, Action)
        error: Exception = Broken(f"{action.label} is broken")
        if stage is not None:
            error = StageFailed(StageResult(stage.name, False, "", str(error)))
        if action.fails(path, command.attempt):
            self.end_attempt(path, failure_event(command, error))
        else:
            value = action.value(command.attempt)
            output = value if stage is None else StageResult(stage.name, True)
            self.end_attempt(path, success_event(command, output, None, self.now()))

    def end_with(self, path: str, output: Any) -> None:
        """End the attempt in flight at this path with this output."""
        command = self.open_attempts[path].command
        assert isinstance(command, cmd.Perform)
        self.performed.append((path, command.attempt))
        self.end_attempt(path, success_event(command, output, None, self.now()))

    def run(
        self,
        schedule: Sequence[int],
        *,
        time: bool = False,
        cancel_at: int | None = None,
        until: int | None = None,
    ) -> Hand:
        """Make moves until the run ends, or ``until`` so many are made. ``schedule`` chooses among
        them, the first of them once it is used up; before move number ``cancel_at`` the run is
        cancelled.
        """
        choices = iter(schedule)
        for number in range(MAX_MOVES):
            if number == until:
                return self
            if number == cancel_at and self.result is None:
                self.record(ev.CancelRequested("enough"))
            if self.result is not None:
                return self
            moves = self.moves(time=time)
            if not moves:
                raise Stuck(f"nothing can happen any more after {self.events[-5:]}")
            moves[next(choices, 0) % len(moves)]()
        raise Stuck(f"no end after {MAX_MOVES} moves: {self.events[-5:]}")


def drive(body: Body, schedule: Sequence[int] = (), **how: Any) -> Hand:
    """A whole drive of a shape; see ``Hand.run``."""
    return Hand(workflow_of(body)).run(schedule, **how)


def essence(value: Any) -> Any:
    """What must not depend on the order of ends: no durations, no texts of errors."""
    match value:
        case WorkflowResult():
            steps = [essence(result) for result in value.step_results]
            return (value.status, essence(value.value), essence(value.final_output), steps)
        case StepResult():
            return (
                value.path,
                value.step_type,
                value.status,
                value.attempts,
                essence(value.output),
            )
        case ValidationResult():
            return [(essence(one.stages), essence(one.fix)) for one in value.rounds]
        case StageResult():
            return (value.name, value.passed)
        case Work():
            done = [(one.id, one.parent, essence(one.value)) for one in value.done]
            others = [[one.id for one in some] for some in (value.failed, value.left)]
            refused = [(one.id, one.parent) for one in value.refused]
            return (done, *others, refused, value.why_stopped)
        case Found():
            return (essence(value.value), [one.id for one in value.children])
        case BranchResult():
            return (value.index, value.name, essence(value.output))
        case Skipped():
            return "skipped"
        case tuple() | list():
            return [essence(item) for item in value]
        case _:
            return repr(value)
