"""What people said to the agents of a run, and who is to be given it still."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from handrail.model.dataclass import dataclass
from handrail.model.events import AgentGuided, RunSteered
from handrail.model.paths import is_within


@dataclass(frozen=True, slots=True)
class GivenGuidance:
    """Guidance that an agent was given: its text, its author, when, and with which launch."""

    text: str
    by: str
    at: float
    launch: int


def given_guidance(event: AgentGuided) -> list[GivenGuidance]:
    """The guidance that a launch gave to its agent."""
    said = zip(event.next.guidance[-len(event.said_by) :], event.said_by, strict=False)
    return [GivenGuidance(text, by, event.at, event.next.number) for text, by in said]


@dataclass(slots=True)
class PendingGuidance:
    """Guidance that a person wrote, and that has not been given to all whom it is for. Mutable.

    ``number`` counts what was said in the run, from 1. ``waiting`` are the steps whose agents were
    at work then; without them it is for the next one that is launched.
    """

    number: int
    event: RunSteered
    waiting: set[str]
    given: bool = False

    def is_for(self, path: str) -> bool:
        """True if the agent at this path is to be given it, when it is launched next."""
        if self.waiting:
            return any(is_within(path, one) for one in self.waiting)
        return is_within(path, self.event.path)


@dataclass(slots=True)
class Guidance:
    """What was said and is not given yet, oldest first. Mutable.

    It is for each agent that was at work then. If none was, or all of those end without it, it is
    for the next one that is launched. The live run and the record keep the same books.
    """

    waiting: list[PendingGuidance] = field(default_factory=list[PendingGuidance])
    count: int = 0

    def on_steered(self, event: RunSteered, at_work: Iterable[str]) -> None:
        """Keep what was said; of the agents ``at_work`` it is for those at and below its path."""
        self.count += 1
        chosen = {path for path in at_work if is_within(path, event.path)}
        self.waiting.append(PendingGuidance(self.count, event, chosen))

    def for_launch(self, path: str) -> list[PendingGuidance]:
        """What the agent at this path is to be given with its next launch."""
        return [one for one in self.waiting if one.is_for(path)]

    def on_guided(self, event: AgentGuided) -> None:
        """Take note of what a launch gave to its agent."""
        left: list[PendingGuidance] = []
        for one in self.waiting:
            if one.number in event.numbers:
                one.given = True
                one.waiting = {path for path in one.waiting if not is_within(event.path, path)}
            if one.waiting or not one.given:
                left.append(one)
        self.waiting = left

    def ended(self, path: str) -> None:
        """Take note of the end of a step: what it was not given is not for it any more."""
        for one in self.waiting:
            one.waiting.discard(path)
        self.waiting = [one for one in self.waiting if one.waiting or not one.given]

    def copy(self) -> Guidance:
        """The same books, for somebody else to keep."""
        copies = [PendingGuidance(o.number, o.event, set(o.waiting), o.given) for o in self.waiting]
        return Guidance(copies, self.count)
