"""One turn of a program that is asked on its stdin and answers in lines.

The parser says what the lines mean; this starts the program, feeds the parser, watches the time,
and ends the program, in every case with all that it started. A program that has said that it is
done has little time to go, for some never do; what it said counts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence

from handrail.agents.programs.outcome import attributed, finished_notice, start_error
from handrail.agents.programs.turn_parser import Ending, Stop, TurnParser
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
from handrail.model.events import AgentFinished, AgentTranscript, Notice, StepOutput
from handrail.ports.agent import AgentReply, AgentTurn
from handrail.system.live import Exited, Line, LiveProcess, open_live
from handrail.system.processes import CommandNotStarted


async def run_cli(
    turn: AgentTurn,
    argv: Sequence[str] | str,
    parser: TurnParser,
    *,
    stdin: bytes,
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

    ``env`` is its whole environment (None: this process's). Of ``options`` only the timeouts are
    looked at, and with ``patience`` not even these. ``program`` is its name for people, ``install``
    the command that brings it (None: it is any program, for which there is no advice). With
    ``keep_ends`` the parser is fed each line of stdout with what ended it. Emits all that is heard,
    and last ``AgentFinished``, also on failure and cancellation.

    Raises:
        AgentError: there is no answer, or the program cannot be started.
    """
    patience = patience or patience_of(options, grace_s=grace_s)
    talk = _Talk(turn, parser, patience, keep_ends=keep_ends)
    try:
        reply = await talk.hold(argv, stdin=stdin, env=env, cwd=cwd)
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
    """One program's turn, from its start to the parser's conclusion. Mutable."""

    def __init__(
        self, turn: AgentTurn, parser: TurnParser, patience: Patience, *, keep_ends: bool
    ) -> None:
        self._turn = turn
        self._parser = parser
        self._patience = patience
        self._keep_ends = keep_ends
        self._live: LiveProcess | None = None
        self._code: int | None = None
        self._started_s = time.monotonic()
        self._finished_s: float | None = None

    async def hold(
        self,
        argv: Sequence[str] | str,
        *,
        stdin: bytes,
        env: Mapping[str, str] | None,
        cwd: str | os.PathLike[str] | None,
    ) -> AgentReply:
        """The parser's answer.

        Raises:
            AgentError: the parser found none.
        """
        async with open_live(
            argv,
            marker=self._turn.marker,
            cwd=cwd,
            env=env,
            stdin=stdin,
            exit_s=self._patience.exit_s,
        ) as self._live:
            stopped = await self._listen(self._live)
        return self._parser.conclude(self._ending(stopped))

    def interrupted(self) -> AgentFinished:
        """The last word of a turn that was cancelled, with what the parser knows of it."""
        known: AgentReply | AgentError
        try:
            known = self._parser.conclude(self._ending("interrupted"))
        except AgentError as error:
            known = error
        except Exception:  # noqa: BLE001  # the cancellation goes on whatever the parser does
            known = AgentReply("")
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
        due = self._deadline(live)
        while True:
            match await live.next(None if is_ended else due.at - time.monotonic()):
                case Exited(code):
                    self._code = code
                    return stopped
                case Line() as line:
                    self._hear(line)
                    for more in live.ready():
                        self._hear(more)
                case None:
                    pass
            # Looked at after what was there has been heard: if this process itself was halted, the
            # time is over though the program has not been silent.
            due = self._deadline(live)
            if not is_ended and time.monotonic() >= due.at:
                stopped, is_ended = due.stop, True
                await live.stop()

    def _deadline(self, live: LiveProcess) -> Deadline:
        parser = self._parser
        return deadline(
            self._patience,
            Signs(
                started=self._started_s,
                heard=live.heard_s,
                finished=self._finished_s,
                open_tools=parser.open_tools,
                extra_s=parser.patience_s,
            ),
        )

    def _hear(self, line: Line) -> None:
        path, emit = self._turn.path, self._turn.emit
        text = line.data.decode("utf-8", "replace")
        notices: Iterable[Notice]
        if line.stream == "stdout":
            emit(AgentTranscript(path, text))
            notices = self._parser.feed(line.data + line.end if self._keep_ends else line.data)
        else:
            emit(StepOutput(path, "stderr", f"{text}\n"))
            notices = self._parser.feed_stderr(line.data)
        for notice in notices:
            emit(notice)
        if not self._parser.finished:
            self._finished_s = None  # it went on after all: some take up work of their own
        elif self._finished_s is None:
            self._finished_s = time.monotonic()

    def _ending(self, stopped: Stop | None) -> Ending:
        now = self._turn.now or time.time
        return Ending(
            exit_code=self._code,
            stopped=stopped,
            stderr=self._live.stderr_tail if self._live else "",
            now=now(),
            after_s=time.monotonic() - self._started_s,
        )
