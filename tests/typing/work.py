"""`work`: what its tasks find is what `Work` holds, however the body is written."""

from __future__ import annotations

from typing import Any, assert_type

from handrail import (
    Found,
    Step,
    Steps,
    Tally,
    Task,
    TaskDone,
    TaskFailed,
    TaskRefused,
    Work,
    plateau,
    step,
    workflow,
)


async def measure(task: Task) -> Found[float]:
    return Found(1.0, [Task(f"{task.id}/1", task.payload, priority=2)])


def sized(task: Task) -> Found[int]:
    return Found(len(task.id))


def by_step(task: Task) -> Step[Found[float]]:
    return step("measure").call(measure, task)


def by_body(task: Task) -> Steps[Found[str]]:
    size = yield from step("size").call(sized, task)
    return Found(str(size.value), size.children)


def enough(tally: Tally[float]) -> str | None:
    return "fast enough" if any(isinstance(one, TaskDone) for one in tally.ends) else None


one = step("one")
tasks = [Task("a"), Task("b", {"n": 1}, 2), Task("c", priority=-1)]

assert_type(Found(1), Found[int])
assert_type(Found("a", (Task("b"),)).value, str)
assert_type(one.work(tasks, by_step), Step[Work[float]])
assert_type(one.work(tasks, by_body), Step[Work[str]])
assert_type(one.work(iter(tasks), by_step, max_concurrency=4), Step[Work[float]])
assert_type(one.work((), by_step, at_most=9, on_error="fail_fast"), Step[Work[float]])
assert_type(one.work(tasks, by_step, stop=plateau(3)), Step[Work[float]])
assert_type(one.work(tasks, by_step, stop=plateau(3, key=abs, highest=True)), Step[Work[float]])
assert_type(one.work(tasks, by_step, stop=enough), Step[Work[float]])
assert_type(one.work(tasks, lambda task: step("s").call(sized, task)), Step[Work[int]])

one.work(tasks, len)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
one.work(["a"], by_step)  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
one.work(tasks, by_step, on_error="all_or_nothing")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@workflow
def search() -> Steps[float]:
    found = yield from step("search").work(tasks, by_step)
    assert_type(found, Work[float])
    assert_type(found.done, tuple[TaskDone[float], ...])
    assert_type(found.values, tuple[float, ...])
    assert_type(found.failed, tuple[TaskFailed, ...])
    assert_type(found.left, tuple[Task, ...])
    assert_type(found.refused, tuple[TaskRefused, ...])
    assert_type(found.why_stopped, str | None)
    best = min(found.done, key=lambda end: end.value)
    assert_type(best.task.payload, Any)
    assert_type((best.id, best.parent), tuple[str, str | None])
    return best.value
