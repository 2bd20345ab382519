"""Agents on a cluster: their programs run on the workers, and their sessions stay on a machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from temporalio.client import Client, WorkflowHistory

from handrail import Executor
from handrail.temporal import TemporalExecutor, TemporalWorker
from handrail.temporal.dev import DevServer
from handrail.temporal.wire import Bounds
from handrail.testing.conformance import by_path, essence
from handrail.testing.contracts.host import history_of
from handrail.testing.fake_programs import Act, Fails, Program, fake_cli
from tests.temporal.agents import FLOWS, dreams, talks
from tests.temporal.plant import TemporalPlant

pytestmark = pytest.mark.temporal
PROGRAMS: list[Program] = ["claude", "codex"]


def queues(history: WorkflowHistory) -> list[str]:
    """On which queue each step was begun."""
    scheduled = [one.activity_task_scheduled_event_attributes for one in history.events]
    return [one.task_queue.name for one in scheduled if one.activity_id]


@pytest.mark.parametrize("program", PROGRAMS)
async def test_a_session_goes_on_where_it_was_begun(
    program: Program, client: Client, tmp_path: Path
) -> None:
    """As embedded; and the second turn is begun on the queue of the machine that had the first."""
    seen: list[Any] = []
    async with TemporalWorker(client, FLOWS, task_queue=f"talk-{program}") as worker:
        executors: dict[str, Any] = {
            "here": Executor(workflows=FLOWS, portable=True, gates="approve"),
            "there": TemporalExecutor(client, task_queue=f"talk-{program}", gates="approve"),
        }
        for which, executor in executors.items():
            with fake_cli(program, ["Begun.", "Gone on."], path=tmp_path / which) as fake:
                result = await executor.run(talks, program)
            history = await history_of(executor, result.run_id, tmp_path / f"{which}.jsonl")
            seen.append((essence(result)["value"], set(by_path(history)), len(fake.calls)))
        begun = await client.get_workflow_handle(result.run_id).fetch_history()
        assert queues(begun) == [f"talk-{program}", worker.serving.home]
    assert seen[0] == seen[1] == (["list", "Begun.", "Gone on."], {"", "first", "go?", "second"}, 2)


async def test_the_ladder_is_the_machines(client: Client, tmp_path: Path) -> None:
    """A launch that fails is followed by the next one, as embedded, with the same events."""
    acts: list[Act | str] = [Fails("context_overflow"), "Begun.", "Gone on."]
    histories: list[Any] = []
    async with TemporalWorker(client, FLOWS, task_queue="ladder"):
        executors: dict[str, Any] = {
            "here": Executor(workflows=FLOWS, portable=True, gates="approve"),
            "there": TemporalExecutor(client, task_queue="ladder", gates="approve"),
        }
        for which, executor in executors.items():
            with fake_cli("claude", acts, path=tmp_path / which):
                result = await executor.run(talks, "claude")
            assert result.success, result.error
            history = await history_of(executor, result.run_id, tmp_path / f"{which}.jsonl")
            histories.append([type(one).__name__ for one in history])
    assert histories[0] == histories[1]


async def test_what_a_person_says_reaches_an_agent_at_work(client: Client, tmp_path: Path) -> None:
    """Its launch is broken off on the worker, and made again with the words, as embedded."""
    histories: list[Any] = []
    async with (
        TemporalWorker(client, FLOWS, task_queue="guided"),
        Executor(workflows=FLOWS, portable=True) as here,
    ):
        there = TemporalExecutor(client, task_queue="guided", workflows=FLOWS)
        for which, executor in (("here", here), ("there", there)):
            handle: Any = await executor.options(run_id=which).start(dreams)
            while not any(  # noqa: ASYNC110  # a run is looked at from outside
                one.status == "running" for one in (await handle.state()).steps
            ):
                await anyio.sleep(0.05)
            await executor.guide(which, "Hurry.", by="ada")
            with anyio.fail_after(30):
                assert (await handle.result()).value == "Hurried."
            history = await history_of(executor, which, tmp_path / f"{which}.jsonl")
            histories.append([type(one).__name__ for one in history])
    assert histories[0] == histories[1]
    assert "AgentGuided" in histories[0]


async def test_when_its_machine_is_gone_a_session_is_left(
    client: Client, server: DevServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step waits for the machine a while, and is then begun on another."""
    monkeypatch.setattr("handrail.temporal.wire.BOUNDS", Bounds(gone_s=2))
    (tmp_path / "plant").mkdir()
    homes = [tmp_path / "one", tmp_path / "other"]
    for home in homes:
        home.mkdir()
    with fake_cli("claude", ["Begun.", "Gone on."], path=tmp_path / "fake"):
        folder = tmp_path / "plant"
        plant = TemporalPlant(folder, "homes", ["tests.temporal.agents"], server=server)
        try:
            pid = plant.start_worker(cwd=homes[0])
            there = TemporalExecutor(client, task_queue="homes", workflows=FLOWS)
            result = await there.options(run_id="moves").run(talks, "claude")
            assert result.status == "suspended"
            plant.kill_worker(pid)
            plant.start_worker(cwd=homes[1])
            await there.answer("moves", "go?", "yes")
            assert (await there.result("moves")).value == ["Begun.", "Gone on."]
            begun = queues(await client.get_workflow_handle("moves").fetch_history())
        finally:
            plant.close()
    assert len(begun) == 3
    assert begun[0] == begun[2] == "homes"
    assert begun[1].startswith("homes@")
