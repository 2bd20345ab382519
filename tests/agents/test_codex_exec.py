"""A turn of ``codex exec``: how the program is called, and what becomes of what it says."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from handrail.agents.codex.exec import CodexExecBackend
from handrail.agents.transport.loose_json import toml_value
from handrail.errors import AgentError
from handrail.model.agent_options import AgentOptions
from handrail.model.events import AgentFinished, AgentMessage, AgentTranscript, StepOutput
from handrail.model.results import Usage
from tests.agents.fake_program import Recording, install, path_with
from tests.agents.recorded import recorded, turn_of
from tests.leftovers import nothing_left

pytestmark = pytest.mark.anyio


def gone(file: str) -> bool:
    """True if there is no such file."""
    return not Path(file).exists()


SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on PATH, and a home with nothing in it."""
    monkeypatch.setenv("PATH", path_with(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("CODEX_HOME", "OPENAI_API_KEY", "CODEX_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def codex(path: Path) -> Recording:
    """A codex that answers."""
    return install(path, "codex", recorded("codex", "text"), stderr="WARNING: x\n")


async def test_a_turn_is_an_answer(codex: Recording, run_id: str, emitted: list[Any]) -> None:
    """The prompt goes to stdin, the answer comes back, and nothing is left of it."""
    turn = turn_of(run_id=run_id, emitted=emitted, prompt="Grüß Gott")
    with nothing_left(run_id):
        reply = await CodexExecBackend().complete(turn)
    assert reply.text == "Hello from the stub: naïve ✓ 🙂 done."
    assert codex.call["stdin"] == "Grüß Gott"
    assert codex.argv == [
        *("exec", "-C", str(Path.cwd()), "-c", "analytics.enabled=false"),
        *("--json", "--skip-git-repo-check", "-"),
    ]
    kinds = [type(notice) for notice in emitted]
    assert kinds.count(AgentMessage) == 1
    assert kinds.count(AgentTranscript) == 5
    assert StepOutput("s", "stderr", "WARNING: x\n") in emitted
    assert emitted[-1] == AgentFinished("s", "completed", usage=reply.usage, session=reply.session)


async def test_options_are_arguments(codex: Recording, run_id: str, tmp_path: Path) -> None:
    """Each option that codex honours has its argument; a step's go before the backend's."""
    backend = CodexExecBackend(options=AgentOptions(model="gpt-5", effort="low", env={"A": "1"}))
    options = AgentOptions(
        model="fast@gpt-6",
        permission="workspace",
        append_system_prompt='Say "hi"\nalways',
        mcp_servers={"z": {"command": "srv", "args": ["-x"], "env": {"K": "v"}, "type": "stdio"}},
        cwd=str(tmp_path),
        add_dirs=("more",),
        env={"B": "2"},
        extra_args=("--ephemeral",),
    )
    await backend.complete(turn_of(run_id=run_id, options=options))
    assert codex.argv == [
        *("exec", "-C", str(tmp_path), "-s", "workspace-write", "-p", "fast"),
        *("--add-dir", str(tmp_path / "more")),
        *("-c", "analytics.enabled=false", "-c", 'model_reasoning_effort="low"'),
        *("-c", 'developer_instructions="Say \\"hi\\"\\nalways"'),
        *("-c", 'mcp_servers.z={"command" = "srv", "args" = ["-x"], "env" = {"K" = "v"}}'),
        *("--json", "--skip-git-repo-check", "-m", "gpt-6", "--ephemeral", "-"),
    ]
    assert codex.call["cwd"] == str(tmp_path)
    assert (codex.call["env"]["A"], codex.call["env"]["B"]) == ("1", "2")
    assert codex.call["env"]["HANDRAIL_STEP"] == f"{run_id}/s"


@pytest.mark.parametrize(
    ("permission", "words"),
    [
        ("read_only", ["-s", "read-only"]),
        ("full", ["--dangerously-bypass-approvals-and-sandbox"]),
    ],
)
async def test_rights_are_arguments(
    codex: Recording, run_id: str, permission: Any, words: list[str]
) -> None:
    """Reading alone is a sandbox, full rights are none."""
    options = AgentOptions(permission=permission)
    await CodexExecBackend().complete(turn_of(run_id=run_id, options=options))
    assert codex.argv[3 : 3 + len(words)] == words


@pytest.mark.parametrize(("fork", "word"), [(False, "resume"), (True, "fork")])
async def test_a_session_is_gone_on_in(
    codex: Recording, run_id: str, fork: bool, word: str
) -> None:
    """What ``resume`` does not know stands before it, the session and stdin come last."""
    options = AgentOptions(model="m", permission="read_only")
    turn = turn_of(run_id=run_id, options=options, session="t-1", fork=fork)
    await CodexExecBackend().complete(turn)
    at = codex.argv.index(word)
    assert {"-C", "-s"} <= set(codex.argv[:at])
    assert codex.argv[at:] == [word, "--json", "--skip-git-repo-check", "-m", "m", "t-1", "-"]


async def test_a_schema_is_a_file_in_strict_form(path: Path, run_id: str) -> None:
    """The schema is handed over as codex wants it, JSON comes back as the value."""
    codex = install(path, "codex", recorded("codex", "schema_ok"))
    reply = await CodexExecBackend().complete(turn_of(run_id=run_id, schema=SCHEMA))
    assert reply.value == {"name": "Ada", "age": 36}
    file = codex.argv[codex.argv.index("--output-schema") + 1]
    assert json.loads(codex.call["files"][file])["required"] == ["name", "age"]
    assert gone(file)


async def test_a_schema_without_strict_form_is_left_to_the_prompt(path: Path, run_id: str) -> None:
    """Codex is not given a schema that its model's maker would refuse."""
    codex = install(path, "codex", recorded("codex", "schema_ok"))
    turn = turn_of(run_id=run_id, schema={"type": "array", "items": {}})
    reply = await CodexExecBackend().complete(turn)
    assert "--output-schema" not in codex.argv
    assert not reply.has_value


async def test_instructions_of_ones_own_are_a_file(codex: Recording, run_id: str) -> None:
    """A system prompt takes the place of codex's own, from a file."""
    options = AgentOptions(system_prompt="Be brief.")
    await CodexExecBackend().complete(turn_of(run_id=run_id, options=options))
    setting = next(word for word in codex.argv if word.startswith("model_instructions_file="))
    file = tomllib.loads(setting)["model_instructions_file"]
    assert gone(file)


async def test_a_failure_is_told_last(path: Path, run_id: str, emitted: list[Any]) -> None:
    """The error that is raised is also the last notice."""
    install(path, "codex", recorded("codex", "usage_limit_reached"), code=1)
    turn = turn_of(run_id=run_id, emitted=emitted, now=lambda: 1_795_294_000.0)
    with pytest.raises(AgentError, match="usage limit") as caught:
        await CodexExecBackend().complete(turn)
    assert caught.value.kind == "usage_cap"
    assert caught.value.retry_at is not None
    assert emitted[-1].status == "failed"
    assert emitted[-1].kind == "usage_cap"


async def test_a_server_name_that_codex_cannot_read_is_refused(
    codex: Recording, run_id: str, emitted: list[Any]
) -> None:
    """A name with a dot would be two names to codex: that is said before it is started."""
    options = AgentOptions(mcp_servers={"a.b": {"command": "x"}})
    with pytest.raises(AgentError, match=r"letters, digits, - and _, not 'a\.b'"):
        await CodexExecBackend().complete(turn_of(run_id=run_id, emitted=emitted, options=options))
    assert not codex.path.with_name("codex.call.json").exists()
    assert isinstance(emitted[-1], AgentFinished)


async def test_a_missing_program_says_how_to_get_it(run_id: str, path: Path) -> None:
    """Without codex the error names the command that installs it."""
    with pytest.raises(AgentError, match="npm install -g @openai/codex") as caught:
        await CodexExecBackend(str(path / "nope")).complete(turn_of(run_id=run_id))
    assert caught.value.kind == "not_installed"


async def test_usage_goes_on_from_the_session(path: Path, run_id: str) -> None:
    """The second turn of a thread has used what the total grew by."""
    install(path, "codex", recorded("codex", "resume_2"))
    before = Usage(1200, 25, cached_tokens=400)
    turn = turn_of(run_id=run_id, session="t", session_usage=before)
    reply = await CodexExecBackend().complete(turn)
    assert reply.usage == Usage(1200, 25, cached_tokens=400)


async def test_probing_finds_program_version_and_login(path: Path) -> None:
    """Without a model being asked: is codex there, which one, does it have a login."""
    absent = await CodexExecBackend(str(path / "nope")).probe()
    assert (absent.found, absent.advice) == (False, "Install it: npm install -g @openai/codex")
    program = install(path, "codex", version="codex-cli 0.169.0")
    out = await CodexExecBackend().probe()
    assert (out.found, out.version, out.where) == (True, "0.169.0", str(program.path))
    assert (out.logged_in, out.advice) == (False, "Log in: codex login")
    folder = path / ".codex"
    folder.mkdir()
    (folder / "config.toml").write_text('model_provider = "mine"\n', "utf-8")
    assert (await CodexExecBackend().probe()).logged_in is None
    (folder / "auth.json").write_text('{"tokens": {"access_token": "x"}}', "utf-8")
    assert (await CodexExecBackend().probe()).logged_in is True


async def test_a_key_in_the_environment_is_a_login(path: Path) -> None:
    """The options' variables count, as they do in a turn."""
    install(path, "codex")
    options = AgentOptions(env={"OPENAI_API_KEY": "k"})
    assert (await CodexExecBackend(options=options).probe()).logged_in is True


def test_what_it_cannot_do_is_declared() -> None:
    """Options that codex exec knows no argument for are named as lacking."""
    options = AgentOptions(max_turns=3, max_cost_usd=1, allowed_tools=("x",), timeout_s=5)
    lacking = CodexExecBackend().capabilities.lacking(options)
    assert lacking == ("allowed_tools", "max_turns", "max_cost_usd")


@pytest.mark.parametrize(
    "value",
    [
        "",
        'a"b\\c\n\t\x00\x7f ü 🙂',
        True,
        0,
        -1.5,
        [],
        ["a", 1],
        {},
        {"a b": {"c": ["d"]}, "e.f": 1},
    ],
)
def test_values_are_written_in_toml(value: Any) -> None:
    """What is written can be read again as the same value."""
    assert tomllib.loads(f"value = {toml_value(value)}") == {"value": value}


def test_toml_knows_no_null() -> None:
    """Members that are None are left out."""
    assert toml_value({"a": None, "b": [None, 1]}) == '{"b" = [1]}'
