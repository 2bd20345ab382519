"""A run that broke off anywhere goes on, and what is recorded is not done twice."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from handrail import (
    Codec,
    DefinitionError,
    Executor,
    JournalFailed,
    MemoryJournal,
    MemorySink,
    NotRecorded,
    OutputNotSerializable,
    ReplayMismatch,
    Step,
    StepIsPoisonous,
    Steps,
    Workflow,
    WorkflowError,
    current,
    step,
    workflow,
)
from handrail.model import events as ev
from handrail.steps.fingerprint import fingerprint, matches
from handrail.testing import ProcessGone, TextJournal
from tests.engine.support import RUN, boom, bound, caught, just, same


async def recorded(flow: Workflow[[], Any]) -> MemoryJournal:
    """The journal of one whole drive of a run."""
    journal = MemoryJournal()
    await Executor(journal=journal, durable=True).options(run_id=RUN).run(flow)
    return journal


def cut(journal: MemoryJournal, kind: type[ev.Event], path: str = "") -> MemoryJournal:
    """What a process leaves that dies right after its last event of this kind and path."""
    events = journal.events(RUN)
    last = max(
        index
        for index, event in enumerate(events)
        if isinstance(event, kind) and getattr(event, "path", "") == path
    )
    left = MemoryJournal()
    for event in events[: last + 1]:
        left.append(event)
    return left


def of(journal: MemoryJournal, sink: MemorySink | None = None, **options: Any) -> Executor:
    """An executor on this journal that is as strict as with one on disk."""
    sinks = [] if sink is None else [sink]
    return Executor(journal=journal, durable=True, sinks=sinks, **options)


class Log(list[str]):
    """What was done, in order."""

    def do(self, what: str) -> str:
        """Note it, and give it back."""
        self.append(what)
        return what


# -- changed code ----------------------------------------------------------------------------------


@bound
def two_versions(log: Log, version: int) -> Steps[Any]:
    """A workflow whose second version calls step ``a`` with another argument."""
    a = yield from step("a").call(log.do, f"a{version}")
    b = yield from step("b").call(log.do, "b")
    c = yield from step("c").call(boom if version == 1 else log.do, "c")
    return (a, b, c)


async def test_a_changed_step_is_named_with_what_it_was_and_is() -> None:
    """Resume raises before anything runs or is written, and the record stays as it was."""
    log = Log()
    journal = await recorded(two_versions(log, 1))
    before = journal.events(RUN)
    with pytest.raises(ReplayMismatch) as raised:
        await of(journal).resume(RUN, two_versions(log, 2))
    (change,) = raised.value.changes
    assert (change.path, '"a1"' in change.was, '"a2"' in change.now) == ("a", True, True)
    assert change.was.startswith("python tests.engine.test_resume:Log.do")
    assert (log, journal.events(RUN)) == (["a1", "b"], before)


async def test_a_changed_step_can_be_reused_for_good() -> None:
    """``reuse`` keeps the recorded output, in this resume and in those that follow."""
    log = Log()
    journal = await recorded(two_versions(log, 1))
    result = await of(journal).resume(RUN, two_versions(log, 2), reuse=["a"])
    assert (result.value, log) == (("a1", "b", "c"), ["a1", "b", "c"])
    again = await of(journal).resume(RUN, two_versions(log, 2), rerun=["c"])
    assert (again.value, log) == (("a1", "b", "c"), ["a1", "b", "c", "c"])


async def test_a_changed_step_can_be_run_again() -> None:
    """``rerun`` performs the step with the new code, and only that one."""
    log = Log()
    journal = await recorded(two_versions(log, 1))
    result = await of(journal).resume(RUN, two_versions(log, 2), rerun=["a"])
    assert (result.value, log) == (("a2", "b", "c"), ["a1", "b", "a2", "c"])


async def test_a_change_behind_new_steps_suspends_the_drive() -> None:
    """A mismatch that only shows later loses nothing that was done before it."""
    log = Log()

    @bound
    def flow_of(version: int) -> Steps[Any]:
        if version == 2:
            yield from step("new").call(log.do, "new")
        yield from step("a").call(log.do, f"a{version}")
        yield from step("end").call(boom if version == 1 else log.do, "end")

    journal = await recorded(flow_of(1))
    with pytest.raises(ReplayMismatch, match="'a'"):
        await of(journal).resume(RUN, flow_of(2))
    assert isinstance(journal.events(RUN)[-1], ev.RunSuspended)
    result = await of(journal).resume(RUN, flow_of(2), reuse=["a"])
    assert (result.status, log) == ("succeeded", ["a1", "new", "end"])


async def test_a_path_that_is_not_recorded_cannot_be_reused_or_run_again() -> None:
    """The error names the recorded ones that look like it."""
    journal = await recorded(two_versions(Log(), 1))
    with pytest.raises(NotRecorded, match="no recorded step 'A'"):
        await of(journal).resume(RUN, two_versions(Log(), 1), rerun=["A"])


# -- plan ------------------------------------------------------------------------------------------


async def test_a_plan_says_of_each_step_what_a_resume_would_do() -> None:
    """Recorded, changed, will run, may run, orphaned; and no action is performed to find out."""
    log = Log()

    def flow_of(version: int) -> Workflow[[], Any]:
        @workflow("flow")
        def flow() -> Steps[Any]:
            yield from step("a").call(log.do, f"a{version}")
            if version == 1:
                yield from step("gone").call(log.do, "gone")
            yield from step("c").call(boom if version == 1 else log.do, "c")
            yield from step("d").call(log.do, "d")

        return flow

    journal = await recorded(flow_of(1))
    before = journal.events(RUN)
    plan = await of(journal).plan(RUN, flow_of(2))
    assert [(one.path, one.state) for one in plan.steps] == [
        ("a", "changed"),
        ("c", "will run"),
        ("gone", "recorded"),
        ("d", "may run"),
    ]
    assert (plan.status, plan.ends, [one.path for one in plan.changes]) == ("failed", None, ["a"])
    assert (log, journal.events(RUN)) == (["a1", "gone"], before)


async def test_a_plan_of_a_run_that_needs_nothing_says_how_it_ends() -> None:
    """A step that the code does not yield any more is orphaned, in the plan and in the result."""

    def flow_of(version: int) -> Workflow[[], Any]:
        @workflow("flow")
        def flow() -> Steps[Any]:
            yield from step("a").call(str, 1)
            if version == 1:
                yield from step("gone").call(str, 2)
                raise WorkflowError("stop")

        return flow

    journal = await recorded(flow_of(1))
    plan = await of(journal).plan(RUN, flow_of(2))
    states = [(one.path, one.state) for one in plan.steps]
    assert (plan.ends, states) == ("succeeded", [("a", "recorded"), ("gone", "orphaned")])
    result = await of(journal).resume(RUN, flow_of(2))
    assert (result.status, result.orphaned) == ("succeeded", ("gone",))


def test_a_resume_whose_task_is_cancelled_in_any_turn_is_suspended_whole() -> None:
    """A native cancellation passes through shields of anyio; no number may be missing after it."""
    journal, sink = TextJournal(), MemorySink()

    @workflow
    def flow() -> Steps[int]:
        for number in range(200):
            yield from step(f"s{number}").call(int).inline()
        return (yield from step("last").call(asyncio.sleep, 0.3, 3))

    async def drive(turns: int) -> Any:
        executor = Executor(journal=journal, workflows=[flow], sinks=[sink]).options(run_id=RUN)
        resuming = executor.resume(RUN) if journal.events(RUN) else executor.run(flow)
        task = asyncio.ensure_future(resuming)
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        if journal.events(RUN):
            assert type(journal.events(RUN)[-1]) is ev.RunSuspended

    asyncio.run(drive(40))
    assert len(journal.events(RUN)) > 400
    for turns in (0, 1, 2, 3, 4, 5, 8):
        asyncio.run(drive(turns))
    assert Executor(journal=journal, workflows=[flow]).resume_sync(RUN).value == 3


async def test_a_recorded_step_that_is_not_in_the_source_is_orphaned_before_the_run_is_over() -> (
    None
):
    """One that the code may still reach, or whose name the source does not show, is not."""

    def flow_of(first: str | None) -> Workflow[[], Any]:
        @workflow("flow")
        def flow() -> Steps[Any]:
            if first == "gone":
                yield from step("gone").call(int)
                yield from step("later").call(int)
            yield from step("q").ask("?")
            yield from step("later").call(int)

        @workflow("flow")
        def without() -> Steps[Any]:
            yield from step("q").ask("?")
            yield from step("later").call(int)

        @workflow("flow")
        def computed() -> Steps[Any]:
            yield from step("q").ask("?")
            yield from step(str(first)).call(int)

        return {"gone": flow, "none": without}.get(first or "", computed)

    journal = await recorded(flow_of("gone"))
    for other, state in (("none", "orphaned"), ("computed", "recorded")):
        plan = await of(journal).plan(RUN, flow_of(other))
        states = {one.path: (one.state, one.reached) for one in plan.steps}
        assert states["gone"] == (state, state == "orphaned")
        assert states["later"] == ("recorded", False)


class ReadOnly(MemoryJournal):
    """Holds a run that was recorded elsewhere, and cannot be written any more."""

    def acquire(self, run_id: str, /, *, secrets: Mapping[str, str] | None = None) -> Any:
        """Nobody drives one of its runs."""
        raise JournalFailed("runs.db", f"taking the lease of run {run_id}", "read-only")


def read_only(journal: MemoryJournal) -> ReadOnly:
    """A copy of the journal's run that cannot be written."""
    copy = ReadOnly()
    copy.append_run(journal.events(RUN))
    return copy


async def test_a_recorded_result_needs_no_journal_that_can_be_written() -> None:
    """A resume of a run that has succeeded gives it; what would drive the run is refused."""
    flow = just(step("a").call(same, 7))
    whole = await recorded(flow)

    executor = of(read_only(whole))

    assert (await executor.resume(RUN, flow)).status == "succeeded"
    with pytest.raises(JournalFailed):
        await executor.resume(RUN, flow, rerun=["a"])
    with pytest.raises(JournalFailed):
        await of(read_only(cut(whole, ev.StepStarted, "a"))).resume(RUN, flow)


async def test_orphaned_steps_are_named_by_the_recorded_result_too() -> None:
    """What a later resume reads of a run that has succeeded is what it ended with."""

    def flow_of(name: str) -> Workflow[[], Any]:
        @workflow("flow")
        def flow() -> Steps[int]:
            yield from step(name).call(int)
            yield from step("q").ask("?", type=str)
            return 1

        return flow

    journal = TextJournal()
    executor = Executor(journal=journal)
    await executor.options(run_id=RUN).run(flow_of("a"))
    await executor.answer(RUN, "q", "yes")
    first = await executor.resume(RUN, flow_of("aa"))
    again = await Executor(journal=journal.reopened()).resume(RUN, flow_of("aa"))
    assert first.orphaned == again.orphaned == ("a",)
    assert {one.path for one in first.step_results} == {"aa", "q"}
    assert {one.path for one in again.step_results} == {"aa", "q"}


async def test_a_resume_without_a_secret_of_the_record_warns_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Inputs, outputs and answers that came since have the text ``${NAME}``; each is named."""
    log = Log()
    held = {
        "SHOP_API_KEY": "correct horse",
        "MAIL_PASSWORD": "battery staple",
        "X_TOKEN": "x-rayed",
    }

    @workflow
    def flow(key: str) -> Steps[Any]:
        mail = yield from step("mail").call(lambda: os.environ["MAIL_PASSWORD"])
        said = yield from step("q").ask("?", type=str)
        yield from step("log").call(log.do, f"{key}, {mail}, {said}")

    def of_now() -> Executor:
        return Executor(journal=journal.reopened(), workflows=[flow])

    for name, value in held.items():
        monkeypatch.setenv(name, value)
    journal = TextJournal()
    await Executor(journal=journal).options(run_id=RUN).run(flow, held["SHOP_API_KEY"])
    await of_now().answer(RUN, "q", held["X_TOKEN"])
    there = journal.copied()
    for name in held:
        monkeypatch.delenv(name)
    with capture_logs() as logs:
        assert (await of_now().resume(RUN)).status == "succeeded"
    assert log == ["${SHOP_API_KEY}, ${MAIL_PASSWORD}, ${X_TOKEN}"]
    (warning,) = logs
    assert (warning["run_id"], warning["log_level"]) == (RUN, "warning")
    assert warning["variables"] == sorted(held)

    for name, value in held.items():
        monkeypatch.setenv(name, value)
    with capture_logs() as logs:
        await Executor(journal=there.reopened(), workflows=[flow]).resume(RUN)
    assert (log[1:], logs) == ([", ".join(held.values())], [])


# -- steps that were at work -----------------------------------------------------------------------


async def test_a_step_that_was_at_work_runs_again_and_knows_it() -> None:
    """``current().interrupted`` is true, in that attempt, and the idempotency key is the same."""
    seen: list[tuple[bool, str]] = []

    def act() -> None:
        seen.append((current().interrupted, current().idempotency_key))
        if len(seen) == 2:
            raise ValueError("try again")

    flow = just(step("a").call(act).retry(2, backoff=0))
    journal = cut(await recorded(flow), ev.StepStarted, "a")
    assert (await of(journal).resume(RUN, flow)).status == "succeeded"
    (before, key), (after, same), (retried, _) = seen
    assert (before, after, retried, key == same) == (False, True, False, True)


async def test_a_step_under_which_the_process_dies_again_and_again_is_given_up() -> None:
    """After ``max_crashes`` it fails as poisonous; fewer are no failure."""
    log = Log()
    flow = just(step("a").call(log.do, "a"))
    journal = await recorded(flow)
    for _ in range(2):
        journal = cut(journal, ev.StepStarted, "a")
        await of(journal, max_crashes=3).resume(RUN, flow)
    journal = cut(journal, ev.StepStarted, "a")
    result = await of(journal, max_crashes=3).resume(RUN, flow)
    assert (result.status, result.step("a").is_a(StepIsPoisonous)) == ("failed", True)
    assert len(log) == 3
    assert (await of(journal, max_crashes=3).plan(RUN, flow)).stuck == "a"


async def test_a_composite_that_stood_in_has_its_output_again() -> None:
    """Also as the fallback of a step that is no composite itself."""
    journal = TextJournal()

    @workflow
    def flow() -> Steps[Any]:
        group = step("o").parallel(step("x").call(str, 1))
        yield from step("a").call(boom).on_error(lambda _, __: group)
        yield from step("end").call(boom)

    await Executor(journal=journal).options(run_id=RUN).run(flow)
    result = await Executor(journal=journal).resume(RUN, flow)
    assert (result.step("a").output, result.step("a/o").output) == (("1",), ("1",))


# -- one driver ------------------------------------------------------------------------------------


# -- what cannot be recorded -----------------------------------------------------------------------


def lock() -> Any:
    """Something that no file can hold."""
    return threading.Lock()


@workflow
def gives_a_lock() -> Steps[Any]:
    """A child whose value cannot be recorded."""
    yield from step("x").call(str, 1)
    return lock()


def member_that_gives_a_lock(item: int) -> Steps[Any]:
    """A member whose value cannot be recorded."""
    yield from step("x").call(str, item)
    return lock()


@pytest.mark.parametrize(
    "bad",
    [
        step("bad").call(lock),
        step("bad").run_workflow(gives_a_lock),
        step("bad").for_each([1], member_that_gives_a_lock),
        step("bad").parallel(step("in").call(lock)),
        step("bad").call(boom).default(lock()),
    ],
    ids=["leaf", "child", "member", "in a group", "default"],
)
async def test_an_output_that_cannot_be_recorded_fails_its_step(bad: Any) -> None:
    """At the first run, with the remedy; the workflow may handle it."""
    flow = caught(
        bad,
        lambda failed: (failed.is_a(OutputNotSerializable), "cannot be recorded" in str(failed)),
    )
    result = await of(MemoryJournal()).run(flow)
    assert result.value == (True, True)


async def test_a_value_that_cannot_be_recorded_fails_the_run_and_undoes_it() -> None:
    """The run's own return value is recorded like any other."""
    log = Log()

    @workflow
    def flow() -> Steps[Any]:
        yield from step("a").call(log.do, "a").with_rollback(lambda _: log.do("undo a"))
        return lock()

    result = await of(MemoryJournal()).run(flow)
    assert (result.status, log) == ("failed", ["a", "undo a"])
    assert "cannot be recorded" in str(result.error)


def flow_with_local_classes(*, declared: bool) -> Callable[..., Any]:
    """Makes steps whose values are of a class of its own, with or without saying so."""

    @dataclass
    class Point:
        x: int

    def give(value: Any) -> Any:
        return value

    def point() -> Any:
        return Point(1)

    def points() -> Any:
        return {"a": [Point(1)]}

    def member(item: int) -> Any:
        yield from step("in").call(str, item)
        return Point(item)

    def child(given: Any = 0) -> Any:
        yield from step("in").call(give, 0)
        return given or Point(1)

    def one(item: int) -> Any:
        return step(f"in-{item}").call(point)

    if declared:
        point.__annotations__["return"] = Point
        points.__annotations__["return"] = dict[str, list[Point]]
        member.__annotations__["return"] = Steps[Point]
        child.__annotations__.update({"return": Steps[Point], "given": Point | int})
        one.__annotations__["return"] = Step[Point]

    def of_kind(kind: str) -> Any:
        made: dict[str, Callable[[], Any]] = {
            "leaf": lambda: step("x").call(point),
            "partial": lambda: step("x").call(functools.partial(point)),
            "nested": lambda: step("x").call(points),
            "in a group": lambda: step("x").parallel(step("in").call(point)),
            "member": lambda: step("x").for_each([1, 2], member),
            "step of a member": lambda: step("x").for_each([1, 2], one),
            "child": lambda: step("x").run_workflow(workflow(child)),
            "fallback": lambda: step("x").call(boom).on_error(lambda _, __: step("in").call(point)),
            "workflow": lambda: (workflow(child), Point(3)),
        }
        return made[kind]()

    return of_kind


@pytest.mark.parametrize(
    "kind",
    ["leaf", "partial", "nested", "in a group", "member", "step of a member", "child", "fallback"],
)
async def test_a_value_of_an_undeclared_local_class_fails_its_step(kind: str) -> None:
    """No drive to come would find the class; the step fails at the first run, with the remedy."""
    given = flow_with_local_classes(declared=False)(kind)
    result = await of(MemoryJournal()).run(just(given))
    assert (result.status, result.failed_step) == ("failed", "x")
    assert "Point cannot be found by its name, and is not declared" in str(result.error)
    assert "Name it in the return annotation, or move it to the top level" in str(result.error)


@pytest.mark.parametrize(
    "kind", ["leaf", "partial", "nested", "in a group", "member", "step of a member", "child"]
)
async def test_a_value_of_a_declared_local_class_comes_back(kind: str) -> None:
    """What the code declares is there when the record is read, so the class is found."""
    given = flow_with_local_classes(declared=True)(kind)
    journal, seen = TextJournal(), list[Any]()

    @workflow
    def flow() -> Steps[Any]:
        output = yield from given
        seen.append(getattr(output, "value", output))
        yield from step("go?").ask("Go?", choices=["yes"])

    assert (await Executor(journal=journal).options(run_id=RUN).run(flow)).status == "suspended"
    again = Executor(journal=journal.reopened())
    await again.answer(RUN, "go?", "yes")
    assert (await again.resume(RUN, flow)).success
    first, second = seen
    assert first == second
    assert type(first) is type(second)


async def test_a_fallback_of_a_class_that_its_step_does_not_declare_fails_the_step() -> None:
    """The step's own output is read by the type that the step declares."""
    given = flow_with_local_classes(declared=True)("fallback")
    result = await of(MemoryJournal()).run(just(given))
    assert (result.status, result.failed_step) == ("failed", "x")
    assert "step 'x': output cannot be recorded" in str(result.error)


async def test_inputs_and_the_value_of_a_run_may_be_of_declared_local_classes() -> None:
    """The annotations of the workflow's function count for what goes in and comes out."""
    flow, point = flow_with_local_classes(declared=True)("workflow")
    journal = TextJournal()
    executor = Executor(journal=journal).options(run_id=RUN)
    assert (await executor.run(flow, point)).value == point
    assert (await Executor(journal=journal.reopened()).resume(RUN, flow)).value == point

    flow, point = flow_with_local_classes(declared=False)("workflow")
    with pytest.raises(OutputNotSerializable, match=r"inputs\['given'\] cannot be recorded"):
        await of(MemoryJournal()).run(flow, point)
    result = await of(MemoryJournal()).run(flow)
    assert "workflow 'child': output cannot be recorded" in str(result.error)


async def test_the_default_of_a_drive_that_broke_off_is_recorded_by_its_class() -> None:
    """A value that a resume comes to before anything runs is judged by its type like any other."""
    point = flow_with_local_classes(declared=True)("workflow")[1]

    @workflow
    def flow() -> Steps[Any]:
        yield from step("x").call(boom).default(point)

    journal = TextJournal(stop_at=3, abrupt=True)
    with contextlib.suppress(ProcessGone):
        await Executor(journal=journal).options(run_id=RUN).run(flow)
    left = journal.reopened()
    assert [record.kind for record in left.records(RUN)][-1] == "AttemptFailed"
    result = await Executor(journal=left).resume(RUN, flow)
    assert (result.status, result.step_results[0].output) == ("succeeded", point)


async def test_inputs_that_cannot_be_recorded_are_refused_before_anything_runs() -> None:
    """The call raises, and no run is begun."""
    log = Log()
    journal = MemoryJournal()

    @workflow
    def flow(given: Any) -> Steps[Any]:
        del given
        yield from step("a").call(log.do, "a")

    with pytest.raises(OutputNotSerializable):
        await of(journal).run(flow, lock())
    assert (log, journal.runs()) == ([], [])


async def test_an_input_that_a_run_was_begun_without_is_asked_for_before_anything_runs() -> None:
    """A parameter that is new needs a default; without one nothing is run, and nothing lost."""
    journal = MemoryJournal()
    executor = Executor(journal=journal)

    @workflow(name="w")
    def older(a: int) -> Steps[None]:
        yield from step("bad").call(boom, str(a))

    @workflow(name="w")
    def newer(a: int, b: str, *, c: bool, d: int = 3) -> Steps[tuple[Any, ...]]:
        yield from step("good").call(same)
        return (a, b, c, d)

    @workflow(name="w")
    def mended(a: int, b: str = "b", *, c: bool = True, d: int = 3) -> Steps[tuple[Any, ...]]:
        yield from step("good").call(same)
        return (a, b, c, d)

    await executor.options(run_id="r").run(older, 1)
    before = journal.events("r")
    said = (
        r"run r was begun without b, c, which workflow 'w' \(.*test_resume\.py:\d+\) requires now"
    )
    with pytest.raises(DefinitionError, match=said):
        await executor.resume("r", newer)
    with pytest.raises(DefinitionError, match=said):
        await executor.plan("r", newer)
    assert journal.events("r") == before
    assert (await executor.resume("r", mended)).value == (1, "b", True, 3)


# -- what a resume of a failed run does again ------------------------------------------------------


async def test_a_race_that_was_won_is_not_run_again_for_its_losers() -> None:
    """Steps that were cancelled inside of something that succeeded stay as they are."""
    log = Log()

    async def slow() -> None:
        await anyio.sleep_forever()

    flow = just(
        step("r").race(step("fast").call(log.do, "fast"), step("slow").call(slow)),
        step("end").call(boom),
    )
    journal = await recorded(flow)
    result = await of(journal).resume(RUN, flow)
    assert (result.status, log, result.step("r").replayed) == ("failed", ["fast"], True)


@pytest.mark.parametrize("failing", ["a", "a~2", "a~2~3"])
async def test_a_member_whose_key_looks_like_a_later_attempt_is_a_member(failing: str) -> None:
    """A failed run goes on at its step, and at no step of the member that its key reminds of."""
    log = Log()
    broken = {failing}

    def work(key: str) -> None:
        if key in broken:
            raise OSError("no disk")
        log.append(key)

    @workflow
    def flow() -> Steps[Any]:
        def body(key: str) -> Steps[Any]:
            yield from step("work").call(work, key)
            yield from step("pay").call(log.do, f"pay {key}").once()

        keys = ["a", "a~2", "a~2~3"]
        yield from step("g").for_each(keys, body, key=str, on_error="continue")
        yield from step("end").call(boom)

    others = [key for key in ["a", "a~2", "a~2~3"] if key != failing]
    journal = await recorded(flow)
    assert sorted(log) == sorted([*others, *(f"pay {key}" for key in others)])
    log.clear()
    broken.clear()
    result = await of(journal).resume(RUN, flow, rerun=[f"g/{failing}"])
    assert log == [failing, f"pay {failing}"]
    assert [one.path for one in result.step_results if one.replayed] == [
        f"g/{key}/{name}"
        for key in ["a", "a~2", "a~2~3"]
        if key in others
        for name in ("work", "pay")
    ]
    log.clear()
    await of(journal).resume(RUN, flow, rerun=["g/a"])
    assert log == ["a", "pay a"]


async def test_a_signal_belongs_to_the_wait_that_took_it() -> None:
    """A ``wait_for`` that is run again takes its own signal again, not the next one's."""

    @workflow
    def flow() -> Steps[Any]:
        first = yield from step("a").wait_for("go", str)
        second = yield from step("b").wait_for("go", str)
        return first, second

    journal = MemoryJournal()
    executor = of(journal, workflows=[flow])
    await executor.options(run_id=RUN).run(flow)
    await executor.signal(RUN, "go", "1")
    await executor.signal(RUN, "go", "2")
    assert (await executor.resume(RUN)).value == ("1", "2")
    assert (await executor.resume(RUN, rerun=["a"])).value == ("1", "2")


async def test_a_changed_member_of_a_finished_group_is_named() -> None:
    """The steps that a ``parallel`` is made of are compared, too."""

    def flow_of(argument: int) -> Workflow[[], Any]:
        @workflow("flow")
        def flow() -> Steps[Any]:
            yield from step("g").parallel(step("x").call(str, 1), step("y").call(str, argument))
            raise WorkflowError("late")

        return flow

    journal = await recorded(flow_of(2))
    with pytest.raises(ReplayMismatch) as raised:
        await of(journal).resume(RUN, flow_of(3))
    assert [change.path for change in raised.value.changes] == ["g/y"]


@pytest.mark.parametrize("inline", [True, False])
async def test_a_run_that_is_resumed_only_to_be_cancelled_begins_nothing(*, inline: bool) -> None:
    """Cancelling a dead run unwinds it; the step that comes next is not performed."""
    log = Log()

    @workflow
    def flow() -> Steps[Any]:
        yield from step("a").call(log.do, "a")
        following = step("b").call(log.do, "b")
        yield from following.inline() if inline else following

    journal = cut(await recorded(flow), ev.StepCompleted, "a")
    log.clear()
    result = await of(journal).cancel(RUN, "enough", flow)
    assert result is not None
    assert (result.status, log) == ("cancelled", [])


async def test_no_secret_stands_in_the_description_of_a_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fingerprints and digests name the variable; a renewed secret is no change."""
    log = Log()
    monkeypatch.setenv("SHOP_API_KEY", "correct horse")

    @workflow
    def flow() -> Steps[Any]:
        secret = os.environ["SHOP_API_KEY"]
        yield from step("a").call(log.do, secret)
        yield from step("each").for_each([secret], lambda item: step("s").call(log.do, item))
        yield from step("end").call(boom)

    journal = await recorded(flow)
    described = [
        event.fingerprint if isinstance(event, ev.StepStarted) else event.digest
        for event in journal.events(RUN)
        if isinstance(event, (ev.StepStarted, ev.MemberStarted))
    ]
    assert not any("horse" in text for text in described)
    assert any("${SHOP_API_KEY}" in text for text in described)
    log.clear()
    monkeypatch.setenv("SHOP_API_KEY", "battery staple")
    assert (await of(journal).resume(RUN, flow)).status == "failed"
    assert log == []


@workflow
def counts_up(start: int, to: int = 1) -> Steps[Any]:
    """A child with inputs that have names."""
    yield from step("s").call(max, start, to)


CHILD_FORMS: list[Callable[[], Step[Any]]] = [
    lambda: step("c").subworkflow(counts_up, {"to": 3, "start": 2}),
    lambda: step("c").run_workflow(counts_up, to=3, start=2),
    lambda: step("c").run_workflow(counts_up, 2, to=3),
    lambda: step("c").run_workflow(counts_up, 2, 3),
]


@pytest.mark.parametrize("form", CHILD_FORMS)
def test_a_child_has_one_fingerprint_however_its_inputs_are_given(
    form: Callable[[], Step[Any]],
) -> None:
    """It covers the inputs by name."""
    codec = Codec()
    assert fingerprint(form(), codec) == 'subworkflow counts_up [] {"start":2,"to":3}'
    assert not matches('subworkflow counts_up [] {"start":2,"to":4}', form(), codec)


# -- on disk ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("alone", [True, False])
async def test_what_is_to_be_on_disk_is_asked_for(*, alone: bool) -> None:
    """``.checkpoint()``: the end; ``.once()``: start and end; also in a group, and of a group."""

    class Noting(MemoryJournal):
        def append(self, event: ev.Event, /, *, sync: bool = False) -> None:
            if sync:
                synced.append((type(event).__name__, getattr(event, "path", "")))
            super().append(event)

    synced: list[tuple[str, str]] = []
    steps = (
        step("plain").call(str, 0),
        step("kept").call(str, 1).checkpoint(),
        step("once").call(str, 2).once(),
    )

    @workflow
    def flow() -> Steps[Any]:
        if alone:
            for one in steps:
                yield from one
        else:
            yield from step("g").parallel(*steps).checkpoint()

    assert (await Executor(journal=Noting()).run(flow)).success
    above = "" if alone else "g/"
    expected = [
        ("StepCompleted", f"{above}kept"),
        ("StepCompleted", f"{above}once"),
        ("StepStarted", f"{above}once"),
    ]
    assert sorted(synced) == sorted([*expected, *([] if alone else [("StepCompleted", "g")])])
