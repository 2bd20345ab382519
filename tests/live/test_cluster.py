"""Real programs on the workers of a cluster: sessions, what a person says, and killed workers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail.errors import HandrailError
from handrail.model.events import AgentGuided, AgentSessionStarted
from tests.leftovers import carriers_of, lasting_carriers_of
from tests.live import cluster_flows as flows
from tests.live.programs import Live, nothing_of_theirs
from tests.live.stub_server import Answer, Silent, StubServer, Text

pytest.importorskip("temporalio")
from handrail.temporal import TemporalExecutor  # behind the line above
from handrail.temporal.dev import program
from tests.temporal.plant import TemporalPlant

pytestmark = [pytest.mark.live_cli, pytest.mark.live_on("claude", "codex")]
TABS = "Use tabs, not blanks."


class Site:
    """A cluster with a worker that has one program, and an executor of it."""

    def __init__(self, plant: TemporalPlant, home: Path) -> None:
        self.plant = plant
        self.home = home
        self.there = TemporalExecutor(
            plant.server.address, task_queue="live", workflows=[flows.two_turns], heartbeat_s=3
        )
        self.worker = self.start()

    def start(self) -> int:
        """Start a worker; its process."""
        where = f"{flows.__file__}:executor"
        return self.plant.start_worker("--executor", where, cwd=self.home)

    async def events(self, kind: type[Any], run_id: str) -> list[Any]:
        """What is on record, of one kind."""
        return [one async for one in self.there.follow(run_id) if isinstance(one, kind)]


@pytest.fixture
def at_work(
    live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., tuple[Site, StubServer]]]:
    """A function of the model's answers: a cluster whose worker's program hears them."""
    try:
        program()
    except HandrailError as missing:
        pytest.skip(str(missing))
    assert live.where is not None
    open_ones: list[Any] = []
    with nothing_of_theirs():

        def opened(*answers: Answer) -> tuple[Site, StubServer]:
            stub = live.stub(answers).__enter__()
            open_ones.append(lambda: stub.__exit__(None, None, None))
            home = tmp_path / "home"
            (home / "work").mkdir(parents=True)
            (tmp_path / "plant").mkdir()
            told = {flows.PROGRAM: live.name, flows.WHERE: live.where, flows.HOME: str(home)}
            for name, value in {**told, flows.MODEL: stub.url}.items():
                monkeypatch.setenv(name, str(value))
            plant = TemporalPlant(tmp_path / "plant", "live", ["tests.live.cluster_flows"])
            open_ones.append(plant.close)
            return Site(plant, home), stub

        yield opened
        for close in reversed(open_ones):
            close()


async def asked(stub: StubServer, times: int) -> None:
    """Wait until the model was asked so often."""
    with anyio.fail_after(60):
        while len(stub.requests) < times:  # noqa: ASYNC110  # the program's doing
            await anyio.sleep(0.02)


async def test_a_session_is_guided_and_goes_on_in_the_next_step(
    at_work: Callable[..., tuple[Site, StubServer]], live: Live
) -> None:
    """The model is sent what it was told before, in both; no process is left."""
    site, stub = at_work(Silent(), Text("With tabs."), Text("Gone on."))
    run_id = f"guided-{live.name}"
    run = await site.there.start(flows.two_turns, run_id=run_id)
    await asked(stub, 1)
    await anyio.sleep(0.5)
    await site.there.guide(run_id, TABS, by="ann")
    with anyio.fail_after(60):
        assert (await run.result()).value == ["With tabs.", "Gone on."]
    for request in stub.requests[-2:]:
        assert "heron" in json.dumps(request.body)
        assert TABS in json.dumps(request.body)
    (guided,) = await site.events(AgentGuided, run_id)
    sessions = {one.session for one in await site.events(AgentSessionStarted, run_id)}
    assert (guided.next.rung, {guided.next.session}) == ("guide", sessions)
    assert lasting_carriers_of(f"{run_id}@") == []


async def test_a_killed_worker_leaves_a_session_that_goes_on(
    at_work: Callable[..., tuple[Site, StubServer]], live: Live
) -> None:
    """Its program, if it outlives it, is ended before the next worker goes on in the session."""
    site, stub = at_work(Silent(), Text("Back."), Text("Gone on."))
    run_id = f"killed-{live.name}"
    run = await site.there.start(flows.two_turns, run_id=run_id)
    await asked(stub, 1)
    await anyio.sleep(2.5)  # so that the server has heard of the session
    before = set(carriers_of(f"{run_id}@"))
    assert before
    site.plant.kill_worker(site.worker)
    ends_with_stdin = live.name == "codex"  # its app server does
    assert ends_with_stdin or before & set(carriers_of(f"{run_id}@"))
    site.start()
    await asked(stub, 2)
    assert not before & set(carriers_of(f"{run_id}@"))
    with anyio.fail_after(60):
        assert (await run.result()).value == ["Back.", "Gone on."]
    assert "heron" in json.dumps(stub.requests[-1].body)
    sessions = {one.session for one in await site.events(AgentSessionStarted, run_id)}
    assert len(sessions) == 1
    assert lasting_carriers_of(f"{run_id}@") == []
