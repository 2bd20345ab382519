"""Drives a run by hand, without executor or event loop; the clock is a number.

``Drive`` is a host of ``core.conductor`` that performs no attempt. It keeps an attempt in
``open_attempts`` until its caller says how the attempt ended. It calls predicates and handlers at
once, and ends cancelled attempts at once. Time moves only in ``advance_to``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextvars import Context, copy_context
from typing import Any

from handrail.core import commands as cmd
from handrail.core.attempt_ends import failure_event, rollback_event, time_bound
from handrail.core.conductor import Conductor, Question
from handrail.core.machine import Machine
from handrail.core.run_state import StepNode
from handrail.core.timers import InFlight
from handrail.core.waits import process_waits_for
from handrail.engine.current import Contexts
from handrail.model import events as ev
from handrail.model.policy import Limits
from handrail.model.results import WorkflowResult
from handrail.steps.verbs import Step


class OpenAttempt:
    """An attempt, or a rollback, that the core waits for."""

    __slots__ = ("command", "context", "since")

    def __init__(self, command: cmd.Perform | cmd.Undo, since: float) -> None:
        self.command = command
        self.since = since
        self.context: Mapping[str, Any] | None = None  # the agent's


Prepare = Callable[[OpenAttempt], None]
Evaluate = Callable[[cmd.AskPredicate | cmd.AskFallback | cmd.FindStages], Any]


class Drive:
    """One drive of one run. Mutable.

    ``evaluate`` evaluates predicates, handlers and stages; ``prepare`` gets each attempt before it
    counts as in flight. An exception of either fails the step. A run's limits on what may run at
    once do not apply here. ``auto_advance``: while the run waits for time alone, time passes at
    once. What escapes from the body of a run that has ended is raised.
    """

    def __init__(
        self,
        machine: Machine,
        evaluate: Evaluate,
        contexts: Contexts,
        *,
        now: float = 0.0,
        seq: int = 0,
        auto_advance: bool = False,
        prepare: Prepare | None = None,
    ) -> None:
        self.machine = machine
        self.contexts = contexts
        self.events: list[ev.Event] = []
        self.progress: list[ev.Progress] = []
        self.open_attempts: dict[str, OpenAttempt] = {}
        self.steps: dict[str, Step[Any]] = {}
        self._evaluate = evaluate
        self._prepare = prepare
        self._now = now
        self._auto_advance = auto_advance
        self._conductor = Conductor(
            machine,
            self,
            record=self._note,
            tell=self.progress.append,
            seq=seq,
            limits=Limits(),
        )

    @property
    def result(self) -> WorkflowResult[Any] | None:
        """How the drive ended; None if it has not."""
        return self._conductor.result

    # -- what happens ---------------------------------------------------------------------------

    def begin(self, first: ev.Event) -> None:
        """Begin with the first event, and carry out what follows."""
        self._conductor.begin(first)
        self._go_on()

    def record(self, event: ev.Event) -> None:
        """Number the event, pass it to the core, and carry out what follows."""
        self._conductor.record(event)
        self._go_on()

    def report(self, report: cmd.Report) -> None:
        """Pass a report to the core, and carry out what follows."""
        self._conductor.receive(report)
        self._go_on()

    def end_attempt(self, path: str, event: ev.Event) -> None:
        """End the attempt or rollback at this path with this event."""
        del self.open_attempts[path]
        match event:
            case ev.RollbackCompleted():
                self._conductor.undone(path, event)
            case ev.StepCompleted() | ev.AttemptFailed():
                self._conductor.finished(path, event)
            case _:
                raise TypeError(event)
        self._go_on()

    def advance_to(self, moment: float) -> None:
        """Let time pass; timers that become due on the way fire in order, each at its time."""
        self._pass_time(moment)
        self._go_on()

    def _go_on(self) -> None:
        """Carry out what follows, and what follows from that when time passes."""
        self._conductor.pump()
        while self._auto_advance and self._waits_for_time_alone():
            due = self.next_due()
            assert due is not None
            self._pass_time(due)
        escaped = self.machine.run.escaped
        if escaped is not None and self.result is not None:
            raise escaped

    def _waits_for_time_alone(self) -> bool:
        run = self.machine.run
        if self.result is not None or self.open_attempts or run.gates or run.listeners:
            return False
        return bool(self.pauses())

    def _pass_time(self, moment: float) -> None:
        while self.result is None:
            due = self.next_due()
            if due is None or due > moment:
                break
            self._now = max(self._now, due)
            self._conductor.tick()
            self._conductor.pump()
        self._now = max(self._now, moment)

    def next_due(self) -> float | None:
        """When the next timer is due, or None."""
        return self._conductor.timers.next_due()

    def pauses(self) -> dict[str, float]:
        """When each sleep, and each pause before another attempt, is over, by path."""
        run = self.machine.run
        return {
            run.timers[token][0].path: due
            for due, token in self._conductor.timers.waits()
            if process_waits_for(run, token)
            and run.timers[token][0].path in self.steps
            and run.timers[token][0].generator is None  # else the timer bounds a body's clean-up
        }

    # -- as a host ------------------------------------------------------------------------------

    def now(self) -> float:
        """The time, in seconds; it moves only in ``advance_to``."""
        return self._now

    def perform(self, attempt: cmd.Perform) -> None:
        """Keep the attempt in flight until ``end_attempt`` ends it."""
        open_attempt = OpenAttempt(attempt, self._now)
        path = attempt.path
        if self._prepare is not None:
            try:
                self._prepare(open_attempt)
            except NeedsEventLoop:
                raise
            except Exception as error:  # noqa: BLE001  # the user's context builder
                self._conductor.finished(path, failure_event(attempt, error))
                return
        self.open_attempts[path] = open_attempt
        self._conductor.limit(path, "attempt", time_bound(attempt, self._now)[0])

    def undo(self, rollback: cmd.Undo) -> None:
        """Keep the rollback in flight until ``end_attempt`` ends it."""
        path = rollback.path
        self.open_attempts[path] = OpenAttempt(rollback, self._now)
        self._conductor.limit(path, "rollback", rollback.rollback.timeout_s)

    def evaluate(self, question: Question) -> None:
        """Evaluate the question at once."""
        assert not isinstance(question, cmd.Ask)
        try:
            value = self._evaluate(question)
        except NeedsEventLoop:
            raise
        except Exception as error:  # noqa: BLE001  # the user's function
            self._conductor.evaluated(question, error=error)
        else:
            self._conductor.evaluated(question, value)

    def stop(self, it: InFlight) -> None:
        """End the attempt or rollback at once."""
        self.open_attempts.pop(it.path, None)
        if isinstance(it.command, cmd.Perform):
            stopped = cmd.Stopped(it.path, it.command.attempt, at=self._now)
            self._conductor.finished(it.path, stopped)
        else:
            self._conductor.undone(it.path, rollback_event(it.path))

    def alarm(self, due: float | None) -> None:
        """Do nothing: ``advance_to`` looks for timers that are due."""

    def turn(self, path: str) -> None:
        """Give the turn at once: no other run competes for it."""
        self._conductor.turned(path)

    def _note(self, event: ev.Event, /, *, sync: bool = False) -> None:
        del sync
        self.events.append(event)
        if isinstance(event, ev.StepStarted):
            node = self.machine.run.nodes.get(event.path)
            if isinstance(node, StepNode):
                self.steps[event.path] = node.step


class NeedsEventLoop(AssertionError):
    """An async function waits for something, and a script has no event loop to wait in."""

    def __init__(self, whose: str) -> None:
        super().__init__(whose)
        self.whose = whose

    def __str__(self) -> str:
        return (
            f"{self.whose} waits for something, and a Script has no event loop to wait in. Say "
            f"what it gives instead of calling it, or test this workflow with an Executor."
        )


def run_to_end(value: Any, whose: str, context: Context | None = None) -> Any:
    """The value itself, or the result of an awaitable that never has to wait.

    Raises:
        NeedsEventLoop: the awaitable waits for something.
    """
    if not inspect.isawaitable(value):
        return value
    iterator = value.__await__()
    inside = copy_context() if context is None else context
    try:
        inside.run(next, iterator)
    except StopIteration as stop:
        return stop.value
    except RuntimeError as error:
        if not _lacks_a_loop(error):
            raise
    finally:
        close = getattr(iterator, "close", None)
        if close is not None:
            close()
    raise NeedsEventLoop(whose)


def _lacks_a_loop(error: RuntimeError) -> bool:
    """True for the ways in which asyncio, anyio and trio say that no event loop runs."""
    kind = type(error).__name__
    return kind in {"NoEventLoopError", "AsyncLibraryNotFoundError"} or str(error) in {
        "no running event loop",
        "must be called from async context",
    }
