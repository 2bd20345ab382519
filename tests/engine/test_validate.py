"""Stages, rounds and fixes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from handrail import (
    Agent,
    DefinitionError,
    Stage,
    Steps,
    ValidationResult,
    WorkflowContext,
    step,
    workflow,
)
from handrail.agents.fake import FakeBackend
from handrail.model import events as ev
from tests.engine.support import aboom, boom, caught, just, paths, run_seen, same, statuses


class Check:
    """A stage that fails its first ``failures`` times."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.calls = 0

    def __call__(self) -> bool:
        """One check."""
        self.calls += 1
        return self.calls > self.failures


@pytest.mark.parametrize(("retry", "fixes"), [(0, 0), (1, 1), (3, 3)])
async def test_retry_says_how_often_a_fix_may_run(retry: int, fixes: int) -> None:
    """retry=0 never runs on_failure, retry=N at most N times, and then the step fails."""
    check, fixed = Check(99), [0]

    def fix() -> None:
        fixed[0] += 1

    flow = just(
        step("v").validate([Stage("lint", check)], retry=retry, on_failure=step("fix").call(fix))
    )
    result, sink = await run_seen(flow)
    assert (result.status, result.failed_step) == ("failed", "v")
    assert (check.calls, fixed[0]) == (retry + 1, fixes)
    found = result.step("v").output
    assert isinstance(found, ValidationResult)
    assert not found.passed
    assert [one.number for one in found.rounds] == list(range(1, retry + 2))
    assert len(sink.of(ev.ValidationRound)) == retry + 1


async def test_a_fix_that_works_ends_the_rounds() -> None:
    """The output tells each round, its stages and its fix; paths nest by round."""
    check = Check(1)
    flow = just(
        step("v").validate(
            [Stage("lint", lambda: True), Stage("test", check)],
            on_failure=step("fix").call(same, "f"),
        )
    )
    result, _ = await run_seen(flow)
    found = result.value
    assert found is not None
    assert found.passed
    assert [stage.passed for stage in found.rounds[0].stages] == [True, False]
    assert found.rounds[0].fix.output == "f"
    assert found.rounds[1].fix is None
    assert [stage.name for stage in found.stages] == ["lint", "test"]
    assert all(stage.passed for stage in found.stages)
    assert paths(result) == ["v", "v/1/lint", "v/1/test", "v/1/fix", "v/2/lint", "v/2/test"]


async def test_without_a_fix_it_is_validated_again() -> None:
    """Retry counts re-validations also where there is no on_failure."""
    check = Check(2)
    result, _ = await run_seen(just(step("v").validate([Stage("lint", check)], retry=2)))
    assert result.value is not None
    assert result.value.passed
    assert check.calls == 3


async def test_a_failing_fix_fails_the_validation() -> None:
    """A fix step that fails, fails the step; the result so far is its output."""
    flow = caught(
        step("v").validate([Stage("a", Check(9))], on_failure=step("fix").call(boom, "no fix")),
        lambda failed: (failed.result.output, str(failed)),
    )
    result, _ = await run_seen(flow)
    assert result.value is not None
    assert isinstance(result.value[0], ValidationResult)
    assert "no fix" in result.value[1]
    assert statuses(result) == {"v": "failed", "v/1/a": "failed", "v/1/fix": "failed"}


async def test_the_fix_can_read_what_failed() -> None:
    """The context of the fix shows the validation so far: which stage, and what it printed."""
    from handrail import Agent, FakeBackend

    seen: list[Any] = []

    def context(ctx: WorkflowContext) -> dict[str, Any]:
        assert ctx.validation is not None
        seen.append([(stage.name, stage.output) for stage in ctx.validation.failed])
        return {"why": ctx.validation.failed[0].output}

    fixer = Agent("fixer", "Fix {{ why }}", backend=FakeBackend(["done"]))
    script = "import sys, pathlib; print('E501 too long'); sys.exit(1)"
    flow = just(
        step("v").validate(
            [Stage("lint", [sys.executable, "-c", script])],
            retry=1,
            on_failure=step("fix").agent(fixer, context),
        )
    )
    await run_seen(flow)
    assert seen == [[("lint", "E501 too long")]]


async def test_stages_are_commands_callables_and_names() -> None:
    """Names are found in the executor, commands run, callables may be async and see ctx."""
    seen: list[str] = []

    async def look(ctx: WorkflowContext) -> None:
        seen.append(ctx.inputs["task"])

    @workflow
    def flow(task: str) -> Steps[Any]:
        return (yield from step("v").validate(["named", look, Stage("shell", "echo out; exit 0")]))

    stages = {"named": [sys.executable, "-c", "print('hi')"]}
    result, _ = await run_seen(flow, "t", stages=stages)
    assert result.value is not None
    assert [(s.name, s.passed, s.output) for s in result.value.stages] == [
        ("named", True, "hi"), ("look", True, ""), ("shell", True, "out"),
    ]  # fmt: skip
    assert seen == ["t"]
    assert all(stage.duration_ms >= 0 for stage in result.value.stages)


async def test_stages_of_pyproject_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[tool.handrail.stages] of the nearest pyproject.toml counts, after the executor's names."""
    (tmp_path / "pyproject.toml").write_text(
        '[tool.handrail.stages]\nlint = "echo linted"\ntest = ["echo", "tested"]\n'
    )
    monkeypatch.chdir(tmp_path)
    result, _ = await run_seen(just(step("v").validate()), stages={"test": "echo other"})
    assert result.value is not None
    assert [(s.name, s.output) for s in result.value.stages] == [
        ("lint", "linted"),
        ("test", "other"),
    ]


async def test_no_stage_configured_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any stage the step fails; it never passes silently."""
    monkeypatch.chdir(tmp_path)

    @workflow
    def flow(stages: Any) -> Steps[Any]:
        yield from step("v").validate(stages)

    for stages in (None, []):
        result, _ = await run_seen(flow, stages)
        assert result.status == "failed"
        assert "tool.handrail.stages" in (result.error or "")


async def test_an_unknown_stage_is_named_with_those_that_are_known() -> None:
    """A name that nobody configured fails the step, listing what there is."""
    result, _ = await run_seen(just(step("v").validate(["lnt"])), stages={"lint": "true"})
    assert result.status == "failed"
    assert "lnt" in (result.error or "")
    assert "lint" in (result.error or "")


@pytest.mark.parametrize("check", [boom, aboom, lambda: False])
async def test_a_callable_stage_fails_by_raising_or_by_false(check: Any) -> None:
    """A check that raises or returns False did not pass; None does pass."""
    result, _ = await run_seen(just(step("v").validate([Stage("c", check)], retry=0)))
    assert result.status == "failed"
    assert result.step("v/1/c").status == "failed"


async def test_every_stage_of_a_round_runs() -> None:
    """A failing stage does not keep the next from being checked in the same round."""
    last = Check(0)
    await run_seen(just(step("v").validate([Stage("a", lambda: False), Stage("b", last)], retry=0)))
    assert last.calls == 1


@pytest.mark.parametrize("retry", [-1, 1.5, True])
def test_validate_needs_a_whole_retry(retry: Any) -> None:
    """Retry is a whole number of at least 0."""
    with pytest.raises(DefinitionError, match=r"retry"):
        step("v").validate(["a"], retry=retry)


async def test_a_stage_over_its_timeout_fails_its_round() -> None:
    """Stage(timeout=) bounds a stage; a command is killed."""
    flow = just(step("v").validate([Stage("slow", ["sleep", "30"], timeout=0.05)], retry=0))
    result, _ = await run_seen(flow)
    assert result.status == "failed"
    assert "timeout" in (result.step("v/1/slow").error or "")


JUDGE = Agent("judge", "Good?", output=bool, backend=FakeBackend(["true"]))


@pytest.mark.parametrize("stage", [Check(0), Stage("s", Check(0)), JUDGE])
async def test_one_stage_needs_no_list(stage: Any) -> None:
    """A function, a stage or an agent alone is the only one."""
    result, _ = await run_seen(just(step("v").validate(stage)))
    assert result.success, result.error
