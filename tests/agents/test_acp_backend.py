"""A turn of an agent that speaks ACP: how the program is called, talked with and ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail.agents.acp.backend import ACP, AcpBackend, gemini_acp, opencode
from handrail.errors import AgentError, DefinitionError
from handrail.model.agent_options import AgentOptions
from handrail.model.events import AgentFinished, AgentTranscript
from handrail.ports.agent import AgentTurn
from tests.agents.fake_program import path_with
from tests.agents.recorded import of_type, turn_of
from tests.agents.rpc_recorded import recording
from tests.agents.rpc_server import heard, install_server, methods
from tests.leftovers import nothing_left

pytestmark = pytest.mark.anyio

HELLO = "Hello from the stub: naïve ✓ 🙂 done."


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on PATH."""
    monkeypatch.setenv("PATH", path_with(tmp_path))
    return tmp_path


@pytest.fixture
def agent(folder: Path) -> Callable[..., Path]:
    """A function of a program's name and a case: puts it on PATH, to go through that."""
    return lambda name, case, *options: install_server(
        folder, name, recording("acp", case), *options
    )


@pytest.fixture
def turn(run_id: str, emitted: list[Any]) -> AgentTurn:
    """A turn whose notices are kept."""
    return turn_of(run_id=run_id, emitted=emitted)


@pytest.mark.parametrize(
    "called",
    [
        (gemini_acp(), "gemini", ["--acp", "--skip-trust", "-m", "m"]),
        (AcpBackend(["goose", "acp"], model_flag="--m"), "goose", ["acp", "--m", "m"]),
    ],
    ids=["gemini", "goose"],
)
async def test_a_turn_is_an_answer(
    agent: Callable[..., Path],
    turn: AgentTurn,
    emitted: list[Any],
    folder: Path,
    called: tuple[AcpBackend, str, list[str]],
) -> None:
    """The program is called with its model, the conversation is held, and nothing is left."""
    backend, program, argv = called
    agent(program, "gemini_text")
    options = AgentOptions(model="m", extra_args=("--more",), env={"EXTRA": "1"})
    with nothing_left(turn.run_id):
        reply = await backend.complete(replace(turn, options=options))
    assert reply.text == HELLO
    call, *_ = heard(folder)
    assert (call["argv"], call["extra"]) == ([*argv, "--more"], "1")
    assert methods(folder) == ["initialize", "session/new", "session/prompt"]
    directions = [notice.direction for notice in of_type(emitted, AgentTranscript)]
    assert (directions.count("sent"), directions.count("received")) == (3, 6)
    assert emitted[-1] == AgentFinished(
        "s", "completed", usage=reply.usage, model="gemini-2.5-flash", session=reply.session
    )


async def test_a_model_is_chosen_in_the_session(
    agent: Callable[..., Path], turn: AgentTurn, folder: Path
) -> None:
    """Opencode's model is set after the session was opened; the one that holds is left alone."""
    agent("opencode", "opencode_text")
    backend = opencode(options=AgentOptions(model="stub/m", cwd=str(folder)))
    reply = await backend.complete(turn)
    assert reply.model == "stub/m"
    call, _, opened, _ = heard(folder)
    assert (call["argv"], call["cwd"]) == (["acp"], str(folder))
    assert opened["params"]["cwd"] == str(folder)


async def test_a_failure_told_as_text_is_an_error(
    agent: Callable[..., Path], turn: AgentTurn, emitted: list[Any]
) -> None:
    """A turn that ended in an error is one, though the agent says that it ended its turn."""
    agent("copilot", "copilot_rate_limit")
    with nothing_left(turn.run_id), pytest.raises(AgentError) as caught:
        await AcpBackend(["copilot", "--acp"]).complete(turn)
    assert (caught.value.agent, caught.value.kind) == ("coder", "rate_limit")
    assert (emitted[-1].status, emitted[-1].kind) == ("failed", "rate_limit")


async def test_an_agent_that_stays_is_ended(
    agent: Callable[..., Path], turn: AgentTurn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some do not go when their stdin ends; their answer counts."""
    monkeypatch.setattr("handrail.agents.acp.backend._GRACE_S", 0.1)
    agent("gemini", "gemini_text", "stay", "child")
    with nothing_left(turn.run_id):
        assert (await gemini_acp().complete(turn)).text == HELLO


async def test_silence_is_ended_by_the_protocol(
    agent: Callable[..., Path], turn: AgentTurn, folder: Path
) -> None:
    """A hanging turn is cancelled by the agent itself, and is a timeout."""
    agent("gemini", "gemini_cancel")
    backend = gemini_acp(options=AgentOptions(idle_timeout_s=0.3))
    with nothing_left(turn.run_id), pytest.raises(AgentError) as caught:
        await backend.complete(turn)
    assert caught.value.kind == "timeout"
    assert caught.value.session
    assert methods(folder)[-1] == "session/cancel"


async def test_an_agent_without_a_sign_of_life_is_ended(
    agent: Callable[..., Path], turn: AgentTurn, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """An agent that never answers the greeting is not waited for as long as one at work."""
    agent("gemini", "gemini_text", "hang=0")
    script = folder / "gemini.py"
    script.write_text(script.read_text().replace('sys.stderr.write("a word on stderr\\n")', ""))
    with nothing_left(turn.run_id), pytest.raises(AgentError, match="no sign of life") as caught:
        await gemini_acp(options=AgentOptions(start_timeout_s=0.5)).complete(turn)
    assert caught.value.kind == "timeout"


async def test_cancellation_cancels_the_turn(
    agent: Callable[..., Path], turn: AgentTurn, emitted: list[Any], folder: Path
) -> None:
    """A cancelled turn is cancelled in the agent's session, and leaves nothing."""
    agent("opencode", "opencode_cancel", "child")
    started = anyio.Event()

    def emit(notice: Any) -> None:
        emitted.append(notice)
        if isinstance(notice, AgentTranscript) and '"session/prompt"' in notice.line:
            started.set()

    with nothing_left(turn.run_id), anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(opencode().complete, turn_of(run_id=turn.run_id, emit=emit))
            await started.wait()
            tasks.cancel_scope.cancel()
    assert methods(folder)[-1] == "session/cancel"
    assert (emitted[-1].status, emitted[-1].kind) == ("interrupted", "interrupted")


async def test_an_agent_is_probed(agent: Callable[..., Path], folder: Path) -> None:
    """A probe tells version and place; a missing program how it is installed."""
    agent("gemini", "gemini_text")
    found = await gemini_acp().probe()
    assert (found.found, found.version, found.logged_in) == (True, "1.2.3", None)
    missing = await AcpBackend(["no-such-agent"], name="goose").probe()
    assert (missing.found, missing.advice) == (
        False,
        "Install it: see the documentation of goose",
    )


@pytest.mark.parametrize("argv", ["goose acp", []])
def test_an_agent_is_a_list_of_arguments(argv: Any) -> None:
    """A text is not split, and nothing cannot be started."""
    with pytest.raises(DefinitionError, match="takes a list of arguments"):
        AcpBackend(argv)


def test_what_agents_cannot_do_is_declared() -> None:
    """Options that an agent does not honour are known before it is started."""
    options = AgentOptions(model="m", effort="high", system_prompt="x", max_turns=3)
    assert ACP.lacking(options) == ("system_prompt", "max_turns")
    assert gemini_acp().capabilities.lacking(options) == ("effort", "system_prompt", "max_turns")
    assert not gemini_acp().capabilities.fork
    assert opencode().capabilities.fork


def test_variables_are_not_shown() -> None:
    """The values of an agent's environment may be secrets."""
    assert "hush" not in repr(AcpBackend(["goose"], env={"KEY": "hush"}))
