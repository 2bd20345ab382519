"""The plan that agents share: tasks, their dependencies, and progress notes."""

from __future__ import annotations

from collections.abc import Iterable

from handrail.coordination.hub.bounded import Bounded
from handrail.coordination.hub.records import Note, Task

STATUSES = ("open", "in_progress", "blocked", "done", "cancelled")
ENDED = frozenset({"done", "cancelled"})
"""The statuses that satisfy tasks which depend on this one."""
NOTE_KINDS = ("note", "blocked", "assessment")
MOST_TASKS = 10_000
MOST_SIZE = 32 * 1024 * 1024
"""The most characters of all tasks together."""
NOTES_SIZE = 16 * 1024 * 1024


class Board:
    """The tasks and progress notes. Mutable."""

    def __init__(self, max_notes: int) -> None:
        self.notes: Bounded[Note] = Bounded(max_notes, NOTES_SIZE)
        self.last_note = 0
        self._tasks: dict[str, Task] = {}
        self._size = 0

    def get(self, task_id: str) -> Task | None:
        """A task, or None."""
        return self._tasks.get(task_id)

    def tasks(self) -> list[Task]:
        """All tasks, by id."""
        return [self._tasks[task_id] for task_id in sorted(self._tasks)]

    def put(self, task: Task) -> None:
        """Add a task, in place of the one of the same id."""
        self._size += _size(task) - _size(self._tasks.get(task.task_id))
        self._tasks[task.task_id] = task

    def remove(self, task_id: str) -> None:
        """Remove a task, if it is there."""
        self._size -= _size(self._tasks.pop(task_id, None))

    def unmet(self, task: Task) -> list[str]:
        """The unfinished dependencies of a task, each with its status, as text for people."""
        found: list[str] = []
        for task_id in task.depends_on:
            known = self._tasks.get(task_id)
            if known is None:
                found.append(f"'{task_id}' is not on the board")
            elif known.status not in ENDED:
                found.append(f"'{task_id}' is {known.status}")
        return found

    def is_ready(self, task: Task) -> bool:
        """True if the task is open and all its dependencies have ended."""
        return task.status == "open" and not self.unmet(task)

    def makes_circle(self, task_id: str, depends_on: Iterable[str]) -> bool:
        """True if these dependencies would make the task depend on itself."""
        seen: set[str] = set()
        todo = list(depends_on)
        while todo:
            one = todo.pop()
            if one == task_id:
                return True
            if one not in seen and (known := self._tasks.get(one)) is not None:
                seen.add(one)
                todo.extend(known.depends_on)
        return False

    def has_room(self, task: Task) -> bool:
        """True if the tasks stay within ``MOST_SIZE`` together with this one."""
        return self._size + _size(task) - _size(self._tasks.get(task.task_id)) <= MOST_SIZE

    def surplus(self) -> str | None:
        """The task to drop before a new one: ended, and no dependency; None if there is room.

        Raises:
            LookupError: the board is full, and no task can be dropped.
        """
        if len(self._tasks) < MOST_TASKS:
            return None
        needed = {one for task in self._tasks.values() for one in task.depends_on}
        for task in self._tasks.values():
            if task.status in ENDED and task.task_id not in needed:
                return task.task_id
        raise LookupError


def _size(task: Task | None) -> int:
    if task is None:
        return 0
    texts = (task.task_id, task.title, task.description, *task.depends_on)
    return 100 + sum(map(len, texts))
