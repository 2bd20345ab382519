"""What is known of each program besides its protocol: is it there, which one, with a login."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from handrail.agents.codex.backend import CodexBackend
from handrail.agents.routes import make_backend
from handrail.agents.transport.programs import (
    CLAUDE,
    CODEX,
    COPILOT,
    gemini_logged_in,
    opencode_logged_in,
)
from handrail.model.agent_options import AgentOptions
from handrail.ports.agent import Probe, capabilities_of
from tests.agents.fake_program import install, path_with
from tests.agents.parity.stages import PROGRAMS

LOGGED_IN = {
    **{one.name: one.logged_in for one in (CLAUDE, CODEX, COPILOT)},
    "gemini": gemini_logged_in,
    "opencode": opencode_logged_in,
}
KEYCHAIN = None if sys.platform == "darwin" else False
"""Where claude may have its login on a Mac."""
LOGINS: list[tuple[str, dict[str, str], dict[str, Any], bool | None]] = [
    ("claude", {}, {}, KEYCHAIN),
    ("claude", {}, {".claude/.credentials.json": {"claudeAiOauth": {"accessToken": "t"}}}, True),
    ("claude", {}, {".claude/settings.json": {"apiKeyHelper": "print-key"}}, True),
    ("claude", {}, {".claude/settings.json": {"env": {"ANTHROPIC_API_KEY": "k"}}}, True),
    ("claude", {}, {".claude.json": {"primaryApiKey": "k"}}, True),
    ("claude", {"ANTHROPIC_AUTH_TOKEN": "t"}, {}, True),
    ("claude", {"CLAUDE_CODE_USE_BEDROCK": "1"}, {}, None),
    ("claude", {}, {".claude/settings.json": ["no object"]}, KEYCHAIN),
    ("codex", {}, {}, False),
    ("codex", {}, {".codex/config.toml": 'model_provider = "mine"\n'}, None),
    ("codex", {}, {".codex/auth.json": {"tokens": {"access_token": "x"}}}, True),
    ("codex", {"OPENAI_API_KEY": "k"}, {}, True),
    ("copilot", {}, {}, None),
    ("copilot", {}, {".copilot/config.json": {"logged_in_users": [{"login": "a"}]}}, True),
    ("copilot", {"GH_TOKEN": "t"}, {}, True),
    ("gemini", {}, {}, False),
    ("gemini", {}, {".gemini/oauth_creds.json": {"refresh_token": "t"}}, True),
    ("gemini", {"GEMINI_API_KEY": "k"}, {}, True),
    ("gemini", {"GOOGLE_GENAI_USE_VERTEXAI": "true"}, {}, None),
    ("gemini", {}, {".gemini/settings.json": {"security": {"auth": {"selectedType": "x"}}}}, None),
    ("gemini", {}, {".gemini/.env": "GEMINI_API_KEY=k"}, None),
    ("opencode", {}, {}, None),
    ("opencode", {}, {".local/share/opencode/auth.json": {"anthropic": {"key": "k"}}}, True),
    ("opencode", {"XDG_DATA_HOME": "/nowhere"}, {}, None),
]


@pytest.mark.parametrize(("name", "env", "files", "known"), LOGINS)
def test_a_login_is_known_by_files_and_variables(
    name: str, env: dict[str, str], files: dict[str, Any], known: bool | None, tmp_path: Path
) -> None:
    """Unknown where a keychain, a cloud or a provider that needs none may have it."""
    for file, content in files.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str) else json.dumps(content)
        (tmp_path / file).write_text(text, "utf-8")
    assert LOGGED_IN[name]({"HOME": str(tmp_path), **env}) is known


@pytest.mark.parametrize("name", PROGRAMS)
async def test_probing_finds_the_program_and_its_version(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No model is asked. A program that is not there, or does not run, has its advice."""
    backend: Any = make_backend(name)
    monkeypatch.setenv("PATH", str(tmp_path))
    advice = f"Install it: {getattr(backend, 'program', backend).install}"
    assert await backend.probe() == Probe(found=False, advice=advice)
    assert backend.where(AgentOptions()) is None
    monkeypatch.setenv("PATH", path_with(tmp_path))
    program = install(tmp_path, PROGRAMS[name], version="the CLI 1.0.102 (of a kind).")
    probe = await backend.probe()
    assert (probe.found, probe.version, probe.where) == (True, "1.0.102", str(program.path))
    assert backend.where(AgentOptions()) == str(program.path)
    assert not program.path.with_name(f"{PROGRAMS[name]}.call.json").exists()
    program.path.write_text("#!/bin/sh\nexit 3\n", "utf-8")
    broken = await backend.probe()
    assert (broken.found, broken.version, broken.logged_in) == (True, None, None)
    assert "--version` fails. Reinstall: npm install -g" in broken.advice


async def test_a_probe_says_how_to_log_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables of the backend's options count, as they do in a turn."""
    monkeypatch.setenv("PATH", path_with(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("CODEX_HOME", "OPENAI_API_KEY", "CODEX_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    install(tmp_path, "codex")
    probe = await CodexBackend().probe()
    assert (probe.logged_in, probe.advice) == (False, "Log in: codex login")
    options = AgentOptions(env={"OPENAI_API_KEY": "k"})
    probe = await CodexBackend(options=options).probe()
    assert (probe.logged_in, probe.advice) == (True, "")


NO_BOUNDS = ("allowed_tools", "max_cost_usd", "max_turns")
PROFILE = "the profile in model='profile@m'"


@pytest.mark.parametrize(
    ("name", "lacking"),
    [
        ("claude", (PROFILE,)),
        ("codex", NO_BOUNDS),
        ("copilot", ("max_cost_usd", "max_turns", "system_prompt", PROFILE)),
        ("gemini", (*NO_BOUNDS, "effort", "system_prompt", PROFILE)),
        ("opencode", (*NO_BOUNDS, "effort", "system_prompt", PROFILE)),
    ],
)
def test_what_a_program_cannot_do_is_declared(name: str, lacking: tuple[str, ...]) -> None:
    """Options that it knows no argument for are named as lacking; the watchdogs are ours."""
    options = AgentOptions(
        model="profile@m",
        effort="high",
        system_prompt="x",
        allowed_tools=("x",),
        max_turns=3,
        max_cost_usd=1,
        timeout_s=5,
    )
    assert sorted(capabilities_of(make_backend(name)).lacking(options)) == sorted(lacking)
