"""The queues of a run for people: tasks that wait, in the order they begin, and tasks done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from handrail.model.dataclass import dataclass
from handrail.record.run_record import Recorded
from handrail.record.work import RecordedTasks, last_tasks
from handrail.typed.jsonsafe import json_safe


@dataclass(frozen=True, slots=True)
class WorkView:
    """The queue of a ``work`` step.

    ``queued``: the tasks that wait, with their priorities, the next one first. ``running``: ids of
    tasks at work. ``done``, ``failed``: how many. ``refused``: ids of tasks that were not taken.
    ``why_stopped``: why no more begin; None if more may. ``over``: the step has ended.
    """

    path: str
    queued: tuple[tuple[str, float], ...]
    running: tuple[str, ...]
    done: int
    failed: int
    refused: tuple[str, ...]
    why_stopped: str | None
    over: bool

    @property
    def size(self) -> int:
        """How many tasks are known, whether they wait, are at work or have ended."""
        return len(self.queued) + len(self.running) + self.done + self.failed

    def to_dict(self) -> dict[str, Any]:
        """All fields as JSON-safe data."""
        queued = [{"id": task_id, "priority": priority} for task_id, priority in self.queued]
        return {**cast("dict[str, Any]", json_safe(self)), "queued": queued}


def works_of(recorded: Recorded) -> Iterator[WorkView]:
    """The queues that a record has, each as the last attempt of its step has it."""
    for path in recorded.tasks:
        if recorded.get(path) is not None:
            yield _work(recorded, last_tasks(recorded, path), path)


def _work(recorded: Recorded, tasks: RecordedTasks, path: str) -> WorkView:
    work, record = tasks.work(), recorded.at(path)
    waiting = {task.id for task in work.left if not tasks.has_begun(task.id)}
    stopped = recorded.stops.get(path)
    why = work.why_stopped
    is_now = stopped is not None and stopped.attempt == tasks.attempt and record.end is None
    if why is None and stopped is not None and is_now:
        why = stopped.reason
    return WorkView(
        path,
        tuple(pair for pair in tasks.by_urgency() if pair[0] in waiting),
        tuple(task.id for task in work.left if tasks.is_at_work(task.id)),
        len(work.done),
        len(work.failed),
        tuple(task.id for task in work.refused),
        why,
        record.end is not None,
    )
