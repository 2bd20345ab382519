"""A turn of a program that is asked on its stdin and answers in lines."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from handrail.agents.programs.turn import run_turn
from handrail.agents.programs.turn_parser import TurnParser
from handrail.agents.programs.watchdog import GRACE_S, Patience, patience_of
from handrail.model.agent_options import AgentOptions
from handrail.model.events import Notice
from handrail.ports.agent import AgentReply, AgentTurn
from handrail.system.live import Line


def unblank(prompt: str) -> bytes:
    """The prompt for a program that refuses a blank one, which is sent as ``Continue.``."""
    return (prompt if prompt.strip() else "Continue.").encode("utf-8", "replace")


async def run_cli(
    turn: AgentTurn,
    argv: Sequence[str] | str,
    parser: TurnParser,
    *,
    stdin: bytes | None = None,
    env: Mapping[str, str] | None,
    cwd: str | os.PathLike[str] | None,
    options: AgentOptions,
    program: str,
    install: str | None = "",
    grace_s: float = GRACE_S,
    patience: Patience | None = None,
    keep_ends: bool = False,
) -> AgentReply:
    """The parser's answer to one turn, after the program and all it started have ended.

    ``stdin`` is all that it is asked (None: the prompt), ``env`` its whole environment (None: this
    process's). Of ``options`` only the timeouts are looked at, and with ``patience`` not even
    these. ``program`` is its name for people, ``install`` the command that brings it (None: it is
    any program, for which there is no advice). With ``keep_ends`` the parser is fed each line of
    stdout with what ended it. Emits all that is heard, and last ``AgentFinished``, also on failure
    and cancellation.

    Raises:
        AgentError: there is no answer, or the program cannot be started.
    """
    asked = turn.prompt.encode("utf-8", "replace") if stdin is None else stdin
    return await run_turn(
        turn,
        argv,
        _Lines(parser, asked, keep_ends=keep_ends),
        env=env,
        cwd=cwd,
        patience=patience or patience_of(options, grace_s=grace_s),
        program=program,
        install=install,
    )


@dataclass(frozen=True, slots=True)
class _Lines:
    """The voice of a program that is asked once: it is heard, and never answered."""

    reader: TurnParser
    stdin: bytes
    keep_ends: bool

    def start(self) -> Sequence[bytes]:
        return ()

    def heard(self, line: Line, /) -> tuple[Iterable[Notice], Iterable[bytes]]:
        if line.stream == "stderr":
            return self.reader.feed_stderr(line.data), ()
        return self.reader.feed(line.data + line.end if self.keep_ends else line.data), ()

    def interrupt(self) -> Sequence[bytes]:
        return ()
