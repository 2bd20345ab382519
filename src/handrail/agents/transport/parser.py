"""Reads a program's protocol: bytes in, notices out, and at the end a reply. It never waits.

A program that answers a prompt prints lines. Each such backend has a parser for one turn. The
parser gets whole lines as they arrive and returns their notices. Once the program has exited, or
was ended, the parser returns the answer. Parsers do no I/O and read no clock, so that a test can
feed them anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, Protocol, TypeAlias

from handrail.errors import AgentErrorKind
from handrail.model.dataclass import dataclass
from handrail.model.events import Notice
from handrail.ports.agent import AgentReply
from handrail.shortening import shortened

Stop: TypeAlias = Literal["start_timeout", "idle_timeout", "timeout", "interrupted"]
"""Why handrail ended a program: one of the watchdogs, or an interruption."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How the program of a turn ended.

    ``exit_code`` is negative for a signal, None if it did not exit in time. ``stopped`` says why
    *handrail* ended it, if it did; ``after_s`` is the limit in seconds that it then exceeded.
    ``stderr`` is the end of its stderr. ``now`` is the unix time that relative times in texts
    refer to. ``outstayed``: it had finished, did not exit, and was ended for that.
    """

    exit_code: int | None
    stopped: Stop | None = None
    stderr: str = ""
    now: float = 0.0
    after_s: float = 0.0
    outstayed: bool = False


class TurnReader(Protocol):
    """Follows one turn and concludes it. Mutable; lives as long as the turn."""

    @property
    def finished(self) -> bool:
        """True once the program itself declared the turn finished: no more input is needed."""
        ...

    @property
    def open_tools(self) -> int:
        """How many tools are running, as far as reported. While any are, silence is no hang."""
        ...

    @property
    def extra_silence_s(self) -> float:
        """Extra seconds that it may be silent now, because it announced them (a retry delay)."""
        ...

    def conclude(self, ending: Ending, /) -> AgentReply:
        """The answer.

        Raises:
            AgentError: there is no answer; the error has its kind.
        """
        ...


class TurnParser(TurnReader, Protocol):
    """Reads the lines of one turn."""

    def feed(self, line: bytes, /) -> Iterable[Notice]:
        """The notices of a line of stdout, in order; none if it has no meaning. Never raises."""
        ...

    def feed_stderr(self, line: bytes, /) -> Iterable[Notice]:
        """The notices of a line of stderr; mostly none."""
        ...


_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_NOISE = re.compile(
    r"^(?:warning\b|warn\b|tip:|\(node:\d+\)|at |note:)|\bcodex could not find bubblewrap\b",
    re.IGNORECASE,
)
_LOGIN = re.compile(
    r"not logged in|log ?in|sign in|authenticat|unauthorized|api[_ ]key|credentials|\btoken\b",
    re.IGNORECASE,
)
_PANIC = re.compile(r"panicked at|segmentation fault|out of memory|core dumped", re.IGNORECASE)
_SHOWN_CHARS = 600


def kind_of_end(ending: Ending, *, saw_protocol: bool) -> AgentErrorKind:
    """The kind of a failure if the program ended without a terminal event.

    If it failed before its first protocol message and complained on stderr, it rejected its
    arguments (``config``) or has no login (``auth``).
    """
    if ending.stopped is not None:
        return "interrupted" if ending.stopped == "interrupted" else "timeout"
    complaint = stderr_reason(ending)
    if saw_protocol or not complaint or not ending.exit_code or ending.exit_code < 0:
        return "crashed"
    if _PANIC.search(complaint):
        return "crashed"
    return "auth" if _LOGIN.search(complaint) else "config"


def describe_end(program: str, ending: Ending, *, saw_protocol: bool = True) -> str:
    """How a program ended, in words, with the end of its stderr."""
    said = stderr_reason(ending)
    tail = f": {said}" if said else ""
    match ending.stopped:
        case "interrupted":
            return f"{program} was interrupted"
        case "start_timeout":
            return f"{program} gave no sign of life within {ending.after_s:g} s{tail}"
        case "idle_timeout":
            return f"{program} gave no sign of life for {ending.after_s:g} s and was stopped"
        case "timeout":
            return f"{program} did not finish within {ending.after_s:g} s"
        case None:
            silent = " without saying that it is done" if saw_protocol or not said else ""
            return f"{program} {describe_exit(ending.exit_code)}{silent}{tail}"


def stderr_reason(ending: Ending) -> str:
    """The lines of stderr that may be reasons, shortened."""
    plain = _ANSI.sub("", ending.stderr)
    lines = (line.strip() for line in plain.splitlines())
    kept = "\n".join(line for line in lines if line and not _NOISE.search(line))
    if len(kept) <= _SHOWN_CHARS:
        return kept
    half = _SHOWN_CHARS // 2
    return shortened(kept, half, mark=" ... ") + shortened(kept, half, "tail", mark="")


def describe_exit(code: int | None) -> str:
    """How a program exited."""
    if code is None:
        return "never exited"
    return f"was ended by signal {-code}" if code < 0 else f"exited with {code}"
