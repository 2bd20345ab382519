"""The tasks of a ``work`` step by its record: which there were, what each brought, how it ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Any

from handrail.codec.unresolved import Unresolved
from handrail.model import events as ev
from handrail.model.paths import attempt_base, encode_key
from handrail.model.results import A_PERSON, Failure, StepResult
from handrail.model.work import (
    Task,
    TaskDone,
    TaskFailed,
    Work,
    in_tree_order,
    is_found,
    work_of,
)
from handrail.record.path_tree import PathState
from handrail.record.run_record import Recorded


def task_ended(
    task: Task, parent: str | None, result: StepResult[Any]
) -> TaskDone[Any] | TaskFailed | None:
    """How a task ended; None if it was stopped."""
    if result.status == "cancelled":
        return None
    if result.status == "failed":
        bases, text = result.error_bases, result.traceback
        failure = Failure(result.error or "", result.error_type or "", bases, text)
        return TaskFailed(task, failure, parent)
    output = result.output
    return TaskDone(task, output.value if is_found(output) else output, parent)


def drop_reason(event: ev.WorkEdited) -> str:
    """The reason that a dropped task was not done."""
    return f"dropped by {event.by or A_PERSON}"


class RecordedTasks:
    """The tasks of one attempt, as far as its record goes, in the order in which they came.

    ``roots``: the tasks that it begins with. The outputs of its members must have been derived.
    Mutable only while it is constructed.
    """

    def __init__(self, recorded: Recorded, path: str, attempt: int, roots: Sequence[Task]) -> None:
        self.base, self.attempt = attempt_base(path, attempt), attempt
        self._recorded = recorded
        self._edits = edits = recorded.edits.get(path, [])
        self.roots = [*roots, *(task for event in edits for task in event.add)]
        self.ends: dict[str, TaskDone[Any] | TaskFailed] = {}
        self.children: dict[str, Sequence[Task]] = {}
        self.why_stopped = recorded.why_stopped.get((path, attempt))
        self._ready: list[tuple[int, str, Task, str | None]] = []
        self._known: dict[str, float] = {}
        """The priority of each task, in the order in which they came."""
        self._bring(roots, None)
        waiting = list(edits)
        while self._ready or waiting:  # in the order of the record
            if waiting and not (self._ready and self._ready[0][0] < waiting[0].seq):
                self._bring(waiting.pop(0).add, None)
            else:
                _, _, task, parent = heappop(self._ready)
                self._take_end(task, parent)
        self.dropped = {
            task_id: drop_reason(event)
            for event in edits
            for task_id in event.drop
            if not recorded.knows(self.path_of(task_id))
        }

    def path_of(self, task_id: str) -> str:
        """The path of the member that does a task."""
        return f"{self.base}/{encode_key(task_id)}"

    def has_begun(self, task_id: str) -> bool:
        """True if the task has begun."""
        return self._recorded.at(self.path_of(task_id)).started_at is not None

    def is_at_work(self, task_id: str) -> bool:
        """True if the task has begun and has no end."""
        record = self._recorded.at(self.path_of(task_id))
        return record.started_at is not None and not record.ended()

    def output_of(self, task_id: str, name: str) -> Any:
        """The output of a step of a task's body; None if it has none."""
        end = self._recorded.at(f"{self.path_of(task_id)}/{name}").end
        return None if end is None else end.output

    def work(self) -> Work[Any]:
        """The outcome of all tasks."""
        in_order = in_tree_order(self.roots, self.children)
        return work_of(in_order, self.ends, self.dropped, self.why_stopped)

    def in_order(self) -> Iterator[Task]:
        """The tasks that count, in the order of their tree."""
        for task, _, counts in in_tree_order(self.roots, self.children):
            if counts:
                end = self.ends.get(task.id)
                yield task if end is None else end.task

    def by_urgency(self) -> list[tuple[str, float]]:
        """All tasks that count, by id with their priorities, in the order in which they begin."""
        moved = {key: priority for event in self._edits for key, priority in event.priority.items()}
        urgency = [(key, moved.get(key, priority)) for key, priority in self._known.items()]
        return sorted(urgency, key=lambda pair: pair[1])

    def _bring(self, tasks: Iterable[Task], parent: str | None) -> None:
        for task in tasks:
            if task.id not in self._known:
                self._known[task.id] = task.priority
                record = self._recorded.at(self.path_of(task.id))
                if record.end is not None:
                    heappush(self._ready, (record.ended_seq, task.id, task, parent))

    def _take_end(self, task: Task, parent: str | None) -> None:
        record = self._recorded.at(self.path_of(task.id))
        result = record.end
        assert result is not None
        end = task_ended(task, parent, result)
        if end is None:
            return
        self.ends[task.id] = end
        children = _children(result.output, record)
        if children:
            self.children[task.id] = children
            self._bring(children, task.id)


def last_tasks(recorded: Recorded, path: str) -> RecordedTasks:
    """The tasks of a ``work`` step as its last attempt has them."""
    record = recorded.at(path)
    attempt = record.attempts + 1 if record.end is None else max(1, record.end.attempts)
    return RecordedTasks(recorded, path, attempt, recorded.tasks.get(path, ()))


def _children(output: Any, record: PathState) -> Sequence[Task]:
    """The tasks that a task brought; just ids and priorities if its output's class is unknown."""
    if is_found(output):
        return output.children
    payload = output if isinstance(output, Unresolved) else None
    return [Task(task_id, payload, priority) for task_id, priority in record.found]
