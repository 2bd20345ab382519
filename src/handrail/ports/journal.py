"""The port through which a run becomes a fact."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Protocol

from handrail.model.events import Event
from handrail.model.results import RunStatus


@dataclass(frozen=True, slots=True)
class RunInfo:
    """One run as a journal lists it; ``status`` is None while it has no end."""

    run_id: str
    workflow_name: str
    status: RunStatus | None
    started_at: float
    events: int


class Journal(Protocol):
    """The append-only store of the events of runs.

    Events of a run are numbered by ``seq`` from 1 without a hole; ``append`` of any other number
    is refused. What ``append`` returned from (or whose awaitable completed) survives whatever the
    journal promises to survive. ``events`` gives them back in order, equal to what was appended.
    Contract suite: ``handrail.testing.contracts.JournalContract``.
    """

    durable: bool

    def append(self, event: Event, /, *, sync: bool = False) -> Awaitable[None] | None:
        """Store the event; if an awaitable comes back, it is stored once that completes.

        Raises:
            Exception: it was not stored; the run cannot go on.
        """
        ...

    def events(self, run_id: str, /) -> Sequence[Event]:
        """All events of a run, in order; empty for a run that it does not know."""
        ...

    def runs(self) -> Sequence[RunInfo]:
        """Every run, oldest first."""
        ...

    def close(self) -> None:
        """Release what the journal holds; it can be used again afterwards."""
        ...
