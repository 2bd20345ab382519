"""A run's record is the same on every engine: it moves, and whatever reads records reads it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from handrail import (
    CannotSteer,
    Executor,
    InputsDiffer,
    RunIdTaken,
    RunNotFound,
    Task,
    step,
    workflow,
)
from handrail.errors import ReplayMismatch
from handrail.replay_checks import replay
from handrail.steps.verbs import Steps
from handrail.temporal import TemporalExecutor
from handrail.testing.conformance import FLOWS as CONFORMANCE
from handrail.testing.conformance import effects, essence, in_order, waiting
from handrail.testing.contracts.host import history_of
from tests.temporal import edited_flows, flows
from tests.temporal.flows import FLOWS, fans, queued, stepwise

pytestmark = pytest.mark.temporal
ALL = (*FLOWS, *CONFORMANCE)

Make = Callable[..., TemporalExecutor]


async def test_a_run_moves_to_a_cluster(engine: Make, folder: Path, tmp_path: Path) -> None:
    """What had ended here is not done again there, and the whole record goes along."""
    here, there = Executor(workflows=ALL), engine(workflows=ALL)
    begun = await here.options(run_id="moves-there").run(waiting, folder)
    await here.answer("moves-there", "go?", "yes")
    assert begun.status == "suspended"
    file = tmp_path / "run.jsonl"
    await here.export("moves-there", file)
    assert await there.import_run(file) == "moves-there"
    with pytest.raises(RunIdTaken):
        await there.import_run(file)
    moved = await there.resume("moves-there")
    assert [one.path for one in moved.waiting] == ["size?"]
    history = await history_of(there, "moves-there", tmp_path / "again.jsonl")
    assert history[: len(here.journal.events("moves-there"))] == here.journal.events("moves-there")
    await there.cancel("moves-there", "enough")
    assert (await there.result("moves-there")).status == "cancelled"


async def test_a_run_moves_from_a_cluster(engine: Make, folder: Path, tmp_path: Path) -> None:
    """It is exported while it waits, stopped there, and goes on here."""
    here, there = Executor(workflows=ALL), engine(workflows=ALL)
    await there.options(run_id="moves-here").run(waiting, folder)
    await there.answer("moves-here", "go?", "no")
    await there.stop("moves-here", by="a mover")
    file = tmp_path / "run.jsonl"
    await _until_held(there, "moves-here")
    await there.export("moves-here", file)
    await here.import_run(file)
    result = await here.resume("moves-here")
    assert result.status == "suspended"
    assert [one.path for one in result.waiting] == ["size?"]


async def _until_held(there: TemporalExecutor, run_id: str) -> None:
    while next(one for one in await there.runs() if one.run_id == run_id).holder is not None:
        pass


async def test_its_export_is_replayed_compared_and_shown(
    engine: Make, folder: Path, tmp_path: Path
) -> None:
    """``replay`` finds no difference, ``diff`` to a run of one process none but times."""
    here, there = Executor(workflows=ALL), engine(workflows=ALL)
    one, other = await there.run(in_order, folder), await here.run(in_order, folder)
    file = tmp_path / "run.jsonl"
    await there.export(one.run_id, file)
    report = await anyio.to_thread.run_sync(replay, file, in_order)
    assert report.divergence is None
    await here.import_run(file)
    found = await here.diff(other.run_id, one.run_id)
    assert found.same, found
    assert (await there.diff(one.run_id, one.run_id)).same
    state = await there.get(one.run_id)
    assert state.status == "succeeded"
    assert [step.path for step in state.steps] == [step.path for step in one.step_results]
    followed = [event async for event in there.follow(one.run_id)]
    assert len(followed) == len(await history_of(there, one.run_id, tmp_path / "f.jsonl"))


async def test_a_stopped_run_is_suspended_to_all_who_ask(engine: Make) -> None:
    """``get`` says of it what ``runs`` says, and no step of it is at work; a resume goes on."""
    there = engine(workflows=ALL)
    await there.start(fans, 1, 600.0, run_id="stopped")
    async for event in there.follow("stopped"):
        if getattr(event, "path", "") == "all/0/nap":
            break
    assert (await there.get("stopped")).status == "running"
    await there.stop("stopped", by="ann")
    await _until_held(there, "stopped")
    state = await there.get("stopped")
    listed = [one.status for one in await there.runs() if one.run_id == "stopped"]
    assert (state.status, listed) == ("suspended", ["suspended"])
    assert state.step("all/0/nap").state == "interrupted"


async def test_a_queue_is_edited_from_any_process(engine: Make) -> None:
    """While the run is driven, and while it is held: what is asked for is done, or refused."""
    there = engine(workflows=ALL)
    assert (await there.options(run_id="queue").run(queued)).status == "suspended"
    await there.edit_work("queue", add=[Task("x", None, -1), Task("y")], by="ann")
    await there.edit_work("queue", drop=["x"], by="bob")
    with pytest.raises(CannotSteer, match="task 'ask' does not wait: it has begun"):
        await there.edit_work("queue", priority={"ask": 1})
    await there.stop("queue")
    await _until_held(there, "queue")
    await there.edit_work("queue", priority={"y": -2}, by="cem")
    await there.answer("queue", "w/ask/sure?", answer=True)
    result = await there.resume("queue")
    assert [one.id for one in result.value.done] == ["ask", "late", "y"]
    assert [(one.id, one.why) for one in result.value.refused] == [("x", "dropped by bob")]
    with pytest.raises(CannotSteer, match="succeeded"):
        await there.edit_work("queue", add=[Task("z")])


async def test_a_failed_run_is_resumed(engine: Make, folder: Path) -> None:
    """What had ended is kept, what is named runs again, and the plan says so before."""
    there = engine(workflows=ALL)
    result = await there.options(run_id="again").run(stepwise, folder, 3)
    assert result.value == 3
    plan = await there.plan("again", rerun=["count-1"])
    assert [(one.path, one.state) for one in plan.steps] == [
        ("count-0", "recorded"),
        ("count-1", "will run"),
        ("count-2", "recorded"),
    ]
    again = await there.resume("again", rerun=["count-1"])
    assert again.value == 3
    assert [one.replayed for one in again.step_results] == [True, False, True]
    assert effects(folder) == {("count-0", 1): 1, ("count-1", 1): 2, ("count-2", 1): 1}
    recorded = await there.resume("again")
    assert [one.replayed for one in recorded.step_results] == [True] * 3


async def test_a_run_is_forked(engine: Make, folder: Path) -> None:
    """The fork has its own end, and the run stays as it was."""
    there = engine(workflows=ALL)
    await there.options(run_id="stem").run(stepwise, folder, 3)
    made = await there.fork("stem", outputs={"count-1": 40}, fork_id="branch")
    assert (await there.resume(made)).value == 42
    assert (await there.result("stem")).value == 3
    info = next(one for one in await there.runs() if one.run_id == made)
    assert (info.status, info.forked_from) == ("succeeded", ("stem", None))


async def test_a_fork_runs_changed_steps_again(engine: Make, folder: Path) -> None:
    """With all that followed them, and the plan says so before."""
    there = engine()
    await there.options(run_id="trunk").run(edited_flows.branched, folder)
    made = await there.fork("trunk", at="second")
    plan = await there.plan(made, edited_flows.branched_otherwise)
    assert [(one.path, one.state) for one in plan.steps] == [
        ("first", "changed"),
        ("second", "may run"),
    ]
    assert (await there.resume(made, edited_flows.branched_otherwise)).value == 11
    assert effects(folder) == {("first", 1): 2, ("second", 1): 2}


async def test_a_fork_finds_a_change_behind_a_new_end(engine: Make, folder: Path) -> None:
    """No plan can see it; the run goes on in an execution that runs the changed step again."""
    there = engine()
    await there.options(run_id="bough").run(edited_flows.branched, folder)
    made = await there.fork("bough", rerun=["first"])
    assert (await there.resume(made, edited_flows.branched_further)).value == 22
    assert effects(folder) == {("first", 1): 2, ("second", 1): 2}


async def test_runs_are_listed_oldest_first(engine: Make, folder: Path) -> None:
    """Whatever is open: the run that began last is ``--latest``."""
    there = engine(workflows=ALL)
    ids = ["oldest", "in the middle", "youngest"]
    for run_id, flow in zip(ids, (waiting, stepwise, stepwise), strict=True):
        await there.options(run_id=run_id).run(flow, folder)
    with anyio.fail_after(10):
        listed: list[str] = []
        while len(listed) < len(ids):  # the cluster lists a run some time after it has begun
            listed = [one.run_id for one in await there.runs() if one.run_id in ids]
    assert listed == ids
    with pytest.raises(RunNotFound, match="youngest"):
        await there.get("nobody")


async def test_an_id_means_one_run(engine: Make, folder: Path) -> None:
    """A request that comes twice begins one run; another one under the same id is refused."""
    there = engine(workflows=ALL)
    first = await there.options(run_id="one").run(stepwise, folder, 2)
    with pytest.raises(RunIdTaken):
        await there.options(run_id="one").run(stepwise, folder, 2)
    again = await there.options(run_id="one", existing="go_on").run(stepwise, folder, 2)
    assert essence(again.value) == essence(first.value)
    with pytest.raises(InputsDiffer):
        await there.options(run_id="one", existing="go_on").run(stepwise, folder, 5)
    with pytest.raises(RunNotFound, match="one-more"):
        await there.resume("one-more")


async def test_a_changed_step_is_refused_before_anything_runs(engine: Make, folder: Path) -> None:
    """The error names the step; ``rerun`` runs it again, and the failed run then ends well."""
    there = engine()
    await there.options(run_id="changes").run(flows.asks_between, 2)
    await there.stop("changes")
    await _until_held(there, "changes")

    @workflow(name="asks_between")
    def changed(n: int) -> Steps[list[str]]:
        for number in range(n):
            yield from step(f"before-{number}").call(flows.add, number, 2)
        return []

    with pytest.raises(ReplayMismatch, match=r"before-0.*before-1"):
        await there.resume("changes", changed)
    await there.cancel("changes", workflow=flows.asks_between)
    del folder
