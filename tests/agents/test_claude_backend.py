"""A turn of claude: how the program is called, and what becomes of what it says."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from handrail.agents.claude.backend import ClaudeBackend, claude_argv, claude_variables
from handrail.errors import AgentError, DefinitionError
from handrail.model.agent_options import NO_OPTIONS, AgentOptions
from handrail.model.events import (
    AgentCompaction,
    AgentFinished,
    AgentMessage,
    AgentSessionStarted,
    AgentTranscript,
    AgentUsage,
    StepOutput,
)
from handrail.model.results import Usage
from handrail.ports.agent import AgentBackend, Probe
from handrail.testing.contracts.backend import BackendContract
from handrail.testing.fake_programs import Fails, Hangs, Says, fake_cli
from tests.agents.fake_program import Recording, install, path_with
from tests.agents.recorded import recorded, turn_of
from tests.leftovers import nothing_left

COST = 0.005220000000000001
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}}
LOGINS = (
    *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
    "CLAUDE_CONFIG_DIR",
)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on PATH, and a home with nothing in it."""
    monkeypatch.setenv("PATH", path_with(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in LOGINS:
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def claude(path: Path) -> Recording:
    """A claude that answers."""
    return install(path, "claude", recorded("claude", "text"), version="2.1.330 (Claude Code)")


def write(file: Path, content: str) -> None:
    """Make a file, which may be a program."""
    file.parent.mkdir(exist_ok=True)
    file.write_text(content, "utf-8")
    file.chmod(0o755)


def is_there(file: str) -> bool:
    """Whether a file, or the folder it was in, still is."""
    return Path(file).parent.exists()


def argv_of(
    options: AgentOptions = NO_OPTIONS,
    *,
    new_session: str | None = None,
    put: Callable[[str, str], str] | None = None,
    **given: Any,
) -> list[str]:
    """What follows the arguments that every call has."""
    turn = turn_of(**given)
    argv = claude_argv(
        "claude", turn, options, new_session=new_session, put=put or (lambda name, _: f"/f/{name}")
    )
    assert argv[:5] == ("claude", "-p", "--output-format", "stream-json", "--verbose")
    return list(argv[5:])


# -- the call ------------------------------------------------------------------------------------


async def test_a_turn_is_an_answer(claude: Recording, run_id: str, emitted: list[Any]) -> None:
    """The prompt goes to stdin, the answer comes back, and nothing is left of it."""
    turn = turn_of(run_id=run_id, emitted=emitted, prompt="Grüß Gott")
    with nothing_left(run_id):
        reply = await ClaudeBackend().complete(turn)
    assert reply.text == "Hello from the stub: naïve ✓ 🙂 done."
    assert claude.call["stdin"] == "Grüß Gott"
    assert all("Grüß" not in word for word in claude.argv)
    session = claude.argv[-1].removeprefix("--session-id=")
    assert uuid.UUID(session).version == 4
    assert claude.argv == [
        *("-p", "--output-format", "stream-json", "--verbose", f"--session-id={session}")
    ]
    assert [type(notice) for notice in emitted] == [
        *(AgentTranscript, AgentSessionStarted, AgentTranscript, AgentMessage),
        *(AgentTranscript, AgentUsage, AgentFinished),
    ]
    assert emitted[-1] == AgentFinished(
        "s", "completed", usage=reply.usage, model="claude-sonnet-4-5", session=reply.session
    )


async def test_each_new_session_has_an_id_of_its_own(claude: Recording, run_id: str) -> None:
    """Two launches do not share a session unless they are told to."""
    sessions = []
    for _ in range(2):
        await ClaudeBackend().complete(turn_of(run_id=run_id))
        sessions.append(claude.argv[-1])
    assert sessions[0] != sessions[1]


async def test_the_environment_is_ours_with_claudes_settings(
    claude: Recording, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It retries little, does not update itself, does not take itself for a tool of another."""
    monkeypatch.setenv("CLAUDECODE", "1")
    monkeypatch.setenv("KEPT", "yes")
    options = AgentOptions(env={"MINE": "1"})
    await ClaudeBackend(options=options).complete(turn_of(run_id=run_id))
    env = claude.call["env"]
    assert {
        name: env[name]
        for name in (
            *("CLAUDE_CODE_MAX_RETRIES", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"),
            *("DISABLE_AUTOUPDATER", "KEPT", "MINE"),
        )
    } == {
        "CLAUDE_CODE_MAX_RETRIES": "2",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "KEPT": "yes",
        "MINE": "1",
    }
    assert "CLAUDECODE" not in env
    await ClaudeBackend(max_retries=0).complete(turn_of(run_id=run_id))
    assert claude.call["env"]["CLAUDE_CODE_MAX_RETRIES"] == "0"


async def test_it_works_in_its_folder_with_the_nearest_options(
    claude: Recording, run_id: str, tmp_path: Path
) -> None:
    """The step's options go before the backend's, field by field."""
    folder = tmp_path / "work"
    folder.mkdir()
    backend = ClaudeBackend(options=AgentOptions(model="opus", effort="low", cwd=str(folder)))
    await backend.complete(turn_of(run_id=run_id, options=AgentOptions(model="haiku")))
    assert claude.argv[5:] == ["--model=haiku", "--effort=low"]
    assert claude.call["cwd"] == str(folder)


async def test_a_blank_prompt_is_sent_as_one_that_claude_takes(
    claude: Recording, run_id: str
) -> None:
    """Claude refuses to be asked nothing, and says nothing to blanks."""
    await ClaudeBackend().complete(turn_of(run_id=run_id, prompt=" \n"))
    assert claude.call["stdin"] == "Continue."


def test_a_session_is_gone_on_in_or_copied_by_its_id() -> None:
    """Ids stand in one argument with their option; a copy has an id of its own too."""
    assert argv_of(new_session="n") == ["--session-id=n"]
    assert argv_of(session="-x") == ["--resume=-x"]
    assert argv_of(session="x", fork=True, new_session="n") == [
        *("--resume=x", "--fork-session", "--session-id=n")
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            AgentOptions(permission="read_only"),
            [
                *("--permission-mode=dontAsk", "--disallowedTools=Edit"),
                *("--disallowedTools=Write", "--disallowedTools=NotebookEdit"),
            ],
        ),
        (AgentOptions(permission="workspace"), ["--permission-mode=acceptEdits"]),
        (AgentOptions(permission="full"), ["--permission-mode=bypassPermissions"]),
        (
            AgentOptions(allowed_tools=["Read", "Bash(git log:*)"], denied_tools=["WebFetch"]),
            ["--allowedTools=Read", "--allowedTools=Bash(git log:*)", "--disallowedTools=WebFetch"],
        ),
        (AgentOptions(allowed_tools=[]), ["--tools="]),
        (
            AgentOptions(permission="full", allowed_tools=["Bash(a:*)", "Bash(b:*)", "mcp__z__q"]),
            [
                *("--permission-mode=bypassPermissions", "--tools=Bash"),
                *("--allowedTools=Bash(a:*)", "--allowedTools=Bash(b:*)"),
                "--allowedTools=mcp__z__q",
            ],
        ),
        (
            AgentOptions(system_prompt="-be terse", append_system_prompt="x\ny"),
            ["--system-prompt=-be terse", "--append-system-prompt=x\ny"],
        ),
        (AgentOptions(add_dirs=["/a", "/b"]), ["--add-dir=/a", "--add-dir=/b"]),
        (AgentOptions(mcp_servers={}), ["--strict-mcp-config"]),
        (
            AgentOptions(mcp_servers={"z": {"command": "srv", "args": ["-x"]}, "w": {"url": "u"}}),
            [
                "--strict-mcp-config",
                (
                    '--mcp-config={"mcpServers": {"z": {"command": "srv", "args": ["-x"]}, '
                    '"w": {"type": "http", "url": "u"}}}'
                ),
            ],
        ),
        (AgentOptions(max_turns=3, extra_args=["--bare"]), ["--max-turns=3", "--bare"]),
    ],
)
def test_options_are_arguments(options: AgentOptions, expected: list[str]) -> None:
    """Each option has its argument, lists one for each of their parts."""
    assert argv_of(options) == expected


def test_as_root_full_rights_need_a_word_more() -> None:
    """Claude bypasses permissions as root only where it is told that it is in a sandbox."""
    full, less = AgentOptions(permission="full"), AgentOptions(permission="workspace")
    assert claude_variables(full, max_retries=2, is_root=True)["IS_SANDBOX"] == "1"
    for options, is_root in ((full, False), (less, True)):
        assert "IS_SANDBOX" not in claude_variables(options, max_retries=2, is_root=is_root)


def test_a_schema_of_an_object_is_enforced() -> None:
    """The answer is the input of a tool, so other schemas are left to the prompt."""
    assert argv_of(schema=SCHEMA) == [f"--json-schema={json.dumps(SCHEMA, separators=(',', ':'))}"]
    assert argv_of(schema={"type": "array"}) == []
    assert argv_of(schema={"type": "object", "description": "x" * 200_000}) == []


def test_what_a_session_has_cost_is_added_to_what_an_answer_may() -> None:
    """Claude compares the bound with the whole session's cost, so that is allowed besides."""
    options, spent = AgentOptions(max_cost_usd=0.5), Usage(cost_usd=1.25)
    assert argv_of(options) == ["--max-budget-usd=0.5"]
    resumed = argv_of(options, session="x", session_usage=spent)
    assert resumed == ["--resume=x", "--max-budget-usd=1.75"]
    assert argv_of(options, session_usage=spent) == ["--max-budget-usd=0.5"]


def test_what_is_secret_or_too_long_stands_in_files() -> None:
    """Command lines can be read by everybody, and have an end."""
    written: dict[str, str] = {}

    def put(name: str, said: str) -> str:
        written[name] = said
        return f"/f/{name}"

    long = "ü" * 60_000
    servers = {"z": {"command": "srv", "env": {"KEY": "secret"}}}
    options = AgentOptions(system_prompt=long, append_system_prompt=long, mcp_servers=servers)
    assert argv_of(options, put=put) == [
        "--system-prompt-file=/f/system-prompt.md",
        "--append-system-prompt-file=/f/append-system-prompt.md",
        "--strict-mcp-config",
        "--mcp-config=/f/mcp.json",
    ]
    assert written["system-prompt.md"] == written["append-system-prompt.md"] == long
    assert json.loads(written["mcp.json"]) == {"mcpServers": servers}


async def test_files_of_a_turn_are_private_and_gone_after_it(path: Path, run_id: str) -> None:
    """A file with secrets can be read by its owner alone, while the turn lasts."""
    write(
        path / "claude",
        f"#!{sys.executable}\n"
        "import json, os, pathlib, sys\n"
        "named = [word for word in sys.argv if word.startswith('--mcp-config=')][0]\n"
        "file = pathlib.Path(named.partition('=')[2])\n"
        "said = {'file': str(file), 'mode': oct(file.parent.stat().st_mode), "
        "'text': file.read_text()}\n"
        "print(json.dumps({'type': 'result', 'subtype': 'success', 'result': json.dumps(said)}))\n",
    )
    servers = {"z": {"command": "srv", "env": {"KEY": "secret"}}}
    options = AgentOptions(mcp_servers=servers)
    reply = await ClaudeBackend().complete(turn_of(run_id=run_id, options=options))
    said = json.loads(reply.text)
    assert (json.loads(said["text"])["mcpServers"], said["mode"]) == (servers, "0o40700")
    assert not is_there(said["file"])


# -- failures ------------------------------------------------------------------------------------


async def test_a_failure_is_the_last_word(path: Path, run_id: str, emitted: list[Any]) -> None:
    """An error has its kind, and so has the notice that ends the turn."""
    install(path, "claude", recorded("claude", "usage_limit_oauth"), code=1, stderr="oh\n")
    with pytest.raises(AgentError) as caught:
        await ClaudeBackend().complete(turn_of(run_id=run_id, emitted=emitted))
    error = caught.value
    assert (error.agent, error.kind, error.retry_at) == ("coder", "usage_cap", 1_795_296_912)
    assert StepOutput("s", "stderr", "oh\n") in emitted
    last = emitted[-1]
    assert (last.status, last.kind, last.session) == ("failed", "usage_cap", error.session)


async def test_a_missing_program_is_told_how_to_install(path: Path, run_id: str) -> None:
    """A name that is not on PATH fails at once, with the command that brings it."""
    with pytest.raises(AgentError, match="npm install -g @anthropic-ai/claude-code") as caught:
        await ClaudeBackend("no-such-claude").complete(turn_of(run_id=run_id))
    assert caught.value.kind == "not_installed"


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: ClaudeBackend(""), "executable of ClaudeBackend must be a name, got ''"),
        (lambda: ClaudeBackend(max_retries=-1), "max_retries of ClaudeBackend"),
    ],
)
def test_settings_are_checked(made: Callable[[], ClaudeBackend], said: str) -> None:
    """A setting that cannot be is refused when the backend is made."""
    with pytest.raises(DefinitionError, match=said):
        made()


# -- compaction ----------------------------------------------------------------------------------


@pytest.fixture
def compacting(path: Path) -> Path:
    """A claude that knows the command /compact; the file of its calls."""
    script, calls = path / "claude", path / "calls.jsonl"
    for case in ("resume_6_compact", "resume_2_same_cwd"):
        (path / case).write_bytes(recorded("claude", case))
    write(
        script,
        f"#!{sys.executable}\n"
        "import json, sys\n"
        "asked = sys.stdin.read()\n"
        f"print(json.dumps([asked, sys.argv[5:]]), file=open({str(calls)!r}, 'a'))\n"
        "case = 'resume_6_compact' if asked == '/compact' else 'resume_2_same_cwd'\n"
        f"sys.stdout.buffer.write(open({str(path)!r} + '/' + case, 'rb').read())\n",
    )
    return calls


def calls_in(file: Path) -> list[Any]:
    """The prompt and the arguments of each call."""
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


async def test_a_session_is_made_smaller_before_the_prompt(
    compacting: Path, run_id: str, emitted: list[Any]
) -> None:
    """Two calls in the same session, told as one turn, whose usage is that of both."""
    session = "aaaaaaaa-1111-4222-8333-444444444444"
    turn = turn_of(
        run_id=run_id, emitted=emitted, session=session, compact=True, schema=SCHEMA, prompt="Go on"
    )
    reply = await ClaudeBackend().complete(turn)
    asked = calls_in(compacting)
    assert [prompt for prompt, _ in asked] == ["/compact", "Go on"]
    assert asked[0][1] == [f"--resume={session}"]
    assert asked[1][1][0] == f"--resume={session}"
    assert asked[1][1][1].startswith("--json-schema=")
    assert reply.usage is not None
    assert reply.usage.input_tokens == 3800 + 1900
    assert reply.usage.cost_usd == pytest.approx(3 * COST)
    kinds = [type(notice) for notice in emitted]
    assert (kinds.count(AgentSessionStarted), kinds.count(AgentFinished)) == (1, 1)
    assert kinds.count(AgentCompaction) == 2
    assert emitted[-1].usage == reply.usage
    assert [one for one in emitted if isinstance(one, AgentUsage)][-1].usage == reply.usage


async def test_a_copy_is_made_before_it_is_made_smaller(compacting: Path, run_id: str) -> None:
    """What is copied stays as it was: the compaction is in the copy, the prompt goes there."""
    await ClaudeBackend().complete(turn_of(run_id=run_id, session="old", fork=True, compact=True))
    first, second = (argv for _, argv in calls_in(compacting))
    assert first[:2] == ["--resume=old", "--fork-session"]
    assert first[2].startswith("--session-id=")
    assert second == ["--resume=aaaaaaaa-1111-4222-8333-444444444444"]


async def test_a_new_session_is_not_made_smaller(compacting: Path, run_id: str) -> None:
    """Without a session to go on in there is nothing to compact."""
    await ClaudeBackend().complete(turn_of(run_id=run_id, compact=True))
    assert len(calls_in(compacting)) == 1


# -- what is there -------------------------------------------------------------------------------


async def test_a_probe_finds_the_program_and_its_version(claude: Recording) -> None:
    """No model is asked; without a key or a login there is none, and what to do is said."""
    probe = await ClaudeBackend().probe()
    assert probe == Probe(
        found=True,
        version="2.1.330",
        where=str(claude.path),
        logged_in=None if sys.platform == "darwin" else False,
        advice="" if sys.platform == "darwin" else probe.advice,
    )
    assert "claude auth login" in probe.advice or sys.platform == "darwin"
    assert not claude.path.with_name("claude.call.json").exists()


async def test_a_probe_of_nothing_says_how_to_install_it(path: Path) -> None:
    """A program that is not on PATH is not found; one that does not run has no version."""
    assert await ClaudeBackend("no-such-claude").probe() == Probe(
        found=False, advice="Install it: npm install -g @anthropic-ai/claude-code"
    )
    write(path / "broken", "#!/bin/sh\nexit 3\n")
    probe = await ClaudeBackend("broken").probe()
    assert (probe.found, probe.version, probe.logged_in) == (True, None, None)
    assert "broken --version" in probe.advice


@pytest.mark.parametrize(
    ("file", "content"),
    [
        (".claude/.credentials.json", {"claudeAiOauth": {"accessToken": "t"}}),
        (".claude/settings.json", {"apiKeyHelper": "print-key"}),
        (".claude/settings.json", {"env": {"ANTHROPIC_API_KEY": "k"}}),
        (".claude.json", {"primaryApiKey": "k"}),
    ],
)
async def test_a_login_in_a_file_is_one(
    claude: Recording, path: Path, file: str, content: Any
) -> None:
    """The files in which claude keeps logins and keys are looked at."""
    write(path / file, json.dumps(content))
    assert (await ClaudeBackend().probe()).logged_in is True


async def test_a_key_in_the_environment_is_a_login(
    claude: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key may be in this process's environment or the backend's; a cloud's is not known."""
    own = ClaudeBackend(options=AgentOptions(env={"ANTHROPIC_AUTH_TOKEN": "t"}))
    cloud = ClaudeBackend(options=AgentOptions(env={"CLAUDE_CODE_USE_BEDROCK": "1"}))
    assert (await own.probe()).logged_in is True
    assert (await cloud.probe()).logged_in is None
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    assert (await ClaudeBackend().probe()).logged_in is True


# -- the contract --------------------------------------------------------------------------------


class TestClaudeBackend(BackendContract):
    @pytest.fixture
    def make_backend(self, tmp_path: Path) -> Callable[[str], AgentBackend]:
        """Programs that say in claude's way what they were made to."""
        return lambda answer: claude_that(tmp_path, *[Says(answer)] * 9)

    @pytest.fixture
    def failing_backend(self, tmp_path: Path) -> AgentBackend:
        """A program that is not logged in."""
        return claude_that(tmp_path, Fails("auth"))

    @pytest.fixture
    def endless_backend(self, tmp_path: Path) -> AgentBackend:
        """A program that works, has another one in the background, and never ends."""
        return claude_that(tmp_path, Hangs(seconds=1000, leaves_child=True))


def claude_that(folder: Path, *acts: Any) -> ClaudeBackend:
    """Claude as far as its protocol goes."""
    return ClaudeBackend(str(fake_cli("claude", acts, path=folder).executable))
