"""``session=`` goes on where the session is kept, also after a fallback, or is refused."""

from __future__ import annotations

from typing import Any

import pytest

from handrail import (
    Agent,
    AgentError,
    AgentReply,
    AgentResult,
    DefinitionError,
    Executor,
    FakeBackend,
    Steps,
    step,
    workflow,
)
from handrail.agents.routes import routes_of
from handrail.model.agent_options import NO_SETTINGS, AgentSettings
from handrail.testing import JumpClock, TextJournal
from tests.engine.support import Flaky, bound


def refused() -> AgentError:
    """A backend that does not take the request, so the next of the chain is asked."""
    return AgentError("worker", "no such model", kind="bad_request")


def told(backend: FakeBackend) -> list[str | None]:
    """The sessions that a backend was to go on in, turn by turn."""
    return [turn.session for turn in backend.turns]


@bound
def chained(
    first: Agent[str], second: Agent[str], **settings: Any
) -> Steps[tuple[AgentResult[str], AgentResult[str]]]:
    """A workflow whose second step goes on in the session of the first."""
    a = yield from step("read").agent(first)
    b = yield from step("fix").agent(second, session=a, **settings)
    return a, b


async def test_a_step_goes_on_with_the_fallback_that_has_its_session() -> None:
    """The next step begins with the backend that answered, and the first one is not asked."""
    codex = FakeBackend([refused()], name="codex")
    claude = FakeBackend([AgentReply("I read it.", session="s-1"), "fixed"], name="claude")
    worker = Agent("worker", "Work.", backend=codex, fallback=[claude])
    result = await Executor().run(chained(worker, worker))
    assert result.unwrap()[1].backend == "claude"
    assert (told(codex), told(claude)) == ([None], [None, "s-1"])


async def test_the_other_backends_are_fallen_back_on_without_the_session() -> None:
    """If the one that has the session fails, the first of the chain begins a new one."""
    codex = FakeBackend([refused(), "begun anew"], name="codex")
    claude = FakeBackend([AgentReply("I read it.", session="s-1"), refused()], name="claude")
    worker = Agent("worker", "Work.", backend=codex, fallback=[claude])
    result = await Executor(clock=JumpClock()).run(chained(worker, worker))
    assert result.unwrap()[1].output == "begun anew"
    assert told(codex) == [None, None]
    assert told(claude)[1] == "s-1"


async def test_a_session_that_nobody_of_the_step_keeps_is_refused() -> None:
    """The error names both backends, and no backend is launched."""
    claude = FakeBackend([AgentReply("I read it.", session="s-1")], name="claude")
    codex = FakeBackend(["never"], name="codex")
    one = Agent("one", "Read.", backend=claude)
    two = Agent("two", "Work.", backend=codex)
    result = await Executor().run(chained(one, two))
    assert (result.status, codex.turns) == ("failed", [])
    assert result.step("fix").is_a(DefinitionError)
    assert "session= is one of backend 'claude', and this step is carried out by 'codex'" in (
        result.error or ""
    )


async def test_a_resumed_run_still_knows_whose_session_it_is() -> None:
    """The backend of a recorded answer is in the record."""
    codex = FakeBackend([refused()], name="codex")
    claude = FakeBackend([AgentReply("I read it.", session="s-1"), "fixed"], name="claude")
    worker = Agent("worker", "Work.", backend=codex, fallback=[claude])
    flaky = Flaky(1)

    @workflow
    def flow() -> Steps[str]:
        first = yield from step("read").agent(worker)
        yield from step("between").call(flaky)
        return (yield from step("fix").agent(worker, session=first)).output

    journal = TextJournal()
    failed = await Executor(journal=journal).options(run_id="r").run(flow)
    assert failed.status == "failed"
    result = await Executor(journal=journal.reopened()).resume("r", flow)
    assert result.value == "fixed"
    assert (told(codex), told(claude)) == ([None], [None, "s-1"])


@pytest.mark.parametrize(
    ("backend", "fallback", "owner", "expected"),
    [
        ("codex", ["claude", ":mini"], "claude", ["claude", "codex", "codex"]),
        ("codex", ["claude", ":mini"], "codex", ["codex", "claude", "codex"]),
        ("codex", ["claude"], "", ["codex", "claude"]),
        ("claude", ["codex"], "codex-exec", ["codex", "claude"]),
        ("claude", ["gemini"], "gemini-acp", ["gemini", "claude"]),
    ],
)
def test_the_owner_leads_and_the_rest_keeps_its_order(
    backend: str, fallback: list[str], owner: str, expected: list[str]
) -> None:
    """A session whose backend is not known is the first one's; two names may be one program."""
    agent = Agent("a", "x", backend=backend, fallback=fallback)
    settings = AgentSettings(session="s", session_backend=owner)
    assert [route.name for route in routes_of(agent, settings, NO_SETTINGS)] == expected
