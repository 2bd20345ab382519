"""A turn of ``codex app-server``: how the program is called, talked with and ended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail.agents.codex.backend import CodexBackend
from handrail.agents.transport import rpc
from handrail.errors import AgentError
from handrail.model.agent_options import AgentOptions
from handrail.model.events import (
    AgentFinished,
    AgentMessage,
    AgentSessionStarted,
    AgentTranscript,
    StepOutput,
)
from handrail.ports.agent import AgentTurn
from tests.agents.fake_program import path_with
from tests.agents.recorded import of_type, turn_of
from tests.agents.rpc_recorded import received, recording
from tests.agents.rpc_server import heard, install_server, methods
from tests.leftovers import nothing_left

pytestmark = pytest.mark.anyio

HELLO = "Hello from the stub: naïve ✓ 🙂 done."
MESSAGES = len(received("codex_rpc", "appserver_interrupt"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on PATH, and a home with nothing in it."""
    monkeypatch.setenv("PATH", path_with(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("CODEX_HOME", "OPENAI_API_KEY", "CODEX_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def codex(folder: Path) -> Callable[..., Path]:
    """A function of a case: puts a codex on PATH that goes through that conversation."""
    return lambda case, *options: install_server(
        folder, "codex", recording("codex_rpc", f"appserver_{case}"), *options
    )


@pytest.fixture
def turn(run_id: str, emitted: list[Any]) -> AgentTurn:
    """A turn whose notices are kept."""
    return turn_of(run_id=run_id, emitted=emitted)


async def failed(turn: AgentTurn, **options: Any) -> AgentError:
    """The error of a turn, after which nothing is left running."""
    with nothing_left(turn.run_id), pytest.raises(AgentError) as caught:
        await CodexBackend(options=AgentOptions(**options)).complete(turn)
    return caught.value


async def test_a_turn_is_an_answer(
    codex: Callable[..., Path], turn: AgentTurn, emitted: list[Any], folder: Path
) -> None:
    """The conversation is held, told both ways, and nothing is left of it."""
    codex("text", "child", "crumbs")
    with nothing_left(turn.run_id):
        reply = await CodexBackend().complete(turn)
    assert reply.text == HELLO
    call, *_ = heard(folder)
    assert call["argv"] == ["app-server", "--listen", "stdio://", "-c", "analytics.enabled=false"]
    assert call["cwd"] == str(Path.cwd())
    assert methods(folder) == ["initialize", "initialized", "thread/start", "turn/start"]
    directions = [notice.direction for notice in of_type(emitted, AgentTranscript)]
    assert directions.count("sent") == 4
    assert directions.count("received") == len(received("codex_rpc", "appserver_text"))
    assert StepOutput("s", "stderr", "a word on stderr\n") in emitted
    assert len(of_type(emitted, AgentSessionStarted)) == len(of_type(emitted, AgentMessage)) == 1
    assert emitted[-1] == AgentFinished(
        "s", "completed", usage=reply.usage, model="gpt-5", session=reply.session
    )


async def test_options_go_to_codex(
    codex: Callable[..., Path], turn: AgentTurn, folder: Path
) -> None:
    """Folder, environment and arguments are the program's, relative folders the working folder's;
    a step's options go before the backend's.
    """
    codex("text")
    work = folder / "work"
    work.mkdir()
    (folder / ".codex").mkdir()
    (folder / ".codex" / "fast.config.toml").write_text('personality = "terse"\n')
    backend = CodexBackend(options=AgentOptions(model="gpt-5", env={"EXTRA": "1"}))
    options = AgentOptions(
        model="fast@gpt-6", cwd=str(work), add_dirs=("more",), extra_args=("-c", "x=1")
    )
    await backend.complete(turn_of(run_id=turn.run_id, options=options))
    call, _, _, opened, _ = heard(folder)
    assert call["argv"][-2:] == ["-c", "x=1"]
    assert (call["cwd"], call["extra"]) == (str(work), "1")
    assert opened["params"] == {
        "cwd": str(work),
        "model": "gpt-6",
        "config": {
            "personality": "terse",
            "sandbox_workspace_write.writable_roots": [str(work / "more")],
        },
    }


async def test_a_profile_of_an_older_codex_is_found(
    codex: Callable[..., Path], turn: AgentTurn, folder: Path
) -> None:
    """A profile may be a table of the settings."""
    codex("text")
    (folder / "home").mkdir()
    (folder / "home" / "config.toml").write_text('[profiles.old]\nmodel = "gpt-5"\n')
    options = AgentOptions(model="old@", env={"CODEX_HOME": str(folder / "home")})
    await CodexBackend(options=options).complete(turn)
    assert heard(folder)[3]["params"]["config"] == {"model": "gpt-5"}


async def test_an_unknown_profile_is_refused(turn: AgentTurn, emitted: list[Any]) -> None:
    """A profile that is nowhere is named, with the places that were looked at."""
    error = await failed(turn, model="none@gpt-5")
    assert error.kind == "config"
    assert "no profile 'none'" in str(error)
    assert "none.config.toml" in str(error)
    assert emitted == [AgentFinished("s", "failed", kind="config", error=error.reason)]


async def test_a_server_that_codex_cannot_name_is_refused(turn: AgentTurn) -> None:
    """Names of MCP servers are plain words to codex."""
    error = await failed(turn, mcp_servers={"a.b": {"command": "x"}})
    assert error.kind == "config"
    assert "'a.b'" in error.reason


async def test_a_failed_turn_is_an_error(
    codex: Callable[..., Path], turn: AgentTurn, emitted: list[Any]
) -> None:
    """The error of the conversation is the turn's, and the last word of its notices."""
    codex("usage_limit")
    error = await failed(turn)
    assert (error.agent, error.kind, error.retry_at) == ("coder", "usage_cap", 1795297715.0)
    last = emitted[-1]
    assert (last.status, last.kind, last.session) == ("failed", "usage_cap", error.session)


async def test_a_codex_that_exits_early_has_crashed(
    codex: Callable[..., Path], turn: AgentTurn
) -> None:
    """Without the end of the turn there is no answer; what it said on stderr is told."""
    codex("text", "exit=12")
    error = await failed(turn)
    assert error.kind == "crashed"
    assert "exited with 3" in error.reason
    assert "a word on stderr" in error.reason


async def test_a_codex_that_is_not_there_is_to_be_installed(turn: AgentTurn) -> None:
    """A missing program is named, with the command that brings it."""
    with pytest.raises(AgentError, match="npm install -g @openai/codex") as caught:
        await CodexBackend("no-such-codex").complete(turn)
    assert caught.value.kind == "not_installed"


async def test_silence_is_ended_by_the_protocol(
    codex: Callable[..., Path], turn: AgentTurn, folder: Path
) -> None:
    """A hanging turn is interrupted by codex itself, and is a timeout that can be gone on in."""
    codex("interrupt")
    error = await failed(turn, idle_timeout_s=0.3)
    assert error.kind == "timeout"
    assert error.session
    assert methods(folder)[-1] == "turn/interrupt"


async def test_a_codex_that_does_not_listen_is_stopped(
    codex: Callable[..., Path], turn: AgentTurn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the interruption is not answered, signals follow; its children end too."""
    monkeypatch.setattr(rpc, "INTERRUPT_S", 0.1)
    codex("interrupt", f"hang={MESSAGES - 3}", "child")
    error = await failed(turn, idle_timeout_s=0.3)
    assert error.kind == "timeout"


async def test_an_answer_counts_though_codex_stays(
    codex: Callable[..., Path], turn: AgentTurn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A codex that does not go after its last word is ended; its answer counts."""
    codex("text", "stay")
    monkeypatch.setattr("handrail.agents.codex.backend.GRACE_S", 0.1)
    with nothing_left(turn.run_id):
        reply = await CodexBackend().complete(turn)
    assert reply.text == HELLO


async def test_cancellation_interrupts_the_turn(
    codex: Callable[..., Path], turn: AgentTurn, emitted: list[Any], folder: Path
) -> None:
    """A cancelled turn is interrupted by codex itself, tells so last, and leaves nothing."""
    codex("interrupt", "child")
    started = anyio.Event()

    def emit(notice: Any) -> None:
        emitted.append(notice)
        if isinstance(notice, AgentTranscript) and '"item/completed"' in notice.line:
            started.set()

    with nothing_left(turn.run_id), anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(CodexBackend().complete, turn_of(run_id=turn.run_id, emit=emit))
            await started.wait()
            tasks.cancel_scope.cancel()
    assert methods(folder)[-1] == "turn/interrupt"
    last = emitted[-1]
    assert (type(last), last.status, last.kind) == (AgentFinished, "interrupted", "interrupted")
    assert last.session


async def test_codex_is_probed(codex: Callable[..., Path], folder: Path) -> None:
    """A probe tells the version, the place and the login."""
    codex("text")
    found = await CodexBackend().probe()
    assert (found.found, found.version, found.logged_in) == (True, "1.2.3", False)
    assert found.where == str(folder / "codex")
    assert (await CodexBackend("no-such-codex").probe()).found is False
