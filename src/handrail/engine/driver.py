"""Drives one run: performs the core's commands and writes down what happened.

Theory of operation
===================

The driver has a conductor (``core.conductor``) and is its host. It adds what only this process
has: a journal that may be slow, tasks, threads, and claims.

It is one task with one loop, ``_work``. The conductor's ``proceed`` does all that follows from what
has come in; then the driver waits for the next job or timer, in ``_wait``. Everything that comes
from elsewhere (ends of attempts, answers, signals, a request to cancel) becomes a job: a function
that the conductor calls. So the core is never entered twice.

An event goes one way (``core.command_loop``): numbered, then ``journal.append``, then sinks, then
``machine.receive``. A drive that resumes a run begins with a rehearsal (``core.rehearsal``). The
messages that other processes send to the run are read (``engine.inbox``) once
``engine.message_watch`` finds that there are some.

A flight is something at work outside the loop: an attempt, an evaluation, a rollback, a gate's
handler. Its states:

    in flight   started; the core waits for its end          -> ended | cancelling
    cancelling  asked to stop; a late result does not count   -> ended | abandoned
    abandoned   did not stop within ``ABANDON_AFTER_S``; its end is recorded as cancelled, and
                whatever it still delivers is dropped          -> ended
                (trio cannot abandon async code: the driver waits for the task)
    ended       its outcome was handed to the core, once

The fast road: when an attempt is the only thing that can happen next (nothing in flight, no wait
open), it is performed in the driver's own task, in a context of its own (see
``engine.attempt_tasks``). No task, no scope, no queue. A request to cancel that arrives meanwhile
stops it as it would stop a task.

Running ahead: where a journal syncs each end of a step, and a step has no effect outside of the run
(``.inline()``), its end is stored but not synced. The run goes on ahead of the disk while only such
steps follow (``core.command_loop``). So what a loss of power takes away has had no effect, and runs
again.

Gates and signals cost no task. ``engine.callbacks`` starts evaluations, gate handlers and
rollbacks, and reports their outcomes.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from handrail.core import commands as cmd
from handrail.core.conductor import Conductor, EndOfFlight, Question
from handrail.core.ending import close_bodies
from handrail.core.line import Line, MakeLine
from handrail.core.machine import Machine
from handrail.core.timers import Job
from handrail.engine.attempt_tasks import ATTEMPT, Attempts, idle_wait_s
from handrail.engine.bus import Bus
from handrail.engine.callbacks import Callbacks, Evaluator
from handrail.engine.calls import is_async
from handrail.engine.claiming import CLAIM, Claiming
from handrail.engine.inbox import Inbox, is_urgent
from handrail.engine.loop import Skew
from handrail.engine.parts import Parts
from handrail.engine.perform import Performer
from handrail.engine.tasks import ABANDONED, Flight, tasks
from handrail.errors import HandrailError
from handrail.later import later
from handrail.model import events as ev
from handrail.model.outcome import INTERRUPTIONS, interruption
from handrail.model.results import WorkflowResult
from handrail.ports.journal import Journal, group_append, sync_later, when_free
from handrail.steps.leaves import PythonCall
from handrail.system.threads import running_loop

if TYPE_CHECKING:
    from handrail.core import changes, waits
    from handrail.engine import message_watch, rehearsal_io, shared_limits
    from handrail.record import answers
else:
    later(
        globals(),
        "core.changes core.waits engine.message_watch engine.rehearsal_io engine.shared_limits "
        "record.answers",
    )


LATE_S = 1.0
"""A timer that is noticed so late was due while this process, or its event loop, was stopped."""
ABANDON_AFTER_S = 10.0
"""How long a cancelled flight may take to end before it is abandoned."""


class UrgentJob(partial[None]):
    """A job that stops the attempt in the driver's own task."""


class Driver:
    """One drive of one run in this process. Mutable; lives as long as the drive."""

    make_attempts = Attempts

    def __init__(
        self,
        machine: Machine,
        parts: Parts,
        seq: int,
        *,
        journal: Journal,
        bus: Bus,
        performer: Performer,
        evaluator: Evaluator,
        last_at: float,
    ) -> None:
        self._parts, self._journal, self._bus = parts, journal, bus
        bus.on_interruption = self._interrupt_soon
        self.now = parts.clock.now
        make_line: MakeLine = Line
        if parts.shared is not None:
            make_line = partial(shared_limits.SharedLine, shared=parts.shared, post=self.post)
        self.conductor = Conductor(
            machine,
            self,
            record=journal.append,
            record_all=group_append(journal),
            sync_later=sync_later(journal),
            has_no_effect=_has_no_effect,
            show=bus.emit,
            tell=bus.emit,
            seq=seq,
            last_at=last_at,
            handles_gates=parts.gates is not None,
            suspends=journal.durable,
            processes=max(4, os.cpu_count() or 1),
            make_line=make_line,
            make_flight=Flight,
        )
        self.run_id = self.conductor.run_id
        self._wake = anyio.Event()
        self._thread, self._home = threading.get_ident(), running_loop()
        self._skew = Skew(parts.clock)
        self.context = copy_context().copy
        self.tasks = tasks(self._deliver)
        self._escaped: BaseException | None = None
        self._linger_until: float | None = None
        self.mask = bus.mask
        self.mark = performer.contexts.mark
        self._inbox, self._when_free = Inbox(journal, machine), when_free(journal)
        self._claiming = self.conductor.claims = Claiming(
            self,
            parts.claims,
            parts.shared_claims,
            folder_of=performer.folder_of,
        )
        self.attempts = self.make_attempts(
            self, performer, self._skew, self._claiming, durable=journal.durable
        )
        self.conductor.perform_here = self.attempts.perform_here
        self.conductor.stops_in_time = self.tasks.by_hand
        self._evaluator = evaluator
        self._callbacks = Callbacks(self, evaluator, answer=self.answer, when_free=self._when_free)
        self.conductor.answer_here = self._callbacks.answered_at_once

    # -- from outside, in any thread ------------------------------------------------------------

    def post(self, job: Job, *, urgent: bool = False) -> None:
        """Queue a job and wake the loop. ``urgent`` stops the attempt in the driver's own task."""
        if threading.get_ident() != self._thread:
            self._home.soon_from_anywhere(partial(self.post, job, urgent=urgent))
            return
        self.conductor.jobs.append(UrgentJob(job) if urgent else job)
        self._wake.set()
        if urgent:
            self.stop_inline()

    def stop_inline_if_asked(self, flight: Flight) -> None:
        """Stop the attempt in the driver's own task if that has come in during its first part."""
        if not self.conductor.jobs and not self.conductor.todo:
            return
        asked = any(type(job) is UrgentJob for job in self.conductor.jobs)
        if asked or any(
            type(command) is cmd.Record and is_urgent(command.event, flight)
            for command in self.conductor.todo
        ):
            self.stop_inline()

    def left_inline(self) -> None:
        """Look at the clock, and for messages: an attempt in the driver's own task has ended."""
        self.look_at_clock()
        if self.conductor.jobs:
            self._read_messages_if_it_can()

    def stop_inline(self) -> None:
        """Stop the attempt in the driver's own task, if any."""
        if self.attempts.inline is not None:
            self.tasks.stop_inline(self.attempts.inline, ABANDON_AFTER_S)

    def cancel(self, reason: str) -> None:
        """Ask for the run to be cancelled; returns at once."""
        self.post(lambda: self.conductor.record(ev.CancelRequested(reason)), urgent=True)

    def interrupt(self, reason: str) -> None:
        """Ask for the drive to end because the process is to end; returns at once."""
        self.post(lambda: self.conductor.interrupt(reason), urgent=True)

    def answer(self, path: str, answer: Any, by: str | None = None) -> Any:
        """Answer an open gate; the answer as converted.

        Raises:
            GateClosed: it was answered before. GateNotFound: it was never opened.
            InvalidAnswer: this is not an answer to it; the gate stays open.
        """
        gate = waits.open_gate(self.conductor.machine.run, path)
        value = answers.accept_answer(gate, answer)
        self._inbox.answer(gate, value, by, self.now())
        self._look_for_messages()
        return value

    def signal(self, name: str, payload: Any, by: str | None = None) -> None:
        """Deliver a signal; returns at once.

        Raises:
            InvalidSignal: an open ``wait_for`` would fail with this payload.
        """
        self._inbox.signal(name, payload, by, self.now())
        self._look_for_messages()

    def steer(self, event: ev.RunSteered | ev.WorkEdited) -> None:
        """Post a person's request to steer the run or one of its steps; returns at once."""
        self._inbox.steer(event, self.now())
        self._look_for_messages()

    def _look_for_messages(self) -> None:
        """Read new messages now, or have the driver's own thread read them."""
        if threading.get_ident() == self._thread:
            self._read_messages_if_it_can()
        else:
            self.post(self._read_messages_if_it_can)

    def _read_messages_if_it_can(self) -> None:
        with contextlib.suppress(HandrailError):  # another look comes
            self.read_messages()

    def read_messages(self) -> None:
        """Have new messages recorded, ahead of the jobs that wait. Once the run is ending, they are
        left for another drive.
        """
        if self.conductor.takes_no_message:
            return
        for event in self._inbox.new():
            self._wake.set()
            if is_urgent(event, self.attempts.inline):
                self.stop_inline()
            self.conductor.take_message(event)

    @property
    def last_read(self) -> int:
        """The number of the last message that the drive has read."""
        return self._inbox.last_read

    def cannot_read(self, error: Exception) -> None:
        """Have the drive end with this error: its messages cannot be read."""
        self.post(partial(_raise, error), urgent=True)

    # -- the loop -------------------------------------------------------------------------------

    async def drive(
        self, first: ev.Event, known: Sequence[ev.Event] = (), cancel: str | None = None
    ) -> WorkflowResult[Any]:
        """Drive the run, from the drive's ``first`` event to its end or suspension.

        ``known`` events are written behind the first. ``cancel`` says why the run only unwinds.

        Raises:
            ReplayMismatch: recorded steps have changed; the run can be resumed as before.
            BaseException: cancellation of this task, after the run was interrupted or cancelled and
                its end recorded; KeyboardInterrupt and SystemExit of an action, likewise; errors of
                the journal.
        """
        conductor = self.conductor
        run = conductor.machine.run
        async with self.tasks:
            self._watch_for_messages_meanwhile()
            try:
                conductor.begin(first, known, cancel)
                await self._replay()
                await self._work()
            except (*INTERRUPTIONS, anyio.get_cancelled_exc_class()) as error:
                with anyio.CancelScope(shield=True):
                    conductor.interrupt(interruption(error))
                    await self._work()
                raise
            finally:
                conductor.line.close()
                await self._claiming.close()
                if conductor.result is None:  # the journal failed: nothing can be recorded any more
                    close_bodies(run)
        escaped = self._escaped or run.escaped
        if escaped is not None:
            raise escaped
        if run.changes:
            raise changes.mismatch_of(run, late=True)
        assert conductor.result is not None
        return conductor.result

    async def _replay(self) -> None:
        """Rehearse the record, if any; if the code still matches it, write and show the outcome."""
        conductor = self.conductor
        try:
            await conductor.rehearse()
            while (question := conductor.asked) is not None:
                answer = await self._evaluator.evaluated(question, self.now())
                conductor.evaluated(question, answer.value, answer.error)
                await conductor.rehearse()
        finally:
            for part in conductor.gone_through:
                rehearsal_io.warn_of_masked(conductor.run_id, part)
            if conductor.gone_through:
                with anyio.CancelScope(shield=True):
                    await rehearsal_io.write_out(conductor.write_out())

    def _watch_for_messages_meanwhile(self) -> None:
        """Look for messages while the drive lasts; no process can send any to a run in memory."""
        if self._journal.durable:
            flight = Flight("", "messages", None)
            flight.finished = True
            watch = partial(message_watch.watch_messages, self._journal, self)
            self.tasks.start(flight, watch, self.context())

    async def _work(self) -> None:
        conductor = self.conductor
        while conductor.result is None:
            await conductor.proceed()
            if conductor.result is None and not await self._fire_next():
                await self._wait()
                self.look_at_clock()

    def emit_notice(self, notice: ev.Notice) -> None:
        """Show progress to the sinks. Some notices are journaled first, at once: those of claims,
        for other processes, the start of an agent's session, which a resume may continue, and
        what a sandbox refused.
        """
        if not isinstance(notice, ev.JOURNALED_NOTICES):
            self.conductor.show_progress(notice)
        else:
            self.conductor.record_now(notice)
            self._wake.set()

    # -- as a host -----------------------------------------------------------------------------

    def perform(self, attempt: cmd.Perform) -> None:
        """Start the attempt in a task of its own."""
        self.attempts.perform(attempt)

    def undo(self, rollback: cmd.Undo) -> None:
        """Start the rollback in a task of its own."""
        self._callbacks.undo(rollback)

    def evaluate(self, question: Question) -> None:
        """Call the user's function, or look up the stages; ``_replay`` awaits what it asks for."""
        if question is not self.conductor.asked:
            self._callbacks.evaluate(question)

    def stop(self, it: Flight) -> None:
        """Cancel a flight, and abandon it if it does not end within ``ABANDON_AFTER_S``."""
        if it.current is not None:
            it.current.cancelled = True
        self.tasks.stop(it)
        if not it.finished:
            leave = partial(self.on_flight_ended, it, ABANDONED)
            self.conductor.timers.at(self.now() + ABANDON_AFTER_S, leave)

    def alarm(self, due: float | None) -> None:
        """Do nothing: the loop looks for timers that are due."""

    async def turn(self, path: str) -> None:
        """Give the event loop a turn, and go on behind jobs that came in meanwhile: a request to
        cancel, above all.
        """
        await anyio.lowlevel.checkpoint()
        self.conductor.turned(path)

    def start(self, flight: Flight, work: Callable[[], Any], context: Context) -> None:
        """Start a flight in a task of its own."""
        self.conductor.flights[flight.path, flight.kind] = flight
        self.tasks.start(flight, work, context)

    def _deliver(self, flight: Flight, outcome: Any) -> None:
        if not flight.finished:
            self.conductor.jobs.append(EndOfFlight(self.on_flight_ended, flight, outcome))
            self._wake.set()

    def on_flight_ended(self, flight: Flight, outcome: Any) -> None:
        """Hand the outcome of a flight to the core, once."""
        if flight.finished:
            return
        path, conductor = flight.path, self.conductor
        if flight.kind == CLAIM:
            conductor.remove_flight(path, CLAIM)
            self._claiming.on_finished(flight, outcome)
        elif flight.kind != ATTEMPT:
            self._callbacks.on_finished(flight, outcome)
        elif isinstance(outcome, INTERRUPTIONS):
            conductor.remove_flight(path, ATTEMPT)
            conductor.line.release(path)
            self.attempts.on_interrupted(path, outcome)
        else:
            conductor.on_finished(path, self.attempts.end_of(flight, outcome))

    # -- time -----------------------------------------------------------------------------------

    def look_at_clock(self) -> None:
        """If the clock was set, shift the timers on elapsed running time; not wall-clock ones."""
        jump_s = self._skew.grown_s()
        if not jump_s:
            return
        conductor, run = self.conductor, self.conductor.machine.run
        conductor.timers.shift(jump_s, partial(waits.counts_running_time, run))
        waits.clock_was_set(run, jump_s)
        conductor.line.clock_was_set(jump_s)
        self._claiming.clock_was_set(jump_s)
        if self._linger_until is not None:
            self._linger_until += jump_s

    async def _fire_next(self) -> bool:
        """Fire the timers of the next moment that has come; True if any was. Messages that came
        before a late one are recorded first.
        """
        self.look_at_clock()
        conductor = self.conductor
        due = conductor.timers.next_due()
        if due is not None and due < self.now() - LATE_S:
            self._read_messages_if_it_can()
            if conductor.todo:
                return True
        fired = False
        for what in conductor.timers.moment(self.now()):
            if not isinstance(what, int) or not await self._answered_in_time(what):
                conductor.fire(what)
            fired = True
        return fired

    async def _answered_in_time(self, token: int) -> bool:
        """True if an answer came before the gate's timeout could close it; reads that answer."""
        run = self.conductor.machine.run
        node, _ = run.timers[token]
        gate = run.gates.get(node.path)
        if gate is None or token != node.timer:
            return False
        if await self._when_free(partial(self._inbox.close, gate, self.now())):
            return False
        self.read_messages()
        return True

    async def _wait(self) -> None:
        conductor = self.conductor
        due = conductor.timers.next_due()
        is_idle = conductor.nothing_is_at_work and conductor.ends is None
        longest = self._parts.suspend_timers_after_s
        if is_idle and not conductor.waits_for_time(math.inf if longest is None else longest):
            now = self.now()
            if self._linger_until is None:
                run = conductor.machine.run
                self._linger_until = now + idle_wait_s(self._parts.linger_s, run)
            if now >= self._linger_until:
                self.read_messages()  # an answer that was accepted must not wait for the next drive
                if not conductor.todo and not conductor.jobs and not conductor.late:
                    conductor.end_drive("waiting")
                return
            due = self._linger_until if due is None else min(due, self._linger_until)
        else:
            self._linger_until = None
        if self._wake.is_set():
            self._wake = anyio.Event()
            if conductor.jobs:
                return
        busy = sum(1 for flight in conductor.flights.values() if not flight.waits)
        await self._parts.clock.wait(self._wake, due, busy=busy + self._claiming.at_work)

    def is_asleep(self, for_s: float) -> bool:
        """True if the run does nothing, and no time that it waits for comes within ``for_s``."""
        now, conductor = self.now(), self.conductor
        waiting = conductor.timers.waits()
        return conductor.nothing_is_at_work and all(due - now > for_s for due, _ in waiting)

    # -- ends -----------------------------------------------------------------------------------

    def on_escaped(self, error: BaseException) -> None:
        """End the drive, then raise this: a KeyboardInterrupt or SystemExit of the user's code."""
        self._escaped = error
        self.conductor.interrupt(interruption(error))

    def _interrupt_soon(self, error: BaseException) -> None:
        """``on_escaped``, once what is being recorded has been: it may be the end of the run."""
        self._escaped = error
        self.conductor.queue_job(lambda: self.conductor.interrupt(interruption(error)))


def _has_no_effect(command: cmd.Perform) -> bool:
    """True for an attempt that does nothing outside of the run."""
    verb, modifiers = command.step.verb, command.step.modifiers
    inline = modifiers.inline and modifiers.simple
    return inline and isinstance(verb, PythonCall) and not is_async(verb.action)


def _raise(error: Exception) -> None:
    raise error
