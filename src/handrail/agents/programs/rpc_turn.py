"""A turn of a program that is talked with while it works, in JSON-RPC on its stdin and stdout."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from handrail.agents.programs.dialogue import Dialogue
from handrail.agents.programs.jsonrpc import encode
from handrail.agents.programs.loose_json import object_of
from handrail.agents.programs.turn import run_turn
from handrail.agents.programs.watchdog import GRACE_S, patience_of
from handrail.model.agent_options import AgentOptions
from handrail.model.events import Notice
from handrail.ports.agent import AgentReply, AgentTurn
from handrail.system.live import Line

INTERRUPT_S = 3.0
"""How long a program may take to end its turn when it is asked to; codex needs 0.01 s."""


@cache
def own_version() -> str:
    """The version of this library, which programs are told when they are greeted."""
    try:
        return version("handrail")
    except PackageNotFoundError:  # run from its sources
        return "0"


async def run_rpc(
    turn: AgentTurn,
    argv: Sequence[str],
    dialogue: Dialogue,
    *,
    env: Mapping[str, str] | None,
    cwd: str | os.PathLike[str] | None,
    options: AgentOptions,
    program: str,
    install: str = "",
    grace_s: float = GRACE_S,
) -> AgentReply:
    """The dialogue's answer to one turn, after the program and all it started have ended.

    ``env`` is its whole environment (None: this process's). Of ``options`` only the timeouts are
    looked at. ``program`` is its name for people, ``install`` the command that brings it. A program
    that does not go within ``grace_s`` seconds when its stdin ends is sent signals. Emits all that
    is heard and sent, and last ``AgentFinished``, also on failure and cancellation.

    Raises:
        AgentError: there is no answer, or the program cannot be started.
    """
    return await run_turn(
        turn,
        argv,
        _Messages(dialogue),
        env=env,
        cwd=cwd,
        patience=patience_of(options, grace_s=grace_s, interrupt_s=INTERRUPT_S),
        program=program,
        install=install,
    )


@dataclass(frozen=True, slots=True)
class _Messages:
    """The voice of a dialogue: messages go both ways, until its stdin is closed."""

    reader: Dialogue
    stdin: None = None

    def start(self) -> Iterable[bytes]:
        return map(encode, self.reader.start())

    def heard(self, line: Line, /) -> tuple[Iterable[Notice], Iterable[bytes]]:
        if line.stream == "stderr":
            return (), ()
        notices, messages = self.reader.received(object_of(line.data))
        return notices, map(encode, messages)

    def interrupt(self) -> Sequence[bytes]:
        return [encode(message) for message in self.reader.interrupt()]
