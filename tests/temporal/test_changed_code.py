"""An open run whose workers have other code: nothing is rewritten, and every command reaches it."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from temporalio.client import Client

from handrail import Executor, MemoryJournal, ReplayMismatch, step, workflow
from handrail.model.shapes import WorkflowLike
from handrail.steps.verbs import Steps
from handrail.temporal import TemporalExecutor, TemporalWorker

pytestmark = pytest.mark.temporal


def send(text: str) -> str:
    """Send."""
    return f"sent {text}"


def post(text: str) -> str:
    """Another function."""
    return f"posted {text}"


def letters(changed: str = "") -> WorkflowLike[[], Any]:
    """A workflow that waits for an answer after a step and a group, as it was or ``changed``."""

    @workflow(name="letters")
    def made() -> Steps[Any]:
        if changed == "a step before":
            yield from step("before").call(send, "early")
        name = "letter" if changed == "another name" else "draft"
        action = post if changed == "another function" else send
        text = "dear friends" if changed == "another argument" else "dear all"
        said = yield from step(name).call(action, text)
        items = ["a", "c"] if changed == "another item" else ["a", "b"]
        yield from step("copies").for_each(items, one, key=str)
        if changed == "another verb":
            yield from step("ok").call(send, "no question")
        else:
            question = "Ship it?" if changed == "another question" else "Ship?"
            yield from step("ok").ask(question, type=bool)
        return said

    def one(item: str) -> Any:
        return step("send").call(send, item)

    return made


CHANGES = {
    "another argument": "draft",
    "another function": "draft",
    "another name": "draft",
    "a step before": "draft",
    "another item": "copies",
    "another question": "ok",
    "another verb": "ok",
}
"""Each change, and in which step's path it is told."""


async def _embedded(changed: str) -> list[str]:
    """The paths that a resume in one process refuses; empty if it goes on."""
    journal = MemoryJournal()
    run_id = (await Executor(journal=journal, durable=True).run(letters())).run_id
    here = Executor(journal=journal, durable=True, workflows=[letters(changed)])
    await here.answer(run_id, "ok", "yes")
    try:
        await here.resume(run_id)
    except ReplayMismatch as mismatch:
        return [one.path for one in mismatch.changes]
    return []


@asynccontextmanager
async def _changed(
    client: Client, changed: str, tmp_path: Path
) -> AsyncGenerator[tuple[TemporalExecutor, str, list[str]]]:
    """A run that waits for an answer, whose worker then has other code; and its export before."""
    queue = f"changed-{uuid.uuid4().hex[:8]}"
    was, now = letters(), letters(changed)
    async with TemporalWorker(client, [was], task_queue=queue):
        there = TemporalExecutor(client, task_queue=queue, workflows=[was])
        run_id = (await there.run(was)).run_id
        before = await _exported(there, run_id, tmp_path)
    async with TemporalWorker(client, [now], task_queue=queue):
        with anyio.fail_after(60):
            yield TemporalExecutor(client, task_queue=queue, workflows=[now]), run_id, before


async def _exported(there: TemporalExecutor, run_id: str, folder: Path) -> list[str]:
    file = folder / "export.jsonl"
    file.unlink(missing_ok=True)
    await there.export(run_id, file)
    return file.read_text("utf-8").splitlines()[1:-1]


@pytest.mark.parametrize("changed", CHANGES)
async def test_a_changed_run_says_so_to_whoever_looks(
    client: Client, changed: str, tmp_path: Path
) -> None:
    """Its record stays as it was; it waits for a person, and the path that changed is named."""
    async with _changed(client, changed, tmp_path) as (there, run_id, before):
        assert await _exported(there, run_id, tmp_path) == before
        state = await there.get(run_id)
        (listed,) = [one for one in await there.runs() if one.run_id == run_id]
        assert (state.status, listed.status, listed.holder) == ("suspended", "suspended", None)
        for waits in (state.waits_for, listed.waits_for):
            assert [one.kind for one in waits] == ["person"]
            assert CHANGES[changed] in waits[0].what
        assert (await there.plan(run_id)).steps
        assert await there.fork(run_id, rerun=["draft"])


@pytest.mark.parametrize("changed", CHANGES)
@pytest.mark.parametrize("accept", ["reuse", "rerun"])
async def test_a_changed_run_goes_on_as_a_resume_says(
    client: Client, changed: str, accept: str, tmp_path: Path
) -> None:
    """An answer is kept for it; the rule of what has changed is that of a run in one process."""
    async with _changed(client, changed, tmp_path) as (there, run_id, before):
        assert await there.answer(run_id, "ok", "yes") is True
        refused = await _embedded(changed)
        if not refused:
            result = await there.resume(run_id)
        else:
            with pytest.raises(ReplayMismatch) as caught:
                await there.resume(run_id)
            paths = [one.path for one in caught.value.changes]
            assert paths == refused
            result = await there.resume(run_id, **{accept: paths})
            if result.status == "suspended":  # the question was asked anew
                await there.answer(run_id, "ok", "yes")
                result = await there.result(run_id)
        assert result.status == "succeeded", result.error
        record = await _exported(there, run_id, tmp_path)
        assert record[: len(before)] == before


@pytest.mark.parametrize("changed", CHANGES)
async def test_a_changed_run_can_be_cancelled(client: Client, changed: str, tmp_path: Path) -> None:
    """Whatever has changed."""
    async with _changed(client, changed, tmp_path) as (there, run_id, before):
        result = await there.cancel(run_id, "no longer needed")
        assert result is not None
        assert result.status == "cancelled"
        assert (await _exported(there, run_id, tmp_path))[: len(before)] == before


async def test_the_former_code_goes_on_by_itself(client: Client, tmp_path: Path) -> None:
    """The run takes what was sent meanwhile."""
    async with _changed(client, "another name", tmp_path) as (there, run_id, _):
        await there.answer(run_id, "ok", "yes")
        queue = there._caller.task_queue
    async with TemporalWorker(client, [letters()], task_queue=queue):
        with anyio.fail_after(60):
            assert (await there.result(run_id)).value == "sent dear all"


def _read(file: Path) -> str:
    return file.read_text("utf-8")


@workflow
def copied(file: Path) -> Steps[str]:
    """What the second step is given depends on a file, by the first."""
    text = yield from step("read").call(_read, file)
    return (yield from step("sent").call(send, text))


@pytest.mark.parametrize("of", ["the executor", "the worker", "one process"])
@pytest.mark.parametrize(
    ("on_change", "value"), [("rerun", "sent new"), ("reuse", "sent old"), ("refuse", None)]
)
async def test_on_change_decides_what_shows_late(
    client: Client, tmp_path: Path, on_change: Any, value: str | None, of: str
) -> None:
    """A step that differs since another one ran again is run again, kept or refused, on any host;
    what the client does not say the worker's executor does.
    """
    file, queue = tmp_path / "text", f"late-{uuid.uuid4().hex[:8]}"
    file.write_text("old", "utf-8")
    here = Executor(journal=MemoryJournal(), durable=True, on_change=on_change)
    if of == "one process":
        await _late(here, file, value)
        return
    executor = here if of == "the worker" else None
    async with TemporalWorker(client, [copied], task_queue=queue, executor=executor):
        options = {} if of == "the worker" else {"on_change": on_change}
        with anyio.fail_after(30):
            await _late(TemporalExecutor(client, task_queue=queue, **options), file, value)


async def _late(there: Any, file: Path, value: str | None) -> None:
    run_id = (await there.run(copied, file)).run_id
    file.write_text("new", "utf-8")  # noqa: ASYNC240
    if value is not None:
        assert (await there.resume(run_id, copied, rerun=["read"])).value == value
        return
    with pytest.raises(ReplayMismatch) as caught:
        await there.resume(run_id, copied, rerun=["read"])
    assert [change.path for change in caught.value.changes] == ["sent"]


async def _after(there: Any, what: str) -> tuple[Any, ...]:
    """How a run is told of, once somebody has paused, cancelled or answered it."""
    flow = letters()
    run_id = (await there.run(flow)).run_id
    if what == "answer":
        await there.answer(run_id, "ok", "yes")
        await there.resume(run_id)
    else:
        await getattr(there, what)(run_id)
    with anyio.fail_after(30):
        state = await there.get(run_id)
        while state.status in {"running", "suspended"}:
            await anyio.sleep(0.05)  # the cluster takes a message in its own time
            state = await there.get(run_id)
    if isinstance(there, TemporalExecutor):
        (listed,) = [run for run in await there.runs() if run.run_id == run_id]
        assert listed.events == len(await there._caller.history(run_id))
    return state.status, [wait.kind for wait in state.waits_for], state.value


@pytest.mark.parametrize("what", ["pause", "cancel", "answer"])
async def test_a_run_has_the_states_and_waits_of_one_in_a_process(
    client: Client, what: str
) -> None:
    """And a list of runs counts the events of its record."""
    here = Executor(journal=MemoryJournal(), durable=True, workflows=[letters()])
    queue = f"states-{uuid.uuid4().hex[:8]}"
    async with TemporalWorker(client, [letters()], task_queue=queue):
        there = TemporalExecutor(client, task_queue=queue, workflows=[letters()])
        assert await _after(there, what) == await _after(here, what)
