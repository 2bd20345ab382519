"""What a person says to a real program at work reaches its session, soon."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from handrail import Agent, Executor, Steps, step, workflow
from handrail.model.events import AgentGuided, AgentSessionStarted, AgentToolStarted
from handrail.testing import TextJournal
from tests.leftovers import lasting_carriers_of
from tests.live.conftest import Session
from tests.live.stub_server import Silent, Text

pytestmark = [pytest.mark.live_cli, pytest.mark.live_on("claude", "codex")]

Open = Callable[..., Session]
TABS = "Use tabs, not blanks."
SOON_S = 2.0
"""Or, on a machine that has more to do, four times what the program takes to ask its model first:
one is to end and the next to start, and each takes up to twice that alone."""
WAITS = "python3 -c 'import time; time.sleep(300)' & sleep 300"


@pytest.mark.parametrize("at", ["a silent model", "a tool"])
async def test_guidance_reaches_the_session_that_is_at_work(
    open_session: Open, live: Any, at: str
) -> None:
    """The model is sent what it had been told and what the person says, within two seconds; what
    it answers then is the step's answer, and nothing of the first process is left.
    """
    first = Silent() if at == "a silent model" else live.tool(WAITS)
    session = open_session(first, Text("With tabs."), permission="full")
    agent = Agent("coder", "The word is heron.", backend=session.backend)

    @workflow
    def flow() -> Steps[str]:
        done = yield from step("code").agent(agent, {})
        return done.output

    executor, stub = Executor(journal=TextJournal()), session.stub
    took_s: list[float] = []
    starts_s: list[float] = []
    began_at = time.monotonic()

    async def guide(run_id: str) -> None:
        while not stub.requests:  # noqa: ASYNC110  # the program's doing
            await anyio.sleep(0.01)
        starts_s.append(time.monotonic() - began_at)
        await anyio.sleep(0.3)
        began = time.monotonic()
        await executor.guide(run_id, TABS, by="ann")
        while len(stub.requests) < 2:  # noqa: ASYNC110
            await anyio.sleep(0.01)
        took_s.append(time.monotonic() - began)

    sessions: list[str] = []
    with anyio.fail_after(60):
        async with executor.stream(flow) as run, anyio.create_task_group() as people:
            if at == "a silent model":
                people.start_soon(guide, run.run_id)
            async for event in run:
                if isinstance(event, AgentToolStarted):
                    people.start_soon(guide, run.run_id)
                if isinstance(event, AgentSessionStarted):
                    sessions.append(event.session)
    assert run.result.value == "With tabs."
    sent = json.dumps(stub.requests[-1].body)
    assert "heron" in sent
    assert TABS in sent
    assert len(set(sessions)) == 1
    history = executor.journal.events(run.run_id)
    (given,) = [one for one in history if isinstance(one, AgentGuided)]
    assert (given.next.rung, given.next.session) == ("guide", sessions[0])
    assert run.result.step_results[0].attempts == 1
    assert lasting_carriers_of(run.mark) == []
    assert took_s[0] < max(SOON_S, 4 * starts_s[0])
