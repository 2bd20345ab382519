"""A worker: drives runs of its workflows on a cluster, and performs the steps of any run."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

import attrs
from temporalio.client import Client
from temporalio.converter import StorageDriver
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner, Worker

from handrail.engine.parts import check_callers_parts, definition_of
from handrail.errors import WrongUse
from handrail.executor import Executor
from handrail.model.shapes import WorkflowLike
from handrail.secrets.values import secret_values
from handrail.temporal.blobs import blobs_at
from handrail.temporal.cluster import Cluster, with_blobs
from handrail.temporal.connecting import FailedOnce, connect, log_outages
from handrail.temporal.execution import HandrailRun, WithServing
from handrail.temporal.performing import BEAT_S, StepActivities, home_queue
from handrail.temporal.serving import Serving

MAX_ACTIVITIES = 100
"""The default for how many steps a worker performs at once."""

_LIBRARYS_LOG, _FAILED_ONCE = "temporalio.worker._workflow_instance", FailedOnce()
_STICKY_S = 4.0
"""How long a task waits for the worker that caches its run. Then another rebuilds the run."""


class TemporalWorker:
    """Serves workflows and steps while its block lasts.

    ``client``, ``task_queue`` and ``blobs`` are as for ``TemporalExecutor``. Steps use the parts of
    ``executor``: its agents, services, stages. The worker drives runs of ``workflows``, and of
    other workflows whose modules it can import. ``runs=False`` or ``steps=False`` leaves runs or
    steps to other workers. At most ``max_activities`` steps run at once. At most
    ``max_cached_runs`` runs stay in memory; the worker rebuilds others from their histories.
    """

    def __init__(
        self,
        client: Client | str,
        workflows: Sequence[WorkflowLike[..., Any]] = (),
        *,
        executor: Executor | None = None,
        task_queue: str = "handrail",
        blobs: str | os.PathLike[str] | StorageDriver | None = None,
        steps: bool = True,
        runs: bool = True,
        max_activities: int = MAX_ACTIVITIES,
        max_cached_runs: int = 1_000,
    ) -> None:
        if not steps and not runs:
            raise WrongUse("steps=False and runs=False leave nothing for a worker to do")
        self.serving = _serving(workflows, executor, task_queue)
        self._client = client
        self._blobs = blobs_at(blobs)
        self._performs = steps
        self._runs = runs
        self._max_activities = max_activities
        self._max_cached_runs = max_cached_runs
        self._workers: list[Worker] = []
        self._outage_log: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Begin to serve.

        Raises:
            ClusterUnreachable: the cluster does not answer, or has no such namespace.
        """
        logging.getLogger(_LIBRARYS_LOG).addFilter(_FAILED_ONCE)
        client = self._client
        if isinstance(client, str):
            client = await connect(client, patient=True)
        identity = await Cluster(client, self.serving.queue).identity()
        self.serving = attrs.evolve(self.serving, identity=identity)
        self._workers = self._build_workers(with_blobs(client, self._blobs))
        for worker in self._workers:
            await worker.__aenter__()
        self._outage_log = asyncio.create_task(log_outages(client))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._outage_log is not None
        self._outage_log.cancel()
        for worker in reversed(self._workers):
            await worker.__aexit__(kind, error, trace)

    def __str__(self) -> str:
        """What the worker serves, for people."""
        if not self._runs:
            return "steps only"
        names = ", ".join([*sorted(self.serving.workflows), "whatever it can import"])
        return f"steps, and workflows: {names}" if self._performs else f"workflows only: {names}"

    def _build_workers(self, client: Client) -> list[Worker]:
        """A worker for the runs' queue, and one for the queue of this machine and folder."""
        serving = self.serving
        activities = StepActivities(serving)
        beat = timedelta(seconds=BEAT_S)
        common: dict[str, Any] = {
            "max_heartbeat_throttle_interval": beat,
            "default_heartbeat_throttle_interval": beat,
            "max_concurrent_activities": self._max_activities,
        }
        workers = [
            Worker(
                client,
                task_queue=serving.queue,
                workflows=[HandrailRun] if self._runs else [],
                interceptors=[WithServing(serving)],
                activities=[
                    activities.local,
                    activities.rows,
                    *([activities.perform] if self._performs else []),
                ],
                no_remote_activities=not self._performs,
                workflow_runner=UnsandboxedWorkflowRunner(),
                max_cached_workflows=self._max_cached_runs,
                sticky_queue_schedule_to_start_timeout=timedelta(seconds=_STICKY_S),
                **common,
            )
        ]
        if self._performs:
            workers.append(
                Worker(client, task_queue=serving.home, activities=[activities.perform], **common)
            )
        return workers


def replayer(
    workflows: Sequence[WorkflowLike[..., Any]] = (), *, executor: Executor | None = None
) -> Replayer:
    """Temporal's ``Replayer`` for runs: whether today's code still decides as a history records."""
    serving = _serving(workflows, executor, "")
    return Replayer(
        workflows=[HandrailRun],
        interceptors=[WithServing(serving)],
        workflow_runner=UnsandboxedWorkflowRunner(),
    )


def _serving(
    workflows: Sequence[WorkflowLike[..., Any]], executor: Executor | None, task_queue: str
) -> Serving:
    parts = (executor if executor is not None else Executor()).parts
    if parts.shared is not None:
        raise WrongUse(
            "shared_limits hold in one process, and a worker is one of many: max_activities= "
            "bounds it"
        )
    served = (*parts.workflows, *workflows)
    check_callers_parts(None, (), served)
    return Serving(
        parts,
        {one.definition.name: definition_of(one) for one in served},
        parts.journal.codec,
        secret_values(parts.secrets, os.environ),
        task_queue,
        home_queue(task_queue),
    )
