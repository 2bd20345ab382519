"""Workflows of these tests, at the top level of a module: workers of other processes find them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio

from handrail import Found, Task, Work, step, workflow
from handrail.engine.current import current
from handrail.steps.verbs import Step, Steps
from handrail.testing.conformance import fails_first, note


def add(one: int, other: int) -> int:
    """A sum."""
    return one + other


def counted(folder: Path, number: int) -> int:
    """A number, noted."""
    note(folder)
    return number


def large(size: int) -> str:
    """A text of so many characters."""
    return "x" * size


def length(text: str) -> int:
    """How long a text is."""
    return len(text)


async def nap(seconds: float, name: str = "") -> str:
    """Sleep in a step."""
    await anyio.sleep(seconds)
    return name


async def noted_nap(folder: Path, seconds: float) -> str:
    """Leave a trace, and then sleep."""
    note(folder)
    await anyio.sleep(seconds)
    return "late"


def path_here() -> str:
    """The path of the step that calls this."""
    return current().path


def asks_of(task: Task) -> Steps[Found[str]]:
    """One task; of one of them a person is asked first."""
    if task.id == "ask":
        yield from step("sure?").ask("Sure?", type=bool)
    return Found((yield from step("look").call(path_here)))


@workflow
def queued() -> Steps[Work[str]]:
    """A queue, whose first task waits for a person."""
    tasks = [Task("ask"), Task("late")]
    return (yield from step("w").work(tasks, asks_of, max_concurrency=1))


@workflow
def counts(n: int = 3) -> Steps[int]:
    """Add ones, one after the other."""
    total = 0
    for number in range(n):
        total = yield from step(f"add-{number}").call(add, total, 1)
    return total


@workflow
def fans(n: int, seconds: float = 0.0) -> Steps[int]:
    """Sleep in steps side by side."""
    found = yield from step("all").for_each(
        list(range(n)), lambda number: step("nap").call(nap, seconds, str(number))
    )
    return len(found)


@workflow
def rounds(n: int, width: int) -> Steps[int]:
    """Add ones side by side, so many in each of some rounds."""
    total = 0
    for number in range(n):
        ones = yield from step(f"round-{number}").for_each(
            list(range(width)), lambda one: step("add").call(add, one, 1)
        )
        total += len(ones)
    return total


@workflow
def holds(*, below: bool) -> Steps[int]:
    """A name is held by a step, or over the steps of a body."""
    if below:
        return (yield from step("held").holding("table", _one_more, 1))
    return (yield from step("held").call(add, 1, 1).holds("table"))


def _one_more(number: int) -> Step[int]:
    return step("add").call(add, number, 1)


@workflow
def asks_between(n: int) -> Steps[list[str]]:
    """Steps, a question, steps, a signal, steps."""
    for number in range(n):
        yield from step(f"before-{number}").call(add, number, 1)
    said = yield from step("go?").ask("Go on?", choices=["yes", "no"])
    for number in range(n):
        yield from step(f"between-{number}").call(add, number, 1)
    got = yield from step("news").wait_for("news")
    for number in range(n):
        yield from step(f"after-{number}").call(add, number, 1)
    return [said, str(got)]


@workflow
def passes_on(size: int) -> Steps[int]:
    """A large value from one step to the next."""
    text = yield from step("make").call(large, size)
    return (yield from step("measure").call(length, text))


@workflow
def takes(text: str) -> Steps[int]:
    """A large input."""
    return (yield from step("measure").call(length, text))


@workflow
def gives(size: int) -> Steps[str]:
    """A large result."""
    return (yield from step("make").call(large, size))


closed: list[str] = []
"""What bodies in this process did in their ``finally``."""


@workflow
def tidies_up(name: str) -> Steps[str]:
    """A body that does something when it is closed."""
    try:
        said = yield from step("go?").ask("Go on?", choices=["yes", "no"])
    finally:
        closed.append(name)
    return said


@workflow
def sleeps(days: float) -> Steps[float]:
    """A long sleep between two steps."""
    yield from step("before").call(add, 1, 1)
    yield from step("night").sleep(days * 86_400)
    return (yield from step("after").call(add, 1, 2))


@workflow
def patient(folder: Path, times: int, pause_s: float) -> Steps[Any]:
    """A step that fails some times, with long pauses between its attempts."""
    return (
        yield from step("flaky").call(fails_first, folder, times, "x").retry(times, backoff=pause_s)
    )


@workflow
def local_only(n: int) -> Steps[int]:
    """A step of a function that has no name."""
    return (yield from step("odd").call(lambda: n + 1))


@workflow
def stepwise(folder: Path, n: int = 3) -> Steps[int]:
    """Steps that leave a trace."""
    total = 0
    for number in range(n):
        total += yield from step(f"count-{number}").call(counted, folder, number)
    return total


@workflow
def notes_late(folder: Path, seconds: float) -> Steps[str]:
    """A step that lasts."""
    return (yield from step("late").call(noted_nap, folder, seconds))


FLOWS: tuple[Any, ...] = (
    counts,
    fans,
    queued,
    rounds,
    asks_between,
    holds,
    passes_on,
    takes,
    gives,
    tidies_up,
    sleeps,
    patient,
    local_only,
    stepwise,
    notes_late,
)
