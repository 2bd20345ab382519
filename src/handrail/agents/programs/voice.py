"""How a program is talked with for one turn: lines in, notices and lines out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from handrail.agents.programs.turn_parser import TurnReader
from handrail.model.events import Notice
from handrail.system.live import Line


class Voice(Protocol):
    """Stands between a program and what reads its turn. It waits for nothing, as that."""

    @property
    def reader(self) -> TurnReader:
        """What knows how far the turn is, and concludes it."""
        ...

    @property
    def stdin(self) -> bytes | None:
        """All that the program reads; None: it is talked with while it works."""
        ...

    def start(self) -> Iterable[bytes]:
        """The lines that are sent first."""
        ...

    def heard(self, line: Line, /) -> tuple[Iterable[Notice], Iterable[bytes]]:
        """What a line means, and the lines that are to be sent because of it."""
        ...

    def interrupt(self) -> Sequence[bytes]:
        """The lines that are sent to end the turn early; none if there is nothing to say now."""
        ...
