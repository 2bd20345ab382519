"""Runs that are resumed more than once: of each step the last that is on record counts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeAlias

import anyio
import pytest

from handrail import (
    Executor,
    Limits,
    ReplayMismatch,
    Step,
    StepFailed,
    Steps,
    WorkflowError,
    WorkflowResult,
    WrongUse,
    step,
    workflow,
)
from handrail.model import events as ev
from handrail.testing import JumpClock, ProcessGone, TextJournal
from tests.engine.support import RUN, bound, just

At: TypeAlias = "tuple[type[ev.Event], str]"
"""The kind and the path of an event."""


class Driven:
    """One run, drive after drive; in each of them some actions are broken."""

    def __init__(self, body: Callable[[Driven], Steps[Any]]) -> None:
        self.journal, self.clock = TextJournal(), JumpClock()
        self.broken: set[str] = set()
        self.done: list[str] = []
        self.mended = self.retries = False
        self.error: str | None = None
        self.flow = bound(body)(self)

    async def act(self, name: str) -> str:
        """Perform this action; if it is slow, not before all that can go on beside it has."""
        self.done.append(name)
        if name in self.broken:
            raise ValueError(name)
        if name.startswith("slow"):
            await anyio.wait_all_tasks_blocked()
        return name

    def does(self, name: str) -> Step[str]:
        """A step that performs the action of its name."""
        return step(name).call(self.act, name)

    def undoable(self, name: str) -> Step[str]:
        """The same, and it can be undone."""
        return self.does(name).with_rollback(lambda _: self.act(f"undo {name}"))

    def executor(self, limits: Limits | None = None) -> Executor:
        """An executor of the next drive."""
        return Executor(journal=self.journal, clock=self.clock, limits=limits or Limits())

    async def drive(
        self,
        *broken: str,
        dies_after: At | None = None,
        cancel: bool = False,
        limits: Limits | None = None,
        rerun: tuple[str, ...] = (),
        reuse: tuple[str, ...] = (),
    ) -> tuple[str, list[str]]:
        """Run it, or resume or cancel it: how that ended and what was performed."""
        how: dict[str, Any] = {
            "cancel": cancel,
            "limits": limits,
            "rerun": rerun,
            "reuse": reuse,
        }
        writes = None if dies_after is None else await self._writes(dies_after, broken, how)
        self.journal = self.journal.reopened(stop_at=writes, abrupt=False)
        self.broken, executor = set(broken), self.executor(limits)
        self.done.clear()
        with contextlib.suppress(ProcessGone):
            if not self.journal.events(RUN):
                result = await executor.options(run_id=RUN).run(self.flow)
            elif cancel:
                result = await self.cancelled(executor)
            else:
                result = await executor.resume(RUN, self.flow, rerun=rerun, reuse=reuse)
            self.error = result.error
            return result.status, list(self.done)
        self.journal = self.journal.reopened()
        return "killed", list(self.done)

    async def cancelled(self, executor: Executor) -> WorkflowResult[Any]:
        """Cancel the run, which nobody drives."""
        result = await executor.cancel(RUN, "enough", self.flow)
        assert result is not None
        return result

    async def _writes(self, at: At, broken: tuple[str, ...], how: dict[str, Any]) -> int:
        """After how many writes the drive comes to this event; found with a copy of the journal."""
        kept, known = self.journal, len(self.journal.events(RUN))
        self.journal = kept.copied()
        await self.drive(*broken, **how)
        new = self.journal.events(RUN)[known:]
        self.journal = kept
        return next(
            number
            for number, event in enumerate(new, 1)
            if (type(event), getattr(event, "path", "")) == at
        )


def fails_before_its_clean_up(run: Driven) -> Steps[Any]:
    """The step that ends the run stands in a try, and the clean-up is a step."""
    yield from run.does("a")
    try:
        yield from run.does("b")
    finally:
        yield from run.does("tidy")


def handles_a_failure(run: Driven) -> Steps[Any]:
    """The first step may fail."""
    with contextlib.suppress(StepFailed):
        yield from run.does("a")
    yield from run.does("b")


def one_after_the_other(*made: Callable[[Driven], Step[Any]]) -> Callable[[Driven], Steps[Any]]:
    """Nothing but these steps."""

    def body(run: Driven) -> Steps[Any]:
        for make in made:
            yield from make(run)

    return body


def does(name: str) -> Callable[[Driven], Step[Any]]:
    """A step that performs the action of its name."""
    return lambda run: run.does(name)


def a_group(run: Driven) -> Step[Any]:
    """A group of one."""
    return step("g").parallel(run.does("x"))


def a_group_in_turn(run: Driven) -> Step[Any]:
    """Three members, one after the other."""
    return step("g").for_each([0, 1, 2], lambda n: run.does(f"m{n}"), max_concurrency=1)


def a_child_that_is_undone_whole(run: Driven) -> Step[Any]:
    """A child that has a rollback itself."""
    child = step("child").run_workflow(just(run.does("x")))
    return child.with_rollback(lambda _: run.act("undo child"))


@pytest.mark.parametrize(
    ("body", "broken", "first", "then"),
    [
        pytest.param(
            fails_before_its_clean_up, "b", ["a", "b", "tidy"], ["b", "tidy"],
            id="the step that ended the run, and the clean-up, but not what succeeded",
        ),
        pytest.param(
            handles_a_failure, "a b", ["a", "b"], ["b"], id="not a failure that was handled"
        ),
        pytest.param(
            one_after_the_other(lambda run: run.undoable("a"), does("b"), does("c")),
            "c", ["a", "b", "c", "undo a"], ["a", "c"], id="what was undone",
        ),
        pytest.param(
            one_after_the_other(a_group_in_turn), "m1", ["m0", "m1"], ["m1", "m2"],
            id="the members of a group that failed or never began",
        ),
        pytest.param(
            one_after_the_other(a_child_that_is_undone_whole, does("c")),
            "c", ["x", "c", "undo child"], ["x", "c"],
            id="all of a child that was undone as a whole",
        ),
        pytest.param(
            one_after_the_other(lambda run: a_group(run).retry(2, backoff=0)),
            "x", ["x", "x"], ["x"], id="a group that used up its attempts",
        ),
    ],
)  # fmt: skip
async def test_a_failed_run_does_again(
    body: Callable[[Driven], Steps[Any]], broken: str, first: list[str], then: list[str]
) -> None:
    """What is said by the id of the case, and nothing else."""
    run = Driven(body)
    assert await run.drive(*broken.split()) == ("failed", first)
    assert await run.drive() == ("succeeded", then)


async def test_a_group_that_is_run_again_runs_its_members_again() -> None:
    """Also those that succeeded, and no step outside of it."""
    run = Driven(one_after_the_other(a_group, does("b")))
    assert await run.drive() == ("succeeded", ["x", "b"])
    assert await run.drive(rerun=("g",)) == ("succeeded", ["x"])


async def test_what_was_undone_in_an_earlier_drive_is_done_again() -> None:
    """Killed after a rollback, resumed to its failure, and resumed once more."""
    run = Driven(one_after_the_other(lambda run: run.undoable("a"), does("b")))
    await run.drive("b", dies_after=(ev.RollbackCompleted, "a"))
    assert await run.drive("b") == ("failed", [])
    assert await run.drive() == ("succeeded", ["a", "b"])


async def test_clean_up_is_done_again_whichever_drive_the_failure_was_in() -> None:
    """Killed in the clean-up, resumed to the failure, and resumed once more."""
    run = Driven(fails_before_its_clean_up)
    await run.drive("b", dies_after=(ev.StepStarted, "tidy"))
    assert await run.drive("b") == ("failed", ["tidy"])
    assert await run.drive("b") == ("failed", ["b", "tidy"])


async def test_a_step_that_must_not_run_twice_needs_a_word_to_run_again() -> None:
    """A resume of the failed run does not run it, however often; ``rerun`` does."""
    run = Driven(one_after_the_other(lambda run: run.does("pay").once()))
    await run.drive(dies_after=(ev.StepStarted, "pay"))
    for _ in range(3):
        assert await run.drive() == ("failed", [])
        assert "StepWasInterrupted" in (run.error or "")
    assert await run.drive(rerun=("pay",)) == ("succeeded", ["pay"])


def in_turn(run: Driven) -> Steps[None]:
    """Two members, one after the other."""

    def member(number: int) -> Steps[None]:
        yield from run.does(f"x{number}")
        yield from run.does(f"y{number}")

    yield from step("each").for_each([1, 2], member, key=str, max_concurrency=1)


async def test_members_that_fail_in_turn_are_not_begun_again_when_they_have_succeeded() -> None:
    """Every bug is mended and the run is resumed: until the last, what succeeded stays."""
    run = Driven(in_turn)
    assert await run.drive("x1") == ("failed", ["x1"])
    assert await run.drive("y2") == ("failed", ["x1", "y1", "x2", "y2"])
    assert await run.drive() == ("succeeded", ["y2"])


def sleeps(run: Driven) -> Steps[None]:
    """A step that can be cancelled, two others, and a mistake until it is mended."""
    yield from step("nap").sleep(60)
    yield from run.does("a")
    yield from run.does("b")
    if not run.mended:
        raise WorkflowError("a mistake")


async def test_a_step_that_was_cancelled_once_and_succeeded_then_is_kept() -> None:
    """What the second drive came to counts, also if it failed later."""
    run = Driven(sleeps)
    await run.drive(dies_after=(ev.TimerSet, "nap"))
    assert await run.drive(cancel=True) == ("cancelled", [])
    assert await run.drive("b") == ("failed", ["a", "b"])
    assert await run.drive() == ("failed", ["b"])
    run.mended = True
    assert await run.drive() == ("succeeded", [])


async def test_an_old_limit_does_not_end_a_later_drive() -> None:
    """What is done after it is no clean-up, whatever ends that drive."""
    run = Driven(sleeps)
    assert await run.drive(limits=Limits(max_steps=1)) == ("failed", [])
    assert await run.drive() == ("failed", ["a", "b"])
    run.mended = True
    assert await run.drive() == ("succeeded", [])


async def test_a_limit_that_is_lower_now_is_hit_by_what_is_new() -> None:
    """What is on record was let in: it keeps its one end, and all of it is undone."""
    run = Driven(letters)
    await run.drive(dies_after=(ev.StepCompleted, "c"))
    assert await run.drive(limits=Limits(max_steps=1)) == (
        "failed",
        ["undo c", "undo b", "undo a"],
    )
    ends = [one.path for one in run.journal.events(RUN) if isinstance(one, ev.StepCompleted)]
    assert ends == ["a", "b", "c", "d"]


def letters(run: Driven) -> Steps[None]:
    """Four steps that can be undone."""
    for name in "abcd":
        yield from run.undoable(name)


async def test_a_limit_that_was_hit_is_hit_again() -> None:
    """The steps of groups count, whether they ended in this drive or before."""
    run = Driven(in_turn)
    most = Limits(max_steps=4)
    assert await run.drive(limits=most) == ("failed", ["x1", "y1", "x2"])
    assert await run.drive(limits=most) == ("failed", [])
    assert await run.drive() == ("succeeded", ["y2"])


def group_that_fails(run: Driven) -> Steps[Any]:
    """The failure of a group is handled, and what its members did can be undone."""

    def member(name: str) -> Steps[None]:
        yield from run.undoable(f"do-{name}")
        yield from run.does(f"slow-{name}" if name == "a" else f"then-{name}")

    with contextlib.suppress(StepFailed):
        yield from step("each").for_each(["a", "b"], member, key=str)
    yield from run.does("end")


async def test_a_group_that_is_entered_again_is_not_stopped_by_what_was_cancelled_in_it() -> None:
    """The run failed later, and undid steps of the group: so they run again; its failure stays."""
    run = Driven(group_that_fails)
    assert (await run.drive("then-b", "end"))[0] == "failed"
    status, done = await run.drive()
    assert status == "succeeded"
    assert {"do-b", "end"} <= set(done)
    assert "then-b" not in done


def races(run: Driven) -> Steps[Any]:
    """A child workflow that can be undone loses a race, which can be undone, too."""
    child = just(run.undoable("a"), run.does("slow"))
    yield from step("race").race(step("child").run_workflow(child), run.undoable("wins"))
    yield from run.does("end")


async def test_the_loser_of_a_race_that_is_run_again_begins_anew() -> None:
    """What it did was undone when it lost, so it counts no more if the winner was undone, too."""
    run = Driven(races)
    assert (await run.drive("end"))[0] == "failed"
    status, done = await run.drive("wins")
    assert status == "succeeded"
    assert "a" in done


def all_or_nothing(run: Driven) -> Steps[Any]:
    """The failure of a group that undoes itself is handled."""
    with contextlib.suppress(StepFailed):
        yield from step("g").parallel(
            run.undoable("a"), run.does("b"), on_error="all_or_nothing", max_concurrency=1
        )


async def test_a_handled_failure_that_undid_itself_is_not_entered_again() -> None:
    """It is raised again, and what it had undone stays undone."""
    run = Driven(all_or_nothing_handled)
    assert await run.drive("fails", "after") == (
        "failed",
        ["a", "b", "fails", "undo b", "undo a", "after"],
    )
    assert await run.drive() == ("succeeded", ["after"])


async def test_what_a_group_undid_is_done_again_when_one_of_its_members_is() -> None:
    """The group succeeds with all of its members, or not at all."""
    run = Driven(all_or_nothing)
    assert await run.drive("b") == ("succeeded", ["a", "b", "undo a"])
    assert await run.drive(rerun=("g/b",)) == ("succeeded", ["a", "b"])


def tidies_up(run: Driven) -> Steps[Any]:
    """Members that clean up, whatever they come to; none may take longer than a minute."""

    def member(name: str) -> Steps[None]:
        yield from run.undoable(f"do-{name}")
        try:
            yield from run.does(f"slow-{name}") if name == "a" else run.does(name)
        finally:
            yield from run.does(f"tidy-{name}")
            yield from run.does(f"swept-{name}")

    yield from step("each").for_each(["a", "b"], member, key=str)


async def test_what_a_stopped_member_cleaned_up_is_cleaned_up_again() -> None:
    """It works again, and so it has something to clean up again."""
    run = Driven(tidies_up)
    status, done = await run.drive("b")
    assert (status, "tidy-a" in done) == ("failed", True)
    status, done = await run.drive()
    assert status == "succeeded"
    assert {"slow-a", "tidy-a", "swept-a", "b", "tidy-b", "swept-b"} <= set(done)


@pytest.mark.parametrize("cancel", [False, True])
@pytest.mark.parametrize("kind", [ev.StepStarted, ev.StepCompleted])
async def test_a_member_goes_on_cleaning_up_where_its_process_died(
    kind: type[ev.Event], *, cancel: bool
) -> None:
    """Also if the run is cancelled then: what was begun to be cleaned up is."""
    run = Driven(tidies_up)
    await run.drive("b", dies_after=(kind, "each/a/tidy-a"))
    status, done = await run.drive(cancel=cancel)
    assert status == ("cancelled" if cancel else "failed")
    assert "swept-a" in done
    assert ("tidy-a" in done) == (kind is ev.StepStarted)


def falls_back(run: Driven) -> Steps[Any]:
    """A child workflow with a fallback."""
    tried = step("child").run_workflow(just(run.does("x")))
    yield from tried.on_error(lambda _context, _failed: run.does("instead"))


async def test_a_child_whose_fallback_failed_too_is_tried_again() -> None:
    """The failure of the fallback does not hide the one that it was to mend."""
    run = Driven(falls_back)
    assert await run.drive("x", "instead") == ("failed", ["x", "instead"])
    assert await run.drive("instead") == ("succeeded", ["x"])


def unwraps(run: Driven) -> Steps[Any]:
    """A group collects its failures, and the workflow fails by one of them."""
    found = yield from step("g").parallel(
        run.does("a"), run.does("b"), on_error="continue", max_concurrency=1
    )
    return [one.unwrap() for one in found]


async def test_members_that_succeeded_beside_one_that_failed_are_kept() -> None:
    """They were begun after it, and are no clean-up."""
    run = Driven(unwraps)
    assert await run.drive("a") == ("failed", ["a", "b"])
    assert await run.drive() == ("succeeded", ["a"])


def undone_in_the_end(run: Driven) -> Steps[Any]:
    """Two steps that can be undone, and one that fails; mended code handles that."""
    yield from run.undoable("a")
    yield from run.undoable("b")
    try:
        yield from run.does("fails")
    except StepFailed:
        if not run.mended:
            raise
    yield from run.does("end")


async def test_a_run_whose_rollbacks_have_begun_fails_whatever_its_code_says_now() -> None:
    """It does not succeed with half of it undone; and it can be resumed from there."""
    run = Driven(undone_in_the_end)
    await run.drive("fails", dies_after=(ev.RollbackCompleted, "b"))
    run.mended = True
    planned = await run.executor().plan(RUN, run.flow)
    assert planned.undoes == ("a",)
    assert await run.drive() == ("failed", ["undo a"])
    assert await run.drive() == ("succeeded", ["a", "b", "end"])


async def test_nothing_is_run_again_in_the_midst_of_rollbacks() -> None:
    """Who asks for it is told what to do first, and nothing happens."""
    run = Driven(undone_in_the_end)
    await run.drive("fails", dies_after=(ev.RollbackCompleted, "b"))
    before = run.journal.events(RUN)
    with pytest.raises(WrongUse, match="rollbacks had begun"):
        await run.drive(rerun=("fails",))
    assert run.journal.events(RUN) == before
    assert await run.drive() == ("failed", ["undo a"])
    assert await run.drive(rerun=("fails",)) == ("succeeded", ["a", "b", "fails", "end"])


def undone_in_a_child(run: Driven) -> Steps[Any]:
    """A child workflow that undoes itself, and something before it."""
    child = just(run.undoable("a"), run.undoable("b"), run.does("fails"))
    yield from run.undoable("before")
    yield from step("child").run_workflow(child)


async def test_a_plan_tells_what_a_child_has_still_to_undo() -> None:
    """And the resume undoes that first."""
    run = Driven(undone_in_a_child)
    await run.drive("fails", dies_after=(ev.RollbackStarted, "child/b"))
    planned = await run.executor().plan(RUN, run.flow)
    assert planned.undoes == ("child/b", "child/a")
    assert await run.drive() == ("failed", ["undo b", "undo a", "undo before"])


def handled_in_a_child(run: Driven) -> Steps[Any]:
    """A child workflow that undoes itself; mended code handles its failure."""

    @workflow
    def child() -> Steps[Any]:
        yield from run.undoable("a")
        yield from run.undoable("b")
        with contextlib.suppress(StepFailed if run.mended else ()):
            yield from run.does("fails")
        yield from run.undoable("end")

    yield from step("child").run_workflow(child).retry(2 if run.retries else 1)


@pytest.mark.parametrize("dies", [ev.RollbackStarted, ev.RollbackCompleted])
async def test_a_child_whose_rollbacks_have_begun_fails_whatever_its_code_says_now(
    dies: type[ev.Event],
) -> None:
    """It does not succeed with half of it undone, and what it did since is undone with the rest."""
    run = Driven(handled_in_a_child)
    await run.drive("fails", dies_after=(dies, "child/b"))
    run.mended = True
    b_again = ["undo b"] * (dies is ev.RollbackStarted)
    assert await run.drive() == ("failed", ["end", "undo end", *b_again, "undo a"])
    assert "step 'child' had failed before, and its rollbacks had begun" in (run.error or "")
    assert await run.drive() == ("succeeded", ["a", "b", "end"])


async def test_a_child_that_is_undone_is_tried_again_if_it_may_be() -> None:
    """Only the attempt that was undone fails."""
    run = Driven(handled_in_a_child)
    run.retries = True
    await run.drive("fails", dies_after=(ev.RollbackCompleted, "child/b"))
    run.mended = True
    assert await run.drive() == (
        "succeeded",
        ["end", "undo end", "undo a", "a", "b", "fails", "end"],
    )


def all_or_nothing_once(run: Driven) -> Steps[Any]:
    """A group that undoes itself; by mended code it goes on without what failed."""
    how = "continue" if run.mended else "all_or_nothing"
    members = (run.undoable("a"), run.undoable("b"), run.does("fails"))
    yield from step("g").parallel(*members, max_concurrency=1, on_error=how)


async def test_a_group_whose_rollbacks_have_begun_fails_whatever_its_code_says_now() -> None:
    """It does not succeed with half of it undone, and undoes the other half."""
    run = Driven(all_or_nothing_once)
    await run.drive("fails", dies_after=(ev.RollbackCompleted, "g/b"))
    run.mended = True
    assert await run.drive() == ("failed", ["undo a"])
    assert await run.drive() == ("succeeded", ["a", "b", "fails"])


def all_or_nothing_handled(run: Driven) -> Steps[Any]:
    """The same, whose failure is handled."""
    how = "continue" if run.mended else "all_or_nothing"
    members = (run.undoable("a"), run.undoable("b"), run.does("fails"))
    with contextlib.suppress(StepFailed):
        yield from step("g").parallel(*members, max_concurrency=1, on_error=how)
    yield from run.does("after")


async def test_a_group_that_was_half_undone_is_undone_though_its_failure_is_handled() -> None:
    """Whoever handles it may rely on that, as on any group that is all or nothing."""
    run = Driven(all_or_nothing_handled)
    await run.drive("fails", dies_after=(ev.RollbackCompleted, "g/b"))
    run.mended = True
    assert await run.drive() == ("succeeded", ["undo a", "after"])


def half_undone_and_slow(run: Driven) -> Steps[Any]:
    """A group that undoes itself; by mended code it goes on, and takes too long at first."""

    async def slow(number: list[int]) -> None:
        run.done.append("slow")
        if number.pop():
            await run.clock.sleep(100)

    how = "continue" if run.mended else "all_or_nothing"
    members = [run.undoable("a"), run.undoable("b"), run.does("fails")]
    if run.mended:
        members.append(step("slow").call(slow, [0, 1]))
    group = step("g").parallel(*members, max_concurrency=1, on_error=how)
    yield from group.timeout(0.5).retry(2)


async def test_only_the_attempt_that_was_half_undone_fails() -> None:
    """One that was ended by its time is over, too."""
    run = Driven(half_undone_and_slow)
    await run.drive("fails", dies_after=(ev.RollbackCompleted, "g/b"))
    run.mended = True
    assert (await run.drive())[0] == "succeeded"


async def test_another_item_under_a_recorded_key_is_found_in_a_run_that_failed_too() -> None:
    """What was done with the item that was there before is not taken for work on this one."""
    items = [10, 20]
    run = Driven(lambda run: over(run, items))
    assert (await run.drive("second"))[0] == "failed"
    items.reverse()
    with pytest.raises(ReplayMismatch, match="was item 10, is item 20"):
        await run.drive()
    items.reverse()
    assert (await run.drive())[0] == "succeeded"


def over(run: Driven, items: list[int]) -> Steps[None]:
    """Members whose steps do not say which item they are of."""

    def member(_item: int) -> Steps[None]:
        yield from run.does("first")
        yield from run.does("second")

    yield from step("each").for_each(items, member, max_concurrency=1)


async def test_a_step_that_is_run_again_is_reused_no_more() -> None:
    """Somebody kept a recorded output that did not fit the code, then had the step run again."""
    name = ["one"]

    def changing(run: Driven) -> Steps[None]:
        yield from step("b").call(run.act, name[0])
        yield from run.does("end")

    run = Driven(changing)
    await run.drive("end")
    name[0] = "two"
    assert await run.drive("end", reuse=("b",)) == ("failed", ["end"])
    assert await run.drive("end", rerun=("b",)) == ("failed", ["two", "end"])
    name[0] = "three"
    with pytest.raises(ReplayMismatch):
        await run.drive()


async def test_an_answer_counts_for_the_question_that_was_asked() -> None:
    """The code asks something else now, but its process died before anybody could read that."""
    question = ["Keep it?"]

    def asks(_run: Driven) -> Steps[str]:
        return (yield from step("q").ask(question[0], choices=["yes", "no"]))

    run = Driven(asks)
    assert (await run.drive())[0] == "suspended"
    question[0] = "Delete it?"
    await run.drive(dies_after=(ev.StepStarted, "q"))
    await run.executor().answer(RUN, "q", "yes")
    with pytest.raises(ReplayMismatch, match="Keep it"):
        await run.drive()


def in_a_child(run: Driven) -> Steps[Any]:
    """A child workflow of three steps, the first of which can be undone; it says more of that."""

    @workflow
    def child() -> Steps[Any]:
        try:
            yield from run.undoable("x")
        except StepFailed as error:
            if run.mended:
                raise ValueError("x is broken") from error
            raise
        yield from run.does("y")
        yield from run.does("z")

    yield from step("child").run_workflow(child)


@pytest.mark.parametrize("own_error", [False, True])
async def test_what_a_body_did_in_an_earlier_drive_is_not_behind_what_fails_in_this_one(
    *, own_error: bool
) -> None:
    """It is no clean-up, and no sign that the body went on from there."""
    run = Driven(in_a_child)
    assert await run.drive("z") == ("failed", ["x", "y", "z", "undo x"])
    run.mended = own_error
    assert await run.drive("x") == ("failed", ["x"])
    assert await run.drive() == ("succeeded", ["x", "z"])


def collects_in_a_child(run: Driven) -> Steps[Any]:
    """A child workflow fails by what its group collected."""

    @workflow
    def child() -> Steps[Any]:
        found = yield from step("g").parallel(
            run.does("a"), run.does("b"), run.does("c"), on_error="continue", max_concurrency=1
        )
        return [one.unwrap() for one in found]

    yield from step("child").run_workflow(child)


async def test_a_collected_failure_that_ended_a_child_is_tried_again() -> None:
    """The group had succeeded, and is entered again for it; what was begun after it is kept."""
    run = Driven(collects_in_a_child)
    assert await run.drive("b") == ("failed", ["a", "b", "c"])
    assert await run.drive() == ("succeeded", ["b"])


def waits_in_a_group(run: Driven) -> Steps[Any]:
    """One member has ended when the other one is cancelled."""
    yield from step("g").parallel(run.does("a"), step("nap").sleep(60))
    yield from run.does("end")


async def test_a_cancellation_that_took_two_drives_drops_what_one_would_have() -> None:
    """The group is entered again to be cancelled again; that is not to begin it."""
    run = Driven(waits_in_a_group)
    await run.drive(dies_after=(ev.StepCompleted, "g/a"))
    await run.drive(cancel=True, dies_after=(ev.StepCompleted, "g/nap"))
    assert await run.drive() == ("cancelled", [])
    assert await run.drive() == ("succeeded", ["end"])


async def test_a_limit_that_was_raised_ended_nothing() -> None:
    """The process died when it was reached; the run went on, and failed by something else."""
    run = Driven(sleeps)
    await run.drive(dies_after=(ev.TimerSet, "nap"))
    await run.drive(limits=Limits(max_steps=1), dies_after=(ev.LimitReached, "a"))
    assert await run.drive() == ("failed", ["a", "b"])
    run.mended = True
    assert await run.drive() == ("succeeded", [])


async def test_a_run_that_is_undone_does_not_succeed_when_nothing_is_left_to_do() -> None:
    """The mended code returns at once."""
    run = Driven(undone_at_once)
    await run.drive("fails", dies_after=(ev.RollbackCompleted, "a"))
    run.mended = True
    assert await run.drive() == ("failed", [])
    assert await run.drive() == ("succeeded", ["a"])


def undone_at_once(run: Driven) -> Steps[Any]:
    """A step that can be undone, and one that fails; mended code goes on without it."""
    yield from run.undoable("a")
    try:
        yield from run.does("fails")
    except StepFailed:
        if not run.mended:
            raise


def tidies_in_a_group(run: Driven) -> Steps[Any]:
    """A child workflow takes too long, and cleans up with a group; its failure is settled."""

    @workflow
    def child() -> Steps[Any]:
        try:
            yield from step("nap").sleep(60)
        finally:
            yield from step("tidy").parallel(run.does("one"), run.does("two"))
            yield from step("more").sleep(60 if run.mended else 0)

    yield from step("child").run_workflow(child).timeout(5).default("late")
    yield from run.does("end")


async def test_clean_up_with_a_group_goes_on_where_its_process_died() -> None:
    """Wherever that is: the step's time was over, not that of its clean-up."""
    whole = Driven(tidies_in_a_group)
    assert (await whole.drive())[0] == "succeeded"
    for writes in range(1, len(whole.journal.events(RUN))):
        run = Driven(tidies_in_a_group)
        run.journal = run.journal.reopened(stop_at=writes, abrupt=False)
        with contextlib.suppress(ProcessGone):
            await run.executor().options(run_id=RUN).run(run.flow)
        first = list(run.done)
        status, done = await run.drive()
        assert status == "succeeded", writes
        assert {*first, *done} == {"one", "two", "end"}, writes
        assert run.clock.now() < whole.clock.now() + 10, writes


async def test_a_clean_up_that_takes_too_long_leaves_the_timeout_what_it_was() -> None:
    """The step failed by its time, and has a default: nobody cancelled the run."""
    run = Driven(tidies_in_a_group)
    run.mended = True
    status, done = await run.drive()
    assert (status, set(done)) == ("succeeded", {"one", "two", "end"})


def waits_for_good_to_tidy(run: Driven) -> Steps[Any]:
    """The clean-up takes too long, and would go on if a step of it failed."""
    try:
        yield from step("nap").sleep(1000)
    finally:
        with contextlib.suppress(StepFailed):
            yield from step("tidy").sleep(1000)
        yield from run.does("more")


async def test_a_clean_up_that_was_stopped_stays_stopped_where_its_process_died() -> None:
    """Its step was cancelled, and did not fail, so the body does not go on from there."""
    run = Driven(waits_for_good_to_tidy)
    limits = Limits(timeout_s=10)
    await run.drive(limits=limits, dies_after=(ev.StepCompleted, "tidy"))
    assert await run.drive(limits=limits) == ("failed", [])
