"""opencode through the JSON events of ``opencode run``, a process a turn."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import attrs

from handrail.agents.opencode.stream import OpencodeParser
from handrail.agents.transport.cli import (
    child_environment,
    home_of,
    json_file,
    probe_program,
    run_cli,
    unblank,
)
from handrail.model.agent_options import NO_OPTIONS, AgentOptions
from handrail.ports.agent import AgentReply, AgentTurn, Capabilities, Probe

INSTALL = "npm install -g opencode-ai"

_QUIET = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "NO_COLOR": "1"}


@attrs.frozen
class OpencodeBackend:
    """``opencode run`` with its JSON events, one process a turn; it goes on in sessions.

    ``options`` hold unless an agent or a step says otherwise; models are ``"provider/model"``. What
    it would have to ask for is denied, unless ``permission="full"``. It tells of a tool when that
    is done, and nothing while it tries a request again, which it may do for ever. A blank
    prompt, which opencode refuses, is sent as ``Continue.``.
    """

    executable: str = "opencode"
    options: AgentOptions = attrs.field(default=NO_OPTIONS, kw_only=True)

    @property
    def name(self) -> str:
        """``"opencode-run"``."""
        return "opencode-run"

    @property
    def capabilities(self) -> Capabilities:
        """Sessions, forks, tokens, costs and reset times; no schema."""
        return _CAPABILITIES

    async def complete(self, turn: AgentTurn, /) -> AgentReply:
        """The last text of the turn, after a step of which the model said that it was the last.

        Raises:
            AgentError: there was none, with the reason and its kind.
        """
        options = turn.options.over(self.options)
        return await run_cli(
            turn,
            opencode_argv(self.executable, turn, options),
            OpencodeParser(turn, model=options.profile_and_model[1]),
            stdin=unblank(turn.prompt),
            env=child_environment(options, add=_QUIET),
            cwd=options.cwd,
            options=options,
            program="opencode",
            install=INSTALL,
        )

    async def probe(self) -> Probe:
        """Whether opencode is there, its version, and whether it has a login."""
        return await probe_program(
            self.executable,
            child_environment(self.options, add=_QUIET),
            logged_in=opencode_logged_in,
            install=INSTALL,
            login="opencode auth login",
        )


_CAPABILITIES = Capabilities(
    options=frozenset({"model", "effort", "permission", "cwd", "env", "extra_args"}),
    permissions=frozenset({"full"}),
    sessions=True,
    fork=True,
    usage=True,
    cost=True,
    reset_times=True,
)


def opencode_argv(executable: str, turn: AgentTurn, options: AgentOptions) -> list[str]:
    """The arguments of one turn; the prompt goes to stdin."""
    _, model = options.profile_and_model
    argv = [executable, "run", "--format", "json", "--thinking"]
    argv += [] if model is None else ["-m", model]
    argv += [] if options.effort is None else ["--variant", options.effort]
    argv += ["--auto"] if options.permission == "full" else []
    if turn.session is not None:
        argv += ["-s", turn.session, *(["--fork"] if turn.fork else [])]
    return [*argv, *(options.extra_args or ())]


def opencode_logged_in(env: Mapping[str, str]) -> bool | None:
    """Whether opencode has a login; None if none is stored, for variables and settings may do."""
    data = Path(env.get("XDG_DATA_HOME") or home_of(env) / ".local" / "share")
    return True if json_file(data / "opencode" / "auth.json") else None
