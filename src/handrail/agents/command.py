"""A backend that is any program: prompt on stdin, answer on stdout."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import PurePath
from typing import Any, ClassVar

import attrs

from handrail.agents.command_lines import CommandParser
from handrail.agents.programs.cli_turn import run_cli
from handrail.agents.programs.environment import child_environment
from handrail.agents.programs.watchdog import Patience
from handrail.model.agent_options import AgentOptions
from handrail.model.policy import positive_seconds
from handrail.ports.agent import AgentReply, AgentTurn, Capabilities
from handrail.system.spawn import arguments, check_environment


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
        return await run_cli(
            turn,
            self.argv,
            CommandParser(turn, self.name, patience),
            stdin=turn.prompt.encode("utf-8", "replace"),
            env=child_environment(options),
            cwd=options.cwd,
            options=options,
            program=self.name,
            install=None,
            patience=patience,
            keep_ends=True,
        )


def _patience(options: AgentOptions) -> Patience:
    """What the options ask for, and else no end of it. Who bounds each silence bounds the first."""
    idle_s = options.idle_timeout_s or math.inf
    start_s = options.start_timeout_s or idle_s
    tool_s = options.tool_timeout_s or idle_s
    return Patience(start_s, idle_s, tool_s, options.timeout_s, exit_s=math.inf)
