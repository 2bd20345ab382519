"""What a fork takes from the run that it is made of, and what it does otherwise."""

from __future__ import annotations

import sqlite3
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from handrail import (
    Agent,
    AgentReply,
    Budget,
    BudgetExceeded,
    Executor,
    FakeBackend,
    Found,
    InvalidInput,
    JournalDamaged,
    Limits,
    NotRecorded,
    RunIdTaken,
    SqliteJournal,
    Step,
    Steps,
    Task,
    Usage,
    WrongUse,
    scope,
    step,
    workflow,
)
from handrail.model import events as ev
from handrail.model.results import qualified
from handrail.ports.agent import Capabilities
from handrail.testing import MemorySink, ProcessGone, TextJournal

LOG: list[str] = []


def do(what: str) -> str:
    """Note that it was done."""
    LOG.append(what)
    return what


def size(text: str) -> int:
    """How long it is."""
    return len(text)


@workflow
def child(n: int) -> Steps[str]:
    """Two steps."""
    first = yield from step("ca").call(do, f"ca{n}")
    return first + (yield from step("cb").call(do, f"cb{n}"))


@workflow
def flow(n: int = 1) -> Steps[str]:
    """Something of each kind, one after another."""
    a = yield from step("a").call(do, f"a{n}")
    x = step("x").call(do, "x").inline()  # which has ended before the child goes on
    yield from step("g").parallel(x, step("y").run_workflow(child, n))
    q = yield from step("q").ask("Go?", choices=["yes", "no"])
    count = yield from step("count").call(size, a)
    return (yield from step("z").call(do, f"z{a}{q}{count}"))


def made() -> Executor:
    """An executor that has a whole run, ``p``."""
    executor = Executor(journal=TextJournal(), workflows=[flow], gates=lambda _: "yes")
    assert executor.options(run_id="p").run_sync(flow).value == "za1yes2"
    LOG.clear()
    return executor


CHANGES: list[tuple[dict[str, Any], str, list[str]]] = [
    ({}, "za1yes2", []),
    ({"at": "z"}, "za1yes2", ["za1yes2"]),
    ({"at": "g/y/cb"}, "za1yes2", ["cb1", "za1yes2"]),
    ({"at": "a"}, "za1yes2", ["a1", "x", "ca1", "cb1", "za1yes2"]),
    ({"outputs": {"a": "new"}}, "znewyes3", ["x", "ca1", "cb1", "znewyes3"]),
    ({"outputs": {"q": "no"}}, "za1no2", ["za1no2"]),
    ({"outputs": {"count": "7"}}, "za1yes7", ["za1yes7"]),
    ({"outputs": {"a": "new"}, "at": "q"}, "znewyes3", ["x", "ca1", "cb1", "znewyes3"]),
    ({"inputs": {"n": 2}}, "za2yes2", ["a2", "x", "ca2", "cb2", "za2yes2"]),
    ({"rerun": ["g/x"]}, "za1yes2", ["x"]),
]


@pytest.mark.parametrize(("changes", "value", "done"), CHANGES)
def test_a_fork_does_what_is_not_kept(changes: Any, value: str, done: list[str]) -> None:
    """By where it is made, the outputs and inputs that were given, and what runs again."""
    executor = made()
    fork_id = executor.fork_sync("p", **changes)
    planned = executor.plan_sync(fork_id)
    assert LOG == []
    result = executor.resume_sync(fork_id)
    assert (result.value, sorted(LOG)) == (value, sorted(done))
    kept = {one.path for one in planned.steps if one.state == "recorded"}
    assert all(result.step(path).replayed for path in kept)
    for path in changes.get("outputs", {}):
        assert result.step(path).given_by == "a person"
    (parent, fork) = executor.journal.runs()
    assert (parent.forked_from, fork.forked_from) == (None, ("p", changes.get("at")))


def each(words: str) -> Step[Any]:
    """A member for each letter."""
    return step("v").for_each([*words], lambda one: step("s").call(do, one), key=str)


def same_each(words: str) -> Step[Any]:
    """The same members, whose step differs."""
    return step("v").for_each([1, 2], lambda one: step("s").call(do, f"{one}{words}"))


def one_of_two(words: str) -> Step[Any]:
    """Two members, of which the first has another item."""
    items = [("first", words), ("second", "same")]
    return step("v").for_each(items, lambda one: step("s").call(do, one[1]), key=itemgetter(0))


def task_of_two(words: str) -> Step[Any]:
    """Two tasks, of which the first has another payload."""
    tasks = [Task("first", words), Task("second", "same")]
    return step("v").work(tasks, lambda task: step("s").call(found, task.payload))


def nested(words: str) -> Step[Any]:
    """Groups in the members of a group, one of which has another item."""
    items = [("first", words), ("second", "same")]
    return step("v").for_each(
        items, lambda one: step("in").for_each([one[1]], member, key=str), key=itemgetter(0)
    )


def member(item: str) -> Step[str]:
    """The member for an item."""
    return step("s").call(do, item)


def scoped(words: str) -> Step[Any]:
    """A helper that has more to do."""

    def helper() -> Steps[None]:
        for one in words:
            yield from step(f"s-{one}").call(do, one)

    return scope("v", helper())


def inner(words: str) -> Step[Any]:
    """A group in a group."""
    return step("out").parallel(each(words), step("x").call(do, "x"))


def found(word: str) -> Found[str]:
    """What a task finds."""
    return Found(do(word))


def queue(words: str) -> Step[Any]:
    """A task for each letter."""
    tasks = [Task(one) for one in words]
    return step("v").work(tasks, lambda task: step("s").call(found, task.id))


@pytest.mark.parametrize(
    ("make", "words", "done"),
    [
        *((make, "ab", []) for make in (each, same_each, scoped, inner, queue, nested)),
        (each, "abc", ["after", "c"]),
        (each, "ax", ["after", "x"]),
        (each, "a", ["after"]),
        (same_each, "x", ["1x", "2x", "after"]),
        (scoped, "abc", ["after", "c"]),
        (scoped, "a", ["after"]),
        (inner, "abc", ["after", "c"]),
        (queue, "abc", ["after", "c"]),
        (one_of_two, "x", ["after", "x"]),
        (task_of_two, "x", ["after", "x"]),
        (nested, "x", ["after", "x"]),
    ],
)
def test_what_differs_inside_of_a_step_that_ended_runs_again(
    make: Any, words: str, done: list[str]
) -> None:
    """Other inputs, or code, may show only in the members of a group, or below a scope."""

    @workflow("flow")
    def inside(words: str) -> Steps[None]:
        yield from make(words)
        yield from step("after").call(do, "after")

    executor = Executor(journal=TextJournal(), workflows=[inside])
    run_id = executor.run_sync(inside, "ab").run_id
    LOG.clear()
    fork_id = executor.fork_sync(run_id, inputs={"words": words})
    planned = {one.path for one in executor.plan_sync(fork_id).steps if one.state == "recorded"}
    result = executor.resume_sync(fork_id)
    assert (result.success, sorted(LOG)) == (True, done)
    assert planned <= {one.path for one in result.step_results if one.replayed}
    LOG.clear()
    assert executor.resume_sync(executor.fork_sync(fork_id)).success
    assert LOG == []


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"at": "aa"}, NotRecorded, "run p has no recorded step 'aa'"),
    ({"rerun": ["zz"]}, NotRecorded, "run p has no recorded step 'zz'"),
    ({"at": "a", "rerun": ["z"]}, NotRecorded, "run p has no recorded step 'z'"),
    ({"outputs": {"g": 1}}, WrongUse, "it is a parallel, whose output follows"),
    ({"outputs": {"a": "x", "z": "y"}}, WrongUse, "it began after what the fork keeps"),
    ({"outputs": {"q": "maybe"}}, InvalidInput, "expected one of: yes, no"),
    ({"outputs": {"count": "many"}}, InvalidInput, "expected int"),
    ({"inputs": {"m": 1}}, WrongUse, "has no input 'm'"),
    ({"inputs": {"n": "x"}}, InvalidInput, "expected int"),
    ({"fork_id": "p"}, RunIdTaken, "'p'"),
    ({"fork_id": "p\n2"}, WrongUse, r"fork_id= takes printable text.* got 'p\\n2'"),
    ({"fork_id": " "}, WrongUse, "fork_id= takes printable text"),
    ({"fork_id": "x" * 1_001}, WrongUse, "of 1 to 120 characters"),
]


@pytest.mark.parametrize(("changes", "error", "text"), WRONG)
def test_what_cannot_be_forked_makes_nothing(changes: Any, error: Any, text: str) -> None:
    """The error says what is wrong, and there is no new run."""
    executor = made()
    with pytest.raises(error, match=text):
        executor.fork_sync("p", **changes)
    assert [one.run_id for one in executor.journal.runs()] == ["p"]


def test_a_step_whose_code_changed_runs_again_with_what_followed() -> None:
    """In a fork alone: the run itself refuses to go on."""

    @workflow("flow")
    def edited(n: int = 1) -> Steps[str]:
        a = yield from step("a").call(do, f"a{n}")
        yield from step("g").parallel(step("x").call(do, "X"), step("y").run_workflow(child, n))
        q = yield from step("q").ask("Go?", choices=["yes", "no"])
        count = yield from step("count").call(size, a)
        return (yield from step("z").call(do, f"z{a}{q}{count}"))

    executor = made()
    result = executor.resume_sync(executor.fork_sync("p"), edited)
    assert (result.value, sorted(LOG)) == ("za1yes2", ["X", "ca1", "cb1", "za1yes2"])


@pytest.mark.parametrize("dies", [False, True])
def test_what_a_fork_did_before_a_changed_step_is_not_done_again(*, dies: bool) -> None:
    """A new step before the changed one, and one that the other run had undone: in one drive, or if
    the process dies in between.
    """

    @workflow("flow")
    def old() -> Steps[str]:
        a = yield from step("a").call(do, "a").with_rollback(lambda _: LOG.append("undo"))
        b = yield from step("b").call(do, "b")
        yield from step("z").call(fail)
        return a + b

    def fail() -> None:
        raise OSError

    @workflow("flow")
    def new() -> Steps[str]:
        a = yield from step("a").call(do, "a").with_rollback(lambda _: LOG.append("undo"))
        n = yield from step("new").call(do, "new")
        b = yield from step("b").call(do, "B")
        return a + n + b

    executor = Executor(journal=TextJournal())
    LOG.clear()
    executor.options(run_id="p").run_sync(old)
    assert LOG == ["a", "b", "undo"]
    LOG.clear()
    fork_id = executor.fork_sync("p")
    journal: Any = executor.journal
    if dies:
        journal = journal.reopened(stop_at=5)
        with pytest.raises(ProcessGone):
            Executor(journal=journal).resume_sync(fork_id, new)
        journal = journal.reopened()
    result = Executor(journal=journal).resume_sync(fork_id, new)
    assert (result.value, LOG) == ("anewB", ["a", "new", "B"])


def test_a_member_that_a_fork_made_before_a_changed_step_is_not_made_again() -> None:
    """A group that the other run had undone, before a step that another input changes."""

    def member(name: str) -> Steps[str]:
        return (yield from step("m").call(do, name).with_rollback(lambda _: LOG.append("undo")))

    def fail() -> None:
        raise OSError

    @workflow("flow")
    def flow(n: int = 1, fails: bool = True) -> Steps[str]:
        yield from step("each").for_each(["x", "y"], member)
        b = yield from step("b").call(do, f"b{n}")
        if fails:
            yield from step("z").call(fail)
        return b

    executor = Executor(journal=TextJournal(), workflows=[flow])
    executor.options(run_id="p").run_sync(flow)
    LOG.clear()
    result = executor.resume_sync(executor.fork_sync("p", inputs={"n": 2, "fails": False}))
    assert (result.value, sorted(LOG)) == ("b2", ["b2", "x", "y"])


@pytest.mark.parametrize(
    ("inputs", "done"), [({"n": 2}, ["a2", "b", "c"]), ({}, ["a1", "c"])], ids=["other", "same"]
)
def test_what_followed_an_undone_step_runs_again_if_the_step_has_changed(
    inputs: dict[str, int], done: list[str]
) -> None:
    """It runs again in any case; only if it differs now does what followed it, too."""

    @workflow("flow")
    def flow(n: int = 1, fails: bool = True) -> Steps[str]:
        a = yield from step("a").call(do, f"a{n}").with_rollback(lambda _: LOG.append("undo"))
        yield from step("b").call(do, "b")
        if fails:
            raise OSError
        yield from step("c").call(do, "c")
        return a

    executor = Executor(journal=TextJournal(), workflows=[flow])
    executor.options(run_id="p").run_sync(flow)
    LOG.clear()
    fork_id = executor.fork_sync("p", inputs={**inputs, "fails": False})
    states = {one.path: one.state for one in executor.plan_sync(fork_id).steps}
    assert states["b"] == ("may run" if inputs else "recorded")
    assert (executor.resume_sync(fork_id).value, LOG) == (done[0], done)


def test_what_a_resume_ran_again_is_not_run_twice_for_a_change_behind_it() -> None:
    """The change shows once the step has ended anew; what is further on still runs again."""

    @workflow("flow")
    def edited(n: int = 1) -> Steps[str]:
        a = yield from step("a").call(do, f"a{n}")
        x = step("x").call(do, "x").inline()
        yield from step("g").parallel(x, step("y").run_workflow(child, n + 1))
        return a

    executor = made()
    fork_id = executor.fork_sync("p")
    executor.resume_sync(fork_id, edited, rerun=["a", "g/x"])
    assert LOG == ["a1", "x", "ca2", "cb2"]


async def test_a_run_that_is_driven_can_be_forked() -> None:
    """What is recorded by then counts; an action that is at work is made again."""

    @workflow
    def asks() -> Steps[str]:
        yield from step("first").call(do, "first")
        return (yield from step("second").call(fork_it))

    async def fork_it() -> str:
        if forks:
            return "again"
        forks.append(await executor.fork("p"))
        return "done"

    forks: list[str] = []
    LOG.clear()
    executor = Executor(journal=TextJournal(), workflows=[asks])
    assert (await executor.options(run_id="p").run(asks)).value == "done"
    result = await executor.resume(forks[0])
    assert (result.value, LOG) == ("again", ["first"])
    assert result.step("second").attempts == 1


def test_the_output_of_a_wait_can_be_given() -> None:
    """The signal that ended the wait is not kept, so it ends no other wait either."""

    @workflow
    def waits() -> Steps[list[int]]:
        first = yield from step("first").wait_for("go", int)
        second = yield from step("second").wait_for("go", int)
        return [first, second]

    executor = Executor(journal=TextJournal(), workflows=[waits])
    run_id = executor.run_sync(waits).run_id
    executor.signal_sync(run_id, "go", 1)
    executor.signal_sync(run_id, "go", 2)
    assert executor.resume_sync(run_id).value == [1, 2]
    fork_id = executor.fork_sync(run_id, outputs={"first": 7})
    assert executor.resume_sync(fork_id).value == [7, 2]


def test_a_failed_run_goes_on_in_its_fork() -> None:
    """As a resume of it would, which can still be made."""
    broken = [True]

    def may_fail() -> str:
        if broken:
            raise ValueError("no")
        return do("ok")

    @workflow
    def fails() -> Steps[str]:
        yield from step("first").call(do, "first")
        return (yield from step("second").call(may_fail))

    LOG.clear()
    executor = Executor(journal=TextJournal(), workflows=[fails])
    assert executor.options(run_id="p").run_sync(fails).status == "failed"
    broken.clear()
    for run_id in (executor.fork_sync("p"), "p"):
        assert executor.resume_sync(run_id).value == "ok"
    assert LOG == ["first", "ok", "ok"]


@pytest.mark.parametrize("copies", [True, False])
def test_a_session_of_the_other_run_is_not_gone_on_in(*, copies: bool) -> None:
    """A copy of it is, where the backend can; else a new one is begun, and it is said."""
    backend = FakeBackend([AgentReply("ok", session=f"s-{n}") for n in range(9)])
    if not copies:
        backend.capabilities = Capabilities(sessions=True)
    agent = Agent("a", "Do it.", backend=backend)

    @workflow
    def chats() -> Steps[None]:
        first = yield from step("one").agent(agent)
        second = yield from step("two").agent(agent, session=first)
        yield from step("three").agent(agent, session=second)

    sink = MemorySink()
    executor = Executor(journal=TextJournal(), workflows=[chats], sinks=[sink])
    executor.options(run_id="p").run_sync(chats)
    assert [turn.session for turn in backend.turns] == [None, "s-0", "s-1"]
    executor.resume_sync(executor.fork_sync("p", at="two"))
    (two, three) = backend.turns[3:]
    assert (two.session, two.fork) == (("s-0", True) if copies else (None, False))
    assert (three.session, three.fork) == ("s-3", False)
    told = [one.path for one in sink.of(ev.StepOutput) if "copies no sessions" in one.text]
    assert told == ([] if copies else ["two"])


def test_what_kept_steps_spent_counts() -> None:
    """What a step spent that is not kept does not."""
    used = Usage(10, 0, 1.0, 1)
    backend = FakeBackend([AgentReply("ok", usage=used)] * 9)
    agent = Agent("a", "Do it.", backend=backend)

    @workflow
    def spends() -> Steps[None]:
        for number in (1, 2):
            yield from step(f"s{number}").agent(agent)

    limits = Limits(budget=Budget(usd=2.5))
    executor = Executor(journal=TextJournal(), workflows=[spends], limits=limits)
    assert executor.options(run_id="p").run_sync(spends).success
    assert executor.resume_sync(executor.fork_sync("p", at="s2")).success
    again = executor.resume_sync(executor.fork_sync("p", rerun=["s1"]))
    assert again.step("s1").error_type == qualified(BudgetExceeded)


def test_a_run_whose_record_is_damaged_is_forked_before_that(tmp_path: Path) -> None:
    """From a step that is still whole; not from one behind the damage, nor all of it."""
    file = tmp_path / "runs.db"
    executor = Executor(journal=SqliteJournal(file), workflows=[flow], gates=lambda _: "yes")
    executor.options(run_id="p").run_sync(flow)
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE events SET body = '{}' WHERE path = 'z' AND kind LIKE '%ed'")
    connection.close()
    LOG.clear()
    assert executor.resume_sync(executor.fork_sync("p", at="q")).value == "za1yes2"
    assert LOG == ["za1yes2"]
    for changes in ({}, {"at": "z"}):
        with pytest.raises(JournalDamaged):
            executor.fork_sync("p", **changes)


def test_a_secret_stays_the_name_of_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the variable is not set while the fork is made."""
    monkeypatch.setenv("MY_TOKEN", "hush-hush")
    journal = TextJournal()

    @workflow
    def tells() -> Steps[str]:
        said = yield from step("says").call(lambda: "it is hush-hush")
        return (yield from step("z").call(do, said))

    executor = Executor(journal=journal, workflows=[tells])
    executor.options(run_id="p").run_sync(tells)
    monkeypatch.delenv("MY_TOKEN")
    fork_id = executor.fork_sync("p", at="z")
    first, second = (
        [one for one in journal.records(run) if one.path == "says"] for run in ("p", fork_id)
    )
    assert first == second
    monkeypatch.setenv("MY_TOKEN", "hush-hush")
    assert executor.resume_sync(fork_id).value == "it is hush-hush"
    assert isinstance(journal.events(fork_id)[0], ev.WorkflowStarted)
