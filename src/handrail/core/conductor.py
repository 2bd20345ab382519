"""Drives one run for any host: what begins, what is recorded, and when the next thing is due.

Theory of operation
===================

The conductor carries out the machine's commands, and performs nothing itself. A *host* performs the
attempts: the workflow code of a cluster, a test that supplies each end by hand, or the driver of
this process (``engine.driver``), which is a conductor and its own host. A host implements the
``Host`` Protocol, seven methods. It reports the ends of what it began in any order, by
``finished``, ``evaluated``, ``undone``, ``tick`` and ``turned``; ``happened`` takes what people
send. These methods only queue their report. ``pump`` then does all that follows.

Everything here is a function of the calls and of ``Host.now``: there is no clock, no task, no
random number. So a host that keeps its own history can lose the conductor at any time, and rebuild
it by the same calls.

This module does the parts of a drive that are the same for every host. It numbers events without a
gap and gives them back to the machine. Waits, deadlines and rates share one heap and one alarm.
``core.line`` queues the attempts that wait for a place. A run that has a record is rehearsed first
(``core.rehearsal``).

What the host has begun is *in flight*, one entry for each path and kind:

    in flight   begun; its end comes by a call                    -> gone | stopping
    stopping    the host was asked to stop it; that it ends       -> gone
                still counts, how it ends does not

A host always reports the end of what it began, also of what it was asked to stop.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, assert_never, cast

import attrs

from handrail.core import commands as cmd
from handrail.core.admission import Admission
from handrail.core.attempt_ends import failure_event, rollback_event, time_bound
from handrail.core.command_loop import CommandLoop
from handrail.core.line import Line
from handrail.core.machine import Machine
from handrail.core.nodes import Phase
from handrail.core.timers import InFlight, Job, Timers
from handrail.errors import (
    CancelledFromWithin,
    CoreStalled,
    HandrailError,
    NotPortable,
    OutputNotSerializable,
    StepTimeout,
)
from handrail.later import later
from handrail.model import events as ev
from handrail.model.policy import Limits
from handrail.model.results import Usage, WorkflowResult

if TYPE_CHECKING:
    from handrail.core import changes, rehearsal, value_texts, waits
    from handrail.record import answers
else:
    later(globals(), "core.changes core.rehearsal core.value_texts core.waits record.answers")


Kind: TypeAlias = Literal["attempt", "claim", "evaluation", "gate", "rollback"]
Question: TypeAlias = cmd.AskPredicate | cmd.AskFallback | cmd.FindStages | cmd.Ask
End: TypeAlias = ev.StepCompleted | ev.AttemptFailed | cmd.LaunchFailed | cmd.Stopped
"""How an attempt can end."""


class Host(Protocol):
    """What a host must do for a run. No method waits: the host reports each end by a call.

    It may make that call from within the method, too.

    Contract suite: ``handrail.testing.contracts.HostContract``.
    """

    def now(self) -> float:
        """The time in unix seconds: the same if the host replays the same point of the run."""
        ...

    def perform(self, attempt: cmd.Perform, /) -> None:
        """Begin an attempt, or a launch of an agent. Report its end by ``finished``."""

    def undo(self, rollback: cmd.Undo, /) -> None:
        """Begin a rollback, which has ``rollback.timeout_s``. Report its end by ``undone``."""

    def evaluate(self, question: Question, /) -> None:
        """Begin to answer a question. Report the answer by ``evaluated``.

        A question is a predicate or handler to call, stages to look up, or a gate to have answered.
        """

    def stop(self, it: Any, /) -> None:
        """Stop something soon, an ``InFlight``; report its end as if it had ended by itself."""

    def alarm(self, due: float | None, /) -> None:
        """Call ``tick`` at this time (None: never); a ring of an earlier alarm does no harm."""

    def turn(self, path: str, /) -> None:
        """Let other work have a turn, then call ``turned`` with this: a group has more to begin."""


ONE_MACHINE = "what is held is held on one machine, and the next step may run on another"


class Conductor:
    """Drives one run for a host. Mutable; lives as long as the drive.

    ``record`` keeps an event, which is numbered by then. If it raises ``OutputNotSerializable``,
    the value is recorded as text, or the step fails. ``tell``, if there is one, receives progress.
    ``seq`` is the number of the last recorded event, ``last_at`` its time. ``limits`` bound what is
    at work at once and what begins in a minute (default: the run's); at most ``window`` attempts
    are in flight. ``handles_gates``: the host answers questions to people. ``spread``: attempts run
    on several machines, so that no step can have claims, which are of one machine.
    """

    flight_type: type[InFlight] = InFlight
    """The kind of entry that is kept of what is in flight; a host may add to it."""

    def __init__(
        self,
        machine: Machine,
        host: Host,
        *,
        record: Callable[[ev.Event], object],
        tell: Callable[[ev.Progress], None] | None = None,
        seq: int = 0,
        limits: Limits | None = None,
        window: int | None = None,
        last_at: float = -math.inf,
        handles_gates: bool = False,
        spread: bool = False,
    ) -> None:
        self.machine = machine
        self.run_id = machine.run.setting.run_id
        self.result: WorkflowResult[Any] | None = None
        self.ends: str | None = None
        """Why the drive ends before its run does, if so: nothing begins any more."""
        self.timers = Timers[Any](machine.run.timers)
        self.flights: dict[tuple[str, str], Any] = {}
        """What the host has begun and not ended, by path and kind; each a ``flight_type``."""
        self.now = host.now
        self._host = host
        self._keep = record
        self._tell = tell
        self._seq = seq
        self._handles_gates = handles_gates
        self._spread = spread
        self._loop = CommandLoop(
            machine,
            host.now(),
            record=self._record,
            tell=self._show,
            carry_out=self._carry_out,
            pull=self._pull,
        )
        self._todo: deque[Any] = self._loop.todo
        self._jobs: deque[Job] = deque()
        self._window = math.inf if window is None else window
        limits = machine.run.limits if limits is None else limits
        self.line = self._make_line(_within(limits, window), last_at)
        self._pulls: deque[str] = deque()
        """Groups that begin no more members until the window has room."""
        self._rehearsing: rehearsal.Rehearsing | None = None
        self._rehearsal: rehearsal.Rehearsal | None = None
        """The part of the record that ``_rehearsing`` leads to now."""
        self._gone_through: list[rehearsal.Rehearsal] = []
        """The parts gone through, which are written once all of the record is."""
        self._beyond: Sequence[cmd.Command] | None = None
        """What lies beyond the record, once that is gone through, until it is carried out."""
        self._asked: rehearsal.RecordedQuestion | None = None
        """The question of ``_rehearsing`` that waits for its answer."""
        self._handled: set[str] = set()
        """Gates that the host is asked to have answered."""
        self._cancel: str | None = None
        self._when_idle: str | None = None
        self._drains: str | None = None
        self._alarm: float | None = None

    def _make_line(self, limits: Limits, last_at: float) -> Line:
        return Line(self, Admission(limits, last_at), self._start)

    # -- from the host --------------------------------------------------------------------------

    def begin(
        self, first: ev.Event, known: Sequence[ev.Event] = (), cancel: str | None = None
    ) -> None:
        """Begin the drive with its first event; ``pump`` does the work.

        ``known`` events are in the machine's record, and are recorded next. ``cancel`` says why the
        run only unwinds, if it does.
        """
        if self.machine.run.recorded.is_empty:
            self.record(first)
            return
        self._cancel = cancel
        self._rehearsing = rehearsal.rehearse(
            self.machine,
            first,
            self._stamp,
            known=known,
            seq=lambda: self._seq,
            shows=self._tell is not None,
        )
        self._rehearse_on()

    def pump(self, most: float = math.inf) -> bool:
        """Do all that follows from the calls so far; False if it takes more than ``most`` commands.

        The next call then does the rest.

        Raises:
            ReplayMismatch: recorded steps have changed; nothing was recorded, unless ``late``.
            CoreStalled: the run can neither continue nor end.
        """
        self._loop.now = self.now()
        if self._rehearsal is not None and not self._rehearse(most):
            return False
        if self._asked is not None:
            return True  # nothing else counts before the record is gone through
        if self._beyond is not None:
            for part in self._gone_through:
                self._write_out(part)
            self._go_beyond(self._beyond)
        while self.result is None:
            if not self._loop.run(most):
                return False
            if not self._jobs:
                self._dismiss_closed()
            if not self._jobs:
                break
            self._jobs.popleft()()
        if self.result is None:
            self._set_alarm()
            self._check()
        elif self.machine.run.changes:
            raise changes.mismatch_of(self.machine.run, late=True)
        return True

    def finished(self, path: str, end: End) -> None:
        """Report how an attempt ended; with ``Stopped`` if it was stopped, by anyone."""
        self._jobs.append(partial(self._finished, path, end))

    def overdue(
        self, path: str, known: cmd.BrokenOff = cmd.NOTHING_KNOWN, *, abandoned: bool = False
    ) -> None:
        """Report that the host stopped an attempt because its time was over."""
        self._jobs.append(partial(self._overdue, path, known, abandoned=abandoned))

    def interrupted(self, path: str, reason: str, usage: Usage | None = None) -> None:
        """Report that an attempt broke off because its process is to end; it runs again later."""
        self._jobs.append(partial(self._interrupted, path, reason, usage))

    def noticed(self, event: ev.Event) -> None:
        """Report an event to record from within an attempt: its agent's session began."""
        self._jobs.append(partial(self._noticed, event))

    def evaluated(
        self, question: Question, value: Any = None, error: BaseException | None = None
    ) -> None:
        """Report the answer to a question; of a gate: the answer and who gave it."""
        if isinstance(question, cmd.Ask):
            self._jobs.append(partial(self._answered, question, value, error))
        elif question is self._asked:
            self._asked = None
            self._rehearse_on(cmd.Evaluated(question.path, value, error, self.now()))
        elif self.remove_flight(question.path, "evaluation") and self.ends is None:
            # else the next drive asks again
            self.receive(cmd.Evaluated(question.path, value, error, self.now()))

    def refused(self, path: str, error: BaseException) -> None:
        """Report that whoever was to answer a gate elsewhere could not."""
        self._jobs.append(lambda: self.receive(cmd.GateRefused(path, error, at=self.now())))

    def undone(self, path: str, end: ev.RollbackCompleted) -> None:
        """Report how a rollback ended."""
        self._jobs.append(partial(self._undone, path, end))

    def tick(self) -> None:
        """Report that the time of the alarm has come."""
        self._alarm = None
        self._jobs.append(self._fire_due)

    def turned(self, path: str) -> None:
        """Report that other work has had its turn."""
        self._jobs.append(lambda: self.receive(cmd.Pulled(path, at=self.now())))

    def happened(self, event: ev.Event) -> None:
        """Report a message: a valid answer, a signal, a request to cancel, steering."""
        self._jobs.append(partial(self._happened, event))

    def limit(self, path: str, kind: Kind, left_s: float) -> None:
        """Stop what is in flight after ``left_s`` seconds, and fail it as timed out.

        For a host that does not measure time where it performs.
        """
        flight = self.flights.get((path, kind))
        if flight is not None and left_s < math.inf:
            self.timers.at(self.now() + max(0.0, left_s), flight)

    def end(self, reason: str) -> None:
        """End the drive, and not the run: stop what is in flight, then suspend."""
        self._jobs.append(partial(self._end_drive, reason))

    def end_when_idle(self, reason: str) -> None:
        """End the drive when an attempt is about to begin while nothing is in flight."""
        self._when_idle = reason

    def drain(self, reason: str) -> None:
        """Begin nothing more, and end the drive once all that is in flight has ended."""
        self._drains = reason
        self.line.pause(on=True)
        self._jobs.append(self._end_if_drained)

    # -- its state ------------------------------------------------------------------------------

    @property
    def waits_for_people(self) -> bool:
        """True if only a person's action, or a deadline for it, lets the run continue."""
        if self.result is not None or self._rehearsal is not None or self._asked is not None:
            return False
        run = self.machine.run
        waiting = (waits.process_waits_for(run, token) for _, token in self.timers.waits())
        return self.nothing_is_at_work and not any(waiting)

    @property
    def nothing_is_at_work(self) -> bool:
        """True if nothing is in flight, and in line only what a pause holds back."""
        if self.line.waiting and self.machine.run.paused is None:
            return False
        return not self.flights

    # -- rehearsing -----------------------------------------------------------------------------

    def _rehearse(self, most: float = math.inf) -> bool:
        """Rehearse the record, and the parts that answers lead back into.

        True once that is done, or an answer is pending; False if it takes more than ``most``
        commands.
        """
        while self._rehearsal is not None:
            if not self._rehearsal.run(most):
                return False
            run = self.machine.run
            if run.changes and run.rehearses:
                self._gone_through.clear()
                raise changes.mismatch_of(run)
            self._gone_through.append(self._rehearsal)
            self._rehearsal = None
            self._rehearse_on()
        return True

    def _write_out(self, part: rehearsal.Rehearsal) -> None:
        for number, (event, sync) in enumerate(part.happened):
            if sync is not None:
                self._write(cast("ev.Event", event), part.declared.get(number))
            elif self._tell is not None:
                self._tell(cast("ev.Progress", event))

    def _rehearse_on(self, answer: cmd.Evaluated | None = None) -> None:
        """Take up the next part of the record, ask for it, or note what lies beyond all of it."""
        assert self._rehearsing is not None
        try:
            part = self._rehearsing.send(answer)
        except StopIteration as done:
            self._beyond = done.value
            return
        if isinstance(part, rehearsal.Rehearsal):
            self._rehearsal = part
        else:
            self._asked = part
            self._host.evaluate(part)

    def _go_beyond(self, beyond: Sequence[cmd.Command]) -> None:
        self._gone_through.clear()
        self._beyond = None
        if self._rehearsing is None:
            return  # nothing was recorded before
        carried_out, stopped = rehearsal.to_carry_out(beyond, self.machine.run, self._cancel)
        self._todo.extend(carried_out)
        for one in stopped:
            self._jobs.append(partial(self.stopped, one.path, one.attempt))

    # -- what the loop and the line ask for -----------------------------------------------------

    def receive(self, happened: ev.Event | cmd.Report) -> None:
        """Give the machine what happened, and queue the commands that it returns."""
        self._loop.receive(happened)

    def record(self, event: ev.Event, *, sync: bool = False) -> None:
        """Queue an event to be recorded, behind the commands queued already.

        ``sync``: on disk at once.
        """
        self._todo.append(cmd.Record(event, sync))

    def queue_job(self, job: Job) -> None:
        """Run it behind what has come in by now."""
        self._jobs.append(job)

    def _stamp(self, event: ev.Event) -> float:
        self._seq += 1
        return ev.stamp(event, self.run_id, self._seq, self.now()).at

    def _record(self, command: cmd.Record) -> ev.Event:
        self._stamp(command.event)
        return self._write(command.event)

    def _write(
        self, event: ev.Event, declared: Callable[[], value_texts.Types] | None = None
    ) -> ev.Event:
        """Record the event, with its value as text if need be, or a failure; returns that."""
        try:
            self._keep(event)
        except OutputNotSerializable as error:
            types = declared or value_texts.declared_in(self.machine, event)
            event, _ = value_texts.event_in_its_place(event, self.machine, types, error, self._keep)
        return event

    def _show(self, progress: ev.Progress) -> None:
        if self._tell is not None:
            self._tell(ev.stamp(progress, self.run_id, self._seq, self.now()))

    def _carry_out(self, command: cmd.Command) -> None:
        match command:
            case cmd.Wait():
                self.timers.wait(command.due, command.token)
            case cmd.AskPredicate() | cmd.AskFallback() | cmd.FindStages() | cmd.Ask():
                self._begin(command)
            case cmd.Perform() | cmd.Queue() | cmd.Claim() | cmd.Undo():
                self._begin(command)
            case cmd.Cancel() | cmd.BreakOff():
                self._stop(command.path, again=isinstance(command, cmd.BreakOff))
            case cmd.Release() | cmd.Unclaim():
                self._give_back(command)
            case cmd.PauseAdmission():
                self.line.pause(on=command.on or self._drains is not None)
            case cmd.EndDrive():
                self._interrupt(command.reason)
            case cmd.Changed():
                self._end_drive(command.reason)
            case cmd.Finish():
                self.result = command.result
            case cmd.Record() | cmd.Tell() | cmd.Pull():
                pass  # the loop carries these out
            case _:
                assert_never(command)

    def _begin(self, command: cmd.Perform | cmd.Queue | cmd.Claim | cmd.Undo | Question) -> None:
        """Begin it, unless the drive is ending: then the next drive does."""
        if self.ends is not None:
            return
        match command:
            case cmd.AskPredicate() | cmd.AskFallback() | cmd.FindStages():
                self._in_flight(command, "evaluation")
                self._host.evaluate(command)
            case cmd.Perform() | cmd.Queue():
                self._launch(command)
            case cmd.Ask():
                self._ask(command)
            case cmd.Undo():
                self._in_flight(command, "rollback")
                self._host.undo(command)
            case cmd.Claim():
                self._claim(command)
            case _:
                assert_never(command)

    def _launch(self, command: cmd.Perform | cmd.Queue) -> None:
        self.line.begin(command)

    def _claim(self, command: cmd.Claim) -> None:
        """Grant it: claims are of one machine, and no other run is here."""
        error = NotPortable(command.path, "claim", ONE_MACHINE) if self._spread else None
        self.receive(cmd.Evaluated(command.path, error=error, at=self.now()))

    def _give_back(self, command: cmd.Release | cmd.Unclaim) -> None:
        if isinstance(command, cmd.Release):
            self.line.give_up(command.path)

    def _in_flight(self, command: cmd.Perform | cmd.Undo | Question, kind: Kind) -> None:
        self.flights[command.path, kind] = self.flight_type(command.path, kind, command)

    def _ask(self, question: cmd.Ask) -> None:
        if self._handles_gates:
            self._dismiss(question.path)  # it still answers the gate's last opening
            self._in_flight(question, "gate")
            self._handled.add(question.path)
            self._host.evaluate(question)

    def _start(self, command: cmd.Perform) -> None:
        """Begin an attempt, unless the drive is ending, or is to end when nothing is in flight."""
        if self.ends is None and self._when_idle is not None and not self.flights:
            self._end_drive(self._when_idle)
        if self.ends is None:
            self._in_flight(command, "attempt")
            self._host.perform(command)

    def _pull(self, path: str) -> None:
        """Give the host a turn before a group begins more members, once the window has room."""
        if len(self.flights) >= self._window:
            self._pulls.append(path)
        else:
            self._host.turn(path)

    def _go_on(self) -> None:
        """Let a group go on that waited for room in the window; end a drive that has drained."""
        if self._pulls and len(self.flights) < self._window:
            self._host.turn(self._pulls.popleft())
        self._end_if_drained()

    # -- how things end -------------------------------------------------------------------------

    def remove_flight(self, path: str, kind: Kind) -> InFlight | None:
        """Note that something in flight has ended, or that its end counts no more; returns it."""
        flight: InFlight | None = self.flights.pop((path, kind), None)
        if flight is not None:
            flight.finished = True
            if self._pulls or self._drains is not None:
                self._jobs.append(self._go_on)
            if self.ends is not None and not self.flights:
                self._jobs.append(self._close)
        return flight

    def _finished(self, path: str, end: End) -> None:
        flight = self.remove_flight(path, "attempt")
        if flight is None:
            return
        self.line.release(path)
        command: cmd.Perform = flight.command
        if flight.stopping:
            self.halted(flight, command, end)
        else:
            self._attempt_over(command, end)

    def halted(self, flight: InFlight, command: cmd.Perform, end: End) -> None:
        """Record an attempt that was stopped, whatever it ended in, as that or as timed out."""
        known = end.launch if isinstance(end, cmd.Stopped) else cmd.NOTHING_KNOWN
        abandoned = isinstance(end, cmd.Stopped) and end.abandoned
        if flight.timed_out:
            error = time_bound(command, self.now())[1]
            self.record(failure_event(command, error, known.total, abandoned=abandoned))
        else:
            self.stopped(command.path, command.attempt, known, abandoned=abandoned)

    def _overdue(self, path: str, known: cmd.BrokenOff, *, abandoned: bool) -> None:
        flight = self.flights.get((path, "attempt"))
        if flight is not None and isinstance(flight.command, cmd.Perform):
            if not flight.stopping:
                flight.stopping = flight.timed_out = True
            self._finished(path, cmd.Stopped(path, flight.command.attempt, abandoned, known))

    def _attempt_over(self, command: cmd.Perform, end: End) -> None:
        match end:
            case ev.StepCompleted() | ev.AttemptFailed():
                modifiers = command.step.modifiers
                self.record(end, sync=modifiers.checkpoint or modifiers.once)
            case cmd.LaunchFailed():
                self.receive(end)
            case cmd.Stopped():
                error = CancelledFromWithin(command.path)
                self.record(failure_event(command, error, end.launch.total))
            case _:
                assert_never(end)

    def _interrupted(self, path: str, reason: str, usage: Usage | None) -> None:
        flight = self.remove_flight(path, "attempt")
        if flight is not None:
            self.line.release(path)
            self.record(ev.StepInterrupted(path, reason, usage))
            if self.ends is None:
                self._end_drive(reason)

    def _noticed(self, event: ev.Event) -> None:
        if getattr(event, "path", "") in self.machine.run.nodes:
            self.record(event)

    def _undone(self, path: str, end: ev.RollbackCompleted) -> None:
        flight = self.remove_flight(path, "rollback")
        if flight is None or (self.ends is not None and end.error is not None):
            return  # it was broken off, and the next drive runs it again
        command = flight.command
        assert isinstance(command, cmd.Undo)
        if flight.timed_out:
            end = rollback_event(path, StepTimeout(path, command.rollback.timeout_s))
        self.record(end)

    def _answered(self, question: cmd.Ask, value: Any, error: BaseException | None) -> None:
        path, run = question.path, self.machine.run
        if self.remove_flight(path, "gate") is None or path in run.answered:
            return
        gate = run.gates.get(path)
        if gate is None:
            return
        if error is None:
            try:
                answer, by = value
                self._happened(ev.GateAnswered(path, answers.accept_answer(gate, answer), by))
            except HandrailError as refused:
                error = refused
        if error is not None:
            self.receive(cmd.GateRefused(path, error, at=self.now()))

    def _happened(self, event: ev.Event) -> None:
        """Record a message, behind what was due before it was sent."""
        if self._fire_timers(event.at):
            self._jobs.appendleft(partial(self._happened, event))
            return
        run = self.machine.run
        if run.root.phase is Phase.ENDING or self.result is not None:
            return
        if isinstance(event, ev.GateAnswered):
            if event.path not in run.gates or event.path in run.answered:
                return
            waits.accept_no_other_answer(run, event)
        self.record(event)

    def _dismiss_closed(self) -> None:
        """Stop the flights that were to have a gate answered that is closed now."""
        gates = self.machine.run.gates
        for path in [path for path in self._handled if path not in gates]:
            self._dismiss(path)

    def _dismiss(self, path: str) -> None:
        self._handled.discard(path)
        flight = self.remove_flight(path, "gate")
        if flight is not None:
            self._halt(flight)

    # -- stopping -------------------------------------------------------------------------------

    def _stop(self, path: str, *, again: bool) -> None:
        """Stop what is in flight or queued at a path; ``again``: another launch takes its place."""
        queued = self.line.keep(path) if again else self.line.leave(path)
        if queued is not None:
            self.stopped(path, queued.attempt)
            self.line.admit()
        for kind in ("claim", "attempt", "evaluation"):
            flight = self.flights.get((path, kind))
            if flight is not None:
                self._halt(flight)

    def _halt(self, flight: InFlight) -> None:
        if not flight.stopping:
            flight.stopping = True
            self._host.stop(flight)

    def stopped(
        self,
        path: str,
        attempt: int,
        known: cmd.BrokenOff = cmd.NOTHING_KNOWN,
        *,
        abandoned: bool = False,
    ) -> None:
        """Report a stopped attempt to the machine; as interrupted, if the drive is ending."""
        if self.ends is not None:
            self.record(ev.StepInterrupted(path, self.ends, known.own))
        else:
            self.receive(cmd.Stopped(path, attempt, abandoned, known, at=self.now()))

    def _end_if_drained(self) -> None:
        if self._drains is not None and not self.flights:
            self._end_drive(self._drains)

    def _interrupt(self, reason: str) -> None:
        """End the drive as if the process were ending."""
        self._end_drive(reason)

    def _end_drive(self, reason: str) -> None:
        if self.ends is None and self.result is None:
            self.ends = reason
            for path in list(self.line.waiting):
                self.line.leave(path)
            for (path, kind), flight in list(self.flights.items()):
                if kind == "gate":
                    flight.finished = True
                    del self.flights[path, kind]
                self._halt(flight)
            if not self.flights:
                self._jobs.append(self._close)

    def _close(self) -> None:
        if self.result is None:
            self.receive(cmd.CloseRun(self.ends or "", at=self.now()))

    # -- time -----------------------------------------------------------------------------------

    def _fire_due(self) -> None:
        if self._fire_timers(self.now()):
            self._jobs.appendleft(self._fire_due)

    def _fire_timers(self, by: float) -> bool:
        """Fire the timers of the next moment that is due by this time; True if any was."""
        fired = False
        for what in self.timers.moment(min(by, self.now())):
            self._fire(what)
            fired = True
        return fired

    def _fire(self, what: int | InFlight | Job) -> None:
        match what:
            case int():
                node, _ = self.machine.run.timers[what]
                self.receive(cmd.TimerFired(node.path, what, at=self.now()))
            case InFlight():
                what.timed_out = True
                self._halt(what)
            case _:
                what()

    def _set_alarm(self) -> None:
        due = self.timers.next_due()
        if due != self._alarm:
            self._alarm = due
            self._host.alarm(due)

    def _check(self) -> None:
        """Raise if nothing can happen any more, which no user can cause."""
        at_work = self.flights or self.line.waiting or self._pulls
        if not at_work and not self.machine.waits and self._alarm is None:
            raise CoreStalled


def _within(limits: Limits, window: int | None) -> Limits:
    """The limits, with at most ``window`` attempts at once."""
    most = limits.max_concurrency
    if window is None or (most is not None and most <= window):
        return limits
    return attrs.evolve(limits, max_concurrency=window)
