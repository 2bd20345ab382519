"""Any agent that speaks ACP, the Agent Client Protocol: gemini, opencode, copilot and many more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

import attrs

from handrail.agents.acp.agents import only_tools, profile_of
from handrail.agents.acp.dialogue import AcpDialogue
from handrail.agents.transport.cli import AnyProgram, added_folders, working_folder
from handrail.agents.transport.programs import (
    LoggedIn,
    Program,
    gemini_logged_in,
    opencode_logged_in,
)
from handrail.agents.transport.rpc import Messages, own_version
from handrail.errors import DefinitionError
from handrail.model.agent_options import NO_OPTIONS, PERMISSIONS, AgentOptions, names_only
from handrail.model.sandbox import LAUNCH_OPTIONS
from handrail.ports.agent import AgentReply, AgentTurn, Capabilities

ACP = Capabilities(
    options=frozenset(
        {"model", "effort", "permission", "mcp_servers", "cwd", "add_dirs", "env", "extra_args"}
        | LAUNCH_OPTIONS
    ),
    permissions=frozenset(PERMISSIONS),
    sessions=True,
    fork=True,
    usage=True,
    cost=True,
)
"""The abilities an ACP agent may have; an agent that lacks one reports so when it starts."""


def _argv(argv: Sequence[str]) -> tuple[str, ...]:
    if isinstance(argv, str) or not argv:
        raise DefinitionError(
            f'AcpBackend takes a list of arguments, such as ["goose", "acp"], got {argv!r}'
        )
    return tuple(argv)


@attrs.frozen
class AcpBackend(AnyProgram):
    """A program that speaks ACP on its stdin and stdout, one process a turn.

    ``name`` is its name for people. If it contains the name of an agent with a known profile (or
    the agent introduces itself so), handrail can tell failures reported as text from answers.
    ``model_flag`` is the argument that chooses a model, for agents whose sessions do not offer it.
    ``can_do`` may be narrowed to the agent's known abilities. ``env`` is added to its environment.
    ``install`` and ``login`` are commands, for advice; ``logged_in`` finds a login in the
    environment and files, and returns None if it may be elsewhere.
    """

    argv: tuple[str, ...] = attrs.field(converter=_argv)
    name: str = attrs.field(default="acp", kw_only=True)
    options: AgentOptions = attrs.field(default=NO_OPTIONS, kw_only=True)
    model_flag: str | None = attrs.field(default=None, kw_only=True)
    can_do: Capabilities = attrs.field(default=ACP, kw_only=True)
    env: Mapping[str, str] = attrs.field(factory=dict[str, str], kw_only=True, repr=names_only)
    install: str = attrs.field(default="", kw_only=True)
    login: str = attrs.field(default="", kw_only=True)
    logged_in: LoggedIn = attrs.field(default=lambda _: None, kw_only=True, repr=False)
    grace_s: ClassVar[float] = 1.5
    """Most need 0.1 s to exit once their stdin ends, codex-acp never does."""

    @property
    def capabilities(self) -> Capabilities:
        """Its abilities; no schemas, system prompts, limits of turns or cost, or reset times."""
        return self.can_do

    async def _answer(self, turn: AgentTurn) -> AgentReply:
        """The agent's last message."""
        options = turn.options
        dialogue = AcpDialogue(
            turn,
            options,
            cwd=working_folder(options),
            folders=added_folders(options),
            name=self.name,
            sets_model=self.model_flag is None,
            client_version=own_version(),
        )
        return await self._run(turn, self._command(options), Messages(dialogue))

    @property
    def executable(self) -> str:
        """The program."""
        return self.argv[0]

    @property
    def program(self) -> Program:
        """What is known of the program."""
        return Program(self.name, self.install, self.login, self.logged_in)

    def _variables(self, options: AgentOptions) -> Mapping[str, str]:
        is_limited = options.permission in ("read_only", "workspace")
        asking = profile_of(self.name).asking if is_limited else {}
        if options.tools is not None:
            asking = only_tools(asking, options.tools)
        return {**self.env, **asking}

    def _command(self, options: AgentOptions) -> list[str]:
        model = options.model
        flag = [] if model is None or self.model_flag is None else [self.model_flag, model]
        return [*self.argv, *flag, *(options.extra_args or ())]


def gemini(executable: str = "gemini", *, options: AgentOptions = NO_OPTIONS) -> AcpBackend:
    """Gemini CLI."""
    return AcpBackend(
        [executable, "--acp", "--skip-trust"],
        name="gemini",
        options=options,
        model_flag="-m",
        can_do=_capabilities("effort", "add_dirs", fork=False, cost=False),
        env={"GEMINI_CLI_NO_RELAUNCH": "true"},
        install="npm install -g @google/gemini-cli",
        login="gemini (or set GEMINI_API_KEY)",
        logged_in=gemini_logged_in,
    )


def opencode(executable: str = "opencode", *, options: AgentOptions = NO_OPTIONS) -> AcpBackend:
    """opencode; its models are named ``provider/model``."""
    return AcpBackend(
        [executable, "acp"],
        name="opencode",
        options=options,
        can_do=_capabilities("effort", "add_dirs", has={"tools"}),
        install="npm install -g opencode-ai",
        login="opencode auth login",
        logged_in=opencode_logged_in,
    )


def _capabilities(
    *lacks: str, has: Iterable[str] = (), fork: bool = True, cost: bool = True
) -> Capabilities:
    return Capabilities(
        options=(ACP.options - set(lacks)).union(has),
        permissions=ACP.permissions,
        sessions=True,
        fork=fork,
        usage=True,
        cost=cost,
    )
