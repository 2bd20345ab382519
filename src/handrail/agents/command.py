"""A backend that is any program: prompt on stdin, answer on stdout."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import PurePath
from typing import Any, ClassVar

import attrs

from handrail.agents.transport.cli import Lines, child_environment
from handrail.agents.transport.parser import Ending, Stop, describe_exit
from handrail.agents.transport.programs import Program
from handrail.agents.transport.turn import Patience, run_turn
from handrail.errors import AgentErrorKind
from handrail.model.agent_options import AgentOptions
from handrail.model.events import AgentMessage, Notice
from handrail.model.launch import AgentError
from handrail.model.policy import positive_seconds
from handrail.ports.agent import AgentReply, AgentTurn, Capabilities
from handrail.shortening import LONGEST_WORD, shortened
from handrail.system.spawn import arguments, check_environment

# What any program prints, read for one turn: all of its stdout is the answer.
#
# Such a program knows no protocol. Its only word on the answer is its exit: with 0 what it printed
# is whole, with anything else it is not, for reasons of its own.

KEPT_BYTES = 8 << 20
"""The longest answer that is taken."""
_TAIL_CHARS = 2_000
_TAIL_BYTES = 4 * (_TAIL_CHARS + LONGEST_WORD + 1)  # so that its last characters are cut as text


class CommandParser:
    """Reads one turn of any program. Mutable.

    It is fed lines with their ends, so that the answer is what was printed, byte for byte. ``name``
    is the program's, ``patience`` the one it was given.
    """

    finished = False
    open_tools = 0
    patience_s = 0.0

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
        """Nothing: what is said there is the step's output."""
        return ()

    def conclude(self, ending: Ending, /) -> AgentReply:
        """All that was printed, if the program exited with 0.

        Raises:
            AgentError: it did not, was ended by us, or printed more than can be kept.
        """
        if ending.stopped is not None:
            raise self._stopped(ending.stopped, ending)
        if ending.exit_code != 0:
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
        """The last of what it printed, or all."""
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


def _names_only(env: Mapping[str, str] | None) -> str:
    return repr(None if env is None else sorted(env))  # the values may be secrets


def _timeout_s(timeout: float | timedelta | None) -> float | None:
    return None if timeout is None else positive_seconds(timeout, "timeout of a CommandBackend")


@attrs.frozen
class CommandBackend:
    """A program that reads a prompt from its stdin and prints the answer to its stdout.

    ``argv`` is a list of arguments, or one text for the shell. ``env`` is added to this process's
    environment. ``timeout`` bounds one turn, in seconds. Options of an agent or a step come before
    these three. A program may think in silence: it is not expected to print anything before its
    answer, unless ``start_timeout_s`` or ``idle_timeout_s`` say so.

    Each line that it prints is told as it comes; what it prints to stderr is the step's output, and
    the reason if it fails. Each turn is a process of its own that remembers nothing, and all that
    it started is ended with it.

    An exit code, or a signal that somebody sent, is the program's own word, of which nothing is
    known. So such a failure has no kind on purpose: no launch follows it, and the ``.retry`` of the
    step decides.
    """

    argv: str | tuple[str, ...] = attrs.field(converter=_argv, validator=_check_argv)
    cwd: str | os.PathLike[str] | None = attrs.field(default=None, kw_only=True)
    env: Mapping[str, str] | None = attrs.field(
        default=None, kw_only=True, validator=_check_env, repr=_names_only
    )
    timeout: float | None = attrs.field(default=None, kw_only=True, converter=_timeout_s)

    capabilities: ClassVar[Capabilities] = Capabilities(options=frozenset({"cwd", "env"}))

    @property
    def name(self) -> str:
        """The program's own name, without its folder."""
        words = self.argv.split() if isinstance(self.argv, str) else self.argv
        return PurePath(words[0]).name

    @property
    def options(self) -> AgentOptions:
        """What holds unless an agent or a step says otherwise."""
        return AgentOptions(cwd=self.cwd, env=self.env, timeout_s=self.timeout)

    async def complete(self, turn: AgentTurn, /) -> AgentReply:
        """What the program printed.

        Raises:
            AgentError: it could not be started (``not_installed``), took too long (``timeout``),
                was ended by us (``interrupted``); or, without a kind, it ended with another exit
                code than 0, or printed more than can be kept.
        """
        options = turn.options.over(self.options)
        patience = _patience(options)
        parser = CommandParser(turn, self.name, patience)
        return await run_turn(
            turn,
            self.argv,
            Lines(parser, turn.prompt.encode("utf-8", "replace"), keep_ends=True),
            Program(self.name, install=None),
            env=child_environment(options),
            options=options,
            patience=patience,
        )


def _patience(options: AgentOptions) -> Patience:
    """What the options ask for, and else no end of it. Who bounds each silence bounds the first."""
    idle_s = options.idle_timeout_s or math.inf
    start_s = options.start_timeout_s or idle_s
    tool_s = options.tool_timeout_s or idle_s
    return Patience(start_s, idle_s, tool_s, options.timeout_s, exit_s=math.inf)
