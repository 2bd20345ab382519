"""A turn of a program that is talked with: how it is called, what it is told, and how it is ended.

What comes of a conversation is the same for all backends, and is asked in ``test_parity.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail.agents.acp.backend import AcpBackend, gemini, opencode
from handrail.agents.codex.backend import CodexBackend
from handrail.agents.transport import rpc
from handrail.errors import AgentError, DefinitionError
from handrail.model.agent_options import AgentOptions
from handrail.model.events import AgentFinished, AgentTranscript, StepOutput
from handrail.ports.agent import AgentTurn
from tests.agents.conftest import BOTH_LOOPS
from tests.agents.fake_program import path_with
from tests.agents.recorded import of_type, turn_of
from tests.agents.rpc_recorded import received, recording
from tests.agents.rpc_server import heard, install_server, methods
from tests.leftovers import nothing_left

pytestmark = pytest.mark.anyio

HELLO = "Hello from the stub: naïve ✓ 🙂 done."


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on PATH, and a home with nothing in it."""
    monkeypatch.setenv("PATH", path_with(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("CODEX_HOME", "OPENAI_API_KEY", "CODEX_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def program(folder: Path) -> Callable[..., Path]:
    """A function of a program's name and a case: puts it on PATH, to go through that."""

    def put(name: str, case: str, *options: str) -> Path:
        protocol = "codex_rpc" if name == "codex" else "acp"
        return install_server(folder, name, recording(protocol, case), *options)

    return put


@pytest.fixture
def turn(run_id: str, emitted: list[Any]) -> AgentTurn:
    """A turn whose notices are kept."""
    return turn_of(run_id=run_id, emitted=emitted)


async def failed(backend: Any, turn: AgentTurn, **options: Any) -> AgentError:
    """The error of a turn, after which nothing is left running."""
    with nothing_left(turn.run_id), pytest.raises(AgentError) as caught:
        await backend.complete(replace(turn, options=AgentOptions(**options)))
    error: AgentError = caught.value
    return error


CODEX_ARGV = ["app-server", "--listen", "stdio://", "-c", "analytics.enabled=false"]
CALLS: list[tuple[Any, str, str, list[str]]] = [
    (CodexBackend(), "codex", "appserver_text", CODEX_ARGV),
    (gemini(), "gemini", "gemini_text", ["--acp", "--skip-trust", "-m", "m"]),
    (AcpBackend(["goose", "acp"], model_flag="--m"), "goose", "gemini_text", ["acp", "--m", "m"]),
]


@pytest.mark.parametrize("called", CALLS, ids=lambda called: called[1])
async def test_a_turn_is_an_answer(
    called: tuple[Any, str, str, list[str]],
    program: Callable[..., Path],
    turn: AgentTurn,
    emitted: list[Any],
    folder: Path,
) -> None:
    """It is called with its model, the conversation is told both ways, and nothing is left."""
    backend, name, case, argv = called
    program(name, case, "child", "crumbs")
    options = AgentOptions(model="m", extra_args=("--more",), env={"EXTRA": "1"}, cwd=str(folder))
    with nothing_left(turn.run_id):
        reply = await backend.complete(replace(turn, options=options))
    assert reply.text == HELLO
    call, *told = heard(folder)
    assert (call["argv"], call["extra"], call["cwd"]) == ([*argv, "--more"], "1", str(folder))
    directions = [notice.direction for notice in of_type(emitted, AgentTranscript)]
    protocol = "codex_rpc" if name == "codex" else "acp"
    assert directions.count("sent") == len(told)
    assert directions.count("received") == len(received(protocol, case))
    assert StepOutput("s", "stderr", "a word on stderr\n") in emitted
    assert emitted[-1] == AgentFinished(
        "s", "completed", usage=reply.usage, model=reply.model, session=reply.session
    )


async def test_options_go_to_codex(
    program: Callable[..., Path], turn: AgentTurn, folder: Path
) -> None:
    """Relative folders are the working folder's, a profile is settings of the thread; a step's
    options go before the backend's.
    """
    program("codex", "appserver_text")
    work = folder / "work"
    work.mkdir()
    (folder / ".codex").mkdir()
    (folder / ".codex" / "fast.config.toml").write_text('personality = "terse"\n')
    backend = CodexBackend(options=AgentOptions(model="gpt-5"))
    options = AgentOptions(model="fast@gpt-6", cwd=str(work), add_dirs=("more",))
    await backend.complete(replace(turn, options=options))
    assert methods(folder) == ["initialize", "initialized", "thread/start", "turn/start"]
    assert heard(folder)[3]["params"] == {
        "cwd": str(work),
        "model": "gpt-6",
        "config": {
            "personality": "terse",
            "sandbox_workspace_write.writable_roots": [str(work / "more")],
        },
    }


async def test_a_profile_of_an_older_codex_is_found(
    program: Callable[..., Path], turn: AgentTurn, folder: Path
) -> None:
    """A profile may be a table of the settings."""
    program("codex", "appserver_text")
    (folder / "home").mkdir()
    (folder / "home" / "config.toml").write_text('[profiles.old]\nmodel = "gpt-5"\n')
    options = AgentOptions(model="old@", env={"CODEX_HOME": str(folder / "home")})
    await CodexBackend(options=options).complete(turn)
    assert heard(folder)[3]["params"]["config"] == {"model": "gpt-5"}


async def test_an_unknown_profile_is_refused(
    turn: AgentTurn, emitted: list[Any], folder: Path
) -> None:
    """A profile that is nowhere is named, with the places that were looked at."""
    error = await failed(CodexBackend(), turn, model="none@gpt-5")
    assert error.kind == "config"
    assert "no profile 'none'" in str(error)
    assert str(folder / ".codex" / "none.config.toml") in str(error)
    assert emitted == [AgentFinished("s", "failed", kind="config", error=error.reason)]


async def test_a_model_is_chosen_in_the_session(
    program: Callable[..., Path], turn: AgentTurn, folder: Path
) -> None:
    """Opencode's model is set after the session was opened; the one that holds is left alone."""
    program("opencode", "opencode_text")
    reply = await opencode(options=AgentOptions(model="stub/m", cwd=str(folder))).complete(turn)
    assert reply.model == "stub/m"
    call, _, opened, _ = heard(folder)
    assert (call["argv"], opened["params"]["cwd"]) == (["acp"], str(folder))


INTERRUPTED = [
    (CodexBackend(), "codex", "appserver_interrupt", "turn/interrupt", '"item/completed"'),
    (opencode(), "opencode", "opencode_cancel", "session/cancel", '"session/prompt"'),
]
"""The word for it, and after which line it is at work."""
every_protocol = pytest.mark.parametrize("one", INTERRUPTED, ids=lambda one: one[1])


@BOTH_LOOPS
@every_protocol
async def test_silence_is_ended_by_the_protocol(
    one: tuple[Any, ...], program: Callable[..., Path], turn: AgentTurn, folder: Path
) -> None:
    """A hanging turn is interrupted by the program itself: a timeout that can be gone on in."""
    backend, name, case, method, _ = one
    program(name, case)
    error = await failed(backend, turn, idle_timeout_s=0.3)
    assert error.kind == "timeout"
    assert error.session
    assert methods(folder)[-1] == method


@BOTH_LOOPS
@every_protocol
async def test_cancellation_interrupts_the_turn(
    one: tuple[Any, ...],
    program: Callable[..., Path],
    turn: AgentTurn,
    emitted: list[Any],
    folder: Path,
) -> None:
    """A cancelled turn is interrupted by the program itself, tells so last, and leaves nothing."""
    backend, name, case, method, line = one
    program(name, case, "child")
    started = anyio.Event()

    def emit(notice: Any) -> None:
        emitted.append(notice)
        if isinstance(notice, AgentTranscript) and line in notice.line:
            started.set()

    with nothing_left(turn.run_id), anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(backend.complete, replace(turn, emit=emit))
            await started.wait()
            tasks.cancel_scope.cancel()
    assert methods(folder)[-1] == method
    assert (emitted[-1].status, emitted[-1].kind) == ("interrupted", "interrupted")
    assert emitted[-1].session


@BOTH_LOOPS
async def test_a_codex_that_does_not_listen_is_stopped(
    program: Callable[..., Path], turn: AgentTurn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the interruption is not answered, signals follow; its children end too."""
    monkeypatch.setattr(rpc.Messages, "interrupt_s", 0.1)
    case = "appserver_interrupt"
    program("codex", case, f"hang={len(received('codex_rpc', case)) - 3}", "child")
    assert (await failed(CodexBackend(), turn, idle_timeout_s=0.3)).kind == "timeout"


@BOTH_LOOPS
async def test_an_agent_without_a_sign_of_life_is_ended(
    program: Callable[..., Path], turn: AgentTurn, folder: Path
) -> None:
    """An agent that never answers the greeting is not waited for as long as one at work."""
    program("gemini", "gemini_text", "hang=0")
    script = folder / "gemini.py"
    script.write_text(script.read_text().replace('sys.stderr.write("a word on stderr\\n")', ""))
    error = await failed(gemini(), turn, start_timeout_s=0.5)
    assert (error.kind, "no sign of life" in error.reason) == ("timeout", True)


@pytest.mark.parametrize("argv", ["goose acp", []])
def test_an_agent_is_a_list_of_arguments(argv: Any) -> None:
    """A text is not split, and nothing cannot be started."""
    with pytest.raises(DefinitionError, match="takes a list of arguments"):
        AcpBackend(argv)


async def test_an_agent_that_nobody_knows_is_looked_up() -> None:
    """Without the command that brings it, the advice is to read what its makers say."""
    missing = await AcpBackend(["no-such-agent"], name="goose").probe()
    assert (missing.found, missing.advice) == (
        False,
        "Install it: see the documentation of goose",
    )


def test_variables_are_not_shown() -> None:
    """The values of an agent's environment may be secrets."""
    assert "hush" not in repr(AcpBackend(["goose"], env={"KEY": "hush"}))
