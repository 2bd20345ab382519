"""What reads a program's protocol: bytes in, notices and at last a reply out. It waits for nothing.

A program that answers a prompt prints lines. Each backend of that kind has a parser for one turn:
it is fed whole lines as they come and says what they mean; when the program has ended, or has been
ended, it says what the answer is. Parsers do no input or output and know no clock, so that a test
can feed them anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from handrail.model.events import Notice
from handrail.ports.agent import AgentReply

Stop: TypeAlias = Literal["start_timeout", "idle_timeout", "timeout", "interrupted"]
"""Why we ended a program: one of the watchdogs, or somebody wanted it to end."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How the program of a turn came to its end.

    ``exit_code`` is negative for a signal, None if it did not exit in time. ``stopped`` says why
    *we* ended it, if we did: it had taken longer than ``after_s`` seconds. ``stderr`` is the end of
    what it printed there. ``now`` is the time, in unix seconds, to which relative times in texts
    refer.
    """

    exit_code: int | None
    stopped: Stop | None = None
    stderr: str = ""
    now: float = 0.0
    after_s: float = 0.0


class TurnReader(Protocol):
    """What knows how far one turn is, and what comes of it. Mutable; lives as long as the turn."""

    @property
    def finished(self) -> bool:
        """True once the program's own last word on the turn was heard: nothing more is needed."""
        ...

    @property
    def open_tools(self) -> int:
        """How many tools are at work, as far as it has been told: silence is no hang then."""
        ...

    @property
    def patience_s(self) -> float:
        """How much longer than usual it may be silent now, because it said so (a retry delay)."""
        ...

    def conclude(self, ending: Ending, /) -> AgentReply:
        """The answer.

        Raises:
            AgentError: there is none, with its kind.
        """
        ...


class TurnParser(TurnReader, Protocol):
    """Reads the lines of one turn."""

    def feed(self, line: bytes, /) -> Iterable[Notice]:
        """What a line of stdout means, in order. Lines of no meaning give nothing; none raises."""
        ...

    def feed_stderr(self, line: bytes, /) -> Iterable[Notice]:
        """What a line of stderr means; mostly nothing."""
        ...
