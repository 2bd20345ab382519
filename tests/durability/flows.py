"""Workflows as people write them, that use everything there is to survive."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from handrail import (
    Found,
    Stage,
    Step,
    StepFailed,
    Steps,
    Task,
    WorkflowContext,
    current,
    plateau,
    step,
    workflow,
)


@dataclass(frozen=True)
class Plan:
    """What a planning step gives."""

    title: str
    files: tuple[str, ...]
    made_at: datetime


class Broken(Exception):
    """What these steps fail with."""


def plan(task: str) -> Plan:
    """A value of a type of ours."""
    return Plan(task, ("a.py", "b.py", "c.py"), datetime(2026, 1, 2, tzinfo=UTC))


def flaky() -> str:
    """Fails twice."""
    if current().attempt < 3:
        raise Broken(f"attempt {current().attempt}")
    return f"attempt {current().attempt}"


async def edit(file: str) -> dict[str, int]:
    """Fails for one of the files."""
    if file == "b.py":
        raise Broken(f"{file} is read-only")
    return {file: len(file)}


def broken() -> None:
    """Fails."""
    raise Broken("no")


def nothing(*_: Any) -> None:
    """Does nothing."""


def undo(context: WorkflowContext) -> None:
    """Rolls back."""


def undo_in_vain(context: WorkflowContext) -> None:
    """Cannot roll back."""
    raise Broken(f"{context.path} stays")


@workflow
def sequence(task: str) -> Steps[tuple[Plan, str]]:
    """One step after the other, one of which is tried three times."""
    made = yield from step("plan").call(plan, task)
    tried = yield from step("build").call(flaky).retry(3, backoff=60)
    yield from step("tell").call(nothing, made).when(lambda context: "plan" in context.results)
    return made, tried


def edits(file: str) -> Step[dict[str, int]]:
    """The step of one file."""
    return step("edit").call(edit, file)


@workflow
def groups() -> Steps[Any]:
    """Groups of steps, one of which goes on without its failed member."""
    both = yield from step("both").parallel(
        step("one").call(len, "x"), step("other").call(len, "xy")
    )
    each = yield from step("each").for_each(
        ["a.py", "b.py", "c.py"], edits, key=str, on_error="continue", max_concurrency=2
    )
    return both, [(one.name, one.status, one.output) for one in each]


@workflow
def handles() -> Steps[str]:
    """A failure that the body goes on from, and one that a fallback mends."""
    try:
        yield from step("try").call(broken)
    except StepFailed as failed:
        said = str(failed)
    finally:
        yield from step("clean up").call(nothing)
    mended = (
        yield from step("mend")
        .call(broken)
        .on_error(lambda context, failed: step("instead").call(len, "four"))
    )
    spare = yield from step("spare").call(broken).default("nothing")
    return f"{said}, {mended}, {spare}"


@workflow
def moves(fails: bool) -> Steps[str]:
    """Two steps that can be undone; the second one cannot, really."""
    yield from step("first").call(nothing).with_rollback(undo)
    yield from step("second").call(nothing).with_rollback(undo_in_vain)
    if fails:
        yield from step("third").call(broken)
    return "moved"


@workflow
def fails() -> Steps[None]:
    """A child that undoes its own steps, another whose steps are undone at the end of the run."""
    with contextlib.suppress(StepFailed):
        yield from step("child").subworkflow(moves, {"fails": True})
    yield from step("other").subworkflow(moves, {"fails": False})
    yield from step("last").call(nothing).with_rollback(undo)
    yield from step("end").call(broken)


@workflow
def waits() -> Steps[Any]:
    """A question, two signals, a pause and a checkpoint."""
    go = yield from step("go").wait_for("go", int)
    merge = yield from step("merge?").ask("Merge?", choices=("yes", "no"))
    yield from step("nap").sleep(3600)
    yield from step("save").call(nothing).checkpoint()
    both = yield from step("both").parallel(
        step("signal").wait_for("go", int), step("sure?").ask("Sure?", choices=("yes", "no"))
    )
    return go, merge, both


@workflow
def buys() -> Steps[str]:
    """A step that must not run twice, and is asked about if it may have."""
    try:
        yield from step("charge").call(nothing).once()
    except StepFailed:
        yield from step("ask the bank").call(nothing)
    return "done"


@workflow
def checks() -> Steps[Any]:
    """A validation that passes in its second round, a race and a branch."""
    checked = yield from step("check").validate(
        [Stage("lint", passes_later)], retry=2, on_failure=step("fix").call(nothing)
    )
    chosen = yield from step("choose").branch(
        (lambda context: False, step("left").call(len, "left")),
        (lambda context: True, step("right").call(len, "right")),
    )
    return checked.passed, len(checked.rounds), chosen.name, chosen.output


@workflow
def retries() -> Steps[Any]:
    """Groups that fail, and are tried again at once."""
    both = (
        yield from step("both")
        .parallel(step("one").call(len, "x"), step("other").call(later), max_concurrency=1)
        .retry(2, backoff=0)
    )
    each = (
        yield from step("each")
        .for_each(["a", "b"], lambda _: step("do").call(later), key=str, max_concurrency=1)
        .retry(2, backoff=0)
    )
    all_of = (
        yield from step("all")
        .parallel(
            step("one").call(later),
            step("other").call(later),
            on_error="all_or_nothing",
            max_concurrency=1,
        )
        .retry(2, backoff=0)
    )
    won = yield from step("won").race(step("one").call(later)).retry(2, backoff=0)
    return both, each, all_of, won


def later() -> str:
    """Does nothing from the second attempt of its group on, and is broken before."""
    if "~2/" not in current().path:
        raise Broken("not yet")
    return "done"


def passes_later(context: WorkflowContext) -> bool:
    """Passes from the second round on."""
    return "/2/" in current().path


async def explore(task: Task) -> Found[str]:
    """Finds more the deeper it may go; one task is broken, another at first, some come twice."""
    if task.id == "a/1" or (task.id == "b" and current().attempt == 1):
        raise Broken(f"{task.id} is no way")
    below = [Task(f"{task.id}/{n}", task.payload - 1, -n) for n in range(task.payload)]
    return Found(task.id, [*below, Task("a", 9)])


def explored(task: Task) -> Steps[Found[str]]:
    """A task whose body is a generator."""
    found = yield from step("explore").call(explore, task).retry(2, backoff=0).with_rollback(undo)
    return Found(found.value.upper(), found.children)


def one_step(task: Task) -> Step[Found[str]]:
    """A task whose body is a step."""
    return step("explore").call(explore, task)


@workflow
def grows() -> Steps[Any]:
    """Tasks that bring tasks, side by side and one by one, to the last one, or to a bound."""
    roots = [Task("a", 2), Task("b", 1, -1), Task("a", 1)]
    wide = yield from step("wide").work(roots, explored, max_concurrency=2)
    narrow = yield from step("narrow").work(
        roots, one_step, max_concurrency=1, stop=plateau(2), at_most=4
    )
    return wide, narrow


FLOWS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "sequence": (sequence, ("task",)),
    "groups": (groups, ()),
    "handles": (handles, ()),
    "fails": (fails, ()),
    "waits": (waits, ()),
    "checks": (checks, ()),
    "retries": (retries, ()),
    "grows": (grows, ()),
}
"""Those that a crash must not change, with their inputs; ``buys`` may be told of one."""
