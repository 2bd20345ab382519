"""Claude Code as a backend: ``claude -p``, one process a turn."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import attrs

from handrail.agents.claude.protocol import ClaudeTurn
from handrail.agents.transport.cli import Lines, ProgramBackend, WriteFile, non_blank, private_files
from handrail.agents.transport.programs import CLAUDE
from handrail.agents.transport.turn import patience_of
from handrail.errors import DefinitionError
from handrail.model.agent_options import NO_OPTIONS, OPTION_NAMES, PERMISSIONS, AgentOptions
from handrail.model.events import AgentFinished, AgentSessionStarted, AgentUsage, Notice
from handrail.model.policy import checked, count_of
from handrail.model.results import add_usage
from handrail.ports.agent import AgentReply, AgentTurn, Capabilities

# The command line and environment of claude.
#
# Source: ``claude --help`` and the argument checks of 2.1.197 to 2.1.330.

_LONGEST = 100_000
"""Most bytes of one argument; Linux accepts 128 KiB."""
_MODES = {"read_only": "dontAsk", "workspace": "acceptEdits", "full": "bypassPermissions"}
_WRITERS = ("Edit", "Write", "NotebookEdit")
_NO_OTHER_SANDBOX = ("--settings", '{"sandbox":{"enabled":false}}')
"""Claude's own sandbox, which a person's settings may ask for, cannot be made in another."""
_SECRET_PARTS = ("env", "headers")


def claude_argv(
    executable: str,
    turn: AgentTurn,
    options: AgentOptions,
    *,
    new_session: str | None,
    write_file: WriteFile,
) -> tuple[str, ...]:
    """The command line for a turn; without the prompt, which claude reads on stdin.

    ``new_session`` is the id for a new or copied session.
    """
    return (
        executable,
        "-p",
        *("--output-format", "stream-json", "--verbose"),
        *_session(turn, new_session),
        *_model(options),
        *_permission_arguments(options),
        *_context_arguments(options, write_file),
        *_limit_arguments(turn, options),
        *_schema(turn.schema),
        *(_NO_OTHER_SANDBOX if turn.boundary is not None else ()),
        *(options.extra_args or ()),
    )


def claude_variables(options: AgentOptions, *, max_retries: int, is_root: bool) -> dict[str, str]:
    """The variables that handrail adds to claude's environment."""
    variables = {
        "CLAUDE_CODE_MAX_RETRIES": str(max_retries),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }
    if is_root and options.permission == "full":
        variables["IS_SANDBOX"] = "1"  # without it, claude refuses to bypass permissions as root
    return variables


def _session(turn: AgentTurn, new_session: str | None) -> Iterator[str]:
    # Each in one argument: the value of --resume is optional, so claude would take a separate value
    # that begins with a dash for an option.
    if turn.session is not None:
        yield f"--resume={turn.session}"
        if turn.fork:
            yield "--fork-session"
    if new_session is not None:
        yield f"--session-id={new_session}"


def _model(options: AgentOptions) -> Iterator[str]:
    if options.model is not None:
        yield f"--model={options.model}"
    if options.effort is not None:
        yield f"--effort={options.effort}"


def _permission_arguments(options: AgentOptions) -> Iterator[str]:
    """What claude may do. It denies whatever it would have to ask for: no person can answer."""
    denied = list(options.denied_tools or ())
    if options.permission is not None:
        yield f"--permission-mode={_MODES[options.permission]}"
        if options.permission == "read_only":  # the user's settings may allow these tools
            denied += [tool for tool in _WRITERS if tool not in denied]
    allowed, only = options.allowed_tools, options.tools
    if only is None and allowed is not None and (not allowed or options.permission == "full"):
        only = allowed
    if only is not None:
        yield f"--tools={','.join(_built_in(only))}"
    yield from (f"--allowedTools={tool}" for tool in allowed or ())
    yield from (f"--disallowedTools={tool}" for tool in denied)


def _built_in(tools: tuple[str, ...]) -> list[str]:
    """The names of built-in tools, without their rules; tools of MCP servers are left out."""
    names = (tool.partition("(")[0].strip() for tool in tools)
    return list(dict.fromkeys(name for name in names if name and not name.startswith("mcp__")))


def _context_arguments(options: AgentOptions, write_file: WriteFile) -> Iterator[str]:
    yield from _prompt("system-prompt", options.system_prompt, write_file)
    yield from _prompt("append-system-prompt", options.append_system_prompt, write_file)
    yield from (f"--add-dir={os.fspath(folder)}" for folder in options.add_dirs or ())
    if options.mcp_servers is not None:
        yield "--strict-mcp-config"
        if options.mcp_servers:
            yield f"--mcp-config={_servers(options.mcp_servers, write_file)}"


def _prompt(name: str, text: str | None, write_file: WriteFile) -> Iterator[str]:
    if text is None:
        return
    if len(text.encode("utf-8", "replace")) <= _LONGEST:
        yield f"--{name}={text}"
    else:
        yield f"--{name}-file={write_file(f'{name}.md', text)}"


def _servers(servers: Mapping[str, Mapping[str, Any]], write_file: WriteFile) -> str:
    """The servers as JSON, or a file with it if they have secrets: command lines are public."""
    described = {name: _server(server) for name, server in servers.items()}
    config = json.dumps({"mcpServers": described})
    is_secret = any(server.get(part) for server in servers.values() for part in _SECRET_PARTS)
    return write_file("mcp.json", config) if is_secret or len(config) > _LONGEST else config


def _server(server: Mapping[str, Any]) -> dict[str, Any]:
    """A server's entry; one with a URL needs a ``type``, which defaults to HTTP."""
    return {"type": "http", **server} if "url" in server else dict(server)


def _limit_arguments(turn: AgentTurn, options: AgentOptions) -> Iterator[str]:
    if options.max_turns is not None:
        yield f"--max-turns={options.max_turns}"
    if options.max_cost_usd is not None:
        # Claude compares this with the cost of the whole session, resumed turns included.
        before = turn.session_usage if turn.session is not None else None
        spent = (before.cost_usd if before else None) or 0.0
        yield f"--max-budget-usd={spent + options.max_cost_usd:.10g}"


def _schema(schema: Mapping[str, Any] | None) -> Iterator[str]:
    """The schema, if it is an object's: the model's answer is a tool's input."""
    if schema is None or schema.get("type") != "object":
        return
    text = json.dumps(schema, separators=(",", ":"))
    if len(text) <= _LONGEST:
        yield f"--json-schema={text}"


_ALONE_S = 0.6
"""An interrupted claude has ended its tools and written its session after 40 ms, then it lingers
for another 1.5 s. Source: measured with 2.1.331.
"""


def _check_executable(_: Any, __: attrs.Attribute[Any], executable: object) -> None:
    if not isinstance(executable, str) or not executable.strip():
        raise DefinitionError(f"executable of ClaudeBackend must be a name, got {executable!r}")


@attrs.frozen
class ClaudeBackend(ProgramBackend):
    """Claude Code: the program ``claude``, run without a terminal.

    Permission levels: ``read_only`` denies tools that write, and any command that claude does not
    know to be read-only; ``workspace`` allows edits in its folders, and the commands that
    ``allowed_tools`` (``"Bash(npm test:*)"``) or the user's settings allow; ``full`` bypasses all
    checks. Rules in claude's settings in the home and the working folder apply, too.

    Claude uses ``allowed_tools`` without asking. With ``full`` nothing is asked, so there they are
    the only tools; an empty list (``()``) leaves no tools at all. ``tools`` are the only built-in
    ones at any level; those of MCP servers stay. Claude checks ``max_cost_usd``
    after each answer of the model, so the last answer may exceed it. ``max_retries`` is how often
    claude itself retries a request before handrail sees the failure. A schema of anything but an
    object is only in the prompt. Claude takes a prompt that begins with ``/name`` for a command of
    its own; a blank prompt, which it refuses, is sent as ``Continue.``.
    """

    executable: str = attrs.field(default="claude", validator=_check_executable)
    options: AgentOptions = attrs.field(
        default=NO_OPTIONS, kw_only=True, validator=attrs.validators.instance_of(AgentOptions)
    )
    max_retries: int = attrs.field(
        default=2, kw_only=True, validator=checked(count_of, "ClaudeBackend", least=0)
    )

    name: ClassVar[str] = "claude"
    program = CLAUDE
    dropped = ("CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SSE_PORT")
    """Claude sets these for its children; a claude that sees them takes itself for a child."""
    capabilities: ClassVar[Capabilities] = Capabilities(
        options=frozenset(OPTION_NAMES) - {"temperature", "max_tokens"},
        permissions=frozenset(PERMISSIONS),
        sessions=True,
        fork=True,
        compact=True,
        chooses_session=True,
        schema=True,
        usage=True,
        cost=True,
        reset_times=True,
    )

    async def _answer(self, turn: AgentTurn) -> AgentReply:
        """Claude's answer; if the turn asks for it, the session is compacted first."""
        if not turn.compact or turn.session is None:
            return await self._ask(turn)
        bounds = AgentOptions(start_timeout_s=turn.options.idle_timeout_s)  # it begins silently
        options, emit = bounds.over(turn.options), _without_last_word(turn.emit)
        asked = replace(turn, prompt="/compact", schema=None, emit=emit, options=options)
        before = await self._ask(asked)
        after = replace(
            turn,
            session=before.session or turn.session,
            fork=turn.fork and before.session is None,
            compact=False,
            session_usage=before.session_usage,
            emit=_after_compaction(turn.emit, before),
        )
        reply = await self._ask(after)
        return replace(reply, usage=add_usage(before.usage, reply.usage))

    def _variables(self, options: AgentOptions) -> Mapping[str, str]:
        is_root = os.geteuid() == 0
        return claude_variables(options, max_retries=self.max_retries, is_root=is_root)

    async def _ask(self, turn: AgentTurn) -> AgentReply:
        is_new, options = turn.session is None or turn.fork, turn.options
        with private_files("claude", turn.boundary) as write_file:
            argv = claude_argv(
                self.executable,
                turn,
                options,
                new_session=str(uuid.uuid4()) if is_new else None,
                write_file=write_file,
            )
            lines = Lines(ClaudeTurn(turn), non_blank(turn.prompt))
            patience = replace(patience_of(options), alone_s=_ALONE_S)
            return await self._run(turn, argv, lines, patience=patience)


def _without_last_word(emit: Callable[[Notice], None]) -> Callable[[Notice], None]:
    """Drops ``AgentFinished`` of a successful compaction, because the prompt follows."""

    def forward(notice: Notice) -> None:
        if not isinstance(notice, AgentFinished) or notice.status != "completed":
            emit(notice)

    return forward


def _after_compaction(
    emit: Callable[[Notice], None], before: AgentReply
) -> Callable[[Notice], None]:
    """Drops the session, which the compaction reported, and adds the compaction's usage."""

    def forward(notice: Notice) -> None:
        if isinstance(notice, AgentSessionStarted) and notice.session == before.session:
            return
        if isinstance(notice, AgentFinished):
            notice = replace(notice, usage=add_usage(before.usage, notice.usage))
        elif isinstance(notice, AgentUsage) and before.usage:
            notice = replace(notice, usage=before.usage + notice.usage)
        emit(notice)

    return forward
