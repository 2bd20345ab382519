"""Who waits for which task, so that nobody waits in a circle.

An agent waits for one task at a time. For whom it waits follows from who holds that task now: when
it is released, the wait is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable


class Waits:
    """Mutable."""

    def __init__(self) -> None:
        self._tasks: dict[str, str] = {}
        self._waiters: dict[str, dict[str, None]] = {}

    def get(self, agent: str) -> str | None:
        """The task that an agent waits for, or None."""
        return self._tasks.get(agent)

    def agents(self) -> Iterable[str]:
        """Whoever waits."""
        return self._tasks

    def waiters(self, task_id: str) -> list[str]:
        """Who waits for a task."""
        return list(self._waiters.get(task_id, ()))

    def put(self, agent: str, task_id: str) -> None:
        """Have an agent wait for this task alone."""
        self.remove(agent)
        self._tasks[agent] = task_id
        self._waiters.setdefault(task_id, {})[agent] = None

    def remove(self, agent: str) -> None:
        """An agent waits no more."""
        task_id = self._tasks.pop(agent, None)
        if task_id is not None:
            del self._waiters[task_id][agent]
            if not self._waiters[task_id]:
                del self._waiters[task_id]

    def makes_circle(self, agent: str, task_id: str, holder: Callable[[str], str | None]) -> bool:
        """True if whoever holds the task waits, through others or not, for the agent itself."""
        seen: set[str] = set()
        one: str | None = task_id
        while one is not None and one not in seen:
            seen.add(one)
            owner = holder(one)
            if owner is None:
                return False
            if owner == agent:
                return True
            one = self._tasks.get(owner)
        return False
