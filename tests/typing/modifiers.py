"""Modifiers: those that put something in the place of the output widen its type."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, assert_type

from handrail import (
    Backoff,
    CommandResult,
    Skipped,
    Step,
    StepResult,
    Steps,
    WorkflowContext,
    step,
)

number = step("number").call(int, "1")


def is_ready(ctx: WorkflowContext) -> bool:
    return bool(ctx.results)


async def is_ready_later(ctx: WorkflowContext) -> bool:
    return bool(ctx.results)


def undo(ctx: WorkflowContext) -> None: ...


async def undo_later(ctx: WorkflowContext) -> None: ...


def fall_back(ctx: WorkflowContext, failed: StepResult[Any]) -> Step[str]:
    return step("fallback").call(str, failed.error)


# -- those that keep the type

assert_type(number.timeout(1), Step[int])
assert_type(number.timeout(timedelta(minutes=1)), Step[int])
assert_type(number.retry(3), Step[int])
assert_type(number.retry(3, backoff=0), Step[int])
assert_type(number.retry(3, backoff=timedelta(seconds=1), on=OSError), Step[int])
assert_type(number.retry(3, backoff=Backoff(max_s=5), on=(OSError, ValueError)), Step[int])
assert_type(number.retry(3, on=lambda error: "busy" in str(error)), Step[int])
assert_type(number.with_rollback(undo), Step[int])
assert_type(number.with_rollback(undo_later, timeout=5), Step[int])
assert_type(number.checkpoint(), Step[int])
assert_type(number.once(), Step[int])
assert_type(number.inline(), Step[int])
assert_type(number.uses("gpu"), Step[int])
assert_type(number.uses("gpu", 2), Step[int])

# -- those that widen it

assert_type(number.when(is_ready), Step[int | Skipped])
assert_type(number.when(is_ready_later), Step[int | Skipped])
assert_type(number.skip_on_error(), Step[int | Skipped])
assert_type(number.default(0), Step[int])
assert_type(number.default(None), Step[int | None])
assert_type(number.default("none"), Step[int | str])
assert_type(number.on_error(fall_back), Step[int | str])

# -- in any order

assert_type(number.retry(2).timeout(1).default(None), Step[int | None])
assert_type(number.default(None).timeout(1).retry(2), Step[int | None])
assert_type(number.when(is_ready).on_error(fall_back), Step[int | Skipped | str])
assert_type(step("c").command("ls").retry(2).uses("disk"), Step[CommandResult[None]])


def used() -> Steps[int]:
    maybe = yield from number.when(is_ready)
    assert_type(maybe, int | Skipped)
    if isinstance(maybe, Skipped):
        return 0
    assert_type(maybe, int)
    return maybe


# -- mistakes

number.when("ready")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
number.when(lambda: True)  # type: ignore[arg-type, misc]  # pyright: ignore[reportArgumentType]
number.timeout("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
number.retry("3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
number.retry(3, on="OSError")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
number.retry(3, backoff="1s")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
number.on_error(undo)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
number.on_error(number)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
number.default()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
number.with_rollback(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
number.uses(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
number.uses("gpu", "2")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
step("no verb").retry(3)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
