"""A worker: serves the runs of some workflows on a cluster, and performs steps of any."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

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
        executor = executor if executor is not None else Executor()
        parts = executor.parts
        if parts.shared is not None:
            raise WrongUse("shared_limits hold in one process")
        known = {one.definition.name: definition_of(one) for one in (*parts.workflows, *workflows)}
        serving = Serving(
            parts,
            known,
            parts.journal.codec,
            secret_values(parts.secrets, os.environ),
            task_queue,
            home_queue(task_queue),
        )
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
