"""One execution of a run: the workflow type that a cluster starts under any name."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import islice
from typing import Any, NoReturn, cast

import msgspec
from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.worker import Interceptor, WorkflowInterceptorClassInput

from handrail.cluster_errors import TooLarge
from handrail.core.steering import check_steering
from handrail.core.waits import awaited_types, open_gate
from handrail.engine.steering import refuse_unknown
from handrail.errors import CannotSteer, HandrailError, ReplayMismatch
from handrail.model import events as ev
from handrail.model.results import WaitsFor, WorkflowResult
from handrail.record.answers import accept_answer, check_payload
from handrail.record.reading import accept_changes
from handrail.record.run_record import Recorded
from handrail.temporal import wire
from handrail.temporal.blobs import LARGE_BYTES
from handrail.temporal.errors_as_data import error_as_data, error_of_data
from handrail.temporal.host import CONTINUED, RunHost
from handrail.temporal.record import accepted_by
from handrail.temporal.serving import Serving

PAGE_BYTES = 1 << 20
SLICE = 5_000
"""How many events of a record one workflow task reads."""


_SERVING = "handrail_serving"


class WithServing(Interceptor):
    """Gives the workflow code access to its worker's ``Serving``."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: A002  # its name is the library's
    ) -> None:
        """Intercept nothing; add the function by which workflow code finds ``Serving``."""
        functions: dict[str, Any] = cast("Any", input).unsafe_extern_functions
        functions[_SERVING] = lambda: self._serving


@workflow.defn(dynamic=True, sandboxed=False)
class HandrailRun:
    """One execution of a run, of any workflow."""

    def __init__(self) -> None:
        functions: Mapping[str, Any] = cast("Any", workflow).extern_functions()
        self._execution = Execution(functions[_SERVING]())

    @workflow.run
    async def run(self, args: Sequence[RawValue]) -> RawValue:
        """Drive the run to its end, or continue it in another execution."""
        return await self._execution.run(args)

    @workflow.signal(name=wire.MESSAGE)
    def message(self, row: RawValue) -> None:
        """Take a message that needs no reply: a cancellation, a pause."""
        self._execution.message(wire.read(row, wire.Row))

    @workflow.signal(name=wire.DRIVE)
    def drive(self, how: RawValue) -> None:
        """Drive a held run, or start a new drive of a live one."""
        self._execution.go_on(wire.read(how, wire.Drive))

    @workflow.signal(name=wire.REFUSE)
    def refuse(self, refusal: RawValue) -> None:
        """Fail a gate that could not be answered."""
        self._execution.refused(wire.read(refusal, wire.Refusal))

    @workflow.signal(dynamic=True)
    def signalled(self, name: str, args: Sequence[RawValue]) -> None:
        """Take a signal that was sent with Temporal's own tools."""
        self._execution.signalled(name, args)

    @workflow.update(name=wire.MESSAGE)
    async def asked(self, row: RawValue) -> RawValue:
        """Take a message that the run may refuse."""
        return await self._execution.asked(wire.read(row, wire.Row))

    @asked.validator
    def check(self, row: RawValue) -> None:
        """Refuse a message that the run cannot take, before it is in the history."""
        self._execution.check(wire.read(row, wire.Row))

    @workflow.query(name=wire.RECORD)
    def record(self, after: int) -> RawValue:
        """The rows after a number as one chunk, or the first of them."""
        return wire.raw_bytes(self._execution.record_after(after))

    @workflow.query(name=wire.STATE)
    def state(self) -> RawValue:
        """The run's state."""
        return wire.raw(self._execution.state())


class Execution:
    """Drives a run within the limits of one execution. Mutable."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._host: RunHost | None = None
        self._early: list[ev.Event] = []
        self._chunks: list[bytes] = []
        """The record of earlier executions."""
        self._before: list[wire.Row] | None = None
        self._held = False
        self._go: wire.Drive | None = None
        self._is_cancelled = False
        self._origin: dict[str, Any] = {}
        self._is_ending = False
        """The drive is about to end, because this execution's history is long."""
        self._result: WorkflowResult[Any] | None = None
        self._waits: tuple[WaitsFor, ...] = ()
        """What the memo says that the run waits for."""

    # -- driving --------------------------------------------------------------------------------

    async def run(self, args: Sequence[RawValue]) -> RawValue:
        """Drive the run to its end, or continue it in another execution."""
        start: wire.Start = wire.read(args[0], wire.Start)
        self._chunks = [bytes(one.payload.data) for one in args[1:]]
        try:
            if start.held:
                start = await self._hold(start)
            recorded = Recorded() if start.resumed else None
            history = [] if recorded is None else await self._read(recorded)
            host = self._begin(start, history, recorded)
            del history, recorded
            while self._result is None:
                try:
                    await self._turn(host)
                except ReplayMismatch as mismatch:
                    self._run_again(start, host, mismatch)
            if self._result.status == "suspended":
                self._continue(start, host)
            return self._ended(host, self._result)
        except asyncio.CancelledError:
            self._keep_bodies()
            raise
        except BaseException as error:
            if not isinstance(error, (ApplicationError, workflow.ContinueAsNewError)):
                self._keep_bodies()
            raise

    async def _hold(self, start: wire.Start) -> wire.Start:
        """Wait for a ``Drive`` message, or a cancellation."""
        self._held = True
        await self._until(lambda: self._go is not None or self._is_cancelled)
        self._held = False
        workflow.upsert_memo({wire.HELD: None, wire.WAITS: None})
        go = self._go or wire.Drive(cancel=workflow.cancellation_reason() or "cancelled")
        return wire.with_drive(start, go, held=False)

    async def _read(self, recorded: Recorded) -> list[ev.Event]:
        """Read the record, a slice in each task: a task must be answered within two seconds."""
        found: list[ev.Event] = []
        rows = wire.unpack_rows(self._chunks)
        while events := [self._event(row) for row in islice(rows, SLICE)]:
            recorded.take(events)
            found += events
            if len(events) == SLICE:
                await self._next_task()
        return found

    async def _next_task(self) -> None:
        """End this workflow task, and continue in the next."""
        try:
            await asyncio.sleep(0.001)
        except asyncio.CancelledError:
            if workflow.cancellation_reason() is None or self._is_cancelled:
                raise  # this execution is being evicted from memory
            self._is_cancelled = True

    def _begin(
        self, start: wire.Start, history: list[ev.Event], recorded: Recorded | None
    ) -> RunHost:
        info = workflow.info()
        run_id, name = info.workflow_id, info.workflow_type
        self._origin = wire.origin_of(history[0]) if history else {wire.SINCE: workflow.time()}
        self._go = None
        early, self._early = self._early, []
        letters = _counting(early) if start.resumed else []
        self._host = host = RunHost(
            self._serving,
            run_id,
            name,
            start,
            history=history,
            recorded=recorded,
            letters=letters,
        )
        for event in [] if start.resumed else early:
            host.conductor.happened(event)
        return host

    async def _turn(self, host: RunHost) -> None:
        """Carry out all that is due, then wait until something happens.

        Raises:
            RuntimeError: not in a task; this worker then forgets the run, and rebuilds it.
        """
        if not host.has_begun():
            raise RuntimeError(f"{wire.AGAIN}events came for a query, before their task")
        host.changed = False
        is_done = host.conductor.pump(host.bounds.pump)
        result = host.conductor.result
        if is_done and result is None:
            self._look_at_history(host)
        await self._record(host)
        host.send_what_waits()
        if not is_done:
            await self._next_task()
            host.changed = True
            return
        self._result = result
        if result is not None:
            return
        self._publish_waits(host)
        await self._until(lambda: host.changed or self._is_cancelled)
        if self._is_cancelled:
            self._is_cancelled = False
            reason = workflow.cancellation_reason() or "cancelled on the cluster"
            host.conductor.happened(ev.CancelRequested(reason))

    async def _record(self, host: RunHost) -> None:
        """Have the cluster record the new rows, before anything that follows from them is sent.

        Raises:
            ReplayMismatch: this is a replay, and the code decides otherwise than it did.
            RuntimeError: not in a task, as in ``_turn``.
        """
        for chunk in host.take_new():
            recorded = workflow.start_local_activity(
                wire.ROWS,
                wire.raw_bytes(chunk),
                result_type=RawValue,
                start_to_close_timeout=timedelta(minutes=1),
            )
            while not recorded.done():
                await self._until(recorded.done)
            if recorded.cancelled() or recorded.exception() is not None:
                raise RuntimeError(f"{wire.AGAIN}it could not record what the run decided")
            host.replayed(chunk, bytes(recorded.result().payload.data))

    async def _until(self, happened: Any) -> None:
        """Wait until ``happened()`` is true; the first cancellation also ends the wait."""
        try:
            await workflow.wait_condition(happened)
        except asyncio.CancelledError:
            if workflow.cancellation_reason() is None or self._is_cancelled:
                raise  # this execution is being evicted from memory
            self._is_cancelled = True
            await workflow.wait_condition(lambda: True)

    def _publish_waits(self, host: RunHost) -> None:
        """Write into the memo what the run waits for, at most ``LISTED`` entries."""
        suspended = host.suspension()
        waits = () if suspended is None else suspended.waits_for[: wire.LISTED]
        if waits != self._waits:
            self._waits = waits
            host.sends_command()
            workflow.upsert_memo(
                {wire.WAITS: self._listed(waits) or None, wire.EVENTS: host.events}
            )

    def _listed(self, waits: Sequence[WaitsFor]) -> list[Any]:
        mask = self._serving.mask
        return [mask.plain(msgspec.to_builtins(one)) for one in waits]

    def _look_at_history(self, host: RunHost) -> None:
        """End the drive before this history is too long; the run continues in a new execution."""
        info, conductor, bounds = workflow.info(), host.conductor, host.bounds
        events, size = info.get_current_history_length(), info.get_current_history_size()
        is_too_long = events >= bounds.hard_events or size >= bounds.hard_bytes
        if self._is_ending or not (host.is_long or is_too_long):
            return
        if conductor.waits_for_people and not conductor.machine.run.parked:
            conductor.end(CONTINUED)
        elif is_too_long:
            conductor.drain(CONTINUED)
        else:
            return
        self._is_ending = host.changed = True

    def _run_again(self, start: wire.Start, host: RunHost, mismatch: ReplayMismatch) -> None:
        """Have the next execution go on over changed steps, as ``accept_changes`` says.

        Raises:
            ReplayMismatch: nothing has been recorded yet, or nothing says what to do. The cluster
                then repeats this task, until a worker has other code.
        """
        if not mismatch.late:
            raise mismatch
        told = dict.fromkeys((*start.reuse, *start.rerun, *start.told))
        reuse, rerun = accept_changes(
            [self._event(row) for row in self._rows_after(0)],
            mismatch,
            start.reuse,
            start.rerun,
            told=told,
            on_change=start.on_change or self._serving.parts.on_change,
        )
        told |= dict.fromkeys(change.path for change in mismatch.changes)
        self._go = wire.Drive(tuple(reuse), tuple(rerun), told=tuple(told))
        self._result = host.conductor.result

    def _continue(self, start: wire.Start, host: RunHost) -> NoReturn:
        """Continue in another execution; a held one if the run itself was suspended."""
        go = self._go or wire.Drive()
        held = self._go is None and CONTINUED not in host.rows[-1].body
        following = wire.with_drive(start, go, inputs={}, resumed=True, held=held, homes=host.homes)
        chunks = [*self._chunks, *wire.pack_rows(host.rows)]
        if host.blobs:
            chunks = wire.merge_chunks(chunks, LARGE_BYTES)
        elif (size := sum(map(len, chunks))) > wire.MOST_BYTES:
            error = TooLarge("the record of the run", size, wire.MOST_BYTES)
            raise ApplicationError(str(error), type=wire.TOO_LARGE, non_retryable=True)
        workflow.continue_as_new(
            args=[wire.raw(following), *map(wire.raw_bytes, chunks)],
            memo=self._memo(following, host),
        )

    def _memo(self, following: wire.Start, host: RunHost) -> dict[str, Any]:
        """The memo of the execution that follows."""
        memo: dict[str, Any] = {wire.LABELS: following.labels, **self._origin}
        memo[wire.EVENTS] = host.events
        last = self._event(host.rows[-1])
        if following.held and isinstance(last, ev.RunSuspended):
            memo[wire.HELD] = "suspended"
            memo[wire.WAITS] = self._listed(last.waits_for[: wire.LISTED])
        return memo

    def _ended(self, host: RunHost, result: WorkflowResult[Any]) -> RawValue:
        """The execution's result.

        Raises:
            ApplicationError: the run failed or was cancelled; with the same data.
        """
        last = host.rows[-1]
        value = None if last.value is None else msgspec.Raw(last.value.encode())
        error = None if result.error is None else self._serving.mask.text(result.error)
        ended = wire.Ended(result.status, value, error, last.seq)
        status = None if result.status == "succeeded" else result.status
        workflow.upsert_memo({wire.STATUS: status, wire.EVENTS: last.seq})
        if status is not None:
            raise ApplicationError(
                str(error)[:1_000],
                wire.raw(ended),
                type=wire.FAILED if result.status == "failed" else wire.CANCELLED,
                non_retryable=True,
            )
        return wire.raw(ended)

    def _keep_bodies(self) -> None:
        """Pin the run's bodies: this execution is being evicted from memory."""
        if self._host is not None and self._result is None:
            with contextlib.suppress(Exception):
                self._serving.bodies.keep(workflow.info().workflow_id, self._host.bodies())

    # -- messages -------------------------------------------------------------------------------

    def message(self, row: wire.Row) -> None:
        """Take a message that the run cannot refuse."""
        self._take(self._event(row))

    def signalled(self, name: str, args: Sequence[RawValue]) -> None:
        """Take a signal that was sent with Temporal's own tools."""
        payload = msgspec.json.decode(args[0].payload.data) if args else None
        self._take(ev.SignalReceived(name, payload, "the cluster"))

    def refused(self, refusal: wire.Refusal) -> None:
        """Fail a gate that could not be answered."""
        if self._host is not None:
            error = error_of_data(refusal.error, self._serving.secrets)
            self._host.conductor.refused(refusal.path, error)
            self._host.changed = True

    def go_on(self, how: wire.Drive) -> None:
        """Drive a held run, or end this drive so that a new one follows."""
        self._go = how
        if self._host is not None:
            self._host.conductor.end(CONTINUED)
            self._host.changed = True

    def _take(self, event: ev.Event) -> None:
        if self._host is None:
            self._early.append(ev.stamp(event, workflow.info().workflow_id, 0, workflow.time()))
        else:
            self._host.conductor.happened(event)
            self._host.look()
            self._host.changed = True

    def check(self, row: wire.Row) -> None:
        """Refuse a message that the run cannot take, or do nothing.

        Raises:
            ApplicationError: the run refuses it; with the error as data.
        """
        if self._host is not None or self._held:
            self._checked(self._event(row))

    async def asked(self, row: wire.Row) -> RawValue:
        """Check a message and take it; returns the row of the message as accepted."""
        await workflow.wait_condition(lambda: self._host is not None or self._held)
        event = self._checked(self._event(row))
        if self._host is not None:
            self._host.sends_command()  # that it was accepted
        self._take(event)
        return wire.raw(wire.row_of(event, self._serving.codec, self._serving.secrets))

    def _checked(self, event: ev.Event) -> ev.Event:
        """The message as the run accepts it, for example with its answer converted.

        Raises:
            ApplicationError: the run refuses it; with the error as data.
        """
        try:
            host = self._host
            return self._checked_held(event) if host is None else self._checked_live(host, event)
        except HandrailError as error:
            data = error_as_data(error, self._serving.secrets)
            raise ApplicationError(
                self._serving.mask.text(str(error)),
                data,
                type=type(error).__name__,
                non_retryable=True,
            ) from None

    def _checked_live(self, host: RunHost, event: ev.Event) -> ev.Event:
        run, run_id = host.machine.run, workflow.info().workflow_id
        if self._result is not None:
            raise CannotSteer(run_id, "it has just ended", "resume() continues it.")
        match event:
            case ev.GateAnswered(path=path):
                answer = accept_answer(open_gate(run, path), event.answer)
                accepted = ev.GateAnswered(path, answer, event.by)
                return ev.stamp(accepted, run_id, 0, event.at)
            case ev.SignalReceived(name=name):
                types = awaited_types(run, name)
                if types:
                    check_payload(name, event.payload, types, 0)
                return event
            case ev.RunSteered() if event.path:
                refuse_unknown(run, event.path)
                return check_steering(run, event)
            case _:
                return event

    def _checked_held(self, event: ev.Event) -> ev.Event:
        run_id = workflow.info().workflow_id
        history = [self._event(row) for row in wire.unpack_rows(self._chunks)] + self._early
        return accepted_by(run_id, history, event, workflow.time())

    def _event(self, row: wire.Row) -> ev.Event:
        run_id = workflow.info().workflow_id
        return wire.event_of(row, run_id, self._serving.codec, self._serving.secrets)

    # -- reading --------------------------------------------------------------------------------

    def record_after(self, after: int) -> bytes:
        """The rows after a number as one chunk; the first ``PAGE_BYTES`` or so of many."""
        found: list[wire.Row] = []
        size = 0
        for row in self._rows_after(after):
            size += len(row.body) + len(row.value or "")
            found.append(row)
            if size > PAGE_BYTES:
                break
        chunks = wire.pack_rows(found)
        return chunks[0] if chunks else b""

    def _rows_after(self, after: int) -> list[wire.Row]:
        if self._before is None:
            self._before = list(wire.unpack_rows(self._chunks))
        before = len(self._before)
        rows = [] if self._host is None else self._host.rows
        if after >= before:
            return rows[after - before :]
        return [*self._before[after:], *rows]

    def state(self) -> wire.State:
        """The run's state."""
        host = self._host
        if host is None:
            rows = self._rows_after(0)
            at = rows[-1].at if rows else 0.0
            return wire.State(held=self._held, events=len(rows), updated_at=at)
        suspended = host.suspended()
        paused = host.machine.run.paused
        return wire.State(
            suspended, paused is not None, events=host.events, updated_at=host.updated_at
        )


def _counting(early: Sequence[ev.Event]) -> list[ev.Event]:
    """The messages to a held run, without requests to stop it: it was not driven."""
    return [one for one in early if not (isinstance(one, ev.RunSteered) and one.action == "stop")]
