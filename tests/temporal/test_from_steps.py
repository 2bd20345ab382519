"""What a program that a step started can do to runs of the step's cluster."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from handrail import CannotSteer, Executor, Steps, step, workflow
from handrail.model import events as ev
from handrail.system.marker import MARKED
from handrail.temporal import TemporalExecutor
from handrail.temporal.caller import Caller
from handrail.temporal.dev import DevServer
from handrail.temporal.journal import ClusterJournal
from tests.temporal.flows import FLOWS, queued

pytestmark = pytest.mark.temporal
Make = Callable[..., TemporalExecutor]


@workflow
def guarded() -> Steps[str]:
    """Its step tells by what mark it is known; then it asks."""
    yield from step("mark").command("printf %s $HANDRAIL_STEP")
    return (yield from step("merge?").ask("Merge it?", choices=["yes", "no"]))


@workflow
def open_to_all() -> Steps[str]:
    """It takes the answer of an agent."""
    return (yield from step("merge?").ask("Merge it?", agents_may_answer=True))


@pytest.fixture
def there(engine: Make) -> TemporalExecutor:
    """An executor of workflows whose runs are steered."""
    return engine(workflows=[*FLOWS, guarded, open_to_all], local=True)


async def _by_command(server: DevServer, act: str, *args: str) -> None:
    """Call what the commands call, on a thread: their journal waits for the worker of this loop."""
    journal = ClusterJournal(Caller(server.address, "tests"))
    try:
        await anyio.to_thread.run_sync(partial(getattr(Executor(journal=journal), act), *args))
    finally:
        journal.close()


def _id() -> str:
    return uuid.uuid4().hex[:12]


async def test_no_method_steers_from_within_a_step(
    there: TemporalExecutor,
    server: DevServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Each is refused by the step's own mark, by the executor and by what the commands use."""
    run_id, other = _id(), _id()
    await there.options(run_id=run_id).run(guarded)
    await there.options(run_id=other).run(open_to_all)
    await there.export(run_id, tmp_path / "run.jsonl")
    mark = (await there.get(run_id)).step("mark").output.stdout
    assert MARKED.fullmatch(mark), mark
    monkeypatch.setenv("HANDRAIL_STEP", mark.replace(run_id, other))
    before = await there._caller.history(run_id)
    it, said = there, f"step 'mark' of run {other} cannot steer it"
    acts: list[Callable[[], Any]] = [
        lambda: it.answer(run_id, "merge?", "yes"),
        lambda: it.signal(run_id, "approved", 1),
        lambda: it.pause(run_id),
        lambda: it.unpause(run_id),
        lambda: it.stop(run_id),
        lambda: it.complete(run_id, "merge?", "yes"),
        lambda: it.skip(run_id, "merge?"),
        lambda: it.retry(run_id, "merge?"),
        lambda: it.guide(run_id, "do it"),
        lambda: it.cancel(run_id),
        lambda: it.resume(run_id),
        lambda: it.fork(run_id),
        lambda: it.import_run(tmp_path / "run.jsonl", run_id=_id()),
        lambda: it.options(run_id=run_id, existing="go_on").run(guarded),
        lambda: _by_command(server, "answer_sync", run_id, "merge?", "yes"),
        lambda: _by_command(server, "pause_sync", run_id),
    ]
    for act in acts:
        with pytest.raises(CannotSteer, match=said):
            await act()
    assert await there._caller.history(run_id) == before
    monkeypatch.delenv("HANDRAIL_STEP")
    await there.cancel(run_id)
    await there.cancel(other)


@pytest.mark.parametrize("by_command", [True, False])
async def test_a_gate_that_says_so_takes_the_answer_of_a_step(
    there: TemporalExecutor, server: DevServer, monkeypatch: pytest.MonkeyPatch, *, by_command: bool
) -> None:
    """The record has the step as who answered, whatever name it gave."""
    run_id, identity = _id(), await (await there._caller.cluster()).identity()
    await there.options(run_id=run_id).run(open_to_all)
    monkeypatch.setenv("HANDRAIL_STEP", f"{run_id}@{identity}/review#1")
    if by_command:
        await _by_command(server, "answer_sync", run_id, "merge?", "yes")
    else:
        await there.answer(run_id, "merge?", "yes", by="ann")
    assert (await there.result(run_id)).value == "yes", await there.get(run_id)
    history = await there._caller.history(run_id)
    (answered,) = [event for event in history if isinstance(event, ev.GateAnswered)]
    assert answered.by == f"step 'review' of run {run_id}"


async def test_an_edit_of_a_queue_is_recorded_as_the_steps(
    there: TemporalExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step may hand on work, and cannot do so under another name."""
    run_id, identity = _id(), await (await there._caller.cluster()).identity()
    await there.options(run_id=run_id).run(queued)
    monkeypatch.setenv("HANDRAIL_STEP", f"{run_id}@{identity}/review#1")
    await there.edit_work(run_id, drop=["late"], by="ann")
    monkeypatch.delenv("HANDRAIL_STEP")
    async for event in there.follow(run_id):
        if isinstance(event, ev.WorkEdited):
            assert event.by == f"step 'review' of run {run_id}"
            break
    await there.cancel(run_id)


async def test_a_step_of_another_journal_acts_under_its_own_name(
    there: TemporalExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an agent tries elsewhere is its business."""
    run_id = _id()
    await there.options(run_id=run_id).run(guarded)
    monkeypatch.setenv("HANDRAIL_STEP", "ship@00000000/review#1")
    await there.answer(run_id, "merge?", "yes", by="ann")
    result = await there.result(run_id)
    assert result.value == "yes"
    history = await there._caller.history(run_id)
    (answered,) = [event for event in history if isinstance(event, ev.GateAnswered)]
    assert answered.by == "step 'review' of run ship"
