"""Google's Gemini CLI through its JSON events, a process a turn."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import attrs

from handrail.agents.gemini.stream import GeminiParser
from handrail.agents.transport.cli import (
    added_folders,
    child_environment,
    home_of,
    json_file,
    private_files,
    probe_program,
    run_cli,
    unblank,
)
from handrail.model.agent_options import NO_OPTIONS, PERMISSIONS, AgentOptions
from handrail.ports.agent import AgentReply, AgentTurn, Capabilities, Probe

INSTALL = "npm install -g @google/gemini-cli"

_MODES = {"read_only": "default", "workspace": "auto_edit", "full": "yolo"}
_QUIET = {"GEMINI_CLI_NO_RELAUNCH": "true", "NO_COLOR": "1"}


@attrs.frozen
class GeminiBackend:
    """``gemini`` with its JSON events, one process a turn; it goes on in sessions.

    ``options`` hold unless an agent or a step says otherwise. It tells neither its thoughts nor
    costs, and is silent while it tries a request again: its idle timeout should not be short. A
    blank prompt, which gemini refuses, is sent as ``Continue.``.
    """

    executable: str = "gemini"
    options: AgentOptions = attrs.field(default=NO_OPTIONS, kw_only=True)

    @property
    def name(self) -> str:
        """``"gemini"``."""
        return "gemini"

    @property
    def capabilities(self) -> Capabilities:
        """Sessions, tokens and reset times; no schema, no cost."""
        return _CAPABILITIES

    async def complete(self, turn: AgentTurn, /) -> AgentReply:
        """The last message of the turn, after gemini said that it succeeded.

        Raises:
            AgentError: it did not, with the reason and its kind.
        """
        options = turn.options.over(self.options)
        system = options.system_prompt
        with private_files("gemini") as put:
            more = {} if system is None else {"GEMINI_SYSTEM_MD": put("system.md", system)}
            return await run_cli(
                turn,
                gemini_argv(self.executable, turn, options),
                GeminiParser(turn, model=options.profile_and_model[1]),
                stdin=unblank(turn.prompt),
                env=child_environment(options, add=_QUIET | more),
                cwd=options.cwd,
                options=options,
                program="gemini",
                install=INSTALL,
            )

    async def probe(self) -> Probe:
        """Whether gemini is there, its version, and whether it has a login."""
        return await probe_program(
            self.executable,
            child_environment(self.options, add=_QUIET),
            logged_in=gemini_logged_in,
            install=INSTALL,
            login="gemini, or set GEMINI_API_KEY",
        )


_CAPABILITIES = Capabilities(
    options=frozenset(
        {"model", "system_prompt", "permission", "cwd", "add_dirs", "env", "extra_args"}
    ),
    permissions=frozenset(PERMISSIONS),
    sessions=True,
    usage=True,
    reset_times=True,
)


def gemini_argv(executable: str, turn: AgentTurn, options: AgentOptions) -> list[str]:
    """The arguments of one turn; the prompt goes to stdin."""
    _, model = options.profile_and_model
    argv = [executable, "--output-format", "stream-json", "--skip-trust"]
    argv += [] if model is None else ["-m", model]
    if options.permission is not None:
        argv += ["--approval-mode", _MODES[options.permission]]
    for folder in added_folders(options):
        argv += ["--include-directories", folder]
    argv += [] if turn.session is None else [f"--resume={turn.session}"]
    return [*argv, *(options.extra_args or ())]


def gemini_logged_in(env: Mapping[str, str]) -> bool | None:
    """Whether gemini has a login, as far as files and variables tell."""
    names = ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI")
    if any(env.get(name) for name in names):
        return True
    home = Path(env.get("GEMINI_CLI_HOME") or home_of(env)) / ".gemini"
    if json_file(home / "oauth_creds.json"):
        return True
    settings = json_file(home / "settings.json")
    # A chosen way to log in may keep its secret in a keychain, or in an .env file.
    return None if settings.get("security") or settings.get("selectedAuthType") else False
