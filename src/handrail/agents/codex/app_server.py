"""Codex through ``codex app-server``: typed errors, reset times, compaction, clean interruption."""

from __future__ import annotations

from dataclasses import replace

import attrs

from handrail.agents.codex.dialogue import CodexDialogue
from handrail.agents.codex.profile import profile_settings
from handrail.agents.codex.program import CAPABILITIES, INSTALL, probe_codex
from handrail.agents.programs.environment import child_environment
from handrail.agents.programs.folders import added_folders, working_folder
from handrail.agents.programs.outcome import finished_notice
from handrail.agents.programs.rpc_turn import own_version, run_rpc
from handrail.agents.programs.strict_schema import strict_schema
from handrail.agents.programs.watchdog import GRACE_S
from handrail.errors import AgentError
from handrail.model.agent_options import NO_OPTIONS, AgentOptions
from handrail.ports.agent import AgentReply, AgentTurn, Capabilities, Probe


@attrs.frozen
class CodexBackend:
    """``codex app-server``, one process a turn; it goes on in threads, forks and compacts them.

    ``options`` hold unless an agent or a step says otherwise. What it may not do without asking it
    does not do: what it asks for is denied, unless the permission level is ``full``.
    """

    executable: str = "codex"
    options: AgentOptions = attrs.field(default=NO_OPTIONS, kw_only=True)

    @property
    def name(self) -> str:
        """``"codex"``."""
        return "codex"

    @property
    def capabilities(self) -> Capabilities:
        """Sessions, forks, compaction, schemas, profiles, tokens and reset times; no cost."""
        return _CAPABILITIES

    async def complete(self, turn: AgentTurn, /) -> AgentReply:
        """The last message of the turn, after codex said that it is completed.

        Raises:
            AgentError: it was not, with the reason and its kind.
        """
        options = turn.options.over(self.options)
        try:
            dialogue = self._dialogue(turn, options)
        except AgentError as error:
            turn.emit(finished_notice(turn.path, error))
            raise
        return await run_rpc(
            turn,
            [self.executable, *_ARGUMENTS, *(options.extra_args or ())],
            dialogue,
            env=child_environment(options),
            cwd=options.cwd,
            options=options,
            program="codex",
            install=INSTALL,
            grace_s=GRACE_S,
        )

    async def probe(self) -> Probe:
        """Whether codex is there, its version, and whether it has a login."""
        return await probe_codex(self.executable, self.options)

    def _dialogue(self, turn: AgentTurn, options: AgentOptions) -> CodexDialogue:
        """What is said to codex.

        Raises:
            AgentError: an option cannot be said to it.
        """
        name, _ = options.profile_and_model
        profile = name and profile_settings(turn.agent, name, child_environment(options))
        return CodexDialogue(
            turn,
            attrs.evolve(options, add_dirs=added_folders(options) or None),
            cwd=working_folder(options),
            schema=None if turn.schema is None else strict_schema(turn.schema),
            profile=profile or None,
            backend=self.name,
            client_version=own_version(),
        )


_ARGUMENTS = (
    # Analytics add 5 s to every exit when offline.
    *("app-server", "--listen", "stdio://"),
    *("-c", "analytics.enabled=false"),
)
_CAPABILITIES = replace(CAPABILITIES, compact=True)
