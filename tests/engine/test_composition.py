"""Steps with one child at a time: branch and sub-workflow."""

from __future__ import annotations

import json
from enum import Enum
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from handrail import (
    BranchResult,
    Executor,
    JsonlSink,
    MemoryJournal,
    MemorySink,
    StepFailed,
    Steps,
    WorkflowContext,
    step,
    workflow,
)
from handrail.model import events as ev
from handrail.sinks.artifacts import ArtifactsSink
from handrail.testing import TextJournal
from tests.engine.support import Boom, boom, give, just, names, paths, run_seen, same, statuses


class Colour(Enum):
    """A type that a text is converted to."""

    RED = "red"


def yes(_: WorkflowContext) -> bool:
    """True."""
    return True


def no(_: WorkflowContext) -> bool:
    """False."""
    return False


# -- branch ----------------------------------------------------------------------------------------


async def test_the_first_true_arm_runs_and_no_other() -> None:
    """A branch gives index, name and output of the first arm whose predicate is true."""
    asked: list[str] = []

    def ask(name: str, verdict: bool) -> Any:
        def predicate(_: WorkflowContext) -> bool:
            asked.append(name)
            return verdict

        return predicate

    flow = just(
        step("b").branch(
            (ask("x", False), step("x").call(boom)),
            (ask("y", True), step("y").call(give, 7)),
            (ask("z", True), step("z").call(boom)),
        )
    )
    result, _ = await run_seen(flow)
    assert result.value == BranchResult(1, "y", 7)
    assert asked == ["x", "y"]
    assert statuses(result) == {"b": "succeeded", "b/y": "succeeded"}


@pytest.mark.parametrize("predicate", [no, boom, lambda _: 1, lambda _: None])
async def test_a_branch_without_a_true_predicate_fails(predicate: Any) -> None:
    """No true predicate, one that raises or gives no bool: the branch fails."""
    result, _ = await run_seen(just(step("b").branch((predicate, step("x").call(give)))))
    assert (result.status, result.failed_step) == ("failed", "b")
    assert statuses(result) == {"b": "failed"}


async def test_a_failing_arm_fails_the_branch_with_its_kind_of_error() -> None:
    """The arm's error comes out of the branch, and can be stood in for there."""

    @workflow
    def flow() -> Steps[Any]:
        got = yield from step("a").branch((yes, step("x").call(boom))).default("other")
        try:
            yield from step("b").branch((yes, step("x").call(boom)))
        except StepFailed as failed:
            return got, failed.is_a(Boom), failed.result.path

    result, _ = await run_seen(flow)
    assert result.value == ("other", True, "b")
    assert paths(result) == ["a", "a/x", "b", "b/x"]


@pytest.mark.parametrize(
    "arms", [(), (step("x").call(give),), ((yes, 3),), ((3, step("x").call(give)),), ((yes,),)]
)
def test_a_branch_of_something_else_is_refused(arms: Any) -> None:
    """Arms are pairs of predicate and step, at least one."""
    with pytest.raises((TypeError, ValueError), match="branch"):
        step("b").branch(*arms)


# -- sub-workflows ---------------------------------------------------------------------------------


@workflow
def adds(a: int, b: int = 10) -> Steps[int]:
    """Add."""
    got = yield from step("sum").call(same, a + b)
    return int(got)


async def test_a_child_gives_its_result() -> None:
    """The output of a sub-workflow is the child's WorkflowResult, with the run's id."""
    result, _ = await run_seen(just(step("sub").subworkflow(adds, {"a": 1})))
    child = result.value
    assert (child.status, child.value, child.workflow_name) == ("succeeded", 11, "adds")
    assert child.run_id == result.run_id
    assert [one.path for one in child.step_results] == ["sub/sum"]
    assert paths(result) == ["sub", "sub/sum"]


async def test_run_workflow_takes_arguments_as_a_call_does() -> None:
    """Arguments may be given by position and by keyword."""

    @workflow
    def flow() -> Steps[Any]:
        return (yield from step("sub").run_workflow(adds, 1, b=2)).unwrap()

    assert (await run_seen(flow))[0].value == 3


@pytest.mark.parametrize("inputs", [{}, {"a": 1, "c": 2}])
async def test_wrong_arguments_fail_the_step(inputs: dict[str, int]) -> None:
    """They are a TypeError, which can be handled, and which no retry can mend: one attempt."""

    @workflow
    def flow() -> Steps[Any]:
        try:
            yield from step("sub").subworkflow(adds, inputs).retry(3, backoff=0)
        except StepFailed as failed:
            return failed.is_a(TypeError), failed.result.attempts, failed.result.error

    result, _ = await run_seen(flow)
    assert result.value[:2] == (True, 1)
    assert "adds" in result.value[2]


@pytest.mark.parametrize("child", [3, same, None])
def test_a_child_must_be_a_workflow(child: Any) -> None:
    """Something else is a TypeError that says what to write."""
    with pytest.raises(TypeError, match="workflow"):
        step("sub").subworkflow(child)


async def test_the_inputs_of_a_child_are_converted_and_checked() -> None:
    """By its annotations, as those of a run are; what does not fit fails the step, untried."""

    @workflow
    def child(colour: Colour, *, many: int = 1) -> Steps[Any]:
        yield from step("a").call(int)
        return colour, many

    @workflow
    def flow() -> Steps[Any]:
        made = yield from step("fits").subworkflow(child, {"colour": "red"})
        wrong: Any = "5"
        try:
            yield from step("not").run_workflow(child, Colour.RED, many=wrong).retry(3)
        except StepFailed as failed:
            return made.value, failed.result.attempts, failed.result.error

    for journal in (MemoryJournal(), TextJournal()):
        executor = Executor(journal=journal, workflows=[flow]).options(run_id="r")
        result = await executor.run(flow)
        assert result.value == ((Colour.RED, 1), 1, "input 'many': got '5', expected int")
        assert (await executor.resume("r", rerun=["not"])).value == result.value


async def test_a_failing_child_fails_its_step() -> None:
    """The child's error comes out of its step, of the same kind, naming the child."""

    @workflow
    def failing() -> Steps[None]:
        yield from step("x").call(boom, "deep")

    @workflow
    def flow() -> Steps[Any]:
        try:
            yield from step("sub").subworkflow(failing)
        except StepFailed as failed:
            return failed.result.path, failed.is_a(Boom), failed.result.error

    result, _ = await run_seen(flow)
    path, is_boom, text = result.value
    assert (path, is_boom) == ("sub", True)
    assert "failing" in text
    assert "deep" in text


async def test_an_exception_in_a_childs_body_fails_its_step_with_the_line() -> None:
    """An exception that the child raises itself is a failed step that names file and line."""

    @workflow
    def failing() -> Steps[None]:
        yield from step("x").call(give)
        raise Boom("body")

    result, _ = await run_seen(just(step("sub").subworkflow(failing)))
    assert (result.status, result.failed_step) == ("failed", "sub")
    assert "test_composition.py" in (result.error or "")
    assert result.step("sub").is_a(Boom)


async def test_child_events_carry_the_nested_path_and_reach_the_same_sinks() -> None:
    """The sinks see the child's events under its path; WorkflowCompleted comes once, last."""

    @workflow
    def middle() -> Steps[Any]:
        return (yield from step("in").subworkflow(adds, {"a": 1})).value

    @workflow
    def flow() -> Steps[Any]:
        return (yield from step("out").subworkflow(middle)).value

    result, seen = await run_seen(flow)
    assert result.value == 11
    assert [event.path for event in seen.of(ev.StepStarted)] == ["out", "out/in", "out/in/sum"]
    begun = [(event.path, event.workflow_name) for event in seen.of(ev.SubworkflowStarted)]
    assert begun == [("out", "middle"), ("out/in", "adds")]
    ended = [(event.path, event.status) for event in seen.of(ev.SubworkflowEnded)]
    assert ended == [("out/in", "succeeded"), ("out", "succeeded")]
    assert names(seen).count("WorkflowStarted") == names(seen).count("WorkflowCompleted") == 1
    assert {event.run_id for event in seen.events} == {result.run_id}


@workflow
def nest(depth: int) -> Steps[Any]:
    """A chain of `depth` sub-workflows, the last one in a group, each of which gives its result."""
    yield from step("leaf").call(give, depth)
    if depth == 1:
        return (yield from step("each").for_each([0], lambda n: step("run").run_workflow(nest, n)))
    return (yield from step("in").run_workflow(nest, depth - 1)) if depth else None


async def test_what_is_written_has_the_steps_of_a_child_once(tmp_path: Path) -> None:
    """A child's result is written without its steps: they stand at their own paths."""
    lines, folder = StringIO(), tmp_path / "runs"
    artifacts, seen = ArtifactsSink(folder), MemorySink()
    result = await Executor(sinks=[JsonlSink(lines), artifacts, seen]).run(nest, 3)
    artifacts.close()
    assert [one.path for one in result.value.step_results][:2] == ["in/leaf", "in/in"]
    data = result.to_dict()
    assert [one["path"] for one in data["step_results"]] == paths(result)
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert {"in/output.json", "in/in/each/output.json", "run.json"} <= {
        file.relative_to(next(folder.iterdir())).as_posix() for file in files
    }
    for written in (
        json.dumps([data.pop("step_results"), data]),
        json.dumps([event.to_dict() for event in seen.events]),
        lines.getvalue(),
        *(file.read_text() for file in files),
    ):
        assert '"step_results"' not in written


@workflow
def relay(depth: int, said: str) -> Steps[Any]:
    """A chain of `depth` sub-workflows, each of which returns the whole result of its child."""
    if not depth:
        return (yield from step("leaf").call(give, said))
    return (yield from step("in").run_workflow(relay, depth - 1, said))


@pytest.mark.parametrize("said", ["plain", "correct-horse-battery"])
async def test_a_chain_of_children_is_written_in_time_and_space_that_do_not_double(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    """A result that each child passes on is searched, masked and written once at each level."""
    monkeypatch.setenv("SERVICE_API_KEY", "correct-horse-battery")
    lines, artifacts, seen = StringIO(), ArtifactsSink(tmp_path), MemorySink()
    result = await Executor(sinks=[JsonlSink(lines), artifacts, seen]).run(relay, 24, said)
    artifacts.close()
    data = result.to_dict()
    assert data["final_output"] == data["value"]
    assert [data["value"][name] for name in ("status", "run_id")] == ["succeeded", result.run_id]
    assert "final_output" not in data["value"]
    shown = json.dumps(data)
    assert len(shown) < 300_000
    assert said == "plain" or said not in shown


async def test_a_child_that_returns_nothing_is_written_with_its_last_output() -> None:
    """There `final_output` is not the value."""

    @workflow
    def parent() -> Steps[Any]:
        return (yield from step("in").run_workflow(silent))

    value = (await Executor().run(parent)).to_dict()["value"]
    assert (value["value"], value["final_output"]) == (None, "last")


@workflow
def silent() -> Steps[None]:
    """Do one step, and return nothing."""
    yield from step("leaf").call(give, "last")


async def test_a_child_sees_its_own_inputs_and_what_came_before_it() -> None:
    """In a child `ctx.inputs` are the child's; outputs are found outward, and from the root."""
    seen: list[Any] = []

    def look(ctx: WorkflowContext) -> bool:
        seen.append((dict(ctx.inputs), ctx.output("before"), ctx.output("own"), ctx.output("/own")))
        return True

    @workflow
    def child(n: int) -> Steps[None]:
        yield from step("own").call(give, "child's")
        yield from step("x").call(give).when(look)

    flow = just(
        step("before").call(give, "first"),
        step("own").call(give, "root's"),
        step("sub").subworkflow(child, {"n": 5}),
    )
    await run_seen(flow)
    assert seen == [({"n": 5}, "first", "child's", "root's")]


async def test_a_child_may_be_retried_below_a_path_of_its_own() -> None:
    """Attempt 2 of a child runs under `name~2`, with nothing left of attempt 1."""
    tries: list[int] = []

    @workflow
    def child() -> Steps[int]:
        yield from step("a").call(tries.append, 1)
        if len(tries) < 2:
            yield from step("b").call(boom)
        return len(tries)

    @workflow
    def flow() -> Steps[Any]:
        return (yield from step("sub").subworkflow(child).retry(2, backoff=0)).value

    result, _ = await run_seen(flow)
    assert result.value == 2
    assert paths(result) == ["sub", "sub/a", "sub/b", "sub~2/a"]
