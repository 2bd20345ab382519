"""What is recorded of an exception: its type is always told, and of a group the first member's."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from handrail import Executor, Stage, Steps, step, workflow

RAN: list[int] = []


def broken(error: BaseException) -> None:
    """Raise this."""
    RAN.append(1)
    raise error


async def tasks(*errors: Exception) -> None:
    """Several tasks of one action, which fail."""

    async def one(error: Exception) -> None:
        raise error

    async with asyncio.TaskGroup() as group:
        for error in errors:
            group.create_task(one(error))


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (KeyError("zip"), "step 's' failed: KeyError: 'zip'"),
        (ValueError("no"), "step 's' failed: ValueError: no"),
        (ExceptionGroup("g", [ValueError("no")]), "step 's' failed: ValueError: no"),
        (
            ExceptionGroup("g", [ExceptionGroup("h", [ValueError("no")]), OSError("full")]),
            "step 's' failed: ValueError: no (and 1 more: g (2 sub-exceptions))",
        ),
    ],
)
async def test_the_text_names_type_and_value(error: Exception, text: str) -> None:
    """In the result of the step, and of the run."""

    @workflow
    def flow() -> Steps[None]:
        yield from step("s").call(broken, error)

    result = await Executor().run(flow)
    assert result.error == text
    assert str(result.step("s").error) in text


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (KeyError("zip"), "KeyError: 'zip'"),
        (ValueError("no"), "ValueError: no"),
        (ExceptionGroup("g", [ValueError("no")]), "ValueError: no"),
        (
            ExceptionGroup("g", [ExceptionGroup("h", [ValueError("no")]), OSError("full")]),
            "ValueError: no (and 1 more: g (2 sub-exceptions))",
        ),
    ],
)
async def test_a_check_that_raises_says_what_a_step_would(error: Exception, text: str) -> None:
    """In the result of the stage: of a group the first member, and each type once."""

    @workflow
    def flow() -> Steps[None]:
        yield from step("v").validate([Stage("check", lambda: broken(error))], retry=0)

    said = (await Executor().run(flow)).error or ""
    assert said.endswith(f"check: {text}")


async def test_a_key_error_of_a_body_names_its_type_once() -> None:
    """It is no key alone."""

    @workflow
    def flow() -> Steps[None]:
        yield from step("s").call(int)
        raise KeyError("zip")

    said = (await Executor().run(flow)).error or ""
    assert said.endswith(": KeyError: 'zip'")
    assert said.count("KeyError") == 1


@pytest.mark.parametrize(
    ("errors", "attempts"),
    [
        ([ValueError("no")], 3),
        ([ValueError("no"), UnicodeError("no")], 3),
        ([ValueError("no"), OSError("full")], 1),
    ],
)
def test_a_group_is_tried_again_if_each_member_is(errors: list[Exception], attempts: int) -> None:
    """`on=` is asked of all members, and the first is what the step failed with."""

    @workflow
    def flow() -> Steps[None]:
        yield from step("s").call(tasks, *errors).retry(3, on=ValueError, backoff=0)

    failed = Executor().run_sync(flow).step("s")
    assert (failed.attempts, failed.is_a(ValueError), failed.is_a(ExceptionGroup)) == (
        attempts, True, True,
    )  # fmt: skip


@pytest.mark.parametrize("kind", [ExceptionGroup, Exception, (ValueError, OSError)])
def test_a_group_may_be_asked_for_itself(kind: Any) -> None:
    """By its own type, or by several that cover its members."""

    @workflow
    def flow() -> Steps[None]:
        errors = ValueError("no"), OSError("full")
        yield from step("s").call(tasks, *errors).retry(2, on=kind, backoff=0)

    assert Executor().run_sync(flow).step("s").attempts == 2
