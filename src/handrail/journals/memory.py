"""A journal that lives as long as its process."""

from __future__ import annotations

from handrail.errors import HandrailError
from handrail.model.events import (
    Event,
    RunResumed,
    RunSuspended,
    WorkflowCompleted,
    WorkflowStarted,
)
from handrail.model.results import RunStatus
from handrail.ports.journal import RunInfo


class OutOfSequence(HandrailError):
    """An event was to be stored under a number that is not the next one of its run."""

    def __init__(self, run_id: str, seq: int, expected: int) -> None:
        super().__init__(run_id, seq, expected)
        self.run_id = run_id
        self.seq = seq
        self.expected = expected

    def __str__(self) -> str:
        return (
            f"run {self.run_id}: an event came with number {self.seq} where {self.expected} is "
            f"next. Two drivers are writing this run, or an event was lost; nothing was stored."
        )


class MemoryJournal:
    """Keeps the very events that it is given, until the process ends.

    A run can be suspended and resumed with it in one process, and nothing needs to be encoded.
    """

    durable = False

    def __init__(self) -> None:
        self._events: dict[str, list[Event]] = {}

    def append(self, event: Event, /, *, sync: bool = False) -> None:
        """Keep the event.

        Raises:
            OutOfSequence: its number is not the next one of its run; nothing is kept.
        """
        del sync
        kept = self._events.get(event.run_id)
        if kept is None:
            if event.seq != 1:
                raise OutOfSequence(event.run_id, event.seq, 1)
            self._events[event.run_id] = [event]
            return
        if event.seq != len(kept) + 1:
            raise OutOfSequence(event.run_id, event.seq, len(kept) + 1)
        kept.append(event)

    def events(self, run_id: str, /) -> list[Event]:
        """All events of a run so far, in order; empty for a run that it does not know."""
        return list(self._events.get(run_id, ()))

    def runs(self) -> list[RunInfo]:
        """Every run, oldest first."""
        return [_info(run_id, events) for run_id, events in self._events.items()]

    def close(self) -> None:
        """Do nothing: the events stay, so that a run can be resumed."""


def _info(run_id: str, events: list[Event]) -> RunInfo:
    first = events[0]
    name = first.workflow_name if isinstance(first, WorkflowStarted) else ""
    return RunInfo(run_id, name, _status(events), first.at, len(events))


def _status(events: list[Event]) -> RunStatus | None:
    for event in reversed(events):
        match event:
            case WorkflowCompleted():
                return event.status
            case RunSuspended():
                return "suspended"
            case WorkflowStarted() | RunResumed():
                return None
            case _:
                pass  # an answer or a signal that came after the drive's last event
    return None
