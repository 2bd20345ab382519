"""An agent that cannot begin at all fails its step, whatever stands in for other failures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from handrail import (
    Agent,
    AgentError,
    Executor,
    MemoryJournal,
    NotReady,
    SqliteJournal,
    Steps,
    step,
    workflow,
)
from handrail.agents.acp.backend import opencode
from handrail.testing import FakeBackend

pytestmark = pytest.mark.extra("jinja2")

NOT_READY: dict[str, Callable[[], Any]] = {
    "no backend": lambda: Agent("coder", "Work."),
    "no program": lambda: Agent("coder", "Work.", backend=codex("/nowhere/codex")),
    "no program of ACP": lambda: Agent("coder", "Work.", backend=opencode("/nowhere/opencode")),
    "not installed": lambda: fake(AgentError("coder", "gone", kind="not_installed")),
    "refused settings": lambda: fake(AgentError("coder", "no profile 'x'", kind="config")),
    "a backend of the step": lambda: "claud",
}


def codex(executable: str) -> Any:
    """The backend of a program that may not be there."""
    from handrail.agents.codex.backend import CodexBackend

    return CodexBackend(executable)


def fake(error: BaseException) -> Agent[str]:
    """An agent whose launches fail with this error."""
    return Agent("coder", "Work.", backend=FakeBackend([error] * 9))


def ask(agent: Any, **more: Any) -> Any:
    """The step of an agent, or of one whose backend's name is only known in the run."""
    if isinstance(agent, str):
        return step("code").agent(fake(AssertionError()), backend=str(agent))
    return step("code").agent(agent, **more)


STAND_INS: dict[str, Callable[[Any], Any]] = {
    "default": lambda agent: ask(agent).default("nothing"),
    "skip": lambda agent: ask(agent).skip_on_error(),
    "retry": lambda agent: ask(agent).retry(2, backoff=0).default("nothing"),
    "answer": lambda agent: ask(agent).answer().default("nothing"),
    "group": lambda agent: step("all").parallel(ask(agent)).default(()),
    "members": lambda agent: step("each").for_each([1], lambda _: ask(agent)).skip_on_error(),
    "child": lambda agent: step("child").run_workflow(alone, agent).default(None),
    "handler": lambda agent: ask(agent).on_error(lambda _, __: other()).default("nothing"),
    "late": lambda agent: boom().on_error(lambda _, __: ask(agent)).default("nothing"),
    "judge": lambda agent: ask(WRITER, check=judge(agent)).default("nothing"),
    "stage": lambda agent: step("check").validate([judge(agent)], retry=5).default(None),
}
WRITER = Agent("writer", "Write.", backend=FakeBackend(["text"] * 99))


def judge(agent: Any) -> Any:
    """An agent that judges; the name of a backend is no setting of a judge's."""
    error = AgentError("coder", "no", kind="config")
    backend = FakeBackend([error] * 9) if isinstance(agent, str) else agent.backend
    return Agent("judge", "Good?", output=bool, backend=backend)


def boom() -> Any:
    """A step that fails."""
    return step("first").call(int, "x")


def other() -> Any:
    """What a handler would run instead."""
    return step("other").call(str, "by hand")


@workflow
def alone(agent: Any) -> Steps[Any]:
    """One agent."""
    yield from ask(agent)


@pytest.mark.parametrize("stand_in", STAND_INS)
@pytest.mark.parametrize("case", NOT_READY)
async def test_no_default_hides_that_nothing_could_run(case: str, stand_in: str) -> None:
    """The step fails, and so does what holds it."""

    @workflow
    def flow() -> Steps[Any]:
        yield from STAND_INS[stand_in](NOT_READY[case]())

    result = await Executor().run(flow)
    assert result.failed_step is not None
    assert (result.status, result.step(result.failed_step).is_a(NotReady)) == ("failed", True)


@pytest.mark.parametrize("kind", ["bad_request", "max_turns", "refusal", "output_limit", None])
async def test_a_default_stands_in_for_an_agent_that_failed_at_work(kind: Any) -> None:
    """It began, so a person foresaw that it may fail."""

    @workflow
    def flow() -> Steps[Any]:
        return (yield from ask(fake(AgentError("coder", "no", kind=kind))).default("nothing"))

    assert (await Executor().run(flow)).value == "nothing"


async def test_a_resume_runs_it_when_the_agent_is_there(tmp_path: Path) -> None:
    """The failure ended the run, so the step runs again."""

    @workflow
    def flow() -> Steps[Any]:
        agent = Agent("coder", "Work.")
        return (yield from step("code").agent(agent).answer().default("nothing"))

    journal = SqliteJournal(tmp_path / "runs.db")
    failed = await Executor(journal=journal).options(run_id="r").run(flow)
    assert failed.status == "failed"
    resumed = await Executor(journal=journal, backend=FakeBackend(["done"])).resume("r", flow)
    assert resumed.value == "done"


@pytest.mark.parametrize("case", ["no backend", "no program", "no program of ACP"])
async def test_it_is_told_before_the_run_begins(case: str) -> None:
    """A warning names the agent and what is missing, before any step has run."""
    journal = MemoryJournal()
    executor = Executor(journal=journal, agents={"coder": NOT_READY[case]()})
    with capture_logs() as logs:
        run = executor.stream(with_a_default)
        assert [one["log_level"] for one in logs if one["event"] == "an agent cannot run"] == [
            "warning"
        ]
    (why,) = [one["why"] for one in logs if "why" in one]
    assert f"{__file__}:" in why
    assert "agent 'coder'" in why
    assert "backend" in why or "is not installed" in why
    del run


CODER = Agent("coder", "Work.")


@workflow
def with_a_default() -> Steps[Any]:
    """Something first, which may take days."""
    yield from step("before").call(int)
    yield from step("code").agent(CODER).default(None)


@pytest.mark.parametrize("there", [True, False])
async def test_nothing_is_said_of_an_agent_that_can_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, there: bool
) -> None:
    """One whose program is on PATH, and one of which a fallback is."""
    program = tmp_path / "codex"
    program.touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    first = codex("codex" if there else "/nowhere/codex")
    agent = Agent("coder", "Work.", backend=first, fallback=["codex"])
    with capture_logs() as logs:
        Executor(agents={"coder": agent}).stream(with_a_default)
    assert logs == []
