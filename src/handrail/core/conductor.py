"""Drives one run for any host: what begins, what is recorded, and when the next thing is due.

Theory of operation
===================

The conductor carries out the machine's commands, and performs nothing itself. A *host* has a
conductor, and performs the attempts: the workflow code of a cluster, a test that supplies each end
by hand, or the driver of this process (``engine.driver``). A host implements the ``Host`` Protocol,
seven methods. It reports the ends of what it began in any order, by ``finished``, ``evaluated``,
``undone``, ``tick`` and ``turned``; ``happened`` takes what people send. These methods only queue
their report. ``proceed`` then does all that follows, by the one pump of commands
(``core.command_loop``); ``pump`` is the same for a host that has it wait for nothing.

Everything here is a function of the calls and of ``Host.now``: there is no clock, no task, no
random number. So a host that keeps its own history can lose the conductor at any time, and rebuild
it by the same calls.

This module does the parts of a drive that are the same for every host. Waits, deadlines and rates
share one heap and one alarm.
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
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, assert_never, cast

import attrs

from handrail.core import commands as cmd
from handrail.core.admission import Admission
from handrail.core.attempt_ends import failure_event, rollback_event, time_bound
from handrail.core.command_loop import MAX_BATCH, Append, CommandLoop, at_once
from handrail.core.line import Line, MakeLine
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
from handrail.ports.journal import GroupAppend, SyncLater

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

    def turn(self, path: str, /) -> Awaitable[None] | None:
        """Let other work have a turn, then call ``turned`` with this: a group has more to begin.

        The awaitable, if any, is awaited before anything else is carried out.
        """


ONE_MACHINE = "what is held is held on one machine, and the next step may run on another"


class StepClaims:
    """What acquires the claims of steps before they begin. Where no other run is, there is nothing
    to acquire; and where attempts are ``spread`` over machines, no composite can hold a claim.
    """

    def __init__(self, conductor: Conductor, *, spread: bool = False) -> None:
        self.held: dict[str, Any] = {}
        """What is held, by the path of the step that holds it."""
        self._conductor = conductor
        self._spread = spread

    def launch(self, command: cmd.Perform | cmd.Queue) -> None:
        """Begin an attempt or launch, once it has the claims that it wants."""
        self._conductor.line.begin(command)

    def claim(self, command: cmd.Claim) -> None:
        """Acquire the claims of a composite; the machine then receives ``Evaluated``."""
        error = NotPortable(command.path, "claim", ONE_MACHINE) if self._spread else None
        self._conductor.receive(cmd.Evaluated(command.path, error=error, at=self._conductor.now()))

    def withdraw(self, path: str, *, again: bool) -> cmd.Perform | cmd.Queue | None:
        """Take back what has its claims and has not begun, if anything has. ``again``: another
        launch replaces it, and keeps its claims; so does one that waits for them, and its place.
        """

    def give_back(self, path: str) -> None:
        """Release the claims of the step at this path, and withdraw its request for any."""


GATHER_ABOVE = 8
"""With at most this many flights, each end is acted on before the next one is recorded."""


class EndOfFlight(partial[None]):
    """A job that takes the end of a flight; several may be recorded in one transaction."""


class Conductor:
    """Drives one run for a host. Mutable; lives as long as the drive.

    ``record`` keeps an event, which is numbered by then. If it raises ``OutputNotSerializable``,
    the value is recorded as text, or the step fails. ``record_all``, if there is one, keeps several
    in one transaction. ``show`` then receives the event, and ``tell`` progress. ``seq`` is the
    number of the last recorded event, ``last_at`` its time. ``limits`` bound what is at work at
    once and what begins in a minute (default: the run's), ``processes`` the agents and commands
    among it; at most ``window`` attempts are in flight. ``handles_gates``: the host answers
    questions to people. ``suspends``: a drive whose process is to end suspends its run; else the
    run is cancelled. ``make_flight`` makes the entry for what is in flight.
    """

    def __init__(
        self,
        machine: Machine,
        host: Host,
        *,
        record: Append,
        record_all: GroupAppend | None = None,
        sync_later: SyncLater | None = None,
        has_no_effect: Callable[[cmd.Perform], bool] = lambda _: False,
        show: Callable[[ev.Event], object] = lambda _: None,
        tell: Callable[[ev.Progress], None] | None = None,
        seq: int = 0,
        limits: Limits | None = None,
        window: int | None = None,
        last_at: float = -math.inf,
        handles_gates: bool = False,
        suspends: bool = True,
        processes: int | None = None,
        make_line: MakeLine = Line,
        make_flight: Callable[[str, str, Any], InFlight] = InFlight,
    ) -> None:
        self.machine, self.run_id = machine, machine.run.setting.run_id
        self.result: WorkflowResult[Any] | None = None
        self.ends: str | None = None
        """Why the drive ends before its run does, if so: nothing begins any more."""
        self.timers = Timers[Any](machine.run.timers)
        self.flights: dict[tuple[str, str], Any] = {}
        """What the host has begun and not ended, by path and kind."""
        self.jobs: deque[Job] = deque()
        """What has come in and is to be taken up, in order."""
        self.claims = StepClaims(self)
        self.perform_here: Callable[[cmd.Perform], Awaitable[ev.Event | None]] | None = None
        """Performs an attempt that is the only thing that can happen next, while all else waits."""
        self.stops_in_time = False
        """True if ``perform_here`` stops an attempt whose time is over."""
        self.answer_here: Callable[[cmd.AskPredicate], cmd.Evaluated | None] | None = None
        """Answers a predicate at once; None if the host has begun to await the answer."""
        self.now = host.now
        self._host, self._make_flight = host, make_flight
        self._keep, self._shown, self._tell = record, show, tell or (lambda _: None)
        self._shows, self._suspends = tell is not None, suspends
        self._handles_gates, self._gathers = handles_gates, record_all is not None
        self._loop = CommandLoop(
            machine,
            seq=seq,
            now=host.now,
            append=record,
            append_all=record_all,
            sync_later=sync_later,
            has_no_effect=has_no_effect,
            show=show,
            tell=self.show_progress,
            carry_out=self._carry_out,
            pull=self._pull,
        )
        self.todo: deque[Any] = self._loop.todo
        """The commands to carry out, in order."""
        self.receive = self._loop.receive
        self._window = math.inf if window is None else window
        limits = machine.run.limits if limits is None else limits
        admission = Admission(_within(limits, window), last_at, processes=processes)
        self.line = make_line(self, admission, self._start)
        self._pulls: deque[str] = deque()
        """Groups that begin no more members until the window has room."""
        self._rehearsing: rehearsal.Rehearsing | None = None
        self._rehearsal: rehearsal.Rehearsal | None = None
        """The part of the record that ``_rehearsing`` leads to now."""
        self._elsewhere: tuple[Collection[object], ...]
        """What can lead on beside an attempt, if there is anything in one of these."""
        self.gone_through: list[rehearsal.Rehearsal] = []
        """The parts gone through, which are written once all of the record is."""
        self._beyond: Sequence[cmd.Command] | None = None
        """What lies beyond the record, once that is gone through, until it is carried out."""
        self.asked: rehearsal.RecordedQuestion | None = None
        """The question of ``_rehearsing`` that waits for its answer."""
        self.late = deque[ev.GateAnswered | ev.SignalReceived]()
        """Messages that came behind timers which have not fired yet."""
        self._handled: set[str] = set()
        """Gates that the host is asked to have answered."""
        self._cancel: str | None = None
        self._when_idle: str | None = None
        self._drains: str | None = None
        self._is_interrupted, self._alarm = False, cast("float | None", None)

    # -- from the host --------------------------------------------------------------------------

    def begin(
        self, first: ev.Event, known: Sequence[ev.Event] = (), cancel: str | None = None
    ) -> None:
        """Begin the drive with its first event; ``proceed`` does the work.

        ``known`` events are in the machine's record, and are recorded next. ``cancel`` says why the
        run only unwinds, if it does.
        """
        run, line = self.machine.run, self.line
        self._loop.answer_here = self.answer_here
        queued = (self.jobs, line.waiting, line.holders, line.kept, self.claims.held)
        waiting = (run.timers, run.gates, run.listeners, run.work_with_room)
        self._elsewhere = (*queued, self.flights, *waiting)
        if self.perform_here is not None and line.free:
            self._loop.here = self._begin_here
        if run.recorded.is_empty:
            self.record(first)
            return
        self._cancel = cancel
        self._rehearsing = rehearsal.rehearse(
            self.machine,
            first,
            self.now,
            seq=self._loop.seq,
            known=known,
            shows=self._shows,
        )
        self._rehearse_on()

    def pump(self, most: float = math.inf) -> bool:
        """``proceed`` for a host that has it wait for nothing.

        Raises:
            ReplayMismatch: recorded steps have changed; nothing was recorded, unless ``late``.
            CoreStalled: the run can neither continue nor end.
        """
        is_done = at_once(self.proceed(most))
        if is_done and self.result is not None and self.machine.run.changes:
            raise changes.mismatch_of(self.machine.run, late=True)
        return is_done

    async def proceed(self, most: float = math.inf) -> bool:
        """Do all that follows from the calls so far; False if it takes more than ``most`` commands.

        The next call then does the rest.

        Raises:
            ReplayMismatch: recorded steps have changed; nothing was recorded.
            CoreStalled: the run can neither continue nor end.
        """
        # long road of conductor.Conductor._take_ends
        if not await self.rehearse(most):
            return False
        if self.asked is not None and self.ends is None:
            return True  # nothing else counts before the record is gone through
        if self._beyond is not None and self.ends is None:  # else it ended before it went on
            for _ in self.write_out():
                pass
        run, jobs = self._loop.run, self.jobs
        while self.result is None:
            if not await run(most):
                return False
            if not jobs:
                self._dismiss_closed()
            if not jobs:
                break
            jobs.popleft()()
            if self._gathers and len(self.flights) > GATHER_ABOVE:
                self._take_ends()
        if self.result is None:
            self._set_alarm()
            self._check()
        return True

    def _take_ends(self) -> None:
        """Take the ends of flights that come next, which are then recorded in one transaction."""
        # fast road of conductor.Conductor.proceed
        for _ in range(MAX_BATCH):
            if not self.jobs or type(self.jobs[0]) is not EndOfFlight:
                break
            self.jobs.popleft()()

    def finished(self, path: str, end: End) -> None:
        """Report how an attempt ended; with ``Stopped`` if it was stopped, by anyone."""
        self.jobs.append(partial(self.on_finished, path, end))

    def overdue(
        self, path: str, known: cmd.BrokenOff = cmd.NOTHING_KNOWN, *, abandoned: bool = False
    ) -> None:
        """Report that the host stopped an attempt because its time was over."""
        self.jobs.append(partial(self._on_overdue, path, known, abandoned=abandoned))

    def interrupted(self, path: str, reason: str, usage: Usage | None = None) -> None:
        """Report that an attempt broke off because its process is to end; it runs again later."""
        self.jobs.append(partial(self._on_interrupted, path, reason, usage))

    def record_now(self, event: ev.OfClaims | ev.AgentSessionStarted | ev.SandboxDenied) -> None:
        """Record a notice from within an attempt, ahead of what is queued; unless it does not know
        yet of its stop.
        """
        if event.path in self.machine.run.nodes:
            self._loop.record_now(event)

    def evaluated(
        self, question: Question, value: Any = None, error: BaseException | None = None
    ) -> None:
        """Report the answer to a question; of a gate: the answer and who gave it."""
        if isinstance(question, cmd.Ask):
            self.jobs.append(partial(self._on_answered, question, value, error))
        elif question is self.asked:
            self.asked = None
            self._rehearse_on(cmd.Evaluated(question.path, value, error, self.now()))
        elif self.remove_flight(question.path, "evaluation") and self.ends is None:
            # else the next drive asks again
            self.receive(cmd.Evaluated(question.path, value, error, self.now()))

    def refused(self, path: str, error: BaseException) -> None:
        """Report that whoever was to answer a gate elsewhere could not."""
        self.jobs.append(lambda: self.receive(cmd.GateRefused(path, error, at=self.now())))

    def undone(self, path: str, end: ev.RollbackCompleted) -> None:
        """Report how a rollback ended."""
        self.jobs.append(partial(self._on_undone, path, end))

    def tick(self) -> None:
        """Report that the time of the alarm has come."""
        self._alarm = None
        self.jobs.append(self._fire_due)

    def turned(self, path: str) -> None:
        """Report that other work has had its turn."""
        self.jobs.append(lambda: self.receive(cmd.Pulled(path, at=self.now())))

    def happened(self, event: ev.Event) -> None:
        """Report a message: a valid answer, a signal, a request to cancel, steering."""
        self.jobs.append(partial(self._on_happened, event))

    def limit(self, path: str, kind: Kind, left_s: float) -> None:
        """Stop what is in flight after ``left_s`` seconds, and fail it as timed out.

        For a host that does not measure time where it performs.
        """
        flight = self.flights.get((path, kind))
        if flight is not None and left_s < math.inf:
            self.timers.at(self.now() + max(0.0, left_s), flight)

    def end(self, reason: str) -> None:
        """End the drive, and not the run: stop what is in flight, then suspend."""
        self.jobs.append(partial(self.end_drive, reason))

    def end_when_idle(self, reason: str) -> None:
        """End the drive when an attempt is about to begin while nothing is in flight."""
        self._when_idle = reason

    def drain(self, reason: str) -> None:
        """Begin nothing more, and end the drive once all that is in flight has ended."""
        self._drains = reason
        self.line.pause(on=True)
        self.jobs.append(self._end_if_drained)

    # -- its state ------------------------------------------------------------------------------

    @property
    def waits_for_people(self) -> bool:
        """True if only a person's action, or a deadline for it, lets the run continue."""
        if self.result is not None or self._rehearsal is not None or self.asked is not None:
            return False
        return self.nothing_is_at_work and not self.waits_for_time()

    def waits_for_time(self, within_s: float = math.inf) -> bool:
        """True if a timer is set for which a process waits, rather than suspend, for so long."""
        run, latest = self.machine.run, self.now() + within_s
        return any(
            waits.process_waits_for(run, token) and due <= latest
            for due, token in self.timers.waits()
        )

    @property
    def nothing_is_at_work(self) -> bool:
        """True if nothing is in flight, and in line only what a pause holds back."""
        if self.line.waiting and self.machine.run.paused is None:
            return False
        return not self.flights

    # -- rehearsing -----------------------------------------------------------------------------

    async def rehearse(self, most: float = math.inf) -> bool:
        """Rehearse the record, and the parts that answers lead back into.

        True once that is done, or an answer is pending; False if it takes more than ``most``
        commands.
        """
        while (part := self._rehearsal) is not None:
            if not await part.run(most):
                return False
            self._loop.seq = part.seq
            run = self.machine.run
            if run.changes and run.rehearses:
                self.gone_through.clear()
                raise changes.mismatch_of(run)
            self.gone_through.append(part)
            self._rehearsal = None
            self._rehearse_on()
        return True

    def write_out(self) -> Iterator[Awaitable[None] | None]:
        """Record what the rehearsal found, and show it, in order; yields what each write waits for.

        Then take up what lies beyond the record, if all of it was gone through. A value that cannot
        be recorded is recorded as text.
        """
        parts, self.gone_through = self.gone_through, []
        for part in parts:
            yield from self._write_part(part)
        self._go_beyond()

    def _write_part(self, part: rehearsal.Rehearsal) -> Iterator[Awaitable[None] | None]:
        for number, (event, sync) in enumerate(part.happened):
            if sync is None:
                yield None
                self._tell(cast("ev.Progress", event))
                continue
            known = cast("ev.Event", event)
            try:
                pending = self._keep(known, sync=sync)
            except OutputNotSerializable as error:
                types, keep = part.declared.get(number, tuple), partial(self._keep, sync=sync)
                known, pending = value_texts.event_in_its_place(
                    known, self.machine, types, error, keep
                )
            yield pending
            self._shown(known)

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
            self.asked = part
            self._host.evaluate(part)

    def _go_beyond(self) -> None:
        beyond, self._beyond = self._beyond, None
        if beyond is None:
            return  # nothing was recorded before, or not all of it was gone through
        carried_out, stopped = rehearsal.to_carry_out(beyond, self.machine.run, self._cancel)
        self.todo.extend(carried_out)
        for command in stopped:
            self.jobs.append(partial(self.report_stop, command.path, command.attempt))

    # -- what the loop and the line ask for -----------------------------------------------------

    def record(self, event: ev.Event, *, sync: bool = False) -> None:
        """Queue an event to be recorded, behind the commands queued already.

        ``sync``: on disk at once.
        """
        self.todo.append(cmd.Record(event, sync))

    def queue_job(self, job: Job) -> None:
        """Run it behind what has come in by now."""
        self.jobs.append(job)

    def show_progress(self, progress: ev.Progress) -> None:
        """Show progress, with the number of the last event; behind what is not shown yet."""
        if self._loop.ahead:
            self.todo.append(cmd.Tell(progress))
            return
        self._tell(ev.stamp(progress, self.run_id, self._loop.seq, self.now()))

    def _begin_here(self, command: cmd.Perform) -> Awaitable[ev.Event | None] | None:
        """The attempt, if nothing else can happen before it ends."""
        # fast road of conductor.Conductor._carry_out
        modifiers = command.step.modifiers
        if (
            any(self._elsewhere)
            or self.ends is not None
            or (modifiers.timeout_s is not None and not self.stops_in_time)
            or command.deadline is not None
            or command.wanted is not None
        ):
            return None
        assert self.perform_here is not None
        return self.perform_here(command)

    def _carry_out(self, command: cmd.Command) -> None:  # noqa: C901, PLR0912  # one arm a command
        match command:
            case cmd.Perform() | cmd.Queue():  # first: in a drive most commands are this
                # long road of conductor.Conductor._begin_here
                if self.ends is None:  # else the next drive begins it
                    self.claims.launch(command)
            case cmd.Wait():
                self.timers.wait(command.due, command.token)
            case cmd.AskPredicate() | cmd.AskFallback() | cmd.FindStages() | cmd.Ask():
                self._begin(command)
            case cmd.Claim() | cmd.Undo():
                self._begin(command)
            case cmd.Cancel() | cmd.BreakOff():
                self._carry_out_stop(command.path, again=isinstance(command, cmd.BreakOff))
            case cmd.Release() | cmd.Unclaim():
                if isinstance(command, cmd.Release):
                    self.line.give_up(command.path)
                self.claims.give_back(command.path)
            case cmd.PauseAdmission():
                self.line.pause(on=command.on or self._drains is not None)
            case cmd.EndDrive():
                self.interrupt(command.reason)
            case cmd.Changed():
                self.end_drive(command.reason)
            case cmd.Finish():
                self.result = command.result
            case cmd.Record() | cmd.Tell() | cmd.Pull():
                pass  # the loop carries these out
            case _:
                assert_never(command)

    def _begin(self, command: cmd.Claim | cmd.Undo | Question) -> None:
        """Begin it, unless the drive is ending: then the next drive does."""
        if self.ends is not None:
            return
        match command:
            case cmd.AskPredicate() | cmd.AskFallback() | cmd.FindStages():
                self._in_flight(command, "evaluation")
                self._host.evaluate(command)
            case cmd.Ask():
                self._ask(command)
            case cmd.Undo():
                self._in_flight(command, "rollback")
                self._host.undo(command)
            case cmd.Claim():
                self.claims.claim(command)
            case _:
                assert_never(command)

    def _in_flight(self, command: cmd.Perform | cmd.Undo | Question, kind: Kind) -> None:
        self.flights[command.path, kind] = self._make_flight(command.path, kind, command)

    def _ask(self, question: cmd.Ask) -> None:
        if self._handles_gates:
            self._dismiss(question.path)  # it still answers the gate's last opening
            self._in_flight(question, "gate")
            self._handled.add(question.path)
            self._host.evaluate(question)

    def _start(self, command: cmd.Perform) -> None:
        """Begin an attempt, unless the drive is ending, or is to end when nothing is in flight."""
        if self.ends is None and self._when_idle is not None and not self.flights:
            self.end_drive(self._when_idle)
        if self.ends is None:
            self._in_flight(command, "attempt")
            self._host.perform(command)

    def _pull(self, path: str) -> Awaitable[None] | None:
        """Give the host a turn before a group begins more members, once the window has room."""
        if len(self.flights) < self._window:
            return self._host.turn(path)
        self._pulls.append(path)
        return None

    def _go_on(self) -> None:
        """Let a group go on that waited for room in the window; end a drive that has drained."""
        if self._pulls and len(self.flights) < self._window:
            self.todo.append(cmd.Pull(self._pulls.popleft()))
        self._end_if_drained()

    # -- how things end -------------------------------------------------------------------------

    def remove_flight(self, path: str, kind: Kind) -> InFlight | None:
        """Note that something in flight has ended, or that its end counts no more; returns it."""
        flight: InFlight | None = self.flights.pop((path, kind), None)
        if flight is not None:
            flight.finished = True
            if self._pulls or self._drains is not None:
                self.jobs.append(self._go_on)
            if self.ends is not None and not self.flights:
                self.jobs.append(self._close)
        return flight

    def on_finished(self, path: str, end: End) -> None:
        """``finished``, at once."""
        flight = self.remove_flight(path, "attempt")
        if flight is None:
            return
        self.line.release(path)
        command: cmd.Perform = flight.command
        if flight.stopping:
            self.on_stopped(flight, command, end)
        else:
            self._attempt_over(command, end)

    def on_stopped(self, flight: InFlight, command: cmd.Perform, end: End) -> None:
        """Record an attempt that was stopped, whatever it ended in, as that or as timed out."""
        known = end.launch if isinstance(end, cmd.Stopped) else cmd.NOTHING_KNOWN
        abandoned = isinstance(end, cmd.Stopped) and end.abandoned
        if flight.timed_out:
            error = time_bound(command, self.now())[1]
            self.record(failure_event(command, error, known.total, abandoned=abandoned))
        else:
            self.report_stop(command.path, command.attempt, known, abandoned=abandoned)

    def _on_overdue(self, path: str, known: cmd.BrokenOff, *, abandoned: bool) -> None:
        flight = self.flights.get((path, "attempt"))
        if flight is not None and isinstance(flight.command, cmd.Perform):
            if not flight.stopping:
                flight.stopping = flight.timed_out = True
            self.on_finished(path, cmd.Stopped(path, flight.command.attempt, abandoned, known))

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

    def _on_interrupted(self, path: str, reason: str, usage: Usage | None) -> None:
        flight = self.remove_flight(path, "attempt")
        if flight is not None:
            self.line.release(path)
            self.record(ev.StepInterrupted(path, reason, usage))
            if self.ends is None:
                self.end_drive(reason)

    def _on_undone(self, path: str, end: ev.RollbackCompleted) -> None:
        flight = self.remove_flight(path, "rollback")
        if flight is None or (self.ends is not None and end.error is not None):
            return  # it was broken off, and the next drive runs it again
        command = flight.command
        assert isinstance(command, cmd.Undo)
        if flight.timed_out:
            end = rollback_event(path, StepTimeout(path, command.rollback.timeout_s))
        self.record(end)

    def _on_answered(self, question: cmd.Ask, value: Any, error: BaseException | None) -> None:
        path, run = question.path, self.machine.run
        if self.remove_flight(path, "gate") is None or path in run.answered:
            return
        gate = run.gates.get(path)
        if gate is None:
            return
        if error is None:
            try:
                answer, by = value
                self._on_happened(ev.GateAnswered(path, answers.accept_answer(gate, answer), by))
            except HandrailError as refused:
                error = refused
        if error is not None:
            self.receive(cmd.GateRefused(path, error, at=self.now()))

    def _on_happened(self, event: ev.Event) -> None:
        gates, answered = self.machine.run.gates, self.machine.run.answered
        if self.takes_no_message or (
            isinstance(event, ev.GateAnswered)
            and (event.path not in gates or event.path in answered)
        ):
            return
        self.take_message(event)
        if self.late:
            self.jobs.append(self._fire_due)

    @property
    def takes_no_message(self) -> bool:
        """True once the run is ending: messages are left for another drive."""
        return self.machine.run.root.phase is Phase.ENDING or self.result is not None

    def take_message(self, event: ev.Event) -> None:
        """Record a message, behind what was due before it was sent."""
        if isinstance(event, ev.GateAnswered):
            waits.accept_no_other_answer(self.machine.run, event)
        if isinstance(event, (ev.GateAnswered, ev.SignalReceived)):
            due, by = self.timers.next_due(), min(event.at, self.now())
            if self.late or (due is not None and due < by):
                self.late.append(event)
                self.timers.at(by, self._record_late)
                return
        while self.late:  # a resume reads on behind the last recorded message
            self._record_late()
        self.record(event)

    def _record_late(self) -> None:
        if not self.late:
            return  # it was recorded ahead of another
        event = self.late.popleft()
        if not isinstance(event, ev.GateAnswered) or event.path in self.machine.run.gates:
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
            self._request_stop(flight)

    # -- stopping -------------------------------------------------------------------------------

    def _carry_out_stop(self, path: str, *, again: bool) -> None:
        """Stop what is in flight or queued at a path; ``again``: another launch takes its place."""
        withdrawn = self.claims.withdraw(path, again=again)
        if withdrawn is not None:
            self.report_stop(path, withdrawn.attempt)
            return
        if path in self.line.waiting and not again:
            self.claims.give_back(path)
        queued = self.line.keep(path) if again else self.line.leave(path)
        if queued is not None:
            self.report_stop(path, queued.attempt)
            self.line.admit()
        for kind in ("claim", "attempt", "evaluation"):
            flight = self.flights.get((path, kind))
            if flight is not None:
                self._request_stop(flight)

    def _request_stop(self, flight: InFlight) -> None:
        if not flight.stopping:
            flight.stopping = True
            self._host.stop(flight)

    def report_stop(
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
            self.end_drive(self._drains)

    def interrupt(self, reason: str) -> None:
        """End the drive because its process is to end: suspend the run, or cancel it.

        A record that is not gone through yet stays as it is: not even a cancellation is added.
        """
        if self._suspends or self.asked is not None:
            self.end_drive(reason)
        elif not self._is_interrupted and self.ends is None and self.result is None:
            self._is_interrupted = True
            self.jobs.appendleft(lambda: self.record(ev.CancelRequested(reason)))

    def end_drive(self, reason: str) -> None:
        """``end``, at once."""
        if self.ends is None and self.result is None:
            self.ends = reason
            for path in list(self.line.waiting):
                self.line.leave(path)
            for (path, kind), flight in list(self.flights.items()):
                if kind == "gate":
                    flight.finished = True
                    del self.flights[path, kind]
                self._request_stop(flight)
            if not self.flights:
                self.jobs.append(self._close)

    def _close(self) -> None:
        if self.result is None:
            self.receive(cmd.CloseRun(self.ends or "", at=self.now()))

    # -- time -----------------------------------------------------------------------------------

    def _fire_due(self) -> None:
        """Fire the timers of the next moment that is due, then look again."""
        due = self.timers.next_due()
        if due is not None and due <= self.now():
            for what in self.timers.moment(self.now()):
                self.fire(what)
            self.jobs.appendleft(self._fire_due)

    def fire(self, what: int | InFlight | Job) -> None:
        """Report a timer to the machine, stop what is in flight too long, or do a job."""
        match what:
            case int():
                node, _ = self.machine.run.timers[what]
                self.receive(cmd.TimerFired(node.path, what, at=self.now()))
            case InFlight():
                what.timed_out = True
                self._request_stop(what)
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
