"""What is recorded counts for the code that recorded it: other code gets its own, in its order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from handrail import (
    Agent,
    Executor,
    FakeBackend,
    JournalFailed,
    ReplayMismatch,
    Step,
    Steps,
    Workflow,
    step,
    workflow,
)
from handrail.model import events as ev
from handrail.ports.agent import AgentReply
from handrail.testing import ProcessGone, TextJournal
from tests.engine.support import RUN, Boom, bound, just, paths, same

Broken = set[str]
"""What does not work yet."""


def resumable(journal: Any, **options: Any) -> Executor:
    """An executor that drives the run of these tests."""
    return Executor(journal=journal, **options).options(run_id=RUN)


def works(broken: Broken, name: str) -> Callable[[], str]:
    """An action that gives its name, once it is not broken any more."""

    def work() -> str:
        if name in broken:
            raise Boom(name)
        return name

    return work


# -- the order of what is listed -------------------------------------------------------------------


async def test_a_step_that_was_added_is_listed_where_it_stands_also_from_the_record() -> None:
    """Of a run that had succeeded and of which one step runs again; and it gives the output."""

    @bound
    def flow_of(*names: str) -> Steps[Any]:
        for name in names:
            yield from step(name).call(same, name)

    old, new = flow_of("a", "b", "c"), flow_of("a", "b", "c", "d")
    whole = TextJournal()
    await resumable(whole).run(old)
    for writes in range(1, 7):  # the whole resume; before that its process dies
        journal = whole.copied().reopened(stop_at=writes)
        try:
            told = await resumable(journal).resume(RUN, new, rerun=["a"])
        except ProcessGone:
            told = await resumable(journal.reopened()).resume(RUN, new)
        read = await resumable(journal.reopened()).resume(RUN, new)
        assert paths(told) == paths(read) == ["a", "b", "c", "d"]
        assert told.final_output == read.final_output == "d"


@pytest.mark.parametrize("on_error", ["fail_fast", "all_or_nothing"])
async def test_a_step_behind_a_failure_is_listed_before_what_tidied_up_after_it(
    on_error: Any,
) -> None:
    """In a member of a group that is mended: as it is yielded, also from the record."""
    broken = {"o"}

    def member(_: str) -> Steps[Any]:
        try:
            yield from step("o").call(works(broken, "o"))
            yield from step("g").call(int)
        finally:
            yield from step("tidy").call(int)

    flow = just(step("each").for_each(["k"], member, on_error=on_error))
    executor = resumable(TextJournal())
    assert (await executor.run(flow)).status == "failed"
    broken.clear()
    told = await executor.resume(RUN, flow)
    read = await executor.resume(RUN, flow)
    assert paths(told) == paths(read) == ["each", "each/0/o", "each/0/g", "each/0/tidy"]


# -- outputs of groups -----------------------------------------------------------------------------


def of_members(names: Sequence[str]) -> Step[Any]:
    """A group of steps, one after the other."""
    members = [step(name).call(str.upper, name) for name in names]
    return step("g").parallel(*members, max_concurrency=1)


def of_items(items: Sequence[str]) -> Step[Any]:
    """A member for each item, one after the other."""

    def member(item: str) -> Step[Any]:
        return step("s").call(str.upper, item)

    return step("g").for_each(items, member, key=str, max_concurrency=1)


@pytest.mark.parametrize(
    ("group", "old", "new"),
    [
        (of_members, ["a", "b", "c"], ["c", "b", "a"]),
        (of_items, ["a", "b", "c"], ["c", "b", "a"]),
        (of_members, ["a", "b", "c"], ["a", "B", "c"]),
        (of_items, ["a", "b", "c"], ["a", "c"]),
    ],
    ids=["reordered", "items reordered", "renamed", "an item gone"],
)
async def test_a_group_gives_what_its_members_of_now_gave_in_their_order(
    group: Callable[[Sequence[str]], Step[Any]], old: list[str], new: list[str]
) -> None:
    """In each later drive as in the one that ended it, wherever that of the old code had died."""
    broken = Broken()
    seen: list[list[str]] = []

    @bound
    def flow_of(names: list[str]) -> Steps[Any]:
        seen.append(list((yield from group(names))))
        yield from step("after").call(works(broken, "after"))

    whole = TextJournal()
    await resumable(whole).run(flow_of(old))
    ended = next(
        at
        for at, one in enumerate(whole.events(RUN))
        if isinstance(one, ev.StepCompleted) and one.path == "g"
    )
    for writes in range(1, ended):
        dead = TextJournal(stop_at=writes)
        with pytest.raises(ProcessGone):
            await resumable(dead).run(flow_of(old))
        broken.add("after")
        executor = resumable(dead.reopened())
        seen.clear()
        assert (await executor.resume(RUN, flow_of(new))).status == "failed"
        broken.clear()
        assert (await executor.resume(RUN, flow_of(new))).status == "succeeded"
        assert seen[-2:] == [[name.upper() for name in new]] * 2


@pytest.mark.parametrize("had", ["waited", "ended"])
async def test_a_member_whose_step_was_renamed_gives_what_the_new_one_gave(had: str) -> None:
    """Whether the old one had a question open, or had ended when its process died."""
    broken = {"after"}

    @bound
    def flow_of(inner: Step[Any]) -> Steps[Any]:
        outputs = yield from step("g").for_each(["k"], lambda _: inner)
        yield from step("after").call(works(broken, "after"))
        return outputs

    journal = TextJournal(stop_at=6 if had == "ended" else None)
    if had == "waited":
        await resumable(journal).run(flow_of(step("old").ask("?")))
    else:
        with pytest.raises(ProcessGone):
            await resumable(journal).run(flow_of(step("old").call(same, "out of old")))
        assert isinstance(journal.reopened().events(RUN)[-1], ev.StepCompleted)
    executor = resumable(journal.reopened())
    new = flow_of(step("new").call(same, "out of new"))
    assert (await executor.resume(RUN, new)).status == "failed"
    broken.clear()
    assert (await executor.resume(RUN, new)).value == ["out of new"]


# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["a sub-workflow", "a group"])
async def test_a_step_called_like_a_question_about_a_budget_keeps_its_record(place: str) -> None:
    """When what it stands in failed, and is resumed."""
    broken, did = {"other"}, Counter[str]()

    def work(name: str) -> None:
        did[name] += 1
        works(broken, name)()

    members = [step(name).call(work, name) for name in ("budget-review", "other")]

    @workflow
    def child() -> Steps[Any]:
        for member in members:
            yield from member

    @workflow
    def flow() -> Steps[Any]:
        if place == "a group":
            yield from step("c").parallel(*members, max_concurrency=1)
        else:
            yield from step("c").run_workflow(child)

    executor = resumable(TextJournal())
    assert (await executor.run(flow)).status == "failed"
    broken.clear()
    states = {one.path: one.state for one in (await executor.plan(RUN, flow)).steps}
    assert states["c/budget-review"] == "recorded"
    assert (await executor.resume(RUN, flow)).status == "succeeded"
    assert did == {"budget-review": 1, "other": 2}


@pytest.mark.parametrize(
    "composite",
    [
        step("c").branch((lambda _: False, step("x").call(same, "arm"))),
        step("c").parallel(
            step("a").call(works({"a"}, "a")), step("x").call(same, "member"), max_concurrency=1
        ),
    ],
    ids=["arm", "member"],
)
async def test_a_fallback_may_be_called_as_something_that_never_began(composite: Any) -> None:
    """Code that did not change is not taken for code that did."""

    def fallback(*_: Any) -> Step[Any]:
        return step("x").call(same, "fallback")

    flow = just(composite.on_error(fallback), step("go?").ask("?", choices=["y"]))
    executor = resumable(TextJournal())
    assert (await executor.run(flow)).status == "suspended"
    assert (await executor.resume(RUN, flow)).status == "suspended"


# -- questions -------------------------------------------------------------------------------------

QUESTIONS = pytest.mark.parametrize(
    ("old", "new", "answer"),
    [
        (
            step("q").ask("Deploy to staging?", choices=["y", "n"]),
            step("q").ask("Delete production?", choices=["y", "n"]),
            "y",
        ),
        (step("q").ask("?", choices=["a", "b"]), step("q").ask("?", choices=["x", "y"]), "a"),
        (step("q").ask("?"), step("q").ask("?", type=int), "many"),
    ],
    ids=["text", "choices", "type"],
)


def asking(question: Step[Any]) -> Workflow[[], Any]:
    """A workflow that gives the answer to one question."""
    return just(question)


@QUESTIONS
async def test_an_answer_counts_for_the_question_that_was_asked(
    old: Step[Any], new: Step[Any], answer: str
) -> None:
    """It is not taken for one to another question: plan and resume name the change."""
    executor = resumable(TextJournal())
    await executor.run(asking(old))
    await executor.answer(RUN, "q", answer)
    plan = await executor.plan(RUN, asking(new))
    assert [(one.path, one.state) for one in plan.steps] == [("q", "changed")]
    with pytest.raises(ReplayMismatch) as raised:
        await executor.resume(RUN, asking(new))
    assert [one.path for one in raised.value.changes] == ["q"]
    assert (await executor.resume(RUN, asking(old))).value == answer


@QUESTIONS
async def test_a_question_that_changed_before_its_answer_opens_anew(
    old: Step[Any], new: Step[Any], answer: str
) -> None:
    """An answer to the old one comes too late for it."""
    journal = TextJournal()
    await resumable(journal).run(asking(old))
    seen_by_a_person = journal.copied()
    await resumable(seen_by_a_person).answer(RUN, "q", answer)
    (letter,) = seen_by_a_person.letters(RUN, 0)
    for _ in range(2):  # the next drive knows only that the question is as it was
        (gate,) = (await resumable(journal).resume(RUN, asking(new))).waiting
        assert gate.opening == 2
    journal.post(letter)
    plan = await resumable(journal).plan(RUN, asking(new))
    assert (plan.ends, plan.changes) == (None, ())
    assert (await resumable(journal).resume(RUN, asking(new))).waiting == (gate,)


# -- plans -----------------------------------------------------------------------------------------


@bound
def undoable(names: Sequence[str], argument: int = 1) -> Steps[Any]:
    """A group of steps that can be undone, then a question."""
    members = [step(name).call(same, argument).with_rollback(lambda _: None) for name in names]
    yield from step("g").parallel(*members)
    yield from step("go?").ask("?", choices=["y"])


async def test_a_plan_says_once_that_a_group_with_rollbacks_has_changed() -> None:
    """And names the change that the resume will name."""
    executor = resumable(TextJournal())
    await executor.run(undoable(["a", "b"]))
    plan = await executor.plan(RUN, undoable(["a", "c"]))
    assert [one.state for one in plan.steps if one.path == "g"] == ["changed"]
    with pytest.raises(ReplayMismatch) as raised:
        await executor.resume(RUN, undoable(["a", "c"]))
    assert [one.path for one in plan.changes] == ["g"]
    assert list(plan.changes) == list(raised.value.changes)


async def test_a_change_in_a_group_that_is_entered_for_its_rollbacks_is_named_once() -> None:
    """Though the group is both read and entered."""
    executor = resumable(TextJournal())
    await executor.run(undoable(["a", "b"]))
    with pytest.raises(ReplayMismatch) as raised:
        await executor.resume(RUN, undoable(["a", "b"], 2))
    assert sorted(one.path for one in raised.value.changes) == ["g/a", "g/b"]


# -- writes ----------------------------------------------------------------------------------------


class Slow:
    """A journal that has something done while an event of this kind goes to disk."""

    def __init__(self, kind: type[ev.Event]) -> None:
        self.kept = TextJournal()
        self.kind = kind
        self.meanwhile: Callable[[], Any] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.kept, name)

    def append(self, event: ev.Event, /, *, sync: bool = False) -> Any:
        """Keep the event, and let the caller wait for it."""
        self.kept.append(event, sync=sync)
        if not isinstance(event, self.kind) or self.meanwhile is None:
            return None
        return self._on_disk(self.meanwhile)

    async def _on_disk(self, meanwhile: Callable[[], Any]) -> None:
        await meanwhile()
        await anyio.lowlevel.checkpoint()


async def test_a_signal_that_comes_while_the_end_goes_to_disk_does_not_stand_behind_it() -> None:
    """It is there for the next drive, and the failed run can be tried again."""
    broken, journal = {"s"}, Slow(ev.WorkflowCompleted)
    executor = resumable(journal)
    flow = just(step("s").call(works(broken, "s")), step("w").wait_for("go"))

    async def signal() -> None:
        journal.meanwhile = None
        await executor.signal(RUN, "go", 1)

    journal.meanwhile = signal
    assert (await executor.run(flow)).status == "failed"
    assert isinstance(journal.events(RUN)[-1], ev.WorkflowCompleted)
    broken.clear()
    assert (await executor.resume(RUN, flow)).value == 1


async def test_a_resume_that_is_cancelled_while_it_writes_a_replay_writes_all_of_it() -> None:
    """Its run is suspended, and no number is missing from the record."""
    journal = Slow(ev.RunResumed)
    flow = just(step("a").call(int), step("go?").ask("?", choices=["y"]))
    executor = resumable(journal)
    await executor.run(flow)
    before = len(journal.events(RUN))
    with anyio.CancelScope() as scope:

        async def cancel() -> None:
            scope.cancel()

        journal.meanwhile = cancel
        await executor.resume(RUN, flow)
    kinds = [type(one).__name__ for one in journal.events(RUN)[before:]]
    assert kinds == ["RunResumed", "StepStarted", "GateOpened", "RunSuspended"]
    journal.meanwhile = None
    await executor.answer(RUN, "go?", "y")
    assert (await executor.resume(RUN, flow)).status == "succeeded"


async def test_an_agents_session_that_cannot_be_written_is_the_journals_error() -> None:
    """Its run goes on from what was written before, and the agent is not blamed."""
    replies = [AgentReply("42", session="s-1")] * 2
    agent = Agent("coder", "Do it.", backend=FakeBackend(replies))

    @workflow
    def flow() -> Steps[Any]:
        return (yield from step("a").agent(agent, {})).output

    journal = TextJournal(fail_at=3)  # the start of the run, that of the step, the session
    with pytest.raises(JournalFailed, match="No space left"):
        await resumable(journal).run(flow)
    kinds = [type(one).__name__ for one in journal.reopened().events(RUN)]
    assert kinds == ["WorkflowStarted", "StepStarted"]
    assert (await resumable(journal.reopened()).resume(RUN, flow)).value == "42"
    kinds = [type(one).__name__ for one in journal.reopened().events(RUN)]
    assert kinds[4:] == ["AgentSessionStarted", "StepCompleted", "WorkflowCompleted"]
