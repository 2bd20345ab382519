"""When a run was driven, and when each of its steps was at work, from its history.

A step may be at work several times: an attempt fails and another follows, an agent's launch waits
for the end of a usage cap, a process ends and a later one begins the step again. Times are unix
seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import Literal, TypeAlias

from handrail.model import events as ev
from handrail.model.dataclass import dataclass
from handrail.steps.table import verb_of

How: TypeAlias = Literal["", "failed", "interrupted"]
"""How a stretch of work ended; "": as the step did, or it has no end yet."""
Stretch: TypeAlias = "tuple[float, float | None, How]"
"""Start, end (None: it has no end yet), and how it ended."""

_AGAIN = frozenset({"retry", "cap", "backoff"})


@dataclass(slots=True)
class StepTimes:
    """The times of one step: its stretches, its last beginning, and its end. Mutable.

    A question that is no step itself, but asks about one, has no ``kind``: its answer is its end.
    """

    kind: str
    began: float
    ended: float | None = None
    stretches: list[Stretch] = field(default_factory=list["Stretch"])
    since: float | None = None
    """When the open stretch began, or when the next one is due."""

    def begin(self, at: float) -> None:
        """Begin the step, or begin it again after an end; an open stretch continues."""
        if self.ended is not None:
            self.began, self.ended, self.since = at, None, at
        if self.since is None:
            self.since = at

    def stop(self, at: float, how: How) -> None:
        """End the open stretch; one that was not due yet counts only if it failed."""
        since, self.since = self.since, None
        if since is not None and (since <= at or how == "failed"):
            self.stretches.append((min(since, at), at, how))

    def end(self, at: float) -> None:
        """End the step, and its open stretch."""
        if self.ended is None:
            self.stop(at, "")
            self.ended = at

    @property
    def all_stretches(self) -> list[Stretch]:
        """The stretches, with the open one."""
        if self.since is None:
            return self.stretches
        return [*self.stretches, (self.since, None, "")]


@dataclass(slots=True)
class Times:
    """The times of a run: of its steps by path, and of its drives (start, end). Mutable."""

    steps: dict[str, StepTimes] = field(default_factory=dict[str, StepTimes])
    drives: list[tuple[float, float | None]] = field(
        default_factory=list["tuple[float, float | None]"]
    )
    last: float = 0.0
    """The time of the last event that was applied."""

    def apply(self, event: ev.Event) -> None:
        """Apply the next event."""
        at, path, before = event.at, getattr(event, "path", ""), self.last
        self.last = at
        if isinstance(event, ev.DriveBegan):
            self._drive_began(at, before)
        elif isinstance(event, ev.DriveEnded):
            self.drives[-1:] = [(began, at) for began, _ in self.drives[-1:]]
        elif isinstance(event, ev.Began | ev.GateOpened):
            kind = "member" if isinstance(event, ev.MemberStarted) else ""
            kind = getattr(event, "step_type", kind)
            self.steps.setdefault(path, StepTimes(kind, at)).begin(at)
        elif isinstance(event, ev.Ended):
            began = at - event.result.duration_ms / 1000
            self.steps.setdefault(path, StepTimes("", began, since=began)).end(at)
        elif path in self.steps:
            _apply(self.steps[path], event)

    def _drive_began(self, at: float, before: float) -> None:
        if self.drives and self.drives[-1][1] is None:  # the process of that drive was killed
            self.drives[-1] = (self.drives[-1][0], before)
            for step in self.steps.values():
                if verb_of(step.kind).leaf and step.since is not None:
                    step.stop(max(step.since, before), "interrupted")
        self.drives.append((at, None))

    def drives_until(self, last: float | None) -> list[list[float | None]]:
        """The drives; an open one ended at ``last``, if that is not None."""
        return [[began, last if ended is None else ended] for began, ended in self.drives]


def times_of(history: Iterable[ev.Event]) -> Times:
    """The times of a run, from its history."""
    found = Times()
    for event in history:
        found.apply(event)
    return found


def _apply(step: StepTimes, event: ev.Event) -> None:
    match event:
        case ev.GateAnswered() if not step.kind:
            step.end(event.at)
        case ev.AgentSessionStarted():
            step.begin(event.at)
        case ev.StepInterrupted():
            step.stop(event.at, "interrupted")
        case ev.TimerSet() if event.reason in _AGAIN:
            step.since = event.due
        case ev.AttemptFailed():
            step.stop(event.at, "failed")
        case ev.LadderStep():
            step.stop(event.at, "failed")
            step.since = None if event.parked else max(event.due, event.at)
        case _:
            pass
