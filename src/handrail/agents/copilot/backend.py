"""GitHub Copilot's CLI, one process a turn."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import attrs

from handrail.agents.copilot.stream import CopilotParser
from handrail.agents.transport.cli import Lines, ProgramBackend, added_folders, non_blank
from handrail.agents.transport.programs import COPILOT, json_file
from handrail.model.agent_options import PERMISSIONS, AgentOptions
from handrail.model.sandbox import LAUNCH_OPTIONS
from handrail.ports.agent import AgentReply, AgentTurn, Capabilities

_PERMISSIONS: dict[str, tuple[str, ...]] = {
    "read_only": ("--deny-tool=write",),  # whatever copilot would ask for is denied, too
    "workspace": ("--allow-tool=write",),  # paths outside the folders are still refused
    "full": ("--allow-all",),
}


@attrs.frozen
class CopilotBackend(ProgramBackend):
    """``copilot`` with its JSON events, one process a turn; it continues sessions.

    Copilot denies whatever it would have to ask for. With ``permission="workspace"`` it edits files
    in its folders, but runs only commands that it considers harmless, unless ``allowed_tools``
    names more (``"shell(git:*)"``). A blank prompt, which copilot takes for none, is sent as
    ``Continue.``.
    """

    executable: str = "copilot"

    name: ClassVar[str] = "copilot"
    program = COPILOT
    variables: ClassVar[Mapping[str, str]] = {"COPILOT_AUTO_UPDATE": "false"}
    capabilities: ClassVar[Capabilities] = Capabilities(
        options=frozenset(
            {"model", "effort", "permission", "allowed_tools", "denied_tools", "mcp_servers"}
            | {"cwd", "add_dirs", "env", "extra_args"}
            | LAUNCH_OPTIONS
        ),
        permissions=frozenset(PERMISSIONS),
        sessions=True,
        chooses_session=True,
        usage=True,
        reset_times=True,
    )

    async def _answer(self, turn: AgentTurn) -> AgentReply:
        """The last message of the turn."""
        options = turn.options
        session = turn.session or str(uuid4())
        with _folder(options) as folder:
            if turn.boundary is not None:
                turn.boundary.show(folder)
            report = folder / "usage.json"
            parser = CopilotParser(
                turn,
                session=session,
                model=options.profile_and_model[1],
                report=lambda: json_file(report),
            )
            argv = copilot_argv(self.executable, turn, options, session=session, folder=folder)
            return await self._run(turn, argv, Lines(parser, non_blank(turn.prompt)))


def copilot_argv(
    executable: str, turn: AgentTurn, options: AgentOptions, *, session: str, folder: Path
) -> list[str]:
    """The command line of one turn; the prompt goes to stdin. ``folder`` has the turn's files."""
    _, model = options.profile_and_model
    argv = [executable, "--output-format", "json", "--no-auto-update", "--no-ask-user"]
    argv += _PERMISSIONS.get(options.permission or "", ())
    argv += [f"--allow-tool={tool}" for tool in options.allowed_tools or ()]
    argv += [f"--deny-tool={tool}" for tool in options.denied_tools or ()]
    argv += [] if model is None else ["--model", model]
    argv += [] if options.effort is None else ["--reasoning-effort", options.effort]
    for more in added_folders(options):
        argv += ["--add-dir", more]
    if options.mcp_servers:
        argv += ["--additional-mcp-config", f"@{folder / 'mcp.json'}"]
    argv += ["--usage-output-file", str(folder / "usage.json")]
    argv += options.extra_args or ()
    return [*argv, f"--resume={session}" if turn.session else f"--session-id={session}"]


@contextlib.contextmanager
def _folder(options: AgentOptions) -> Generator[Path, None, None]:
    """A folder for the files of one turn, removed after the turn."""
    with tempfile.TemporaryDirectory(prefix="handrail-copilot-") as name:
        folder = Path(name)
        if options.mcp_servers:  # in a file: they may contain secrets, and arguments are public
            servers = {name: _server(one) for name, one in options.mcp_servers.items()}
            (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}), "utf-8")
        yield folder


def _server(server: Mapping[str, Any]) -> dict[str, Any]:
    """An MCP server in the form of copilot's settings, with all of its tools."""
    kind = "http" if "url" in server else "local"
    return {"type": kind, "tools": ["*"], **server}
