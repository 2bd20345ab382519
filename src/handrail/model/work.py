"""The tasks of a ``.work`` step: what each of them finds, and what became of all.

A task that ends may bring further tasks. Each task's parent, and the order in which all tasks are
listed, depend on what the tasks found and not on which was faster: see ``in_tree_order``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeAlias, TypeGuard, TypeVar

from handrail.errors import DefinitionError, WrongUse
from handrail.model.dataclass import dataclass
from handrail.model.policy import count_of
from handrail.model.results import Failure, qualified

T_co = TypeVar("T_co", covariant=True)


class _NoTask(WrongUse):
    """A child of a ``Found`` is no ``Task``: a mistake of the author, which ends the run."""


NO_TASK = qualified(_NoTask)
"""The ``error_type`` of that mistake."""

_GOT_NO_TASK = "children are Tasks, got {one!r}. Write Found(value, [Task(id, payload), ...])."


@dataclass(frozen=True, slots=True)
class Task:
    """One task: an id, unique in its work, a payload, a priority (lower numbers begin first)."""

    id: str
    payload: Any = None
    priority: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.id, str):
            raise WrongUse(f"the id of a Task is a str, got {self.id!r}")
        if not self.id:
            raise DefinitionError("the id of a Task must not be empty")
        priority = self.priority
        if type(priority) is not float or not math.isfinite(priority):
            object.__setattr__(self, "priority", priority_of(priority, f"Task {self.id!r}"))


def priority_of(value: object, whose: str) -> float:
    """A priority as a finite float.

    Raises:
        DefinitionError: the value is no finite number.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise DefinitionError(f"the priority of {whose} must be a finite number, got {value!r}")
    return float(value)


@dataclass(frozen=True, slots=True)
class Found(Generic[T_co]):
    """The output of a task: its value, and the further tasks that it brings, in order."""

    value: T_co
    children: Sequence[Task] = ()

    def __post_init__(self) -> None:
        children: Any = self.children
        if children == ():
            return
        if isinstance(children, Task):
            raise _NoTask(_GOT_NO_TASK.format(one=children))
        for child in children:
            if not isinstance(child, Task):
                raise _NoTask(_GOT_NO_TASK.format(one=child))
        object.__setattr__(self, "children", tuple(children))


def is_found(output: object) -> TypeGuard[Found[Any]]:
    """True if a task's output is a ``Found``."""
    return isinstance(output, Found)


@dataclass(frozen=True, slots=True)
class TaskDone(Generic[T_co]):
    """A task that succeeded, with the value it found.

    ``parent`` is the id of the task that brought it; None if the step began with it, or if somebody
    added it.
    """

    task: Task
    value: T_co
    parent: str | None = None

    @property
    def id(self) -> str:
        """The task's id."""
        return self.task.id


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """A task that failed, and how; ``parent`` as in ``TaskDone``."""

    task: Task
    failure: Failure
    parent: str | None = None

    @property
    def id(self) -> str:
        """The task's id."""
        return self.task.id

    @property
    def error(self) -> str:
        """Why the task failed, for people."""
        return self.failure.error

    @property
    def error_type(self) -> str:
        """The class of the error, as ``module.Qualname``."""
        return self.failure.error_type


@dataclass(frozen=True, slots=True)
class TaskRefused:
    """A task that does not run, and why: its id was in use already, or somebody dropped it."""

    task: Task
    why: str
    parent: str | None = None

    @property
    def id(self) -> str:
        """The task's id."""
        return self.task.id


@dataclass(frozen=True, slots=True)
class Work(Generic[T_co]):
    """What became of all tasks; each tuple is in tree order.

    In tree order a task comes before the tasks that it brought, and these in the order in which it
    listed them, whenever they ran. ``left`` are tasks without an end: they never began, or were
    stopped. ``why_stopped`` is None if no task was left to begin.
    """

    done: tuple[TaskDone[T_co], ...] = ()
    failed: tuple[TaskFailed, ...] = ()
    left: tuple[Task, ...] = ()
    refused: tuple[TaskRefused, ...] = ()
    why_stopped: str | None = None

    @property
    def values(self) -> tuple[T_co, ...]:
        """The values of the tasks that succeeded."""
        return tuple(one.value for one in self.done)


class Tally(Generic[T_co]):
    """How far the work has come, as the ``stop`` rule sees it. Mutable: it follows the work.

    ``ends`` are the tasks that are done or failed, in the order in which they ended. ``queued``
    tasks wait, ``running`` ones have begun and not ended, ``refused`` ones do not run. In ``notes``
    a stop rule can keep something from one call to the next; a resume begins with empty notes.
    """

    __slots__ = ("done", "ends", "failed", "notes", "queued", "refused", "running")

    def __init__(
        self,
        ends: Iterable[TaskDone[T_co] | TaskFailed] = (),
        *,
        queued: int = 0,
        running: int = 0,
        refused: int = 0,
    ) -> None:
        self.ends: list[TaskDone[T_co] | TaskFailed] = []
        self.done = 0
        self.failed = 0
        self.queued, self.running, self.refused = queued, running, refused
        self.notes: dict[object, Any] = {}
        for end in ends:
            self.add(end)

    def add(self, end: TaskDone[Any] | TaskFailed) -> None:
        """Count a task that has ended."""
        self.ends.append(end)
        if isinstance(end, TaskDone):
            self.done += 1
        else:
            self.failed += 1


StopRule: TypeAlias = "Callable[[Tally[Any]], str | None]"
"""Returns why the work must stop, or None to continue. It takes a ``Tally[Any]``: from another type
a type checker would infer the type of the work.
"""


class _Plateau:
    """A stop rule: nothing better was found for a while. The tally's notes keep its state."""

    __slots__ = ("_highest", "_key", "_length")

    def __init__(self, length: int, key: Callable[[Any], Any] | None, *, highest: bool) -> None:
        self._length = length
        self._key = key
        self._highest = highest

    def __call__(self, tally: Tally[Any], /) -> str | None:
        """Why the work must stop, or None."""
        seen, best_at, best = tally.notes.get(self, (0, 0, None))
        for number, end in enumerate(tally.ends[seen:], seen + 1):
            if not isinstance(end, TaskDone):
                continue
            found = end.value if self._key is None else self._key(end.value)
            if not best_at or (found > best if self._highest else found < best):
                best_at, best = number, found
        tally.notes[self] = len(tally.ends), best_at, best
        since = len(tally.ends) - best_at
        if since < self._length:
            return None
        return f"plateau: {since} tasks in a row found nothing better"


def plateau(n: int, *, key: Callable[[Any], Any] | None = None, highest: bool = False) -> StopRule:
    """A ``stop`` rule for a search: stop when ``n`` tasks in a row have found nothing better.

    Better is a lower value, with ``highest`` a higher one; ``key`` maps a value to the one that is
    compared. A task that failed has found nothing.

    Raises:
        DefinitionError: ``n`` is no whole number of at least 1.
    """
    return _Plateau(count_of(n, "plateau(n)"), key, highest=highest)


# -- the tree --------------------------------------------------------------------------------------


def in_tree_order(
    roots: Iterable[Task], children: Mapping[str, Sequence[Task]]
) -> list[tuple[Task, str | None, bool]]:
    """Every task in tree order, with its parent's id (None for a root), and whether it counts.

    Of several tasks with one id only the first counts. Roots count first: a task that was found
    never takes the place of a root. Then the children count, in tree order. So the result depends
    on which tasks were brought, and not on when.
    """
    known, top = set[str](), list[Task]()
    ordered: list[tuple[Task, str | None, bool]] = []
    for task in roots:
        if task.id in known:
            ordered.append((task, None, False))
        else:
            known.add(task.id)
            top.append(task)
    for task in top:
        ordered.append((task, None, True))
        stack = [(task.id, iter(children.get(task.id, ())))]
        while stack:
            parent, siblings = stack[-1]
            for child in siblings:
                counts = child.id not in known
                ordered.append((child, parent, counts))
                if counts:
                    known.add(child.id)
                    below = children.get(child.id)
                    if below:
                        stack.append((child.id, iter(below)))
                        break
            else:
                stack.pop()
    return ordered


def work_of(
    in_order: Iterable[tuple[Task, str | None, bool]],
    ends: Mapping[str, TaskDone[Any] | TaskFailed],
    dropped: Mapping[str, str],
    why_stopped: str | None,
) -> Work[Any]:
    """What became of all tasks, given ``in_tree_order``.

    ``ends`` is keyed by task id; ``dropped`` maps the id of a dropped task to the reason.
    """
    done, failed = list[TaskDone[Any]](), list[TaskFailed]()
    left, refused = list[Task](), list[TaskRefused]()
    for task, parent, counts in in_order:
        end = ends.get(task.id)
        if not counts:
            refused.append(TaskRefused(task, f"there is a task {task.id!r} already", parent))
        elif task.id in dropped:
            refused.append(TaskRefused(task, dropped[task.id], parent))
        elif end is None:
            left.append(task)
        elif isinstance(end, TaskDone):
            done.append(end if end.parent == parent else TaskDone(end.task, end.value, parent))
        else:
            failed.append(
                end if end.parent == parent else TaskFailed(end.task, end.failure, parent)
            )
    return Work(tuple(done), tuple(failed), tuple(left), tuple(refused), why_stopped)
