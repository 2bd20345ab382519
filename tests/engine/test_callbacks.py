"""What each kind of exception does that a function of the user's raises, wherever it is called.

The table is that of docs/reference/callbacks.md: an interruption ends the drive, anything else is
the failure of the step.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from handrail import (
    Agent,
    Executor,
    FakeBackend,
    Found,
    MemoryJournal,
    MemorySink,
    RunCancelled,
    SqliteJournal,
    Stage,
    Steps,
    Task,
    current,
    step,
    workflow,
)
from handrail.model import events as ev
from tests.agents.repositories import needs_git, repository

pytestmark = [needs_git, pytest.mark.extra("jinja2")]


class Odd(BaseException):
    """No exception that anybody knows."""


INTERRUPTIONS: dict[str, Callable[[], BaseException]] = {
    "Ctrl-C": KeyboardInterrupt,
    "exit": lambda: SystemExit(3),
}
FAILURES: dict[str, Callable[[], BaseException]] = {
    "an error": lambda: ValueError("no"),
    "of a cancelled task": asyncio.CancelledError,
    "another": lambda: Odd("odd"),
    "a group": lambda: BaseExceptionGroup("all", [Odd("odd")]),
    "a cancelled run": lambda: RunCancelled("mine"),
    "GeneratorExit": GeneratorExit,
    "StopIteration": lambda: StopIteration(7),
}


class Fault:
    """What the callback raises, as long as it is set. Mutable."""

    make: Callable[[], BaseException] | None = None


def raise_it(*_: Any, **__: Any) -> None:
    """Raise what is set."""
    if Fault.make is not None:
        raise Fault.make()


def gives(value: Any) -> Callable[..., Any]:
    """A callback that gives this, unless it raises."""

    def callback(*_: Any, **__: Any) -> Any:
        raise_it()
        return value

    return callback


def gives_later(value: Any) -> Callable[..., Any]:
    """The same, if it is to be awaited."""

    async def callback(*_: Any, **__: Any) -> Any:
        raise_it()
        return value

    return callback


def at_second(value: Callable[[int], Any]) -> Callable[[int], Any]:
    """A callback of an item that raises for the second one."""

    def callback(item: int) -> Any:
        if item == 1:
            raise_it()
        return value(item)

    return callback


def fails() -> None:
    """Fail, so that a handler is asked."""
    raise LookupError


def fails_first() -> None:
    """Fail, if no attempt has failed before."""
    if current().attempt == 1:
        raise LookupError


def member(item: int) -> Any:
    """The step of a member."""
    return step("w").call(str, item)


class Items:
    """Items whose iterator is made, or goes on, by the user's code."""

    def __init__(self, at: int) -> None:
        self.at = at

    def __iter__(self) -> Iterator[int]:
        """Three items."""
        if self.at < 0:
            raise_it()
        return Numbers(self.at)


class Numbers:
    """An iterator that may raise at one of three items."""

    def __init__(self, at: int) -> None:
        self.at, self.next = at, 0

    def __iter__(self) -> Iterator[int]:
        """This one."""
        return self

    def __next__(self) -> int:
        """The next number."""
        if self.next == self.at:
            raise_it()
        if self.next == 3:
            raise StopIteration
        self.next += 1
        return self.next - 1


def held() -> Any:
    """The body of a step that holds a claim."""
    raise_it()
    return step("w").call(int)


def task(_: Task) -> Any:
    """The step of a task."""
    return step("w").call(Found, 1)


EACH = {"max_concurrency": 1}
CALLBACKS: dict[str, Callable[[], Any]] = {
    "when": lambda: step("s").call(int).when(gives(True)),
    "when, awaited": lambda: step("s").call(int).when(gives_later(True)),
    "branch": lambda: step("s").branch((gives(True), step("a").call(int))),
    "on_error": lambda: step("s").call(fails).on_error(gives(step("other").call(int))),
    "on_error, awaited": lambda: (
        step("s").call(fails).on_error(gives_later(step("other").call(int)))
    ),
    "key": lambda: step("s").for_each([1], member, key=gives("k")),
    "a later key": lambda: step("s").for_each([0, 1, 2], member, key=at_second(str), **EACH),
    "an iterator": lambda: step("s").for_each(Items(-1), member),
    "the first item": lambda: step("s").for_each(Items(0), member),
    "a later item": lambda: step("s").for_each(Items(1), member, **EACH),
    "a body": lambda: step("s").for_each([1], gives(step("w").call(int))),
    "a later body": lambda: step("s").for_each([0, 1, 2], at_second(member), **EACH),
    "a body in a race": lambda: step("s").parallel(
        step("g").for_each([1], gives(step("w").call(int))), step("b").call(int)
    ),
    "a task's body": lambda: step("s").work(
        [Task("a")], gives(step("w").call(Found, 1)), on_error="fail_fast"
    ),
    "stop": lambda: step("s").work([Task("a"), Task("b")], task, stop=gives(None)),
    "context": lambda: step("s").agent(Agent("a", "Hi", backend=FakeBackend(["x"])), gives({})),
    "holding": lambda: step("s").holding("name", held),
    "a stage": lambda: step("s").validate([Stage("lint", gives(True))], retry=1),
    "retry on": lambda: step("s").call(fails_first).retry(2, backoff=0, on=gives(True)),
    "retry on, beside another": lambda: step("s").parallel(
        step("a").call(fails_first).retry(2, backoff=0, on=gives(True)), step("b").call(int)
    ),
    "an action": lambda: step("s").call(gives(1)),
    "an action on the loop": lambda: step("s").call(gives(1)).inline(),
    "an awaited action": lambda: step("s").call(gives_later(1)),
    "gates": lambda: step("s").ask("Go?", choices=["yes", "no"]),
    "gates, awaited": lambda: step("s").ask("Go?", choices=["yes", "no"]),
    "around, before": lambda: step("s").call(int),
    "around, after": lambda: step("s").call(int),
}


@workflow
def flow(callback: str) -> Steps[str]:
    """One step before, which can be rolled back, and the callback's."""
    yield from step("first").call(int).with_rollback(lambda _: None)
    yield from CALLBACKS[callback]()
    return "done"


class AroundOne:
    """Raises before or after the attempt of the callback's step."""

    def __init__(self, when: str) -> None:
        self.when = when

    @asynccontextmanager
    async def __call__(self, attempt: Any) -> AsyncIterator[None]:
        """Round one attempt."""
        if attempt.path == "s" and self.when == "before":
            raise_it()
        yield
        if attempt.path == "s" and self.when == "after":
            raise_it()


def executor_for(callback: str, journal: Any) -> Executor:
    """An executor that has the callbacks which are its own."""
    gates = {"gates": gives("yes"), "gates, awaited": gives_later("yes")}.get(callback)
    around = [AroundOne(callback.rpartition(" ")[2])] if callback.startswith("around") else []
    return Executor(journal=journal, gates=gates, around=around, workflows=[flow])


@pytest.fixture(autouse=True, scope="module")
def in_a_repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Names are claimed in the repository of the current folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(repository(tmp_path_factory.mktemp("callbacks")))
        yield


@pytest.fixture(autouse=True)
def without_fault() -> Iterator[None]:
    """What one test sets is not raised in the next."""
    yield
    Fault.make = None


def kinds(journal: Any) -> list[type]:
    """The kinds of all recorded events."""
    return [type(event) for event in journal.events("r")]


ENDS = (ev.WorkflowCompleted, ev.RunSuspended)


@pytest.mark.parametrize("kind", INTERRUPTIONS)
@pytest.mark.parametrize("callback", CALLBACKS)
async def test_an_interruption_suspends_a_durable_run(
    tmp_path: Path, callback: str, kind: str
) -> None:
    """It comes out, nothing is recorded behind it, and a resume goes on, or is interrupted too."""
    journal = SqliteJournal(tmp_path / "runs.db")
    executor = executor_for(callback, journal)
    Fault.make = INTERRUPTIONS[kind]
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        await executor.options(run_id="r").run(flow, callback)
    assert (await executor.get("r")).status == "suspended"
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        await executor.resume("r")
    assert [one for one in kinds(journal) if one in ENDS] == [ev.RunSuspended] * 2
    assert kinds(journal)[-1] is ev.RunSuspended
    Fault.make = None
    assert (await executor.resume("r")).value == "done"


@pytest.mark.parametrize("kind", INTERRUPTIONS)
@pytest.mark.parametrize("callback", CALLBACKS)
async def test_an_interruption_cancels_a_run_in_memory(callback: str, kind: str) -> None:
    """Its rollbacks run before the interruption comes out."""
    journal = MemoryJournal()
    Fault.make = INTERRUPTIONS[kind]
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        await executor_for(callback, journal).options(run_id="r").run(flow, callback)
    (*_, end) = journal.events("r")
    assert isinstance(end, ev.WorkflowCompleted)
    assert end.status == "cancelled"
    assert kinds(journal).count(ev.RollbackCompleted) == 1


@pytest.mark.parametrize("kind", INTERRUPTIONS)
async def test_an_interruption_by_retry_on_after_an_async_action(kind: str) -> None:
    """It cancels a run in memory, as one after a plain function does."""

    async def fail() -> None:
        raise ValueError

    def on(_: BaseException) -> bool:
        error = INTERRUPTIONS[kind]()
        raise error

    @workflow
    def fails() -> Steps[None]:
        yield from step("s").call(fail).retry(2, on=on)

    journal = MemoryJournal()
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        await Executor(journal=journal).options(run_id="r").run(fails)
    assert journal.events("r")[-1].status == "cancelled"  # type: ignore[union-attr]


HOW_ITERATORS_END = {("a later item", "StopIteration"), ("the first item", "StopIteration")}


@pytest.mark.parametrize(
    ("callback", "kind"),
    [one for one in itertools.product(CALLBACKS, FAILURES) if one not in HOW_ITERATORS_END],
)
async def test_anything_else_fails_the_step(tmp_path: Path, callback: str, kind: str) -> None:
    """Whatever it is, the run ends as failed with its rollbacks, in memory and on disk."""
    Fault.make = FAILURES[kind]
    for journal in (MemoryJournal(), SqliteJournal(tmp_path / "runs.db")):
        result = await executor_for(callback, journal).options(run_id="r").run(flow, callback)
        assert (result.status, result.failed_step) == ("failed", "s")
        assert [one for one in kinds(journal) if one in ENDS] == [ev.WorkflowCompleted]
        assert kinds(journal)[-1] is ev.WorkflowCompleted
        assert kinds(journal).count(ev.RollbackCompleted) == 1


@pytest.mark.parametrize("callback", CALLBACKS)
async def test_a_run_in_the_background_is_not_driven_again_for_it(
    tmp_path: Path, callback: str
) -> None:
    """The cancellation of some other task is no cancellation of the run's host."""
    executor = executor_for(callback, SqliteJournal(tmp_path / "runs.db"))
    Fault.make = asyncio.CancelledError
    async with executor, executor.serve():
        handle = executor.start(flow, callback, run_id="r")
        result = await handle.result()
    assert (result.status, result.failed_step) == ("failed", "s")
    assert ev.RunResumed not in kinds(executor.journal)


class Raising:
    """A sink that raises at the end of each step."""

    def emit(self, event: Any) -> None:
        """Raise, if a step ended."""
        if isinstance(event, ev.StepCompleted):
            raise_it()


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("kind", INTERRUPTIONS)
async def test_an_interruption_of_a_sink_ends_the_drive(
    tmp_path: Path, kind: str, *, durable: bool
) -> None:
    """It is not the sink's fault, and nothing is recorded behind the end."""
    journal: Any = SqliteJournal(tmp_path / "runs.db") if durable else MemoryJournal()
    executor = Executor(journal=journal, sinks=[Raising()])
    Fault.make = INTERRUPTIONS[kind]
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        await executor.options(run_id="r").run(flow, "an action")
    end = ev.RunSuspended if durable else ev.WorkflowCompleted
    assert [one for one in kinds(journal) if one in ENDS] == [end]
    assert kinds(journal)[-1] is end


@pytest.mark.parametrize("kind", FAILURES)
async def test_a_sink_that_raises_anything_else_is_dropped(kind: str) -> None:
    """The run goes on, and the other sinks are told."""
    other = MemorySink()
    executor = Executor(sinks=[Raising(), other])
    Fault.make = FAILURES[kind]
    result = await executor.run(nothing)
    assert result.success
    assert [one.sink for one in other.events if isinstance(one, ev.SinkDropped)] == ["Raising"]


@workflow
def nothing() -> Steps[None]:
    """A step that calls nothing of the table."""
    yield from step("s").call(int)
