"""Performs attempts and rollbacks on a worker, as activities of any run.

A *failure* of the user's code is an end like any other, and the machine decides what follows. The
server retries only activities without an end: the worker crashed, shut down, or lacked the code.
So an activity fails either for good, with the attempt's end in the failure, or retryably.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable, Sequence
from contextvars import copy_context
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeAlias

import msgspec
from temporalio import activity
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from handrail.cluster_errors import TooLarge
from handrail.core import commands as cmd
from handrail.core.attempt_ends import failure_event, rollback_event
from handrail.core.commands import Perform
from handrail.engine.callbacks import Evaluator
from handrail.engine.calls import Abandoned
from handrail.engine.current import CURRENT, Contexts, Current
from handrail.engine.perform import Performer, Replacements
from handrail.engine.portable import PortableFormat, left_s
from handrail.errors import (
    CancelledFromWithin,
    CodeNotFound,
    StepIsPoisonous,
    StepWasInterrupted,
)
from handrail.model import events as ev
from handrail.model.launch import Launch
from handrail.secrets.sealing import unseal_text
from handrail.system.marker import kill_marked
from handrail.temporal import wire
from handrail.temporal.ends import EndCodec
from handrail.temporal.serving import Serving

MISSING = "CodeNotFound"
STOPPED = "WorkerStopped"
BEAT_S = 1.0
"""How often an attempt sends a heartbeat, whose reply says whether to stop."""
ABANDON_AFTER_S = 10.0
"""How long a cancelled attempt may take to end before it is abandoned."""
_MISSING_RETRY_S = 5.0
_BROKEN_OFF = "the worker that was running it ended"
_MESSAGE_CHARS = 1_000
_KEPT_BYTES = 32 << 20

Outcome: TypeAlias = (
    ev.StepCompleted | ev.AttemptFailed | ev.RollbackCompleted | cmd.LaunchFailed | wire.End
)


class KeptEnds:
    """The ends of attempts that this process performed most recently. Mutable.

    After an outage the cluster may retry an attempt that has ended meanwhile. The worker that
    performed the attempt then repeats its end, and does not perform it again.
    """

    def __init__(self, most_bytes: int = _KEPT_BYTES) -> None:
        self._ends: dict[str, tuple[bytes, str]] = {}
        self._most = most_bytes
        self._size = 0

    def keep(self, name: str, data: bytes, failure: str) -> None:
        """Keep an end, and drop the oldest ones beyond ``most_bytes``."""
        before, _ = self._ends.pop(name, (b"", ""))
        self._ends[name] = data, failure
        self._size += len(data) - len(before)
        while self._size > self._most:
            self._size -= len(self._ends.pop(next(iter(self._ends)))[0])

    def get(self, name: str) -> tuple[bytes, str] | None:
        """An end and the text of its failure ("" if it did not fail); None if it is not kept."""
        return self._ends.get(name)


class StepActivities:
    """Performs attempts and rollbacks for one worker. All that it keeps of runs are ends."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._kept = KeptEnds()

    @activity.defn(dynamic=True)
    async def perform(self, args: Sequence[RawValue]) -> RawValue:
        """Perform an attempt or a rollback; returns its end."""
        info = activity.info()
        digest = hashlib.blake2b(args[0].payload.data, digest_size=16).hexdigest()
        name = f"{info.workflow_run_id} {info.activity_id} {digest}"
        kept = self._kept.get(name) if info.attempt > 1 else None
        if kept is None:
            kept = await Attempt(self._serving, args).perform()
            self._kept.keep(name, *kept)
        return _to_payload(*kept)

    @activity.defn(name=wire.LOCAL)
    async def local(self, name: str) -> RawValue:
        """Do the work that the workflow code in this process registered under ``name``."""
        work = self._serving.local.take(name)
        if work is None:  # another process registered it: the workflow task runs again
            raise ApplicationError("it is not in this process", non_retryable=True)
        return wire.raw_json(await work())

    @activity.defn(name=wire.ROWS)
    async def rows(self, chunk: RawValue) -> RawValue:
        """Return the chunk, which the cluster so records."""
        return chunk


class Attempt:
    """One activity, from its start to its end. Mutable."""

    def __init__(self, serving: Serving, args: Sequence[RawValue]) -> None:
        self._serving = serving
        self._info = info = activity.info()
        self._text = unseal_text(bytes(args[0].payload.data).decode(), serving.secrets)
        self._settings: wire.Settings = wire.read(args[1], wire.Settings)
        assert info.workflow_id is not None
        self._end_codec = EndCodec(info.workflow_id, serving.codec, serving.secrets)
        self._contexts = _contexts(serving, info.workflow_id)
        before: Any = info.heartbeat_details[0] if info.heartbeat_details else {}
        self._before = msgspec.convert(before, wire.Beat)
        self._beat = wire.Beat(self._before.missing, self._before.stopped, queue=serving.home)
        self._parts: Any = msgspec.json.decode(self._text)

    async def perform(self) -> tuple[bytes, str]:
        """The end of the attempt, as data, and the text of its failure ("" if it did not fail).

        Raises:
            ApplicationError: the server is to retry it, on another worker.
        """
        try:
            command = self._read()
        except CodeNotFound as error:
            self._beat.missing += 1
            activity.heartbeat(self._beat_data())
            raise ApplicationError(
                str(error), type=MISSING, next_retry_delay=timedelta(seconds=_MISSING_RETRY_S)
            ) from None
        if self._info.attempt > 1:  # programs that a killed worker left running
            await asyncio.to_thread(kill_marked, f"{self._contexts.mark}/{command.path}")
        if isinstance(command, cmd.Undo):
            work = _undoing(self._serving, self._contexts, command)
            return self._encode_end(await self._at_work(command, work), command)
        refused = self._must_not_run(command)
        if refused is not None:
            return self._encode_end(refused, command)
        return self._encode_end(await self._at_work(command, self._performing(command)), command)

    def _read(self) -> Perform | cmd.Undo:
        portable_format = PortableFormat(self._serving.codec)
        if "undo" in self._parts:
            return portable_format.read_rollback(self._text)
        command = portable_format.read_attempt(self._text, self._serving.parts.clock.now())
        again = self._info.attempt - 1 - self._before.missing
        return self._resumed(command) if again > 0 else command

    def _resumed(self, command: Perform) -> Perform:
        """The interrupted attempt, continued in its agent's session if this machine has that."""
        launch = command.launch
        for row in self._before.notices:
            self._beat.notices.append(row)
            notice = self._end_codec.event(row)
            if isinstance(notice, ev.AgentSessionStarted):
                at_home = self._before.queue == self._serving.home
                launch = (
                    _resumed_launch(launch, notice)
                    if at_home
                    else replace(launch, number=launch.number + 1)
                )
        return msgspec.structs.replace(command, interrupted=True, launch=launch)

    def _must_not_run(self, command: Perform) -> ev.AttemptFailed | None:
        """The failure of a step that must not run again after its earlier tries were interrupted.

        A ``once`` step may not run again at all, another one not after ``max_crashes`` crashes.
        """
        before = self._before
        crashes = self._info.attempt - 1 - before.missing - before.stopped
        error: Exception | None = None
        if self._settings.once and crashes + before.stopped > 0:
            error = StepWasInterrupted(command.path)
        elif crashes >= self._settings.max_crashes:
            error = StepIsPoisonous(command.path, crashes)
        return None if error is None else replace(failure_event(command, error), retryable=False)

    # -- at work --------------------------------------------------------------------------------

    async def _at_work(self, command: Perform | cmd.Undo, work: Awaitable[Any]) -> Outcome:
        """The outcome of the work within its time; sends heartbeats meanwhile."""
        current = _current(self._serving, self._end_codec.run_id, command)
        task = _start_work(work, current)
        beating = asyncio.create_task(self._beating())
        try:
            done, _ = await asyncio.wait({task}, timeout=left_s(self._text))
            if not done:
                abandoned = await self._cancel_work(task, current)
                known = self._broken_off(command.path)
                return wire.End(overdue=True, abandoned=abandoned, launch=known)
        except asyncio.CancelledError:
            abandoned = await self._cancel_work(task, current)
            return self._cancelled(command.path, abandoned=abandoned)
        finally:
            beating.cancel()
        return _outcome(command, task)

    async def _cancel_work(self, task: asyncio.Task[Any], current: Current) -> bool:
        """Cancel the work and wait for its end; True if it had to be abandoned."""
        current.cancelled = True
        task.cancel()
        _, pending = await asyncio.wait({task}, timeout=ABANDON_AFTER_S)
        if not pending and not task.cancelled() and isinstance(task.exception(), Abandoned):
            return True
        return bool(pending)

    def _cancelled(self, path: str, *, abandoned: bool) -> wire.End:
        """The end of a cancelled activity, if there is more to report than the cancellation.

        Raises:
            ApplicationError: its worker shuts down, and another one is to perform the attempt.
            CancelledError: there is nothing else to report.
        """
        details = activity.cancellation_details()
        if details is not None and (details.worker_shutdown or details.paused or details.reset):
            self._beat.stopped += 1
            activity.heartbeat(self._beat_data())
            raise ApplicationError(
                "its worker is to end", type=STOPPED, next_retry_delay=timedelta(milliseconds=1)
            ) from None
        known = self._broken_off(path)
        if details is not None and details.cancel_requested and (abandoned or known is not None):
            return wire.End(stopped=True, abandoned=abandoned, launch=known)
        raise asyncio.CancelledError

    async def _beating(self) -> None:
        while True:
            activity.heartbeat(self._beat_data())
            await asyncio.sleep(BEAT_S)

    def _beat_data(self) -> Any:
        return msgspec.to_builtins(self._beat)

    # -- the work -------------------------------------------------------------------------------

    async def _performing(self, command: Perform) -> Any:
        self._performer = performer = _performer(self._serving, self._contexts, self._tell)
        return await performer.perform(command, CURRENT.get())

    def _tell(self, notice: ev.Notice) -> None:
        if isinstance(notice, ev.JOURNALED_NOTICES):
            self._beat.notices.append(self._end_codec.row(notice))
            activity.heartbeat(self._beat_data())

    def _broken_off(self, path: str) -> dict[str, Any] | None:
        performer: Performer | None = getattr(self, "_performer", None)
        if performer is None:
            return None
        return self._end_codec.encode_broken_off(performer.broken_off.pop(path, None))

    # -- its end --------------------------------------------------------------------------------

    def _encode_end(self, end: Outcome, command: Perform | cmd.Undo) -> tuple[bytes, str]:
        encoded = _encode_outcome(self._end_codec, command, end)
        encoded.notices = self._beat.notices
        encoded.queue = self._serving.home
        data = msgspec.json.encode(encoded)
        if (
            len(data) > wire.MOST_BYTES
            and not self._settings.blobs
            and isinstance(command, Perform)
        ):
            error = TooLarge(f"the output of step {command.path!r}", len(data), wire.MOST_BYTES)
            end = replace(failure_event(command, error), retryable=False)
            encoded = wire.End(self._end_codec.row(end))
            data = msgspec.json.encode(encoded)
        if isinstance(end, ev.AttemptFailed):
            said = f"{end.error_type.rpartition('.')[2]}: {self._serving.mask.text(end.error)}"
            return data, said[:_MESSAGE_CHARS]
        return data, ""


def _to_payload(data: bytes, failure: str) -> RawValue:
    """An end as the activity's result.

    Raises:
        ApplicationError: the attempt failed.
    """
    if failure:
        raise ApplicationError(
            failure,
            wire.raw_json(data),
            type=wire.ATTEMPT_FAILED,
            non_retryable=True,
            category=ApplicationErrorCategory.BENIGN,
        )
    return wire.raw_json(data)


def _contexts(serving: Serving, run_id: str) -> Contexts:
    mark = f"{run_id}@{serving.identity}"
    return Contexts(run_id, serving.parts.services, serving.parts.config, mark)


def _current(serving: Serving, run_id: str, command: Perform | cmd.Undo) -> Current:
    """What the user's code can ask about the step that it runs in."""
    attempt, interrupted = 1, False
    if isinstance(command, Perform):
        attempt, interrupted = command.attempt, command.interrupted
    return Current(
        run_id,
        command.path,
        attempt,
        interrupted,
        services=serving.parts.services,
        config=serving.parts.config,
        mask=serving.mask,
    )


def _performer(
    serving: Serving, contexts: Contexts, tell: Callable[[ev.Notice], None]
) -> Performer:
    parts = serving.parts
    return Performer(
        contexts,
        Replacements(parts.agents),
        parts.clock,
        tell,
        parts.agent_defaults,
        None,
        parts.around,
        sandbox=parts.sandbox,
    )


def _start_work(work: Awaitable[Any], current: Current) -> asyncio.Task[Any]:
    """Start the work as a task, in a context whose ``CURRENT`` is ``current``."""
    context = copy_context()
    context.run(CURRENT.set, current)
    return asyncio.get_running_loop().create_task(_guarded(work), context=context)


async def _undoing(serving: Serving, contexts: Contexts, rollback: cmd.Undo) -> Any:
    await Evaluator(contexts, serving.parts.stages, None).undo(rollback, CURRENT.get())
    return rollback_event(rollback.path)


def _outcome(command: Perform | cmd.Undo, task: asyncio.Task[Outcome]) -> Outcome:
    """The work's outcome; an exception, or a cancellation from within, becomes a failure."""
    if task.cancelled():
        error: BaseException = CancelledFromWithin(command.path)
    elif (raised := task.exception()) is not None:
        error = raised
    else:
        return task.result()
    if isinstance(command, cmd.Undo):
        return rollback_event(command.path, error)
    return failure_event(command, error)


def _encode_outcome(codec: EndCodec, command: Perform | cmd.Undo, end: Outcome) -> wire.End:
    """An end as data."""
    if isinstance(end, wire.End):
        return end
    if isinstance(end, ev.RollbackCompleted) or isinstance(command, cmd.Undo):
        assert isinstance(end, ev.RollbackCompleted)
        return wire.End(codec.row(end))
    return codec.encode(end, command.step)


async def _guarded(work: Awaitable[Any]) -> Any:
    """The work's result; an action that tries to end the process fails its attempt instead."""
    try:
        return await work
    except (KeyboardInterrupt, SystemExit) as error:
        raise _WantsToEnd(error) from error


class _WantsToEnd(Exception):
    """An action raised KeyboardInterrupt or SystemExit."""

    def __str__(self) -> str:
        return f"it raised {self.args[0]!r}: a step cannot end the worker that performs it"


def _resumed_launch(launch: Launch, session: ev.AgentSessionStarted) -> Launch:
    """The launch that continues the session of an interrupted launch."""
    return replace(
        launch,
        number=launch.number + 1,
        rung="resume",
        form=None,
        session=session.session,
        backend=session.backend,
        reason=_BROKEN_OFF,
    )


def home_queue(queue: str) -> str:
    """The task queue of this machine and folder, where agents keep their sessions."""
    import socket

    digest = hashlib.blake2b(os.getcwd().encode(), digest_size=4).hexdigest()  # noqa: PTH109  # a text
    return f"{queue}@{socket.gethostname()}-{digest}"


# -- on the worker that runs the workflow's code ---------------------------------------------------


async def perform_here(serving: Serving, codec: EndCodec, command: Perform | cmd.Undo) -> bytes:
    """Perform an attempt or a rollback that cannot leave this process; returns its end as data."""
    notices: list[Any] = []

    def emit_notice(notice: ev.Notice) -> None:
        if isinstance(notice, ev.JOURNALED_NOTICES):
            notices.append(codec.row(notice))

    contexts = _contexts(serving, codec.run_id)
    current = _current(serving, codec.run_id, command)
    work: Awaitable[Any]
    left: float | None
    if isinstance(command, cmd.Undo):
        left, work = command.rollback.timeout_s, _undoing(serving, contexts, command)
    else:
        command = msgspec.structs.replace(command, started_at=serving.parts.clock.now())
        left = command.step.modifiers.timeout_s
        work = _performer(serving, contexts, emit_notice).perform(command, current)
    task = _start_work(work, current)
    try:
        done, _ = await asyncio.wait({task}, timeout=left)
    except asyncio.CancelledError:
        current.cancelled = True
        task.cancel()
        raise
    if not done:
        current.cancelled = True
        task.cancel()
        await asyncio.wait({task}, timeout=ABANDON_AFTER_S)
        return msgspec.json.encode(wire.End(overdue=True, notices=notices))
    end = _encode_outcome(codec, command, _outcome(command, task))
    end.notices = notices
    return msgspec.json.encode(end)
