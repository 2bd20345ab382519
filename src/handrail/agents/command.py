"""A backend that is any program: prompt on stdin, answer on stdout."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import PurePath
from typing import Any, ClassVar

import anyio
import attrs

from handrail.errors import AgentError, CommandNotFound
from handrail.model.events import AgentMessage, StepOutput
from handrail.model.policy import positive_seconds
from handrail.ports.agent import AgentReply, AgentTurn, Capabilities
from handrail.system.processes import CommandNotStarted, ProcessResult, Stream, run_process
from handrail.system.spawn import arguments, check_environment

_TAIL_CHARS = 2_000


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
    environment. ``timeout`` bounds one turn, in seconds. What the program prints to stderr is
    progress, and the reason if it fails. Each turn is a process of its own that remembers nothing,
    and all that it started is ended with it.
    """

    argv: str | tuple[str, ...] = attrs.field(converter=_argv, validator=_check_argv)
    cwd: str | os.PathLike[str] | None = attrs.field(default=None, kw_only=True)
    env: Mapping[str, str] | None = attrs.field(
        default=None, kw_only=True, validator=_check_env, repr=_names_only
    )
    timeout: float | None = attrs.field(default=None, kw_only=True, converter=_timeout_s)

    capabilities: ClassVar[Capabilities] = Capabilities()

    @property
    def name(self) -> str:
        """The program's own name, without its folder."""
        words = self.argv.split() if isinstance(self.argv, str) else self.argv
        return PurePath(words[0]).name

    async def complete(self, turn: AgentTurn, /) -> AgentReply:
        """What the program printed.

        Raises:
            AgentError: it could not be started, ended with another exit code than 0, took too
                long, or printed more than can be kept.
        """
        heard = _Heard(turn)
        try:
            with anyio.move_on_after(self.timeout):
                result = await run_process(
                    self.argv,
                    marker=f"{turn.run_id}/{turn.path}",
                    cwd=self.cwd,
                    env=self.env,
                    stdin=turn.prompt,
                    on_output=heard,
                )
                return self._reply(turn.agent, result)
        except (CommandNotFound, CommandNotStarted) as error:
            raise AgentError(turn.agent, str(error)) from error
        reason = f"{self.name!r} gave no answer within {self.timeout:g} s"
        raise AgentError(turn.agent, reason + _said(heard.stderr))

    def _reply(self, agent: str, result: ProcessResult) -> AgentReply:
        if result.exit_code != 0:
            ended = (
                f"exited with {result.exit_code}"
                if result.exit_code > 0
                else f"was ended by signal {-result.exit_code}"
            )
            said = _said(result.stderr) or _said(result.stdout) or " and said nothing"
            raise AgentError(agent, f"{self.name!r} {ended}{said}")
        if result.stdout_truncated_bytes:
            raise AgentError(
                agent,
                f"{self.name!r} printed {result.stdout_truncated_bytes} bytes more than are kept "
                f"of an answer. Have it print the answer alone.",
            )
        return AgentReply(result.stdout)


class _Heard:
    """Passes on what a program prints, and keeps the end of its stderr. Mutable."""

    def __init__(self, turn: AgentTurn) -> None:
        self.stderr = ""
        self._turn = turn

    def __call__(self, stream: Stream, text: str) -> None:
        if stream == "stdout":
            self._turn.emit(AgentMessage(self._turn.path, text))
        else:
            self.stderr = (self.stderr + text)[-_TAIL_CHARS:]
            self._turn.emit(StepOutput(self._turn.path, stream, text))


def _said(output: str) -> str:
    text = output.strip()
    shown = text if len(text) <= _TAIL_CHARS else f"...{text[-_TAIL_CHARS:]}"
    return f": {shown}" if shown else ""
