"""Codex through ``codex exec --json``: a process a turn, simple, with less said about errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs

from handrail.agents.codex.exec_stream import CodexExecParser
from handrail.agents.codex.mcp import mcp_settings
from handrail.agents.codex.program import CAPABILITIES, INSTALL, probe_codex
from handrail.agents.programs.cli_turn import run_cli, unblank
from handrail.agents.programs.environment import child_environment
from handrail.agents.programs.folders import added_folders, working_folder
from handrail.agents.programs.outcome import finished_notice
from handrail.agents.programs.private_files import Put, private_files
from handrail.agents.programs.strict_schema import strict_schema
from handrail.agents.programs.toml_value import toml_value
from handrail.errors import AgentError
from handrail.model.agent_options import NO_OPTIONS, AgentOptions
from handrail.ports.agent import AgentReply, AgentTurn, Capabilities, Probe

_PERMISSIONS: dict[str, tuple[str, ...]] = {
    "read_only": ("-s", "read-only"),
    "workspace": ("-s", "workspace-write"),
    "full": ("--dangerously-bypass-approvals-and-sandbox",),
}


@attrs.frozen
class CodexExecBackend:
    """``codex exec``, one process a turn; it goes on in threads, and can fork them.

    ``options`` hold unless an agent or a step says otherwise. What it may not do without asking it
    does not do: nobody is asked. A blank prompt, which codex refuses, is sent as ``Continue.``.
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
        return CAPABILITIES

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
        with private_files("codex") as put:
            files = _files(options, strict, put)
            try:
                argv = codex_exec_argv(self.executable, turn, options, files)
            except AgentError as error:
                turn.emit(finished_notice(turn.path, error))
                raise
            return await run_cli(
                turn,
                argv,
                parser,
                stdin=unblank(turn.prompt),
                env=child_environment(options),
                cwd=options.cwd,
                options=options,
                program="codex",
                install=INSTALL,
            )

    async def probe(self) -> Probe:
        """Whether codex is there, its version, and whether it has a login."""
        return await probe_codex(self.executable, self.options)


def codex_exec_argv(
    executable: str, turn: AgentTurn, options: AgentOptions, files: Mapping[str, str]
) -> list[str]:
    """The arguments of one turn; the prompt goes to stdin.

    ``files`` may name a ``schema`` and ``instructions``.

    Raises:
        AgentError: an option cannot be said to codex.
    """
    profile, model = options.profile_and_model
    argv = [executable, "exec", "-C", working_folder(options)]
    argv += _PERMISSIONS.get(options.permission or "", ())
    argv += [] if profile is None else ["-p", profile]
    for folder in added_folders(options):
        argv += ["--add-dir", folder]
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
    return made | mcp_settings(turn.agent, options)


def _files(options: AgentOptions, schema: Mapping[str, Any] | None, put: Put) -> dict[str, str]:
    """The files that codex reads what it is told from."""
    files: dict[str, str] = {}
    if schema is not None:
        files["schema"] = put("schema.json", json.dumps(schema))
    if options.system_prompt is not None:
        files["instructions"] = put("instructions.md", options.system_prompt)
    return files
