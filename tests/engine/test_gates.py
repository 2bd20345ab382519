"""Questions to people, signals, and runs that are suspended and resumed in one process."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from enum import Enum
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from handrail import (
    Executor,
    GateClosed,
    GateNotFound,
    InvalidAnswer,
    MemorySink,
    OpenGate,
    RunNotFound,
    Stage,
    Steps,
    StepTimeout,
    WorkflowNotFound,
    step,
    workflow,
)
from handrail.model import events as ev
from handrail.ports.journal import Letter
from handrail.record.inbox import gate_key
from handrail.testing import Script, TextJournal
from tests.engine.support import (
    Jumping,
    boom,
    caught,
    check_drive,
    just,
    paths,
    run_seen,
    same,
    statuses,
)


@workflow
def asking(**options: Any) -> Steps[Any]:
    """Ask once."""
    return (yield from step("q").ask("Merge?", **options))


@pytest.mark.parametrize(
    ("policy", "options", "answer"),
    [
        ("approve", {"choices": ["yes", "no"]}, "yes"),
        ("approve", {"choices": [3, 4]}, 3),
        ("approve", {"type": bool}, True),
        ("approve", {"type": bool, "default": False}, True),
        ("approve", {"type": int, "default": 3}, 3),
        ("approve", {"type": int, "default": None}, None),
        ("approve", {"default": "later"}, "later"),
        ("approve", {}, "yes"),
        ("default", {"type": int, "default": None}, None),
        ("default", {"choices": ["yes", "no"], "default": "no"}, "no"),
        ("default", {"type": int, "default": 7}, 7),
    ],
)
async def test_a_policy_answers(policy: str, options: dict[str, Any], answer: Any) -> None:
    """Approve answers True or the first choice, default the default."""
    result, sink = await run_seen(just(step("q").ask("Merge?", **options)), gates=policy)
    assert result.value == answer
    (answered,) = sink.of(ev.GateAnswered)
    assert policy in (answered.by or "")


@pytest.mark.parametrize(
    ("policy", "options"), [("fail", {"default": "x"}), ("default", {}), ("approve", {"type": int})]
)
async def test_a_policy_without_an_answer_fails_the_step(
    policy: str, options: dict[str, Any]
) -> None:
    """Fail always, default where there is none, and approve where yes is no answer."""
    result, _ = await run_seen(just(step("q").ask("Merge?", **options)), gates=policy)
    assert (result.status, result.failed_step) == ("failed", "q")


async def test_a_callable_is_given_the_open_gate_and_may_be_async() -> None:
    """A gate handler sees path, question, choices; its answer is converted."""
    seen: list[OpenGate] = []

    async def answer(gate: OpenGate) -> Any:
        seen.append(gate)
        await anyio.lowlevel.checkpoint()
        return "12"

    @workflow
    def flow() -> Steps[Any]:
        a = yield from step("n").ask("How many?", type=int)
        b = yield from step("c").ask("Which?", choices=[12, 13])
        return a, b

    result, _ = await run_seen(flow, gates=answer)
    assert result.value == (12, 12)
    assert [(gate.path, gate.question, gate.choices, gate.type) for gate in seen] == [
        ("n", "How many?", (), int), ("c", "Which?", (12, 13), str),
    ]  # fmt: skip


@pytest.mark.parametrize("answer", ["maybe", None])
async def test_a_handlers_wrong_answer_fails_the_step(answer: Any) -> None:
    """A handler that answers something else fails the step with InvalidAnswer."""
    flow = caught(
        step("q").ask("?", choices=["yes", "no"]), lambda failed: failed.is_a(InvalidAnswer)
    )
    assert (await run_seen(flow, gates=lambda _: answer))[0].value is True


async def test_a_handler_that_raises_fails_the_step() -> None:
    """What a handler raises is the step's error."""
    result, _ = await run_seen(just(step("q").ask("?")), gates=lambda _: boom("no person"))
    assert "no person" in (result.error or "")


def test_gates_is_a_policy_or_a_callable() -> None:
    """Another word than the three policies is refused with their names."""
    with pytest.raises(ValueError, match=r"approve, default, fail.*'perhaps'"):
        Executor(gates="perhaps")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"choices": ["a"], "type": str}, TypeError),
        ({"choices": ["1", 1]}, ValueError),
        ({"choices": []}, ValueError),
        ({"choices": ["a"], "default": "b"}, ValueError),
        ({"timeout": 0}, ValueError),
    ],
)
def test_ask_refuses_what_cannot_be(options: dict[str, Any], error: type[Exception]) -> None:
    """Choices with a type, look-alikes, no choices, and a default that is none are refused."""
    with pytest.raises(error):
        step("q").ask("?", **options)


async def test_without_a_handler_the_run_suspends_with_its_open_gates() -> None:
    """The result is suspended, lists the gates, and nothing was rolled back."""
    undone: list[int] = []
    flow = just(
        step("a").call(same, 1).with_rollback(undone.append),
        step("q").ask("Merge?", choices=["yes", "no"]),
    )
    result, sink = await run_seen(flow)
    assert (result.status, result.success, undone) == ("suspended", False, [])
    (gate,) = result.waiting
    assert (gate.path, gate.question, gate.choices) == ("q", "Merge?", ("yes", "no"))
    assert isinstance(sink.events[-1], ev.RunSuspended)


async def test_a_suspended_run_is_answered_and_resumed() -> None:
    """After `answer`, `resume` goes on where it was, and runs no recorded step again."""
    calls: list[str] = []
    sink = MemorySink()
    executor = Executor(sinks=[sink])

    @workflow
    def flow(n: int) -> Steps[Any]:
        yield from step("a").call(calls.append, "a")
        answer = yield from step("q").ask("?", type=int)
        yield from step("b").call(calls.append, "b")
        return answer + n

    first = await executor.options(run_id="r").run(flow, 5)
    assert first.status == "suspended"
    sink.clear()
    assert await executor.answer("r", "q", "37", by="me") == 37
    result = await executor.resume("r", flow)
    assert (result.status, result.value, calls) == ("succeeded", 42, ["a", "b"])
    assert result.step("a").replayed
    assert not result.step("b").replayed
    assert paths(result) == ["a", "q", "b"]
    assert isinstance(sink.events[0], ev.RunResumed)
    assert [e.path for e in sink.of(ev.StepReplayed)] == ["a"]
    assert not sink.of(ev.WorkflowStarted)
    check_drive(sink)


async def test_of_fifty_answers_exactly_one_wins() -> None:
    """Fifty answer at once: one is taken, each of the others is told GateClosed with that one."""
    executor = Executor(linger_s=30)
    won: list[int] = []
    lost: list[GateClosed] = []

    async def answer(n: int) -> None:
        try:
            await executor.answer("r", "q", n, by=f"p{n}")
            won.append(n)
        except GateClosed as closed:
            lost.append(closed)

    with anyio.fail_after(5):
        async with executor.options(run_id="r").stream(asking, type=int) as run:
            async for event in run:
                if isinstance(event, ev.GateOpened):
                    async with anyio.create_task_group() as group:
                        for n in range(50):
                            group.start_soon(answer, n)
    assert len(won) == 1
    assert len(lost) == 49
    assert {closed.answer for closed in lost} == set(won)
    assert {closed.by for closed in lost} == {f"p{won[0]}"}
    assert run.result.value == won[0]


async def test_a_wrong_answer_leaves_the_gate_open() -> None:
    """InvalidAnswer tells what was expected; a right answer after it counts."""
    executor = Executor()
    await executor.options(run_id="r").run(asking, choices=["yes", "no"])
    with pytest.raises(InvalidAnswer, match=r"maybe.*yes, no"):
        await executor.answer("r", "q", "maybe")
    with pytest.raises(GateNotFound, match=r"'other'.*q"):
        await executor.answer("r", "other", "yes")
    with pytest.raises(RunNotFound, match=r"'nope'.*r"):
        await executor.answer("nope", "q", "yes")
    assert await executor.answer("r", "q", "yes") == "yes"
    assert (await executor.resume("r", asking)).value == "yes"


def not_found_by_name() -> tuple[type[Enum], type[Any]]:
    """Two classes that a journal cannot find, as in a process without the workflow's module."""

    class Color(Enum):
        RED = "r"

    @dataclass
    class Plan:
        title: str

    return Color, Plan


Color, Plan = not_found_by_name()
RED = Color("r")


@pytest.mark.parametrize(
    ("asked", "sent", "expected"),
    [
        ({"type": Color}, "r", RED),
        ({"type": Color}, RED, RED),
        ({"type": Plan}, '{"title": "t"}', Plan("t")),
        ({"type": list[Plan]}, [Plan("t")], [Plan("t")]),
        ({"choices": [RED]}, "Color.RED", RED),
        ({"type": Color, "default": "none"}, "none", "none"),
    ],
)
async def test_an_answer_of_one_who_did_not_know_the_class_is_converted_by_the_run(
    asked: dict[str, Any], sent: Any, expected: Any
) -> None:
    """The step returns what an answer given where the class is known would have been."""
    flow = just(step("q").ask("?", **asked))
    executor = Executor(journal=TextJournal(), workflows=[flow]).options(run_id="r")
    await executor.run(flow)
    await executor.answer("r", "q", sent)
    result = await executor.resume("r")
    ended = result.step("q")
    assert (ended.output, type(ended.output)) == (expected, type(expected))


async def test_an_answer_that_turns_out_to_fit_not_leaves_the_gate_open() -> None:
    """It is asked again, with the old deadline, and the next answer counts; also after a crash."""
    flow = just(step("q").ask("?", type=Color, timeout=60))
    journal, clock = TextJournal(), Jumping()
    executor = Executor(journal=journal, workflows=[flow], clock=clock).options(run_id="r")
    deadline = (await executor.run(flow)).waiting[0].deadline
    await executor.answer("r", "q", "z")
    clock.time += 10
    for _ in range(2):
        (asked,) = (await executor.resume("r")).waiting
        assert (asked.opening, asked.deadline) == (2, deadline)
    await executor.answer("r", "q", "r")
    assert (await executor.resume("r")).step("q").output is RED


async def test_a_handler_at_work_is_asked_anew_when_its_gate_opens_again() -> None:
    """One handler for each opening: the answer that did not fit stops the one at work, and what
    that one answers all the same does not count.
    """
    journal, asked = TextJournal(), list[int]()

    async def handler(gate: OpenGate) -> str:
        asked.append(gate.opening)
        if gate.opening == 1:
            misfit = ev.stamp(ev.GateAnswered("q", "z"), "r", 0, 0.0)
            journal.post(Letter(misfit, gate_key(gate)))
            with contextlib.suppress(anyio.get_cancelled_exc_class()):
                await anyio.sleep(60)
            return "late"
        await anyio.sleep(0.05)
        return "r"

    flow = just(step("q").ask("?", choices=["late", "r"]))
    with anyio.fail_after(5):
        result = await Executor(journal=journal, gates=handler).options(run_id="r").run(flow)
    assert (result.step("q").output, asked) == ("r", [1, 2])


async def test_a_signal_of_a_class_that_is_not_found_by_name_is_of_the_declared_type() -> None:
    """It fits, as it would in the process that sent it."""
    flow = just(step("q").wait_for("go", Plan))
    executor = Executor(journal=TextJournal(), workflows=[flow]).options(run_id="r")
    await executor.run(flow)
    await executor.signal("r", "go", Plan("t"))
    assert (await executor.resume("r")).step("q").output == Plan("t")


async def test_a_timeout_with_a_default_answers_with_it() -> None:
    """ask(timeout=, default=) gives the default once the time has passed."""
    clock = Jumping()
    flow = just(step("q").ask("?", default="no", timeout=60))
    result, sink = await run_seen(flow, clock=clock, linger_s=600)
    assert result.value == "no"
    assert clock.time - 1_000_000.0 == 60
    assert len(sink.of(ev.GateAnswered)) == 1


async def test_a_timeout_without_a_default_fails() -> None:
    """ask(timeout=) without a default fails with StepTimeout."""
    result, _ = await run_seen(just(step("q").ask("?", timeout=60)), clock=Jumping(), linger_s=600)
    assert result.step("q").is_a(StepTimeout)


@pytest.mark.parametrize("options", [{"default": "no"}, {}])
async def test_a_deadline_that_passed_while_suspended_decides_on_resume(
    options: dict[str, Any],
) -> None:
    """A suspended gate past its deadline is decided when the run is resumed; an answer is late."""
    clock = Jumping()
    executor = Executor(clock=clock)
    first = await executor.options(run_id="r").run(asking, timeout=60, **options)
    assert first.status == "suspended"
    clock.time += 60
    for _ in range(2):
        with pytest.raises(GateClosed) as late:
            await executor.answer("r", "q", "yes")
        assert (late.value.answer, late.value.by) == (options.get("default"), "timeout")
        assert late.value.at == first.waiting[0].deadline
    result = await executor.resume("r", asking)
    assert result.status == ("succeeded" if options else "failed")
    assert result.value == options.get("default")


async def test_an_answer_in_time_counts_when_the_run_is_resumed_after_the_deadline() -> None:
    """So does the first of two answers, when the second is late."""
    clock = Jumping()
    executor = Executor(clock=clock)
    await executor.options(run_id="r").run(asking, timeout=60, default="no")
    clock.time += 59
    await executor.answer("r", "q", "yes", by="ana")
    clock.time += 2
    with pytest.raises(GateClosed, match="answered by ana with 'yes'"):
        await executor.answer("r", "q", "no")
    assert (await executor.resume("r", asking)).value == "yes"


async def test_while_a_branch_can_go_on_the_run_goes_on() -> None:
    """A group with an open gate runs its other members to their end before it suspends."""
    done: list[int] = []

    @workflow
    def flow() -> Steps[Any]:
        yield from step("g").parallel(
            step("q").ask("?"),
            step("s").sleep(500),
            step("b").sleep(3).on_error(lambda _c, _f: step("x").sleep(0)),
        )
        done.append(1)

    result, _ = await run_seen(flow, clock=Jumping())
    assert result.status == "suspended"
    assert statuses(result) == {"g/s": "succeeded", "g/b": "succeeded"}
    assert done == []


async def test_gates_of_members_are_answered_one_by_one() -> None:
    """Several open gates are all listed; each answer is kept, in any order."""
    executor = Executor()
    flow = just(step("f").for_each(["a", "b"], lambda x: step("q").ask(f"{x}?")))
    first = await executor.options(run_id="r").run(flow)
    assert [gate.path for gate in first.waiting] == ["f/0/q", "f/1/q"]
    await executor.answer("r", "f/1/q", "two")
    second = await executor.resume("r", flow)
    assert [gate.path for gate in second.waiting] == ["f/0/q"]
    await executor.answer("r", "f/0/q", "one")
    third = await executor.resume("r", flow)
    assert third.value == ["one", "two"]


# -- signals ---------------------------------------------------------------------------------------


async def test_signals_are_taken_first_in_first_out() -> None:
    """One wait_for takes one signal; early arrivals are kept."""
    executor = Executor(linger_s=30)

    @workflow
    def flow() -> Steps[Any]:
        yield from step("s").sleep(0.01)
        a = yield from step("a").wait_for("go", int)
        b = yield from step("b").wait_for("go", int)
        return a, b

    with anyio.fail_after(5):
        async with executor.options(run_id="r").stream(flow) as run:
            async for event in run:
                if isinstance(event, ev.WorkflowStarted):
                    await executor.signal("r", "go", 1)
                    await executor.signal("r", "go", 2)
    assert run.result.value == (1, 2)


def test_of_those_who_wait_for_a_signal_the_one_that_waits_longest_takes_it() -> None:
    """Not the first in the tree: the second member waits before the first one does."""

    def member(delay_s: int) -> Steps[Any]:
        yield from step("s").sleep(delay_s)
        return (yield from step("w").wait_for("go"))

    with Script(just(step("f").for_each([2, 1], member))) as script:
        for _ in range(2):
            script.advance(1)
        script.signal("go", "first")
        script.signal("go", "second")
        assert script.finish().value == ["second", "first"]


# -- resume of runs that ended ---------------------------------------------------------------------


async def test_resume_finds_the_workflow_by_name() -> None:
    """Executor(workflows=[...]) is searched by name; without it the error says what to do."""
    executor = Executor(workflows=[asking])
    await executor.options(run_id="r").run(asking)
    await executor.answer("r", "q", "yes")
    assert (await executor.resume("r")).value == "yes"

    other = Executor()
    await other.options(run_id="r").run(asking)
    with pytest.raises(WorkflowNotFound, match=r"'asking'.*workflows="):
        await other.resume("r")
    with pytest.raises(RunNotFound, match=r"'gone'"):
        await other.resume("gone", asking)


async def test_a_failed_validation_validates_again_on_resume() -> None:
    """Resume of a run that a validation ended runs its stages again."""
    checks: list[int] = []
    executor = Executor()

    def check() -> bool:
        checks.append(1)
        return len(checks) > 2

    flow = just(step("v").validate([Stage("lint", check)], retry=1))
    first = await executor.options(run_id="r").run(flow)
    assert (first.status, len(checks)) == ("failed", 2)
    result = await executor.resume("r", flow)
    assert result.error is None
    assert result.value.passed
    assert len(checks) == 3
