"""Compares the page docs/how-to/backends.md with the code, in the names of its blocks."""

import os
import re
from pathlib import Path

from handrail.agents.routes import backend_names
from handrail.model.agent_options import PERMISSIONS
from handrail.model.events import AgentFinished
from handrail.testing import JumpClock, MemorySink

PAGE = PAGE_FILE.read_text("utf-8")
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))


def prose(name):
    """The text of a section in one line."""
    return " ".join(SECTIONS[name].split())


others = {"What they have in common", "agy", "Any other ACP agent", "Any program", "fake"}
assert set(SECTIONS) == others | set(backend_names()), set(SECTIONS)


def asked(program, *script, **more):
    """What the section's example gives, and how the program was called."""
    with fake_cli(program, list(script) or ["Fixed."]) as cli:
        result = Executor(clock=JumpClock(), **more).run_sync(fix)
    return result, cli.calls


def kind_of_end():
    """The kind as which the example's last launch ended."""
    sink = MemorySink()
    assert not Executor(sinks=[sink]).run_sync(fix).success
    return sink.of(AgentFinished)[-1].kind


# ---
result, (call,) = asked("claude")
assert result.unwrap().output == "Fixed." and result.unwrap().usage.cost_usd is not None
assert {
    "--model=opus",
    "--permission-mode=acceptEdits",
    "--max-turns=50",
    "--setting-sources=",
} <= set(call.argv)
assert {"--strict-mcp-config", "--allowedTools=Bash(pytest:*)"} <= set(
    call.argv
) and "--mcp-config" not in str(call.argv)
assert call.stdin.endswith("Fix the failing test.") and "Fix the failing test." not in " ".join(
    call.argv
)

from handrail.agents.claude.backend import _MODES, _WRITERS, claude_variables
from handrail.agents.claude.errors import Failure, kind_of


def levels(name):
    """The rows of the table of permission levels."""
    return dict(
        re.findall(r"^\| `(read_only|workspace|full)` \| ([^|]*) \|", SECTIONS[name], re.MULTILINE)
    )


assert set(levels("claude")) == set(PERMISSIONS)
assert all(f"`{mode}`" in levels("claude")[level] for level, mode in _MODES.items())
assert all(f"`{tool}`" in levels("claude")["read_only"] for tool in _WRITERS)
assert (
    claude_variables(AgentOptions(permission="full"), max_retries=2, is_root=True)["IS_SANDBOX"]
    == "1"
)
assert ClaudeBackend().max_retries == 2
assert kind_of(Failure(subtype="error_max_budget_usd")) == "spending_cap"
assert kind_of(Failure(subtype="error_max_turns")) == "max_turns"

# ---
result, (call,) = asked("codex")
assert result.unwrap().output == "Fixed." and result.unwrap().session
assert {"app-server", "--listen", "stdio://"} <= set(call.argv)

from handrail.agents.codex.turn import NETWORK_WAITS
from handrail.agents.codex.settings import SANDBOXES

assert (
    all(f"`{SANDBOXES[level]}`" in words for level, words in levels("codex").items())
    and len(levels("codex")) == 3
)
assert f"said so {NETWORK_WAITS} times" in prose("codex")
coder = Agent("coder", "x", backend=CodexBackend(options=apart), model="day@gpt-6")
with fake_cli("codex", []) as cli:
    assert (kind_of_end(), len(cli.calls)) == ("config", 0), (kind_of_end(), cli.calls)

# ---
result, (call,) = asked("copilot")
assert result.unwrap().output == "Fixed." and result.unwrap().usage.input_tokens
assert f"--session-id={result.unwrap().session}" in call.argv
assert {"--allow-tool=write", "--allow-tool=shell(git:*)", "--no-custom-instructions"} <= set(
    call.argv
)
from handrail.agents.copilot.backend import _PERMISSIONS

assert levels("copilot") == {level: f"`{words[0]}`" for level, words in _PERMISSIONS.items()}

# ---
result, (call,) = asked("gemini")
assert result.unwrap().output == "Fixed." and result.unwrap().session and "--acp" in call.argv
from handrail.agents.acp.session import _MODES as ACP_MODES

assert all(
    mode.strip("`").replace("_", "") in ACP_MODES[level] for level, mode in levels("gemini").items()
)

# ---
result, (call,) = asked("opencode")
assert result.unwrap().output == "Fixed." and "acp" in call.argv, result
from handrail.agents.acp.agents import profile_of

assert profile_of("opencode").counts_last_step

# ---
assert kind_of_end() == "not_installed"
from handrail.agents.acp.named import NAMED

known = re.findall(r'^\| `"(\w+)"` \| `([^`]+)` \| `([^`]+)`.*? \| ([^|]*)\|$', PAGE, re.MULTILINE)
assert {name: (tuple(argv.split()), row_login) for name, argv, row_login, _ in known} == {
    name: (tuple(row.argv), row.login.partition(" (")[0].partition(",")[0])
    for name, row in NAMED.items()
}, known
for name, _, _, lacks in known:
    row = NAMED[name]
    assert set(re.findall(r"`(\w+)`", lacks)) == row.lacks and ("forks" in lacks) != row.forks, name
elsewhere = AcpBackend(["gemini", "--acp", "--skip-trust"], name="gemini", model_flag="-m")
coder = Agent("coder", "Fix it.", backend=elsewhere, model="small")
result, (call,) = asked("gemini")
assert result.unwrap().output == "Fixed." and call.argv[-2:] == ("-m", "small"), call.argv
assert all(
    profile_of(f"my-{name}").family == name
    for name in re.findall(
        r"`(\w+)`", re.search(r"name in which (.*?) occurs", prose("Any other ACP agent"))[1]
    )
)
from handrail.agents.acp.session import VERSION

assert f"version {VERSION}" in prose("Any other ACP agent")

# ---
from handrail.agents.api.turn import KEPT
from handrail.agents.api.turn import _EFFORTS
from handrail.agents.api.turn import IDLE_S as API_IDLE_S

assert f"the last {KEPT} of each" in prose("api") and f"silent for {API_IDLE_S:g} s" in prose("api")
efforts = re.search(r"`effort` is (.*?);", prose("api"))[1]
assert set(re.findall(r"`(\w+)`", efforts)) == set(_EFFORTS)
coder = Agent("coder", "x", backend=ApiBackend(TestModel()), options=AgentOptions(effort="huge"))
assert kind_of_end() == "config"

# ---
spoken = CommandBackend([sys.executable, "-c", "raise SystemExit('usage limit reached')"])
coder = Agent("coder", "x", backend=spoken)
assert kind_of_end() == ""

# ---
from handrail.agents.transport.programs import CLAUDE, CODEX, COPILOT


def variables(name):
    """The variables that stand for a login."""
    listed = re.search(r"\*\*Without a person:\*\* (.*?)(?:\. |$)", prose(name))[1]
    return re.findall(r"`([A-Z_]+)`", listed)


home = {"HOME": os.getcwd()}
for name, known in {one.name: one.logged_in for one in (CLAUDE, CODEX, COPILOT)}.items():
    assert variables(name) and all(known({**home, one: "x"}) is True for one in variables(name)), (
        name
    )
    assert known(home) is not True, name
assert COPILOT.logged_in({**home, "COPILOT_PROVIDER_BASE_URL": "x"}) is True
