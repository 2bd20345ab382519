"""`validate`, `subworkflow`, `run_workflow` and `branch`."""

from __future__ import annotations

from typing import Any, assert_type

from handrail import (
    BranchResult,
    Stage,
    Step,
    Steps,
    ValidationResult,
    WorkflowContext,
    WorkflowResult,
    step,
    workflow,
)


@workflow
def child(number: int, *, shout: bool = False) -> Steps[str]:
    return (yield from step("word").call(str, number))


@workflow("named")
def silent() -> Steps[None]:
    yield from step("nothing").sleep(0)


def tests() -> bool:
    return True


def is_python(ctx: WorkflowContext) -> bool:
    return bool(ctx.inputs)


async def is_large(ctx: WorkflowContext) -> bool:
    return bool(ctx.inputs)


one = step("one")
fix = step("fix").call(str, 1)

# -- validate

assert_type(one.validate(), Step[ValidationResult])
assert_type(one.validate(["lint", Stage("types", "mypy"), tests]), Step[ValidationResult])
assert_type(one.validate(["lint"], retry=0, on_failure=fix), Step[ValidationResult])

one.validate([1])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
one.validate(["lint"], on_failure=tests)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
one.validate(["lint"], on_failure=step("x"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
one.validate(["lint"], retry="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

# -- subworkflow and run_workflow

assert_type(one.subworkflow(child, {"number": 1}), Step[WorkflowResult[str]])
assert_type(one.subworkflow(silent), Step[WorkflowResult[None]])
assert_type(one.run_workflow(child, 1, shout=True), Step[WorkflowResult[str]])
assert_type(one.run_workflow(silent), Step[WorkflowResult[None]])

one.subworkflow(tests)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
one.subworkflow(child, [1])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
one.run_workflow(child)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
one.run_workflow(child, "1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
one.run_workflow(child, 1, loud=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def used() -> Steps[str]:
    done = yield from one.run_workflow(child, 1)
    assert_type(done.value, str)
    return done.unwrap()


# -- branch

word = step("word").call(str, 1)
number = step("number").call(int, "1")
raw = step("raw").call(bytes, 1)

assert_type(one.branch((is_python, word)), Step[BranchResult[str]])
assert_type(one.branch((is_python, word), (is_large, number)), Step[BranchResult[str | int]])
assert_type(
    one.branch((is_python, word), (is_large, number), (lambda ctx: True, raw)),
    Step[BranchResult[str | int | bytes]],
)
arm = (is_python, word)
assert_type(one.branch(arm, arm, arm, arm), Step[BranchResult[Any]])
assert_type(one.branch(*[arm, arm]), Step[BranchResult[Any]])

one.branch(word)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
one.branch((True, word))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
one.branch((is_python, tests))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
