"""A turn of copilot: how the program is called, and what becomes of what it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from handrail.agents.copilot.backend import CopilotBackend
from handrail.errors import AgentError
from handrail.model.agent_options import AgentOptions
from handrail.model.events import AgentFinished, AgentUsage
from handrail.model.results import Usage
from tests.agents.fake_program import Recording, install, path_with
from tests.agents.recorded import SAMPLES, recorded, turn_of
from tests.leftovers import nothing_left

pytestmark = pytest.mark.anyio

REPORT = (SAMPLES / "copilot" / "usage_file.usage.json").read_text("utf-8")
TWO_CALLS = Usage(3800, 50, cached_tokens=800, cache_write_tokens=600)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on PATH, and a home with nothing in it."""
    monkeypatch.setenv("PATH", path_with(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("COPILOT_HOME", "COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def copilot(path: Path) -> Recording:
    """A copilot that answers, and reports what it used."""
    return install(path, "copilot", recorded("copilot", "tool"), report=REPORT)


async def test_a_turn_is_an_answer(copilot: Recording, run_id: str, emitted: list[Any]) -> None:
    """The prompt goes to stdin, answer and usage come back, and nothing is left of it."""
    turn = turn_of(run_id=run_id, emitted=emitted, prompt="Grüß Gott")
    with nothing_left(run_id):
        reply = await CopilotBackend().complete(turn)
    assert (reply.text, reply.usage) == ("The command printed tool-ok.", TWO_CALLS)
    assert copilot.call["stdin"] == "Grüß Gott"
    *argv, session = copilot.argv
    assert argv[:4] == ["--output-format", "json", "--no-auto-update", "--no-ask-user"]
    assert argv[4] == "--usage-output-file"
    assert UUID(session.removeprefix("--session-id=")).version == 4
    assert not Path(argv[5]).parent.exists()
    assert emitted[-2:] == [
        AgentUsage("s", TWO_CALLS),
        AgentFinished(
            "s", "completed", usage=TWO_CALLS, model="claude-sonnet-4.5", session=reply.session
        ),
    ]


async def test_options_are_arguments(copilot: Recording, run_id: str, tmp_path: Path) -> None:
    """Each option that copilot honours has its argument; servers are in a file."""
    options = AgentOptions(
        model="gpt-5",
        effort="high",
        permission="workspace",
        allowed_tools=("shell(git:*)",),
        denied_tools=("fetch",),
        mcp_servers={"z": {"command": "srv", "env": {"TOKEN": "t"}}, "w": {"url": "http://x"}},
        cwd=str(tmp_path),
        add_dirs=("more",),
        extra_args=("--stream", "off"),
    )
    await CopilotBackend(options=options).complete(turn_of(run_id=run_id))
    words = copilot.argv
    assert words[4:13] == [
        *("--allow-tool=write", "--allow-tool=shell(git:*)", "--deny-tool=fetch"),
        *("--model", "gpt-5", "--reasoning-effort", "high"),
        *("--add-dir", str(tmp_path / "more")),
    ]
    assert words[-3:-1] == ["--stream", "off"]
    file = words[words.index("--additional-mcp-config") + 1]
    assert json.loads(copilot.call["files"][file])["mcpServers"] == {
        "z": {"type": "local", "tools": ["*"], "command": "srv", "env": {"TOKEN": "t"}},
        "w": {"type": "http", "tools": ["*"], "url": "http://x"},
    }
    assert copilot.call["cwd"] == str(tmp_path)


@pytest.mark.parametrize(
    ("permission", "word"), [("read_only", "--deny-tool=write"), ("full", "--allow-all")]
)
async def test_rights_are_arguments(
    copilot: Recording, run_id: str, permission: Any, word: str
) -> None:
    """Reading alone denies writing, full rights allow all."""
    options = AgentOptions(permission=permission)
    await CopilotBackend().complete(turn_of(run_id=run_id, options=options))
    assert copilot.argv[4] == word


async def test_a_session_is_gone_on_in(copilot: Recording, run_id: str) -> None:
    """A known session is resumed, under its id."""
    await CopilotBackend().complete(turn_of(run_id=run_id, session="abc"))
    assert copilot.argv[-1] == "--resume=abc"


async def test_a_turn_that_was_broken_off_is_no_answer(
    path: Path, run_id: str, emitted: list[Any]
) -> None:
    """Exit code 0 and a result do not make an aborted turn an answer."""
    install(path, "copilot", recorded("copilot", "hang_sigint"), code=0)
    with pytest.raises(AgentError) as caught:
        await CopilotBackend().complete(turn_of(run_id=run_id, emitted=emitted))
    assert caught.value.kind == "interrupted"
    assert (emitted[-1].status, emitted[-1].kind) == ("interrupted", "interrupted")


async def test_a_missing_program_says_how_to_get_it(run_id: str, path: Path) -> None:
    """Without copilot the error names the command that installs it."""
    with pytest.raises(AgentError, match="npm install -g @github/copilot") as caught:
        await CopilotBackend(str(path / "nope")).complete(turn_of(run_id=run_id))
    assert caught.value.kind == "not_installed"


async def test_probing_finds_program_version_and_login(path: Path) -> None:
    """Without a model being asked: is copilot there, which one, does it have a login."""
    install(path, "copilot", version="GitHub Copilot CLI 1.0.102.")
    out = await CopilotBackend().probe()
    assert (out.found, out.version, out.logged_in) == (True, "1.0.102", None)
    (path / ".copilot").mkdir()
    (path / ".copilot" / "config.json").write_text('{"logged_in_users": [{"login": "a"}]}')
    assert (await CopilotBackend().probe()).logged_in is True
    options = AgentOptions(env={"HOME": "/nonexistent", "GH_TOKEN": "t"})
    assert (await CopilotBackend(options=options).probe()).logged_in is True


async def test_a_program_that_does_not_run_is_found_broken(path: Path) -> None:
    """A program that cannot even say its version is reported, with what to do."""
    program = install(path, "copilot")
    program.path.write_text("#!/bin/sh\nexit 3\n", "utf-8")
    out = await CopilotBackend().probe()
    assert (out.found, out.version) == (True, None)
    assert "Reinstall" in out.advice


def test_what_it_cannot_do_is_declared() -> None:
    """Options that copilot knows no argument for are named as lacking."""
    options = AgentOptions(system_prompt="x", max_turns=3, model="profile@m")
    lacking = CopilotBackend().capabilities.lacking(options)
    assert lacking == ("system_prompt", "max_turns", "the profile in model='profile@m'")
