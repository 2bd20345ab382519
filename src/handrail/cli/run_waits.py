"""What a recorded run waits for, and what has come that it has not read yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from handrail.engine.history import asked_by, ended, unread
from handrail.model import events as ev
from handrail.model.results import OpenGate
from handrail.ports.journal import Journal
from handrail.record.dropped import begun
from handrail.record.run_record import Recorded


@dataclass(frozen=True, slots=True)
class Waits:
    """Gates that nobody has answered, signals that have not come, and letters not read yet."""

    gates: tuple[OpenGate, ...]
    signals: tuple[str, ...]
    letters: tuple[ev.Event, ...]


def waits_of(journal: Journal, run_id: str, history: Sequence[ev.Event]) -> Waits:
    """What the run waits for; nothing if it has ended."""
    letters = unread(journal, run_id, history)
    if ended(history) is not None:
        return Waits((), (), tuple(letters))
    return Waits(_gates([*history, *letters]), _signals([*history, *letters]), tuple(letters))


def _gates(events: Sequence[ev.Event]) -> tuple[OpenGate, ...]:
    gates: dict[str, OpenGate] = {}
    steps = begun(events)
    for event in events:
        match event:
            case ev.GateOpened():
                gates[event.path] = event.gate
            case ev.GateAnswered():
                gates.pop(event.path, None)
            case ev.StepCompleted():
                for path in asked_by(event.path, gates, steps):
                    del gates[path]
            case ev.RunResumed():
                for path in [
                    one for gone in event.superseded for one in asked_by(gone, gates, steps)
                ]:
                    gates.pop(path, None)
            case _:
                pass
    return tuple(gates.values())


def _signals(events: Sequence[ev.Event]) -> tuple[str, ...]:
    recorded = Recorded(events)
    come = recorded.signals_left()
    records = [recorded.at(path) for path in recorded.paths_below("")]
    names = {record.signal: None for record in records if not record.ended()}
    return tuple(name for name in names if name and name not in come)
