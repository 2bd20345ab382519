"""The tasks that wait and the tasks at work, in the form that a protocol keeps."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any, cast

from handrail.model import events as ev
from handrail.model.paths import decode_key
from handrail.model.work import Task
from handrail.record.work import RecordedTasks
from handrail.work.protocol import TaskSpec

WORK = "work"
"""The path of the one step that a run of this kind has."""

RESULT = "result"
"""The name of a task's last step, in which the protocol takes the task's result."""

_FIELDS = {"id", "kind", "payload"}


class Board:
    """The tasks of a drive by id, each with the protocol's own object, its spec. A sink. Mutable.

    ``make`` makes a spec from data, after a restart. ``tell`` is called with the tasks that wait
    and those at work, after every change.
    """

    def __init__(self, tell: Callable[[list[Any], list[Any]], None]) -> None:
        self._tell = tell
        self.make: Callable[[dict[str, Any]], Any] = TaskSpec.from_dict
        self._specs: dict[str, Any] = {}
        self._queued: list[tuple[float, int, str]] = []
        self._places: dict[str, tuple[float, int]] = {}
        self._running: dict[str, None] = {}
        self._known = set[str]()
        self._named = dict[str, int]()
        """How many tasks have each id, or the id without its number."""
        self._unwelcome = set[str]()
        self._arrivals = 0

    # -- tasks and their specs ------------------------------------------------------------------

    def task_of(self, spec: Any) -> Task:
        """A new task for a spec from the protocol; keeps the spec itself.

        Several specs may have one id: each is a task of its own, as ``id``, ``id#2``, ``id#3``.
        """
        data = data_of(spec)
        name = data["id"]
        while name in self._named:
            self._named[data["id"]] += 1
            name = f"{data['id']}#{self._named[data['id']]}"
        self._named[name] = 1
        self._specs[name] = spec
        return Task(name, data, float(getattr(spec, "priority", 0.0)))

    def spec_of(self, task: Task) -> Any:
        """The protocol's spec of a task."""
        spec = self._specs.get(task.id)
        if spec is None:
            spec = self._specs[task.id] = self.make(_recorded_data(task))
        return spec

    # -- waiting and at work --------------------------------------------------------------------

    def begin_with(self, specs: Iterable[Any]) -> list[Task]:
        """Queue the specs that no task of an earlier drive has; returns their tasks."""
        earlier = set(self._named)
        tasks = [self.task_of(spec) for spec in specs if str(spec.id) not in earlier]
        for task in tasks:
            self._wait(task.id, task.priority)
        return tasks

    def continue_from(self, recorded: RecordedTasks) -> None:
        """Continue from an earlier drive: the tasks that it began, and those that it had found."""
        work = recorded.work()
        self._known.update(one.id for one in work.done)
        self._known.update(one.id for one in work.refused)
        again = {one.id for one in work.failed}
        left = {one.id: one for one in (*work.left, *(one.task for one in work.failed))}
        for task in left.values():
            self.spec_of(task)
            taken = recorded.output_of(task.id, RESULT)  # the process died before the task's end
            self._named.update((one.id, 1) for one in getattr(taken, "children", ()))
        for task_id, priority in recorded.by_urgency():
            self._named[task_id] = 1
            if task_id not in left:
                continue
            if task_id in again or recorded.has_begun(task_id):
                self._known.add(task_id)
                self._running[task_id] = None
            else:
                self._wait(task_id, priority)

    def emit(self, event: ev.Event | ev.Progress, /) -> None:
        """Update the lists by an event."""
        match event:
            case ev.MemberStarted(path=path) if path.startswith(f"{WORK}/"):
                task_id = decode_key(event.key)
                self._leave(task_id)
                self._running[task_id] = None
            case ev.MemberCompleted(path=path) if path.startswith(f"{WORK}/"):
                if not event.result.success:
                    return  # the next drive begins it again
                task_id = decode_key(event.result.name)
                self._running.pop(task_id, None)
                self._specs.pop(task_id, None)
                for found, priority in event.found:
                    self._wait(found, priority)
            case ev.WorkEdited():
                self._edited(event)
            case _ if not isinstance(event, ev.DriveBegan):
                return
            case _:
                pass
        self._tell(*self.lists())

    def _edited(self, event: ev.WorkEdited) -> None:
        for task in event.add:
            self._wait(task.id, task.priority)
        for task_id in event.drop:
            self._leave(task_id)
            self._unwelcome.add(task_id)
        for task_id, priority in event.priority.items():
            if task_id in self._places:
                arrival = self._places[task_id][1]
                self._leave(task_id)
                self._put(task_id, priority, arrival)

    def lists(self) -> tuple[list[Any], list[Any]]:
        """The specs of tasks that wait, the most urgent first, and of tasks at work."""
        queued = [self._spec(task_id) for _, _, task_id in self._queued]
        return queued, [self._spec(task_id) for task_id in self._running]

    def _spec(self, task_id: str) -> Any:
        spec = self._specs.get(task_id)
        return self.make({"id": task_id}) if spec is None else spec

    def _wait(self, task_id: str, priority: float) -> None:
        if task_id not in self._known:
            self._known.add(task_id)
            self._named.setdefault(task_id, 1)
            if task_id not in self._unwelcome:
                self._arrivals += 1
                self._put(task_id, priority, self._arrivals)

    def _put(self, task_id: str, priority: float, arrival: int) -> None:
        self._places[task_id] = priority, arrival
        insort(self._queued, (priority, arrival, task_id))

    def _leave(self, task_id: str) -> None:
        place = self._places.pop(task_id, None)
        if place is not None:
            self._queued.remove((*place, task_id))


def data_of(spec: Any) -> dict[str, Any]:
    """What of a spec is recorded, but for its priority."""
    return {
        "id": str(spec.id),
        "kind": str(getattr(spec, "kind", "default")),
        "payload": deepcopy(getattr(spec, "payload", {})),  # the protocol may change its own
    }


def _recorded_data(task: Task) -> dict[str, Any]:
    """A task's data, as ``TaskSpec.to_dict`` gives it."""
    payload: Any = task.payload
    data = cast("dict[str, Any]", payload)
    if not isinstance(payload, dict) or set(data) != _FIELDS:  # a person added it
        data = {"id": task.id, "kind": "default", "payload": data or {}}
    return {**data, "priority": task.priority}
