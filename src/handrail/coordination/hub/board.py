"""The plan that agents share: tasks, what each depends on, and lines of progress."""

from __future__ import annotations

from collections.abc import Iterable

from handrail.coordination.hub.bounded import Bounded
from handrail.coordination.hub.records import Note, Task

STATUSES = ("open", "in_progress", "blocked", "done", "cancelled")
ENDED = frozenset({"done", "cancelled"})
"""What satisfies whoever depends on it."""
NOTE_KINDS = ("note", "blocked", "assessment")
MOST_TASKS = 10_000
MOST_SIZE = 32 * 1024 * 1024
"""Characters of all tasks."""
NOTES = (5_000, 16 * 1024 * 1024)


class Board:
    """Mutable."""

    def __init__(self) -> None:
        self.notes: Bounded[Note] = Bounded(*NOTES)
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
        """Enter a task, in place of that of the same id."""
        self._size += _size(task) - _size(self._tasks.get(task.task_id))
        self._tasks[task.task_id] = task

    def remove(self, task_id: str) -> None:
        """Strike a task off."""
        self._size -= _size(self._tasks.pop(task_id, None))

    def unmet(self, task: Task) -> list[str]:
        """What a task depends on and is not over, each with how it stands."""
        found: list[str] = []
        for task_id in task.depends_on:
            known = self._tasks.get(task_id)
            if known is None:
                found.append(f"'{task_id}' is not on the board")
            elif known.status not in ENDED:
                found.append(f"'{task_id}' is {known.status}")
        return found

    def is_ready(self, task: Task) -> bool:
        """True if somebody may begin it."""
        return task.status == "open" and not self.unmet(task)

    def makes_circle(self, task_id: str, depends_on: Iterable[str]) -> bool:
        """True if a task would then depend on itself."""
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
        """True if all tasks are not too long together with this one."""
        return self._size + _size(task) - _size(self._tasks.get(task.task_id)) <= MOST_SIZE

    def surplus(self) -> str | None:
        """A task that may go to make room: one that is over and that nothing depends on, or None.

        Raises:
            LookupError: there has to be room, and there is no such task.
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
