from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from handrail import (
    AgentResult,
    Backoff,
    CommandResult,
    InvalidAnswer,
    Limits,
    OpenGate,
    Stage,
    StepFailed,
    Steps,
    WorkflowContext,
    WorkflowError,
    current,
    step,
    workflow,
)
from handrail.model import events as ev
from handrail.testing import FakeAgent, Script

planner = FakeAgent("planner")
coder = FakeAgent("coder")


@dataclass
class Plan:
    steps: list[str]


def changed_files(folder: str) -> list[str]:
    """What a real one would find."""
    raise AssertionError(f"a script must not call this: {folder}")


@workflow
def ship(task: str, *, rounds: int = 1) -> Steps[str]:
    """Plan, implement, verify, review, ask, merge."""
    plan = yield from step("plan").agent(planner, lambda ctx: {"task": ctx.inputs["task"]})
    yield from step("implement").agent(coder, {"plan": plan.output}).retry(2, backoff=10)
    yield from step("verify").validate(
        ["lint", "tests"], retry=rounds, on_failure=step("fix").agent(coder, found)
    )
    files = yield from step("changed").call(changed_files, ".")
    notes = yield from step("review").for_each(files, review, on_error="continue")
    if (yield from step("merge?").ask("Merge?", choices=["yes", "no"])) == "yes":
        yield from step("merge").command(["git", "merge", "work"])
        return "merged"
    return f"left, {len(notes)} reviewed"


def found(context: WorkflowContext) -> Mapping[str, Any]:
    """What the fixer is told."""
    assert context.validation is not None
    return {"failed": [stage.name for stage in context.validation.failed]}


def review(file: str) -> Steps[str]:
    """Two steps for each file."""
    text = yield from step("read").call(str, file)
    return (yield from step("judge").call(str, text))


def to_the_review(script: Script[str]) -> None:
    """Play the first half of the workflow."""
    script.expect("plan").returns(Plan(["a"]))
    script.expect("implement").returns("done")
    script.expect("verify/1/lint").passes()
    script.expect("verify/1/tests").passes()
    script.expect("changed").returns(["a.py", "b.py"])


def test_a_whole_run_is_played_line_by_line() -> None:
    """Each step's end is said by the test, and the result is that of a run."""
    script = Script(ship, "fix the bug")
    script.expect("plan", "agent", agent="planner", context={"task": "fix the bug"}).returns(
        Plan(["a"])
    )
    script.expect("implement", context={"plan": Plan(["a"])}).fails(OSError("disk"))
    script.advance(10)
    script.expect("implement", attempt=2).returns("done")
    script.expect("verify/1/lint").passes()
    script.expect("verify/1/tests").fails("2 failed")
    script.expect("verify/1/fix", context={"failed": ["tests"]}).returns("fixed")
    script.expect("verify/2/lint").passes("all good")
    script.expect("verify/2/tests").passes()
    script.expect("changed", args=(".",)).returns(["a.py", "b.py"])
    script.expect("review/1/read").returns("text of b")
    script.expect("review/1/judge", args=("text of b",)).returns("fine")
    script.expect("review/0/read").fails(OSError("unreadable"))
    script.answer("merge?", "yes")
    script.expect("merge", argv=["git", "merge", "work"]).returns("Merged.\n")
    result = script.finish()
    assert (result.status, result.value) == ("succeeded", "merged")
    statuses = [(one.path, one.status) for one in result.step_results if "/" not in one.path]
    assert statuses == [
        ("plan", "succeeded"),
        ("implement", "succeeded"),
        ("verify", "succeeded"),
        ("changed", "succeeded"),
        ("review", "succeeded"),
        ("merge?", "succeeded"),
        ("merge", "succeeded"),
    ]
    assert result.step("implement").attempts == 2
    assert result.step("implement").duration_ms == 10_000
    assert result.step("merge").output == CommandResult(0, "Merged.\n", "")
    assert result.step("review/0/read").is_a(OSError)


def test_what_is_pending_is_listed_in_tree_order() -> None:
    """Members come in the order of their group, whatever the order in which they got there."""
    script = Script(ship, "task")
    to_the_review(script)
    script.expect("review/1/read").returns("b")
    assert list(script.pending) == ["review/0/read", "review/1/judge"]
    assert [one.args for one in script.pending.values()] == [("a.py",), ("b",)]


def test_everything_that_is_waited_for_is_pending() -> None:
    """Attempts, questions, signals and sleeps are listed, with what each is."""

    @workflow
    def waits() -> Steps[None]:
        yield from step("all").parallel(
            step("call").call(print).retry(2, backoff=5),
            step("ask").ask("Go?", timeout=60),
            step("signal").wait_for("go"),
            step("sleep").sleep(30),
        )

    script = Script(waits)
    script.expect("all/call").fails(OSError)
    pending = script.pending
    assert {path: one.waits for path, one in pending.items()} == {
        "all/call": "pause",
        "all/ask": "gate",
        "all/signal": "signal",
        "all/sleep": "pause",
    }
    dues = [None if one.due is None else one.due - script.now for one in pending.values()]
    assert dues == [5, 60, None, 30]
    assert isinstance(pending["all/ask"].gate, OpenGate)
    assert pending["all/signal"].signal == "go"


def test_a_handled_failure_is_thrown_at_the_yield() -> None:
    """What a script lets fail is a StepFailed for the workflow, which goes on from it."""

    @workflow
    def careful() -> Steps[str]:
        try:
            yield from step("risky").call(print)
        except StepFailed as failed:
            return f"{failed.result.error_type}: {failed.result.error}"
        return "no failure"

    script = Script(careful)
    script.expect("risky").fails(OSError("disk"))
    assert script.finish().value == "builtins.OSError: disk"


def test_predicates_handlers_and_builders_are_called_for_real() -> None:
    """The workflow's small functions run, sync and async ones, with their contexts."""
    seen: list[str] = []

    async def wanted(context: WorkflowContext) -> bool:
        seen.append(f"when {context.inputs['name']}")
        return True

    def failure_for_unserializable(context: WorkflowContext, failed: Any) -> Any:
        seen.append(f"on_error {failed.error}")
        return step("instead").call(print)

    async def built(context: WorkflowContext) -> Mapping[str, Any]:
        seen.append(f"context {context.services['db']} {context.output('a')}")
        return {"it": 1}

    @workflow
    def small(name: str) -> Steps[Any]:
        yield from step("a").call(print).when(wanted).on_error(failure_for_unserializable)
        chosen = yield from step("b").branch(
            (lambda ctx: ctx.config["no"], step("one").call(print)),
            (lambda ctx: True, step("two").agent(coder, built)),
        )
        return chosen.index

    script = Script.options(services={"db": "DB"}, config={"no": False})(small, "x")
    script.expect("a").fails(OSError("no"))
    script.expect("a/instead").returns("plan b")
    assert script.expect("b/two").context() == {"it": 1}
    script.expect("b/two").returns(AgentResult("done"))
    assert script.finish().value == 1
    assert seen == ["when x", "on_error no", "context DB plan b"]


def test_a_failing_context_builder_fails_its_step() -> None:
    """A builder that raises, or makes no mapping, fails the attempt without an agent."""

    @workflow
    def built_wrong() -> Steps[tuple[Any, Any]]:
        one = yield from step("one").agent(coder, lambda ctx: 1 / 0).default(None)  # type: ignore[arg-type,return-value]
        two = yield from step("two").agent(coder, lambda ctx: ["no"]).default(None)  # type: ignore[arg-type,return-value]
        return one, two

    result = Script(built_wrong).finish()
    assert result.step("one").is_a(ZeroDivisionError)
    assert result.step("two").is_a(TypeError)


def test_a_command_ends_with_its_exit_code() -> None:
    """`check` and `parse` are heeded: a bad exit fails, and JSON becomes data."""

    @workflow
    def commands() -> Steps[Any]:
        lenient = yield from step("lenient").command("grep x", check=False)
        parsed = yield from step("parsed").command(["list"], parse=list[int])
        yield from step("strict").command(["false"])
        return lenient, parsed

    script = Script(commands)
    script.expect("lenient", argv="grep x").exits(1, stderr="none")
    script.expect("parsed").returns("[1, 2]")
    script.expect("strict").exits(2, stderr="bad luck")
    result = script.finish()
    assert result.step("lenient").output.exit_code == 1
    assert result.step("parsed").output.data == [1, 2]
    assert "exited with 2: bad luck" in str(result.error)


def test_stdout_that_does_not_parse_fails_the_command() -> None:
    """What a script lets a command print must be what `parse` asks for."""

    @workflow
    def parses() -> Steps[Any]:
        return (yield from step("list").command(["list"], parse=list[int]))

    script = Script(parses)
    script.expect("list").returns("no json")
    assert script.finish().failed_step == "list"


def test_actions_can_be_run_for_real() -> None:
    """`runs` calls the action as the step would, and its failure is the step's."""

    def where() -> str:
        return current().path

    async def tripled(number: int) -> int:
        return number * 3

    def checked() -> bool:
        return False

    @workflow
    def real() -> Steps[Any]:
        yield from step("verify").validate([Stage("checked", checked)], retry=0).default(None)
        yield from step("broken").call(lambda: 1 / 0).default(None)
        here = yield from step("where").call(where)
        return here, (yield from step("tripled").call(tripled, 2))

    script = Script(real)
    script.expect("verify/1/checked").runs()
    script.expect("broken").runs()
    script.expect("where").runs()
    script.expect("tripled").runs()
    result = script.finish()
    assert result.value == ("where", 6)
    assert result.step("verify/1/checked").status == "failed"
    assert result.step("broken").is_a(ZeroDivisionError)


def test_time_passes_when_told() -> None:
    """Sleeps, pauses, timeouts and deadlines happen in order, each at its time."""

    @workflow
    def timed() -> Steps[Any]:
        yield from step("nap").sleep(3600)
        slow = yield from step("slow").call(print).timeout(5).default("late")
        asked = yield from step("ask").ask("?", default="nobody", timeout=timedelta(minutes=1))
        yield from step("again").call(print).retry(2, backoff=Backoff(initial_s=8, jitter=0))
        return slow, asked

    script = Script(timed)
    start = script.now
    script.advance(3599)
    assert list(script.pending) == ["nap"]
    script.advance(timedelta(seconds=1))
    script.advance(4)
    assert list(script.pending) == ["slow"]
    script.advance(61)
    script.expect("again").fails(OSError())
    script.advance(8)
    script.expect("again").returns()
    assert script.finish().value == ("late", "nobody")
    ends = {one.path: one.at - start for one in script.events if isinstance(one, ev.StepCompleted)}
    assert ends == {"nap": 3600, "slow": 3605, "ask": 3665, "again": 3673}


def test_pauses_can_pass_by_themselves() -> None:
    """With `auto_advance`, sleeps and pauses are over once nothing else is pending."""

    @workflow
    def pauses() -> Steps[None]:
        yield from step("nap").sleep(3600)
        yield from step("a").call(print).retry(2, backoff=60)

    script = Script.options(auto_advance=True)(pauses)
    script.expect("a").fails(OSError())
    script.expect("a", attempt=2).returns()
    assert script.finish().success
    assert script.result.total_duration_ms == 3_660_000


def test_a_question_is_answered_converted_or_refused() -> None:
    """An answer is checked and converted; a wrong one leaves the question open."""

    @workflow
    def asks() -> Steps[Any]:
        number = yield from step("number").ask("How many?", type=int)
        refused = yield from step("refused").ask("Really?").default("refused")
        return number, refused

    script = Script(asks)
    with pytest.raises(InvalidAnswer, match="'many' is not a valid answer"):
        script.answer("number", "many")
    script.answer("number", "3", by="me")
    script.refuse("refused", "nobody is there")
    assert script.finish().value == (3, "refused")
    answered = [one for one in script.events if isinstance(one, ev.GateAnswered)]
    assert [(one.path, one.answer, one.by) for one in answered] == [("number", 3, "me")]
    assert script.results["refused"].error == "gate 'refused' got no answer: nobody is there"


def test_signals_are_kept_until_taken() -> None:
    """A signal that comes early waits for its `wait_for`, in order."""

    @workflow
    def listens() -> Steps[Any]:
        yield from step("first").call(print)
        one = yield from step("one").wait_for("go", int)
        two = yield from step("two").wait_for("go", int)
        return one, two

    script = Script(listens)
    script.signal("go", 1)
    script.expect("first").returns()
    script.signal("go", 2)
    assert script.finish().value == (1, 2)


def test_cancelling_unwinds_and_rolls_back() -> None:
    """What is pending stops, clean-up steps run, and rollbacks come last first."""
    undone: list[str] = []

    @workflow
    def deploys() -> Steps[None]:
        try:
            yield from step("one").call(print).with_rollback(lambda ctx: undone.append(ctx.path))
            yield from step("two").call(print).with_rollback(lambda ctx: undone.append(ctx.path))
            yield from step("three").call(print)
        finally:
            yield from step("clean").call(print)

    script = Script(deploys)
    script.expect("one").returns()
    script.expect("two").returns()
    script.cancel("enough")
    script.expect("clean").returns()
    assert list(script.pending) == ["two"]
    script.expect_rollback("two").fails(OSError("stuck"))
    script.expect_rollback("one").runs()
    result = script.finish()
    assert (result.status, result.error) == ("cancelled", "enough")
    assert result.step("three").status == "cancelled"
    assert [(one.path, one.error) for one in result.rollback_errors] == [("two", "stuck")]
    assert undone == ["one"]


def test_a_rollback_has_its_time() -> None:
    """A rollback that takes longer than it may is given up, and the error says so."""

    @workflow
    def slow_undo() -> Steps[None]:
        yield from step("one").call(print).with_rollback(lambda ctx: None, timeout=5)
        raise WorkflowError("no")

    script = Script(slow_undo)
    script.expect("one").returns()
    script.advance(5)
    assert [one.path for one in script.finish().rollback_errors] == ["one"]


def test_a_script_can_be_suspended() -> None:
    """A drive that only waits ends suspended, and the result says what is open."""

    @workflow
    def waits() -> Steps[Any]:
        return (yield from step("ask").ask("Go?"))

    result = Script(waits).suspend()
    assert (result.status, [gate.path for gate in result.waiting]) == ("suspended", ["ask"])


def test_limits_hold() -> None:
    """A script ends where a run would reach a limit."""

    @workflow
    def endless() -> Steps[None]:
        for number in range(100):
            yield from step(f"a{number}").call(print)

    script = Script.options(limits=Limits(max_steps=2))(endless)
    script.expect("a0").returns()
    script.expect("a1").returns()
    assert "max_steps=2" in str(script.finish().error)


def test_sub_workflows_and_races_are_driven_too() -> None:
    """A child's steps are pending below its path, and the first success of a race wins."""

    @workflow
    def child(number: int) -> Steps[int]:
        return (yield from step("double").call(print, number))

    @workflow
    def parent() -> Steps[Any]:
        done = yield from step("child").run_workflow(child, 4)
        first = yield from step("race").race(step("a").call(print), step("b").call(print))
        return done.value, first

    script = Script(parent)
    script.expect("child/double", args=(4,)).returns(8)
    script.expect("race/b").returns("b won")
    assert script.finish().value == (8, "b won")
    assert script.result.step("race/a").status == "cancelled"


def test_stages_can_be_left_to_the_configuration() -> None:
    """Stages that are not named are those of the options and of pyproject.toml."""

    @workflow
    def verifies() -> Steps[Any]:
        return (yield from step("verify").validate())

    script = Script.options(stages={"mine": "true"})(verifies)
    assert "verify/1/mine" in script.pending or script.pending
    while not script.done:
        next(iter(script.pending.values())).passes()
    assert "mine" in [stage.name for stage in script.result.value.stages]


def test_as_a_block_it_must_end() -> None:
    """The end of the block asks for the end of the run, unless the block itself failed."""

    @workflow
    def one() -> Steps[Any]:
        return (yield from step("a").call(print))

    with Script(one) as script:
        script.expect("a").returns(1)
    assert script.result.value == 1
    with pytest.raises(AssertionError, match="the run has not ended"), Script(one):
        pass
    with pytest.raises(ZeroDivisionError), Script(one):
        raise ZeroDivisionError


def test_wrong_inputs_are_refused_at_once() -> None:
    """Inputs that do not fit the signature are a TypeError of the script itself."""
    with pytest.raises(TypeError, match="missing a required argument: 'task'"):
        Script(ship)  # type: ignore[call-arg]


def test_a_misspelt_input_is_told_before_what_is_missing_for_it() -> None:
    """The error names it, the input that was meant, and all inputs without their modules."""

    @workflow
    def many(task: Plan | None, rounds: int = 3, *, tags: list[str] | None = None) -> Steps[None]:
        yield from step("a").call(print, task, rounds, tags)

    with pytest.raises(TypeError) as caught:
        Script(many, taskk=None)  # type: ignore[call-arg]
    assert str(caught.value) == (
        "workflow 'many'(task: Plan | None, rounds: int = 3, *, tags: list[str] | None = None): "
        "got an unexpected keyword argument 'taskk'. Did you mean 'task'?"
    )


def test_any_name_is_an_input_of_a_workflow_that_takes_any() -> None:
    """With ``**names`` no keyword is unexpected; without a near name none is proposed."""

    @workflow
    def free(first: "Nobody", /, **names: int) -> Steps[int]:  # type: ignore[name-defined]  # noqa: F821, UP037
        return (yield from step("a").call(len, names))

    assert list(Script(free, 1, x=1, y=2).pending) == ["a"]
    with pytest.raises(
        TypeError, match=r"'free'\(first: .*, /, \*\*names: int\): missing a required"
    ):
        Script(free)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"got an unexpected keyword argument 'zzz'$"):
        Script(ship, "task", zzz=1)  # type: ignore[call-arg]


def test_what_escapes_the_body_escapes_the_script() -> None:
    """KeyboardInterrupt in a workflow's body reaches the test."""

    @workflow
    def interrupted() -> Steps[None]:
        yield from step("a").call(print)
        raise KeyboardInterrupt

    script = Script(interrupted)
    with pytest.raises(KeyboardInterrupt):
        script.expect("a").returns()


def test_it_needs_no_event_loop() -> None:
    """A script works inside a running loop as well as outside: it uses none."""

    @workflow
    def one() -> Steps[Any]:
        return (yield from step("a").agent(coder, {}))

    async def inside() -> Any:
        script = Script(one)
        script.expect("a").returns("yes")
        return script.finish().unwrap().output

    assert asyncio.run(inside()) == "yes"
