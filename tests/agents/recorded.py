"""Recorded runs of agents' programs, and parsers that are fed with them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from handrail.agents.transport.parser import Ending, Stop, TurnParser
from handrail.errors import AgentError
from handrail.model.events import Notice
from handrail.ports.agent import AgentReply, AgentTurn
from handrail.system.live import LineFramer

SAMPLES = Path(__file__).parent / "samples"
NOW = 1_795_294_000.0
"""2026-11-21, 20:46:40 UTC: about when the runs were recorded."""


def turn_of(*, emitted: list[Notice] | None = None, **given: Any) -> AgentTurn:
    """A turn of a step ``s`` that nobody listens to, or this list."""
    emit = (lambda _: None) if emitted is None else emitted.append
    return replace(AgentTurn("coder", "Say hello.", "run-1", "s", emit=emit), **given)


def recorded(program: str, case: str) -> bytes:
    """What a program printed; nothing for a case in which it printed nothing."""
    path = SAMPLES / program / f"{case}.jsonl"
    return path.read_bytes() if path.exists() else b""


def ending_of(program: str, case: str, stopped: Stop | None = None) -> Ending:
    """How the program ended then."""
    known = endings(program)[case]
    return Ending(known["exit_code"], stopped, known["stderr"], now=NOW, after_s=12.0)


def case_names(program: str) -> list[str]:
    """The cases in which a program printed something."""
    return [case for case in endings(program) if recorded(program, case)]


def endings(program: str) -> dict[str, Any]:
    """How a program ended in each case: its exit code, and what it said on stderr."""
    known: dict[str, Any] = json.loads((SAMPLES / program / "endings.json").read_text("utf-8"))
    return known


@dataclass(frozen=True, slots=True)
class Played:
    """What a parser made of a run."""

    notices: tuple[Notice, ...]
    outcome: AgentReply | AgentError
    finished: bool
    open_tools: int

    @property
    def reply(self) -> AgentReply:
        """The answer, which there must be."""
        assert isinstance(self.outcome, AgentReply), self.outcome
        return self.outcome

    @property
    def error(self) -> AgentError:
        """The failure, which there must be."""
        assert isinstance(self.outcome, AgentError), self.outcome
        return self.outcome

    @property
    def summary(self) -> tuple[Any, ...]:
        """All of it, in a form that can be compared."""
        told: Any = self.outcome
        if isinstance(told, AgentError):
            told = (told.kind, told.reason, told.retry_at, told.session, told.text, told.usage)
        others = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return tuple({**others, "outcome": told}.values())


@dataclass(frozen=True, slots=True)
class Aside:
    """A line of stderr, which comes between chunks of stdout."""

    line: bytes


def play(parser: TurnParser, chunks: Iterable[bytes | Aside], ending: Ending) -> Played:
    """What a parser makes of a stream that comes in these chunks."""
    framer = LineFramer("stdout")
    notices: list[Notice] = []
    for chunk in chunks:
        if isinstance(chunk, Aside):
            notices += parser.feed_stderr(chunk.line)
        else:
            notices += [one for line in framer.feed(chunk) for one in parser.feed(line.data)]
    notices += [one for line in framer.finish() for one in parser.feed(line.data)]
    finished, open_tools = parser.finished, parser.open_tools
    try:
        outcome: AgentReply | AgentError = parser.conclude(ending)
    except AgentError as error:
        outcome = error
    return Played(tuple(notices), outcome, finished, open_tools)


LOGGED = (
    b"Error: quota exceeded, you've hit your usage limit",
    b"429 Too Many Requests: rate limit reached",
    b"network error: ECONNREFUSED",
    b"not logged in",
    b"prompt is too long",
    b"fatal: \xff\xfe{",
    b"",
)
"""What programs and what they start may say on stderr, whatever becomes of the turn."""


@st.composite
def in_pieces(draw: st.DrawFn, stream: bytes) -> list[bytes | Aside]:
    """A stream in pieces, cut anywhere, with lines of stderr in between: words of failures, and
    lines of the stream itself, which say nothing where they do not belong.
    """
    edges = [0, *sorted(draw(st.lists(st.integers(0, len(stream)), max_size=8))), len(stream)]
    lines = st.sampled_from([*LOGGED, *stream.splitlines()])
    pieces: list[bytes | Aside] = []
    for start, end in pairwise(edges):
        pieces += [Aside(line) for line in draw(st.lists(lines, max_size=2))]
        pieces.append(stream[start:end])
    return pieces


def of_type(notices: Iterable[Notice], kind: type[Any]) -> list[Any]:
    """The notices of one kind."""
    return [notice for notice in notices if isinstance(notice, kind)]
