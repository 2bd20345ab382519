"""Runs that are resumed more than once: of each step the last that is on record counts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import anyio
import pytest

from handrail import (
    Executor,
    Limits,
    ReplayMismatch,
    Stage,
    Step,
    StepFailed,
    Steps,
    StepTimeout,
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
        self.mended = False
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


def undoable(name: str) -> Callable[[Driven], Step[Any]]:
    """The same, and it can be undone."""
    return lambda run: run.undoable(name)


def a_group(run: Driven) -> Step[Any]:
    """A group of one."""
    return step("g").parallel(run.does("x"))


def a_group_undone(run: Driven) -> Step[Any]:
    """A group of one that can be undone."""
    return step("p").parallel(run.undoable("w"))


def a_group_in_turn(run: Driven) -> Step[Any]:
    """Three members, one after the other."""
    return step("g").for_each([0, 1, 2], lambda n: run.does(f"m{n}"), max_concurrency=1)


def a_child_that_is_undone_whole(run: Driven) -> Step[Any]:
    """A child that has a rollback itself."""
    child = step("child").run_workflow(just(run.does("x")))
    return child.with_rollback(lambda _: run.act("undo child"))


def in_turn(run: Driven) -> Steps[None]:
    """Two members, one after the other."""

    def member(number: int) -> Steps[None]:
        yield from run.does(f"x{number}")
        yield from run.does(f"y{number}")

    yield from step("each").for_each([1, 2], member, key=str, max_concurrency=1)


def sleeps(run: Driven) -> Steps[None]:
    """A step that can be cancelled, two others, and a mistake until it is mended."""
    yield from step("nap").sleep(60)
    yield from run.does("a")
    yield from run.does("b")
    if not run.mended:
        raise WorkflowError("a mistake")


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


def unwraps(run: Driven) -> Steps[Any]:
    """A group collects its failures, and the workflow fails by one of them."""
    found = yield from step("g").parallel(
        run.does("a"), run.does("b"), on_error="continue", max_concurrency=1
    )
    return [one.unwrap() for one in found]


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


def handled_in_a_child(run: Driven, attempts: int = 1) -> Steps[Any]:
    """A child workflow that undoes itself; mended code handles its failure."""

    @workflow
    def child() -> Steps[Any]:
        yield from run.undoable("a")
        yield from run.undoable("b")
        with contextlib.suppress(StepFailed if run.mended else ()):
            yield from run.does("fails")
        yield from run.undoable("end")

    yield from step("child").run_workflow(child).retry(attempts)


def tried_twice_in_a_child(run: Driven) -> Steps[Any]:
    """The same, with one more attempt."""
    return handled_in_a_child(run, attempts=2)


def all_or_nothing_once(run: Driven) -> Steps[Any]:
    """A group that undoes itself; by mended code it goes on without what failed."""
    how = "continue" if run.mended else "all_or_nothing"
    members = (run.undoable("a"), run.undoable("b"), run.does("fails"))
    yield from step("g").parallel(*members, max_concurrency=1, on_error=how)


def all_or_nothing_handled(run: Driven) -> Steps[Any]:
    """The same, whose failure is handled."""
    how = "continue" if run.mended else "all_or_nothing"
    members = (run.undoable("a"), run.undoable("b"), run.does("fails"))
    with contextlib.suppress(StepFailed):
        yield from step("g").parallel(*members, max_concurrency=1, on_error=how)
    yield from run.does("after")


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


def collects_in_a_child(run: Driven) -> Steps[Any]:
    """A child workflow fails by what its group collected."""

    @workflow
    def child() -> Steps[Any]:
        found = yield from step("g").parallel(
            run.does("a"), run.does("b"), run.does("c"), on_error="continue", max_concurrency=1
        )
        return [one.unwrap() for one in found]

    yield from step("child").run_workflow(child)


def waits_in_a_group(run: Driven) -> Steps[Any]:
    """One member has ended when the other one is cancelled."""
    yield from step("g").parallel(run.does("a"), step("nap").sleep(60))
    yield from run.does("end")


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


def tidies_in_members(run: Driven) -> Steps[Any]:
    """A group takes too long, and its members clean up; its failure is settled."""

    def member(name: str) -> Steps[Any]:
        try:
            yield from step("nap").sleep(60)
        finally:
            yield from run.does(name)
            yield from step("more").sleep(0)

    yield from step("each").for_each(["one", "two"], member, key=str).timeout(5).default(())
    yield from run.does("end")


@pytest.mark.parametrize("other_words", [False, True])
@pytest.mark.parametrize("body", [tidies_in_a_group, tidies_in_members])
async def test_clean_up_after_a_timeout_goes_on_where_its_process_died(
    body: Callable[[Driven], Steps[Any]], monkeypatch: pytest.MonkeyPatch, *, other_words: bool
) -> None:
    """Wherever that is: the step's time was over, not that of its clean-up.

    And whatever words the timeout has when the run goes on.
    """
    whole = Driven(body)
    assert (await whole.drive())[0] == "succeeded"
    for writes in range(1, len(whole.journal.events(RUN))):
        run = Driven(body)
        run.journal = run.journal.reopened(stop_at=writes, abrupt=False)
        with contextlib.suppress(ProcessGone):
            await run.executor().options(run_id=RUN).run(run.flow)
        first = list(run.done)
        with monkeypatch.context() as patch:
            if other_words:
                patch.setattr(StepTimeout, "__str__", lambda _: "it was late, at the end of time")
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


def works(run: Driven) -> Callable[[object], Steps[Any]]:
    """The body of a member, or of a child."""

    def body(_: object = None) -> Steps[Any]:
        yield from run.undoable("w")

    return body


def mends(run: Driven) -> Step[Any]:
    """A check that fails until it is mended."""
    stage = Stage("k", lambda _: run.done.count("w") > run.done.count("undo w"))
    return step("c").validate([stage], retry=1, on_failure=run.undoable("w"))


INSIDE: dict[str, Callable[[Driven], Step[Any]]] = {
    "a member that is a body": lambda run: step("c").for_each([1], works(run)),
    "a member": lambda run: step("c").for_each([1], lambda _: run.undoable("w")),
    "a parallel": lambda run: step("c").parallel(run.undoable("w")),
    "a race": lambda run: step("c").race(run.undoable("w")),
    "a branch": lambda run: step("c").branch((lambda _: True, run.undoable("w"))),
    "a sub-workflow": lambda run: step("c").run_workflow(just(run.undoable("w"))),
    "a fallback": lambda run: step("c").call(int, "x").on_error(lambda *_: run.undoable("w")),
    "a fix": mends,
}


def three(**options: Any) -> Callable[[Driven], Step[Any]]:
    """Three members that can be undone, one after the other."""
    names = ["w1", "w2", "w3"]
    return lambda run: step("g").for_each(
        names, run.undoable, key=str, max_concurrency=1, **options
    )


def costly(run: Driven) -> Step[Any]:
    """Members one after the other; only the second step of each can be undone."""

    def member(number: int) -> Steps[Any]:
        yield from run.does(f"costly{number}")
        yield from run.undoable(f"w{number}")

    return step("g").for_each([1, 2], member, key=str, max_concurrency=1)


class Drive(NamedTuple):
    """One drive of a run: how it ends and what it performs, and what is broken or asked for."""

    status: str
    performed: str
    broken: str = ""
    dies_after: At | None = None
    cancel: bool = False
    limits: Limits | None = None
    rerun: tuple[str, ...] = ()
    mended: bool = False
    undoes: tuple[str, ...] = ()
    """What a plan of it tells beforehand."""
    anew: str = ""
    """The name of a step that is not recorded any more, as a plan of it tells."""
    settled: bool = False
    """As a plan of it tells, every step is recorded."""
    error: str = ""
    """A part of what is said in the end."""


HALF_UNDONE = Drive("killed", "a, b, fails, undo b", broken="fails")
HAD_BEGUN = "step 'child' had failed before, and its rollbacks had begun"
SHORT = Limits(timeout_s=10)

DRIVES: dict[str, tuple[Callable[[Driven], Steps[Any]], *tuple[Drive, ...]]] = {
    "the step that ended the run runs again, and the clean-up, but not what succeeded": (
        fails_before_its_clean_up,
        Drive("failed", "a, b, tidy", broken="b"),
        Drive("succeeded", "b, tidy"),
    ),
    "clean-up is done again whichever drive the failure was in": (
        fails_before_its_clean_up,
        Drive("killed", "a, b, tidy", "b", (ev.StepStarted, "tidy")),
        Drive("failed", "tidy", broken="b"),
        Drive("failed", "b, tidy", broken="b"),
    ),
    "a failure that was handled is not run again": (
        handles_a_failure, Drive("failed", "a, b", broken="a b"), Drive("succeeded", "b"),
    ),
    "what was undone is done again": (
        one_after_the_other(undoable("a"), does("b"), does("c")),
        Drive("failed", "a, b, c, undo a", broken="c"),
        Drive("succeeded", "a, c"),
    ),
    "what was undone in an earlier drive is done again": (
        one_after_the_other(undoable("a"), does("b")),
        Drive("killed", "a, b, undo a", "b", dies_after=(ev.RollbackCompleted, "a")),
        Drive("failed", "", broken="b"),
        Drive("succeeded", "a, b"),
    ),
    "the members of a group that failed or never began are run": (
        one_after_the_other(a_group_in_turn),
        Drive("failed", "m0, m1", broken="m1"),
        Drive("succeeded", "m1, m2"),
    ),
    "all of a child that was undone as a whole is done again": (
        one_after_the_other(a_child_that_is_undone_whole, does("c")),
        Drive("failed", "x, c, undo child", broken="c"),
        Drive("succeeded", "x, c"),
    ),
    "a group that used up its attempts is run again": (
        one_after_the_other(lambda run: a_group(run).retry(2, backoff=0)),
        Drive("failed", "x, x", broken="x"),
        Drive("succeeded", "x"),
    ),
    "a group that is run again runs its members again, and no step outside of it": (
        one_after_the_other(a_group, does("b")),
        Drive("succeeded", "x, b"),
        Drive("succeeded", "x", rerun=("g",)),
    ),
    "a step that must not run twice needs a word to run again, however often": (
        one_after_the_other(lambda run: run.does("pay").once()),
        Drive("killed", "pay", dies_after=(ev.StepStarted, "pay")),
        Drive("failed", "", error="StepWasInterrupted"),
        Drive("failed", "", error="StepWasInterrupted"),
        Drive("failed", "", error="StepWasInterrupted"),
        Drive("succeeded", "pay", rerun=("pay",)),
    ),
    "members that fail in turn are not begun again when they have succeeded": (
        in_turn,
        Drive("failed", "x1", broken="x1"),
        Drive("failed", "x1, y1, x2, y2", broken="y2"),
        Drive("succeeded", "y2"),
    ),
    "a limit that was hit is hit again, and steps of groups count, whenever they ended": (
        in_turn,
        Drive("failed", "x1, y1, x2", limits=Limits(max_steps=4)),
        Drive("failed", "", limits=Limits(max_steps=4)),
        Drive("succeeded", "y2"),
    ),
    "a step that was cancelled once and succeeded then is kept": (
        sleeps,
        Drive("killed", "", dies_after=(ev.TimerSet, "nap")),
        Drive("cancelled", "", cancel=True),
        Drive("failed", "a, b", broken="b"),
        Drive("failed", "b"),
        Drive("succeeded", "", mended=True),
    ),
    "an old limit does not end a later drive, so what is done after it is no clean-up": (
        sleeps,
        Drive("failed", "", limits=Limits(max_steps=1)),
        Drive("failed", "a, b"),
        Drive("succeeded", "", mended=True),
    ),
    "a limit that was raised when its process had died ended nothing": (
        sleeps,
        Drive("killed", "", dies_after=(ev.TimerSet, "nap")),
        Drive("killed", "", limits=Limits(max_steps=1), dies_after=(ev.LimitReached, "a")),
        Drive("failed", "a, b"),
        Drive("succeeded", "", mended=True),
    ),
    "a handled failure that undid itself is raised again, and what it undid stays undone": (
        all_or_nothing_handled,
        Drive("failed", "a, b, fails, undo b, undo a, after", broken="fails after"),
        Drive("succeeded", "after"),
    ),
    "what a group undid is done again when one of its members is": (
        all_or_nothing,
        Drive("succeeded", "a, b, undo a", broken="b"),
        Drive("succeeded", "a, b", rerun=("g/b",)),
    ),
    "a child whose fallback failed too is tried again": (
        falls_back,
        Drive("failed", "x, instead", broken="x instead"),
        Drive("succeeded", "x", "instead"),
    ),
    "members that succeeded beside one that failed are kept, and are no clean-up": (
        unwraps, Drive("failed", "a, b", broken="a"), Drive("succeeded", "a"),
    ),
    "a collected failure that ended a child is tried again, and what was begun after it kept": (
        collects_in_a_child, Drive("failed", "a, b, c", broken="b"), Drive("succeeded", "b"),
    ),
    "a run whose rollbacks have begun fails whatever its code says now": (
        undone_in_the_end,
        HALF_UNDONE._replace(dies_after=(ev.RollbackCompleted, "b")),
        Drive("failed", "undo a", mended=True, undoes=("a",)),
        Drive("succeeded", "a, b, end", mended=True),
    ),
    "a run that is undone does not succeed when nothing is left to do": (
        undone_at_once,
        Drive("killed", "a, fails, undo a", "fails", (ev.RollbackCompleted, "a")),
        Drive("failed", "", mended=True),
        Drive("succeeded", "a", mended=True),
    ),
    "what a child has still to undo is planned, and undone first": (
        undone_in_a_child,
        Drive("killed", "before, a, b, fails, undo b", "fails", (ev.RollbackStarted, "child/b")),
        Drive("failed", "undo b, undo a, undo before", undoes=("child/b", "child/a")),
    ),
    "a child fails by rollbacks that had begun, and what it did since is undone with the rest": (
        handled_in_a_child,
        HALF_UNDONE._replace(dies_after=(ev.RollbackCompleted, "child/b")),
        Drive("failed", "end, undo end, undo a", mended=True, error=HAD_BEGUN),
        Drive("succeeded", "a, b, end", mended=True),
    ),
    "a child fails by a rollback that had only begun": (
        handled_in_a_child,
        HALF_UNDONE._replace(dies_after=(ev.RollbackStarted, "child/b")),
        Drive("failed", "end, undo end, undo b, undo a", mended=True, error=HAD_BEGUN),
        Drive("succeeded", "a, b, end", mended=True),
    ),
    "a child that is undone is tried again if it may be": (
        tried_twice_in_a_child,
        HALF_UNDONE._replace(dies_after=(ev.RollbackCompleted, "child/b")),
        Drive("succeeded", "end, undo end, undo a, a, b, fails, end", mended=True),
    ),
    "a group whose rollbacks have begun fails whatever its code says now": (
        all_or_nothing_once,
        HALF_UNDONE._replace(dies_after=(ev.RollbackCompleted, "g/b")),
        Drive("failed", "undo a", mended=True),
        Drive("succeeded", "a, b, fails", mended=True),
    ),
    "a group that was half undone is undone though its failure is handled": (
        all_or_nothing_handled,
        HALF_UNDONE._replace(dies_after=(ev.RollbackCompleted, "g/b")),
        Drive("succeeded", "undo a, after", mended=True),
    ),
    "what a body did in an earlier drive is no clean-up behind what fails in this one": (
        in_a_child,
        Drive("failed", "x, y, z, undo x", broken="z"),
        Drive("failed", "x", broken="x"),
        Drive("succeeded", "x, z"),
    ),
    "nor is it a sign that the body went on from there with an error of its own": (
        in_a_child,
        Drive("failed", "x, y, z, undo x", broken="z"),
        Drive("failed", "x", broken="x", mended=True),
        Drive("succeeded", "x, z", mended=True),
    ),
    "a cancellation that took two drives drops what one would have": (
        waits_in_a_group,
        Drive("killed", "a", dies_after=(ev.StepCompleted, "g/a")),
        Drive("killed", "", cancel=True, dies_after=(ev.StepCompleted, "g/nap")),
        Drive("cancelled", ""),
        Drive("succeeded", "end"),
    ),
    "what was undone when a run was cancelled is done again": (
        one_after_the_other(a_group_undone, lambda _: step("nap").sleep(60)),
        Drive("killed", "w", dies_after=(ev.TimerSet, "nap")),
        Drive("cancelled", "undo w", cancel=True),
        Drive("succeeded", "w"),
    ),
    **{
        f"what was undone inside of {name} is done again, however often": (
            one_after_the_other(make, does("last")),
            Drive("failed", "w, last, undo w", broken="last"),
            Drive("failed", "w, last, undo w", broken="last"),
            Drive("succeeded", "w, last", anew="w"),
        )
        for name, make in INSIDE.items()
    },
    **{
        f"what was undone of a group that failed is done again: {on_error}": (
            one_after_the_other(three(on_error=on_error, **options)),
            Drive("failed", performed, broken="w2"),
            Drive("succeeded", "w1, w2, w3"),
        )
        for on_error, performed, options in (
            ("fail_fast", "w1, w2, undo w1", {}),
            ("all_or_nothing", "w1, w2, w3, undo w3, undo w1", {}),
            ("continue", "w1, w2, w3, undo w3, undo w1", {"min_success": 3}),
        )
    },
    "a crash while rolling back makes nothing else run again": (
        one_after_the_other(costly, does("last")),
        Drive(
            "killed", "costly1, w1, costly2, w2, last, undo w2", "last",
            (ev.RollbackCompleted, "g/2/w2"),
        ),
        Drive("failed", "undo w1", "last", undoes=("g/1/w1",), settled=True),
        Drive("succeeded", "w1, w2, last"),
    ),
    "a clean-up that was stopped stays stopped where its process died": (
        waits_for_good_to_tidy,
        Drive("killed", "", limits=SHORT, dies_after=(ev.StepCompleted, "tidy")),
        Drive("failed", "", limits=SHORT),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", DRIVES)
async def test_of_each_step_the_last_end_on_record_counts(case: str) -> None:
    """What is said by the name of the case, and nothing else."""
    body, *drives = DRIVES[case]
    run = Driven(body)
    for drive in drives:
        run.mended = drive.mended
        if drive.undoes or drive.anew:
            plan = await run.executor().plan(RUN, run.flow)
            states = {one.path: one.state for one in plan.steps}
            assert (plan.undoes, plan.unwinds) == (drive.undoes, None)
            assert len(states) == len(plan.steps)
            kept = {path for path, state in states.items() if state == "recorded"}
            assert drive.anew not in {path.rpartition("/")[2] for path in kept}
            assert not drive.settled or kept == states.keys()
        ended = await run.drive(
            *drive.broken.split(),
            dies_after=drive.dies_after,
            cancel=drive.cancel,
            limits=drive.limits,
            rerun=drive.rerun,
        )
        assert ended == (drive.status, [name for name in drive.performed.split(", ") if name])
        assert drive.error in (run.error or "")
