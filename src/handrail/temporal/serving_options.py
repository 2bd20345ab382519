"""The options of ``handrail worker`` that only the worker of a cluster has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter


@Parameter(name="*")
@dataclass(frozen=True)
class Serving:
    """How runs of a cluster are served."""

    steps_only: Annotated[bool, Parameter(help="With --temporal: run steps, but no workflows.")] = (
        False
    )
    workflows_only: Annotated[
        bool, Parameter(help="With --temporal: run workflows, but no steps.")
    ] = False
    max_activities: Annotated[
        int | None, Parameter(help="With --temporal: run at most this many steps at once.")
    ] = None
    task_queue: Annotated[
        str | None,
        Parameter(
            help="With --temporal: the task queue to serve; by default HANDRAIL_TASK_QUEUE, or "
            '[tool.handrail] task_queue, or "handrail".'
        ),
    ] = None
    blobs: Annotated[
        str | None,
        Parameter(
            help="With --temporal: the folder or fsspec address for values above 256 KiB; by "
            "default HANDRAIL_BLOBS, or [tool.handrail] blobs."
        ),
    ] = None
