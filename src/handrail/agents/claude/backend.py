"""Claude Code as a backend: ``claude -p``, one process a turn."""

from __future__ import annotations

import os
import re
import shutil
import sys
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import anyio
import attrs

from handrail.agents.claude.argv import claude_argv, claude_variables
from handrail.agents.claude.login import ADVICE, is_logged_in
from handrail.agents.claude.stream import ClaudeTurn
from handrail.agents.programs.cli_turn import run_cli, unblank
from handrail.agents.programs.environment import child_environment
from handrail.agents.programs.private_files import private_files
from handrail.errors import CommandNotFound, DefinitionError
from handrail.model.agent_options import NO_OPTIONS, OPTION_NAMES, PERMISSIONS, AgentOptions
from handrail.model.events import AgentFinished, AgentSessionStarted, AgentUsage, Notice
from handrail.model.policy import count_of
from handrail.model.results import Usage
from handrail.ports.agent import AgentReply, AgentTurn, Capabilities, Probe
from handrail.system.run import CommandNotStarted, run_process

_INSTALL = "npm install -g @anthropic-ai/claude-code"
_VERSION = re.compile(r"\d+\.\d+\.\d+\S*")
_PROBE_S = 20.0
_NESTED = ("CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SSE_PORT")
"""What a claude sets for the programs that it starts; another claude would take itself for one."""

CAPABILITIES = Capabilities(
    options=frozenset(OPTION_NAMES),
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


def _check_executable(_: Any, __: attrs.Attribute[Any], executable: object) -> None:
    if not isinstance(executable, str) or not executable.strip():
        raise DefinitionError(f"executable of ClaudeBackend must be a name, got {executable!r}")


def _check_retries(_: Any, __: attrs.Attribute[Any], retries: object) -> None:
    count_of(retries, "max_retries of ClaudeBackend", least=0)


@attrs.frozen
class ClaudeBackend:
    """Claude Code: the program ``claude``, asked without a terminal.

    Permission levels: ``read_only`` denies what writes and any command that claude does not know
    to only read; ``workspace`` lets it edit its folders, and commands only as ``allowed_tools``
    (``"Bash(npm test:*)"``) or the user's settings say; ``full`` bypasses all checks. Rules in
    settings that claude finds in the home and the working folder count besides.

    ``allowed_tools`` need not be asked for; with ``full``, where nothing is, they are all that
    there is; none at all (``()``) leaves it without tools. ``max_cost_usd`` is looked at after each
    answer of the model, so the last one may pass it. ``max_retries`` are claude's own, of one
    request, before the failure is seen here. A schema that is no object's is left to the prompt. A
    prompt that begins with ``/name`` is a command of claude's; a blank one, which claude refuses,
    is sent as ``Continue.``.
    """

    executable: str = attrs.field(default="claude", validator=_check_executable)
    options: AgentOptions = attrs.field(
        default=NO_OPTIONS, kw_only=True, validator=attrs.validators.instance_of(AgentOptions)
    )
    max_retries: int = attrs.field(default=2, kw_only=True, validator=_check_retries)

    @property
    def name(self) -> str:
        """``claude``, whatever the program's file is called."""
        return "claude"

    @property
    def capabilities(self) -> Capabilities:
        """All options, sessions with copies and compaction, schemas, usage, cost, reset times."""
        return CAPABILITIES

    async def complete(self, turn: AgentTurn, /) -> AgentReply:
        """Claude's answer, its session being made smaller first if that is asked for.

        Raises:
            AgentError: there is none, with its kind.
        """
        options = turn.options.over(self.options)
        if not turn.compact or turn.session is None:
            return await self._ask(turn, options)
        before = await self._compact(turn, options)
        after = replace(
            turn,
            session=before.session or turn.session,
            fork=turn.fork and before.session is None,
            compact=False,
            session_usage=before.session_usage,
            emit=_second(turn.emit, before),
        )
        reply = await self._ask(after, options)
        return replace(reply, usage=_sum(before.usage, reply.usage))

    async def probe(self) -> Probe:
        """Whether the program is there, which version, and whether a login is."""
        env = child_environment(self.options, drop=_NESTED)
        where = shutil.which(self.executable, path=env.get("PATH"))
        if where is None:
            return Probe(found=False, advice=f"Install it: {_INSTALL}")
        version = await self._version(where)
        if version is None:
            return Probe(found=True, where=where, advice=f"It does not run: try {where} --version")
        login = is_logged_in(env, has_keychain=sys.platform == "darwin")
        advice = ADVICE if login is False else ""
        return Probe(found=True, version=version, where=where, logged_in=login, advice=advice)

    async def _version(self, where: str) -> str | None:
        try:
            with anyio.move_on_after(_PROBE_S):
                result = await run_process(
                    [where, "--version"],
                    marker=f"probe-{uuid.uuid4().hex}/claude",
                    env={**(self.options.env or {}), "DISABLE_AUTOUPDATER": "1"},
                    stdin="",
                )
                found = _VERSION.search(result.stdout)
                return found[0] if found and result.exit_code == 0 else None
        except (CommandNotFound, CommandNotStarted):
            pass
        return None

    async def _compact(self, turn: AgentTurn, options: AgentOptions) -> AgentReply:
        """The end of the command that makes a session smaller; nobody is told that as an answer."""
        asked = replace(turn, prompt="/compact", schema=None, emit=_first(turn.emit))
        bounds = AgentOptions(start_timeout_s=options.idle_timeout_s)  # it is silent at first
        return await self._ask(asked, bounds.over(options))

    async def _ask(self, turn: AgentTurn, options: AgentOptions) -> AgentReply:
        is_new = turn.session is None or turn.fork
        with private_files("claude") as put:
            argv = claude_argv(
                self.executable,
                turn,
                options,
                new_session=str(uuid.uuid4()) if is_new else None,
                put=put,
            )
            variables = claude_variables(
                options, max_retries=self.max_retries, is_root=os.geteuid() == 0
            )
            return await run_cli(
                turn,
                argv,
                ClaudeTurn(turn, backend=self.name),
                stdin=unblank(turn.prompt),
                env=child_environment(options, drop=_NESTED, add=variables),
                cwd=options.cwd,
                options=options,
                program="claude",
                install=_INSTALL,
            )


def _first(emit: Callable[[Notice], None]) -> Callable[[Notice], None]:
    """Passes on what is not the last word: after the session was compacted, the prompt follows."""

    def passed(notice: Notice) -> None:
        if not isinstance(notice, AgentFinished) or notice.status != "completed":
            emit(notice)

    return passed


def _second(emit: Callable[[Notice], None], before: AgentReply) -> Callable[[Notice], None]:
    """Passes on what follows a compaction, whose session was told and whose usage is added."""

    def passed(notice: Notice) -> None:
        if isinstance(notice, AgentSessionStarted) and notice.session == before.session:
            return
        if isinstance(notice, AgentFinished):
            notice = replace(notice, usage=_sum(before.usage, notice.usage))
        elif isinstance(notice, AgentUsage) and before.usage:
            notice = replace(notice, usage=before.usage + notice.usage)
        emit(notice)

    return passed


def _sum(a: Usage | None, b: Usage | None) -> Usage | None:
    return a + b if a and b else a or b
