"""Runs whose code changes from drive to drive: what a resume takes from the record, and refuses."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup

import handrail
from handrail import (
    Executor,
    Limits,
    MemoryJournal,
    ReplayMismatch,
    Run,
    RunNotFound,
    Step,
    StepFailed,
    Steps,
    Workflow,
    WorkflowError,
    WorkflowResult,
    step,
    workflow,
)
from handrail.model import events as ev
from handrail.testing import TextJournal
from tests.engine.support import RUN, bound, just
from tests.engine.test_driven_again import Driven


class Edited(Driven):
    """One run, drive after drive; each may be of another version of its code."""

    def __init__(self, versions: Callable[[Edited, int], Steps[Any]]) -> None:
        self.versions = versions
        self.seen: list[list[Any]] = []
        """What the workflow saw in this drive."""
        self.stopping, self.may_stop = anyio.Event(), anyio.Event()
        super().__init__(lambda _: versions(self, 1))

    def version(self, version: int) -> Workflow[[], Any]:
        """This version of its code."""
        return bound(self.versions)(self, version)

    async def by(self, version: int, *broken: str, **how: Any) -> tuple[str, list[str]]:
        """Drive it by this version of its code."""
        self.flow = self.version(version)
        return await self.drive(*broken, **how)

    def does_with(self, name: str, number: int) -> Step[str]:
        """A step whose argument is part of what it is."""

        async def act(_: int) -> str:
            return await self.act(name)

        return step(name).call(act, number)


def child_in_which_one_changes(run: Edited, version: int) -> Steps[Any]:
    """A child that can be undone, with a changed step in it; before it stands a step that is new,
    and the failure behind it is handled no more.
    """
    if version > 1:
        yield from run.does("new")
    yield from step("child").run_workflow(just(run.does_with("x", version), run.undoable("y")))
    try:
        yield from run.does("shaky")
    except StepFailed:
        if version > 1:
            raise
    yield from run.does("last")


async def test_a_change_that_shows_late_in_what_can_be_undone_ends_the_drive_there() -> None:
    """Nothing behind it begins or is undone, and the old code goes on as if nothing had been."""
    run = Edited(child_in_which_one_changes)
    assert await run.by(1, "shaky", dies_after=(ev.StepCompleted, "shaky")) == (
        "killed",
        ["x", "y", "shaky"],
    )
    known = len(run.journal.events(RUN))
    with pytest.raises(
        ReplayMismatch, match="steps that ran before this was found are recorded"
    ) as late:
        await run.by(2)
    assert (late.value.late, [one.path for one in late.value.changes]) == (True, ["child/x"])
    assert "new" in late.value.passed
    assert {"shaky", "last"}.isdisjoint(late.value.passed)
    assert run.done == ["new"]
    assert [type(event) for event in run.journal.events(RUN)[known:]] == [
        ev.RunResumed,
        ev.StepStarted,
        ev.StepCompleted,
        ev.StepMoved,
        ev.RunSuspended,
    ]
    with pytest.raises(ReplayMismatch, match="'child/x'"):
        await run.by(2)
    assert await run.by(1) == ("succeeded", ["last"])


def members_of_which_one_changes(run: Edited, version: int) -> Steps[Any]:
    """A group that can be undone, of items of which one is another under its key."""
    yield from run.does("first")
    yield from step("each").for_each(
        [0, version], lambda number: run.undoable(f"m{number > 0}"), key=lambda n: str(n > 0)
    )
    yield from run.does("last")


async def test_an_item_that_is_another_late_in_what_can_be_undone_ends_the_drive_there() -> None:
    """The same of a member of a group that is not entered any more."""
    run = Edited(members_of_which_one_changes)
    assert (await run.by(1))[0] == "succeeded"
    with pytest.raises(ReplayMismatch, match="each/True"):
        await run.by(2, rerun=("first",))
    assert run.done == ["first"]
    assert isinstance(run.journal.events(RUN)[-1], ev.RunSuspended)


def changes_behind_a_fallback(run: Edited, version: int) -> Steps[Any]:
    """A fallback that can be undone, which only the code leads to; then a step that changes."""
    yield from run.does("shaky").on_error(lambda *_: run.undoable("instead"))
    yield from run.does_with("x", version)
    yield from step("sure").ask("?")


async def test_a_change_behind_a_fallback_that_can_be_undone_leaves_the_run_as_it_was() -> None:
    """It is seen before anything is written, although the handler was asked before."""
    run = Edited(changes_behind_a_fallback)
    assert await run.by(1, "shaky") == ("suspended", ["shaky", "instead", "x"])
    known = len(run.journal.events(RUN))
    with pytest.raises(ReplayMismatch, match="nothing was run, and the record is unchanged"):
        await run.by(2)
    assert len(run.journal.events(RUN)) == known


def shorter_child(run: Edited, version: int) -> Steps[Any]:
    """A child that lost its later steps, and one that works with its result."""

    @workflow("inner")
    def inner() -> Steps[Any]:
        yield from run.does("x")
        if version == 1:
            yield from run.does("y")
            yield from step("deep").parallel(run.does("z"))
            yield from run.does("boom")

    child = just(step("inner").run_workflow(inner), run.does("w"))
    seen = run.seen = []
    result: WorkflowResult[Any] = yield from step("child").run_workflow(child)
    seen.append([one.path for one in result.step_results])
    inside = result.step("child/inner").output
    seen.append([*(one.path for one in inside.step_results), inside.final_output])
    yield from step("use").call(run.act, str(seen))
    yield from run.does("last")


async def test_the_result_of_a_child_has_what_it_came_to_whenever_it_is_read() -> None:
    """Steps that an earlier version did are none of it, in the drive in which it ended and later;
    those that work with it have not changed.
    """
    run = Edited(shorter_child)
    assert (await run.by(1, "boom"))[0] == "failed"
    expected = [
        ["child/inner", "child/inner/x", "child/w"],
        ["child/inner/x", "x"],
    ]
    assert (await run.by(2, "last"))[0] == "failed"
    assert run.seen == expected
    assert (await run.by(2, "last"))[0] == "failed"
    assert run.seen == expected
    status, done = await run.by(2)
    assert (status, done, run.seen) == ("succeeded", ["last"], expected)
    result = await run.executor().resume(RUN, run.flow)
    assert [one.path for one in result.step("child").output.step_results] == expected[0]
    gone = {f"child/inner/{name}" for name in ("y", "deep", "deep/z")}
    assert gone <= set(result.orphaned)
    assert not gone & {one.path for one in result.step_results}


@workflow
def one_step() -> Steps[str]:
    """A child."""
    return (yield from step("a").call(str))


@workflow
def hands_on_results() -> Steps[str]:
    """Steps that take a child's result, and the results of a group's members."""
    child = yield from step("child").run_workflow(one_step)
    group = yield from step("all").parallel(step("a").call(str), step("b").call(str))
    yield from step("use").call(repr, (child, group))
    return (yield from step("go").ask("Go?"))


async def test_a_result_that_was_read_from_the_record_is_no_other_argument() -> None:
    """When a result was recorded, and that it was read, is no part of what a step was given."""
    executor = Executor(journal=MemoryJournal())
    await executor.options(run_id=RUN).run(hands_on_results)
    await executor.answer(RUN, "go", "yes")
    assert (await executor.resume(RUN, hands_on_results)).value == "yes"


def child_of(*versions: str) -> Callable[[Edited, int], Steps[Any]]:
    """A child with these steps, a letter each, in each version; behind it one works with its
    result. A capital is a group of members that are called so; what is broken is retried once.
    """

    def body(run: Edited, version: int) -> Steps[Any]:
        def one(name: str) -> Step[Any]:
            if name.islower():
                return run.does(name)
            if name < "M":
                return step(name).parallel(*(run.does(f"m{number}") for number in range(2)))
            return step(name).for_each(["p", "q"], lambda item: run.does(f"{name}{item}"), key=str)

        @workflow("child")
        def child() -> Steps[Any]:
            for name in versions[version - 1]:
                yield from one(name)

        run.seen = []
        result: WorkflowResult[Any] = yield from step("child").run_workflow(child).retry(2)
        run.seen += [[one.path for one in result.step_results], result.final_output]
        yield from step("use").call(run.act, str(run.seen))
        yield from run.does("last")

    return body


CHANGES = {
    "inserted": ("xz", "nx", ["child/n", "child/x"], "x"),
    "swapped": ("xyz", "yx", ["child/y", "child/x"], "x"),
    "moved behind what is new": ("xyz", "yax", ["child/y", "child/a", "child/x"], "x"),
    "between groups": (
        "AZz",
        "ZnA",
        [f"child/{path}" for path in ("Z", "Z/p/Zp", "Z/q/Zq", "n", "A", "A/m0", "A/m1")],
        ("m0", "m1"),
    ),
    "lost": ("xyz", "x", ["child/x"], "x"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("retried", [False, True])
async def test_a_child_that_changed_lists_its_steps_in_order_whenever_it_is_read(
    change: str, *, retried: bool
) -> None:
    """In the order in which the drive came to them in which it ended, and none but these; whether
    that was in its first attempt or not.
    """
    old, new, paths, output = CHANGES[change]
    run = Edited(child_of(old, new))
    ended = f"child~2/{old[-2]}" if retried else f"child/{old[-2]}"
    died = await run.by(1, *(["z"] if retried else []), dies_after=(ev.StepCompleted, ended))
    assert died[0] == "killed"
    base = "child~2" if retried else "child"
    expected = [one.replace("child", base, 1) for one in paths]
    for _ in range(2):
        assert (await run.by(2, "last"))[0] == "failed"
        assert [one for one in run.seen[0] if one.startswith(f"{base}/")] == expected
        assert run.seen[1] == output
    assert await run.by(2) == ("succeeded", ["last"])
    result = await run.executor().resume(RUN, run.flow)
    assert [one.path for one in result.step("child").output.step_results] == run.seen[0]


def losing(part: str) -> Callable[[Edited, int], Steps[Any]]:
    """A child in which something loses a step from one version to the next, before that has an end:
    a member, a group, or a step its fallback; and one that works with the child's result.
    """

    def body(run: Edited, version: int) -> Steps[Any]:
        def member(item: str) -> Steps[Any]:
            yield from run.does(f"{item}1")
            if version == 1:
                yield from run.does(f"{item}2")

        def parts() -> dict[str, Step[Any]]:
            both = [run.does("a"), run.does("slow b")]
            return {
                "each": step("each").for_each(["p", "q"], member, key=str, max_concurrency=1),
                "both": step("both").parallel(*both[version - 1 :]),
                "broken": run.does("broken").on_error(
                    lambda _context, _failed: run.does("one" if version == 1 else "other")
                ),
                "mended": run.does("mended").on_error(
                    lambda _context, _failed: run.does("needless")
                ),
            }

        @workflow("child")
        def child() -> Steps[Any]:
            yield from parts()[part]
            yield from run.does("behind")

        result: WorkflowResult[Any] = yield from step("child").run_workflow(child)
        run.seen = [[one.path for one in result.step_results]]
        yield from run.does("last")

    return body


@pytest.mark.parametrize(
    ("part", "gone", "left"),
    [
        ("each", "each/p/p2", ["each", "each/p/p1", "each/q/q1"]),
        ("both", "both/a", ["both", "both/slow b"]),
        ("broken", "broken/one", ["broken", "broken/other"]),
    ],
)
@pytest.mark.parametrize("dies", [False, True])
async def test_what_was_lost_before_something_ended_is_no_part_of_it(
    part: str, gone: str, left: list[str], *, dies: bool
) -> None:
    """Whether the process died between that and the end of what it stands in, or not."""
    run = Edited(losing(part))
    known = f"child/{gone}"
    assert (await run.by(1, "broken", dies_after=(ev.StepCompleted, known)))[0] == "killed"
    if dies:
        died = await run.by(2, "broken", dies_after=(ev.StepCompleted, f"child/{part}"))
        assert died[0] == "killed"
    assert (await run.by(2, "broken"))[0] == "succeeded"
    assert run.seen == [[f"child/{path}" for path in (*left, "behind")]]
    result = await run.executor().resume(RUN, run.flow)
    assert [one.path for one in result.step_results] == ["child", *run.seen[0], "last"]
    assert known in result.orphaned


@pytest.mark.parametrize("dies", [False, True])
async def test_a_fallback_that_is_needed_no_more_is_no_part_of_its_step(*, dies: bool) -> None:
    """Its step runs again, because somebody asked for it, and needs none."""
    run = Edited(losing("mended"))
    died = await run.by(1, "mended", dies_after=(ev.StepCompleted, "child/mended/needless"))
    assert died[0] == "killed"
    again: dict[str, Any] = {"rerun": ("child/mended",)}
    if dies:
        at = (ev.StepCompleted, "child/mended")
        assert (await run.by(1, **again, dies_after=at))[0] == "killed"
        again = {}
    assert (await run.by(1, **again))[0] == "succeeded"
    assert run.seen == [["child/mended", "child/behind"]]
    result = await run.executor().resume(RUN, run.flow)
    assert [one.path for one in result.step_results] == ["child", *run.seen[0], "last"]


def undone_with_another_argument(run: Edited, version: int) -> Steps[Any]:
    """A step that changed, and can be undone."""
    yield from run.does_with("a", version).with_rollback(lambda _: run.act("undo a"))
    yield from run.does("b")


@pytest.mark.parametrize("asked_before", [False, True])
async def test_a_run_whose_code_has_changed_can_be_cancelled(*, asked_before: bool) -> None:
    """It is only unwound, by its record: there is nothing to choose."""
    run = Edited(undone_with_another_argument)
    await run.by(1, dies_after=(ev.StepCompleted, "a"))
    run.flow = run.version(2)
    if asked_before:
        dies_after = (ev.CancelRequested, "")
        assert (await run.drive(cancel=True, dies_after=dies_after))[0] == "killed"
    assert await run.drive(cancel=not asked_before) == ("cancelled", ["undo a"])


def shorter_or_raising(run: Edited, version: int) -> Steps[Any]:
    """Two steps that can be undone; by the next version one, and by the third it raises then; the
    fourth has a new step. By the fifth both are there, and it raises.
    """
    yield from run.undoable("a")
    if version in {1, 5}:
        yield from run.undoable("b")
    if version == 1:
        yield from step("nap").sleep(60)
    if version in {3, 5}:
        raise WorkflowError("a mistake")
    if version == 4:
        yield from run.does("new")


@pytest.mark.parametrize("version", [1, 2, 3, 4])
@pytest.mark.parametrize("cancels", [False, True])
async def test_a_cancelled_run_that_died_in_its_rollbacks_ends_as_cancelled(
    version: int, *, cancels: bool
) -> None:
    """Whatever its code says by then, and whether somebody asks again; the rest is undone."""
    run = Edited(shorter_or_raising)
    await run.by(1, dies_after=(ev.StepCompleted, "b"))
    died = await run.by(1, cancel=True, dies_after=(ev.RollbackCompleted, "b"))
    assert died == ("killed", ["undo b"])
    ended = await run.by(version, cancel=cancels, limits=Limits(max_steps=3))
    assert ended == ("cancelled", ["undo a"])
    assert run.error == "enough"


@pytest.mark.parametrize("dies", [False, True])
async def test_a_failed_run_that_died_in_its_rollbacks_is_not_cancelled_any_more(
    *, dies: bool
) -> None:
    """Its end had been decided, wherever its process dies after that."""
    run = Edited(shorter_or_raising)
    assert (await run.by(5, dies_after=(ev.RollbackStarted, "b")))[0] == "killed"
    left = ["undo b", "undo a"]
    if dies:
        died = await run.by(5, cancel=True, dies_after=(ev.RollbackCompleted, "b"))
        assert died == ("killed", [left.pop(0)])
        assert any(isinstance(one, ev.CancelRequested) for one in run.journal.events(RUN))
    assert await run.by(5, cancel=not dies) == ("failed", left)
    assert run.error == "a mistake"


def group_or_leaf(run: Edited, version: int) -> Steps[Any]:
    """A group of what can be undone; by the next version a call of the same name."""
    members = (run.undoable("m1"), run.undoable("m2"))
    yield from step("a").parallel(*members) if version == 1 else run.undoable("a")
    yield from run.does("b")


async def test_a_run_is_not_unwound_by_steps_of_another_kind() -> None:
    """What was done could not be undone by them; nothing is undone that was not done."""
    run = Edited(group_or_leaf)
    await run.by(1, dies_after=(ev.StepCompleted, "a"))
    before = run.journal.events(RUN)
    with pytest.raises(ReplayMismatch, match="'a' was parallel"):
        await run.by(2, cancel=True)
    assert run.journal.events(RUN) == before
    status, done = await run.by(1, cancel=True)
    assert (status, sorted(done)) == ("cancelled", ["undo m1", "undo m2"])


def new_in_front(run: Edited, version: int) -> Steps[Any]:
    """A child that has ended, with a new step in front of one that can be undone; the rollback of
    another step was taken out; a third one is as it was.
    """

    @workflow("child")
    def child() -> Steps[Any]:
        if version > 1:
            yield from run.does("new")
        yield from run.undoable("a")

    yield from step("child").run_workflow(child)
    yield from run.does("b") if version > 1 else run.undoable("b")
    yield from run.undoable("c")
    yield from run.does("last")


async def test_what_changed_code_cannot_undo_any_more_is_named_by_the_result() -> None:
    """Nothing is left done in silence; the code that knows how can still undo it."""
    run = Edited(new_in_front)
    assert (await run.by(1, dies_after=(ev.StepCompleted, "c")))[0] == "killed"
    with pytest.raises(ReplayMismatch, match="'child'"):
        await run.by(2, "last")
    assert await run.by(2, "last", reuse=("child",)) == ("failed", ["last", "undo c"])
    assert await run.by(2) == ("succeeded", ["c", "last"])
    ends = [one for one in run.journal.events(RUN) if isinstance(one, ev.WorkflowCompleted)]
    assert [error.path for error in ends[0].rollback_errors] == ["b", "child/a"]
    for error in ends[0].rollback_errors:
        assert error.error.startswith("it was not undone: the code has no rollback for it any more")
        assert error.error_type == "handrail.errors.WorkflowError"
    assert ends[1].rollback_errors == ()


async def test_what_one_version_could_not_undo_the_next_one_undoes() -> None:
    """It is on record as done until then, and not as undone."""
    run = Edited(new_in_front)
    assert (await run.by(1, dies_after=(ev.StepCompleted, "c")))[0] == "killed"
    assert await run.by(2, "last", reuse=("child",)) == ("failed", ["last", "undo c"])
    assert await run.by(1, "last") == ("failed", ["c", "last", "undo c", "undo b", "undo a"])


def one_that_breaks(run: Edited, version: int) -> Steps[Any]:
    """A child that begins with a step that breaks, and a group of what can be undone."""
    assert version
    child = just(
        run.undoable("x"), step("both").parallel(run.undoable("a"), run.does("b")), run.does("y")
    )
    yield from step("child").run_workflow(child)


async def test_what_a_failed_drive_did_not_come_to_again_is_named_wherever_it_stands() -> None:
    """Somebody asked for a step again, which fails now; behind it is what can be undone."""
    run = Edited(one_that_breaks)
    assert (await run.by(1))[0] == "succeeded"
    assert await run.by(1, "x", rerun=("child/x",)) == ("failed", ["x"])
    last = run.journal.events(RUN)[-1]
    assert isinstance(last, ev.WorkflowCompleted)
    assert [error.path for error in last.rollback_errors] == ["child/both/a"]
    assert await run.by(1, "y", rerun=("child/y",)) == ("failed", ["x", "y", "undo a", "undo x"])


def lists_again(run: Edited, version: int) -> Steps[Any]:
    """A child that begins with what can be undone; behind it stand a group and one that breaks."""
    assert version
    child = just(
        run.undoable("u"), step("both").parallel(run.does("a"), run.does("b")), run.does("y")
    )
    yield from step("child").run_workflow(child)


async def test_a_group_that_a_failed_drive_did_not_come_to_is_listed_with_its_output() -> None:
    """It stands in something that ran again, and failed before it came there."""
    run = Edited(lists_again)
    assert (await run.by(1, "y"))[0] == "failed"
    run.broken = {"u"}
    result = await run.executor().resume(RUN, run.flow)
    assert result.step("child/both").output == ("a", "b")


def group_then_leaf(run: Edited, version: int) -> Steps[Any]:
    """A group; by the next version a call of the same name."""
    group = step("x").parallel(run.does("a"), run.does("b"))
    run.seen = [(yield from group if version == 1 else run.does("x"))]
    yield from run.does("last")


async def test_what_a_group_gave_can_be_reused_for_a_call() -> None:
    """Its output is not stored twice, whatever stands in its place now."""
    run = Edited(group_then_leaf)
    assert (await run.by(1, "last"))[0] == "failed"
    assert await run.by(2, reuse=("x",)) == ("succeeded", ["last"])
    assert run.seen == [("a", "b")]


def beside_one_that_is_slow_to_stop(run: Edited, version: int) -> Steps[Any]:
    """Two members; in one a step that can be undone is another, behind one that is new."""

    async def slow() -> None:
        if version == 1:
            await anyio.wait_all_tasks_blocked()
            return
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                run.stopping.set()
                await run.may_stop.wait()

    @workflow("two")
    def two() -> Steps[Any]:
        if version > 1:
            yield from run.does("new")
        yield from run.does_with("a", version).with_rollback(lambda _: run.act("undo a"))
        yield from run.does("behind")

    yield from step("both").parallel(step("slow").call(slow), step("two").run_workflow(two))


async def test_a_cancel_while_a_late_change_ends_the_drive_drops_no_success() -> None:
    """What changed has no other end by that; the code that it is of undoes it."""
    run = Edited(beside_one_that_is_slow_to_stop)
    assert (await run.by(1, dies_after=(ev.StepCompleted, "both/two/a")))[0] == "killed"

    async def cancels(drive: Run[Any]) -> None:
        await run.stopping.wait()
        drive.cancel("enough")
        await anyio.wait_all_tasks_blocked()
        run.may_stop.set()

    async def drives(tasks: TaskGroup) -> None:
        async with run.executor().stream_resume(RUN, run.version(2)) as drive:
            tasks.start_soon(cancels, drive)
            async for _ in drive:
                pass

    async with anyio.create_task_group() as tasks:
        with pytest.raises(
            ReplayMismatch, match="steps that ran before this was found are recorded"
        ):
            await drives(tasks)
    history = run.journal.events(RUN)
    assert any(isinstance(event, ev.CancelRequested) for event in history)
    ends = [one for one in history if isinstance(one, ev.StepCompleted)]
    assert [one.status for one in ends if one.path == "both/two/a"] == ["succeeded"]
    assert await run.by(1) == ("cancelled", ["undo a"])


def with_a_fallback(run: Edited, version: int) -> Steps[Any]:
    """A child of two steps with a fallback, and one behind it."""
    assert version
    child = just(run.does("x"), run.does("y"))
    failure_for_unserializable = run.does("instead")
    yield from (
        step("child")
        .run_workflow(child)
        .on_error(lambda _context, _failed: failure_for_unserializable)
    )
    yield from run.does("last")


@pytest.mark.parametrize("dies", [False, True])
async def test_what_an_attempt_did_not_come_to_is_none_of_it_after_a_crash(*, dies: bool) -> None:
    """It was done in an earlier drive, by an attempt whose record counts no more."""
    run = Edited(with_a_fallback)
    assert (await run.by(1, "y"))[0] == "succeeded"
    again: dict[str, Any] = {"rerun": ("child/x",)}
    if dies:
        at = (ev.AttemptFailed, "child")
        assert (await run.by(1, "x", **again, dies_after=at))[0] == "killed"
        again = {}
    assert (await run.by(1, "x", **again))[0] == "succeeded"
    result = await run.executor().resume(RUN, run.flow)
    listed = [one.path for one in result.step_results]
    assert listed == ["child", "child/x", "child/instead", "last"]
    assert result.orphaned == ("child/y",)


@pytest.mark.parametrize("name", ["r", "gone"])
@pytest.mark.parametrize("waits", [False, True])
def test_an_error_points_at_the_line_of_the_caller(name: str, waits: bool) -> None:
    """Of a resume that is refused there are two lines of handrail at most behind that line."""
    given = [1]

    @workflow
    def flow() -> Steps[None]:
        yield from step("a").call(abs, given[0])
        yield from step("ask").ask("Go?", choices=["yes"])

    executor = Executor(journal=TextJournal())
    executor.options(run_id="r").run_sync(flow)
    given[0] = 2
    resume = partial(anyio.run, executor.resume) if waits else executor.resume_sync
    with pytest.raises((ReplayMismatch, RunNotFound)) as caught:
        resume(name, flow)
    own = Path(handrail.__file__).parent.as_posix()
    files = [entry.path.as_posix() for entry in caught.traceback]
    assert files[0] == Path(__file__).as_posix()
    assert sum(file.startswith(own) for file in files) == 2
    assert waits or len(files) == 3
