"""A recorded run as a test of today's code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail import (
    Executor,
    InsideEventLoop,
    SqliteJournal,
    Stage,
    Step,
    StepFailed,
    Steps,
    WrongUse,
    scope,
    step,
    workflow,
)
from handrail.record.run_record import Recorded
from handrail.testing import TextJournal, assert_replays, recorded_runs, replay
from handrail.testing.shapes import Body, workflow_of
from handrail.testing.strategies import bodies
from tests.durability.flows import FLOWS
from tests.durability.support import LAW, RUN, Lives, every_flow, lives
from tests.testing.edits import edits_of

pytestmark = pytest.mark.usefixtures("outside_git")


def fails() -> None:
    """Raise."""
    raise ValueError("no")


def one(item: int) -> Step[int]:
    """A member."""
    return step("s").call(abs, item)


def order_of(edit: str = "") -> Any:
    """What is recorded, or the same with this edit."""

    @workflow("order")
    def order(n: int = 1) -> Steps[str]:
        a = yield from step("a").call(str.upper, f"a{n}")
        if edit == "one more":
            yield from step("new").call(str.upper, a)
        if edit != "one is missing":
            yield from step("each").for_each([1, 2], one)
        try:
            yield from step("risky").call(*((int, "no") if edit == "another step" else (fails,)))
        except StepFailed:
            if edit == "a failure is not gone on from":
                raise
            a += "!"
        last = yield from step("last").call(str.lower, a)
        return "else" if edit == "another end" else last

    return order


order = order_of()


@workflow("another")
def another() -> Steps[str]:
    """Of another name."""
    return (yield from step("a").call(str.upper, "a"))


def exported(folder: Path) -> Path:
    """A file with a run of ``order``."""
    executor = Executor(journal=TextJournal(), workflows=[order])
    assert executor.options(run_id="r").run_sync(order).value == "a1!"
    file = folder / "order-1.jsonl"
    executor.export_sync("r", file)
    return file


ENDS = "the run: the record has succeeded with 'a1!'; the code has succeeded with 'else'"


@pytest.mark.parametrize(
    ("edit", "path", "text"),
    [
        ("another step", "risky", 'the code has python builtins:int ["no"]'),
        ("one more", "new", "the record has no such step; the code has python"),
        ("one is missing", "each", "the code has no such step"),
        ("a failure is not gone on from", "last", "the code has no such step"),
        ("another end", "", ENDS),
    ],
)
def test_the_first_divergence_is_told(tmp_path: Path, edit: str, path: str, text: str) -> None:
    """What was recorded, what the code is now, and the line of it."""
    file, code = exported(tmp_path), order_of(edit)
    assert replay(file, order).matches
    report = replay(file, code)
    assert report.divergence is not None
    assert report.divergence.path == path
    with pytest.raises(AssertionError) as caught:
        assert_replays(file, code)
    assert text in str(caught.value)
    if path:
        name, _, line = report.divergence.where.rpartition(":")
        first = code.definition.function.__code__.co_firstlineno
        assert name == __file__
        assert first <= int(line) < first + 18


def test_a_run_is_read_from_wherever_it_is(tmp_path: Path) -> None:
    """An export, the file of a journal, or a journal; nothing of it changes."""
    journal = SqliteJournal(tmp_path / "runs.db")
    Executor(journal=journal).options(run_id="r").run_sync(order, 2)
    before = journal.events("r")
    for source in (journal, tmp_path / "runs.db", exported(tmp_path)):
        assert_replays(source, order)
    assert journal.events("r") == before
    Executor(journal=journal).options(run_id="s").run_sync(order, 3)
    assert_replays(journal, order, run_id="s")
    with pytest.raises(WrongUse, match="it has r, s"):
        replay(journal, order)
    with pytest.raises(WrongUse, match="'order', not of 'another'"):
        replay(exported(tmp_path), another)


async def test_inside_a_loop_a_replay_says_where_it_runs(tmp_path: Path) -> None:
    """And what it says to write works."""
    file = await anyio.to_thread.run_sync(exported, tmp_path)
    with pytest.raises(InsideEventLoop, match=r"await anyio\.to_thread\.run_sync"):
        replay(file, order)
    assert (await anyio.to_thread.run_sync(replay, file, order)).matches


def test_a_folder_of_runs_is_a_test_for_each(tmp_path: Path) -> None:
    """Named as the files are; an empty folder is a mistake."""
    exported(tmp_path)
    mark = recorded_runs(tmp_path)
    assert mark.args == ("recorded_run", [tmp_path / "order-1.jsonl"])
    assert mark.kwargs == {"ids": ["order-1"]}
    with pytest.raises(FileNotFoundError, match="no exported run"):
        recorded_runs(tmp_path / "none")


CODE: dict[str, Any] = {
    "y": str.upper,
    "child": "b",
    "items": (1, 2),
    "member": 0,
    "way": "o",
    "fix": abs,
    "check": "true",
    "end": 0,
}
"""What of the code of ``deep`` is edited."""


@workflow
def child() -> Steps[str]:
    """Two steps, and an end of its own."""
    first = yield from step("x").call(str.lower, "X")
    yield from step("y").call(CODE["y"], first)
    return str(CODE["child"])


def member(item: int) -> Steps[int]:
    """A step, and an end of its own."""
    return (yield from step("s").call(abs, item)) + CODE["member"]


@workflow
def deep() -> Steps[int]:
    """Steps within steps, all of which have ended."""
    yield from step("in").run_workflow(child)
    yield from scope("help", child.definition.function())
    yield from step("each").for_each(iter(CODE["items"]), member)
    handled = step("f").call(fails).on_error(lambda *_: step(CODE["way"]).call(CODE["fix"], 1))
    yield from handled.retry(2, backoff=0)
    yield from step("v").validate([Stage("c", CODE["check"])])
    return (yield from step("n").call(abs, 3)) + CODE["end"]


EDITS = [
    ("y", str.title, "in/y", "the record has python builtins:str.upper"),
    ("child", "c", "in", "the record has succeeded with 'b'; the code has succeeded with 'c'"),
    ("items", (1, 2, 3), "each/2", "the record has no such step; the code has a member"),
    ("items", (1,), "each/1", "the code has no such step"),
    ("items", (1, 5), "each/1", "the record has item 2; the code has item 5"),
    ("member", 7, "each/0", "the record has succeeded with 1; the code has succeeded with 8"),
    ("way", "p", "f/o", "the code has no such step"),
    ("fix", str, "f/o", "the code has python builtins:str [1]"),
    ("check", "false", "v", 'the code has validate ["c: \\"false\\""]'),
    ("end", 1, "", "the run: the record has succeeded with 3; the code has succeeded with 4"),
]


@pytest.mark.parametrize(("what", "new", "path", "text"), EDITS)
def test_what_stands_in_a_step_that_ended_is_compared(
    monkeypatch: pytest.MonkeyPatch, what: str, new: Any, path: str, text: str
) -> None:
    """Down to what each body returns."""
    journal = TextJournal()
    assert Executor(journal=journal).options(run_id="r").run_sync(deep).value == 3
    assert_replays(journal, deep)
    monkeypatch.setitem(CODE, what, new)
    found = replay(journal, deep).divergence
    assert found is not None
    assert (found.path, text in str(found)) == (path, True), str(found)


def drawn(body: Body, crashes: list[tuple[int, bool]], *, cancels: bool, ends: bool) -> Lives:
    """A run to whatever end, or cut off anywhere."""
    run = Lives(workflow_of(body), signals={"go": [1] * 100}, again=True)
    for number, (writes, returns) in enumerate(crashes, 1):
        if number == len(crashes) and cancels and run.journal.reopened().events(RUN):
            run.cancels = "stop"
        run.live(stop_at=writes, abrupt=not returns)
    if ends:
        run.again = False
        run.through()
    return run


CRASHES = st.lists(st.tuples(st.integers(0, 25), st.booleans()), max_size=3)


@LAW
@given(
    body=bodies(),
    crashes=CRASHES,
    cancels=st.booleans(),
    ends=st.booleans(),
    picked=st.integers(0, 99),
)
def test_a_run_is_replayed_by_its_own_code_and_by_no_other(
    *, body: Body, crashes: list[tuple[int, bool]], cancels: bool, ends: bool, picked: int
) -> None:
    """However it ended, and if it was killed anywhere; where one step is another, that is named,
    wherever it stands, if anything is recorded of it, and of all that came before it.
    """
    journal = drawn(body, crashes, cancels=cancels, ends=ends).journal.reopened()
    history = journal.events(RUN)
    if not history:
        return
    assert replay(journal, workflow_of(body)).divergence is None
    edits = edits_of(body)
    if not edits:
        return
    edit = edits[picked % len(edits)]
    recorded = Recorded(history)
    known = {path for path in recorded.paths_below("") if recorded.at(path).started_at is not None}
    found = replay(journal, workflow_of(edit.body)).divergence
    if found is None and recorded.begun().keys() - known:
        return  # what is to run again hides what stands behind it
    if any(re.fullmatch(pattern, path) for pattern in edit.paths for path in known):
        assert found is not None
        assert any(re.fullmatch(pattern, found.path) for pattern in edit.paths), found
    else:
        assert found is None


@every_flow
def test_a_flow_as_people_write_it_replays_at_each_place(name: str) -> None:
    """Also while it waits, and where it was cut off."""
    flow, _ = FLOWS[name]
    run = lives(name)
    run.through()
    history = run.journal.reopened().events(RUN)
    for end in range(1, len(history) + 1):
        journal = TextJournal()
        for event in history[:end]:
            journal.append(event)
        assert replay(journal, flow).divergence is None
