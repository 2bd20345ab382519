"""A cluster as its clients see it: they start, read, message and list runs."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Awaitable, Generator, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any, TypeVar, cast

import attrs
import msgspec
from temporalio.api.common.v1 import WorkflowExecution as Execution
from temporalio.api.enums.v1 import EventType, TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    DescribeTaskQueueRequest,
    GetWorkflowExecutionHistoryReverseRequest,
)
from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import RawValue, WorkflowIDReusePolicy
from temporalio.converter import ExternalStorage, StorageDriver
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from handrail.cluster_errors import ClusterUnreachable, NoWorker, RunTerminated
from handrail.errors import HandrailError, RunIdTaken, RunNotFound, WrongUse
from handrail.model.events import RunSteered
from handrail.model.results import RunStatus, WaitsFor
from handrail.ports.journal import Holder, RunInfo
from handrail.record.inbox import stuck_wait, unpause_of
from handrail.temporal import wire
from handrail.temporal.blobs import LARGE_BYTES
from handrail.temporal.connecting import connection_error_text
from handrail.temporal.errors_as_data import error_of_data
from handrail.temporal.recorded import RecordedRun, recorded_run

T = TypeVar("T")

PATIENCE_S = 10.0
"""How long a client waits for a worker's answer about a run."""
SOON_S = 2.0
"""The same for a list of runs; also how soon a call checks whether any worker is there."""
_TIMED_OUT = (RPCStatusCode.CANCELLED, RPCStatusCode.DEADLINE_EXCEEDED)
_BROKEN_CONNECTION = ("transport error", "connection", "h2 protocol error")
_NO_STORE = "TMPRL1105"
"""What the library's error says of a value in a store that the client does not have."""
_CANNOT = "the workflow's code cannot continue: "
_POLL_S = 65
"""A worker that did not poll the queue for so long counts as gone."""
ASKED = 50
"""The most open runs of a list whose workers are asked for their state."""


def with_blobs(client: Client, blobs: StorageDriver | None) -> Client:
    """The client, or a copy that keeps large values in the store."""
    if blobs is None:
        return client
    config = client.config()
    storage = ExternalStorage([blobs], payload_size_threshold=LARGE_BYTES)
    config["data_converter"] = dataclasses.replace(
        config["data_converter"], external_storage=storage
    )
    return Client(**config)


@attrs.frozen
class ExecutionInfo:
    """The state of an execution: open or how it ended, its times, its memo."""

    run_id: str
    workflow: str
    status: WorkflowExecutionStatus
    execution_id: str
    events: int
    started_at: datetime
    ended_at: datetime | None
    memo: Mapping[str, Any]
    description: WorkflowExecutionDescription | None = None

    @property
    def is_open(self) -> bool:
        """True if the execution has not ended."""
        return self.status is WorkflowExecutionStatus.RUNNING

    @property
    def since(self) -> float:
        """When the run began, in unix seconds: this execution, or an earlier one."""
        since: float | None = self.memo.get(wire.SINCE)
        return self.started_at.timestamp() if since is None else since


class StandsStill(Exception):
    """Workers cannot go on with a run's code; the text says why."""


class Cluster:
    """A namespace of a cluster, and the task queue of its runs. Keeps no state of a run. Mutable:
    it keeps its identity.
    """

    def __init__(self, client: Client, task_queue: str) -> None:
        self.client = client
        self.task_queue = task_queue
        self._identity = ""

    @property
    def address(self) -> str:
        """``ADDRESS/NAMESPACE``, for people."""
        return f"{self.client.service_client.config.target_host}/{self.client.namespace}"

    async def identity(self) -> str:
        """Eight hex digits that tell the namespace from others, in the marks of steps' processes.

        Raises:
            ClusterUnreachable: the cluster does not answer.
        """
        if not self._identity:
            request = DescribeNamespaceRequest(namespace=self.client.namespace)
            name = self.client.namespace
            with contextlib.suppress(RPCError):  # the test server that skips time has no such call
                described = self.client.workflow_service.describe_namespace(request)
                name = (await self._call_cluster(described)).namespace_info.id
            self._identity = blake2b(name.encode(), digest_size=4).hexdigest()
        return self._identity

    # -- starting -------------------------------------------------------------------------------

    async def begin(
        self,
        run_id: str,
        name: str,
        start: wire.Start,
        chunks: Sequence[bytes] = (),
        *,
        again: bool = False,
        memo: Mapping[str, Any] | None = None,
    ) -> None:
        """Start an execution of a run; ``memo`` is what lists of runs show of it.

        ``again``: the run may have executions that have ended.

        Raises:
            RunIdTaken: the run has an open execution; without ``again``, any execution.
        """
        policy = WorkflowIDReusePolicy
        try:
            await self._call_cluster(
                self.client.start_workflow(
                    name,
                    args=[wire.raw(start), *map(wire.raw_bytes, chunks)],
                    id=run_id,
                    task_queue=self.task_queue,
                    id_reuse_policy=policy.ALLOW_DUPLICATE if again else policy.REJECT_DUPLICATE,
                    memo={wire.LABELS: dict(start.labels), **(memo or {})},
                )
            )
        except WorkflowAlreadyStartedError:
            raise RunIdTaken(run_id) from None

    # -- reading --------------------------------------------------------------------------------

    async def execution_info(self, run_id: str) -> ExecutionInfo:
        """The state of a run's last execution.

        Raises:
            RunNotFound: there is no such run.
        """
        try:
            found = await self._call_cluster(self._handle(run_id).describe())
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            raise RunNotFound(run_id, [one.run_id for one in await self.runs()]) from None
        return await _read_execution(found, found)

    async def runs(self) -> list[ExecutionInfo]:
        """The last execution of every run; the runs oldest first."""
        found: dict[str, ExecutionInfo] = {}
        async for one in self._executions():  # of one run the newest comes first
            if one.run_id not in found:
                found[one.run_id] = one
        return sorted(found.values(), key=lambda one: one.since)

    async def _executions(self) -> AsyncIterator[ExecutionInfo]:
        listed = self.client.list_workflows(f"TaskQueue = '{self.task_queue}'")
        while True:
            try:
                found = await self._call_cluster(anext(listed))
            except StopAsyncIteration:
                return
            if found.status is not WorkflowExecutionStatus.CONTINUED_AS_NEW:
                yield await _read_execution(found)

    async def infos(self) -> list[RunInfo]:
        """Every run as a journal lists it, oldest first.

        The number of events of an open run is that of when it last began to wait, except for the
        newest ``ASKED`` ones, whose workers are asked.
        """
        executions = await self.runs()
        asked = [one for one in executions if one.is_open][-ASKED:] if await self.workers() else []
        found = await asyncio.gather(*(self._state_soon(one.run_id) for one in asked))
        states = {one.run_id: state for one, state in zip(asked, found, strict=True)}
        return [info_of(one, self.address, states.get(one.run_id)) for one in executions]

    async def info(self, run_id: str) -> RunInfo:
        """One run as a journal lists it.

        Raises:
            RunNotFound: there is no such run.
        """
        execution = await self.execution_info(run_id)
        is_served = execution.is_open and await self.workers()
        state = await self._state_soon(run_id) if is_served else None
        return info_of(execution, self.address, state)

    async def _state_soon(self, run_id: str) -> wire.State | None:
        try:
            return await asyncio.wait_for(self.state(run_id), SOON_S)
        except (TimeoutError, HandrailError):
            return None

    async def rows(self, run_id: str, after: int = 0) -> list[wire.Row]:
        """The rows of a run after number ``after``.

        A worker that drives the run is quick to tell the new ones. Else its history has them.

        Raises:
            RunNotFound: there is no such run. NoWorker: no worker has begun it.
        """
        execution, why = await self.execution_info(run_id), ""
        if execution.is_open:
            try:
                await self._refuse_stuck(execution)
                return await self._query_rows(run_id, after)
            except NoWorker as error:
                why = error.why
            except StandsStill as error:
                why = str(error)
        rows = (await self.recorded(run_id)).rows
        if why and not rows:
            raise NoWorker(run_id, self.task_queue, why)
        return rows[after:]

    async def recorded(self, run_id: str) -> RecordedRun:
        """What the run's history records.

        Raises:
            RunNotFound: there is no such run.
        """
        with _translate_not_found(run_id):
            return await self._call_cluster(recorded_run(self.client, run_id))

    async def _query_rows(self, run_id: str, after: int) -> list[wire.Row]:
        rows: list[wire.Row] = []
        while True:
            chunk = bytes((await self._query(run_id, wire.RECORD, after)).payload.data)
            found = list(wire.unpack_rows([chunk])) if chunk else []
            rows += found
            if not found:
                return rows
            after = found[-1].seq

    async def state(self, run_id: str) -> wire.State:
        """The state of an open run, from its worker; or that workers cannot go on with its code.

        Raises:
            NoWorker: no worker answers for the run.
        """
        try:
            await self._refuse_stuck(await self.execution_info(run_id))
            return await self._queried_state(run_id)
        except StandsStill as error:
            rows = (await self.recorded(run_id)).rows
            at = rows[-1].at if rows else 0.0
            return wire.State(events=len(rows), updated_at=at, stuck=str(error))

    async def _queried_state(self, run_id: str) -> wire.State:
        found: wire.State = wire.read(await self._query(run_id, wire.STATE), wire.State)
        return found

    async def _query(self, run_id: str, name: str, *args: Any) -> RawValue:
        """The reply to a query. It is asked again within ``PATIENCE_S``: a worker that puts the run
        out of its memory, or had no place in it to answer from, may drop the first.
        """
        soon = timedelta(seconds=PATIENCE_S / 2)

        def ask() -> Awaitable[RawValue]:
            handle = self._handle(run_id)
            return self._ask_worker(
                run_id, handle.query(name, args=args, result_type=RawValue, rpc_timeout=soon)
            )

        try:
            try:
                answer = await ask()
            except (RPCError, WorkflowQueryFailedError) as error:
                if isinstance(error, RPCError) and error.status not in _TIMED_OUT:
                    raise
                answer = await ask()
        except WorkflowQueryFailedError as error:
            if str(error).startswith(wire.AGAIN):
                raise NoWorker(run_id, self.task_queue, str(error)) from None
            raise StandsStill(_CANNOT + str(error).removeprefix(f"run {run_id}: ")) from None
        except TimeoutError as error:
            why = await self._no_answer_reason(run_id, error)
            raise NoWorker(run_id, self.task_queue, why) from None
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise RunNotFound(run_id) from None
            why = await self._no_answer_reason(run_id, error)
            raise NoWorker(run_id, self.task_queue, why) from None
        return answer

    async def _ask_worker(self, run_id: str, call: Awaitable[T]) -> T:
        """A worker's reply to ``call``.

        Raises:
            TimeoutError: there was no reply within ``SOON_S``, and no worker polls the queue.
            StandsStill: there was none, and workers cannot go on with the run's code.
        """
        asked = asyncio.ensure_future(self._call_cluster(call, of_worker=True))
        asked.add_done_callback(_take_error)
        try:
            if not (await asyncio.wait({asked}, timeout=SOON_S))[0]:
                if not await self.workers():
                    raise TimeoutError("no worker")
                await self._refuse_stuck(await self.execution_info(run_id))
            return await asked
        finally:
            asked.cancel()

    async def _no_answer_reason(self, run_id: str, error: Exception) -> str:
        if not await self.workers():
            return "no worker serves it"
        stuck = await self._stuck_reason(await self.execution_info(run_id))
        return stuck or f"its workers do not answer ({error})"

    async def ended(self, run_id: str, execution: str | None = None) -> wire.Ended | None:
        """Wait for the run's end, over all executions that continue this one.

        None if the run has no end of its own: the cluster terminated it, or it timed out.

        Raises:
            RunTerminated: the record was too large to continue in another execution.
            RunNotFound: there is no such run.
        """
        handle = self.client.get_workflow_handle(run_id, run_id=execution, result_type=RawValue)
        try:
            with _translate_not_found(run_id):
                result = await self._call_cluster(handle.result())
        except WorkflowFailureError as error:
            cause = error.cause
            if isinstance(cause, ApplicationError) and cause.type in {wire.FAILED, wire.CANCELLED}:
                return msgspec.convert(cause.details[0], wire.Ended)
            if isinstance(cause, ApplicationError) and cause.type == wire.TOO_LARGE:
                raise RunTerminated(run_id, f"ended ({cause.message})") from None
            return None
        found: wire.Ended = wire.read(result, wire.Ended)
        return found

    async def workers(self) -> list[str]:
        """The workers that poll the task queue for runs; a killed one is listed for a minute."""
        request = DescribeTaskQueueRequest(
            namespace=self.client.namespace,
            task_queue=TaskQueue(name=self.task_queue),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
        )
        try:
            answer = await self._call_cluster(
                self.client.workflow_service.describe_task_queue(request)
            )
        except RPCError as error:
            if error.status is not RPCStatusCode.UNIMPLEMENTED:
                raise
            return ["unknown"]  # the time-skipping test server cannot list them
        since = time.time() - _POLL_S
        return [one.identity for one in answer.pollers if one.last_access_time.seconds > since]

    async def troubles(self, run_id: str) -> list[str]:
        """What keeps a run from advancing, for people: its code, its steps, missing workers."""
        execution = await self.execution_info(run_id)
        described, found = execution.description, list[str]()
        if described is None:
            return found
        stuck = await self._stuck_reason(execution)
        if stuck:
            found.append(stuck)
        found += [
            f"step {one.activity_id!r} is made again (attempt {one.attempt} of the cluster): "
            f"{one.last_failure.message}"
            for one in described.raw_description.pending_activities
            if one.attempt > 1 and one.last_failure.message
        ]
        if not await self.workers():
            found.append(f"no worker serves task queue {self.task_queue!r} at {self.address}")
        return found

    async def _stuck_reason(self, execution: ExecutionInfo) -> str:
        """Why workers cannot go on with the run's code; empty if they can."""
        described = execution.description
        if described is None or described.raw_description.pending_workflow_task.attempt <= 1:
            return ""
        request = GetWorkflowExecutionHistoryReverseRequest(
            namespace=self.client.namespace,
            execution=Execution(workflow_id=described.id),
            maximum_page_size=10,
        )
        service = self.client.workflow_service
        answer = await self._call_cluster(service.get_workflow_execution_history_reverse(request))
        for event in answer.history.events:
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
                break
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
                said = event.workflow_task_failed_event_attributes.failure.message
                said = said.removeprefix(f"run {execution.run_id}: ")
                return "" if said.startswith(wire.AGAIN) else f"{_CANNOT}{said}"
        return ""

    async def _refuse_stuck(self, execution: ExecutionInfo) -> None:
        """Raise if workers could not go on with the run's code when they last tried.

        Raises:
            StandsStill: they could not.
        """
        stuck = await self._stuck_reason(execution)
        if stuck:
            raise StandsStill(stuck)

    # -- sending --------------------------------------------------------------------------------

    async def tell(self, run_id: str, row: wire.Row) -> None:
        """Send an open run a message that needs no reply.

        Raises:
            RunNotFound: there is no such run, or it has ended.
        """
        await self._signal(run_id, wire.MESSAGE, wire.raw(row))

    async def drive(self, run_id: str, how: wire.Drive) -> None:
        """Have a held run driven, or a live one driven afresh.

        Raises:
            RunNotFound: there is no such run, or it has ended.
        """
        await self._signal(run_id, wire.DRIVE, wire.raw(how))

    async def _signal(self, run_id: str, name: str, value: RawValue) -> None:
        with _translate_not_found(run_id):
            await self._call_cluster(self._handle(run_id).signal(name, value))

    async def terminate(self, run_id: str) -> None:
        """End the execution of a run, without its code; its history then has all that came in.

        Raises:
            RunNotFound: there is no such run, or it has ended.
        """
        with _translate_not_found(run_id):
            await self._call_cluster(self._handle(run_id).terminate("it is driven anew"))

    async def refuse(self, run_id: str, refusal: wire.Refusal) -> None:
        """Tell a run that one of its gates could not be answered.

        Raises:
            RunNotFound: there is no such run, or it has ended.
        """
        await self._signal(run_id, wire.REFUSE, wire.raw(refusal))

    async def ask(self, run_id: str, row: wire.Row, secrets: Mapping[str, str]) -> wire.Row:
        """Send an open run a message that it may refuse; returns it as the run accepted it.

        ``secrets`` are put back into what the run says of a refusal.

        Raises:
            HandrailError: the run refused it. RunNotFound: there is no such run, or it has ended.
            NoWorker: no worker answers for the run; the message may still reach it.
            StandsStill: workers cannot go on with the run's code.
        """
        await self._refuse_stuck(await self.execution_info(run_id))
        handle = self._handle(run_id)
        asked = cast("Any", handle).execute_update(
            wire.MESSAGE, wire.raw(row), result_type=RawValue
        )
        try:
            with _translate_not_found(run_id):
                answer: RawValue = await asyncio.wait_for(
                    self._ask_worker(run_id, asked), PATIENCE_S
                )
        except WorkflowUpdateFailedError as error:
            cause = error.cause
            if isinstance(cause, ApplicationError) and cause.details:
                raise error_of_data(cause.details[0], secrets) from None
            raise
        except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError, RPCError) as error:
            why = await self._no_answer_reason(run_id, error)
            why = f"{why}. The message may still reach the run when there is one"
            raise NoWorker(run_id, self.task_queue, why) from None
        found: wire.Row = wire.read(answer, wire.Row)
        return found

    # -- inside ---------------------------------------------------------------------------------

    def _handle(self, run_id: str) -> WorkflowHandle[Any, Any]:
        return self.client.get_workflow_handle(run_id)

    async def _call_cluster(self, call: Awaitable[T], *, of_worker: bool = False) -> T:
        """The result of a call; with ``of_worker`` it has to be answered by a worker.

        Raises:
            ClusterUnreachable, WrongUse: as ``failure_of_call``. RPCError: that depends on the
                call; also if no worker has answered in time.
        """
        try:
            return await call
        except RuntimeError as error:
            if _NO_STORE not in str(error):
                raise
            raise WrongUse(
                f"a value at {self.address} lies in a store of large values, and this process "
                f"names none. Name that of the workers: HANDRAIL_BLOBS, blobs of [tool.handrail], "
                f"or TemporalExecutor(blobs=...)"
            ) from None
        except RPCError as error:
            if of_worker and error.status in _TIMED_OUT:
                raise
            raise failure_of_call(error, self.address) from None


def failure_of_call(error: RPCError, address: str) -> Exception:
    """What a failed call to a cluster means; ``error`` itself if that depends on what was called.

    ``ClusterUnreachable``: it did not answer, or takes no calls from here. ``WrongUse``: it refused
    the call for what was in it.
    """
    text = connection_error_text(error)
    match error.status:
        case RPCStatusCode.NOT_FOUND if "amespace" in str(error):
            return ClusterUnreachable(address, text)
        case (
            RPCStatusCode.NOT_FOUND
            | RPCStatusCode.UNIMPLEMENTED
            | RPCStatusCode.FAILED_PRECONDITION
            | RPCStatusCode.ABORTED
        ):
            return error
        case RPCStatusCode.UNKNOWN | RPCStatusCode.INTERNAL:
            # A connection that broke during a call has no status of its own.
            is_broken = any(sign in str(error) for sign in _BROKEN_CONNECTION)
            return ClusterUnreachable(address, text) if is_broken else error
        case RPCStatusCode.INVALID_ARGUMENT:
            return WrongUse(f"the cluster at {address} refused this: {text}")
        case _:
            return ClusterUnreachable(address, text)


def _take_error(call: asyncio.Future[Any]) -> None:
    """Keep asyncio from reporting the error of a call that nobody waits for any more."""
    if not call.cancelled():
        call.exception()


@contextlib.contextmanager
def _translate_not_found(run_id: str) -> Generator[None]:
    """Translate the cluster's NOT_FOUND.

    Raises:
        RunNotFound: there is no such run, or it has ended.
    """
    try:
        yield
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        raise RunNotFound(run_id) from None


async def _read_execution(
    found: WorkflowExecution, description: WorkflowExecutionDescription | None = None
) -> ExecutionInfo:
    assert found.status is not None
    memo = await found.memo()
    return ExecutionInfo(
        found.id,
        found.workflow_type,
        found.status,
        found.run_id,
        found.history_length,
        found.start_time,
        found.close_time,
        memo,
        description,
    )


def info_of(execution: ExecutionInfo, address: str, state: wire.State | None = None) -> RunInfo:
    """A run as a journal lists it, from the cluster's list and, if given, its worker's state."""
    memo = execution.memo
    updated_at = (execution.ended_at or execution.started_at).timestamp()
    is_driven = execution.is_open and wire.HELD not in memo
    status = _status_of(execution)
    if state is not None and state.stuck:
        is_driven, status = False, "suspended"
    is_over = status in {"succeeded", "failed", "cancelled"}
    waits = msgspec.convert(() if is_over else memo.get(wire.WAITS, ()), tuple[WaitsFor, ...])
    if state is not None and state.paused and all(one.kind != "unpause" for one in waits):
        waits = (unpause_of(RunSteered("pause")), *waits)  # who paused it is in its record
    if state is not None and state.stuck:
        waits = (person_for(state.stuck),)
    return RunInfo(
        execution.run_id,
        execution.workflow,
        status,
        execution.since,
        memo.get(wire.EVENTS, 0) if state is None else state.events,
        updated_at if state is None else state.updated_at,
        memo.get(wire.LABELS, {}),
        Holder(0, address, execution.since) if is_driven else None,
        waits_for=waits,
        forked_from=msgspec.convert(memo.get(wire.FORKED), tuple[str, str | None] | None),
    )


def person_for(stuck: str) -> WaitsFor:
    """What a run waits for while workers cannot go on with its code."""
    return stuck_wait("", stuck.removeprefix(_CANNOT))


def _status_of(execution: ExecutionInfo) -> RunStatus | None:
    memo = execution.memo
    if execution.is_open:
        held = memo.get(wire.HELD)
        return None if held == wire.DEAD else held
    if execution.status is WorkflowExecutionStatus.COMPLETED:
        return "succeeded"
    return "cancelled" if memo.get(wire.STATUS) == "cancelled" else "failed"
