"""`@workflow`, `Steps` and `yield from`: inputs and value keep their types."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, assert_type

from handrail import Step, Steps, Workflow, WorkflowDefinition, WorkflowResult, step, workflow


@workflow
def plain(number: int, *, shout: bool = False) -> Steps[str]:
    word = yield from step("word").call(str, number)
    assert_type(word, str)
    loose = yield step("loose").call(str, number)
    assert_type(loose, Any)
    return word.upper() if shout else word


@workflow("named", description="It has a name.")
def named() -> Steps[None]:
    yield from step("nothing").sleep(0)


@workflow(name="also named")
def keyword_named(number: int = 1) -> Steps[int]:
    return (yield from helper(number))


@workflow
def spelled_out() -> Generator[Step[Any], Any, int]:
    return (yield from step("one").call(int, "1"))


def helper(number: int) -> Steps[int]:
    """What several workflows have in common is a generator function."""
    found = yield from step("found").call(abs, number)
    assert_type(found, int)
    return found


assert_type(plain.definition, WorkflowDefinition)
assert_type(plain(1, shout=True), WorkflowResult[str])
assert_type(plain(1).unwrap(), str)
assert_type(plain(1).value, str)
assert_type(named(), WorkflowResult[None])
assert_type(keyword_named(), WorkflowResult[int])
assert_type(spelled_out(), WorkflowResult[int])
assert_type(plain.describe(), dict[str, Any])
assert_type(plain.to_mermaid(), str)
kept: Workflow[..., str] = plain


async def run() -> None:
    assert_type(await plain.run(1), WorkflowResult[str])
    await plain.run("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


plain()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
plain("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
plain(1, loud=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
wrong: Workflow[..., int] = plain  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]


@workflow  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
def no_generator() -> int:
    return 1


@workflow  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
async def asynchronous() -> int:
    return 1


@workflow
def not_steps() -> Steps[None]:
    yield None  # type: ignore[misc]  # pyright: ignore[reportReturnType]
    yield from step("no verb")  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]


@workflow
def wrong_value() -> Steps[int]:
    return (yield from step("word").call(str, 1))  # type: ignore[return-value]  # pyright: ignore[reportReturnType]
