"""Edits to the queue of ``work`` by a person: what is possible, and how it takes effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from handrail.core.run_state import RunState
from handrail.core.work import WorkNode
from handrail.errors import CannotSteer, WrongUse, did_you_mean
from handrail.model import events as ev
from handrail.model.paths import encode_key
from handrail.model.work import Task, priority_of
from handrail.record.work import drop_reason

_PLAIN = frozenset({type(None), bool, int, float, str, list, dict, tuple})


def work_edited(run: RunState, event: ev.WorkEdited) -> None:
    """Apply an edit to work that is open; keep it for work that has not begun."""
    run.last_edit = max(run.last_edit, event.letter)
    run.edits.setdefault(event.path, []).append(event)
    node = run.nodes.get(event.path)
    if isinstance(node, WorkNode) and node.is_open:
        node.edited(run, event)


def edit_of(
    path: str | None,
    add: Sequence[Task],
    drop: Sequence[str],
    priority: Mapping[str, float] | None,
    by: str | None,
) -> ev.WorkEdited:
    """The event of a person's edit to a queue.

    Raises:
        WrongUse, DefinitionError: an argument is wrong, or there is nothing to do.
    """
    if path is not None and not isinstance(path, str):
        raise WrongUse(f"edit_work(path=) takes the path of a step, got {path!r}")
    if isinstance(add, Task) or not all(isinstance(task, Task) for task in add):
        raise WrongUse(f"edit_work(add=) takes a list of Tasks, got {add!r}")
    if isinstance(drop, str) or not all(isinstance(task_id, str) for task_id in drop):
        raise WrongUse(f"edit_work(drop=) takes a list of ids, got {drop!r}")
    moved = {
        key: priority_of(value, f"task {key!r}") for key, value in dict(priority or {}).items()
    }
    if not (add or drop or moved):
        raise WrongUse("edit_work() takes what is to be done: add=, drop= or priority=")
    return ev.WorkEdited(path or "", tuple(add), tuple(drop), moved, by)


def check_edit(
    run: RunState, event: ev.WorkEdited, coming: Sequence[ev.WorkEdited] = (), *, driven: bool
) -> ev.WorkEdited:
    """Check that a queue takes this edit; returns it with path and converted payloads.

    ``run`` is live (``driven``; ``coming``: edits that are posted and have not reached it), or
    rehearsed from its record. A payload that a person typed is converted to the class of the first
    task's payload, unless that is plain data.

    Raises:
        CannotSteer: there is no such work, or it does not take the edit.
        InvalidInput: a payload does not fit.
    """
    node = _open_work(run, event.path)
    run_id, path = run.setting.run_id, node.path
    before = [edit for edit in coming if edit.path == path]
    added = {task.id for edit in before for task in edit.add}
    dropped = {key: edit for edit in before for key in edit.drop}
    for task in event.add:
        if encode_key(task.id) in node.queue.known or task.id in added:
            raise CannotSteer(run_id, f"there is a task {task.id!r} in step {path!r} already")
        added.add(task.id)
    for key in (*event.drop, *event.priority):
        if key in dropped:
            raise CannotSteer(run_id, f"task {key!r} was {drop_reason(dropped[key])} already")
        if key not in added:
            _check_waits(run, node, key, driven=driven)
    add = tuple(_as_the_others(node, task) for task in event.add)
    return replace(event, path=path, add=add)


def _open_work(run: RunState, path: str) -> WorkNode:
    """The open work at a path; without a path, the only work that there is.

    Raises:
        CannotSteer: there is none, or it begins no more tasks.
    """
    run_id = run.setting.run_id
    works = [node for node in run.nodes.values() if isinstance(node, WorkNode)]
    if not path:
        if len(works) != 1:
            known = ", ".join(repr(work.path) for work in works)
            which = f"Name one of {known}." if works else "A .work() step has one while it is open."
            raise CannotSteer(run_id, f"it has {len(works)} queues now", which)
        path = works[0].path
    node = run.nodes.get(path)
    if not isinstance(node, WorkNode):
        if path in run.results:
            why = f"step {path!r} has ended"
        else:
            why = f"no work has begun at {path!r}"
        known = ", ".join(repr(work.path) for work in works)
        raise CannotSteer(run_id, why, f"At work: {known}." if works else "")
    if not node.is_open:
        why = node.queue.stopped or node.stop or "it ends just now"
        raise CannotSteer(run_id, f"step {path!r} begins no more tasks: {why}")
    return node


def _check_waits(run: RunState, node: WorkNode, task_id: str, *, driven: bool) -> None:
    """Check that the task waits.

    Raises:
        CannotSteer: it does not wait, or does not exist.
    """
    run_id, key = run.setting.run_id, encode_key(task_id)
    if key not in node.queue.known:
        near = did_you_mean([task_id], list(_ids(node)))
        raise CannotSteer(run_id, f"step {node.path!r} has no task {task_id!r}.{near}")
    dropped = node.dropped(task_id)
    if dropped is not None:
        raise CannotSteer(run_id, f"task {task_id!r} was {dropped} already")
    path = f"{node.base}/{key}"
    begun = key not in node.queue.urgency if driven else run.recorded.knows(path)
    if begun and any(end.id == task_id for end in node.tally.ends):
        raise CannotSteer(run_id, f"task {task_id!r} does not wait: it has ended")
    if begun:
        raise CannotSteer(
            run_id,
            f"task {task_id!r} does not wait: it has begun",
            f"complete(), skip() and retry() are for the steps below {path!r}.",
        )


def _ids(node: WorkNode) -> Iterator[str]:
    return (task.id for task, _ in node.queue.known.values())


def _as_the_others(node: WorkNode, task: Task) -> Task:
    """The task, its payload converted to the class of the first task's payload."""
    from handrail.typed.convert import convert

    tasks = node.verb.tasks
    kind: type[Any] = cast("type[Any]", type(tasks[0].payload) if tasks else type(None))
    if kind in _PLAIN or isinstance(task.payload, kind):
        return task
    payload = convert(task.payload, kind, name=f"payload of task {task.id}")
    return replace(task, payload=payload)
