"""One turn of a program that is talked with while it works, in JSON-RPC on its stdin and stdout.

The dialogue says what to send and what was meant; this starts the program, carries the messages,
watches the time, and ends the program, in every case with all that it started. Where the turn has
to end early the program is first asked to, in its own protocol, so that it can end its tools and
keep its session in order; signals come after that.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version

import anyio

from handrail.agents.programs.dialogue import Dialogue
from handrail.agents.programs.jsonrpc import Message, encode
from handrail.agents.programs.loose_json import object_of
from handrail.agents.programs.outcome import attributed, finished_notice, start_error
from handrail.agents.programs.turn_parser import Ending, Stop
from handrail.agents.programs.watchdog import (
    GRACE_S,
    Deadline,
    Patience,
    Signs,
    deadline,
    patience_of,
)
from handrail.errors import AgentError, CommandNotFound
from handrail.model.agent_options import AgentOptions
from handrail.model.events import AgentFinished, AgentTranscript, StepOutput
from handrail.ports.agent import AgentReply, AgentTurn
from handrail.system.live import Exited, Line, LiveProcess, open_live
from handrail.system.processes import CommandNotStarted

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
    talk = _Talk(turn, dialogue, patience_of(options, grace_s=grace_s))
    try:
        reply = await talk.hold(argv, env=env, cwd=cwd)
    except (CommandNotFound, CommandNotStarted) as error:
        refused = start_error(turn.agent, error, cwd, program, install)
        turn.emit(finished_notice(turn.path, refused))
        raise refused from error
    except AgentError as error:
        turn.emit(finished_notice(turn.path, attributed(error, turn.agent)))
        raise
    except Exception as error:
        turn.emit(finished_notice(turn.path, error))
        raise
    except BaseException:
        turn.emit(talk.interrupted())
        raise
    turn.emit(finished_notice(turn.path, reply))
    return reply


class _Talk:
    """One program's turn, from its start to the dialogue's conclusion. Mutable."""

    def __init__(self, turn: AgentTurn, dialogue: Dialogue, patience: Patience) -> None:
        self._turn = turn
        self._dialogue = dialogue
        self._patience = patience
        self._live: LiveProcess | None = None
        self._code: int | None = None
        self._started_s = time.monotonic()
        self._finished_s: float | None = None

    async def hold(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None,
        cwd: str | os.PathLike[str] | None,
    ) -> AgentReply:
        """The dialogue's answer.

        Raises:
            AgentError: the dialogue found none.
        """
        async with open_live(argv, marker=self._turn.marker, cwd=cwd, env=env) as live:
            self._live = live
            try:
                self._send(live, self._dialogue.start())
                stopped = await self._listen(live)
            except anyio.get_cancelled_exc_class():
                with anyio.CancelScope(shield=True):
                    await self._break_off(live)
                raise
        return self._dialogue.conclude(self._ending(stopped))

    def interrupted(self) -> AgentFinished:
        """The last word of a turn that was cancelled, with what the dialogue knows of it."""
        outcome: AgentReply | AgentError | None = None
        # The cancellation goes on whatever the dialogue makes of half a turn.
        with contextlib.suppress(Exception):
            try:
                outcome = self._dialogue.conclude(self._ending("interrupted"))
            except AgentError as error:
                outcome = error
        known = outcome or AgentReply("")
        return AgentFinished(
            self._turn.path,
            "interrupted",
            kind="interrupted",
            usage=known.usage,
            model=known.model,
            session=known.session,
        )

    async def _listen(self, live: LiveProcess) -> Stop | None:
        """Hear the program to its end; why it was ended, if it had to be."""
        stopped: Stop | None = None
        is_ended = False
        while True:
            left_s = None if is_ended else self._deadline(live).at - time.monotonic()
            if await self._next(live, left_s):
                return stopped
            # Looked at after what was there has been heard: if this process itself was halted, the
            # time is over though the program has not been silent.
            due = self._deadline(live)
            if is_ended or time.monotonic() < due.at:
                continue
            if due.stop is not None and stopped is None:
                stopped = due.stop
                await self._break_off(live)
            if not self._is_going(live):
                is_ended = True
                await live.stop()

    def _is_going(self, live: LiveProcess) -> bool:
        """True while a program that has ended its turn may still exit by itself."""
        return self._finished_s is not None and time.monotonic() < self._deadline(live).at

    async def _break_off(self, live: LiveProcess) -> None:
        """Have the program end its turn itself, if it can be asked to; it has a moment for that."""
        asked = self._dialogue.interrupt()
        if not asked:
            return
        self._send(live, asked)
        until = time.monotonic() + INTERRUPT_S
        while not self._dialogue.finished and (left_s := until - time.monotonic()) > 0:
            if await self._next(live, left_s):
                break

    async def _next(self, live: LiveProcess, timeout_s: float | None) -> bool:
        """Hear the next line, if one comes in time; True if the program has exited."""
        match await live.next(timeout_s):
            case Exited(code):
                self._code = code
                return True
            case Line() as line:
                self._hear(live, line)
            case None:
                pass
        return False

    def _deadline(self, live: LiveProcess) -> Deadline:
        dialogue = self._dialogue
        return deadline(
            self._patience,
            Signs(
                started=self._started_s,
                heard=live.heard_s,
                finished=self._finished_s,
                open_tools=dialogue.open_tools,
                extra_s=dialogue.patience_s,
            ),
        )

    def _hear(self, live: LiveProcess, line: Line) -> None:
        path, emit = self._turn.path, self._turn.emit
        text = line.data.decode("utf-8", "replace")
        if line.stream == "stderr":
            emit(StepOutput(path, "stderr", f"{text}\n"))
            return
        emit(AgentTranscript(path, text))
        notices, messages = self._dialogue.received(object_of(line.data))
        for notice in notices:
            emit(notice)
        self._send(live, messages)
        if self._dialogue.finished and self._finished_s is None:
            self._finished_s = time.monotonic()
            live.close_stdin()

    def _send(self, live: LiveProcess, messages: Iterable[Message]) -> None:
        for message in messages:
            data = encode(message)
            self._turn.emit(AgentTranscript(self._turn.path, data.decode().rstrip("\n"), "sent"))
            live.send(data)

    def _ending(self, stopped: Stop | None) -> Ending:
        now = self._turn.now or time.time
        return Ending(
            exit_code=self._code,
            stopped=stopped,
            stderr=self._live.stderr_tail if self._live else "",
            now=now(),
            after_s=time.monotonic() - self._started_s,
        )
