"""Guidance: texts that people send to a run's agents, and which agents have yet to get them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from handrail.model.dataclass import dataclass
from handrail.model.events import AgentGuided, RunSteered
from handrail.model.paths import is_within


@dataclass(frozen=True, slots=True)
class GivenGuidance:
    """Guidance that an agent got: its text, its author, when, and with which launch."""

    text: str
    by: str
    at: float
    launch: int


def given_guidance(event: AgentGuided) -> list[GivenGuidance]:
    """The guidance that a launch gave to its agent."""
    sayings = zip(event.next.guidance[-len(event.said_by) :], event.said_by, strict=False)
    return [GivenGuidance(text, by, event.at, event.next.number) for text, by in sayings]


@dataclass(slots=True)
class PendingGuidance:
    """Guidance that has not reached all agents that it is for. Mutable.

    ``number`` counts the guidance of the run, from 1. ``waiting``: the steps whose agents were at
    work then and have not got it. If there is none, it is for the next agent that is launched.
    """

    number: int
    event: RunSteered
    waiting: set[str]
    given: bool = False

    def is_for(self, path: str) -> bool:
        """True if the next launch of the agent at this path gets it."""
        if self.waiting:
            return any(is_within(path, one) for one in self.waiting)
        return is_within(path, self.event.path)


@dataclass(slots=True)
class Guidance:
    """The pending guidance of a run, oldest first. Mutable.

    Each text is for the agents that were at work when a person sent it. If none was, or if all of
    them end without it, it is for the next agent that is launched. The live run and the record have
    a ``Guidance`` each, and it works alike in both.
    """

    waiting: list[PendingGuidance] = field(default_factory=list[PendingGuidance])
    count: int = 0

    def on_steered(self, event: RunSteered, at_work: Iterable[str]) -> None:
        """Add a person's guidance, for the agents ``at_work`` that are at or below its path."""
        self.count += 1
        chosen = {path for path in at_work if is_within(path, event.path)}
        self.waiting.append(PendingGuidance(self.count, event, chosen))

    def for_launch(self, path: str) -> list[PendingGuidance]:
        """The guidance for the next launch of the agent at this path."""
        return [note for note in self.waiting if note.is_for(path)]

    def on_guided(self, event: AgentGuided) -> None:
        """Note which guidance a launch gave to its agent; drop guidance that all have got."""
        left: list[PendingGuidance] = []
        for note in self.waiting:
            if note.number in event.numbers:
                note.given = True
                note.waiting = {path for path in note.waiting if not is_within(event.path, path)}
            if note.waiting or not note.given:
                left.append(note)
        self.waiting = left

    def ended(self, path: str) -> None:
        """Note the end of a step: guidance that it has not got is no longer for it."""
        for note in self.waiting:
            note.waiting.discard(path)
        self.waiting = [note for note in self.waiting if note.waiting or not note.given]

    def copy(self) -> Guidance:
        """An independent copy."""
        copies = [PendingGuidance(o.number, o.event, set(o.waiting), o.given) for o in self.waiting]
        return Guidance(copies, self.count)
