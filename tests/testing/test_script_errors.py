"""What a script says when it does not fit the workflow."""

from __future__ import annotations

import re
from typing import Any

import anyio
import pytest

from handrail import Agent, Steps, WrongUse, step, workflow
from handrail.testing import FakeAgent, Script

planner = FakeAgent("planner")


@workflow
def several() -> Steps[Any]:
    """A group of unlike steps, and one after it."""
    yield from step("all").parallel(
        step("plan").agent(planner, {"task": "x"}),
        step("list").command(["ls", "-l"]),
        step("ask").ask("Go?"),
        step("nap").sleep(60),
        step("signal").wait_for("go"),
        step("verify").validate(["tests"]),
    )
    return (yield from step("last").call(print))


PENDING = """\
Pending:
  all/plan            agent 'planner'  ->  script.expect('all/plan').returns(...)
  all/list            command ['ls', '-l']  ->  script.expect('all/list').returns(...)
  all/ask             question 'Go?'  ->  script.answer('all/ask', ...)
  all/nap             sleep, 60 s left  ->  script.advance(60)
  all/signal          signal 'go'  ->  script.signal('go', ...)
  all/verify/1/tests  stage  ->  script.expect('all/verify/1/tests').passes()"""


def said(act: Any, *args: Any, **kwargs: Any) -> str:
    """The text of the AssertionError that a call raises."""
    with pytest.raises(AssertionError) as caught:
        act(*args, **kwargs)
    return str(caught.value)


def test_a_wrong_path_says_what_is_pending_and_what_to_write() -> None:
    """The text lists everything that is waited for, each with the line that goes on from it."""
    text = said(Script(several).expect, "last")
    assert text == f"no step is pending at 'last'. {PENDING}"


def test_a_mistyped_path_is_guessed() -> None:
    """A path that is nearly one that is pending is asked about."""
    assert "did you mean 'all/plan'?" in said(Script(several).expect, "all/plam")


def test_an_ended_step_is_said_to_have_ended() -> None:
    """Expecting a step again says how it ended."""
    script = Script(several)
    script.expect("all/plan").returns(1)
    text = said(script.expect, "all/plan")
    assert text.startswith("no step is pending at 'all/plan', it succeeded already. Pending:")


@pytest.mark.parametrize(
    ("act", "text"),
    [
        (
            lambda script: script.expect("all/ask"),
            (
                "'all/ask' waits for something else (question 'Go?'): "
                "write script.answer('all/ask', ...)"
            ),
        ),
        (
            lambda script: script.answer("all/plan", "yes"),
            (
                "'all/plan' waits for something else (agent 'planner'): "
                "write script.expect('all/plan').returns(...)"
            ),
        ),
        (
            lambda script: script.expect("all/nap"),
            "'all/nap' waits for something else (sleep, 60 s left): write script.advance(60)",
        ),
        (
            lambda script: script.expect("all/plan", agent="coder"),
            "agent of 'all/plan': expected 'coder', got 'planner'",
        ),
        (
            lambda script: script.expect("all/plan", context={"task": "y"}),
            "context of 'all/plan': expected {'task': 'y'}, got {'task': 'x'}",
        ),
        (
            lambda script: script.expect("all/list", "agent"),
            "kind of 'all/list': expected 'agent', got 'command'",
        ),
        (
            lambda script: script.expect("all/list", argv=["rm"]),
            "argv of 'all/list': expected ('rm',), got ('ls', '-l')",
        ),
        (
            lambda script: script.expect("all/list", agent="planner"),
            "'all/list' (command ['ls', '-l']) has no agent",
        ),
        (
            lambda script: script.expect("all/plan").args,
            "'all/plan' (agent 'planner') has no args",
        ),
        (
            lambda script: script.expect("all/list").context(),
            "'all/list' (command ['ls', '-l']) has no context",
        ),
        (
            lambda script: script.expect("all/list").returns(1),
            (
                "'all/list' (command ['ls', '-l']) returns a CommandResult, or text for its "
                "stdout, got 1. For another exit code write .exits(code, stdout, stderr)."
            ),
        ),
        (
            lambda script: script.expect("all/plan").passes(),
            "'all/plan' (agent 'planner') has no passes()",
        ),
        (
            lambda script: script.expect("all/verify/1/tests").returns("x"),
            "'all/verify/1/tests' (stage) passes or fails: write .passes(), or .fails('2 failed')",
        ),
        (
            lambda script: script.expect("all/plan").fails("no"),
            (
                "'all/plan' (agent 'planner') fails with an exception, got the text 'no'. "
                "Write .fails(RuntimeError('no'))."
            ),
        ),
        (
            lambda script: script.expect("all/plan").runs(),
            (
                "'all/plan' (agent 'planner') has nothing that a script can run: say what it "
                "gives, script.expect('all/plan').returns(...)"
            ),
        ),
        (
            lambda script: script.pending["all/ask"].returns("yes"),
            "'all/ask' (question 'Go?') is no attempt: write script.answer('all/ask', ...)",
        ),
        (
            lambda script: script.expect_rollback("all/plan"),
            (
                "'all/plan' waits for something else (agent 'planner'): "
                "write script.expect('all/plan').returns(...)"
            ),
        ),
    ],
)
def test_a_wrong_line_says_what_to_write(act: Any, text: str) -> None:
    """Whatever does not fit what is pending is said with both sides, and the way out."""
    assert said(act, Script(several)) == text


def test_an_open_end_says_what_is_waited_for() -> None:
    """`finish` and `result` of a run that has not ended list what it waits for."""
    script = Script(several)
    assert said(script.finish) == f"the run has not ended. {PENDING}"
    assert said(lambda: script.result) == f"the run has not ended. {PENDING}"
    assert repr(script) == f"<script of 'several': {PENDING}>"


def test_a_run_that_ended_says_how() -> None:
    """Going on after the end says how the run ended, and why."""
    script = Script(several)
    script.expect("all/plan").fails(OSError("disk"))
    ended = "The run has failed: step 'all' failed: OSError: member 'plan' failed: disk"
    assert said(script.expect, "last").startswith(f"no step is pending at 'last'. {ended}")
    for act in (lambda: script.advance(1), lambda: script.signal("x"), script.cancel):
        assert re.fullmatch(rf"the run cannot .*\. {ended}.*", said(act))


def test_an_entry_ends_once() -> None:
    """Ending an attempt that has ended, or was stopped, says so."""
    script = Script(several)
    plan, listed = script.expect("all/plan"), script.expect("all/list")
    plan.returns(1)
    assert said(plan.returns, 1) == "'all/plan' (agent 'planner') has ended already, or was stopped"
    script.cancel()
    assert "has ended already, or was stopped" in said(listed.returns, "")


def test_steps_at_work_are_not_suspended() -> None:
    """A script can be suspended only where a run would be."""
    text = said(Script(several).suspend)
    assert text == f"a run is suspended when no step is at work. {PENDING}"


def test_a_long_list_is_cut() -> None:
    """Of many pending steps the first are shown, and the number of the others."""

    @workflow
    def many() -> Steps[Any]:
        yield from step("all").for_each(range(100), lambda item: step("a").call(print))

    text = said(Script(many).finish)
    assert text.count("\n") == 21
    assert text.endswith("  ... and 80 more")


def test_what_waits_cannot_be_called() -> None:
    """An async function that really waits is refused, with what to do instead."""

    async def slow(*_: object) -> bool:
        await anyio.lowlevel.checkpoint()
        return True

    @workflow
    def waits() -> Steps[Any]:
        return (yield from step("a").call(slow))

    @workflow
    def predicate() -> Steps[Any]:
        return (yield from step("a").call(print).when(slow))

    pending = Script(waits).expect("a")
    assert "has no event loop to wait in" in said(pending.runs)
    pending.returns(True)
    assert "has no event loop to wait in" in said(Script, predicate)


def test_an_answer_of_another_type_than_the_agent_gives_is_refused() -> None:
    """A script does not let a workflow go on with what its agent could not have answered."""
    counter = Agent("counter", "How many?", output=int)

    @workflow
    def counts() -> Steps[Any]:
        return (yield from step("count").agent(counter).default(0))

    script = Script(counts)
    text = said(script.expect("count").returns, "three")
    assert text == (
        "'count' (agent 'counter') has output=int, got 'three', which is of type str. "
        "Write .returns(...) with a value of that type, which is used as it is."
    )
    script.expect("count").returns(3)
    assert script.finish().value.output == 3


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"stages": ["lint"]}, r"options\(stages=\) takes a mapping, such as .*, got \['lint'\]"),
        ({"limits": 3}, r"options\(limits=\) takes Limits\(\.\.\.\), such as .*, got 3"),
    ],
)
def test_an_option_of_another_kind_is_refused(options: Any, text: str) -> None:
    """A wrong kind is told when it is given, with what to pass."""
    with pytest.raises(WrongUse, match=text):
        Script.options(**options)
    assert Script.options(stages=None, limits=None)(several).pending


@pytest.mark.parametrize(
    ("done", "does", "path"),
    [
        ((), "make", "tree/(worktree)"),
        (("tree/(worktree)", "tree/work"), "merge", "tree/(merge)"),
        (("tree/(worktree)", "tree/work", "tree/(merge)"), "remove", "tree/(remove)"),
        (("tree/(worktree)", OSError), "leave", "tree/(leave)"),
    ],
)
def test_the_steps_of_git_around_a_body_are_named_with_what_to_write(
    done: tuple[Any, ...], does: str, path: str
) -> None:
    """Who expects the step behind them is told which one comes first, and that it gives nothing."""

    @workflow
    def apart() -> Steps[int]:
        return (yield from step("tree").worktree(inside))

    script = Script(apart)
    for ended in done:
        if ended is OSError:
            script.expect("tree/work").fails(ended)
        else:
            script.expect(ended).returns()
    hint = f"script.expect({path!r}).returns()"
    assert f"{path}  git, to {does} the worktree  ->  {hint}" in said(script.expect, "other")


def inside() -> Steps[int]:
    """The body in a worktree."""
    yield from step("work").call(abs, -1)
    return 1
