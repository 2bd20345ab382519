"""The real programs: where they are, which stub they talk to, and with what around them."""

from __future__ import annotations

import importlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs

from handrail.agents.acp.backend import AcpBackend
from handrail.agents.acp.named import make_named
from handrail.model.agent_options import AgentOptions
from handrail.ports.agent import AgentBackend
from tests.live import stub_anthropic, stub_chat, stub_gemini, stub_openai
from tests.live.stub_server import StubServer, ToolCall

THEIRS = ("ANTHROPIC_", "CLAUDE", "CODEX_", "COPILOT_", "DISABLE_", "GEMINI_", "GOOGLE_", "OPENAI_",
          "OPENCODE_", "XDG_")  # fmt: skip
"""Variables of the person who runs the tests that these programs would read."""

QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_TELEMETRY": "1",
    "IS_SANDBOX": "1",  # so that it may bypass permissions as root, as in a container
    "LANG": "C.UTF-8",
    "RUST_LOG": "error",
    "TERM": "dumb",
}
CODEX_CONFIG = """
model_provider = "stub"

[model_providers.stub]
name = "stub"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "STUB_KEY"
request_max_retries = 0
stream_max_retries = 0

[analytics]
enabled = false
"""


@dataclass(frozen=True)
class Live:
    """One backend on one real program.

    ``variable`` names the environment variable that has the program's path, for who does not have
    it on PATH. ``api`` has the stub and its refusals; ``around`` prepares a home for the program
    and says which variables it needs.
    """

    name: str
    program: str
    backend: str
    api: ModuleType
    stub: type[StubServer]
    model: str | None
    around: Callable[[Path, str], Mapping[str, str]]
    tool: Callable[[str], ToolCall]
    extra: Mapping[str, Any]

    @property
    def variable(self) -> str:
        """The name of the variable that says where the program is."""
        return f"HANDRAIL_LIVE_{self.program.upper().replace('-', '_')}"

    @property
    def where(self) -> str | None:
        """The program's path; None if it is not on this machine, or the variable is empty."""
        said = os.environ.get(self.variable)
        return shutil.which(self.program) if said is None else said or None

    def make(
        self, where: str, home: Path, url: str, *, env: Mapping[str, str], **options: Any
    ) -> AgentBackend:
        """The backend, its program knowing nothing but the stub."""
        module, _, name = self.backend.rpartition(".")
        make = getattr(importlib.import_module(module), name)
        around = {**QUIET, "HOME": str(home), **self.around(home, url), **env}
        chosen = {"model": self.model, "cwd": str(home / "work"), **options}
        made: AgentBackend = make(where, options=AgentOptions(env=around, **chosen), **self.extra)
        return made


def _claude(_: Path, url: str) -> Mapping[str, str]:
    return {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "sk-ant-dummy"}


def _codex(home: Path, url: str) -> Mapping[str, str]:
    folder = home / ".codex"
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text(CODEX_CONFIG.format(url=url))
    return {"CODEX_HOME": str(folder), "STUB_KEY": "sk-dummy"}


def _copilot(home: Path, url: str) -> Mapping[str, str]:
    return {
        "COPILOT_HOME": str(home / ".copilot"),
        "COPILOT_OFFLINE": "true",
        "COPILOT_AUTO_UPDATE": "false",
        "COPILOT_PROVIDER_BASE_URL": url,
        "COPILOT_PROVIDER_TYPE": "anthropic",
        "COPILOT_PROVIDER_API_KEY": "sk-dummy",
        "COPILOT_MODEL": "claude-sonnet-4.5",
    }


def _gemini(home: Path, url: str) -> Mapping[str, str]:
    folder = home / ".gemini"
    folder.mkdir(exist_ok=True)
    chosen = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
    (folder / "settings.json").write_text(json.dumps(chosen))
    return {
        "GEMINI_API_KEY": "dummy",
        "GOOGLE_GEMINI_BASE_URL": url,
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "GEMINI_TELEMETRY_ENABLED": "false",
    }


def _opencode(_: Path, url: str) -> Mapping[str, str]:
    model = {
        "name": "M",
        "tool_call": True,
        "limit": {"context": 200000, "output": 8192},
        "cost": {"input": 3, "output": 15, "cache_read": 0.3, "cache_write": 3.75},
    }
    options = {"baseURL": f"{url}/v1", "apiKey": "sk-dummy"}
    stub = {"npm": "@ai-sdk/anthropic", "name": "Stub", "options": options, "models": {"m": model}}
    config = {
        "autoupdate": False,
        "share": "disabled",
        "model": "stub/m",
        "small_model": "stub/m",
        "provider": {"stub": stub},
    }
    switches = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
    off = {f"OPENCODE_DISABLE_{switch}": "1" for switch in switches}
    return {"OPENCODE_CONFIG_CONTENT": json.dumps(config), **off}


def _qwen(home: Path, url: str) -> Mapping[str, str]:
    folder = home / ".qwen"
    folder.mkdir(exist_ok=True)
    chosen = {"security": {"auth": {"selectedType": "openai"}}}
    (folder / "settings.json").write_text(json.dumps(chosen))
    return {"OPENAI_API_KEY": "sk-dummy", "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_MODEL": "m"}


def named(where: str, *, options: AgentOptions, name: str) -> AgentBackend:
    """The backend of an agent that is known by a name, on this program."""
    made = make_named(name)
    return attrs.evolve(made, argv=(where, *made.argv[1:]), options=options)


def adapter(where: str, *, options: AgentOptions, name: str) -> AgentBackend:
    """A program that speaks ACP for another one."""
    return AcpBackend([where], name=name, options=options)


CLAUDE = Live(
    "claude",
    "claude",
    "handrail.agents.claude.backend.ClaudeBackend",
    stub_anthropic,
    stub_anthropic.AnthropicStub,
    "claude-sonnet-4-5",
    _claude,
    lambda command: ToolCall("Bash", {"command": command, "description": "x"}, "Running it."),
    {"max_retries": 0},
)
CODEX = Live(
    "codex",
    "codex",
    "handrail.agents.codex.backend.CodexBackend",
    stub_openai,
    stub_openai.OpenAIStub,
    "gpt-5",
    _codex,
    lambda command: ToolCall("exec_command", {"cmd": command}, "Running it."),
    {},
)
COPILOT = Live(
    "copilot",
    "copilot",
    "handrail.agents.copilot.backend.CopilotBackend",
    stub_anthropic,
    stub_anthropic.AnthropicStub,
    "claude-sonnet-4.5",
    _copilot,
    lambda command: ToolCall("bash", {"command": command, "description": "x"}, "Running it."),
    {},
)
GEMINI = Live(
    "gemini",
    "gemini",
    "handrail.agents.acp.backend.gemini",
    stub_gemini,
    stub_gemini.GeminiStub,
    "gemini-2.5-flash",
    _gemini,
    lambda command: ToolCall("run_shell_command", {"command": command}, "Running it."),
    {},
)
OPENCODE = Live(
    "opencode",
    "opencode",
    "handrail.agents.acp.backend.opencode",
    stub_anthropic,
    stub_anthropic.OpencodeStub,
    "stub/m",
    _opencode,
    lambda command: ToolCall("bash", {"command": command, "description": "x"}, "Running it."),
    {},
)
QWEN = replace(
    GEMINI,
    name="qwen",
    program="qwen",
    model="m",
    backend="tests.live.programs.named",
    stub=stub_chat.ChatStub,
    around=_qwen,
    tool=lambda command: ToolCall(
        "run_shell_command", {"command": command, "is_background": False}, "Running it."
    ),
    extra={"name": "qwen"},
)
_ADAPTED: dict[str, Any] = {"backend": "tests.live.programs.adapter", "model": None}
CLAUDE_ACP = replace(
    CLAUDE, name="claude-acp", program="claude-agent-acp", extra={"name": "claude-acp"}, **_ADAPTED
)
CODEX_ACP = replace(
    CODEX, name="codex-acp", program="codex-acp", extra={"name": "codex-acp"}, **_ADAPTED
)
ALL = (CLAUDE, CODEX, COPILOT, GEMINI, OPENCODE, QWEN, CLAUDE_ACP, CODEX_ACP)
"""Other programs, then adapters: they run the same claude and codex, and speak ACP."""


@contextmanager
def nothing_of_theirs() -> Iterator[None]:
    """Meanwhile this process has no variable that these programs read."""
    before = dict(os.environ)
    for name in before:
        if name.startswith(THEIRS) or name.lower().endswith("_proxy"):
            del os.environ[name]
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
