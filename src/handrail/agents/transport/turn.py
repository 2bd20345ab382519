"""One turn of a program, from its start to its answer, over any transport.

A transport says what to send and what received lines mean. This module starts the program, moves
the lines, enforces the timeouts, and ends the program, in every case with every process it started.
A program that has declared its turn finished, or closed its stdout, has little time to exit: some
never do, and their answer counts. To end a turn early, this module first asks the program to, if
its protocol has a message for that, so that the program can end its tools and save its session.
Signals come later.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import anyio

from handrail.agents.transport.failures import classify_by_words
from handrail.agents.transport.parser import Ending, Stop, TurnReader
from handrail.agents.transport.programs import Program
from handrail.errors import CommandNotFound
from handrail.model.agent_options import AgentOptions
from handrail.model.dataclass import dataclass
from handrail.model.events import AgentFinished, AgentLimit, AgentTranscript, Notice, StepOutput
from handrail.model.launch import AgentError
from handrail.ports.agent import AgentReply, AgentTurn
from handrail.system.live import Exited, Line, LiveProcess, open_live
from handrail.system.spawn import CommandNotStarted

START_S = 60.0
IDLE_S = 300.0
TOOL_S = 1800.0
GRACE_S = 5.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How many seconds a program may take: to its first output (``start_s``), between outputs
    (``idle_s``; ``tool_s`` while a tool runs), for the turn (``total_s``), to exit after it
    finished (``grace_s``), to end its turn on request (``interrupt_s``). A program known to have
    nothing left to do then also has ``alone_s`` to exit after an interrupt, once no process that it
    started is left.
    """

    start_s: float = START_S
    idle_s: float = IDLE_S
    tool_s: float = TOOL_S
    total_s: float | None = None
    grace_s: float = GRACE_S
    interrupt_s: float = 0.0
    alone_s: float | None = None


@dataclass(frozen=True, slots=True)
class Signs:
    """What was observed of a program: when it was started, last heard, and finished (it said so,
    or closed its stdout), all on one clock; how many of its tools run; how many extra seconds of
    silence it announced.
    """

    started: float
    heard: float | None = None
    finished: float | None = None
    open_tools: int = 0
    extra_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Deadline:
    """When to end a program if nothing else is observed of it, and why.

    ``stop`` is None if the program has finished and only has to exit. ``bound_s`` is the limit in
    seconds that it had.
    """

    at: float
    stop: Stop | None
    bound_s: float = field(default=0.0, compare=False)


def patience_of(
    options: AgentOptions, *, grace_s: float = GRACE_S, interrupt_s: float = 0.0
) -> Patience:
    """The timeouts of the options, or else the defaults."""
    idle_s = _or_default(options.idle_timeout_s, IDLE_S)
    return Patience(
        start_s=_or_default(options.start_timeout_s, START_S),
        idle_s=idle_s,
        # A silence that is allowed to a thinking model is not too long for a running tool.
        tool_s=_or_default(options.tool_timeout_s, max(TOOL_S, idle_s)),
        total_s=options.timeout_s,
        grace_s=grace_s,
        interrupt_s=interrupt_s,
    )


def deadline(patience: Patience, signs: Signs) -> Deadline:
    """When and why to end a program with these signs."""
    if signs.finished is not None:
        return Deadline(signs.finished + patience.grace_s, None)
    silence = _silence_deadline(patience, signs)
    if patience.total_s is None:
        return silence
    return min(
        silence,
        Deadline(signs.started + patience.total_s, "timeout", patience.total_s),
        key=lambda one: one.at,
    )


def _silence_deadline(patience: Patience, signs: Signs) -> Deadline:
    if signs.heard is None:
        return Deadline(signs.started + patience.start_s, "start_timeout", patience.start_s)
    usual_s = patience.tool_s if signs.open_tools else patience.idle_s
    bound_s = usual_s + signs.extra_s
    return Deadline(signs.heard + bound_s, "idle_timeout", bound_s)


def _or_default(given: float | None, usual: float) -> float:
    return usual if given is None else given


def finished_notice(path: str, outcome: AgentReply | BaseException) -> AgentFinished:
    """The last notice of a turn that ended in a reply, an error, or (else) an interruption."""
    match outcome:
        case AgentReply():
            return AgentFinished(
                path,
                "completed",
                usage=outcome.usage,
                model=outcome.model,
                session=outcome.session,
                files_changed=outcome.files_changed,
            )
        case AgentError():
            return AgentFinished(
                path,
                "interrupted" if outcome.kind == "interrupted" else "failed",
                kind=outcome.kind or "",
                error=outcome.reason,
                usage=outcome.usage,
                model=outcome.model,
                session=outcome.session,
            )
        case Exception():
            return AgentFinished(path, "failed", error=f"{type(outcome).__name__}: {outcome}")
        case _:
            return AgentFinished(path, "interrupted", kind="interrupted")


def limit_reached(path: str, error: BaseException) -> Iterator[AgentLimit]:
    """The notice of a used-up plan, for backends whose protocol reports it only as a failure."""
    if isinstance(error, AgentError) and error.kind == "usage_cap":
        yield AgentLimit(path, "reached", reset_at=error.retry_at)


def start_error(
    agent: str,
    error: CommandNotFound | CommandNotStarted,
    cwd: str | os.PathLike[str] | None,
    program: Program,
) -> AgentError:
    """The agent's error for a program that could not be started, with what a person can do.

    If no install command is known, the words of ``error`` are the only help.
    """
    if isinstance(error, CommandNotStarted):  # it exists; the machine or an update is busy
        return AgentError(agent, str(error), kind="transient")
    if cwd is not None and not Path(cwd).is_dir():
        return AgentError(agent, str(error), kind="config")
    if program.install is None:
        return AgentError(agent, str(error), kind="not_installed")
    how = ": ".join(filter(None, (f"Install {program.name}", program.install)))
    why = str(error).partition(" Did you mean")[0]  # similar names are no help here
    return AgentError(
        agent, why, kind="not_installed", hint=f"{how}, or name where it is by executable=."
    )


_UPDATE_S = 300.0
"""How long a program may be missing while it updates itself; after that it was removed."""
_Program: TypeAlias = tuple[str, str | None]
_missing_since: dict[_Program, float | None] = {}
"""Programs that this process has started, with their PATH: since when each is missing, or None."""


def _program_key(argv: Sequence[str] | str, env: Mapping[str, str] | None) -> _Program:
    program = argv if isinstance(argv, str) else argv[0]
    return program, (os.environ if env is None else env).get("PATH")


def _may_come_back(program: _Program, now: float) -> bool:
    if program not in _missing_since:
        return False
    since = _missing_since[program]
    if since is None:
        _missing_since[program] = now
    return since is None or now - since < _UPDATE_S


class Transport(ABC):
    """The lines between a program and the reader of its turn. It never waits.

    ``reader`` follows the turn and concludes it. ``stdin`` is the program's whole input; None for a
    dialogue. ``interrupt_s`` is how long the program may take to end its turn on request.
    """

    __slots__ = ()
    reader: Any
    stdin: Any
    interrupt_s: ClassVar[float] = 0.0

    def start(self) -> Iterable[bytes]:
        """The lines to send first."""
        return ()

    @abstractmethod
    def on_line(self, line: Line, /) -> tuple[Iterable[Notice], Iterable[bytes]]:
        """The notices of a line, and the lines to send in reply."""

    def interrupt(self) -> Sequence[bytes]:
        """The lines that end the turn early; none if there is nothing to send now."""
        return ()


async def run_turn(
    turn: AgentTurn,
    argv: Sequence[str] | str,
    transport: Transport,
    program: Program,
    *,
    env: Mapping[str, str] | None,
    grace_s: float = GRACE_S,
    patience: Patience | None = None,
) -> AgentReply:
    """The answer to one turn, after the program and every process it started have ended.

    ``env`` is its whole environment (None: this process's). Of the options only the working folder
    and the timeouts are used; with ``patience`` only the folder. A program that has finished and
    does not exit within ``grace_s`` seconds gets signals. Emits all lines received and sent, and
    last ``AgentFinished``, also on failure and cancellation.

    Raises:
        AgentError: there is no answer, or the program cannot be started.
    """
    if patience is None:
        interrupt_s = transport.interrupt_s
        patience = patience_of(turn.options, grace_s=grace_s, interrupt_s=interrupt_s)
    program_turn, now = _ProgramTurn(turn, transport, patience), turn.now or time.time
    try:
        reply = await program_turn.run(argv, env)
    except (CommandNotFound, CommandNotStarted) as error:
        refused = start_error(turn.agent, error, turn.options.cwd, program)
        # A program that was there before may be updating itself.
        if refused.kind == "not_installed" and _may_come_back(_program_key(argv, env), now()):
            refused.kind = "transient"
        turn.emit(finished_notice(turn.path, refused))
        raise refused from error
    except AgentError as error:
        classify_by_words(error, now())
        reached = program_turn.reached_limits
        if error.kind == "rate_limit" and error.retry_at is None and reached:
            resets = [one.reset_at for one in reached if one.reset_at is not None]
            error.kind, error.retry_at = "usage_cap", max(resets, default=None)
        for notice in () if reached else limit_reached(turn.path, error):
            turn.emit(notice)
        turn.emit(finished_notice(turn.path, error))
        raise
    except Exception as error:
        turn.emit(finished_notice(turn.path, error))
        raise
    except BaseException:
        turn.emit(program_turn.interrupted())
        raise
    turn.emit(finished_notice(turn.path, reply))
    return reply


class _ProgramTurn:
    """One program's turn, from its start to the reader's conclusion. Mutable."""

    def __init__(self, turn: AgentTurn, transport: Transport, patience: Patience) -> None:
        self._turn = turn
        self._transport = transport
        self._reader: TurnReader = transport.reader
        self._patience = patience
        self._live: LiveProcess | None = None
        self._code: int | None = None
        self._started_s = time.monotonic()
        self._finished_s: float | None = None
        self._bound_s = 0.0
        self._outstayed = False
        self._limits: dict[str, AgentLimit] = {}  # the last of each window

    async def run(self, argv: Sequence[str] | str, env: Mapping[str, str] | None) -> AgentReply:
        """The reader's answer.

        Raises:
            AgentError: the reader found no answer.
        """
        async with open_live(
            argv,
            marker=self._turn.marker,
            cwd=self._turn.options.cwd,
            env=env,
            stdin=self._transport.stdin,
            alone_s=self._patience.alone_s,
            boundary=self._turn.boundary,
        ) as live:
            self._live = live
            _missing_since[_program_key(argv, env)] = None
            try:
                self._send(live, self._transport.start())
                stopped = await self._listen(live)
            except anyio.get_cancelled_exc_class():
                with anyio.CancelScope(shield=True):
                    await self._break_off(live)
                raise
        return self._reader.conclude(self._ending(stopped))

    @property
    def reached_limits(self) -> list[AgentLimit]:
        """The windows of the plan that are used up, as the program reported them last."""
        return [limit for limit in self._limits.values() if limit.status == "reached"]

    def interrupted(self) -> AgentFinished:
        """The last notice of a cancelled turn, with what the reader knows of it."""
        known: AgentReply | Exception
        try:
            known = self._reader.conclude(self._ending("interrupted"))
        except Exception as error:  # noqa: BLE001  # nothing may replace the cancellation
            known = error
        notice = finished_notice(self._turn.path, known)
        return replace(notice, status="interrupted", kind="interrupted", error="")

    async def _listen(self, live: LiveProcess) -> Stop | None:
        """Read the program's lines until it exits; returns why it was ended, if it had to be."""
        stopped: Stop | None = None
        is_ended = False
        while True:
            left_s = None if is_ended else self._deadline(live).at - time.monotonic()
            if await self._next(live, left_s):
                return stopped
            # Checked only after all lines that have arrived: if this process itself was halted, the
            # deadline is over although the program was not silent.
            due = self._deadline(live)
            if is_ended or time.monotonic() < due.at:
                continue
            if due.stop is not None and stopped is None:
                stopped, self._bound_s = due.stop, due.bound_s
                await self._break_off(live)
            due = self._deadline(live)
            if due.stop is None and time.monotonic() < due.at:
                continue  # it has ended its turn meanwhile, and may still exit by itself
            is_ended, self._outstayed = True, due.stop is None
            await live.stop()

    async def _break_off(self, live: LiveProcess) -> None:
        """Ask the program to end its turn itself, if its protocol can, and give it a moment."""
        asked = self._transport.interrupt()
        if not asked:
            return
        self._send(live, asked)
        until = time.monotonic() + self._patience.interrupt_s
        while not self._reader.finished and (left_s := until - time.monotonic()) > 0:
            if await self._next(live, left_s):
                break

    async def _next(self, live: LiveProcess, timeout_s: float | None) -> bool:
        """Read lines that are there or arrive in time; True if the program has exited."""
        match await live.next(timeout_s):
            case Exited(code):
                self._code = code
                return True
            case Line() as line:
                self._on_line(live, line)
                for more in live.ready():
                    self._on_line(live, more)
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
                finished=live.closed_s if self._finished_s is None else self._finished_s,
                open_tools=reader.open_tools,
                extra_s=reader.extra_silence_s,
            ),
        )

    def _on_line(self, live: LiveProcess, line: Line) -> None:
        path, emit = self._turn.path, self._turn.emit
        text = line.data.decode("utf-8", "replace")
        is_error = line.stream == "stderr"
        emit(StepOutput(path, "stderr", f"{text}\n") if is_error else AgentTranscript(path, text))
        notices, answers = self._transport.on_line(line)
        for notice in notices:
            if isinstance(notice, AgentLimit):
                self._limits[notice.window] = notice
            emit(notice)
        self._send(live, answers)
        self._note_whether_finished(live)

    def _note_whether_finished(self, live: LiveProcess) -> None:
        if self._reader.finished:
            if self._finished_s is None:
                self._finished_s = time.monotonic()
                live.close_stdin()
        elif self._transport.stdin is not None:
            self._finished_s = None  # it continued after all: some start work of their own

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
            outstayed=self._outstayed,
        )
