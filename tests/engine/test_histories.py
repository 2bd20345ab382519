"""Runs beside one another, and as files."""

from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from handrail import (
    Agent,
    CommandBackend,
    DamagedExport,
    Executor,
    RunIdTaken,
    Steps,
    WrongUse,
    step,
    workflow,
)
from handrail.record.exports import VERSION
from handrail.testing import TextJournal
from handrail.testing.shapes import Body, workflow_of
from handrail.testing.strategies import bodies
from tests.durability.support import LAW, RUN, Lives, essence

pytestmark = pytest.mark.usefixtures("outside_git")

BIG = "x" * 40_000


@workflow
def child() -> Steps[int]:
    """A step below a step."""
    return (yield from step("inner").call(abs, -1))


@workflow
def flow(n: int = 1) -> Steps[int]:
    """A few steps, one of them in a group, and one that only some inputs have."""
    a = yield from step("a").call(abs, -n)
    yield from step("g").parallel(step("x").call(str.upper, "x"), step("y").call(abs, a))
    if n > 1:
        yield from step("extra").call(str.lower, "EXTRA")
    yield from step("sub").run_workflow(child)
    members = (step("p").call(abs, -1), step("q").call(abs, -2))
    yield from step("all").parallel(*members, on_error="continue")
    yield from step("code").agent(Agent("a", "Do it.", backend=CommandBackend(["cat"])))
    yield from step("big").call(str.lower, BIG)
    yield from step("again").call(str.lower, BIG)
    return (yield from step("z").call(abs, a))


def executor_with(*inputs: int) -> Executor:
    """An executor with a run ``r1``, ``r2`` ... for each of the inputs."""
    executor = Executor(journal=TextJournal(), workflows=[flow])
    for number, n in enumerate(inputs, 1):
        assert executor.options(run_id=f"r{number}").run_sync(flow, n).success
    return executor


def test_a_diff_tells_what_differs_and_where() -> None:
    """Step by step in their order; times make no difference."""
    executor = executor_with(1, 1, 2)
    same = executor.diff_sync("r1", "r2")
    assert (same.same, {one.state for one in same.steps}) == (True, {"same"})
    diff = executor.diff_sync("r1", "r3")
    assert not diff.same
    assert diff.fields == ("value",)
    assert [(one.path, one.state, one.fields) for one in diff.steps] == [
        ("a", "changed", ("output",)),
        ("g", "changed", ("output",)),
        ("g/x", "same", ()),
        ("g/y", "changed", ("output",)),
        ("extra", "only_b", ()),
        ("sub", "same", ()),
        ("sub/inner", "same", ()),
        ("all", "same", ()),
        ("all/p", "same", ()),
        ("all/q", "same", ()),
        ("code", "same", ()),
        ("big", "same", ()),
        ("again", "same", ()),
        ("z", "changed", ("output",)),
    ]
    assert diff.steps[0].a is not None
    assert diff.steps[0].a.output == 1
    back = executor.diff_sync("r3", "r1")
    assert [one.path for one in back.steps if one.state == "only_a"] == ["extra"]
    assert diff.to_dict()["steps"][4]["state"] == "only_b"


def test_a_fork_beside_its_parent_is_what_the_change_did() -> None:
    """The step that was given, and what followed."""
    executor = executor_with(1)
    fork = executor.fork_sync("r1", outputs={"a": 5})
    executor.resume_sync(fork)
    diff = executor.diff_sync("r1", fork)
    changed = {one.path for one in diff.steps if one.state == "changed"}
    assert changed == {"a", "g", "g/y", "z"}


@workflow
def waits() -> Steps[object]:
    """Wait for a signal."""
    return (yield from step("go").wait_for("go"))


def exported(folder: Path) -> Path:
    """A file with a run."""
    file = folder / "run.jsonl"
    executor_with(2).export_sync("r1", file)
    return file


def test_an_import_of_an_export_is_the_run(tmp_path: Path) -> None:
    """Its events and its result; under its own id once, and under another one."""
    file = exported(tmp_path)
    assert file.read_bytes().count(BIG.encode()) == 1
    ours, theirs = executor_with(2), Executor(journal=TextJournal(), workflows=[flow])
    assert theirs.import_run_sync(file) == "r1"
    with pytest.raises(RunIdTaken):
        theirs.import_run_sync(file)
    with pytest.raises(WrongUse, match="run_id= takes printable text"):
        theirs.import_run_sync(file, run_id="o\x00ther")
    assert theirs.import_run_sync(file, run_id="other") == "other"
    assert [one.run_id for one in theirs.journal.runs()] == ["r1", "other"]
    assert theirs.resume_sync("other").value == ours.resume_sync("r1").value
    theirs.export_sync("r1", tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == file.read_bytes()


def test_what_a_killed_export_left_is_gone_after_the_next_one(tmp_path: Path) -> None:
    """It may be longer than the whole file: that is written from its beginning."""
    executor, file = executor_with(2), tmp_path / "run.jsonl"
    executor.export_sync("r1", file)
    whole = file.read_bytes()
    (tmp_path / ".run.jsonl.part").write_bytes(whole + whole)
    executor.export_sync("r1", file)
    assert file.read_bytes() == whole
    assert [one.name for one in tmp_path.iterdir()] == ["run.jsonl"]


def test_exports_to_one_file_at_the_same_time_write_it_one_after_the_other(tmp_path: Path) -> None:
    """Each of them ends well, and the file is whole."""
    executor, file = executor_with(2), tmp_path / "run.jsonl"
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: executor.export_sync("r1", file), range(16)))
    assert Executor().import_run_sync(file) == "r1"
    assert [one.name for one in tmp_path.iterdir()] == ["run.jsonl"]


def test_an_export_through_a_link_or_a_pipe_leaves_it_there(tmp_path: Path) -> None:
    """As ``/dev/stdout`` is both: what it leads to gets the run."""
    executor, file = executor_with(2), tmp_path / "run.jsonl"
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(tmp_path / "there.jsonl")
    executor.export_sync("r1", file)
    executor.export_sync("r1", link)
    assert link.readlink().read_bytes() == file.read_bytes()
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as threads:
        read = threads.submit(pipe.read_bytes)
        executor.export_sync("r1", pipe)
        assert read.result() == file.read_bytes()
    assert pipe.is_fifo()


async def test_a_run_that_was_steered_is_exported_and_imported(tmp_path: Path) -> None:
    """What steers the run itself, and no step of it, is a part of its record, too."""
    executor, file = Executor(workflows=[waits], linger_s=5), tmp_path / "run.jsonl"
    async with executor:
        handle = await executor.start(waits, run_id="r")
        await executor.pause("r", by="somebody")
        await executor.unpause("r")
        await executor.signal("r", "go")
        await handle.result()
    await executor.export("r", file)
    other = Executor()
    assert await other.import_run(file) == "r"
    kinds = [type(one).__name__ for one in other.journal.events("r")]
    assert kinds.count("RunSteered") == 2


@LAW
@given(body=bodies(timeless=True))
def test_export_import_resume_is_the_identity(
    tmp_path_factory: pytest.TempPathFactory, *, body: Body
) -> None:
    """Of a run that died at any place: it ends as it would have where it was."""
    flow = workflow_of(body)
    run = Lives(flow, signals={"go": [1] * 100})
    run.live(stop_at=random.Random(repr(body)).randint(1, 12))  # of no value
    if not run.journal.reopened().events(RUN):
        return
    file = tmp_path_factory.mktemp("export") / "run.jsonl"
    Executor(journal=run.journal.reopened()).export_sync(RUN, file)
    twin = run.twin()
    twin.journal = TextJournal()
    Executor(journal=twin.journal).import_run_sync(file)
    assert [one.kind for one in twin.journal.records(RUN)] == [
        one.kind for one in run.journal.records(RUN)
    ]
    assert essence(twin.through().result) == essence(run.through().result)


def edited(lines: list[bytes], number: int) -> list[bytes]:
    """With another digit in this line."""
    at = next(i for i, byte in enumerate(lines[number]) if chr(byte).isdigit())
    digit = b"7" if lines[number][at : at + 1] != b"7" else b"8"
    return [
        *lines[:number],
        lines[number][:at] + digit + lines[number][at + 1 :],
        *lines[number + 1 :],
    ]


def test_a_file_that_is_not_as_it_was_written_is_refused(tmp_path: Path) -> None:
    """Whatever was done to it, with the line; and nothing is imported."""
    file = exported(tmp_path)
    lines = file.read_bytes().splitlines(keepends=True)
    count = len(lines)
    damaged: list[tuple[list[bytes], int]] = [([], 1)]
    for number in range(count):
        damaged.append((lines[:number], number + 1))
        damaged.append((edited(lines, number), number + 1))
        damaged.append(([*lines[:number], *lines[number + 1 :]], number + 1))
        damaged.append(([*lines[: number + 1], *lines[number:]], number + 2))
        if 0 < number < count - 1:
            swapped = [*lines[:number], lines[number + 1], lines[number], *lines[number + 2 :]]
            damaged.append((swapped, number + 1))
    damaged.append(([*lines, b"more\n"], count + 1))
    damaged.append(([b'{"handrail":"run","version":%d,"crc":0}\n' % (VERSION + 1)], 1))
    executor = Executor(journal=TextJournal())
    for content, line in damaged:
        file.write_bytes(b"".join(content))
        with pytest.raises(DamagedExport) as caught:
            executor.import_run_sync(file)
        assert caught.value.line == line, (str(caught.value), line)
    assert executor.journal.runs() == []


def test_an_answer_that_was_not_read_yet_goes_with_the_run(tmp_path: Path) -> None:
    """And an answer that is sent after the import is read."""

    @workflow
    def asks() -> Steps[Any]:
        one = yield from step("one").ask("One?", type=int)
        return one + (yield from step("two").ask("Two?", type=int))

    ours = Executor(journal=TextJournal(), workflows=[asks])
    ours.options(run_id="r").run_sync(asks)
    ours.answer_sync("r", "one", 1)
    ours.export_sync("r", tmp_path / "run.jsonl")
    theirs = Executor(journal=TextJournal(), workflows=[asks])
    theirs.import_run_sync(tmp_path / "run.jsonl")
    assert theirs.resume_sync("r").waiting[0].path == "two"
    theirs.answer_sync("r", "two", 2)
    assert theirs.resume_sync("r").value == 3


@pytest.mark.parametrize(
    "run_id", ["r" * 120, "\u00e9" * 120, "\U0001f6a2" * 120, "a/../b", "~", "%s"]
)
async def test_whatever_a_run_may_be_called_its_export_is_read(run_id: str, tmp_path: Path) -> None:
    """The file of a run of any accepted id is imported under that id."""
    here, there = Executor(journal=TextJournal()), Executor(journal=TextJournal())

    @workflow
    def flow() -> Steps[str]:
        return (yield from step("a").call(str.upper, "a"))

    await here.options(run_id=run_id).run(flow)
    await here.export(run_id, tmp_path / "run.jsonl")
    assert await there.import_run(tmp_path / "run.jsonl") == run_id
    assert (await there.get(run_id)).value == "A"
