"""Work that grows, over crashes and drives: each task once, the same work, and no edit lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail import (
    Agent,
    Budget,
    CannotSteer,
    Executor,
    FakeBackend,
    Found,
    ReplayMismatch,
    Step,
    Steps,
    Tally,
    Task,
    Usage,
    Work,
    Workflow,
    plateau,
    step,
    workflow,
)
from handrail.core.work_edits import edit_of
from handrail.model import events as ev
from handrail.ports.agent import AgentReply
from handrail.record.run_record import Recorded
from handrail.record.view import view_of
from handrail.testing import TextJournal, assert_replays
from handrail.testing.shapes import Body, Grow, Shape, workflow_of
from handrail.testing.strategies import growing
from tests.durability.support import LAW, RUN, Lives, Story, essence, hold

CRASHES = st.lists(st.tuples(st.integers(0, 25), st.booleans()), min_size=1, max_size=3)
GATES = st.sampled_from(["approve", None])


@LAW
@given(body=growing(timeless=True), crashes=CRASHES, gates=GATES)
def test_work_that_is_killed_anywhere_gives_the_same(
    body: Body, crashes: list[tuple[int, bool]], gates: Any
) -> None:
    """Its tasks, what it refused and left and why, in one order, whatever the crashes."""
    flow = workflow_of(body)
    whole = Lives(flow, gates=gates).through()
    story = Lives(flow, gates=gates).through(crashes)
    hold(story)
    assert essence(story.result) == essence(whole.result)
    begins_no_more_than_it_may(story, body)


@LAW
@given(body=growing(), crashes=CRASHES, gates=GATES)
def test_work_that_races_against_time_and_crashes_begins_each_task_once(
    body: Body, crashes: list[tuple[int, bool]], gates: Any
) -> None:
    """A crash may change who is faster, but no bound, and nothing that is recorded."""
    story = Lives(workflow_of(body), gates=gates).through(crashes)
    hold(story)
    begins_no_more_than_it_may(story, body)


def begins_no_more_than_it_may(story: Story, body: Body) -> None:
    """No attempt of work begins more tasks than its bound, in all lives together."""
    for index, one in enumerate(body.statements):
        bound = one.what.at_most if isinstance(one, Shape) and isinstance(one.what, Grow) else None
        begun = {
            event.path
            for event in story.history
            if isinstance(event, ev.MemberStarted) and event.path.rpartition("/")[0] == str(index)
        }
        assert bound is None or len(begun) <= bound


# -- edits -----------------------------------------------------------------------------------------

TREE: Mapping[str, Sequence[str]] = {"a": ["a1", "a2"], "b": ["b1"], "a2": ["a21"]}
IDS = ("a", "b", "c", "a1", "a2", "a21", "b1", "x", "y")


def found(task: Task) -> Found[str]:
    """What a task finds."""
    return Found(
        f"{task.id}: {task.payload}", [Task(one, "found") for one in TREE.get(task.id, ())]
    )


async def look(task: Task) -> Found[str]:
    """One task."""
    return found(task)


def worked(tasks: Sequence[Task] = (), **options: Any) -> Workflow[[], Work[str]]:
    """A workflow of just that work."""
    roots = list(tasks) or [Task(one, "given") for one in "abc"]

    def body(task: Task) -> Step[Found[str]]:
        return step("look").call(look, task)

    @workflow(name="worked")
    def flow() -> Steps[Work[str]]:
        return (yield from step("w").work(roots, body, **{"max_concurrency": 2, **options}))

    return flow


EDITS = st.one_of(
    st.builds(
        lambda ids: edit_of("w", [Task(one, "added") for one in ids], (), None, "ann"),
        st.lists(st.sampled_from(IDS), min_size=1, max_size=2, unique=True),
    ),
    st.builds(
        lambda ids: edit_of("w", (), ids, None, "ann"),
        st.lists(st.sampled_from(IDS), min_size=1, max_size=2, unique=True),
    ),
    st.builds(
        lambda one, priority: edit_of("w", (), (), {one: priority}, "ann"),
        st.sampled_from(IDS),
        st.integers(-2, 2),
    ),
)


@LAW
@given(moments=st.lists(st.tuples(st.integers(2, 12), EDITS), min_size=1, max_size=4))
def test_an_edit_to_the_queue_counts_once_whenever_the_run_dies(
    moments: list[tuple[int, ev.WorkEdited]],
) -> None:
    """Killed, edited while it is dead, killed again: all that was added is done, what was dropped
    before it began is not, and who reads the record is told the same.
    """
    lives = Lives(worked())
    sent: list[ev.WorkEdited] = []
    for writes, edit in moments:
        if lives.live(stop_at=writes) is not None or lives.at_its_end():
            break
        lives.journal = lives.journal.reopened()
        executor = Executor(journal=lives.journal, workflows=[lives.flow], clock=lives.clock)
        try:
            executor.edit_work_sync(
                RUN, "w", add=edit.add, drop=edit.drop, priority=edit.priority, by="ann"
            )
        except CannotSteer:
            continue
        sent.append(edit)
    if lives.at_its_end():
        return
    story = lives.through()
    hold(story)
    recorded = [one for one in story.history if isinstance(one, ev.WorkEdited)]
    assert [(one.add, one.drop, one.priority, one.by) for one in recorded] == [
        (one.add, one.drop, one.priority, "ann") for one in sent
    ]
    assert len({one.letter for one in recorded}) == len(sent)
    work: Work[str] = story.result.value
    done = [one.id for one in work.done]
    begun = {one.key for one in story.history if isinstance(one, ev.MemberStarted)}
    assert begun == set(done)
    dropped = [one.id for one in work.refused if one.why == "dropped by ann"]
    assert dropped == [one for one in dropped if one not in done]
    assert set(dropped) == {each for one in sent for each in one.drop}
    expected = closure([*"abc", *(task.id for one in sent for task in one.add)], dropped)
    assert set(done) == expected
    assert (work.left, work.failed, work.why_stopped) == ((), (), None)
    (queue,) = view_of(Recorded(story.history), alive=False, now=0.0).works
    assert (queue.done, queue.queued, queue.running, queue.over) == (len(done), (), (), True)
    assert sorted(queue.refused) == sorted(one.id for one in work.refused)


def closure(roots: Sequence[str], dropped: Sequence[str]) -> set[str]:
    """All that these bring, without what is dropped."""
    found_, stack = set[str](), list(roots)
    while stack:
        one = stack.pop()
        if one not in found_ and one not in dropped:
            found_.add(one)
            stack.extend(TREE.get(one, ()))
    return found_


async def test_a_run_that_is_suspended_takes_edits() -> None:
    """Those that are posted before it is driven again, in their order, and it tells who did it."""

    def body(task: Task) -> Steps[Found[str]]:
        if task.id == "ask":
            yield from step("sure?").ask("Sure?", type=bool)
        return (yield from step("look").call(look, task))

    @workflow
    def flow() -> Steps[Any]:
        return (yield from step("w").work([Task("ask"), Task("late")], body, max_concurrency=1))

    executor = Executor(journal=TextJournal(), workflows=[flow])
    suspended = await executor.run(flow)
    assert suspended.status == "suspended"
    run = suspended.run_id
    (queue,) = view_of(Recorded(executor.journal.events(run)), alive=False, now=0.0).works
    assert (queue.queued, queue.running) == ((("late", 0.0),), ("ask",))
    await executor.edit_work(run, add=[Task("x", None, -1), Task("y")], by="ann")
    await executor.edit_work(run, drop=["x"], priority={"y": -2}, by="bob")
    with pytest.raises(CannotSteer, match="task 'x' was dropped by bob already"):
        await executor.edit_work(run, drop=["x"])
    with pytest.raises(CannotSteer, match="task 'ask' does not wait: it has begun"):
        await executor.edit_work(run, priority={"ask": 1})
    await executor.answer(run, "w/ask/sure?", answer=True)
    result = await executor.resume(run)
    began = [e.key for e in executor.journal.events(run) if isinstance(e, ev.MemberStarted)]
    assert list(dict.fromkeys(began)) == ["ask", "y", "late"]
    assert [one.id for one in result.value.done] == ["ask", "late", "y"]
    assert [(one.id, one.why) for one in result.value.refused] == [("x", "dropped by bob")]


async def test_a_task_of_a_failed_run_is_dropped_before_it_is_resumed() -> None:
    """So that the rest goes on without it."""

    async def act(task: Task) -> Found[None]:
        if task.id == "b":
            raise ValueError("no")
        return Found(None)

    @workflow
    def flow() -> Steps[Any]:
        tasks = [Task(one) for one in "abc"]
        body = lambda task: step("act").call(act, task)  # noqa: E731
        return (yield from step("w").work(tasks, body, on_error="fail_fast", max_concurrency=1))

    executor = Executor(journal=TextJournal(), workflows=[flow])
    failed = await executor.run(flow)
    assert (failed.status, failed.failed_step) == ("failed", "w")
    await executor.edit_work(failed.run_id, "w", drop=["b"])
    result = await executor.resume(failed.run_id)
    assert [one.id for one in result.value.done] == ["a", "c"]


# -- other code, other bounds ----------------------------------------------------------------------


def test_a_resume_goes_by_the_bounds_of_now() -> None:
    """A person may raise one while the work is under way."""
    lives = Lives(worked(at_most=2, max_concurrency=1))
    assert lives.live(stop_at=9) is None
    lives.flow = worked(at_most=4, max_concurrency=1)
    result = lives.through().result
    assert result.value.why_stopped == "at_most: 4 tasks have begun"
    assert len(result.value.done) == 4


def test_what_stop_said_counts_in_every_drive() -> None:
    """Also where the code of now would say another thing; without its word it is asked at once."""
    asked: list[int] = []

    def stop(tally: Any) -> str | None:
        asked.append(len(tally.ends))
        return "enough" if len(tally.ends) == 3 else None

    flow = worked(stop=stop, max_concurrency=1)
    whole = Lives(flow)
    history = whole.through().history
    (said,) = [one for one in history if isinstance(one, ev.WorkStopped)]
    assert asked == [1, 2, 3]
    before, after = (Lives(flow) for _ in range(2))
    assert before.live(stop_at=said.seq - 1) is None
    assert after.live(stop_at=said.seq) is None
    asked.clear()
    after.flow = worked(stop=lambda _: None, max_concurrency=1)
    for lives in (before, after):
        result = lives.through().result
        assert result.value.why_stopped == "enough"
        assert [one.id for one in result.value.done] == ["a", "b", "c"]
    assert asked == [3]


def test_other_tasks_at_the_start_join_and_another_payload_is_refused() -> None:
    """What has begun must be what it was; what is new in the code begins, what is gone does not."""
    lives = Lives(worked(max_concurrency=1))
    assert lives.live(stop_at=9) is None  # a has ended
    lives.flow = worked([Task("a", "given"), Task("new", "given")], max_concurrency=1)
    result = lives.twin().through().result
    assert [one.id for one in result.value.done] == ["a", "a1", "a2", "a21", "new"]
    lives.flow = worked([Task("a", "another")], max_concurrency=1)
    with pytest.raises(ReplayMismatch, match="w/a"):
        lives.live()


def test_the_tasks_of_the_start_are_recorded_once_and_again_if_they_are_others() -> None:
    """A resume adds nothing to the record that this has already."""
    lives = Lives(worked())
    for stop_at, known in ((7, 1), (9, 1), (None, 2)):
        if stop_at is None:
            lives.flow = worked([*(Task(one, "given") for one in "abc"), Task("new", "given")])
        lives.live(stop_at=stop_at)
        events = lives.journal.reopened().events(RUN)
        assert sum(isinstance(one, ev.TasksQueued) for one in events) == known


def test_a_task_is_run_again_by_name_with_what_it_brings() -> None:
    """And what it had brought before, and brings again, is taken from the record."""
    lives = Lives(worked())
    lives.through()
    before = len(lives.did)
    lives.rerun = ("w/a2",)
    story = lives.through()
    assert [one.path for one in lives.did[before:]] == ["w/a2/look"]
    assert [one.id for one in story.result.value.done] == [
        "a", "a1", "a2", "a21", "b", "b1", "c",
    ]  # fmt: skip


def test_a_record_of_work_is_replayed_forked_and_compared(tmp_path: Any) -> None:
    """As that of any step: by its tasks."""
    flow = worked()
    executor = Executor(journal=TextJournal(), workflows=[flow])
    result = executor.run_sync(flow)
    run = result.run_id
    assert_replays(executor.journal, flow)
    executor.export_sync(run, tmp_path / "run.jsonl")
    assert_replays(tmp_path / "run.jsonl", flow)
    other = worked([*(Task(one, "given") for one in "abc"), Task("new")])
    with pytest.raises(AssertionError, match="w/new"):
        assert_replays(executor.journal, other)
    with pytest.raises(AssertionError, match=r"w/c.*the code has no such step"):
        assert_replays(executor.journal, worked([Task(one, "given") for one in "ab"]))
    fork = executor.fork_sync(run, at="w/a2")
    forked = executor.resume_sync(fork)
    assert forked.value == result.value
    diff = executor.diff_sync(run, fork)
    assert {one.state for one in diff.steps} == {"same"}


# -- budgets ---------------------------------------------------------------------------------------


def test_a_budget_of_work_holds_over_crashes() -> None:
    """So many launches are made in all lives together; the tasks behind them fail by the budget."""
    backend = FakeBackend([AgentReply("ok", usage=Usage(10)) for _ in range(20)])
    agent = Agent("worker", "Work.", backend=backend)

    def body(task: Task) -> Steps[Found[str]]:
        answer = yield from step("ask").agent(agent).answer()
        return Found(answer, [Task(f"{task.id}{n}") for n in range(2)])

    @workflow
    def flow() -> Steps[Any]:
        work = step("w").work([Task("a")], body, max_concurrency=2, at_most=8)
        return (yield from work.budget(Budget(launches=5)))

    story = Lives(flow).through([(20, True), (15, True), (12, False)])
    assert story.result.status == "succeeded", story.result
    work = story.result.value
    made = [(one.path, one.launch) for one in story.history if isinstance(one, ev.BudgetReserved)]
    assert len(made) == len(set(made)) == 5  # with those that a crash broke off
    assert {one.error_type for one in work.failed} == {"handrail.errors.BudgetExceeded"}
    assert 2 <= len(work.done) <= 5


def test_a_plateau_is_the_same_in_every_life() -> None:
    """What was best is known from the record."""
    flow = worked(stop=plateau(3, key=len), max_concurrency=1)
    whole = Lives(flow).through()
    assert whole.result.value.why_stopped == "plateau: 3 tasks in a row found nothing better"
    for writes in range(3, len(whole.history)):
        story = Lives(flow).through([(writes, True)])
        assert story.result.value == whole.result.value


async def test_a_reason_to_stop_is_told_of_the_attempt_that_gave_it() -> None:
    """Of work that is tried again, and goes on, it is not said that it begins no more."""
    stopped = anyio.Event()
    tries: list[str] = []

    def stop(tally: Tally[Any]) -> str | None:
        if stopped.is_set():
            return None
        stopped.set()
        return f"{tally.done} is enough"

    async def breaks() -> None:
        tries.append("one")
        if len(tries) == 1:
            await stopped.wait()
            raise ValueError("once")

    def body(task: Task) -> Steps[Found[str]]:
        if task.id == "b":
            yield from step("breaks").call(breaks)
            yield from step("sure?").ask("Sure?", type=bool)
        return (yield from step("look").call(look, task))

    @workflow
    def flow() -> Steps[Any]:
        work = step("w").work([Task("a"), Task("b")], body, stop=stop, on_error="fail_fast")
        return (yield from work.retry(2, backoff=0))

    executor = Executor(journal=TextJournal(), workflows=[flow])
    result = await executor.run(flow)
    history = executor.journal.events(result.run_id)
    assert [one.reason for one in history if isinstance(one, ev.WorkStopped)] == ["1 is enough"]
    (queue,) = view_of(Recorded(history), alive=False, now=0.0).works
    assert (queue.running, queue.why_stopped) == (("b",), None)
