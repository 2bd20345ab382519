"""A run whose steps could be performed on another machine: the same run, or refused by name."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from handrail import (
    Agent,
    Executor,
    FakeBackend,
    NotPortable,
    Stage,
    StageResult,
    StepFailed,
    Steps,
    WorkflowContext,
    current,
    step,
    workflow,
)
from handrail.testing.shapes import Body, workflow_of
from handrail.testing.strategies import bodies
from tests.engine.support import Jumping
from tests.testing.by_hand import essence

FUZZ = settings(deadline=None, suppress_health_check=list(HealthCheck))


@dataclass(frozen=True)
class Part:
    """Something that is passed on."""

    name: str
    size: int = 1


UNDONE: list[str] = []


def build(part: Part, *, twice: bool = False) -> Part:
    """An action."""
    return Part(part.name, part.size * (2 if twice else 1))


async def key_of(part: Part) -> str:
    """An async action, which looks at its surroundings."""
    return f"{part.name}-{current().idempotency_key[:4]}-{current().attempt}"


def undo(ctx: WorkflowContext) -> None:
    """A rollback, which is shown what was done."""
    UNDONE.append(ctx.output("build").name)


def broken(part: Part) -> Part:
    """An action that fails."""
    raise ValueError(part.name)


def is_big(ctx: WorkflowContext) -> StageResult:
    """A check that looks at the run."""
    return StageResult("big", passed=ctx.output("build").size > 1)


writer = Agent("writer", "Write about {{ name }}: {{ ctx.output('build').size }}")


@workflow
def whole(name: str = "p") -> Steps[Any]:
    """Every verb that is performed."""
    part = yield from step("build").call(build, Part(name), twice=True).with_rollback(undo)
    key = yield from step("key").call(key_of, part).retry(2, on=(ValueError, OSError))
    said = yield from step("say").command(["echo", "[1]"], parse=list[int], check=False)
    text = yield from step("write").agent(writer, lambda ctx: {"name": ctx.inputs["name"]})
    checks = yield from step("check").validate([Stage("big", is_big), Stage("true", "true")])
    return part, key[:2], said.exit_code, text.output, checks.passed


@pytest.mark.extra("jinja2")
async def test_a_portable_run_is_the_same_run() -> None:
    """Its steps are written and read before they are performed, and that shows in nothing."""
    runs = []
    for portable in (False, True):
        backend = FakeBackend([lambda turn: turn.prompt])
        executor = Executor(portable=portable, backend=backend)
        runs.append((await executor.run(whole)).unwrap())
    assert runs[0] == runs[1]
    assert "about p: 2" in runs[1][3]


counter = Agent("counter", "How many?", output=int)


@workflow
def counts() -> Steps[int]:
    """A number that an agent says."""
    return (yield from step("count").agent(counter)).output


@pytest.mark.extra("jinja2")
async def test_what_a_launch_knows_of_the_one_before_crosses_too() -> None:
    """An answer that does not do is asked for again, in the same words."""
    asked = []
    for portable in (False, True):
        backend = FakeBackend(["many", "3"])
        assert (await Executor(portable=portable, backend=backend).run(counts)).unwrap() == 3
        asked.append([(turn.turn, turn.launch, turn.prompt) for turn in backend.turns])
    assert asked[0] == asked[1]


@FUZZ
@given(bodies(timeless=True, holds=False))
async def test_any_workflow_of_data_runs_alike(body: Body) -> None:
    """Whatever it is made of: nothing of a step is lost on the way."""
    made = workflow_of(body)
    plain = await Executor(clock=Jumping(), gates="approve").run(made)
    portable = await Executor(clock=Jumping(), gates="approve", portable=True).run(made)
    assert essence(portable) == essence(plain)


async def test_a_rollback_crosses_too() -> None:
    """It is shown the results before it, as data."""
    UNDONE.clear()

    @workflow
    def fails() -> Steps[None]:
        """Do, then fail."""
        yield from step("build").call(build, Part("undo me")).with_rollback(undo)
        yield from step("break").call(broken, Part("x"))

    result = await Executor(portable=True).run(fails)
    assert (result.status, UNDONE) == ("failed", ["undo me"])


LOCK = threading.Lock()


def use(lock: object) -> bool:
    """An action that is given something."""
    return lock is LOCK


@workflow
def uses_a_lock(named: bool) -> Steps[bool]:
    """Pass a lock that a module holds, or one that nobody does."""
    lock = LOCK if named else threading.Lock()
    return (yield from step("use").call(use, lock).retry(5))


async def test_what_a_module_holds_is_passed_by_its_name() -> None:
    """The action has that very object."""
    assert (await Executor(portable=True).run(uses_a_lock, named=True)).value is True


async def test_a_part_that_is_no_data_fails_its_step_and_is_not_tried_again() -> None:
    """The error names the part, and what to do."""
    result = await Executor(portable=True).run(uses_a_lock, named=False)
    (one,) = result.step_results
    assert (one.error_type, one.attempts) == ("handrail.errors.NotPortable", 1)
    assert "step 'use' cannot leave this process, because of its args[0]" in str(one.error)


@workflow
def with_lambda() -> Steps[int]:
    """Under a condition, even."""
    if (yield from step("ask").ask("Go on?", choices=["yes", "no"])) == "yes":
        return (yield from step("one").call(lambda: 1))
    return 0


@workflow
def with_inner() -> Steps[int]:
    """A function of the body's own."""

    def inner() -> int:
        return 1

    return (yield from step("one").call(inner))


@workflow
def with_lambda_rollback() -> Steps[int]:
    """A rollback that nobody else finds."""
    return (yield from step("one").call(abs, 1).with_rollback(lambda _: None))


@workflow
def with_lambda_retry() -> Steps[int]:
    """A predicate of errors that nobody else finds."""
    return (yield from step("one").call(abs, 1).retry(2, on=lambda _: True))


@workflow
def with_lambda_argument() -> Steps[bool]:
    """An argument that nobody else finds."""
    return (yield from step("one").call(use, lambda: 1))


def helper() -> Steps[int]:
    """A helper's steps are the workflow's."""
    return (yield from step("one").call(lambda: 1))


@workflow
def with_helper() -> Steps[int]:
    """What a helper yields."""
    return (yield from helper())


@workflow
def with_child() -> Steps[Any]:
    """What a sub-workflow yields."""
    return (yield from step("child").run_workflow(with_inner))


@pytest.mark.parametrize(
    ("one", "portable"),
    [
        (step("one").call(build, Part("p")), True),
        (step("one").call(lambda: 1), False),
        (step("one").command(["true"]), True),
        (step("one").agent(writer, {"name": "p"}), True),
        (step("one").agent(writer, lambda _ctx: {"name": "p"}), False),
        (step("one").parallel(), False),
    ],
)
def test_a_step_says_whether_another_process_could_perform_it(one: Any, portable: bool) -> None:
    """Every callable of it has a name, and it is a step that is performed."""
    assert one.portable is portable


@pytest.mark.parametrize(
    ("refused", "part"),
    [
        (with_lambda, "action"),
        (with_inner, "action"),
        (with_lambda_rollback, "rollback"),
        (with_lambda_retry, r"retry\(on=\)"),
        (with_lambda_argument, r"args\[0\]"),
        (with_helper, "action"),
        (with_child, "action"),
    ],
)
async def test_what_the_source_shows_is_refused_before_the_run_starts(
    refused: Any, part: str
) -> None:
    """With the place in the user's file; nothing is recorded."""
    executor = Executor(portable=True)
    with pytest.raises(NotPortable, match=rf"test_portable\.py:\d+: step 'one'.* its {part} ") as e:
        await executor.run(refused)
    assert e.value.where
    assert not executor.journal.runs()


def test_what_is_portable_elsewhere_is_not_asked_of_a_plain_executor() -> None:
    """Lambdas are as good as anything where nothing has to leave the process."""
    assert Executor(gates="approve").run_sync(with_lambda).value == 1
    assert Executor().run_sync(with_inner).value == 1


@workflow
def with_choices(lambdas: Mapping[str, bool]) -> Steps[Any]:
    """What is called where the workflow's code runs may be a lambda."""
    yield from step("skip").call(abs, 1).when(lambda _: lambdas["when"])
    failed = step("broken").call(broken, Part("x"))
    return (
        yield from failed.on_error(lambda _ctx, _failed: step("instead").call(build, Part("y")))
    )


def test_predicates_builders_and_handlers_need_no_names() -> None:
    """They run where the workflow's code does."""
    result = Executor(portable=True).run_sync(with_choices, {"when": True})
    assert result.unwrap() == Part("y")


@workflow
def catches() -> Steps[str]:
    """A part that is no data, in a step that the body handles."""
    try:
        yield from step("use").call(use, threading.Lock())
    except StepFailed as failed:
        return str(failed.result.error_type)
    return "passed"


def test_the_body_may_handle_what_is_not_portable() -> None:
    """It is a failure of the step like any other."""
    assert Executor(portable=True).run_sync(catches).value == "handrail.errors.NotPortable"
