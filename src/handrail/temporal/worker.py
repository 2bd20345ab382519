"""A worker: serves the runs of some workflows on a cluster, and performs steps of any."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from temporalio.client import Client
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner, Worker

from handrail.engine.parts import definition_of
from handrail.errors import WrongUse
from handrail.executor import Executor
from handrail.model.shapes import WorkflowLike
from handrail.secrets.values import secret_values
from handrail.temporal.execution import HandrailRun, WithServing
from handrail.temporal.performing import BEAT_S, Steps, home_queue
from handrail.temporal.serving import Serving

MAX_ACTIVITIES = 100
"""So many steps at once a worker performs, if it is not told otherwise."""

_STICKY_S = 4.0
"""How long a run waits for the worker that has it in memory, before another makes it again."""


class TemporalWorker:
    """Serves workflows and steps while its block lasts."""

    def __init__(
        self,
        client: Client,
        workflows: Sequence[WorkflowLike[..., Any]] = (),
        *,
        executor: Executor | None = None,
        task_queue: str = "handrail",
        steps: bool = True,
        runs: bool = True,
        max_activities: int = MAX_ACTIVITIES,
        max_cached_runs: int = 1_000,
    ) -> None:
        serving = _serving(workflows, executor, task_queue)
        performs = Steps(serving)
        common: dict[str, Any] = {
            "max_heartbeat_throttle_interval": timedelta(seconds=BEAT_S),
            "default_heartbeat_throttle_interval": timedelta(seconds=BEAT_S),
            "max_concurrent_activities": max_activities,
        }
        self.serving = serving
        self._workers = [
            Worker(
                client,
                task_queue=task_queue,
                workflows=[HandrailRun] if runs else [],
                interceptors=[WithServing(serving)],
                activities=[performs.perform, performs.local] if steps else [performs.local],
                no_remote_activities=not steps,
                workflow_runner=UnsandboxedWorkflowRunner(),
                max_cached_workflows=max_cached_runs,
                sticky_queue_schedule_to_start_timeout=timedelta(seconds=_STICKY_S),
                **common,
            )
        ]
        if steps:
            self._workers.append(
                Worker(client, task_queue=serving.home, activities=[performs.perform], **common)
            )

    async def __aenter__(self) -> Self:
        for worker in self._workers:
            await worker.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for worker in reversed(self._workers):
            await worker.__aexit__(kind, error, trace)


def replayer(
    workflows: Sequence[WorkflowLike[..., Any]] = (), *, executor: Executor | None = None
) -> Replayer:
    """Temporal's own ``Replayer``, for histories of runs: it says whether the code of now decides
    as the code did that made them.
    """
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
    return Serving(
        parts,
        {one.definition.name: definition_of(one) for one in (*parts.workflows, *workflows)},
        parts.journal.codec,
        secret_values(parts.secrets, os.environ),
        task_queue,
        home_queue(task_queue),
    )
