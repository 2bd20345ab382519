"""How claude is started: its arguments, and what must not stand among them.

Source: ``claude --help`` and the argument checks of 2.1.197 to 2.1.330.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from handrail.agents.programs.private_files import Put
from handrail.model.agent_options import AgentOptions
from handrail.ports.agent import AgentTurn

_LONGEST = 100_000
"""Characters of one argument; Linux takes 128 KiB."""
_MODES = {"read_only": "dontAsk", "workspace": "acceptEdits", "full": "bypassPermissions"}
_WRITERS = ("Edit", "Write", "NotebookEdit")
_SECRET_PARTS = ("env", "headers")


def claude_argv(
    executable: str,
    turn: AgentTurn,
    options: AgentOptions,
    *,
    new_session: str | None,
    put: Put,
) -> tuple[str, ...]:
    """The command line for a turn; the prompt is not in it, for claude reads its stdin.

    ``new_session`` is the id that a new or copied session gets.
    """
    return (
        executable,
        "-p",
        *("--output-format", "stream-json", "--verbose"),
        *_session(turn, new_session),
        *_model(options),
        *_rights(options),
        *_surroundings(options, put),
        *_bounds(turn, options),
        *_schema(turn.schema),
        *(options.extra_args or ()),
    )


def claude_variables(options: AgentOptions, *, max_retries: int, is_root: bool) -> dict[str, str]:
    """The variables that claude is started with besides those that it inherits."""
    variables = {
        "CLAUDE_CODE_MAX_RETRIES": str(max_retries),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }
    if is_root and options.permission == "full":
        variables["IS_SANDBOX"] = "1"  # else it refuses to bypass permissions as root
    return variables


def _session(turn: AgentTurn, new_session: str | None) -> Iterator[str]:
    # In one argument each: the value of --resume is optional, so one that begins with a dash
    # would be taken for an option.
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


def _rights(options: AgentOptions) -> Iterator[str]:
    """What it may do. What it would have to ask for is denied, for there is nobody to be asked."""
    denied = list(options.denied_tools or ())
    if options.permission is not None:
        yield f"--permission-mode={_MODES[options.permission]}"
        if options.permission == "read_only":  # rules of the user's settings may allow these
            denied += [tool for tool in _WRITERS if tool not in denied]
    allowed = options.allowed_tools
    if allowed is not None and (not allowed or options.permission == "full"):
        yield f"--tools={','.join(_built_in(allowed))}"
    yield from (f"--allowedTools={tool}" for tool in allowed or ())
    yield from (f"--disallowedTools={tool}" for tool in denied)


def _built_in(tools: tuple[str, ...]) -> list[str]:
    """The names of the tools, without the rules for their use and without those of servers."""
    names = (tool.partition("(")[0].strip() for tool in tools)
    return list(dict.fromkeys(name for name in names if name and not name.startswith("mcp__")))


def _surroundings(options: AgentOptions, put: Put) -> Iterator[str]:
    yield from _prompt("system-prompt", options.system_prompt, put)
    yield from _prompt("append-system-prompt", options.append_system_prompt, put)
    yield from (f"--add-dir={os.fspath(folder)}" for folder in options.add_dirs or ())
    if options.mcp_servers is not None:
        yield "--strict-mcp-config"
        if options.mcp_servers:
            yield f"--mcp-config={_servers(options.mcp_servers, put)}"


def _prompt(name: str, text: str | None, put: Put) -> Iterator[str]:
    if text is None:
        return
    if len(text.encode("utf-8", "replace")) <= _LONGEST:
        yield f"--{name}={text}"
    else:
        yield f"--{name}-file={put(f'{name}.md', text)}"


def _servers(servers: Mapping[str, Mapping[str, Any]], put: Put) -> str:
    """The servers as JSON, or the file that holds it: command lines are for all to read."""
    described = {name: _server(server) for name, server in servers.items()}
    config = json.dumps({"mcpServers": described})
    is_secret = any(server.get(part) for server in servers.values() for part in _SECRET_PARTS)
    return put("mcp.json", config) if is_secret or len(config) > _LONGEST else config


def _server(server: Mapping[str, Any]) -> dict[str, Any]:
    """A server that is named by its address needs to say how it is spoken to."""
    return {"type": "http", **server} if "url" in server else dict(server)


def _bounds(turn: AgentTurn, options: AgentOptions) -> Iterator[str]:
    if options.max_turns is not None:
        yield f"--max-turns={options.max_turns}"
    if options.max_cost_usd is not None:
        # Claude compares it with the cost of the whole session, what was resumed included.
        before = turn.session_usage if turn.session is not None else None
        spent = (before.cost_usd if before else None) or 0.0
        yield f"--max-budget-usd={spent + options.max_cost_usd:.10g}"


def _schema(schema: Mapping[str, Any] | None) -> Iterator[str]:
    """Its schema, if it is one that a tool's input can have: the answer is the input of a tool."""
    if schema is None or schema.get("type") != "object":
        return
    text = json.dumps(schema, separators=(",", ":"))
    if len(text) <= _LONGEST:
        yield f"--json-schema={text}"
