"""Runs workflows on a cluster, with the methods of ``Executor``; any worker may take a step."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ParamSpec, Self, TypeVar

import attrs
import msgspec
from temporalio.client import Client
from temporalio.converter import StorageDriver
from temporalio.service import RPCError

from handrail.cluster_errors import NoWorker, RunTerminated, TooLarge
from handrail.codec.codec import Codec
from handrail.engine.outside import run_outside, sync_twin
from handrail.engine.parts import (
    OnChange,
    check_arguments,
    check_callers_parts,
    check_paths,
    new_run_id,
)
from handrail.engine.preflight import refuse_unportable
from handrail.engine.requests import Existing, Options, RunRequest, TakesOptions
from handrail.engine.serving import RunHandle
from handrail.errors import (
    HandrailError,
    ReplayMismatch,
    RunIdTaken,
    RunNotFound,
    WrongUse,
)
from handrail.model import events as ev
from handrail.model.definition import WorkflowDefinition
from handrail.model.policy import Limits
from handrail.model.results import WorkflowResult
from handrail.model.shapes import WorkflowLike
from handrail.ports.sink import Sink
from handrail.record.outputs import recordable
from handrail.record.reading import accept_changes, ended, is_fork, paths_named, with_failed
from handrail.secrets.masking import Mask
from handrail.secrets.sealing import seal_text
from handrail.secrets.values import Secrets
from handrail.temporal.blobs import blobs_at
from handrail.temporal.caller import Caller, workflow_reference
from handrail.temporal.cluster import Cluster
from handrail.temporal.determinism import refuse_nondeterministic
from handrail.temporal.reading import LOOK_S, ReadsRuns
from handrail.temporal.record import labels_of, result_of
from handrail.temporal.run import ClusterRun
from handrail.temporal.watch import Show, Watch
from handrail.temporal.wire import MOST_BYTES, Drive, Start, origin_of, pack_rows, with_drive
from handrail.typed.schema import hints_of

P = ParamSpec("P")
R = TypeVar("R")

_WORKERS = {
    "agents": "agents by name",
    "stages": "stages by name",
    "services": "live objects",
    "config": "settings",
    "backend": "a backend",
    "model": "a model",
    "agent_options": "options of agents",
    "ladder": "a ladder",
    "around": "context managers",
    "cassette": "a cassette",
}
"""Arguments of ``Executor`` that belong to a worker's executor, since workers perform steps."""
_NOT_THERE = {
    "journal": "the record of a run is the cluster's; export() makes a file of it",
    "clock": "the time is the cluster's; its time-skipping server is for tests",
    "context_mode": "a worker is sent the results that its agent asks for: give it to the agents",
    "shared_limits": "runs on many machines share no limits of one process; --max-activities "
    "bounds a worker, and a rate of the task queue all of them",
    "suspend_timers_after_s": "a run that waits costs no process, so it is not suspended",
    "durable": "every run is durable",
    "portable": "every run is portable",
}


@attrs.frozen
class _Begin:
    """A requested run, and what the cluster is sent to start it."""

    request: RunRequest
    start: Start


class TemporalExecutor(TakesOptions, ReadsRuns):
    """Runs workflows on a Temporal cluster, and reads, steers and resumes the runs there.

    ``client`` is one of ``temporalio``, or ``"ADDRESS[/NAMESPACE]"``. Workers (``TemporalWorker``,
    ``handrail worker --temporal``) poll ``task_queue``. ``blobs`` is the store of values above 256
    KiB: a folder, or an fsspec address, the same for workers and clients. ``local``: a step whose
    parts another process cannot find by name runs where the workflow's code runs; without it such
    a step is ``NotPortable``. ``gates`` answers gates: a policy does so on the cluster, a callable
    in this process, while it waits for the run. ``sinks`` receive a run's events while this
    process waits for it. A worker counts as gone ``heartbeat_s`` after its last heartbeat. The
    rest is as for ``Executor``. Give what steps use to ``TemporalWorker(executor=...)``.
    """

    def __init__(
        self,
        client: Client | str,
        *,
        task_queue: str = "handrail",
        blobs: str | os.PathLike[str] | StorageDriver | None = None,
        local: bool = False,
        workflows: Sequence[WorkflowLike[..., Any]] = (),
        limits: Limits | None = None,
        gates: Any = None,
        sinks: Sequence[Sink] = (),
        codec: Codec | None = None,
        secrets: Secrets | None = None,
        linger_s: float = 0,
        cleanup_timeout_s: float = 30,
        max_crashes: int = 5,
        on_change: OnChange = "refuse",
        heartbeat_s: float = 10,
        **elsewhere: Any,
    ) -> None:
        for name in elsewhere:
            raise _refused(name)
        check_arguments(
            {
                "workflows": workflows,
                "limits": limits,
                "sinks": sinks,
                "secrets": secrets,
                "linger_s": linger_s,
                "cleanup_timeout_s": cleanup_timeout_s,
                "max_crashes": max_crashes,
                "on_change": on_change,
            }
        )
        check_callers_parts(gates, sinks, workflows)
        super().__init__(
            Caller(
                client,
                task_queue,
                blobs_at(blobs),
                local,
                tuple(workflows),
                limits,
                gates,
                tuple(sinks),
                codec if codec is not None else Codec(),
                secrets if secrets is not None else Secrets(),
                linger_s,
                cleanup_timeout_s,
                max_crashes,
                on_change,
                heartbeat_s,
            )
        )

    async def __aenter__(self) -> Self:
        await self._caller.cluster()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Do nothing: no connection needs closing, and runs belong to the cluster."""

    @property
    def workflows(self) -> tuple[WorkflowLike[..., Any], ...]:
        """The workflows that this executor finds by name."""
        return self._caller.workflows

    # -- running --------------------------------------------------------------------------------

    async def run(
        self, workflow: WorkflowLike[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> WorkflowResult[R]:
        """Run a workflow to its end, or until it waits for a person.

        Raises:
            TypeError, InvalidInput, RunIdTaken, InputsDiffer, WrongUse: as ``Executor.run``.
            NotPortable: the source shows a step that cannot leave this process.
            NotDeterministic: the body could decide differently when it runs again.
            OutputNotSerializable, TooLarge: an input cannot be recorded.
            ClusterUnreachable: the cluster does not answer. No run was started.
        """
        return await self._begin_and_wait(self._prepare(workflow, args, kwargs), None)

    def run_sync(
        self, workflow: WorkflowLike[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> WorkflowResult[R]:
        """``run`` for callers without an event loop."""
        begin = self._prepare(workflow, args, kwargs)
        return run_outside(
            "run_sync()", "await executor.run(...)", self._begin_and_wait, begin, None
        )

    def stream(
        self, workflow: WorkflowLike[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> ClusterRun[R]:
        """The run as an async context manager that yields its events; see ``ClusterRun``."""
        begin = self._prepare(workflow, args, kwargs)
        run_id = begin.request.run_id
        return ClusterRun(run_id, self.cancel, lambda show: self._begin_and_wait(begin, show))

    def start(
        self,
        workflow: WorkflowLike[..., R],
        /,
        *args: Any,
        run_id: str | None = None,
        existing: Existing = "refuse",
        **kwargs: Any,
    ) -> RunHandle[R]:
        """Start a run, which continues even if this process ends.

        Arguments are checked at once. Awaiting the handle waits until the cluster has the run.

        Raises:
            Exception: as ``run``.
        """
        begin = self._prepare(workflow, args, kwargs, self._options_for(run_id, existing))

        begun = asyncio.ensure_future(self._begin(begin))
        return RunHandle(begin.request.run_id, self, lambda: asyncio.shield(begun))

    def _prepare(
        self,
        workflow: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        options: Options | None = None,
    ) -> _Begin:
        options, caller = options or self._options, self._caller
        request = RunRequest.of(workflow, args, kwargs, options, caller.workflows)
        definition = request.definition
        if not caller.local:
            refuse_unportable(definition)
        refuse_nondeterministic(definition)
        texts = self._texts_of(definition, request.inputs)
        run_id = request.run_id or new_run_id(definition.name, time.time(), lambda _: False)
        start = caller.start(workflow_reference(definition), texts, options.labels)
        caller.known[definition.name] = definition
        return _Begin(replace(request, run_id=run_id), start)

    def _texts_of(
        self, definition: WorkflowDefinition, inputs: Mapping[str, Any]
    ) -> dict[str, msgspec.Raw]:
        """The inputs as the codec writes them, with references in place of secrets.

        Raises:
            OutputNotSerializable, TooLarge: an input cannot be recorded; together they are too big.
        """
        caller, hints = self._caller, hints_of(definition.function)
        secrets, where = caller.values(), f"workflow {definition.name!r}"
        texts: dict[str, msgspec.Raw] = {}
        for name, value in inputs.items():
            declared: tuple[Any, ...] = (hints.get(name, Any),)
            root = f"inputs[{name!r}]"
            text = recordable(value, caller.codec, lambda: declared, where, root)  # noqa: B023  # called at once
            texts[name] = msgspec.Raw(seal_text(text, secrets)[0].encode())
        size = sum(len(bytes(one)) for one in texts.values())
        if size > MOST_BYTES and caller.blobs is None:
            raise TooLarge(f"the inputs of {where}", size, MOST_BYTES)
        return texts

    async def _begin(self, begin: _Begin) -> int | None:
        """Start the run, or continue it; how many events it already had, None if it has ended."""
        cluster, request = await self._caller.cluster(), begin.request
        try:
            await cluster.begin(request.run_id, request.definition.name, begin.start)
        except RunIdTaken:
            if request.options.existing == "refuse":
                raise
            return await self._continue_existing(request)
        return 0

    async def _continue_existing(self, request: RunRequest) -> int | None:
        await self._sender(request.run_id)
        history = await self._caller.history(request.run_id)
        request.refuse_other(history, self._caller.codec)
        if ended(history) is not None:
            return None
        await self._resume(request.definition, history, (), ())
        return len(history)

    async def _begin_and_wait(self, begin: _Begin, show: Show | None) -> WorkflowResult[Any]:
        after = await self._begin(begin)
        run_id, definition = begin.request.run_id, begin.request.definition
        if after is None:
            return await self._recorded(run_id, definition)
        return await self._wait_for_result(run_id, definition, after, show)

    # -- waiting --------------------------------------------------------------------------------

    async def _wait_for_result(
        self, run_id: str, definition: WorkflowDefinition, after: int, show: Show | None
    ) -> WorkflowResult[Any]:
        """The result of a run once it has ended, or has waited for a person for ``linger_s``."""
        caller, cluster = self._caller, await self._caller.cluster()
        watch = Watch(caller, cluster, run_id, after=after, answer=self.answer, show=show)
        over = asyncio.ensure_future(self._wait_until_ended(cluster, run_id))
        pause, most = LOOK_S
        since: float | None = None
        suspended: ev.RunSuspended | None = None
        try:
            while not (await asyncio.wait({over}, timeout=pause))[0]:
                pause = min(pause * 2, most)
                suspended = await watch.look()
                now = time.monotonic()
                since = None if suspended is None else since or now
                if since is not None and now - since >= caller.linger_s:
                    break
            if over.done():
                over.result()
                suspended = None
            history = await watch.all_events()
            if suspended is not None and watch.is_stuck:
                await self._checked(definition, await self._whole_history(run_id), (), ())
        finally:
            over.cancel()
            await watch.close()
        return result_of(
            run_id, definition, history, caller.codec, after=after, suspended=suspended
        )

    async def _wait_until_ended(self, cluster: Cluster, run_id: str) -> None:
        """Wait for the run's end, also through outages of the cluster.

        Raises:
            RunTerminated: the cluster ended the run, which has no end of its own.
            RunNotFound: the cluster has deleted the run. WrongUse: its value lies in a store that
                this process does not name.
        """
        while True:
            try:
                if await cluster.ended(run_id) is not None:
                    return
                await asyncio.sleep(LOOK_S[1])
                execution = await cluster.execution_info(run_id)
                if execution.is_open:
                    continue  # another execution has taken its place
            except (RunTerminated, RunNotFound, WrongUse):
                raise
            except (OSError, RuntimeError, HandrailError, RPCError):
                await asyncio.sleep(LOOK_S[1])
                continue
            raise RunTerminated(run_id, execution.status.name.lower().replace("_", " "))

    async def _recorded(self, run_id: str, definition: WorkflowDefinition) -> WorkflowResult[Any]:
        history = await self._caller.history(run_id)
        return result_of(run_id, definition, history, self._caller.codec, after=len(history))

    async def result(self, run_id: str) -> WorkflowResult[Any]:
        """The result of a run, once it has ended; waits also while the run waits for a person.

        Raises:
            RunNotFound: there is no such run. WorkflowNotFound: its workflow is not known here.
            RunTerminated: the cluster ended the run, which has no end of its own.
        """
        cluster = await self._caller.cluster()
        execution = await cluster.execution_info(run_id)
        definition = self._caller.definition(execution)
        await self._wait_until_ended(cluster, run_id)
        return await self._recorded(run_id, definition)

    # -- resuming -------------------------------------------------------------------------------

    async def resume(
        self,
        run_id: str,
        workflow: WorkflowLike[..., Any] | None = None,
        *,
        reuse: Sequence[str] = (),
        rerun: Sequence[str] = (),
        rerun_failed: bool | str = False,
    ) -> WorkflowResult[Any]:
        """Continue a run that waits, was stopped, failed or was cancelled.

        Raises:
            ReplayMismatch, RunNotFound, NotRecorded, WorkflowNotFound, WrongUse: as
                ``Executor.resume``.
        """
        check_paths(reuse=reuse, rerun=rerun)
        return await self._resumed(run_id, workflow, reuse, with_failed(rerun, rerun_failed), None)

    def stream_resume(
        self,
        run_id: str,
        workflow: WorkflowLike[..., Any] | None = None,
        *,
        reuse: Sequence[str] = (),
        rerun: Sequence[str] = (),
        rerun_failed: bool | str = False,
    ) -> ClusterRun[Any]:
        """``resume`` as ``stream``."""
        check_paths(reuse=reuse, rerun=rerun)
        again = with_failed(rerun, rerun_failed)
        return ClusterRun(
            run_id, self.cancel, lambda show: self._resumed(run_id, workflow, reuse, again, show)
        )

    async def _resumed(
        self,
        run_id: str,
        workflow: WorkflowLike[..., Any] | None,
        reuse: Sequence[str],
        rerun: Sequence[str],
        show: Show | None,
    ) -> WorkflowResult[Any]:
        await self._sender(run_id)
        execution = await (await self._caller.cluster()).execution_info(run_id)
        definition = self._caller.definition_to_drive(execution, workflow)
        history = await self._caller.history(run_id)
        rerun = paths_named(history, rerun)
        last = ended(history)
        if last is not None and last.status == "succeeded" and not rerun:
            return result_of(run_id, definition, history, self._caller.codec, after=len(history))
        await self._resume(definition, history, reuse, rerun)
        return await self._wait_for_result(run_id, definition, len(history), show)

    async def _resume(
        self,
        definition: WorkflowDefinition,
        history: Sequence[ev.Event],
        reuse: Sequence[str],
        rerun: Sequence[str],
    ) -> None:
        """Have the run driven, unless it is open and continues by itself."""
        run_id, cluster = history[0].run_id, await self._caller.cluster()
        is_open = (await cluster.execution_info(run_id)).is_open
        is_stuck = False
        if is_open:
            state = await cluster.state(run_id)
            waits = state.suspended is not None and '"person"' in state.suspended.body
            if not (state.held or state.stuck or waits or reuse or rerun):
                return
            is_stuck = bool(state.stuck)
        if is_stuck:
            history = await self._whole_history(run_id)
        reuse, rerun = await self._checked(definition, history, reuse, rerun)
        where = workflow_reference(definition)
        how = Drive(tuple(reuse), tuple(rerun), workflow=where, on_change=self._caller.decides)
        if is_open and not is_stuck:
            await cluster.drive(run_id, how)
            return
        start = None if is_open else self._caller.start(where, labels=labels_of(history))
        await self._drive_anew(run_id, definition.name, how, start)

    async def _whole_history(self, run_id: str) -> list[ev.Event]:
        """The record of a run whose code stands still, with all that came since."""
        known = await (await self._caller.cluster()).recorded(run_id)
        return self._caller.events(run_id, known.with_ends(letters=True))

    async def _drive_anew(
        self, run_id: str, name: str, how: Drive, start: Start | None = None
    ) -> None:
        """Drive a run in a new execution, from its record; without ``start`` in place of an open
        one, whose code stands still, and as that was started.
        """
        cluster = await self._caller.cluster()
        if start is None:
            await cluster.terminate(run_id)
        known = await cluster.recorded(run_id)
        rows, held = known.with_ends(), bool(known.letters)
        start = with_drive(start or known.start, how, inputs={}, resumed=True, held=held)
        memo = origin_of(self._caller.events(run_id, rows[:1])[0])
        await cluster.begin(run_id, name, start, pack_rows(rows), again=True, memo=memo)
        for letter in known.letters:
            await cluster.tell(run_id, letter)
        if held:
            await cluster.drive(run_id, how)

    async def _checked(
        self,
        definition: WorkflowDefinition,
        history: Sequence[ev.Event],
        reuse: Sequence[str],
        rerun: Sequence[str],
    ) -> tuple[Sequence[str], Sequence[str]]:
        """``reuse`` and ``rerun``, extended by changed steps as ``on_change`` says, or in a fork.

        Raises:
            ReplayMismatch: a recorded step has changed, and nothing says what to do. No drive was
                started.
        """
        told = {*reuse, *rerun}
        while True:
            plan, again = await self._planned(definition, history, reuse, rerun)
            if is_fork(history) or not plan.changes:
                return reuse, again
            mismatch = ReplayMismatch(history[0].run_id, plan.changes)
            reuse, rerun = accept_changes(
                history, mismatch, reuse, rerun, told=told, on_change=self._caller.on_change
            )
            told.update(change.path for change in mismatch.changes)

    # -- cancelling -----------------------------------------------------------------------------

    async def cancel(
        self,
        run_id: str,
        reason: str = "cancelled",
        workflow: WorkflowLike[..., Any] | None = None,
    ) -> WorkflowResult[Any] | None:
        """Cancel a run.

        It asks a driven run to unwind, and returns None. It has a held run driven only to unwind,
        and returns the result. For a run that has ended it returns the recorded result.

        Raises:
            RunNotFound: there is no such run. WorkflowNotFound: its workflow is not known here.
        """
        await self._sender(run_id)
        cluster = await self._caller.cluster()
        execution = await cluster.execution_info(run_id)
        if not execution.is_open:
            definition = self._caller.definition_to_drive(execution, workflow)
            return await self._recorded(run_id, definition)
        with contextlib.suppress(NoWorker):
            state = await cluster.state(run_id)
            if state.held or state.stuck:
                definition = self._caller.definition_to_drive(execution, workflow)
                history = await self._caller.history(run_id)
                how = Drive(cancel=Mask(self._caller.values()).text(reason))
                if state.held:
                    await cluster.drive(run_id, how)
                else:
                    plan, _ = await self._planned(definition, history, (), ())
                    how.reuse = tuple(one.path for one in plan.steps if one.state == "changed")
                    await self._drive_anew(run_id, execution.workflow, how)
                return await self._wait_for_result(run_id, definition, len(history), None)
        await self.tell(run_id, ev.CancelRequested(reason))
        return None

    resume_sync = sync_twin(resume)
    cancel_sync = sync_twin(cancel)


def _refused(name: str) -> Exception:
    """The error for an argument that this executor does not take."""
    if name in _WORKERS:
        return WrongUse(
            f"{name}= ({_WORKERS[name]}) is what steps are performed with, and that is on the "
            f"workers. Give it to theirs: TemporalWorker(client, executor=Executor({name}=...)), "
            f'or [tool.handrail] executor = "module:name" for handrail worker'
        )
    if name in _NOT_THERE:
        return WrongUse(f"{name}= has no meaning on a cluster: {_NOT_THERE[name]}")
    return TypeError(f"TemporalExecutor() got an unexpected keyword argument {name!r}")
