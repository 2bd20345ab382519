"""How each program is called: arguments, stdin, folder, environment and files, as tables.

What comes of a call is the same for all of them, and is asked in ``test_parity.py``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias
from uuid import UUID

import pytest

from handrail.agents.acp.backend import opencode
from handrail.agents.claude.backend import ClaudeBackend, claude_argv, claude_variables
from handrail.agents.copilot.backend import CopilotBackend, copilot_argv
from handrail.agents.routes import make_backend
from handrail.errors import AgentError, DefinitionError
from handrail.model.agent_options import AgentOptions
from handrail.model.events import AgentFinished
from handrail.model.results import Usage
from handrail.ports.agent import AgentTurn, capabilities_of
from tests.agents.fake_program import install, path_with
from tests.agents.parity.stages import PROGRAMS
from tests.agents.recorded import SAMPLES, recorded, turn_of
from tests.leftovers import nothing_left

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}
SERVERS = {"z": {"command": "srv", "args": ["-x"]}, "w": {"url": "u"}}
SECRET = {"z": {"command": "srv", "env": {"KEY": "secret"}}}
FULL, WORK = AgentOptions(permission="full"), AgentOptions(permission="workspace")
LINES = ["claude", "copilot"]
"""The backends whose programs are asked on stdin."""


def made_argv(name: str, turn: AgentTurn, options: AgentOptions, put: Any = None) -> list[str]:
    """The arguments of a turn; a new session is called ``new``, and files lie in ``/f``."""
    put = put or (lambda file, _: f"/f/{file}")
    new = "new" if turn.session is None or turn.fork else None
    make: Mapping[str, Callable[[], Sequence[str]]] = {
        "claude": lambda: claude_argv(name, turn, options, new_session=new, write_file=put),
        "copilot": lambda: copilot_argv(
            name, turn, options, session=turn.session or "new", folder=Path("/f")
        ),
    }
    return list(make[name]())[1:]


BEGINNINGS = {
    "claude": "-p --output-format stream-json --verbose",
    "copilot": "--output-format json --no-auto-update --no-ask-user",
}
CALLS: list[dict[str, Any]] = json.loads((SAMPLES / "calls.json").read_text("utf-8"))
"""Options and sessions of a turn, and what they are in the arguments of each program."""


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call["program"])
def test_options_are_arguments(call: dict[str, Any]) -> None:
    """Each option has its argument, lists one for each of their parts; the session comes along."""
    turn = call["turn"]
    if "session_usage" in turn:
        turn = {**turn, "session_usage": Usage(**turn["session_usage"])}
    argv = made_argv(call["program"], turn_of(**turn), AgentOptions(**call["options"]))
    assert argv == [*BEGINNINGS[call["program"]].split(), *call["argv"]]


def test_what_is_secret_or_too_long_stands_in_files() -> None:
    """Command lines can be read by everybody, and have an end."""
    written: dict[str, str] = {}
    long = "ü" * 60_000
    options = AgentOptions(system_prompt=long, append_system_prompt=long, mcp_servers=SECRET)
    words = made_argv(
        "claude",
        turn_of(session="x"),
        options,
        lambda name, said: written.update({name: said}) or f"/f/{name}",
    )
    assert words[5:] == [
        "--system-prompt-file=/f/system-prompt.md",
        "--append-system-prompt-file=/f/append-system-prompt.md",
        "--strict-mcp-config",
        "--mcp-config=/f/mcp.json",
    ]
    assert written["system-prompt.md"] == written["append-system-prompt.md"] == long
    assert json.loads(written["mcp.json"]) == {"mcpServers": SECRET}
    schema = {"type": "object", "description": "x" * 200_000}
    assert made_argv("claude", turn_of(session="x", schema=schema), AgentOptions())[5:] == []


def test_as_root_full_rights_need_a_word_more() -> None:
    """Claude bypasses permissions as root only where it is told that it is in a sandbox."""
    assert claude_variables(FULL, max_retries=2, is_root=True)["IS_SANDBOX"] == "1"
    for options, is_root in ((FULL, False), (WORK, True)):
        assert "IS_SANDBOX" not in claude_variables(options, max_retries=2, is_root=is_root)


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


# -- calls of a program --------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on PATH."""
    monkeypatch.setenv("PATH", path_with(tmp_path))
    return tmp_path


@pytest.fixture
def program(path: Path) -> Callable[..., Any]:
    """A function of a backend's name: its program, which answers, is put on PATH."""

    def put(name: str, case: str = "text") -> Any:
        report = (SAMPLES / "copilot" / "usage_file.usage.json").read_text("utf-8")
        folder = name.partition("-")[0]
        return install(path, PROGRAMS[name], recorded(folder, case), report=report)

    return put


@pytest.fixture
def around(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables of a process that a claude has started."""
    monkeypatch.setenv("CLAUDECODE", "1")
    monkeypatch.setenv("KEPT", "yes")


OWN_VARIABLES: Mapping[str, Mapping[str, str]] = {
    "claude": {
        "CLAUDE_CODE_MAX_RETRIES": "2",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    },
    "copilot": {"COPILOT_AUTO_UPDATE": "false"},
}


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize(("prompt", "told"), [("Grüß Gott", "Grüß Gott"), (" \n", "Continue.")])
@pytest.mark.usefixtures("around")
async def test_a_program_is_asked_on_its_stdin_in_its_folder(
    name: str, prompt: str, told: str, program: Callable[..., Any], run_id: str
) -> None:
    """Its environment is ours with its settings and the step's; a blank prompt is not one."""
    called = program(name)
    work = called.path.parent / "work"
    work.mkdir()
    options = AgentOptions(cwd=str(work), env={"MINE": "1"})
    with nothing_left(run_id):
        reply = await make_backend(name).complete(
            turn_of(run_id=run_id, prompt=prompt, options=options)
        )
    assert "Hello" in reply.text
    assert (called.call["stdin"], called.call["cwd"]) == (told, str(work))
    assert all("Grüß" not in word for word in called.argv)
    env = called.call["env"]
    expected = {"KEPT": "yes", "MINE": "1", "HANDRAIL_STEP": f"{run_id}/s", **OWN_VARIABLES[name]}
    assert {one: env.get(one) for one in expected} == expected
    assert ("CLAUDECODE" in env) == (name != "claude")


async def test_what_the_nearest_says_goes_first(program: Callable[..., Any], run_id: str) -> None:
    """The step's options go before the backend's, field by field."""
    claude = program("claude")
    backend = ClaudeBackend(options=AgentOptions(model="opus", effort="low"), max_retries=0)
    await backend.complete(turn_of(run_id=run_id, options=AgentOptions(model="haiku")))
    assert claude.argv[5:] == ["--model=haiku", "--effort=low"]
    assert claude.call["env"]["CLAUDE_CODE_MAX_RETRIES"] == "0"


@pytest.mark.parametrize("name", ["claude", "copilot"])
async def test_each_new_session_has_an_id_of_its_own(
    name: str, program: Callable[..., Any], run_id: str
) -> None:
    """Two launches do not share a session unless they are told to."""
    called, sessions = program(name), set[UUID]()
    for _ in range(2):
        await make_backend(name).complete(turn_of(run_id=run_id))
        sessions.add(UUID(called.argv[-1].removeprefix("--session-id=")))
    assert len(sessions) == 2


def in_argument(begin: str) -> Callable[[Any], str]:
    """The file that an argument with this beginning, or the one behind it, names."""

    def found(call: Any) -> str:
        argv = call["argv"]
        (word,) = [word for word in argv if word.startswith(begin)]
        named: str = word.removeprefix(begin) or argv[argv.index(word) + 1]
        return named.strip('"').removeprefix("@")

    return found


Named: TypeAlias = Callable[[Any], str]
FILES: list[tuple[str, AgentOptions, Named, Any]] = [
    (
        "copilot",
        AgentOptions(mcp_servers={**SERVERS, **SECRET}),
        in_argument("--additional-mcp-config"),
        {
            "mcpServers": {
                "z": {"type": "local", "tools": ["*"], **SECRET["z"]},
                "w": {"type": "http", "tools": ["*"], "url": "u"},
            }
        },
    ),
]


@pytest.mark.parametrize("told", FILES, ids=lambda told: told[0])
async def test_what_a_program_reads_from_files_is_gone_after_the_turn(
    told: tuple[str, AgentOptions, Named, Any], program: Callable[..., Any], run_id: str
) -> None:
    """They hold what an argument must not, or cannot, and live as long as the turn."""
    name, options, named, content = told
    called = program(name)
    turn = turn_of(run_id=run_id, options=options, schema=SCHEMA)
    await make_backend(name).complete(turn)
    file = named(called.call)
    assert Path(file).is_absolute()
    assert not Path(file).parent.exists()
    if content is not None:
        files = {word.lstrip("@"): text for word, text in called.call["files"].items()}
        assert json.loads(files[file]) == content


async def test_files_of_a_turn_are_private(path: Path, run_id: str) -> None:
    """A file with secrets can be read by its owner alone, while the turn lasts."""
    script = path / "claude"
    script.write_text(
        f"#!{sys.executable}\n"
        "import json, os, pathlib, sys\n"
        "named = [word for word in sys.argv if word.startswith('--mcp-config=')][0]\n"
        "file = pathlib.Path(named.partition('=')[2])\n"
        "said = {'file': str(file), 'mode': oct(file.parent.stat().st_mode), "
        "'text': file.read_text()}\n"
        "print(json.dumps({'type': 'result', 'subtype': 'success', 'result': json.dumps(said)}))\n",
        "utf-8",
    )
    script.chmod(0o755)
    options = AgentOptions(mcp_servers=SECRET)
    reply = await ClaudeBackend().complete(turn_of(run_id=run_id, options=options))
    said = json.loads(reply.text)
    assert (json.loads(said["text"])["mcpServers"], said["mode"]) == (SECRET, "0o40700")
    assert not Path(said["file"]).parent.exists()


async def test_a_server_name_that_codex_cannot_read_is_refused(
    program: Callable[..., Any], run_id: str, emitted: list[Any]
) -> None:
    """A name with a dot would be two names to codex: that is said before it is started."""
    codex = program("codex")
    options = AgentOptions(mcp_servers={"a.b": {"command": "x"}})
    with pytest.raises(AgentError, match=r"letters, digits, - and _, not 'a\.b'") as caught:
        await make_backend("codex").complete(
            turn_of(run_id=run_id, emitted=emitted, options=options)
        )
    assert not codex.path.with_name("codex.call.json").exists()
    error = caught.value
    assert emitted == [AgentFinished("s", "failed", kind="config", error=error.reason)]


async def test_the_report_of_copilot_is_read(program: Callable[..., Any], run_id: str) -> None:
    """What it writes about its usage counts, and is told before the last word."""
    emitted: list[Any] = []
    program("copilot", "tool")
    reply = await CopilotBackend().complete(turn_of(run_id=run_id, emitted=emitted))
    assert reply.usage == Usage(3800, 50, cached_tokens=800, cache_write_tokens=600)
    assert [one.usage for one in emitted[-2:]] == [reply.usage] * 2


@pytest.mark.parametrize("level", [None, "read_only", "workspace", "full"])
@pytest.mark.parametrize(("tools", "said"), [(["Read", "Bash"], "Read,Bash"), ((), "")])
def test_claude_has_the_tools_that_are_listed(level: Any, tools: Any, said: str) -> None:
    """At every level; what it may use without asking is another list."""
    options = AgentOptions(tools=tools, allowed_tools=["Bash(ls)"], permission=level)
    argv = made_argv("claude", turn_of(), options)
    assert [word for word in argv if word.startswith("--tools")] == [f"--tools={said}"]
    assert "--allowedTools=Bash(ls)" in argv


@pytest.mark.parametrize(("level", "asked"), [("full", "allow"), ("workspace", "ask")])
def test_opencode_has_the_tools_that_are_listed(level: Any, asked: str) -> None:
    """Its own names of permissions stand for them, and it asks for what it asked for."""
    backend = opencode()
    variables = backend._environment(AgentOptions(tools=["read", "write"], permission=level))
    expected = {"*": "deny", "read": "allow", "edit": asked}
    assert json.loads(variables["OPENCODE_PERMISSION"]) == expected
    none = backend._environment(AgentOptions(tools=()))
    assert json.loads(none["OPENCODE_PERMISSION"]) == {"*": "deny"}


@pytest.mark.parametrize("name", ["codex", "copilot", "gemini"])
def test_a_program_without_such_a_list_is_refused_by_name(name: str) -> None:
    """Before anything is started."""
    lacking = capabilities_of(make_backend(name)).lacking(AgentOptions(tools=["x"], max_tokens=9))
    assert lacking == ("tools", "max_tokens")
