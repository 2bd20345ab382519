"""Drives one run: performs the core's commands and writes down what happened.

Theory of operation
===================

The driver is a conductor (``core.conductor``) and its own host. What it does not inherit is what
only this process has: a journal that may be slow, tasks, threads, and claims.

It is one task with one loop, which takes the place of ``pump``. It carries out commands in order,
in ``_carry_out_in_order``; when there are none it waits for the next job or timer, in ``_wait``.
Everything that comes from elsewhere (ends of attempts, answers, signals, a request to cancel)
becomes a job: a function that the loop calls. So the core is never entered twice.

An event goes one way: numbered, then ``journal.append``, then sinks, then ``machine.receive``.
Where a journal can, consecutive records are written in one transaction (``append_all``). A drive
that resumes a run begins with a rehearsal (``core.rehearsal``). The messages that other processes
send to the run are read (``engine.inbox``) once ``engine.message_watch`` finds that there are some.

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
steps follow; before anything else is done, shown or awaited, ``_catch_up`` syncs the records and
shows them. So what a loss of power takes away has had no effect, and runs again.

Gates and signals cost no task. ``engine.callbacks`` starts evaluations, gate handlers and
rollbacks, and reports their outcomes.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import anyio
import anyio.lowlevel
import msgspec

from handrail.core import commands as cmd
from handrail.core.admission import Admission
from handrail.core.conductor import Question
from handrail.core.ending import close_bodies
from handrail.core.line import Line
from handrail.core.machine import Machine
from handrail.core.nodes import Phase
from handrail.core.timers import Job
from handrail.engine.attempt_tasks import ATTEMPT, Attempts, idle_wait_s
from handrail.engine.bus import Bus
from handrail.engine.callbacks import Callbacks, Evaluator
from handrail.engine.calls import is_async
from handrail.engine.claiming import CLAIM, Claiming
from handrail.engine.inbox import Inbox, is_urgent
from handrail.engine.loop import FailedWrite, Loop, Skew
from handrail.engine.parts import Parts
from handrail.engine.perform import Performer
from handrail.engine.tasks import ABANDONED, Flight, tasks
from handrail.errors import (
    CoreStalled,
    HandrailError,
    OutputNotSerializable,
)
from handrail.later import later
from handrail.model import events as ev
from handrail.model.outcome import INTERRUPTIONS, interruption
from handrail.model.policy import Limits
from handrail.model.results import WorkflowResult
from handrail.ports.journal import GroupAppend, Journal, group_append, sync_later, when_free
from handrail.steps.leaves import PythonCall
from handrail.system.threads import running_loop

if TYPE_CHECKING:
    from handrail.core import changes, value_texts, waits
    from handrail.engine import message_watch, rehearsal_io, shared_limits
    from handrail.record import answers
else:
    later(
        globals(),
        "core.changes core.value_texts core.waits engine.message_watch engine.rehearsal_io "
        "engine.shared_limits record.answers",
    )


LATE_S = 1.0
"""A timer that is noticed so late was due while this process, or its event loop, was stopped."""
ABANDON_AFTER_S = 10.0
"""How long a cancelled flight may take to end before it is abandoned."""


class FlightFinished(partial[None]):
    """The job that hands a finished flight, with its outcome, to the driver."""

    __slots__ = ()


class UrgentJob(partial[None]):
    """A job that stops the attempt in the driver's own task."""

    __slots__ = ()


class _BeingWritten(msgspec.Struct):
    """An event that the journal is writing; to carry it out is to wait for the write."""

    event: ev.Event
    pending: Awaitable[None]


MAX_BATCH = 64
"""How many records one transaction writes, at most."""
GATHER_ABOVE = 8
"""With at most this many flights, the driver acts on each end before it records the next."""

_set = object.__setattr__  # numbers an event as model.events.stamp does, without a call


class Driver(Loop):
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
        super().__init__(
            machine,
            self,
            record=journal.append,
            tell=self.emit_notice,
            seq=seq,
            last_at=last_at,
            handles_gates=parts.gates is not None,
        )
        self._wake = anyio.Event()
        self._thread, self._home = threading.get_ident(), running_loop()
        self._skew = Skew(parts.clock)
        self.context = copy_context().copy
        self.tasks = tasks(self._deliver)
        self._escaped: BaseException | None = None
        self._is_interrupted = False
        self._linger_until: float | None = None
        self._late = deque[ev.GateAnswered | ev.SignalReceived]()
        """Messages that came behind timers which have not fired yet."""
        append_all = group_append(journal)
        self._append_all: GroupAppend = append_all or _cannot_append_several
        self._gathers = MAX_BATCH if append_all is not None else 0
        """How many finished flights, beside the first, are handled before their ends are recorded
        in one transaction; 0 for a journal without such transactions."""
        self._alone = 0
        """How many of the next records are written one by one: one of them cannot be written."""
        self._syncing = False
        self._sync_later = sync_later(journal)
        self._ahead: list[ev.Event] = []
        """Events that are stored, and neither on disk yet nor shown."""
        self.mask = bus.mask
        self.mark = performer.contexts.mark
        self._inbox, self._when_free = Inbox(journal, machine), when_free(journal)
        self.attempts = self.make_attempts(self, performer, self._skew, durable=journal.durable)
        self._claiming = self.attempts.claiming = Claiming(
            self,
            parts.claims,
            parts.shared_claims,
            folder_of=performer.folder_of,
        )
        self._callbacks = Callbacks(self, evaluator, answer=self._answer_when_free)

    def _make_line(self, limits: Limits, last_at: float) -> Line:
        admission = Admission(limits, last_at, processes=max(4, os.cpu_count() or 1))
        if self._parts.shared is None:
            return Line(self, admission, self._start)
        return shared_limits.SharedLine(self, admission, self._parts.shared, self._start)

    # -- from outside, in any thread ------------------------------------------------------------

    def post(self, job: Job, *, urgent: bool = False) -> None:
        """Queue a job and wake the loop. ``urgent`` stops the attempt in the driver's own task."""
        if threading.get_ident() != self._thread:
            self._home.soon_from_anywhere(partial(self.post, job, urgent=urgent))
            return
        self._jobs.append(UrgentJob(job) if urgent else job)
        self._wake.set()
        if urgent:
            self.stop_inline()

    def stop_inline_if_asked(self, flight: Flight) -> None:
        """Stop the attempt in the driver's own task if that has come in during its first part."""
        if not self._jobs and not self._todo:
            return
        asked = any(type(job) is UrgentJob for job in self._jobs)
        if asked or any(
            type(one) is cmd.Record and is_urgent(one.event, flight) for one in self._todo
        ):
            self.stop_inline()

    def stop_inline(self) -> None:
        """Stop the attempt in the driver's own task, if any."""
        if self.attempts.inline is not None:
            self.tasks.stop_inline(self.attempts.inline, ABANDON_AFTER_S)

    def cancel(self, reason: str) -> None:
        """Ask for the run to be cancelled; returns at once."""
        self.post(lambda: self.record(ev.CancelRequested(reason)), urgent=True)

    def interrupt(self, reason: str) -> None:
        """Ask for the drive to end because the process is to end; returns at once."""
        self.post(lambda: self._interrupt(reason), urgent=True)

    def answer(self, path: str, answer: Any, by: str | None = None) -> Any:
        """Answer an open gate; the answer as converted.

        Raises:
            GateClosed: it was answered before. GateNotFound: it was never opened.
            InvalidAnswer: this is not an answer to it; the gate stays open.
        """
        gate = waits.open_gate(self.machine.run, path)
        value = answers.accept_answer(gate, answer)
        self._inbox.answer(gate, value, by, self.now())
        self._look_for_messages()
        return value

    async def _answer_when_free(self, path: str, answer: Any, by: str | None) -> Any:
        return await self._when_free(partial(self.answer, path, answer, by))

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
        if self.machine.run.root.phase is Phase.ENDING or self.result is not None:
            return
        for event in self._inbox.new():
            self._wake.set()
            if isinstance(event, ev.GateAnswered):
                waits.accept_no_other_answer(self.machine.run, event)
            if isinstance(event, (ev.GateAnswered, ev.SignalReceived)) and self._is_late(event):
                self._late.append(event)
                self.timers.at(min(event.at, self.now()), self._record_late)
                continue
            while self._late:  # a resume reads on behind the last recorded message
                self._record_late()
            if is_urgent(event, self.attempts.inline):
                self.stop_inline()
            self.record(event)

    def _is_late(self, event: ev.GateAnswered | ev.SignalReceived) -> bool:
        """True if a timer was due before the message came, and has not fired yet."""
        due = self.timers.next_due()
        return bool(self._late) or (due is not None and due < min(event.at, self.now()))

    def _record_late(self) -> None:
        """Record the next late message, if its gate is still open."""
        if not self._late:
            return  # it was recorded ahead of another
        event = self._late.popleft()
        if not isinstance(event, ev.GateAnswered) or event.path in self.machine.run.gates:
            self.record(event)

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
        async with self.tasks:
            self._watch_for_messages_meanwhile()
            try:
                self.begin(first, known, cancel)
                await self._replay()
                await self._work()
            except (*INTERRUPTIONS, anyio.get_cancelled_exc_class()) as error:
                with anyio.CancelScope(shield=True):
                    self._interrupt(interruption(error))
                    await self._work()
                raise
            finally:
                self.line.close()
                await self._claiming.close()
                if self.result is None:  # the journal failed: nothing can be recorded any more
                    close_bodies(self.machine.run)
        escaped = self._escaped or self.machine.run.escaped
        if escaped is not None:
            raise escaped
        if self.machine.run.changes:
            raise changes.mismatch_of(self.machine.run, late=True)
        assert self.result is not None
        return self.result

    async def _replay(self) -> None:
        """Rehearse the record, if any; if the code still matches it, write and show the outcome."""
        try:
            self._rehearse()
            while (question := self._asked) is not None:
                answer = await self._callbacks.evaluated(question)
                self.evaluated(question, answer.value, answer.error)
                self._rehearse()
        finally:
            for part in self._gone_through:
                with anyio.CancelScope(shield=True):
                    await rehearsal_io.write_out(part, self.machine, self._journal, self._bus)
                rehearsal_io.warn_of_masked(self.run_id, part)
        self._go_beyond(self._beyond or ())

    def _watch_for_messages_meanwhile(self) -> None:
        """Look for messages while the drive lasts; no process can send any to a run in memory."""
        if self._journal.durable:
            flight = Flight("", "messages", None)
            flight.finished = True
            watch = partial(message_watch.watch_messages, self._journal, self)
            self.tasks.start(flight, watch, self.context())

    async def _work(self) -> None:
        while self.result is None:
            if self._todo:
                await self._carry_out_in_order()
            elif self._ahead:
                await self._catch_up()
            elif self._jobs:
                self._jobs.popleft()()
                for _ in range(self._gathers if len(self.flights) > GATHER_ABOVE else 0):
                    if not self._jobs or type(self._jobs[0]) is not FlightFinished:
                        break
                    self._jobs.popleft()()
            elif not await self._fire_next():
                await self._wait()
                self.look_at_clock()

    async def _finish_writing(self) -> None:
        """Wait for the events that were numbered during an attempt: they precede its end."""
        while self._todo and isinstance(written := self._todo[0], _BeingWritten):
            self._todo.popleft()
            await self._show_when_written(written.event, written.pending)

    async def _carry_out_in_order(self) -> None:  # noqa: C901, PLR0912, PLR0915  # see its text
        """Carry out commands in order. One long function on purpose: it runs for each step, and a
        call costs as much as what most of its lines do.
        """
        todo, machine, run_id, now = self._todo, self.machine, self.run_id, self.now
        receive, reacts_to = machine.receive, machine.reacts_to
        emit = self._bus.emit
        append: Callable[..., Awaitable[None] | None] = self._journal.append
        free, holders, waiting = self.line.free, self.line.holders, self.line.waiting
        kept, held, gathers = self.line.kept, self._claiming.held, self._gathers
        by_hand, ahead, later = self.tasks.by_hand, self._ahead, self._sync_later
        while todo:
            command: Any = todo.popleft()
            kind = type(command)  # pyright: ignore[reportUnknownVariableType]  # of any command
            if ahead and not (len(ahead) < MAX_BATCH and _may_run_ahead(command)):
                await self._catch_up()
            sync: bool | None
            if kind is cmd.Record:
                if (
                    len(todo) > 1
                    and gathers
                    and not ahead
                    and await self._recorded_together(command)
                ):
                    continue
                event, sync = command.event, command.sync
            elif kind is cmd.Perform:
                if self.ends is not None:
                    continue  # the next drive begins it
                modifiers = command.step.modifiers
                if (
                    todo
                    or self._jobs
                    or self.flights
                    or waiting
                    or not free
                    or kept
                    or (modifiers.timeout_s is not None and not by_hand)
                    or command.deadline is not None
                    or command.wanted is not None
                    or held
                    or machine.run.timers
                    or machine.run.gates
                    or machine.run.listeners
                    or machine.run.work_with_room
                ):  # something else can happen meanwhile
                    self._claiming.launch(command)
                    continue
                event = await self.attempts.perform_here(command)
                if holders:
                    self.line.release(command.path)
                if self._jobs:  # messages that its own thread sent before it ended
                    self._read_messages_if_it_can()
                if todo:
                    await self._finish_writing()
                if event is None:
                    continue
                sync = modifiers.checkpoint or modifiers.once
                if todo:  # what came in meanwhile is recorded first: after a pause no step begins
                    todo.append(cmd.Record(event, bool(sync)))
                    continue
                if later is not None and not sync and type(event) is ev.StepCompleted:
                    sync = None if _may_run_ahead(command) else False
            elif kind is cmd.AskPredicate and self.ends is None:
                answer = self._callbacks.answered_at_once(command)
                if answer is not None:
                    todo.extend(receive(answer))
                continue
            elif kind is cmd.Tell:
                self.emit_notice(command.progress)
                continue
            elif kind is cmd.Pull:
                await anyio.lowlevel.checkpoint()
                self.turn(command.path)
                continue
            elif kind is _BeingWritten:
                await self._show_when_written(command.event, command.pending)
                continue
            else:
                self._carry_out(command)
                continue
            self._seq = seq = self._seq + 1
            _set(event, "run_id", run_id)
            _set(event, "seq", seq)
            at = now()
            _set(event, "at", at)
            if type(event) in ev.ENDS:
                _set(cast("ev.StepCompleted", event).result, "at", at)
            try:
                pending = append(event, sync=sync)
            except OutputNotSerializable as error:
                types, keep = value_texts.declared_in(machine, event), partial(append, sync=sync)
                event, pending = value_texts.event_in_its_place(event, machine, types, error, keep)
            if pending is not None and sync is None:
                await self._wait_for_write(pending)
            elif pending is not None:
                if ahead:
                    await self._catch_up()
                await self._show_when_written(event, pending)
                continue
            if ahead or sync is None:
                ahead.append(event)
            else:
                emit(event)
            if type(event) in reacts_to:
                more = receive(event)
                if more:
                    todo.extend(more)

    async def _catch_up(self) -> None:
        """Have on disk what the run has gone ahead of, then show it."""
        assert self._sync_later is not None
        pending = self._sync_later()
        if pending is not None:
            await self._wait_for_write(pending)
        for event in self._ahead:
            self._bus.emit(event)
        self._ahead.clear()

    async def _show_when_written(self, event: ev.Event, pending: Awaitable[None]) -> None:
        """Wait until the event is written, then show it and give it to the core."""
        await self._wait_for_write(pending)
        self._bus.emit(event)
        self.receive(event)

    async def _recorded_together(self, first: cmd.Record) -> bool:
        """Write this record and those queued next in one transaction; False if nothing was written.

        Attempts queued between them begin afterwards. It writes nothing where this record is the
        only one, or where one cannot be serialized: then the caller writes them one by one.
        A transaction costs four times what a record in it does, and a sync a hundred times.
        """
        if self._alone:
            self._alone -= 1
            return False
        todo = self._todo
        records, attempts = [first], list[cmd.Perform]()
        while todo and len(records) + len(attempts) < 2 * MAX_BATCH:
            command = todo[0]
            if type(command) is cmd.Record:
                records.append(command)
            elif type(command) is cmd.Perform:
                attempts.append(command)
            else:
                break
            todo.popleft()
        if len(records) == 1:
            todo.extendleft(reversed(attempts))
            return False
        before = self._seq
        for one in records:
            self._stamp(one.event)
        events = [one.event for one in records]
        try:
            pending = self._append_all(events, sync=any(one.sync for one in records))
        except OutputNotSerializable:  # writing one by one shows which
            self._seq, self._alone = before, len(records) - 1
            todo.extendleft(reversed(attempts))
            todo.extendleft(reversed(records[1:]))
            return False
        if pending is not None:
            await self._wait_for_write(pending)
        todo.extendleft(reversed(attempts))
        run = self.machine.run
        run.receiving_batch = True
        for event in events:
            self._bus.emit(event)
            self.receive(event)
        run.receiving_batch = False
        for path in run.deferred_work:
            self.receive(cmd.Pulled(path, at=self.now()))
        run.deferred_work.clear()
        return True

    async def _wait_for_write(self, pending: Awaitable[None]) -> None:
        """Wait for a write; notices that come meanwhile are recorded behind it."""
        self._syncing = True
        try:
            await pending
        finally:
            self._syncing = False

    def _launch(self, command: cmd.Perform | cmd.Queue) -> None:
        self._claiming.launch(command)

    def _claim(self, command: cmd.Claim) -> None:
        self._claiming.claim(command)

    def _give_back(self, command: cmd.Release | cmd.Unclaim) -> None:
        super()._give_back(command)
        self._claiming.give_back(command.path)

    def receive(self, happened: ev.Event | cmd.Report) -> None:
        """Give the machine what happened, and queue the commands that it returns."""
        self._todo.extend(self.machine.receive(happened))

    def emit_notice(self, notice: ev.Notice) -> None:
        """Show progress to the sinks. Some notices are journaled first, at once: those of claims,
        for other processes, the start of an agent's session, which a resume may continue, and
        what a sandbox refused.
        """
        if not isinstance(notice, ev.JOURNALED_NOTICES):
            if self._ahead:
                self._todo.append(cmd.Tell(notice))
                return
            ev.stamp(notice, self.run_id, self._seq, self.now())
            self._bus.emit(notice)
        elif notice.path not in self.machine.run.nodes:
            return  # from an agent that was stopped, and does not know it yet
        elif self._syncing or self._ahead:  # sinks must see the events that are being written first
            self.record(notice)
            self._wake.set()
        else:
            self._stamp(notice)
            try:
                pending = self._journal.append(notice)
            except HandrailError as error:  # not the agent's fault: the driver raises it later
                self._seq -= 1
                pending = FailedWrite(error)
            if pending is None:
                self._bus.emit(notice)
            else:
                self._todo.append(_BeingWritten(notice, pending))
                self._wake.set()

    # -- as its own host ------------------------------------------------------------------------

    def perform(self, attempt: cmd.Perform) -> None:
        """Start the attempt in a task of its own."""
        self.attempts.perform(attempt)

    def undo(self, rollback: cmd.Undo) -> None:
        """Start the rollback in a task of its own."""
        self._callbacks.undo(rollback)

    def evaluate(self, question: Question) -> None:
        """Call the user's function, or look up the stages; ``_replay`` awaits what it asks for."""
        if question is not self._asked:
            self._callbacks.evaluate(question)

    def stop(self, it: Flight) -> None:
        """Cancel a flight, and abandon it if it does not end within ``ABANDON_AFTER_S``."""
        if it.current is not None:
            it.current.cancelled = True
        self.tasks.stop(it)
        if not it.finished:
            leave = partial(self.finished_flight, it, ABANDONED)
            self.timers.at(self.now() + ABANDON_AFTER_S, leave)

    def alarm(self, due: float | None) -> None:
        """Do nothing: the loop looks for timers that are due."""

    def turn(self, path: str) -> None:
        """Go on behind jobs that came in meanwhile: a request to cancel, above all."""
        self.turned(path)

    def start(self, flight: Flight, work: Callable[[], Any], context: Context) -> None:
        """Start a flight in a task of its own."""
        self.flights[flight.path, flight.kind] = flight
        self.tasks.start(flight, work, context)

    def _deliver(self, flight: Flight, outcome: Any) -> None:
        if not flight.finished:
            self._jobs.append(FlightFinished(self.finished_flight, flight, outcome))
            self._wake.set()

    def finished_flight(self, flight: Flight, outcome: Any) -> None:
        """Hand the outcome of a flight to the core, once."""
        if flight.finished:
            return
        path = flight.path
        if flight.kind == CLAIM:
            self.remove_flight(path, CLAIM)
            self._claiming.finished(flight, outcome)
        elif flight.kind != ATTEMPT:
            self._callbacks.finished(flight, outcome)
        elif isinstance(outcome, INTERRUPTIONS):
            self.remove_flight(path, ATTEMPT)
            self.line.release(path)
            self.attempts.interrupted(path, outcome)
        else:
            self._finished(path, self.attempts.end_of(flight, outcome))

    def _stop(self, path: str, *, again: bool) -> None:
        """Stop the step at a path also where it waits for claims, or has them and not begun. An
        attempt in the driver's own task was stopped before, as urgent.
        """
        asks = self._claiming.withdraw(path, again=again)
        if asks is not None:
            self.stopped(path, asks.attempt)
            return
        if path in self.line.waiting and not again:
            self._claiming.give_back(path)
        super()._stop(path, again=again)

    # -- time -----------------------------------------------------------------------------------

    def look_at_clock(self) -> None:
        """If the clock was set, shift the timers on elapsed running time; not wall-clock ones."""
        jump_s = self._skew.grown_s()
        if not jump_s:
            return
        run = self.machine.run
        self.timers.shift(jump_s, partial(waits.counts_running_time, run))
        waits.clock_was_set(run, jump_s)
        self.line.clock_was_set(jump_s)
        self._claiming.clock_was_set(jump_s)
        if self._linger_until is not None:
            self._linger_until += jump_s

    async def _fire_next(self) -> bool:
        """Fire the timers of the next moment that has come; True if any was. Messages that came
        before a late one are recorded first.
        """
        self.look_at_clock()
        due = self.timers.next_due()
        if due is not None and due < self.now() - LATE_S:
            self._read_messages_if_it_can()
            if self._todo:
                return True
        fired = False
        for what in self.timers.moment(self.now()):
            if not isinstance(what, int) or not await self._answered_in_time(what):
                self._fire(what)
            fired = True
        return fired

    async def _answered_in_time(self, token: int) -> bool:
        """True if an answer came before the gate's timeout could close it; reads that answer."""
        node, _ = self.machine.run.timers[token]
        gate = self.machine.run.gates.get(node.path)
        if gate is None or token != node.timer:
            return False
        if await self._when_free(partial(self._inbox.close, gate, self.now())):
            return False
        self.read_messages()
        return True

    async def _wait(self) -> None:
        self._dismiss_closed()
        if self._jobs:
            return
        due = self.timers.next_due()
        is_idle = self.nothing_is_at_work and self.ends is None
        if is_idle and not self._waits_for_timer():
            if not self.machine.waits and due is None:
                raise CoreStalled
            now = self.now()
            if self._linger_until is None:
                self._linger_until = now + idle_wait_s(self._parts.linger_s, self.machine.run)
            if now >= self._linger_until:
                self.read_messages()  # an answer that was accepted must not wait for the next drive
                if not self._todo and not self._jobs and not self._late:
                    self._end_drive("waiting")
                return
            due = self._linger_until if due is None else min(due, self._linger_until)
        else:
            self._linger_until = None
        if self._wake.is_set():
            self._wake = anyio.Event()
            if self._jobs:
                return
        busy = sum(1 for one in self.flights.values() if not one.waits)
        await self._parts.clock.wait(self._wake, due, busy=busy + self._claiming.at_work)

    def is_asleep(self, for_s: float) -> bool:
        """True if the run does nothing, and no time that it waits for comes within ``for_s``."""
        now = self.now()
        return self.nothing_is_at_work and all(due - now > for_s for due, _ in self.timers.waits())

    def _waits_for_timer(self) -> bool:
        """True if a timer is set that the drive waits for, rather than suspend."""
        longest = self._parts.suspend_timers_after_s
        now = self.now()
        return any(
            waits.process_waits_for(self.machine.run, token)
            and (longest is None or due - now <= longest)
            for due, token in self.timers.waits()
        )

    # -- ends -----------------------------------------------------------------------------------

    def escaped(self, error: BaseException) -> None:
        """End the drive, then raise this: a KeyboardInterrupt or SystemExit of the user's code."""
        self._escaped = error
        self._interrupt(interruption(error))

    def _interrupt_soon(self, error: BaseException) -> None:
        """``escaped``, once what is being recorded has been: it may be the end of the run."""
        self._escaped = error
        self.queue_job(lambda: self._interrupt(interruption(error)))

    def _interrupt(self, reason: str) -> None:
        """End the drive: with a durable journal suspend the run, without one cancel it."""
        if self._journal.durable:
            self._end_drive(reason)
        elif not self._is_interrupted and self.ends is None and self.result is None:
            self._is_interrupted = True
            self._jobs.appendleft(lambda: self.record(ev.CancelRequested(reason)))


def _may_run_ahead(command: cmd.Command) -> bool:
    """True for the start of a step, or a step itself, without effects outside of the run."""
    if type(command) is cmd.Record:
        return type(command.event) is ev.StepStarted and not command.sync
    if type(command) is not cmd.Perform:
        return False
    verb, modifiers = command.step.verb, command.step.modifiers
    inline = modifiers.inline and modifiers.simple
    return inline and isinstance(verb, PythonCall) and not is_async(verb.action)


def _raise(error: Exception) -> None:
    raise error


def _cannot_append_several(*_: Any, **__: Any) -> Awaitable[None] | None:
    raise AssertionError("this journal stores events one by one")
