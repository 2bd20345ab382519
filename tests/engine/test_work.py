"""Work that grows: who begins next, what is taken and refused, how it stops, and what it gives."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail import (
    CannotSteer,
    DefinitionError,
    Executor,
    Found,
    InvalidInput,
    MemoryJournal,
    SqliteJournal,
    Step,
    StepFailed,
    Steps,
    Tally,
    Task,
    TaskDone,
    Work,
    Workflow,
    WrongUse,
    plateau,
    step,
    workflow,
)
from handrail.core.nodes import Node
from handrail.model import events as ev
from handrail.testing import TextJournal
from tests.engine.support import Boom, caught, just, paths, run_seen
from tests.testing.laws import the_most_urgent_begins_first

Tree = Mapping[str, Sequence[str | Task]]
"""What each task brings, by its id."""


def task_of(one: str | Task) -> Task:
    """A task; of an id alone, one without anything else."""
    return one if isinstance(one, Task) else Task(one)


@dataclass
class Growing:
    """An action that finds what a tree says, after so many turns of the loop. Mutable."""

    tree: Tree
    slow: Mapping[str, int]
    fails: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []

    async def __call__(self, task: Task) -> Found[str]:
        """One task."""
        self.begun.append(task.id)
        for _ in range(self.slow.get(task.id, 1)):
            await anyio.lowlevel.checkpoint()
        self.ended.append(task.id)
        if task.id in self.fails:
            raise Boom(f"{task.id} is broken")
        return Found(f"value of {task.id}", list(map(task_of, self.tree.get(task.id, ()))))


def body_of(action: Any) -> Callable[[Task], Step[Found[Any]]]:
    """A body of one step."""
    return lambda task: step("do").call(action, task)


def worked(action: Growing, roots: Sequence[str | Task], **options: Any) -> Workflow[[], Any]:
    """A workflow of just that work."""
    return just(step("w").work(list(map(task_of, roots)), body_of(action), **options))


TREE: Tree = {"a": ["a1", "a2", "b"], "a1": ["a11", "a"], "b": ["b1", "a2"], "b1": ["a11"]}
"""With tasks that are brought twice: of the start, of another branch, and themselves."""
IN_ORDER = ["a", "a1", "a11", "a2", "b", "b1"]
REFUSED = [("b", "a"), ("a", "a1"), ("a2", "b"), ("a11", "b1")]


@pytest.mark.parametrize("window", [None, 1, 2])
@pytest.mark.parametrize("slow", [{}, {"a": 30}, {"a1": 30, "b": 3}, {"a2": 9, "b1": 40}])
async def test_what_work_gives_is_in_the_order_of_its_tree(
    slow: Mapping[str, int], window: int | None
) -> None:
    """A task, then those that it brought, in its order, whoever was faster; so are the results."""
    action = Growing(TREE, slow)
    result, _ = await run_seen(worked(action, ["a", "b"], max_concurrency=window))
    work = result.value
    assert sorted(action.begun) == sorted(IN_ORDER)
    assert [one.id for one in work.done] == IN_ORDER
    assert work.values == tuple(f"value of {one}" for one in IN_ORDER)
    assert [one.parent for one in work.done] == [None, "a", "a1", "a", None, "b"]
    assert sorted((one.id, one.parent) for one in work.refused) == sorted(REFUSED)
    assert work.refused[0].why == f"there is a task {work.refused[0].id!r} already"
    assert (work.failed, work.left, work.why_stopped) == ((), (), None)
    assert paths(result) == ["w", *(f"w/{one}/do" for one in IN_ORDER)]


URGENT: Tree = {
    "a": [Task("late", None, 9), Task("soon", None, -1), "same"],
    "b": [Task("first", None, -2)],
    "soon": [Task("sooner", None, -1)],
}


async def test_the_most_urgent_task_begins_next() -> None:
    """The lowest priority first; of equal ones the one that came first."""
    action = Growing(URGENT, {})
    flow = worked(action, ["a", "b", Task("c", None, 5), "d"], max_concurrency=1)
    result, _ = await run_seen(flow)
    assert action.begun == ["a", "soon", "sooner", "b", "first", "d", "same", "c", "late"]
    assert [one.id for one in result.value.done] == [
        *("a", "late", "soon", "sooner", "same"), *("b", "first"), "c", "d",
    ]  # fmt: skip


def trees() -> st.SearchStrategy[dict[str, list[Task]]]:
    """What some of 12 tasks bring: any of them, as urgent as may be."""
    tasks = st.builds(Task, st.sampled_from("abcdefghijkl"), st.none(), st.integers(-2, 2))
    return st.dictionaries(st.sampled_from("abcdefghijkl"), st.lists(tasks, max_size=4))


@given(
    trees(),
    st.lists(st.sampled_from("abcdef"), max_size=4),
    st.dictionaries(st.sampled_from("abcdefghijkl"), st.integers(0, 6)),
    st.sampled_from([1, 2, 3, None]),
    st.sampled_from([None, 1, 3, 5]),
)
def test_nothing_begins_while_something_more_urgent_waits(
    tree: Tree, roots: list[str], slow: dict[str, int], window: int | None, at_most: int | None
) -> None:
    """Whatever is brought, and whoever is faster; no more begin than may, each of them once."""
    action = Growing(tree, slow)
    flow = worked(action, roots, max_concurrency=window, at_most=at_most)

    async def go() -> Any:
        return await run_seen(flow)

    result, sink = anyio.run(go)
    the_most_urgent_begins_first(sink.events)
    assert len(action.begun) == len(set(action.begun)) <= (at_most or 12)
    work = result.value
    assert sorted(one.id for one in work.done) == sorted(action.begun)
    assert (work.why_stopped is None) == (not work.left)
    known = {*(one.id for one in work.done), *(one.id for one in work.left)}
    brought = [*roots, *(one.id for each in action.begun for one in tree.get(each, ()))]
    assert known == set(brought)
    assert len(work.refused) == len(brought) - len(known)


async def test_ends_that_are_written_together_are_looked_at_together(tmp_path: Any) -> None:
    """Where a journal waits for the disk, what the ends bring is known before a task begins."""
    roots = [*(f"r{n}" for n in range(6)), *(Task(f"z{n}", None, 5) for n in range(6))]
    tree = {f"r{n}": [Task(f"u{n}", None, -1), Task(f"v{n}", None, -1)] for n in range(6)}
    journal = SqliteJournal(tmp_path / "runs.db", durability="power")
    action = Growing(tree, {})
    _, sink = await run_seen(worked(action, roots, max_concurrency=6), journal=journal)
    the_most_urgent_begins_first(sink.events)
    assert len(action.begun) == 24


# -- how it stops ----------------------------------------------------------------------------------


def endless(ids: str = "ab") -> Growing:
    """Each task brings two more."""
    names = [f"{one}{n}" for one in ids for n in ("", *map(str, range(2)))]

    class Twice(Growing):
        async def __call__(self, task: Task) -> Found[str]:
            await super().__call__(task)
            return Found(task.id, [Task(f"{task.id}{n}") for n in range(2)])

    return Twice(dict.fromkeys(names, ()), {})


@pytest.mark.parametrize(
    ("options", "done", "why"),
    [
        ({"at_most": 5}, 5, "at_most: 5 tasks have begun"),
        ({"at_most": 5, "max_concurrency": 2}, 5, "at_most: 5 tasks have begun"),
        ({"stop": lambda tally: "enough" if tally.done == 3 else None, "max_concurrency": 1}, 3,
         "enough"),
        ({"stop": plateau(4), "max_concurrency": 1}, 5, "plateau: 4 tasks in a row found nothing"),
        ({"stop": plateau(2, key=len, highest=True), "max_concurrency": 1}, 5, "plateau: 2 tasks"),
    ],
)  # fmt: skip
async def test_work_without_an_end_stops(options: dict[str, Any], done: int, why: str) -> None:
    """By its bound, or by what it is asked after each end; what was brought is told as left."""
    action = endless()
    result, sink = await run_seen(worked(action, ["a", "b"], **options))
    work = result.value
    assert (len(work.done), len(action.begun)) == (done, done)
    assert work.why_stopped.startswith(why)
    assert work.left
    assert not {one.id for one in work.left} & set(action.begun)
    (completed,) = sink.of(ev.GroupCompleted)
    assert completed.why_stopped == work.why_stopped


async def test_what_is_at_work_goes_on_to_its_end_when_work_stops() -> None:
    """Nothing begins any more, nothing is cancelled, and nobody is asked again."""
    asked: list[tuple[int, int, int]] = []

    def stop(tally: Tally[str]) -> str | None:
        asked.append((len(tally.ends), tally.running, tally.queued))
        return "enough"

    action = Growing({"slow": ["x"]}, {"slow": 30})
    flow = worked(action, ["a", "slow", "c"], max_concurrency=2, stop=stop)
    result, sink = await run_seen(flow)
    assert [one.id for one in result.value.done] == ["a", "slow"]
    assert [one.id for one in result.value.left] == ["x", "c"]
    assert asked == [(1, 1, 1)]
    assert [(e.reason, e.ended) for e in sink.of(ev.WorkStopped)] == [("enough", 1)]


def test_a_plateau_counts_since_the_best() -> None:
    """A task that failed has found nothing; what is better may be said by a key, or be higher."""
    ends = [TaskDone(Task(str(n)), n) for n in (5, 3, 4, 3)]
    stop = plateau(2)
    tally: Tally[int] = Tally()
    said: list[bool] = []
    for end in ends:
        tally.add(end)
        said.append(stop(tally) is not None)
    assert said == [False, False, False, True]
    assert plateau(3)(Tally(ends)) is None
    assert plateau(3, highest=True)(Tally(ends)) is not None
    assert plateau(3, key=lambda n: -n)(Tally(ends)) is not None
    with pytest.raises(DefinitionError, match=r"plateau\(n\) must be a whole number"):
        plateau(0)


# -- failures --------------------------------------------------------------------------------------


async def test_a_task_that_fails_is_told_and_the_others_go_on() -> None:
    """With its error; what it would have brought is not known."""
    action = Growing({"a": ["a1"], "b": ["b1"]}, {}, fails=["a"])
    result, _ = await run_seen(worked(action, ["a", "b"]))
    work = result.value
    assert result.status == "succeeded"
    assert [one.id for one in work.done] == ["b", "b1"]
    (failed,) = work.failed
    assert (failed.id, failed.parent) == ("a", None)
    assert failed.error == "step 'do' failed: a is broken"
    assert failed.failure.is_a(Boom)


async def test_work_that_fails_fast_stops_the_others() -> None:
    """It fails by the task's error, and says what had become of all."""
    action = Growing({"b": ["b1"]}, {"c": 500, "a": 8}, fails=["a"])
    made = step("w").work(
        [Task("b"), Task("a"), Task("c"), Task("d")],
        body_of(action),
        on_error="fail_fast",
        max_concurrency=3,
    )
    result, _ = await run_seen(caught(made, lambda failed: (failed.result.output, str(failed))))
    work, text = result.value
    assert isinstance(work, Work)
    assert [one.id for one in work.done] == ["b", "b1", "d"]
    assert [one.id for one in work.failed] == ["a"]
    assert [one.id for one in work.left] == ["c"]
    assert "member 'a' failed: step 'do' failed: a is broken; cancelled: c" in text


def raising(_: Tally[Any]) -> str | None:
    """A stop that breaks."""
    raise Boom("no idea")


async def find(task: Task) -> Found[int]:
    """Find nothing in particular."""
    await anyio.lowlevel.checkpoint()
    return Found(len(task.id))


def number(task: Task) -> Step[Any]:
    """A body that forgot what it must give."""
    return step("n").call(len, task.id)


def brings_no_task(task: Task) -> Found[str]:
    """Find what is no task."""
    return Found(task.id, ["x"])  # type: ignore[list-item]  # the mistake


def brings_none(task: Task) -> Steps[Found[str]]:
    """A body that finds what is no task."""
    yield step("n").call(len, task.id)
    return brings_no_task(task)


def skipped(task: Task) -> Step[Any]:
    """A body whose step does not run."""
    return step("n").call(find, task).when(lambda _: False)


GIVES_FOUND = (
    r"test_work.py:\d+: the body of 'w' gives Found\(value, children\) for each task, "
    r"got 1 for '[ab]'. Write Found\(1\)"
)
BRINGS_NO_TASK = (
    r"^\S*test_work.py:\d+: the body of 'w' gives .* for each task, and for '[ab]': .*children "
    r"are Tasks, got 'x'. Write Found\(value, \[Task\(id, payload\), ...\]\)"
)
NOT_UNDONE = (
    r"is one of continue, fail_fast, got 'all_or_nothing'. What grows is not undone as a whole: "
    r"with 'continue' look at .failed"
)


@pytest.mark.parametrize(
    ("body", "options", "error"),
    [
        (body_of(find), {"stop": raising}, "its stop raised after 1 end: no idea"),
        (body_of(find), {"stop": lambda _: True}, "it must give a text or None, got True"),
        (number, {}, GIVES_FOUND),
        (number, {"on_error": "fail_fast"}, GIVES_FOUND),
        (lambda task: step("n").call(brings_no_task, task), {}, BRINGS_NO_TASK),
        (lambda task: step("n").call(len, brings_no_task(task)), {}, BRINGS_NO_TASK),
        (brings_none, {}, BRINGS_NO_TASK),
        (lambda _: Boom(), {}, r"'w/a'\): a body must return a step or yield steps, got Boom"),
    ],
)  # fmt: skip
async def test_a_mistake_in_work_is_told(body: Any, options: dict[str, Any], error: str) -> None:
    """With what was given, and what to write."""
    result, _ = await run_seen(just(step("w").work([Task("a"), Task("b")], body, **options)))
    assert result.status == "failed"
    assert result.value is None
    assert re.search(error, result.error or ""), result.error


async def test_a_task_whose_step_is_skipped_is_done() -> None:
    """Its value says why."""
    result, _ = await run_seen(just(step("w").work([Task("a")], skipped)))
    (one,) = result.value.done
    assert not one.value
    assert one.value.reason == "its predicate was false"


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Task(""), r"the id of a Task must not be empty"),
        (lambda: Task(1), r"the id of a Task is a str, got 1"),  # type: ignore[arg-type]
        (lambda: Task("a", None, float("nan")), r"priority of Task 'a' must be a finite number"),
        (lambda: Found(1, ["a"]), r"children are Tasks, got 'a'"),  # type: ignore[list-item]
        (lambda: Found(1, Task("a")), r"children are Tasks, got Task"),  # type: ignore[arg-type]
        (lambda: step("w").work(["a"], find), r"takes Tasks, got 'a'. Write Task\(id, payload\)"),
        (lambda: step("w").work(Task("a"), find), r"takes a collection of Tasks, got Task"),
        (lambda: step("w").work([], None), r"the body of .work\(\) is a function of one Task"),
        (lambda: step("w").work([], find, stop="now"), r"stop is a function of the Tally"),
        (lambda: step("w").work([], find, at_most=0), r"at_most of step 'w' must be a whole numb"),
        (lambda: step("w").work([], find, max_concurrency=0), r"max_concurrency of step 'w'"),
        (lambda: step("w").work([], find, on_error="all_or_nothing"), NOT_UNDONE),
    ],
)  # fmt: skip
def test_what_cannot_be_work_is_refused_where_it_is_written(make: Any, error: str) -> None:
    """With the value, and what to write."""
    with pytest.raises((DefinitionError, WrongUse), match=error):
        make()


async def test_no_tasks_are_no_work() -> None:
    """It ends at once, and well."""
    result, _ = await run_seen(just(step("w").work([], body_of(find))))
    assert result.value == Work()


async def test_a_generator_as_body_has_its_steps_below_the_task() -> None:
    """It returns what it found; ids are encoded as keys are."""

    def body(task: Task) -> Steps[Found[int]]:
        first = yield from step("one").call(find, task)
        yield from step("two").call(find, task)
        return Found(first.value * 10, [Task("b/c")] if task.id == "a" else [])

    result, _ = await run_seen(just(step("w").work([Task("a")], body)))
    assert result.value.values == (10, 30)
    assert paths(result)[1:] == ["w/a/one", "w/a/two", "w/b%2Fc/one", "w/b%2Fc/two"]


async def test_rollbacks_of_tasks_run_children_first() -> None:
    """What a task brought is undone before it, in the reverse order of the tree."""
    undone: list[str] = []

    def body(task: Task) -> Step[Found[str]]:
        made = step("do").call(action, task)
        return made.with_rollback(lambda _: undone.append(task.id))

    @workflow
    def flow() -> Steps[None]:
        yield from step("w").work([Task("a"), Task("b")], body)
        raise Boom("after all")

    action = Growing(TREE, {"a": 20})
    result, _ = await run_seen(flow)
    assert result.status == "failed"
    assert undone == IN_ORDER[::-1]


# -- a person's hand on it -------------------------------------------------------------------------


@pytest.mark.parametrize("durable", [True, False])
async def test_nothing_begins_while_a_run_is_paused(*, durable: bool) -> None:
    """And then the most urgent of all that has come meanwhile."""
    action = Growing({"a": [Task("a1", None, -5)]}, {"a": 20})
    flow = worked(action, ["a", "b", "c"], max_concurrency=1)
    executor = Executor(journal=TextJournal() if durable else MemoryJournal())
    async with executor.stream(flow) as run, anyio.create_task_group() as hands:

        async def hand() -> None:
            await executor.pause(run.run_id)
            await anyio.sleep(0.3)
            assert action.begun == ["a"]
            await executor.edit_work(run.run_id, add=[Task("x", None, -9)])
            await executor.unpause(run.run_id)

        async for event in run:
            if isinstance(event, ev.MemberStarted) and event.path == "w/a":
                hands.start_soon(hand)
    assert action.begun == ["a", "x", "a1", "b", "c"]


@dataclass
class Settings:
    """A payload."""

    n: int


async def test_the_queue_is_edited_while_a_task_is_at_work() -> None:
    """What is added begins at once where there is room; what is dropped or moved waits."""
    release = anyio.Event()
    payloads: dict[str, Any] = {}
    begun: list[str] = []

    async def act(task: Task) -> Found[int]:
        payloads[task.id] = task.payload
        if task.id == "z":
            release.set()
        if task.id == "a":
            await release.wait()
        return Found(1)

    flow = just(step("w").work([Task("a", Settings(0))], body_of(act)))
    async with Executor().stream(flow) as run:
        async for event in run:
            if isinstance(event, ev.MemberStarted):
                begun.append(event.key)
            if begun == ["a"] and isinstance(event, ev.MemberStarted):
                run.pause()
                run.edit_work(
                    add=[Task("x", {"n": 1}), Task("y", {"n": 2}, 5), Task("z", Settings(3))],
                    by="ann",
                )
                run.edit_work("w", drop=["x"], by="bob")
                run.edit_work(priority={"z": -1})
                run.unpause()
    work = run.result.value
    assert begun == ["a", "z", "y"]
    assert payloads == {"a": Settings(0), "z": Settings(3), "y": Settings(2)}
    assert [one.id for one in work.done] == ["a", "y", "z"]
    assert [(one.id, one.why) for one in work.refused] == [("x", "dropped by bob")]


async def test_what_cannot_be_done_to_a_queue_is_refused() -> None:
    """With what there is, and what can be done."""
    go_on = {name: anyio.Event() for name in ("before", "a", "after")}

    async def act(task: Task) -> Found[None]:
        await go_on["a"].wait()
        return Found(None)

    @workflow
    def flow() -> Steps[None]:
        yield from step("before").call(go_on["before"].wait)
        tasks = [Task("a", Settings(1)), Task("b", Settings(2))]
        yield from step("w").work(tasks, body_of(act), max_concurrency=1)
        yield from step("after").call(go_on["after"].wait)

    refused: list[str] = []

    def refuse(error: type[Exception] = CannotSteer, *args: Any, **edit: Any) -> None:
        with pytest.raises(error) as caught_:
            run.edit_work(*args, **edit)
        refused.append(str(caught_.value))

    executor = Executor()
    async with executor.stream(flow) as run:
        async for event in run:
            match event:
                case ev.StepStarted(path="before"):
                    refuse(add=[Task("x")])
                    go_on["before"].set()
                case ev.MemberStarted(path="w/a"):
                    refuse(CannotSteer, "ww", drop=["b"])
                    refuse(add=[Task("b")])
                    refuse(drop=["a"])
                    refuse(priority={"bb": 1})
                    refuse(InvalidInput, add=[Task("x", {"n": "one"})])
                    refuse(WrongUse)
                    refuse(WrongUse, drop="b")
                    refuse(DefinitionError, priority={"b": "high"})
                    go_on["a"].set()
                case ev.StepStarted(path="after"):
                    refuse(CannotSteer, "w", add=[Task("x")])
                    go_on["after"].set()
                case _:
                    pass
    told = [
        r"it has 0 queues now. A .work\(\) step has one while it is open",
        r"no work has begun at 'ww'. At work: 'w'",
        r"there is a task 'b' in step 'w' already",
        r"task 'a' does not wait: it has begun. .* steps below 'w/a'",
        r"step 'w' has no task 'bb'. Did you mean 'b'",
        r"payload of task x.* expected Settings",
        r"takes what is to be done",
        r"edit_work\(drop=\) takes a list of ids, got 'b'",
        r"the priority of task 'b' must be a finite number, got 'high'",
        r"step 'w' has ended",
    ]
    for text, pattern in zip(refused, told, strict=True):
        assert re.search(pattern, text), text
    with pytest.raises(CannotSteer, match="it has succeeded"):
        await executor.edit_work(run.run_id, add=[Task("x")])


async def test_a_failure_of_a_run_names_the_task() -> None:
    """The step inside of it, by its path."""
    flow = worked(Growing({}, {}, fails=["b"]), ["a", "b"], on_error="fail_fast")
    result, _ = await run_seen(flow)
    assert result.failed_step == "w"
    with pytest.raises(StepFailed, match="member 'b' failed"):
        result.step_results[0].unwrap()


async def test_a_task_that_has_ended_leaves_no_node_behind() -> None:
    """Of 300 tasks there are never more nodes than of those that are at work."""
    seen: list[int] = []

    async def find(task: Task) -> Found[int]:
        if task.payload % 50 == 49:
            seen.append(sum(isinstance(one, Node) for one in gc.get_objects()))
        return Found(0, [Task(str(task.payload + n), task.payload + n) for n in (1, 2)])

    work = step("w").work([Task("0", 0)], body_of(find), max_concurrency=4, at_most=300)
    gc.collect()
    before = sum(isinstance(one, Node) for one in gc.get_objects())
    result, _ = await run_seen(just(work))
    assert len(result.value.done) == 300
    assert len(seen) > 4
    assert max(seen) - before <= 2 * 4 + 2, seen


async def test_a_payload_that_cannot_be_recorded_fails_the_step() -> None:
    """The error names the task, and a default takes the place of the step."""
    tasks = [Task("a", 1), Task("b", lambda: 0)]
    flow = just(step("w").work(tasks, lambda _: step("x").call(int)).default("instead"))
    result = await Executor(journal=MemoryJournal(), durable=True).run(flow)
    assert result.value == "instead"
    assert "the payload of 'b'" in str(result.step("w").handled[0].error)
