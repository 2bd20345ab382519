"""One turn of a program, from its start to its answer, however it is talked with.

A voice says what to send and what was meant; this starts the program, carries the lines, watches
the time, and ends the program, in every case with all that it started. A program that has said that
it is done has little time to go, for some never do; what it said counts. Where a turn has to end
early, the program is first asked to, if its protocol has words for that, so that it can end its
tools and keep its session in order; signals come after that.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import anyio

from handrail.agents.programs.outcome import (
    attributed,
    finished_notice,
    limit_reached,
    start_error,
)
from handrail.agents.programs.turn_parser import Ending, Stop
from handrail.agents.programs.voice import Voice
from handrail.agents.programs.watchdog import Deadline, Patience, Signs, deadline
from handrail.errors import AgentError, CommandNotFound
from handrail.model.events import AgentFinished, AgentLimit, AgentTranscript, StepOutput
from handrail.ports.agent import AgentReply, AgentTurn
from handrail.system.live import Exited, Line, LiveProcess, open_live
from handrail.system.run import CommandNotStarted


async def run_turn(
    turn: AgentTurn,
    argv: Sequence[str] | str,
    voice: Voice,
    *,
    env: Mapping[str, str] | None,
    cwd: str | os.PathLike[str] | None,
    patience: Patience,
    program: str,
    install: str | None,
) -> AgentReply:
    """The answer to one turn, after the program and all it started have ended.

    ``env`` is its whole environment (None: this process's). ``program`` is its name for people,
    ``install`` the command that brings it (see ``start_error``). Emits all that is heard and sent,
    and last ``AgentFinished``, also on failure and cancellation.

    Raises:
        AgentError: there is no answer, or the program cannot be started.
    """
    talk = _Talk(turn, voice, patience)
    try:
        reply = await talk.hold(argv, env=env, cwd=cwd)
    except (CommandNotFound, CommandNotStarted) as error:
        refused = start_error(turn.agent, error, cwd, program, install)
        turn.emit(finished_notice(turn.path, refused))
        raise refused from error
    except AgentError as error:
        for notice in () if talk.told_limit else limit_reached(turn.path, error):
            turn.emit(notice)
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
    """One program's turn, from its start to the reader's conclusion. Mutable."""

    def __init__(self, turn: AgentTurn, voice: Voice, patience: Patience) -> None:
        self._turn = turn
        self._voice = voice
        self._reader = voice.reader
        self._patience = patience
        self._live: LiveProcess | None = None
        self._code: int | None = None
        self._started_s = time.monotonic()
        self._finished_s: float | None = None
        self._bound_s = 0.0
        self.told_limit = False
        """The program itself has said that a plan is used up."""

    async def hold(
        self,
        argv: Sequence[str] | str,
        *,
        env: Mapping[str, str] | None,
        cwd: str | os.PathLike[str] | None,
    ) -> AgentReply:
        """The reader's answer.

        Raises:
            AgentError: the reader found none.
        """
        async with open_live(
            argv,
            marker=self._turn.marker,
            cwd=cwd,
            env=env,
            stdin=self._voice.stdin,
            exit_s=self._patience.exit_s,
        ) as live:
            self._live = live
            try:
                self._send(live, self._voice.start())
                stopped = await self._listen(live)
            except anyio.get_cancelled_exc_class():
                with anyio.CancelScope(shield=True):
                    await self._break_off(live)
                raise
        return self._reader.conclude(self._ending(stopped))

    def interrupted(self) -> AgentFinished:
        """The last word of a turn that was cancelled, with what the reader knows of it."""
        known: AgentReply | Exception
        try:
            known = self._reader.conclude(self._ending("interrupted"))
        except Exception as error:  # noqa: BLE001  # the cancellation goes on whatever it does
            known = error
        told = finished_notice(self._turn.path, known)
        return replace(told, status="interrupted", kind="interrupted", error="")

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
                stopped, self._bound_s = due.stop, due.bound_s
                await self._break_off(live)
            if not self._is_going(live):
                is_ended = True
                await live.stop()

    def _is_going(self, live: LiveProcess) -> bool:
        """True while a program that has ended its turn may still exit by itself."""
        return self._finished_s is not None and time.monotonic() < self._deadline(live).at

    async def _break_off(self, live: LiveProcess) -> None:
        """Have the program end its turn itself, if it can be asked to; it has a moment for that."""
        asked = self._voice.interrupt()
        if not asked:
            return
        self._send(live, asked)
        until = time.monotonic() + self._patience.interrupt_s
        while not self._reader.finished and (left_s := until - time.monotonic()) > 0:
            if await self._next(live, left_s):
                break

    async def _next(self, live: LiveProcess, timeout_s: float | None) -> bool:
        """Hear the lines that are there, or else come in time; True if the program has exited."""
        match await live.next(timeout_s):
            case Exited(code):
                self._code = code
                return True
            case Line() as line:
                self._hear(live, line)
                for more in live.ready():
                    self._hear(live, more)
            case None:
                pass
        return False

    def _deadline(self, live: LiveProcess) -> Deadline:
        reader = self._reader
        return deadline(
            self._patience,
            Signs(
                started=self._started_s,
                heard=live.heard_s,
                finished=self._finished_s,
                open_tools=reader.open_tools,
                extra_s=reader.patience_s,
            ),
        )

    def _hear(self, live: LiveProcess, line: Line) -> None:
        path, emit = self._turn.path, self._turn.emit
        text = line.data.decode("utf-8", "replace")
        is_error = line.stream == "stderr"
        emit(StepOutput(path, "stderr", f"{text}\n") if is_error else AgentTranscript(path, text))
        notices, answers = self._voice.heard(line)
        for notice in notices:
            told = isinstance(notice, AgentLimit) and notice.status == "reached"
            self.told_limit = self.told_limit or told
            emit(notice)
        self._send(live, answers)
        self._note_whether_finished(live)

    def _note_whether_finished(self, live: LiveProcess) -> None:
        if self._reader.finished:
            if self._finished_s is None:
                self._finished_s = time.monotonic()
                live.close_stdin()
        elif self._voice.stdin is not None:
            self._finished_s = None  # it went on after all: some take up work of their own

    def _send(self, live: LiveProcess, lines: Iterable[bytes]) -> None:
        for line in lines:
            self._turn.emit(AgentTranscript(self._turn.path, line.decode().rstrip("\n"), "sent"))
            live.send(line)

    def _ending(self, stopped: Stop | None) -> Ending:
        now = self._turn.now or time.time
        return Ending(
            exit_code=self._code,
            stopped=stopped,
            stderr=self._live.stderr_tail if self._live else "",
            now=now(),
            after_s=self._bound_s,
        )
