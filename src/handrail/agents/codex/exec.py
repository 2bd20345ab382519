"""Codex through ``codex exec --json``: a process a turn, simple, with less said about errors."""

from __future__ import annotations

import contextlib
import json
import re
import tempfile
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import attrs

from handrail.agents.codex.exec_stream import CodexExecParser
from handrail.agents.programs.cli_turn import run_cli
from handrail.agents.programs.environment import child_environment
from handrail.agents.programs.outcome import finished_notice
from handrail.agents.programs.probe import home_of, json_file, probe_program
from handrail.agents.programs.strict_schema import strict_schema
from handrail.agents.programs.toml_value import toml_value
from handrail.errors import AgentError
from handrail.model.agent_options import NO_OPTIONS, PERMISSIONS, AgentOptions
from handrail.ports.agent import AgentReply, AgentTurn, Capabilities, Probe

INSTALL = "npm install -g @openai/codex"

_PERMISSIONS: dict[str, tuple[str, ...]] = {
    "read_only": ("-s", "read-only"),
    "workspace": ("-s", "workspace-write"),
    "full": ("--dangerously-bypass-approvals-and-sandbox",),
}
_SERVER_NAME = re.compile(r"[A-Za-z0-9_-]+")


@attrs.frozen
class CodexExecBackend:
    """``codex exec``, one process a turn; it goes on in threads, and can fork them.

    ``options`` hold unless an agent or a step says otherwise. What it may not do without asking it
    does not do: nobody is asked.
    """

    executable: str = "codex"
    options: AgentOptions = attrs.field(default=NO_OPTIONS, kw_only=True)

    @property
    def name(self) -> str:
        """``"codex-exec"``."""
        return "codex-exec"

    @property
    def capabilities(self) -> Capabilities:
        """Sessions, forks, schemas, profiles, tokens and reset times; no cost, no compaction."""
        return _CAPABILITIES

    async def complete(self, turn: AgentTurn, /) -> AgentReply:
        """The last message of the turn, after codex said that it is completed.

        Raises:
            AgentError: it was not, with the reason and its kind.
        """
        options = turn.options.over(self.options)
        strict = None if turn.schema is None else strict_schema(turn.schema)
        parser = CodexExecParser(
            turn,
            backend=self.name,
            model=options.profile_and_model[1],
            has_schema=strict is not None,
        )
        with _files(options, strict) as files:
            try:
                argv = codex_exec_argv(self.executable, turn, options, files)
            except AgentError as error:
                turn.emit(finished_notice(turn.path, error))
                raise
            return await run_cli(
                turn,
                argv,
                parser,
                stdin=turn.prompt.encode("utf-8", "replace"),
                env=child_environment(options),
                cwd=options.cwd,
                options=options,
                program="codex",
                install=INSTALL,
            )

    async def probe(self) -> Probe:
        """Whether codex is there, its version, and whether it has a login."""
        return await probe_program(
            self.executable,
            child_environment(self.options),
            logged_in=codex_logged_in,
            install=INSTALL,
            login="codex login",
        )


_CAPABILITIES = Capabilities(
    options=frozenset(
        {"model", "effort", "system_prompt", "append_system_prompt", "permission", "mcp_servers"}
        | {"cwd", "add_dirs", "env", "extra_args"}
    ),
    permissions=frozenset(PERMISSIONS),
    sessions=True,
    fork=True,
    schema=True,
    profiles=True,
    usage=True,
    reset_times=True,
)


def codex_exec_argv(
    executable: str, turn: AgentTurn, options: AgentOptions, files: Mapping[str, str]
) -> list[str]:
    """The arguments of one turn; the prompt goes to stdin.

    ``files`` may name a ``schema`` and ``instructions``.

    Raises:
        AgentError: an option cannot be said to codex.
    """
    profile, model = options.profile_and_model
    argv = [executable, "exec", "-C", str(Path(options.cwd or ".").absolute())]
    argv += _PERMISSIONS.get(options.permission or "", ())
    argv += [] if profile is None else ["-p", profile]
    for folder in options.add_dirs or ():
        argv += ["--add-dir", str(Path(options.cwd or ".", folder).absolute())]
    if "schema" in files:
        argv += ["--output-schema", files["schema"]]
    for setting, value in _settings(turn, options, files).items():
        argv += ["-c", f"{setting}={toml_value(value)}"]
    # These are known behind `resume` too, the ones above are not.
    tail = ["--json", "--skip-git-repo-check"]
    tail += [] if model is None else ["-m", model]
    tail += options.extra_args or ()
    if turn.session is None:
        return [*argv, *tail, "-"]
    return [*argv, "fork" if turn.fork else "resume", *tail, turn.session, "-"]


def _settings(turn: AgentTurn, options: AgentOptions, files: Mapping[str, str]) -> dict[str, Any]:
    said = {
        "model_reasoning_effort": options.effort,
        "model_instructions_file": files.get("instructions"),
        "developer_instructions": options.append_system_prompt,
    }
    made: dict[str, Any] = {"analytics.enabled": False}  # it adds 5 s to every exit when offline
    made |= {name: value for name, value in said.items() if value is not None}
    for name, server in (options.mcp_servers or {}).items():
        if not _SERVER_NAME.fullmatch(name):
            raise AgentError(
                turn.agent,
                f"codex takes MCP servers whose names are letters, digits, - and _, not {name!r}",
                kind="config",
            )
        made[f"mcp_servers.{name}"] = codex_mcp_server(server)
    return made


def codex_mcp_server(server: Mapping[str, Any]) -> dict[str, Any]:
    """An MCP server as codex's settings have it, which tell its kind by its fields."""
    names = {"headers": "http_headers"}
    return {names.get(name, name): value for name, value in server.items() if name != "type"}


def codex_logged_in(env: Mapping[str, str]) -> bool | None:
    """Whether codex has a login, as far as files and variables tell.

    None if its settings name a model provider of their own, which may need none.
    """
    if env.get("CODEX_API_KEY") or env.get("OPENAI_API_KEY"):
        return True
    home = Path(env.get("CODEX_HOME") or home_of(env) / ".codex")
    login = json_file(home / "auth.json")
    if login.get("OPENAI_API_KEY") or login.get("tokens"):
        return True
    try:
        settings = (home / "config.toml").read_text("utf-8")
    except (OSError, ValueError):
        return False
    return None if "model_provider" in settings else False


@contextlib.contextmanager
def _files(options: AgentOptions, schema: Mapping[str, Any] | None) -> Generator[dict[str, str]]:
    """The files that codex reads what it is told from, as long as the turn goes on."""
    texts: dict[str, str] = {}
    if schema is not None:
        texts["schema"] = json.dumps(schema)
    if options.system_prompt is not None:
        texts["instructions"] = options.system_prompt
    if not texts:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="handrail-codex-") as folder:
        made: dict[str, str] = {}
        for name, text in texts.items():
            path = Path(folder, f"{name}.json" if name == "schema" else f"{name}.md")
            path.write_text(text, "utf-8")
            made[name] = str(path)
        yield made
