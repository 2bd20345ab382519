"""Drives the core by hand: no executor, no event loop, no clock but a number.

What the engine does with tasks, this does with a table: an attempt at a leaf step becomes an entry
of ``flights`` and stays there until somebody says how it ended. Everything else is done at once:
events are numbered and given back to the core, predicates and handlers are called, cancelled
attempts stop. Time is ``now`` and moves only in ``advance_to``.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from typing import Any

from handrail.core import commands as cmd
from handrail.core.command_loop import CommandLoop
from handrail.core.machine import Machine
from handrail.core.run_state import StepNode
from handrail.core.waits import ends_by_itself
from handrail.engine.perform import failed
from handrail.errors import StepTimeout
from handrail.model import events as ev
from handrail.model.described import text_of
from handrail.model.results import WorkflowResult, qualified
from handrail.steps.verbs import Step
from handrail.testing.script_async import NeedsEventLoop


class InFlight:
    """An attempt, or a rollback, that the core waits for."""

    __slots__ = ("command", "context", "since")

    def __init__(self, command: cmd.Perform | cmd.Undo, since: float) -> None:
        self.command = command
        self.since = since
        self.context: Mapping[str, Any] | None = None  # what an agent is given


Prepare = Callable[[InFlight], None]
Evaluate = Callable[[cmd.AskPredicate | cmd.AskFallback | cmd.FindStages], Any]


class Drive:
    """One drive of one run. Mutable.

    ``evaluate`` answers predicates, handlers and stages; ``prepare`` is shown an attempt before it
    counts as in flight. What either of them raises is the step's failure.
    """

    def __init__(
        self,
        machine: Machine,
        evaluate: Evaluate,
        *,
        now: float = 0.0,
        seq: int = 0,
        prepare: Prepare | None = None,
    ) -> None:
        self.machine = machine
        self.events: list[ev.Event] = []
        self.progress: list[ev.Progress] = []
        self.flights: dict[str, InFlight] = {}
        self.steps: dict[str, Step[Any]] = {}
        self.result: WorkflowResult[Any] | None = None
        self._evaluate = evaluate
        self._prepare = prepare
        self._seq = seq
        self._order = 0
        self._timers: list[tuple[float, int, cmd.Wait | InFlight]] = []
        self._loop = CommandLoop(
            machine, now, record=self._write, tell=self._note, carry_out=self._carry_out
        )

    @property
    def now(self) -> float:
        """The time, in seconds; it moves only in ``advance_to``."""
        return self._loop.now

    # -- what happens ---------------------------------------------------------------------------

    def record(self, event: ev.Event) -> None:
        """This has happened: number it, give it to the core, do what follows."""
        self._loop.add(cmd.Record(event))
        self._loop.run()

    def report(self, report: cmd.Report) -> None:
        """Give the core a report, and do what follows."""
        self._loop.receive(report)
        self._loop.run()

    def land(self, path: str, event: ev.Event) -> None:
        """What is in flight at this path ended with this event."""
        del self.flights[path]
        self.record(event)

    def advance_to(self, moment: float) -> None:
        """Let time pass; what becomes due on the way happens in order, each at its time."""
        while self.result is None:
            due = self.next_due()
            if due is None or due > moment:
                break
            _, _, what = heapq.heappop(self._timers)
            self._loop.now = max(self.now, due)
            self._fire(what)
        self._loop.now = max(self.now, moment)

    def next_due(self) -> float | None:
        """When the next thing is due, or None."""
        timers = self._timers
        while timers and self._is_stale(timers[0][2]):
            heapq.heappop(timers)
        return timers[0][0] if timers else None

    def pauses(self) -> dict[str, float]:
        """When each sleep, and each pause before another attempt, is over, by path."""
        machine = self.machine
        return {
            what.path: due
            for due, _, what in self._timers
            if isinstance(what, cmd.Wait)
            and ends_by_itself(machine.run, what.token)
            and what.path in self.steps
            and machine.run.nodes[what.path].generator is None  # else it cleans up
        }

    # -- carrying out commands ------------------------------------------------------------------

    def _carry_out(self, command: cmd.Command) -> None:
        match command:
            case cmd.Perform() | cmd.Undo():
                self._start_flight(command)
            case cmd.AskPredicate() | cmd.AskFallback() | cmd.FindStages():
                self._answer(command)
            case cmd.Wait():
                self._at(command.due, command)
            case cmd.Cancel() | cmd.BreakOff():
                self._stop(command.path)
            case cmd.Finish():
                self.result = command.result
            case cmd.Queue():  # nothing is limited here
                given = cmd.Granted(command.path, command.launch, command.interrupted, at=self.now)
                self._loop.receive(given)
            case cmd.Claim():  # nor is anything held by others
                self._loop.receive(cmd.Evaluated(command.path, at=self.now))
            case cmd.Unclaim():
                pass
            case cmd.Ask() | cmd.Changed() | cmd.Release() | cmd.Hold() | cmd.EndDrive():
                pass  # whoever holds the drive answers the gate; without a record nothing changes
            case cmd.Record() | cmd.Tell() | cmd.Pull():
                pass  # the loop's own

    @property
    def _run_id(self) -> str:
        return self.machine.run.setting.run_id

    def _note(self, progress: ev.Progress) -> None:
        self.progress.append(ev.stamp(progress, self._run_id, self._seq, self.now))

    def _write(self, command: cmd.Record) -> None:
        event = command.event
        self._seq += 1
        self.events.append(ev.stamp(event, self._run_id, self._seq, self.now))
        if isinstance(event, ev.StepStarted):
            self._note_step(event.path)

    def _note_step(self, path: str) -> None:
        node = self.machine.run.nodes.get(path)
        if isinstance(node, StepNode):
            self.steps[path] = node.step

    def _start_flight(self, command: cmd.Perform | cmd.Undo) -> None:
        flight = InFlight(command, self.now)
        timeout_s = _timeout_s(command)
        if self._prepare is not None and isinstance(command, cmd.Perform):
            try:
                self._prepare(flight)
            except NeedsEventLoop:
                raise
            except Exception as error:  # noqa: BLE001  # the user's context builder
                self._loop.add(cmd.Record(failed(command, error)))
                return
        self.flights[command.path] = flight
        if timeout_s is not None:
            self._at(self.now + timeout_s, flight)

    def _answer(self, command: cmd.AskPredicate | cmd.AskFallback | cmd.FindStages) -> None:
        try:
            value = self._evaluate(command)
        except NeedsEventLoop:
            raise
        except Exception as error:  # noqa: BLE001  # the user's function
            self._loop.receive(cmd.Evaluated(command.path, error=error, at=self.now))
        else:
            self._loop.receive(cmd.Evaluated(command.path, value, at=self.now))

    def _stop(self, path: str) -> None:
        flight = self.flights.get(path)
        if flight is not None and isinstance(flight.command, cmd.Perform):
            del self.flights[path]
            self._loop.later(cmd.Stopped(path, flight.command.attempt, at=self.now))

    # -- time -----------------------------------------------------------------------------------

    def _at(self, due: float, what: cmd.Wait | InFlight) -> None:
        self._order += 1
        heapq.heappush(self._timers, (due, self._order, what))

    def _is_stale(self, what: cmd.Wait | InFlight) -> bool:
        if isinstance(what, cmd.Wait):
            return what.token not in self.machine.run.timers
        return self.flights.get(what.command.path) is not what

    def _fire(self, what: cmd.Wait | InFlight) -> None:
        if isinstance(what, cmd.Wait):
            self.report(cmd.TimerFired(what.path, what.token, at=self.now))
            return
        command = what.command
        error = StepTimeout(command.path, _timeout_s(command) or 0.0)
        if isinstance(command, cmd.Perform):
            self.land(command.path, failed(command, error))
        else:
            self.land(command.path, undone(command.path, error))


def undone(path: str, error: BaseException | None = None) -> ev.RollbackCompleted:
    """The event of a rollback that ended."""
    if error is None:
        return ev.RollbackCompleted(path)
    return ev.RollbackCompleted(path, text_of(error), qualified(type(error)))


def _timeout_s(command: cmd.Perform | cmd.Undo) -> float | None:
    if isinstance(command, cmd.Undo):
        return command.rollback.timeout_s
    return command.step.modifiers.timeout_s
