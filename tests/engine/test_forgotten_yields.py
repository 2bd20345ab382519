"""Steps that are taken for their output, or dropped: seen while the workflow runs."""

from __future__ import annotations

import gc
import inspect
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from handrail import (
    Executor,
    MemoryJournal,
    Stage,
    StepNotYielded,
    Steps,
    WrongUse,
    step,
    workflow,
)
from handrail.testing import replay
from tests.agents.repositories import needs_git, repository

QUESTION: Any = step("deploy?").ask("Deploy?")


@pytest.mark.parametrize(
    "use",
    [
        bool,
        lambda one: not one,
        lambda one: one == "no",
        lambda one: one != "no",
        lambda one: one in {"yes": 1}.values(),
        lambda one: [one == None],  # noqa: E711  # as people write it
    ],
)
def test_a_step_is_not_its_output(use: Callable[[Any], Any]) -> None:
    """What would be true of every step is refused where it is asked."""
    with pytest.raises(WrongUse, match=r"<step 'deploy\?' ask> is a step, not its output.*yield"):
        use(QUESTION)


def test_steps_may_be_kept_and_compared_with_one_another() -> None:
    """Each is equal to itself only, and can be looked up."""
    other = step("deploy?").ask("Deploy?")
    assert {QUESTION: 1}[QUESTION] == 1
    assert [QUESTION, other].index(other) == 1
    assert QUESTION is not other


async def test_the_error_names_the_line_of_the_workflow() -> None:
    """The run fails there, and nothing is deployed."""

    @workflow
    def flow() -> Steps[Any]:
        yield from step("build").call(int)
        if step("deploy?").ask("Deploy?") == "no":  # type: ignore[comparison-overlap]
            return "stopped"
        yield from step("deploy").call(int)
        return "deployed"

    result = await Executor().run(flow)
    assert (result.status, [one.path for one in result.step_results]) == ("failed", ["build"])
    assert f"{__file__}:{line_of(flow, 'if step')}" in (result.error or "")


def line_of(flow: Any, text: str) -> int:
    """The number of the line of a workflow that has this text."""
    lines, first = inspect.getsourcelines(flow.definition.function)
    return first + next(n for n, line in enumerate(lines) if text in line)


def told_of(flow: Any, *args: Any) -> list[tuple[str, str, int]]:
    """What is warned of while the workflow runs: the step, the file and the line."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert Executor().run_sync(flow, *args).success
    return [
        (str(one.message).split("'")[1], one.filename, one.lineno)
        for one in caught
        if issubclass(one.category, StepNotYielded)
    ]


def test_a_step_that_is_dropped_is_warned_of_at_its_line() -> None:
    """One on a line of its own, and one with modifiers."""

    @workflow
    def flow() -> Steps[None]:
        step("plain").call(int)
        step("retried").call(int).retry(2).timeout(3)
        yield from step("real").call(int)

    assert told_of(flow) == [
        ("plain", __file__, line_of(flow, "plain")),
        ("retried", __file__, line_of(flow, "retried")),
    ]


def test_one_that_is_kept_and_forgotten_is_warned_of_when_the_body_ends() -> None:
    """It is not known before that nobody will yield it."""

    @workflow
    def flow() -> Steps[None]:
        kept = step("kept").call(int)
        yield from step("real").call(int)
        del kept

    assert told_of(flow) == [("kept", __file__, line_of(flow, "del kept"))]


def in_an_unread_variable() -> Steps[None]:
    """Nothing reads the variable."""
    kept = step("kept").call(int)  # noqa: F841
    yield from step("real").call(int)


def in_a_variable_that_is_set_again() -> Steps[None]:
    """Something else takes its place."""
    kept = step("kept").call(int)
    kept = None  # noqa: F841
    yield from step("real").call(int)


@pytest.mark.parametrize("body", [in_an_unread_variable, in_a_variable_that_is_set_again])
def test_one_in_a_variable_that_nothing_reads_is_warned_of(body: Any) -> None:
    """Whether it is dropped with the body or before."""
    assert [name for name, _, _ in told_of(workflow(body))] == ["kept"]


def of_a_dict(fast: bool) -> Steps[None]:
    """The other is dropped at the look-up."""
    yield from {True: step("fast").call(int), False: step("slow").call(int)}[fast]


def of_a_kept_dict(fast: bool) -> Steps[None]:
    """The other is dropped with the body."""
    arms = {True: step("fast").call(int), False: step("slow").call(int)}
    yield from arms[fast]


def of_a_get(fast: bool) -> Steps[None]:
    """The other is a default."""
    yield from {True: step("fast").call(int)}.get(fast, step("slow").call(int))


def of_a_list(fast: bool) -> Steps[None]:
    """The other is dropped at the look-up."""
    yield from [step("fast").call(int), step("slow").call(int)][not fast]


def by_an_if(fast: bool) -> Steps[None]:
    """It may be yielded or not."""
    quick = step("fast").call(int)
    if fast:
        yield from quick
    yield from step("real").call(int)


def by_a_loop(fast: bool) -> Steps[None]:
    """It is one of several."""
    for one in [step("fast").call(int), step("slow").call(int)]:
        if one.name == "fast" or not fast:
            yield from one


def by_a_function(fast: bool) -> Steps[None]:
    """A function chooses."""
    yield from max(step("fast").call(int), step("slow").call(int), key=lambda one: fast)


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize(
    "body", [of_a_dict, of_a_kept_dict, of_a_get, of_a_list, by_an_if, by_a_loop, by_a_function]
)
def test_a_step_that_the_body_did_not_choose_is_not_forgotten(body: Any, *, fast: bool) -> None:
    """A body may make steps and yield one of them."""
    assert told_of(workflow(body), fast) == []


@needs_git
def test_no_step_that_was_not_made_by_the_body_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stages, fallbacks and the steps round a worktree, dropped while another body runs."""

    @workflow
    def flow() -> Steps[None]:
        yield from step("g").for_each([1, 2], lambda _: step("c").run_workflow(inner))
        gc.collect()
        yield from step("x").call(int, "x").on_error(lambda _, __: step("y").call(int, "y"))

    @workflow
    def inner() -> Steps[None]:
        yield from step("v").validate([Stage("tests", lambda _: True)])
        yield from step("w").worktree(inside, merge="keep")

    def inside() -> Steps[None]:
        yield from step("inside").call(int)

    @workflow
    def other() -> Steps[None]:
        gc.collect()
        yield from step("one").call(int)

    was_on = gc.isenabled()
    gc.collect()  # what other tests left is none of this one's
    gc.disable()
    try:
        monkeypatch.chdir(repository(tmp_path / "repo"))
        journal = MemoryJournal()
        with warnings.catch_warnings():
            warnings.simplefilter("error", StepNotYielded)
            result = Executor(journal=journal).options(run_id="r").run_sync(flow)
            assert (result.status, result.failed_step) == ("failed", "x")
            assert replay(journal, flow).matches
            del result, journal
        assert told_of(other) == []
    finally:
        if was_on:
            gc.enable()


def test_what_is_part_of_another_step_or_made_elsewhere_is_not_forgotten() -> None:
    """Members, arms, fixes, fallbacks, steps of items; and what no body made."""

    @workflow
    def flow() -> Steps[None]:
        fix = step("fix").call(int)
        yield from step("v").validate([lambda _: True], on_failure=fix)
        yield from step("g").parallel(step("a").call(int), step("b").call(int).default(1))
        yield from step("r").race(step("a").call(int), step("b").call(int))
        yield from step("f").for_each([1, 2], lambda _: step("x").call(int).retry(2))
        yield from step("c").branch(
            (lambda _: False, step("n").call(int)), (bool, step("y").call(int))
        )
        yield from step("e").call(int, "x").on_error(lambda _, __: step("z").call(int))
        one = step("one").call(int)
        two = one.retry(2)
        yield from two

    assert told_of(flow) == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step("outside").call(int)
