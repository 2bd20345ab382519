"""A backend for any program: prompt on stdin, answer on stdout."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import PurePath
from typing import Any, ClassVar

import attrs

from handrail.agents.transport.cli import Lines, child_environment
from handrail.agents.transport.parser import Ending, Stop, describe_exit
from handrail.agents.transport.programs import Program
from handrail.agents.transport.turn import Patience, run_turn
from handrail.errors import AgentErrorKind
from handrail.model.agent_options import AgentOptions, names_only
from handrail.model.events import AgentMessage, Notice
from handrail.model.launch import AgentError
from handrail.model.policy import positive_seconds
from handrail.model.sandbox import LAUNCH_OPTIONS
from handrail.ports.agent import AgentReply, AgentTurn, Capabilities
from handrail.shortening import LONGEST_WORD, shortened
from handrail.system.spawn import arguments, check_environment

# Reads what any program prints in one turn: all of its stdout is the answer.
#
# Such a program has no protocol. Only its exit code says whether the answer counts: with 0 it is
# complete, with any other code it is not, for reasons that only the program knows. But one that has
# closed its stdout has said all it will, and is not waited for.

KEPT_BYTES = 8 << 20
"""The longest answer that is accepted."""
_TAIL_CHARS = 2_000
_TAIL_BYTES = 4 * (_TAIL_CHARS + LONGEST_WORD + 1)  # enough to cut at characters, not at bytes


class CommandParser:
    """Reads one turn of any program. Mutable.

    It gets lines with their endings, so that the answer is the output, byte for byte. ``name`` is
    the program's, ``patience`` its timeouts.
    """

    finished = False
    open_tools = 0
    extra_silence_s = 0.0

    def __init__(self, turn: AgentTurn, name: str, patience: Patience) -> None:
        self._turn = turn
        self._name = name
        self._patience = patience
        self._kept: list[bytes] = []
        self._kept_bytes = 0
        self._left_out_bytes = 0
        self._tail = b""

    def feed(self, line: bytes, /) -> Iterable[Notice]:
        """The line, as a part of the answer."""
        kept = line[: KEPT_BYTES - self._kept_bytes]
        if kept:
            self._kept.append(kept)
            self._kept_bytes += len(kept)
        if len(kept) < len(line):
            self._left_out_bytes += len(line) - len(kept)
            self._tail = (self._tail + line)[-_TAIL_BYTES:]
        return (AgentMessage(self._turn.path, line.decode("utf-8", "replace")),)

    def feed_stderr(self, _line: bytes, /) -> Iterable[Notice]:
        """Nothing: stderr is output of the step, not of the agent."""
        return ()

    def conclude(self, ending: Ending, /) -> AgentReply:
        """The whole output, if the program exited with 0, or closed its stdout and never exited.

        Raises:
            AgentError: it did not, handrail ended it, or it printed more than is kept.
        """
        if ending.stopped is not None:
            raise self._stopped(ending.stopped, ending)
        if ending.exit_code != 0 and not (ending.outstayed and self._kept):
            said = _output_tail(ending.stderr) or _output_tail(self._end) or " and said nothing"
            raise self._error(None, f"{self._name!r} {describe_exit(ending.exit_code)}{said}")
        if self._left_out_bytes:
            raise self._error(
                None,
                f"{self._name!r} printed {self._left_out_bytes} bytes more than are kept of an "
                f"answer. Have it print the answer alone.",
            )
        return AgentReply(self._printed)

    def _stopped(self, stop: Stop, ending: Ending) -> AgentError:
        patience, said = self._patience, _output_tail(ending.stderr)
        match stop:
            case "interrupted":
                return self._error("interrupted", f"{self._name!r} was interrupted")
            case "start_timeout":
                why = f"gave no sign of life within {patience.start_s:g} s"
            case "idle_timeout":
                why = f"printed nothing for {patience.idle_s:g} s"
            case "timeout":
                why = f"gave no answer within {patience.total_s:g} s"
        return self._error("timeout", f"{self._name!r} {why}{said}")

    def _error(self, kind: AgentErrorKind | None, reason: str) -> AgentError:
        text = shortened(self._end, _TAIL_CHARS, keep="tail", mark="")
        return AgentError(self._turn.agent, reason, kind=kind, text=text)

    @property
    def _printed(self) -> str:
        return b"".join(self._kept).decode("utf-8", "replace")

    @property
    def _end(self) -> str:
        """The end of its output, or all of it."""
        return self._tail.decode("utf-8", "replace") if self._tail else self._printed


def _output_tail(output: str) -> str:
    shown = shortened(output.strip(), _TAIL_CHARS, keep="tail")
    return f": {shown}" if shown else ""


def _argv(argv: str | Sequence[str]) -> str | tuple[str, ...]:
    return argv if isinstance(argv, str) else tuple(argv)


def _check_argv(_: Any, __: attrs.Attribute[Any], argv: str | tuple[str, ...]) -> None:
    arguments(argv)


def _check_env(_: Any, __: attrs.Attribute[Any], env: Mapping[str, str] | None) -> None:
    check_environment(env or {})


def _timeout_s(timeout: float | timedelta | None) -> float | None:
    return None if timeout is None else positive_seconds(timeout, "timeout of a CommandBackend")


@attrs.frozen
class CommandBackend:
    """A program that reads a prompt from its stdin and prints the answer to its stdout.

    ``argv`` is a list of arguments, or one text for the shell. ``env`` is added to this process's
    environment. ``timeout`` limits one turn: seconds, or a ``timedelta``. Options of an agent or a
    step override these three. The program may be silent before its answer for any time, unless
    ``start_timeout_s`` or ``idle_timeout_s`` limit that. One that has closed its stdout has
    answered: no timeout counts any more, and if it does not exit within five seconds it is ended.

    Each line of its stdout is reported as it arrives. Its stderr is output of the step, and the
    reason if the program fails. Each turn is a new process without a session; it is ended with
    every process that it started.

    handrail cannot know what a program's exit code means, or a signal from elsewhere. So such a
    failure deliberately has no kind: no launch follows it, and the ``.retry`` of the step decides.
    """

    argv: str | tuple[str, ...] = attrs.field(converter=_argv, validator=_check_argv)
    cwd: str | os.PathLike[str] | None = attrs.field(default=None, kw_only=True)
    env: Mapping[str, str] | None = attrs.field(
        default=None, kw_only=True, validator=_check_env, repr=names_only
    )
    timeout: float | None = attrs.field(default=None, kw_only=True, converter=_timeout_s)

    capabilities: ClassVar[Capabilities] = Capabilities(
        options=frozenset({"cwd", "env"}) | LAUNCH_OPTIONS
    )

    @property
    def name(self) -> str:
        """The program's own name, without its folder."""
        words = self.argv.split() if isinstance(self.argv, str) else self.argv
        return PurePath(words[0]).name

    @property
    def options(self) -> AgentOptions:
        """The options that apply unless an agent or a step overrides them."""
        return AgentOptions(cwd=self.cwd, env=self.env, timeout_s=self.timeout)

    async def complete(self, turn: AgentTurn, /) -> AgentReply:
        """The program's output.

        Raises:
            AgentError: it could not be started (``not_installed``), took too long (``timeout``), or
                handrail ended it (``interrupted``); or, without a kind, it ended with another exit
                code than 0, or printed more than is kept.
        """
        turn = replace(turn, options=turn.options.over(self.options))
        patience = _patience(turn.options)
        parser = CommandParser(turn, self.name, patience)
        return await run_turn(
            turn,
            self.argv,
            Lines(parser, turn.prompt.encode("utf-8", "replace"), keep_ends=True),
            Program(self.name, install=None),
            env=child_environment(turn.options, self.name),
            patience=patience,
        )


def _patience(options: AgentOptions) -> Patience:
    """The timeouts of the options, else none. ``idle_timeout_s`` also limits the first silence."""
    idle_s = options.idle_timeout_s or math.inf
    start_s = options.start_timeout_s or idle_s
    tool_s = options.tool_timeout_s or idle_s
    return Patience(start_s, idle_s, tool_s, options.timeout_s)
