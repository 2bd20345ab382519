"""A run on a cluster, as a host of the conductor: attempts become activities, alarms timers.

Theory of operation. This code runs in a workflow task, and again in each replay of that task. All
that it does follows from the history: the time is the task's, and ends come in the order of the
activation's jobs. It imports nothing on its own, and reads neither clock nor file.

An attempt is an activity whose id is the step's path. After a crash the server starts the activity
again, as often as it takes. Whether a *failure* leads to another attempt is up to the machine, so
the activity returns a failed attempt's end as data. A predicate is a local activity: the worker
that runs this code evaluates it, and the cluster records the answer.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from itertools import zip_longest
from typing import Any, assert_never, cast

import attrs
import msgspec
from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    CancelledError,
    TimeoutType,
)
from temporalio.exceptions import TimeoutError as ClusterTimeout

from handrail.cluster_errors import ClusterRefused, TooLarge
from handrail.core import commands as cmd
from handrail.core.attempt_ends import failure_event, rollback_event
from handrail.core.conductor import Conductor, Kind, Question, StepClaims
from handrail.core.ending import suspension
from handrail.core.machine import Machine
from handrail.core.run_state import StepNode
from handrail.core.setting import Setting
from handrail.core.timers import InFlight
from handrail.engine.callbacks import Evaluator
from handrail.engine.current import ContextNotAMapping, Contexts
from handrail.engine.parts import DriveStart, start_after
from handrail.engine.portable import PortableFormat, left_s
from handrail.engine.step_names import StepNames
from handrail.errors import NotPortable, ReplayMismatch, StepChange, StepTimeout
from handrail.model import events as ev
from handrail.model.definition import Words, WorkflowDefinition
from handrail.model.policy import Limits
from handrail.model.results import AgentResult, Usage
from handrail.record.answers import policy_answer
from handrail.record.run_record import Recorded
from handrail.secrets.sealing import seal_text, unseal_text
from handrail.steps.leaves import Launching
from handrail.steps.verbs import take
from handrail.temporal import wire
from handrail.temporal.ends import EndCodec
from handrail.temporal.errors_as_data import error_as_data, error_of_data
from handrail.temporal.serving import Serving
from handrail.typed.jsonsafe import short_repr
from handrail.typed.schema import hints_of

CONTINUED = "continued as new"
"""The reason of a drive that ends because its run continues in another execution."""
_LONG = timedelta(days=3_650)
_GRACE_S = 60.0
_ATTEMPT_RETRIES = RetryPolicy(
    initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=30)
)
_ONCE = RetryPolicy(maximum_attempts=1)
_LONGEST_ID = 900


class RunHost:
    """Drives one run in one execution. Mutable."""

    def __init__(
        self,
        serving: Serving,
        run_id: str,
        name: str,
        start: wire.Start,
        *,
        history: Sequence[ev.Event] = (),
        recorded: Recorded | None = None,
        letters: Sequence[ev.Event] = (),
    ) -> None:
        self.rows: list[wire.Row] = []
        """The rows recorded in this execution."""
        self._new: list[wire.Row] = []
        """The rows that are to be recorded now, each without what an activity's end has."""
        self.changed = True
        """True if something has happened since the last ``pump``."""
        self.homes = dict(start.homes)
        self.bounds = start.bounds or wire.BOUNDS
        self._serving = serving
        self._start = start
        definition = serving.definition(name, start.workflow)
        beginning = _beginning(serving, definition, run_id, start, (history, recorded, letters))
        self._beginning = beginning
        parts, codec = serving.parts, serving.codec
        limits = _limits(start, codec).over(definition.limits)
        contexts = Contexts(
            run_id, parts.services, parts.config, run_id, StepNames(definition).check
        )
        self._contexts = contexts
        self._evaluator = Evaluator(contexts, parts.stages, start.gates)
        self._portable_format = PortableFormat(codec, definition.function.__module__)
        self._end_codec = EndCodec(run_id, codec, serving.secrets)
        self._handles: dict[tuple[str, str], Any] = {}
        self._totals: dict[str, Usage] = {}
        """The last reported total usage of each agent session."""
        self._alarm: asyncio.Task[None] | None = None
        self._alarm_due = 0.0
        self._rows_by_event: dict[int, tuple[ev.Event, wire.Row]] = {}
        """Events that arrived as rows, with these rows, by identity, until they are recorded."""
        self._unsent: deque[Callable[[], None]] = deque()
        """Commands to the cluster, which follow once the rows before them are recorded. Starts of
        activities may be put off to the next task: one task's answer has a size limit.
        """
        self._sent_bytes = 0
        self._sent_in = self._turn = -1
        self._tasks = Tasks()
        self.is_long = False
        """True once the history is so long that the run is to continue in a new execution."""
        self._numbers = 0
        machine = Machine(
            definition,
            beginning.inputs,
            Setting(
                run_id,
                limits,
                start.cleanup_timeout_s,
                beginning.recorded,
                codec,
                start.max_crashes,
                serving.secrets,
                beginning.cancel is not None,
            ),
        )
        self.conductor = Conductor(
            machine,
            self,
            record=self._record,
            seq=beginning.seq,
            window=self.bounds.window,
            last_at=beginning.last_at,
            handles_gates=start.gates is not None,
        )
        self.conductor.claims = StepClaims(self.conductor, spread=True)
        self.conductor.begin(beginning.first, beginning.letters, beginning.cancel)

    @property
    def blobs(self) -> bool:
        """True if large values go to a store."""
        return self._start.blobs

    @property
    def events(self) -> int:
        """How many events the run has recorded."""
        return self._beginning.seq + len(self.rows)

    @property
    def machine(self) -> Machine:
        """The run's machine."""
        return self.conductor.machine

    def bodies(self) -> Iterator[Any]:
        """The generators of the run's bodies."""
        run = self.machine.run
        for node in (*run.nodes.values(), run.root):
            if node.generator is not None:
                yield node.generator

    @property
    def updated_at(self) -> float:
        """When the run's last event happened, in unix seconds."""
        return self.rows[-1].at if self.rows else self._beginning.last_at

    def suspension(self) -> ev.RunSuspended | None:
        """What the run waits for, if it cannot advance before a person acts."""
        if not self.conductor.waits_for_people:
            return None
        return suspension(self.machine.run, "waiting")

    def suspended(self) -> wire.Row | None:
        """``suspension`` as a row."""
        event = self.suspension()
        if event is None:
            return None
        ev.stamp(event, self._end_codec.run_id, 0, self.now())
        return wire.row_of(event, self._serving.codec, self._serving.secrets)

    # -- the history ----------------------------------------------------------------------------

    def sends_command(self) -> None:
        """Note that this workflow task sends a command, or hears of a local activity's end."""
        self._tasks.send(workflow.info().get_current_history_length())

    def has_begun(self) -> bool:
        """False if a query is all that what comes in came for; see ``Tasks``."""
        info = workflow.info()
        self._turn = task = info.get_current_history_length()
        told = info.get_current_history_size() or workflow.time_ns()
        return self._tasks.has_begun(task, told) or workflow.unsafe.is_replaying()

    def look(self) -> None:
        """Look at the history's length, in its turn behind what has come in by now.

        Call it for all that comes in by an event of the history, so not for local activities: their
        ends may come in later than in a replay.
        """
        info = workflow.info()
        events, size = info.get_current_history_length(), info.get_current_history_size()
        self.conductor.queue_job(partial(self._look, events, size))

    def _look(self, events: int, size: int) -> None:
        is_long = events >= self.bounds.long_from(self.events) or size >= self.bounds.soft_bytes
        if self._tasks.is_sure(events) and is_long:
            self.is_long = True
            self.conductor.end_when_idle(CONTINUED)

    # -- the record -----------------------------------------------------------------------------

    def _record(self, event: ev.Event, /, *, sync: bool = False) -> None:
        del sync
        known = self._rows_by_event.pop(id(event), None)
        if known is not None:
            row = known[1]
            row.seq, row.at = event.seq, event.at
            self._new.append(wire.Row(row.seq, row.at, wire.END, _id_of(row.path, "attempt"), ""))
        else:
            row = wire.row_of(event, self._serving.codec, self._serving.secrets)
            self._new.append(row)
        self.rows.append(row)

    def take_new(self) -> list[bytes]:
        """The rows that the cluster is to record now, as chunks; they no longer count as new."""
        chunks, self._new = wire.pack_rows(self._new), []
        return chunks

    def replayed(self, chunk: bytes, recorded: bytes) -> None:
        """Put what the cluster has recorded in the place of the rows that this replay made.

        Raises:
            ReplayMismatch: the code decides otherwise now.
        """
        made, known = (list(wire.unpack_rows([one])) for one in (chunk, recorded))
        for row, was in zip_longest(made, known):
            change = _change(row, was)
            if change is not None:
                raise ReplayMismatch(self._end_codec.run_id, (change,))
            if was.kind != wire.END:
                self.rows[was.seq - self._beginning.seq - 1] = was

    # -- as a host ------------------------------------------------------------------------------

    def now(self) -> float:
        """The time of the workflow task, in unix seconds."""
        return workflow.time()

    def perform(self, attempt: cmd.Perform) -> None:
        """Begin the attempt as an activity, or here if it is not portable and ``local`` is set."""
        attempt = self._with_totals(attempt)
        verb = attempt.step.verb
        if isinstance(verb, Launching) and verb.builds_context:
            self._with_context(attempt)
        else:
            self._send(attempt, None)

    def undo(self, rollback: cmd.Undo) -> None:
        """Begin the rollback as an activity, or here if it is not portable and ``local`` is set."""
        path = rollback.path
        try:
            text = self._sealed(self._portable_format.write_rollback(rollback), path)
        except (NotPortable, TooLarge) as error:
            if self._start.local and isinstance(error, NotPortable):
                self._here(path, "rollback", partial(self._perform_here, rollback))
            else:
                self.conductor.undone(path, rollback_event(path, error))
                self.changed = True
            return
        left = timedelta(seconds=rollback.rollback.timeout_s + _GRACE_S)
        self._activity(path, "rollback", f"undo {path}", text, start_to_close=left)

    def evaluate(self, question: Question) -> None:
        """Answer in this workflow task; a predicate in a local activity."""
        match question:
            case cmd.FindStages():
                self._answer_at_once(question, lambda: self._evaluator.find_stages(question))
            case cmd.AskFallback():
                self._ask_handler(question)
            case cmd.AskPredicate():
                self._ask_predicate(question)
            case cmd.Ask():
                policy = self._start.gates or ""
                self._answer_at_once(
                    question, lambda: (policy_answer(policy, question.gate), f"policy {policy}")
                )
            case _:
                assert_never(question)

    def stop(self, it: InFlight) -> None:
        """Have the activity cancelled."""
        self._unsent.append(partial(self._stop, it.path, it.kind))

    def _stop(self, path: str, kind: str) -> None:
        handle = self._handles.get((path, kind))
        if handle is not None:
            handle.cancel()

    def alarm(self, due: float | None) -> None:
        """Set the timer. One that rings earlier stays: a needless ring costs less than a change."""
        self._unsent.append(partial(self._set_alarm, due))

    def _set_alarm(self, due: float | None) -> None:
        if due is None or (self._alarm is not None and self._alarm_due <= due):
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_due = due
        self._alarm = asyncio.ensure_future(self._ring(due))

    async def _ring(self, due: float) -> None:
        left_s = max(0.0, due - self.now())
        if left_s:
            self.sends_command()
        await asyncio.sleep(left_s)
        self._alarm = None
        self.conductor.tick()
        self.look()
        self.changed = True

    def turn(self, path: str) -> None:
        """Give the turn back at once: nothing else waits for one."""
        self.conductor.turned(path)

    # -- attempts -------------------------------------------------------------------------------

    def _with_totals(self, attempt: cmd.Perform) -> cmd.Perform:
        """The attempt with the known total usage of the session that it continues."""
        verb, launch = attempt.step.verb, attempt.launch
        if not isinstance(verb, Launching):
            return attempt
        if launch.session is not None and launch.session_usage is None:
            launch = dataclasses.replace(launch, session_usage=self._total_of(launch.session))
            attempt = msgspec.structs.replace(attempt, launch=launch)
        settings = verb.settings
        if settings.session is None:
            return attempt
        lent = settings.session in self.machine.run.recorded.lent_sessions or settings.lent
        total = self._total_of(settings.session) or settings.session_usage
        settings = attrs.evolve(settings, lent=lent, session_usage=total)
        step = msgspec.structs.replace(attempt.step, verb=verb.with_settings(settings))
        take(step)
        return msgspec.structs.replace(attempt, step=step)

    def _total_of(self, session: str) -> Usage | None:
        recorded = self.machine.run.recorded.session_totals
        return self._totals.get(session) or recorded.get(session)

    def _with_context(self, attempt: cmd.Perform) -> None:
        """Call the builder of the agent's context, then begin the attempt."""
        view, verb = attempt.view, attempt.step.verb
        assert view is not None
        assert isinstance(verb, Launching)
        builder: Any = verb.context
        try:
            made = builder(self._contexts.of(view))
        except Exception as error:  # noqa: BLE001  # the user's function
            self._failed(attempt, error)
            return
        if hasattr(made, "__await__"):
            self._awaited(
                made, partial(self._context_made, attempt), partial(self._failed, attempt)
            )
        else:
            self._context_made(attempt, made)

    def _context_made(self, attempt: cmd.Perform, made: Any) -> None:
        if _names_values(made):
            self._send(attempt, made)
        else:
            self._failed(attempt, ContextNotAMapping(attempt.path, short_repr(made, 200)))

    def _failed(self, attempt: cmd.Perform, error: BaseException) -> None:
        self.conductor.finished(attempt.path, failure_event(attempt, error))
        self.changed = True

    def _send(self, attempt: cmd.Perform, context: Mapping[str, Any] | None) -> None:
        path, step = attempt.path, attempt.step
        try:
            text = self._portable_format.write_attempt(attempt, self.now(), context)
            text = self._sealed(text, path)
        except (NotPortable, TooLarge) as error:
            if self._start.local and isinstance(error, NotPortable):
                self._here(path, "attempt", partial(self._perform_here, attempt))
            else:
                self._failed(attempt, error)
            return
        left = left_s(text)
        self._activity(
            path,
            "attempt",
            step.verb.label(),
            text,
            start_to_close=_LONG if left is None else timedelta(seconds=left + _GRACE_S),
            queue=self._queue_for(attempt),
            once=step.modifiers.once,
        )

    def _sealed(self, text: str, path: str) -> str:
        """The text with references in place of secrets.

        Raises:
            NotPortable: the text has another token, which would enter the cluster's history.
            TooLarge: the text needs a store of large values.
        """
        if len(text) > wire.MOST_BYTES and not self._start.blobs:
            raise TooLarge(f"the arguments of step {path!r}", len(text), wire.MOST_BYTES)
        text, cut = seal_text(text, self._serving.secrets)
        if cut:
            why = (
                "a token would be written into the cluster's history. Put it into an environment "
                "variable of the workers that Secrets counts, and read it in the step"
            )
            raise NotPortable(path, "arguments", why)
        return text

    def _queue_for(self, attempt: cmd.Perform) -> str | None:
        """The home queue of the session that a launch continues; None if any worker will do."""
        verb = attempt.step.verb
        settings = verb.settings if isinstance(verb, Launching) else None
        session = attempt.launch.session or (settings.session if settings is not None else None)
        return None if session is None else self.homes.get(session)

    def _activity(self, *args: Any, **settings: Any) -> None:
        self._unsent.append(partial(self._start_activity, *args, **settings))

    def _start_activity(
        self,
        path: str,
        kind: Kind,
        name: str,
        text: str,
        *,
        start_to_close: timedelta,
        queue: str | None = None,
        once: bool = False,
    ) -> None:
        if not self._take_room(len(text)):
            self._activity(
                path, kind, name, text, start_to_close=start_to_close, queue=queue, once=once
            )
            return
        self.sends_command()
        settings = wire.Settings(self._start.max_crashes, once, self._start.blobs)
        gone = timedelta(seconds=self.bounds.gone_s)
        handle = workflow.start_activity(
            name,
            args=[wire.raw_json(text), wire.raw(settings)],
            result_type=RawValue,
            activity_id=_id_of(path, kind),
            task_queue=queue,
            start_to_close_timeout=start_to_close,
            schedule_to_start_timeout=None if queue is None else gone,
            heartbeat_timeout=timedelta(seconds=self._start.heartbeat_s),
            retry_policy=_ATTEMPT_RETRIES,
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
        again = partial(
            self._activity, path, kind, name, text, start_to_close=start_to_close, once=once
        )
        self._handles[path, kind] = handle

        def over(task: asyncio.Task[RawValue]) -> None:
            self._activity_finished(path, kind, again, task)
            self.look()

        handle.add_done_callback(over)

    def _take_room(self, size: int) -> bool:
        """Count ``size`` more bytes of this workflow task's answer, if it has room; True if so."""
        if self._turn != self._sent_in:
            self._sent_in, self._sent_bytes = self._turn, 0
        if self._sent_bytes and self._sent_bytes + size > self.bounds.task_bytes:
            return False
        self._sent_bytes += size
        return True

    def send_what_waits(self) -> None:
        """Send the commands that follow from what is recorded, as far as there is room for them."""
        for _ in range(len(self._unsent)):
            self._unsent.popleft()()

    def _activity_finished(
        self,
        path: str,
        kind: Kind,
        again: Callable[[], None] | None,
        handle: asyncio.Task[RawValue],
    ) -> None:
        """Report an activity's end to the conductor."""
        if self._handles.get((path, kind)) is not handle:
            return
        end: wire.End | None = wire.End(stopped=True)
        if not handle.cancelled():
            error = handle.exception()
            if error is None:
                end = wire.read(handle.result(), wire.End)
            elif isinstance(error, ActivityError):
                end = _end_of(error)
            else:
                return  # this execution is being evicted from memory
        del self._handles[path, kind]
        self.changed = True
        if end is None:
            assert again is not None
            again()  # no worker polls its session's queue any more: on the runs' queue
        elif kind == "attempt":
            self._attempt_over(path, end, handle)
        else:
            self._rollback_over(path, end, handle)

    def _attempt_over(self, path: str, end: wire.End, handle: asyncio.Task[RawValue]) -> None:
        conductor = self.conductor
        node = self.machine.run.nodes.get(path)
        step = node.step if isinstance(node, StepNode) else None
        for row in end.notices:
            notice = self._end_codec.event(row)
            if isinstance(notice, ev.AgentSessionStarted) and end.queue:
                self.homes[notice.session] = end.queue
            assert isinstance(notice, ev.JOURNALED_NOTICES)
            conductor.queue_job(partial(conductor.record_now, notice))
        if end.overdue:
            known = self._end_codec.decode_broken_off(end)
            conductor.overdue(path, known, abandoned=end.abandoned)
        elif end.fault is not None:
            conductor.finished(path, self._end_codec.launch_failed(path, end, self.now()))
        elif end.event is not None:
            event = self._end_codec.event(end.event, step)
            assert isinstance(event, (ev.StepCompleted, ev.AttemptFailed))
            self._rows_by_event[id(event)] = event, end.event
            if isinstance(event, ev.StepCompleted):
                self._note_session(event, end)
            conductor.finished(path, event)
        elif end.stopped:
            known = self._end_codec.decode_broken_off(end)
            conductor.finished(path, cmd.Stopped(path, 0, end.abandoned, known, self.now()))
        else:
            self._broken(path, handle)

    def _broken(self, path: str, handle: asyncio.Task[RawValue]) -> None:
        """Fail an attempt that the cluster itself gave up, with the cluster's error text."""
        flight = self.conductor.flights.get((path, "attempt"))
        if flight is not None and isinstance(flight.command, cmd.Perform):
            error = ClusterRefused(path, _words_of(handle.exception()))
            self.conductor.finished(path, failure_event(flight.command, error))

    def _note_session(self, event: ev.StepCompleted, end: wire.End) -> None:
        result = event.result.output
        if isinstance(result, AgentResult) and result.session:
            if end.queue:
                self.homes[result.session] = end.queue
            if result.session_usage is not None:
                self._totals[result.session] = result.session_usage

    def _rollback_over(self, path: str, end: wire.End, handle: asyncio.Task[RawValue]) -> None:
        if end.event is not None:
            event = self._end_codec.event(end.event)
            assert isinstance(event, ev.RollbackCompleted)
        elif end.overdue:
            flight = self.conductor.flights.get((path, "rollback"))
            command = None if flight is None else flight.command
            limit_s = command.rollback.timeout_s if isinstance(command, cmd.Undo) else 0.0
            event = rollback_event(path, StepTimeout(path, limit_s))
        else:
            why = "it was cancelled" if end.stopped else _words_of(handle.exception())
            event = rollback_event(path, ClusterRefused(path, why))
        self.conductor.undone(path, event)

    # -- on this worker -------------------------------------------------------------------------

    def _answer_at_once(self, question: Question, answer: Callable[[], Any]) -> None:
        try:
            value = answer()
        except Exception as error:  # noqa: BLE001  # it is the question's answer
            self.conductor.evaluated(question, error=error)
        else:
            self.conductor.evaluated(question, value)

    def _ask_handler(self, question: cmd.AskFallback) -> None:
        """Call the handler of ``.on_error`` here: every replay needs the step that it returns."""
        try:
            value = self._evaluator.begin(question)
        except (Exception, GeneratorExit) as error:  # noqa: BLE001  # the user's function
            self.conductor.evaluated(question, error=error)
            return
        if not hasattr(value, "__await__"):
            self.conductor.evaluated(question, value)
            return
        self._awaited(
            value,
            partial(self._evaluated, question),
            lambda error: self._evaluated(question, error=error),
        )

    def _evaluated(
        self, question: Question, value: Any = None, error: BaseException | None = None
    ) -> None:
        self.conductor.evaluated(question, value, error)
        self.changed = True

    def _awaited(
        self, value: Any, then: Callable[[Any], None], broken: Callable[[BaseException], None]
    ) -> None:
        """Await the user's awaitable, which must do no I/O: a workflow task has none."""

        async def wait() -> None:
            try:
                made = await value
            except asyncio.CancelledError:
                raise
            except Exception as error:  # noqa: BLE001  # the user's function
                broken(error)
            else:
                then(made)

        task = asyncio.ensure_future(wait())
        self._numbers += 1
        self._handles[f"awaited {self._numbers}", "evaluation"] = task

    def _ask_predicate(self, question: cmd.AskPredicate) -> None:
        secrets = self._serving.secrets

        async def verdict() -> bytes:
            try:
                value = self._evaluator.begin(question)
                if hasattr(value, "__await__"):
                    value = await value
            except (Exception, GeneratorExit) as error:  # noqa: BLE001  # the user's function
                return msgspec.json.encode({"error": error_as_data(error, secrets)})
            if not isinstance(value, bool):
                return msgspec.json.encode({"shown": self._serving.mask.text(repr(value))})
            return msgspec.json.encode({"value": value})

        def on_done(handle: asyncio.Task[RawValue]) -> None:
            if handle.cancelled() or handle.exception() is not None:
                error = None if handle.cancelled() else handle.exception()
                if error is not None and not isinstance(error, ActivityError):
                    return  # this execution is being evicted from memory
                self._evaluated(question, error=error or RuntimeError("cancelled"))
                return
            answer: dict[str, Any] = wire.read(handle.result(), dict[str, Any])
            if "error" in answer:
                self._evaluated(question, error=error_of_data(answer["error"], secrets))
            else:
                # A verdict that was no bool is shown as the real value.
                self._evaluated(question, answer.get("value", Words(answer.get("shown", ""))))

        self._local(question.path, "evaluation", verdict, on_done)

    def _local(
        self,
        path: str,
        kind: Kind,
        work: Callable[[], Any],
        on_done: Callable[[asyncio.Task[RawValue]], None],
        limit: timedelta = timedelta(minutes=5),
    ) -> None:
        """Have this worker do ``work`` as a local activity, so that the cluster records its end."""
        self._unsent.append(partial(self._start_local, path, kind, work, on_done, limit))

    def _start_local(
        self,
        path: str,
        kind: Kind,
        work: Callable[[], Any],
        on_done: Callable[[asyncio.Task[RawValue]], None],
        limit: timedelta,
    ) -> None:
        name = self._serving.local.add(work)
        handle = workflow.start_local_activity(
            wire.LOCAL,
            wire.raw(name),
            result_type=RawValue,
            activity_id=_id_of(path, kind),
            start_to_close_timeout=limit,
            retry_policy=_ONCE,
        )
        self._handles[path, kind] = handle

        def over(task: asyncio.Task[RawValue]) -> None:
            self._serving.local.take(name)
            self.sends_command()  # a marker records it
            if self._handles.get((path, kind)) is task:
                del self._handles[path, kind]
                on_done(task)

        handle.add_done_callback(over)

    def _here(self, path: str, kind: Kind, work: Callable[[], Any]) -> None:
        """Perform an attempt or a rollback that cannot leave this process, as a local activity."""

        def on_done(handle: asyncio.Task[RawValue]) -> None:
            self._handles[path, kind] = handle
            self._activity_finished(path, kind, None, handle)

        self._local(path, kind, work, on_done, _LONG)

    async def _perform_here(self, command: cmd.Perform | cmd.Undo) -> bytes:
        from handrail.temporal.performing import perform_here

        return await perform_here(self._serving, self._end_codec, command)


class Tasks:
    """Which workflow tasks each replay finds again with the history's length that they had.

    A replay makes the same calls in the same order. But it does not always make them in the same
    tasks, so the history's length differs:

    - Two tasks are one if the first sent no command, nor the one before it, and nothing happened
      between the two. A local activity that takes long or a refused update leaves such tasks.
    - A local activity's end comes in one task earlier if a query was answered while it came.

    And a worker that rebuilds a run to answer a query may be handed events whose task has not begun
    yet. What comes with that task would then come too late. The history's size gives such events
    away, which a server tells as a task begins. One that tells no size is known by its clock, which
    still stands at the task before, unless a local activity's end has put it forward.

    Tasks are named by the history's length in them. Mutable.
    """

    def __init__(self) -> None:
        self._sent = self._this = self._before = -1
        self._last = -1, -1
        self._is_ahead = False
        """True while the clock may be that of a local activity's worker."""

    def has_begun(self, task: int, told: int) -> bool:
        """False for events whose task has not begun; ``told`` is the size, or the time."""
        last, last_told = self._last
        self._last = task, told
        if task == last:
            self._is_ahead = self._is_ahead or told != last_told
        elif told != last_told:
            self._is_ahead = False
        else:
            return self._is_ahead
        return True

    def send(self, task: int) -> None:
        """Note that ``task``, which is under way, sends a command."""
        self._enter(task)
        self._sent = task

    def is_sure(self, task: int) -> bool:
        """True if ``task``, which is under way, or the one before it sent a command."""
        self._enter(task)
        return self._sent in {task, self._before}

    def _enter(self, task: int) -> None:
        if task != self._this:
            self._before, self._this = self._this, task


# -- how a run begins ------------------------------------------------------------------------------


def _names_values(made: object) -> bool:
    return isinstance(made, Mapping) and all(isinstance(name, str) for name in cast("Any", made))


def _beginning(
    serving: Serving,
    definition: WorkflowDefinition,
    run_id: str,
    start: wire.Start,
    before: tuple[Sequence[ev.Event], Recorded | None, Sequence[ev.Event]],
) -> DriveStart:
    """Where the drive begins; ``before``: the history, its record by path, the messages since."""
    if start.resumed:
        history, recorded, letters = before
        return start_after(
            history,
            definition,
            serving.codec,
            letters=letters,
            reuse=start.reuse,
            rerun=start.rerun,
            cancel=start.cancel,
            recorded=recorded,
        )
    hints = hints_of(definition.function)
    inputs = {
        name: serving.codec.load(
            unseal_text(bytes(text).decode(), serving.secrets), hints.get(name, Any)
        )
        for name, text in start.inputs.items()
    }
    first = ev.WorkflowStarted(definition.name, inputs, start.labels)
    return DriveStart(definition, run_id, inputs, first)


def _change(made: wire.Row | None, known: wire.Row | None) -> StepChange | None:
    """How a row that a replay made differs from the recorded one, by what counts as a change."""
    now, was = (None if one is None else _said(one) for one in (made, known))
    if now == was:
        return None
    if was is None or now is None:
        kind, path, said = was or now or ("", "", "")
        said = said or kind
        return StepChange(path, *((said, "no such step") if was else ("no such step", said)))
    if was[:2] == now[:2]:
        return StepChange(was[1], was[2], now[2])
    return StepChange(was[1], was[2] or was[0], f"{now[1]!r} in its place, {now[2] or now[0]}")


def _said(row: wire.Row) -> tuple[str, str, str]:
    """What a row says of the code: its kind, its path, and what the step or the item is."""
    body = msgspec.json.decode(row.body or "{}")
    return row.kind, row.path, str(body.get("fingerprint") or body.get("digest") or "")


def _limits(start: wire.Start, codec: Any) -> Limits:
    if start.limits is None:
        return Limits()
    found: Limits = codec.load(wire.text_of(start.limits), Limits)
    return found


# -- names -----------------------------------------------------------------------------------------


def _id_of(path: str, kind: Kind) -> str:
    """The activity's id: the path, cut and hashed where it is too long for the server."""
    name = path if kind == "attempt" else f"{path} ({kind})"
    if len(name.encode()) <= _LONGEST_ID:
        return name
    import hashlib

    digest = hashlib.blake2b(name.encode(), digest_size=8).hexdigest()
    return f"{name.encode()[:_LONGEST_ID].decode(errors='ignore')}…{digest}"


def _end_of(error: ActivityError) -> wire.End | None:
    """The end in an activity's failure; None if no worker of the activity's queue took it."""
    cause = error.cause
    if isinstance(cause, CancelledError):
        return wire.End(stopped=True)
    if isinstance(cause, ApplicationError) and cause.type == wire.ATTEMPT_FAILED:
        return msgspec.convert(cause.details[0], wire.End)
    if isinstance(cause, ClusterTimeout) and cause.type is TimeoutType.SCHEDULE_TO_START:
        return None
    return wire.End()


def _words_of(error: BaseException | None) -> str:
    words: list[str] = []
    while error is not None and len(words) < 3:
        words.append(str(error))
        error = error.__cause__
    return ": ".join(words)
