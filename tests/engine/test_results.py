"""What steps and runs end in."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime
from typing import Any

import pytest

from handrail import (
    Executor,
    Skipped,
    StepFailed,
    StepResult,
    Steps,
    WorkflowError,
    WorkflowFailed,
    WorkflowResult,
    step,
    workflow,
)
from tests.engine.support import Boom, boom, caught, give, just, paths, same, statuses


async def test_the_value_is_exactly_what_the_workflow_returned() -> None:
    """`value` and `unwrap()` are the very object that the workflow returned."""
    thing = object()

    @workflow
    def flow() -> Steps[object]:
        yield from step("a").call(same, 1)
        return thing

    result = await Executor().run(flow)
    assert result.value is thing
    assert result.unwrap() is thing
    assert result.final_output is thing


async def test_a_result_says_which_run_of_which_workflow_it_is_of() -> None:
    """The result carries name, id, status, success and a duration that is not negative."""

    @workflow("named")
    def flow() -> Steps[None]:
        yield from step("a").call(same, 1)

    result = await Executor().options(run_id="r-1").run(flow)
    assert (result.workflow_name, result.run_id) == ("named", "r-1")
    assert (result.status, result.success) == ("succeeded", True)
    assert result.total_duration_ms >= 0
    assert (result.error, result.failed_step, result.waiting) == (None, None, ())
    assert (result.rollback_errors, result.degraded, result.usage) == ((), False, None)


async def test_final_output_is_the_last_top_level_output_where_nothing_is_returned() -> None:
    """Without a returned value, `final_output` is that of the last step that was not skipped."""

    @workflow
    def flow() -> Steps[None]:
        yield from step("a").call(same, 1)
        yield from step("g").parallel(step("x").call(same, 8), step("y").call(same, 9))
        yield from step("never").call(same, 3).when(lambda _: False)

    result = await Executor().run(flow)
    assert result.value is None
    assert result.final_output == (8, 9)


async def test_final_output_prefers_a_falsy_return_to_a_step() -> None:
    """A workflow that returns 0 has the final output 0."""

    @workflow
    def flow() -> Steps[int]:
        yield from step("a").call(same, 5)
        return 0

    result = await Executor().run(flow)
    assert (result.value, result.final_output) == (0, 0)


async def test_a_workflow_without_steps_succeeds() -> None:
    """A generator that returns at once is a run without steps."""

    @workflow
    def flow() -> Steps[str]:
        if False:
            yield from step("a").call(same)
        return "done"

    result = await Executor().run(flow)
    assert (result.status, result.value, result.step_results) == ("succeeded", "done", ())


async def test_the_value_of_a_failed_run_is_none() -> None:
    """`value` is None unless the run succeeded, and `unwrap` raises with the result."""

    @workflow
    def flow() -> Steps[int]:
        yield from step("a").call(boom)
        return 1

    result = await Executor().run(flow)
    assert (result.status, result.success, result.value) == ("failed", False, None)
    assert result.failed_step == "a"
    with pytest.raises(WorkflowFailed, match=r"flow.*failed.*no") as caught:
        result.unwrap()
    assert caught.value.result is result


async def test_a_handled_failure_does_not_spoil_the_run() -> None:
    """A run whose workflow caught the failure is a success, with the failed step in its results."""
    flow = caught(step("a").call(boom), lambda failed: failed.result.path)
    result = await Executor().run(flow)
    assert (result.status, result.success, result.value) == ("succeeded", True, "a")
    assert result.failed_step is None
    assert statuses(result) == {"a": "failed"}


async def test_a_step_result_has_every_field() -> None:
    """A succeeded step's record says name, path, type, status, output, duration and attempts."""
    result = await Executor().run(just(step("g").parallel(step("a").call(same, 7))))
    one = result.step("g/a")
    assert (one.name, one.path, one.step_type, one.status) == ("a", "g/a", "python", "succeeded")
    assert (one.success, one.output, one.error, one.error_type) == (True, 7, None, None)
    assert (one.error_bases, one.traceback, one.attempts) == ((), None, 1)
    assert (one.replayed, one.abandoned, one.masked, one.usage) == (False, False, False, None)
    assert one.duration_ms >= 0
    assert one.unwrap() == 7


async def test_a_failed_step_result_tells_the_error_as_text() -> None:
    """A failed step's record has the error's text, its full type, its bases and its traceback."""
    one = (await Executor().run(just(step("a").call(boom, "the reason")))).step("a")
    assert one.error == "the reason"
    assert one.error_type == f"{Boom.__module__}.Boom"
    assert "builtins.RuntimeError" in one.error_bases
    assert one.traceback is not None
    assert "in boom" in one.traceback
    assert (one.success, one.output) == (False, None)
    with pytest.raises(StepFailed, match=r"'a' failed.*Boom.*the reason"):
        one.unwrap()


class Mute(Exception):
    """An exception whose text cannot be had."""

    def __str__(self) -> str:
        raise ValueError("no text")


def raises(error: type[Exception]) -> None:
    """Fail, without a text."""
    raise error


@pytest.mark.parametrize("error", [ValueError, Mute])
async def test_an_error_without_text_still_gives_the_step_an_error(error: type[Exception]) -> None:
    """A failed step has an error even where the exception's text is empty, or cannot be had."""
    result = await Executor().run(just(step("a").call(raises, error)))
    assert result.status == "failed"
    assert result.error
    assert result.step("a").error
    assert error.__name__ in (result.step("a").error_type or "")


async def test_a_step_failed_knows_its_errors_classes_and_has_no_cause() -> None:
    """`is_a` knows the error's class and its bases, as class and as name, and nothing else; the
    StepFailed is built from the record alone: no cause, no context but the text.
    """
    failures: list[StepFailed] = []
    await Executor().run(caught(step("a").call(raises, FileNotFoundError), failures.append))
    (failed,) = failures
    assert failed.is_a(FileNotFoundError)
    assert failed.is_a(OSError)
    assert failed.is_a("builtins.OSError")
    assert not failed.is_a(ValueError)
    assert failed.result.is_a(OSError)
    assert failed.__cause__ is None
    assert failed.__context__ is None
    assert "raises" in (failed.result.traceback or "")


async def test_results_are_frozen_and_slotted() -> None:
    """Neither a run's nor a step's result can be changed, or given other attributes."""
    result = await Executor().run(just(step("a").call(same)))
    for record in (result, result.step_results[0]):
        assert not hasattr(record, "__dict__")
        with pytest.raises((FrozenInstanceError, AttributeError)):
            record.status = "failed"  # type: ignore[misc]


def test_a_step_result_refuses_what_cannot_be() -> None:
    """A negative duration and a failure without an error are ValueErrors."""
    with pytest.raises(ValueError, match=r"duration"):
        StepResult("a", "a", "python", "succeeded", duration_ms=-1)
    with pytest.raises(ValueError, match=r"error"):
        StepResult("a", "a", "python", "failed")


@pytest.mark.parametrize(
    ("status", "success"),
    [
        ("succeeded", True),
        ("skipped", True),
        ("defaulted", True),
        ("failed", False),
        ("cancelled", False),
    ],
)
def test_success_of_a_step_follows_its_status(status: Any, success: bool) -> None:
    """succeeded, skipped and defaulted are successes; failed and cancelled are not."""
    assert StepResult("a", "a", "python", status, error="e").success is success


def test_skipped_is_falsy_frozen_and_has_a_reason() -> None:
    """A Skipped is false, tells why, and cannot be changed."""
    skipped = Skipped("because")
    assert not skipped
    assert skipped.reason == "because"
    with pytest.raises(FrozenInstanceError):
        skipped.reason = "other"  # type: ignore[misc]


async def test_to_dict_is_json_safe_whatever_the_outputs_are() -> None:
    """`to_dict()` of a run with odd outputs can be written as JSON, and has every field."""

    @workflow
    def flow() -> Steps[Any]:
        yield from step("a").call(same, object())
        yield from step("b").call(same, {1: {2, 3}, "t": (datetime(2024, 1, 1, tzinfo=UTC), b"x")})
        yield from step("c").call(same, float("nan"))
        yield from step("d").call(boom).default(None)
        return {"x": Skipped("y")}

    result = await Executor().run(flow)
    data = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert {field.name for field in dataclasses.fields(WorkflowResult)} <= set(data)
    assert {field.name for field in dataclasses.fields(StepResult)} <= set(data["step_results"][0])
    assert data["success"] is True
    assert data["step_results"][3]["status"] == "defaulted"
    each = [json.loads(json.dumps(one.to_dict(), allow_nan=False)) for one in result.step_results]
    assert each == data["step_results"]


def test_a_step_s_to_dict_masks_what_is_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of a run does; a child's result within it is data, too."""
    monkeypatch.setenv("SOME_TOKEN", "abcdefgh-12345678")
    made = StepResult("a", "a", "python", "succeeded", {"said": "abcdefgh-12345678"})
    assert "abcdefgh-12345678" not in json.dumps(made.to_dict())
    assert made.to_dict()["success"] is True


async def test_a_result_at_a_prompt_is_one_short_line() -> None:
    """`repr` has status, time, number of steps, run and the beginning of the value or error."""

    @workflow
    def flow(value: list[Any]) -> Steps[list[Any]]:
        for number in range(100):
            yield from step(f"s{number}").call(same, "x" * 1000)
        return value

    small, large = await Executor().run(flow, [1]), await Executor().run(flow, ["x"] * 10_000)
    wrong = await Executor().run(just(step("s").call(boom, "no")))
    took = r"in [0-9.e-]+ s"
    assert re.fullmatch(
        rf"<WorkflowResult flow succeeded {took} \(100 steps, run {small.run_id}\): \[1\]>",
        repr(small),
    )
    assert re.match(
        rf"<WorkflowResult \w+ failed {took} \(1 step, run \S+\): step 's' failed: Boom: no>",
        repr(wrong),
    )
    assert len(repr([large])) < 700


@pytest.mark.parametrize(
    ("error", "place"), [(KeyError("lost"), "test_results.py:"), (WorkflowError("lost"), "lost")]
)
async def test_an_exception_of_the_body_ends_the_run_as_failed(
    error: Exception, place: str
) -> None:
    """Its text is the run's error; of one that is no WorkflowError it names file and line too."""

    @workflow
    def flow() -> Steps[None]:
        yield from step("a").call(same)
        raise error

    result = await Executor().run(flow)
    assert (result.status, result.failed_step) == ("failed", None)
    assert "lost" in (result.error or "")
    assert place in (result.error or "")
    assert paths(result) == ["a"]


async def test_a_bare_yield_works_as_yield_from_does() -> None:
    """`x = yield step(...)` receives the output."""

    @workflow
    def flow() -> Steps[int]:
        got = yield step("a").call(give, 4)
        return int(got) + 1

    assert (await Executor().run(flow)).value == 5
