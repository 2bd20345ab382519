"""``scope``: a helper's steps below a path of their own."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from handrail import (
    DefinitionError,
    Executor,
    SqliteJournal,
    StepFailed,
    Steps,
    WorkflowContext,
    WrongUse,
    scope,
    step,
    workflow,
)
from handrail.static.lint import check
from handrail.static.mermaid import to_mermaid
from handrail.static.source import source_of
from tests.engine.support import boom, give, run_seen


def improve(number: int) -> Steps[int]:
    """Two steps of the same names each time."""
    first: int = yield from step("write").call(give, number)
    return (yield from step("review").call(give, first + 10))


@workflow
def rounds() -> Steps[list[int]]:
    """A helper that is called twice."""
    first = yield from scope("round/0", improve(0))
    return [first, (yield from scope(f"round/{first + 1 - 10}", improve(1)))]


async def test_a_helper_is_called_again_below_another_path() -> None:
    """Its value is the scope's output; a slash in the name is no part of the path."""
    result, _ = await run_seen(rounds)
    assert result.value == [10, 11]
    paths = [one.path for one in result.step_results]
    assert paths[:3] == ["round%2F0", "round%2F0/write", "round%2F0/review"]
    assert result.step("round%2F1").step_type == "scope"


async def test_a_single_step_may_be_in_a_scope() -> None:
    """It is the only one below it."""

    @workflow
    def flow() -> Steps[Any]:
        return (yield from scope("one", step("a").call(give, 1)))

    result, _ = await run_seen(flow)
    assert (result.value, [one.path for one in result.step_results]) == (1, ["one", "one/a"])


async def test_what_a_helper_raises_fails_the_scope() -> None:
    """The class of the error is known, and what was done before stays."""
    undone: list[str] = []

    def undo(context: WorkflowContext) -> None:
        undone.append(context.path)

    def helper() -> Steps[None]:
        yield from step("a").call(give).with_rollback(undo)
        yield from step("b").call(boom)

    @workflow
    def flow() -> Steps[bool]:
        try:
            yield from scope("s", helper())
        except StepFailed as error:
            assert undone == []
            return error.is_a("tests.engine.support.Boom")
        return False

    result, _ = await run_seen(flow)
    assert result.value is True

    @workflow
    def unhandled() -> Steps[None]:
        yield from scope("s", helper())

    result, _ = await run_seen(unhandled)
    assert (result.status, undone) == ("failed", ["s/a"])


def test_a_scope_goes_on_where_it_was(tmp_path: Path) -> None:
    """What is recorded in it is not done again, and what it gave is given again."""
    done: list[str] = []

    def act(name: str) -> str:
        done.append(name)
        if len(done) == 2:
            raise OSError("not yet")
        return name

    def helper(name: str) -> Steps[str]:
        a: str = yield from step("a").call(act, f"{name}a")
        return a + (yield from step("b").call(act, f"{name}b"))

    @workflow
    def flow() -> Steps[str]:
        return (yield from scope("x", helper("x"))) + (yield from scope("y", helper("y")))

    journal = SqliteJournal(tmp_path / "runs.db")
    executor = Executor(journal=journal)
    first = executor.run_sync(flow)
    assert first.status == "failed"
    assert executor.resume_sync(first.run_id, flow).value == "xaxbyayb"
    assert done == ["xa", "xb", "xb", "ya", "yb"]
    assert executor.plan_sync(first.run_id, flow).steps
    journal.close()


async def test_a_scope_in_a_retried_group_is_refused() -> None:
    """A generator runs once; the text says what to write instead."""

    def helper() -> Steps[None]:
        yield from step("a").call(boom)

    @workflow
    def flow() -> Steps[None]:
        yield from step("g").parallel(scope("s", helper())).retry(2, backoff=0)

    result, _ = await run_seen(flow)
    assert "runs once, and this is another attempt" in (result.error or "")
    with pytest.raises(DefinitionError, match="cannot be retried"):
        scope("s", helper()).retry(2)


def begun() -> Generator[Any, Any, None]:
    """A generator that has begun."""
    made = improve(1)
    next(made)
    return made


@pytest.mark.parametrize("body", [3, improve, begun()])
def test_a_scope_takes_what_a_helper_gives(body: Any) -> None:
    """Anything else is refused at once, with what to write."""
    with pytest.raises(WrongUse, match=r"scope\('s', helper\(\.\.\.\)\)"):
        scope("s", body)
    with suppress(AttributeError):
        body.close()


def test_a_scope_is_read_from_the_source() -> None:
    """The lint sees no duplicate in it, and the drawing has its steps."""
    source = source_of(rounds.definition.function)
    assert [found.code for found in check(source)] == []
    drawn = to_mermaid(source)
    assert '["round/0"]' in drawn
    assert "write" in drawn
